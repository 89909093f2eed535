"""Invent endpoints: registry files with odd switches, odd fields, tags and refusals that no vendor has."""

from __future__ import annotations

import random
from typing import Any

import tomli_w

WIRES = ("openai-chat", "openai-chat", "openai-chat", "anthropic-messages", "openai-responses", "gemini")
SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("thinking.type", "enabled", "disabled"),
    ("enable_thinking", True, False),
    ("chat_template_kwargs.enable_thinking", True, False),
    ("reasoning.enabled", True, False),
    ("think", True, False),
    ("deep_thought", "yes", "no"),
    ("options.ponder", 1, 0),
)
PATHS = {
    "openai-chat": {"temperature": "temperature", "stop": "stop"},
    "anthropic-messages": {"temperature": "temperature", "stop": "stop_sequences"},
    "openai-responses": {"temperature": "temperature"},
    "gemini": {"temperature": "generationConfig.temperature", "stop": "generationConfig.stopSequences"},
}
"""Where the wires have their parameters."""

FIELDS = ("reasoning_content", "reasoning", "thinking", "thoughts", "inner_voice")


def invent(seed: int, count: int = 25) -> tuple[str, list[tuple[str, str]]]:
    """Return a registry file with endpoints, and the name and the wire of the model at each."""
    rng = random.Random(seed)
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    names = []
    for number in range(count):
        wire = rng.choice(WIRES)
        provider = f"invented-{number}"
        providers[provider] = {
            **({"extends": "openai-compatible"} if wire == "openai-chat" else {}),
            "title": f"Invented {number}",
            "protocol": wire,
            "base_url": "http://127.0.0.1:9/v1",
            "keys": ["INVENTED_API_KEY"],
        }
        models[f"{provider}/m"] = _flags(rng, wire)
        names.append((f"{provider}/m", wire))
    return tomli_w.dumps({"providers": providers, "models": models}), names


def _flags(rng: random.Random, wire: str) -> dict[str, Any]:
    """Return the flags of one endpoint."""

    def maybe(chance: float) -> bool:
        return rng.random() < chance

    flags: dict[str, Any] = {}
    if wire == "openai-chat":
        flags["reasoning"] = _reasoning(rng)
    messages: dict[str, Any] = {}
    if maybe(0.4):
        messages["system"] = rng.choice(("first", "user"))
    if maybe(0.3):
        messages["consecutive_roles"] = "join"
    if maybe(0.3):
        messages["first_user"] = True
    if maybe(0.5):
        messages["developer"] = maybe(0.5)
    params: dict[str, Any] = {}
    for name, chance in (("seed", 0.4), ("presence_penalty", 0.4), ("frequency_penalty", 0.4), ("top_p", 0.2)):
        if maybe(chance):
            params[name] = rng.choice((False, "ignored"))
    if maybe(0.5):
        most = rng.choice((1, 1.5))
        params["temperature"] = {"as": PATHS[wire]["temperature"], "min": 0, "max": most, "otherwise": "clamp"}
    if maybe(0.4) and "stop" in PATHS[wire]:
        params["stop"] = {"as": PATHS[wire]["stop"], "items": rng.choice((1, 4, 5))}
    if wire == "openai-chat" and maybe(0.3):
        params["max_tokens"] = rng.choice(("max_completion_tokens", "max_output"))
    tools: dict[str, Any] = {}
    if maybe(0.15):
        tools["supported"] = False
    elif maybe(0.5):
        tools["name_max_length"] = rng.choice((40, 64))
    if maybe(0.4) and tools.get("supported") is not False:
        flags["tool_choice"] = {"allowed": rng.choice((["auto"], ["auto", "none"], ["auto", "none", "required"]))}
    if maybe(0.3):
        flags["limits"] = {"output": rng.choice((1000, 8192))}
    if maybe(0.15):
        flags["stream"] = {"required": True}
    elif maybe(0.2) and wire == "openai-chat":
        flags["stream"] = {"tools": False}
    if maybe(0.4):
        flags["schema"] = {"methods": rng.choice((["json_object"], ["json_schema", "json_object"]))}
    flags.update({key: value for key, value in (("messages", messages), ("params", params), ("tools", tools)) if value})
    return flags


def _reasoning(rng: random.Random) -> dict[str, Any]:
    """Return how one endpoint of chat completions reasons."""
    mode = rng.choice(("toggle", "toggle", "always", "never"))
    if mode == "never":
        return {"mode": "never"}
    out: dict[str, Any] = {"mode": mode, "default": "on" if mode == "always" else rng.choice(("on", "off"))}
    if rng.random() < 0.25:
        out |= {"shape": "tags", "tags": ["<think>", "</think>"]}
    else:
        out |= {"shape": "field", "fields": [rng.choice(FIELDS)]}
    if mode == "toggle":
        path, on, off = rng.choice(SWITCHES)
        out |= {"on": {"set": _nested(path, on)}, "off": {"set": _nested(path, off)}}
    if rng.random() < 0.3:
        out["replay"] = rng.choice(("always", "never", "tools"))
    return out


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)
