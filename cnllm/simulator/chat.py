"""Writes an answer as a chat-completions endpoint would, in the dialect of its registry entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.registry.flags import Flags, Reasoning
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form
from cnllm.simulator.jsonpath import at, put
from cnllm.simulator.reply import Said
from cnllm.simulator.request import Asked
from cnllm.simulator.tokenize import pieces

__all__ = ["DONE", "frames", "whole"]

DONE = b"data: [DONE]\n\n"
_KEEP_ALIVE = b": keep-alive\n\n"
_CREATED = 1_700_000_000  # fixed, so that the same request gets the same bytes


class _Shape(Struct, frozen=True):
    """How reasoning is written: as a field, a list of details, parts of content, in tags, or not at all.

    `twin` is a second field with the same text: where reasoning goes back in another field than the first that it
    arrives in, it arrives in both.
    """

    kind: str
    word: str = ""
    twin: str = ""
    opened: str = ""
    closed: str = ""


def whole(model: Model, flags: Flags, asked: Asked, said: Said) -> bytes:
    """The body of an answer that is not streamed."""
    shape = _shape(flags.reasoning)
    message: dict[str, Any] = {"role": "assistant", "content": said.text or (None if said.calls else "")}
    if shape.kind == "tags":
        message["content"] = _tagged(shape, said) or message["content"]
    elif said.reasoning and shape.kind == "content-parts":
        parts = [_part(shape, said.reasoning)]
        message["content"] = [*parts, {"type": "text", "text": said.text}] if said.text else parts
    elif said.reasoning:
        _think(message, shape, said.reasoning)
    if said.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _word(flags, said.finish)}
    body = {**_head(said, "chat.completion"), "choices": [choice]}
    put(body, _usage_at(flags), _usage(flags, said))
    return msgspec.json.encode(body)


def frames(model: Model, flags: Flags, asked: Asked, said: Said) -> Iterator[bytes]:
    """The same answer as server-sent events, one `data:` frame each, a comment first and `[DONE]` last."""
    head = _head(said, "chat.completion.chunk")

    def frame(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + msgspec.json.encode({**head, "choices": choices, **more}) + b"\n\n"

    yield _KEEP_ALIVE
    for delta in _deltas(flags, said):
        yield frame([{"index": 0, "delta": delta, "finish_reason": None}])
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": _word(flags, said.finish)}
    place = _stream_usage(flags, asked)
    if place == "choice":
        put(last, _usage_in_choice(flags), _usage(flags, said))
    ending: dict[str, Any] = {}
    put(ending, _usage_at(flags), _usage(flags, said))
    yield frame([last], **(ending if place == "last" else {}))
    if place == "chunk":
        yield frame([], **ending)
    yield DONE


def _head(said: Said, kind: str) -> dict[str, Any]:
    return {
        "id": f"sim-{said.id}",
        "object": kind,
        "created": _CREATED,
        "model": said.model,
        "system_fingerprint": "simulated",
    }


# ── deltas ───────────────────────────────────────────────────────────────────
def _deltas(flags: Flags, said: Said) -> Iterator[dict[str, Any]]:
    shape = _shape(flags.reasoning)
    cumulative = flags.stream is not None and flags.stream.deltas == "cumulative"
    yield {"role": "assistant", "content": ""}
    tagged = shape.kind == "tags"
    for text in _steps("" if tagged or shape.kind == "none" else said.reasoning, cumulative):
        delta: dict[str, Any] = {}
        if shape.kind == "content-parts":
            delta["content"] = [_part(shape, text)]
        else:
            _think(delta, shape, text)
        yield delta
    for text in _steps(_tagged(shape, said) if tagged else said.text, cumulative):
        yield {"content": text}
    in_one = flags.stream is not None and flags.stream.tools is False
    for index, call in enumerate(said.calls):
        first = {"name": call.name, "arguments": call.arguments if in_one else ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": first}]}
        for text in () if in_one else pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _steps(text: str, cumulative: bool) -> Iterator[str]:
    """The pieces of a text, or after each piece all so far."""
    so_far = ""
    for piece in pieces(text):
        so_far += piece
        yield so_far if cumulative else piece


# ── reasoning ────────────────────────────────────────────────────────────────
def _shape(reasoning: Reasoning | None) -> _Shape:
    if reasoning is None:
        return _Shape("none")
    if reasoning.shape == "content-parts" and reasoning.part:
        return _Shape("content-parts", word=reasoning.part)
    if reasoning.fields and reasoning.shape != "tags":
        first, back = reasoning.fields[0], reasoning.replay_field
        twin = back if back in reasoning.fields and back != first and form(reasoning) == "details" else ""
        return _Shape("details" if reasoning.shape == "details" else "field", word=first, twin=twin or "")
    if reasoning.tags:
        opened, closed = reasoning.tags[:2]
        return _Shape("tags", opened="" if reasoning.tags_at == "start-open" else opened, closed=closed)
    return _Shape("none")


def _think(target: dict[str, Any], shape: _Shape, text: str) -> None:
    details = [{"type": "reasoning.text", "text": text, "index": 0}]
    if shape.kind != "none":
        put(target, shape.word, details if shape.kind == "details" else text)
    if shape.twin:
        put(target, shape.twin, details)


def _part(shape: _Shape, text: str) -> dict[str, Any]:
    return {"type": shape.word, shape.word: [{"type": "text", "text": text}]}


def _tagged(shape: _Shape, said: Said) -> str:
    """Content with the reasoning in it; a limit that cut the reasoning left its tag open."""
    if not said.reasoning:
        return said.text
    closing = f"\n{shape.closed}\n\n" if said.whole else ""
    return f"{shape.opened}\n{said.reasoning}{closing}{said.text}"


# ── ending ───────────────────────────────────────────────────────────────────
def _word(flags: Flags, finish: str) -> str:
    """The endpoint's own word for why an answer ended."""
    return next((theirs for theirs, ours in (flags.finish or {}).items() if ours == finish), finish)


def _usage_at(flags: Flags) -> str:
    paths = (flags.usage.at if flags.usage is not None else None) or ["usage"]
    return next((p for p in paths if not p.startswith("choices.")), "usage")


def _usage_in_choice(flags: Flags) -> str:
    """Where a choice holds usage, as seen from the choice."""
    paths = (flags.usage.at if flags.usage is not None else None) or []
    return next((p.split(".", 2)[2] for p in paths if p.startswith("choices.")), "usage")


def _stream_usage(flags: Flags, asked: Asked) -> str:
    """Where a stream holds usage. Where the entry says that it must be asked for, none comes unasked."""
    where = (flags.simulator.stream_usage if flags.simulator is not None else None) or "chunk"
    patch = (flags.body.set if flags.body is not None else None) or {}
    switch = "stream_options.include_usage"
    return "none" if at(patch, switch) is True and at(asked.body, switch) is not True else where


def _usage(flags: Flags, said: Said) -> dict[str, Any]:
    """Token counts at the entry's paths, the first of each; what the endpoint counts apart is taken out."""
    rules = flags.usage
    counts = said.usage
    if rules is None:
        return {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output,
            "total_tokens": counts.total,
        }
    apart = rules.excluded_from_totals or []
    values = {
        "input": (counts.input or 0) - ((counts.cached or 0) if "cached" in apart else 0),
        "output": (counts.output or 0) - ((counts.reasoning or 0) if "reasoning" in apart else 0),
        "total": counts.total,
        "reasoning": counts.reasoning,
        "cached": counts.cached,
    }
    out: dict[str, Any] = {}
    for name, value in values.items():
        for path in (getattr(rules, name) or [])[:1]:
            put(out, path, value)
    return out
