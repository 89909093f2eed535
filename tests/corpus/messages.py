"""Read recordings of anthropic-messages: their streams, and which of their requests are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cnllm import Model, engine

from .heard import Call, Heard

PROTOCOL = "anthropic-messages"
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
APART = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""What the wire's `input_tokens` leaves out."""


def hear(parts: Iterable[dict[str, Any]]) -> Heard:
    """Events of a stream; the counts of later ones are laid over those before."""
    heard = Heard()
    calls: dict[Any, Call] = {}
    for part in parts:
        place = part.get("index")
        block, delta = part.get("content_block") or {}, part.get("delta") or {}
        usage = (part.get("message") or {}).get("usage") or part.get("usage") or {}
        if usage:
            told = {key: value for key, value in usage.items() if value or not (heard.usage or {}).get(key)}
            heard.usage = {**(heard.usage or {}), **told}
        heard.error = part.get("error") or heard.error
        heard.finish = delta.get("stop_reason") or heard.finish
        if block.get("type") == "tool_use":
            calls[place] = Call(block["id"], block["name"])
            heard.calls.append(calls[place])
        for said in (block, delta):
            kind = str(said.get("type")).removesuffix("_delta")
            heard.text += said["text"] if kind == "text" else ""
            heard.reasoning += said["thinking"] if kind == "thinking" else ""
        if delta.get("type") == "input_json_delta" and place in calls:
            calls[place].raw += delta["partial_json"]
    return heard


# ── requests ─────────────────────────────────────────────────────────────────


def asked(exchange: Any, model: Model) -> tuple[list[Any], dict[str, Any]]:
    """The messages and options of a recorded request, its assistant's turns by this very model."""
    read = engine.decode_request(PROTOCOL, dict(exchange.sent), origin=model)
    return list(read.messages), read.options


def differences(exchange: Any, body: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs, as (where, recorded, rebuilt)."""
    old, new = normal(exchange.sent), normal(body)
    return levelled(
        [
            (key, old.get(key, "absent"), new.get(key, "absent"))
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
    )


def normal(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request without differences that are none.

    A string is one block of plain text; null is absent; `stream` and `disable_parallel_tool_use` are false where they
    are absent; the form of the answer has moved into `output_config`. What is no more than a wish is compared apart
    from its spelling: a number of tokens, where the model has levels now, is the wish to think.
    """
    out = {key: value for key, value in body.items() if value is not None and (key, value) != ("stream", False)}
    out["messages"] = [{**turn, "content": _blocks(turn["content"])} for turn in body["messages"]]
    if "system" in out:
        out["system"] = _blocks(out["system"])
    if "output_format" in out:
        out["output_config"] = {**out.get("output_config", {}), "format": out.pop("output_format")}
    if choice := out.get("tool_choice"):
        out["tool_choice"] = {k: v for k, v in choice.items() if (k, v) != ("disable_parallel_tool_use", False)}
    return out


def levelled(rows: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """The differences without that of a budget that became a level, as the note says."""
    by_level = any(
        where == "thinking" and old.get("budget_tokens") and new.get("type") == "adaptive" for where, old, new in rows
    )
    return [row for row in rows if not (by_level and row[0] in ("thinking", "output_config"))]


def _blocks(content: Any) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_block(block) for block in blocks]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    told = {key: value for key, value in block.items() if value is not None and (key, value) != ("is_error", False)}
    if told["type"] == "tool_result" and "content" in told:
        told["content"] = _blocks(told["content"])
    return told
