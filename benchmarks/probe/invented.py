"""Invent endpoints: registry files with any flags that the schema allows and the simulator speaks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tomli_w

from cnllm.jsonpath import set_value

COUNT = 60
WIRES = ("openai-chat", "openai-chat", "openai-chat", "anthropic-messages", "openai-responses", "gemini")
Flags = dict[str, Any]

# ── names: most are known of some endpoint, a few stand nowhere ──────────────
_SWITCHES: dict[str, tuple[tuple[Flags, Flags], ...]] = {
    "openai-chat": (
        ({"thinking.type": "enabled"}, {"thinking.type": "disabled"}),
        ({"enable_thinking": True}, {"enable_thinking": False}),
        ({"chat_template_kwargs.enable_thinking": True}, {"chat_template_kwargs.enable_thinking": False}),
        ({"chat_template_kwargs.thinking": True}, {"chat_template_kwargs.thinking": False}),
        ({"reasoning.enabled": True}, {"reasoning.enabled": False}),
        ({"think": True}, {"think": False}),
        ({"reasoning_effort": "medium"}, {"reasoning_effort": "none"}),
    ),
    "anthropic-messages": (
        ({"thinking.type": "enabled", "thinking.budget_tokens": 2048}, {"thinking.type": "disabled"}),
        ({"thinking.type": "enabled"}, {"thinking.type": "disabled"}),
        ({"thinking.type": "adaptive"}, {"thinking.type": "disabled"}),
    ),
    "openai-responses": (
        ({"reasoning.effort": "medium"}, {"reasoning.effort": "none"}),
        ({"enable_thinking": True}, {"enable_thinking": False}),
        ({"thinking.type": "enabled"}, {"thinking.type": "disabled"}),
    ),
    "gemini": (
        (
            {"generationConfig.thinkingConfig.includeThoughts": True},
            {"generationConfig.thinkingConfig.thinkingBudget": 0},
        ),
    ),
}
_HIDDEN = (({"deep_thought": "yes"}, {"deep_thought": "no"}), ({"options.ponder": 1}, {"options.ponder": 0}))
_EFFORTS = {
    "openai-chat": ("reasoning_effort", "reasoning.effort", "thinking.effort"),
    "anthropic-messages": ("output_config.effort",),
    "openai-responses": ("reasoning.effort",),
    "gemini": ("generationConfig.thinkingConfig.thinkingLevel",),
}
_BUDGETS = {
    "openai-chat": ("thinking_budget", "thinking.budget_tokens", "reasoning.max_tokens"),
    "anthropic-messages": ("thinking.budget_tokens",),
    "gemini": ("generationConfig.thinkingConfig.thinkingBudget",),
}
_FIELDS = ("reasoning_content", "reasoning", "thinking", "thoughts", "inner_voice", "mind", "cot.text")
_TAGS = (("<think>", "</think>"), ("<reasoning>", "</reasoning>"), ("<ponder>", "</ponder>"), ("[MIND]", "[/MIND]"))
_PARAMS: dict[str, dict[str, str]] = {
    "openai-chat": {name: name for name in ("temperature", "top_p", "stop", "seed", "logprobs", "top_k", "logit_bias")}
    | {"presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty"},
    "anthropic-messages": {"temperature": "temperature", "top_p": "top_p", "stop": "stop_sequences", "top_k": "top_k"},
    "openai-responses": {"temperature": "temperature", "top_p": "top_p", "top_logprobs": "top_logprobs"},
    "gemini": {
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "presence_penalty": "generationConfig.presencePenalty",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "logprobs": "generationConfig.responseLogprobs",
    },
}
"""Where the wires have their parameters."""

_KEYWORDS = ("title", "format", "pattern", "minLength", "default", "minimum", "multipleOf", "minItems", "uniqueItems")
_RULES = ("inline-refs", "root-refs", "any-of-only", "one-type", "branch-types", "no-tuples", "typed", "root-object")
_CHOICES = (["auto"], ["auto", "none"], ["auto", "none", "required"], ["auto", "required"], ["auto", "none", "named"])
_METHODS = {
    "openai-chat": (["json_object"], ["tool", "prompt"], ["json_schema"]),
    "openai-responses": (["json_object"], ["tool", "prompt"]),
    "gemini": (["json_object"],),
}
_IDS = (r"[a-zA-Z0-9_-]{1,64}", r"[\s\S]{1,40}", r"[A-Za-z0-9]{9}")
_WORDS = (
    {"done": "stop", "length": "length", "tool_calls": "tool_calls"},
    {"ended": "stop", "too_long": "length", "calls": "tool_calls"},
)


def invent(seed: int, count: int = COUNT) -> tuple[str, list[tuple[str, str]]]:
    """Return a registry file with endpoints, and the name and the wire of the model at each."""
    rng = random.Random(seed)
    providers: Flags = {}
    models: Flags = {}
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


def _flags(rng: random.Random, wire: str) -> Flags:
    """Return the flags of one endpoint: reasoning, and some of everything else, in one mode or in all."""
    flags: Flags = {}
    toggles = rng.random() < 0.8 and _reasoning(rng, wire, flags)
    pool = [draw for wires, draw in _POOL if wire in wires]
    for draw in rng.sample(pool, rng.randint(5, min(14, len(pool)))):
        for flag, value in draw(rng, wire).items():
            set_value(flags, flag, value)
    if toggles:
        for draw in rng.sample(_REASONING_POOL, rng.randint(0, 2)):
            for flag, value in draw(rng, wire).items():
                if not flag.startswith("schema.") or wire in _METHODS:
                    _put(flags, ("when", "reasoning", *flag.split(".")), value)
    if flags.get("tools", {}).get("supported") is False:
        flags.pop("tool_choice", None)
        flags.get("when", {}).get("reasoning", {}).pop("tool_choice", None)
        flags["tools"] = {"supported": False}
    if "finish" in flags:
        flags["unset"] = ["finish"]
    return flags


def _put(table: Flags, keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = value


# ── reasoning ────────────────────────────────────────────────────────────────
def _reasoning(rng: random.Random, wire: str, flags: Flags) -> bool:
    """Put how an endpoint reasons into its flags; whether that can be switched."""
    mode = rng.choice(("toggle", "toggle", "toggle", "always", "never"))
    out: Flags = {"mode": mode}
    flags["reasoning"] = out
    if wire == "openai-responses":
        flags["unset"] = ["reasoning.effort", "reasoning.off"]
    if mode == "never":
        return False
    out["default"] = "on" if mode == "always" else rng.choice(("on", "off"))
    if mode == "toggle":
        on, off = rng.choice(_HIDDEN if rng.random() < 0.08 else _SWITCHES[wire])
        for side, patch in (("on", on), ("off", off)):
            out[side] = {"set": _nested(patch)}
    levels = rng.choice((("low", "medium", "high"), ("low", "high"), ("minimal", "low", "medium", "high", "xhigh")))
    if rng.random() < 0.35:
        out["effort"] = {"at": rng.choice(_EFFORTS[wire]), **{level: level for level in levels}}
    elif wire in _BUDGETS and rng.random() < 0.4:
        out["budget"] = {"at": rng.choice(_BUDGETS[wire]), "min": rng.choice((1, 512, 1024))}
        out["budget"] |= rng.choice(({}, {"max": 24576}, {"max": 32768}))
    if wire == "openai-chat":
        out |= _form(rng)
    if rng.random() < 0.5:
        out["replay"] = rng.choice(("never", "tool-turns", "since-user", "always"))
        if out["replay"] not in ("never",) and out.get("shape") == "field":
            out["if_missing"] = rng.choice(("omit", "empty", "space"))
    return mode == "toggle"


def _form(rng: random.Random) -> Flags:
    """Return the form in which reasoning arrives."""
    kind = rng.choice(("field", "field", "field", "details", "tags", "content-parts"))
    if kind == "tags":
        tags = rng.choice(_TAGS)
        return {"shape": "tags", "tags": list(tags), "tags_at": rng.choice(("start", "start", "start-open"))}
    if kind == "content-parts":
        part = rng.choice(("thinking", "reasoning"))
        return {"shape": "content-parts", "part": part, "part_form": rng.choice(("parts", "text"))}
    return {"shape": kind, "fields": [rng.choice(_FIELDS)]}


def _nested(patch: Flags) -> Flags:
    out: Flags = {}
    for path, value in patch.items():
        set_value(out, path, value)
    return out


# ── everything else ──────────────────────────────────────────────────────────
def _bounds(name: str, low: float, highs: tuple[float, ...]) -> Callable[[random.Random, str], Flags]:
    def draw(rng: random.Random, wire: str) -> Flags:
        path = _PARAMS[wire].get(name)
        kind = rng.choice(("range", "range", "open", "fixed", "refused"))
        if path is None:
            return {}
        if kind == "refused" and path == name:  # the simulator refuses a name, and no path of a wire
            return {f"params.{name}": False}
        if kind in ("fixed", "refused"):
            return {f"params.{name}": {"as": path, "fixed": 1}}
        high = rng.choice(highs)
        bounds = {"above": low, "max": high} if kind == "open" else {"min": low, "max": high}
        return {f"params.{name}": {"as": path, **bounds, "otherwise": "clamp"}}

    return draw


def _refusable(name: str) -> Callable[[random.Random, str], Flags]:
    def draw(rng: random.Random, wire: str) -> Flags:
        path = _PARAMS[wire].get(name)
        return (
            {}
            if path is None
            else {f"params.{name}": rng.choice((False, False, "ignored") if path == name else ("ignored",))}
        )

    return draw


def _of(flag: str, *values: Any) -> Callable[[random.Random, str], Flags]:
    return lambda rng, wire: {flag: rng.choice(values)}


def _some(flag: str, words: tuple[str, ...], most: int) -> Callable[[random.Random, str], Flags]:
    return lambda rng, wire: {flag: sorted(rng.sample(words, rng.randint(1, most)))}


def _stop(rng: random.Random, wire: str) -> Flags:
    path = _PARAMS[wire].get("stop")
    if path is None:
        return {}
    rules = [{"as": path, "items": items} for items in (1, 4, 5)]
    return {"params.stop": rng.choice([*rules, "ignored", *([False] if path == "stop" else [])])}


def _methods(rng: random.Random, wire: str) -> Flags:
    return {"schema.methods": rng.choice(_METHODS[wire])}


def _usage(rng: random.Random, wire: str) -> Flags:
    at = rng.choice(("usage", "meta.tokens", "billing", "x_info.usage"))
    names = rng.choice((("prompt_tokens", "completion_tokens"), ("in", "out"), ("tokens.read", "tokens.written")))
    return {"usage.at": [at], "usage.input": [names[0]], "usage.output": [names[1]]}


def _finish(rng: random.Random, wire: str) -> Flags:
    return {"finish": rng.choice(_WORDS)}


ALL = ("openai-chat", "anthropic-messages", "openai-responses", "gemini")
CHAT = ("openai-chat",)
_POOL: tuple[tuple[tuple[str, ...], Callable[[random.Random, str], Flags]], ...] = (
    (("openai-chat", "openai-responses"), _of("messages.system", "first", "user")),
    (("openai-chat", "openai-responses"), _of("messages.developer", True)),
    (ALL, _of("messages.consecutive_roles", "join")),
    (ALL, _of("messages.first_user", True, False)),
    (CHAT, _of("messages.content", "string")),
    (CHAT, _of("messages.empty", "empty", "omit", "space")),
    (CHAT, _of("messages.prefill.set", {"prefix": True}, {"partial": True})),
    (ALL, _of("tools.supported", False)),
    (ALL, _of("tools.strict", False)),
    (ALL, _of("tools.parallel", False)),
    (ALL, _of("tools.parameters", True)),
    (ALL, _of("tools.name_max_length", 32, 40, 64)),
    (ALL, _some("tools.schema", _RULES, 4)),
    (ALL, _some("tools.schema_drop", _KEYWORDS, 6)),
    (CHAT, _of("tools.call_id_pattern", *_IDS)),
    (CHAT, _of("tools.result_name", True, False)),
    (ALL, _of("tool_choice.allowed", *_CHOICES)),
    (tuple(_METHODS), _methods),
    (CHAT, _of("simulator.json_word", "json")),
    (CHAT, _of("simulator.stream_usage", "last", "choice", "none")),
    (ALL, _of("limits.output", 1000, 4096, 8192, 65536)),
    (ALL, _of("input", ["text"], ["text", "image"])),
    (ALL, _bounds("temperature", 0, (1, 1.5, 2))),
    (ALL, _bounds("top_p", 0, (1, 0.99))),
    (("openai-chat", "gemini"), _bounds("presence_penalty", -2, (2, 1))),
    (("openai-chat", "gemini"), _refusable("frequency_penalty")),
    (("openai-chat", "gemini"), _refusable("seed")),
    (("openai-chat", "gemini"), _refusable("logprobs")),
    (("openai-chat", "anthropic-messages"), _refusable("top_k")),
    (CHAT, _refusable("logit_bias")),
    (ALL, _stop),
    (CHAT, _of("params.max_tokens", "max_completion_tokens", "max_new_tokens")),
    (ALL, _of("stream.required", True)),
    (CHAT, _of("stream.deltas", "cumulative")),
    (CHAT, _usage),
    (CHAT, _finish),
    (
        ALL,
        lambda rng, wire: {
            "auth": rng.choice(({"header": "x-api-key", "value": "{key}"}, {"header": "api-key", "value": "{key}"}))
        },
    ),
)
_REASONING_POOL: tuple[Callable[[random.Random, str], Flags], ...] = (
    _of("tool_choice.allowed", ["auto"], ["auto", "none"]),
    _of("schema.methods", ["json_object"], ["tool", "prompt"]),
    _bounds("temperature", 0, (1,)),
    _bounds("top_p", 0, (1,)),
)
