"""A recorded request, taken apart into the contract's messages and options, and two requests compared.

`normal_messages`, `normal_tools` and their helpers say which differences between two requests are none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .corpus import Exchange, special
from .oracle import content_of, reasoning_of, split_think
from .strict import without_strictness

# ── taking it apart ──────────────────────────────────────────────────────────

REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details", "reasoning_encrypted")
OPTIONS = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
)
LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
OURS = ("messages", "model", "stream", "stream_options")
"""What the engine writes itself."""


def asked(exchange: Exchange, model: Any) -> tuple[list[Any], dict[str, Any]]:
    """The messages and options of a request, said to that model."""
    assert exchange.sent is not None
    own = special(exchange.protocol)
    if own is not None:
        found: tuple[list[Any], dict[str, Any]] = own.asked(exchange, model)
        return found
    return messages_of(exchange.sent, f"{model.provider}/{model.id}"), options_of(exchange.sent)


def messages_of(sent: Mapping[str, Any], by: str) -> list[dict[str, Any]]:
    """The messages as the contract has them: reasoning in its own key, the model's turns signed by it."""
    return [_message(message, by) if message["role"] == "assistant" else message for message in sent["messages"]]


def _message(message: dict[str, Any], by: str) -> dict[str, Any]:
    turn = {key: value for key, value in message.items() if key not in REASONING_KEYS}
    reasoning = reasoning_of(message)
    if content_of(message, "thinking"):
        turn["content"] = content_of(message, "text")
    return turn | ({"reasoning": reasoning} if reasoning else {}) | {"by": by}


def options_of(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of a request as options; what the contract has no word for is `extra_body`."""
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in sent.items():
        if key in OURS or value is None:
            continue
        if key in OPTIONS:
            options[key] = value
        elif key == "max_completion_tokens":
            options["max_tokens"] = value
        elif (level := _level(key, value)) is not None:
            options["reasoning"] = level
        else:
            extra[key] = value
    return options | ({"extra_body": extra} if extra else {})


def _level(key: str, value: Any) -> str | int | None:
    """What a recorded switch of reasoning is in the contract's words; None where it has none."""
    match key, value:
        case "reasoning_effort", "none":
            return "off"
        case "reasoning_effort" | "reasoning", str() if value in LEVELS:
            return str(value)
        case "thinking", {"type": "enabled" | "disabled" as word} if len(value) == 1:
            return "on" if word == "enabled" else "off"
        case "reasoning", {"effort": str(level)} if len(value) == 1:
            return level
        case "reasoning", {"max_tokens": int(budget)} if len(value) == 1:
            return budget
        case "reasoning", {"enabled": True} if len(value) == 1:
            return "on"
    return None


# ── bringing it into one form ────────────────────────────────────────────────


def normal_messages(messages: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without differences that are none; what the recording left open stays open."""
    rename = _renaming(messages, recorded)
    lost = any(message["role"] == "tool" and not message.get("tool_call_id") for message in recorded)
    open_ids = {None, *_ids(messages)} if lost else set()
    return [_normal_message(message, rename, open_ids) for message in messages]


def _normal_message(
    message: dict[str, Any], rename: Mapping[str, str], open_ids: Collection[str | None]
) -> dict[str, Any]:
    """Null keys, empty lists and `prefix: false` are absent; developer is system; a result needs no name.

    Reasoning is compared apart. Where the recording's results have no ids, none or that of a call will do.
    """
    turn = {key: value for key, value in message.items() if value not in (None, []) and key not in REASONING_KEYS}
    if turn.get("prefix") is False:
        del turn["prefix"]
    if turn["role"] == "developer":
        turn["role"] = "system"
    calls = [_normal_call(call, rename) for call in message.get("tool_calls") or []]
    content = _normal_content(message)
    if turn["role"] == "assistant":
        content = split_think(content)[0] if isinstance(content, str) else content
        if not content and calls:
            content = ""
    if turn["role"] == "tool":
        turn.pop("name", None)
        ident = turn.pop("tool_call_id", None)
        if ident not in open_ids:
            turn["tool_call_id"] = rename.get(str(ident), ident)
    return turn | {"content": content} | ({"tool_calls": calls} if calls else {})


def _normal_content(message: Mapping[str, Any]) -> Any:
    """A list of nothing but text is one text, null is the empty text; parts with further keys stay.

    Texts of a question are apart, with white space between them.
    """
    content = message.get("content")
    if isinstance(content, list):
        content = [part for part in content if part.get("type") != "thinking"]
        if all(set(part) == {"type", "text"} for part in content):
            texts = [part["text"] for part in content if part["text"]]
            gap = "" if message.get("role") == "assistant" else "\n\n"
            gaps = [
                gap if not before[-1:].isspace() and not text[0].isspace() else ""
                for before, text in zip(["\n", *texts], texts, strict=False)
            ]
            return "".join(gap + text for gap, text in zip(gaps, texts, strict=True))
    return content or ""


def _normal_call(call: Mapping[str, Any], rename: Mapping[str, str]) -> dict[str, Any]:
    """Arguments are JSON, not text; none, or a JSON null, are `{}`; `index` belongs to streams."""
    function = call["function"]
    arguments = function.get("arguments") or "{}"
    with contextlib.suppress(ValueError):
        arguments = (json.loads(arguments) if isinstance(arguments, str) else arguments) or {}
    ident = call.get("id")
    return {"id": rename.get(str(ident), ident), "name": function["name"], "arguments": arguments}


def _renaming(messages: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> dict[str, str]:
    """New id → recorded id, in order, for ids that the origin of the recording replaced by placeholders.

    The endpoint never saw those, so an engine that brings them into the endpoint's form does no wrong.
    """
    pairs = zip(_ids(messages), _ids(recorded), strict=False)
    return {new: old for new, old in pairs if "REDACTED" in old}


def _ids(messages: list[dict[str, Any]]) -> list[str]:
    return [str(call.get("id")) for message in messages for call in message.get("tool_calls") or []]


def normal_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """`strict` may be left out, no parameters are an object without properties, null keys are absent."""
    strict = any(tool.get("function", {}).get("strict") for tool in tools or [])
    return [_normal_tool(tool, strict) for tool in tools or []]


def _normal_tool(tool: dict[str, Any], strict: bool) -> dict[str, Any]:
    if "function" not in tool:
        return tool
    function = {key: value for key, value in tool["function"].items() if value is not None and key != "strict"}
    parameters = dict(function.get("parameters") or {})
    if strict:  # an endpoint may take all tools strict, or none
        parameters = without_strictness(parameters)
    parameters.setdefault("type", "object")
    if not parameters.get("properties"):
        parameters = {key: value for key, value in parameters.items() if value != []} | {"properties": {}}
    return tool | {"function": function | {"parameters": parameters}}


# ── comparing ────────────────────────────────────────────────────────────────


def differences(exchange: Exchange, body: Mapping[str, Any], replay: str) -> list[tuple[str, Any, Any]]:
    """What differs, as (where, recorded, rebuilt)."""
    sent = exchange.sent or {}
    if (own := special(exchange.protocol)) is not None:
        found: list[tuple[str, Any, Any]] = own.differences(exchange, body)
        return found
    recorded, rebuilt = sent["messages"], body["messages"]
    rows = _rows("tool", normal_tools(sent.get("tools")), normal_tools(body.get("tools")))
    rows += _rows("message", normal_messages(recorded, recorded), normal_messages(rebuilt, recorded))
    return rows + _reasoning_rows(recorded, rebuilt, replay)


def _rows(what: str, recorded: list[Any], rebuilt: list[Any]) -> list[tuple[str, Any, Any]]:
    rows = []
    for index in range(max(len(recorded), len(rebuilt))):
        old = recorded[index] if index < len(recorded) else "absent"
        new = rebuilt[index] if index < len(rebuilt) else "absent"
        if not (isinstance(old, dict) and isinstance(new, dict)):
            rows += [(f"{what} {index}", old, new)]
            continue
        for key in sorted(old.keys() | new.keys()):
            if old.get(key, "absent") != new.get(key, "absent"):
                rows.append((f"{what} {index}, {key}", old.get(key, "absent"), new.get(key, "absent")))
    return rows


def _reasoning_rows(
    recorded: list[dict[str, Any]], rebuilt: list[dict[str, Any]], replay: str
) -> list[tuple[str, Any, Any]]:
    """Where the endpoint wants reasoning back, what the recording gave back is given back."""
    rows: list[tuple[str, Any, Any]] = []
    if len(recorded) != len(rebuilt):
        return rows
    last_user = max((index for index, message in enumerate(recorded) if message["role"] == "user"), default=-1)
    wanted: Callable[[int, Mapping[str, Any]], bool] = {
        "unknown": lambda index, message: False,
        "never": lambda index, message: False,
        "tool-turns": lambda index, message: bool(message.get("tool_calls")),
        "since-user": lambda index, message: index > last_user,
        "always": lambda index, message: True,
    }[replay]
    for index, (old, new) in enumerate(zip(recorded, rebuilt, strict=True)):
        reasoning = reasoning_of(old) if old["role"] == "assistant" else ""
        if reasoning and wanted(index, old) and _replayed(new) != reasoning:
            rows.append((f"message {index}, reasoning", reasoning, _replayed(new)))
    return rows


def _replayed(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return reasoning_of(message) or (split_think(content)[1] if isinstance(content, str) else "")
