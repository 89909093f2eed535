"""Encode a reply as a chat-completions endpoint does, in the dialect of its registry entry.

`cnllm.protocols.chat.server_encode` writes the same wire for a gateway, in one fixed form. This
encoder follows the flags (fields of reasoning, finish words, places of usage), and shares no code with it, so that
neither hides an error.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from cnllm.jsonpath import get, set_value
from cnllm.registry.flags import (
    CallPaths,
    Flags,
    ReasoningFlags,
    ReplyPaths,
    Tools,
    UsagePaths,
)
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import BOTH, form
from cnllm.simulator.reply import SimulatedReply, finish_word
from cnllm.simulator.request import ParsedRequest, split_pieces

__all__ = ["DONE", "encode_body", "encode_frames"]

DONE = b"data: [DONE]\n\n"
_KEEP_ALIVE = b": keep-alive\n\n"
_CREATED = 1_700_000_000  # fixed, so that the same request gets the same bytes


def encode_body(model: Model, flags: Flags, request: ParsedRequest, reply: SimulatedReply) -> bytes:
    """Return the body of a reply that is not streamed."""
    rules = flags.reasoning
    content = _tagged_text(rules, reply) or (None if reply.calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reply.reasoning:
        message |= _reasoning_keys(rules, reply.reasoning)
    if type(message["content"]) is list and reply.text:
        message["content"].append({"type": "text", "text": reply.text})
    if reply.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
    message = _place_message(message, flags)
    choice = {"index": 0, "message": message, "finish_reason": finish_word(flags, reply.finish)}
    body = _place_choice(_head(reply, "chat.completion"), choice, flags)
    _put_usage(body, flags, reply)
    return msgspec.json.encode(body)


def encode_frames(model: Model, flags: Flags, request: ParsedRequest, reply: SimulatedReply) -> Iterator[bytes]:
    """Yield the same reply as server-sent events: a comment, one `data:` frame each, and `[DONE]` at the end."""
    head = _head(reply, "chat.completion.chunk")

    def frame(choice: dict[str, Any] | None, *, has_usage: bool = False) -> bytes:
        chunk = _place_choice(head, choice, flags)
        if has_usage:
            _put_usage(chunk, flags, reply)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    yield _KEEP_ALIVE
    for delta in _deltas(flags, reply):
        yield frame({"index": 0, "delta": _place_message(delta, flags), "finish_reason": None})
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": finish_word(flags, reply.finish)}
    place = _stream_usage(flags, request)
    if place == "choice":
        _put_usage(last, flags, reply, in_choice=True)
    yield frame(last, has_usage=place == "last")
    if place == "chunk":
        yield frame(None, has_usage=True)
    yield DONE


def _head(reply: SimulatedReply, kind: str) -> dict[str, Any]:
    return {
        "id": f"sim-{reply.id}",
        "object": kind,
        "created": _CREATED,
        "model": reply.model,
        "system_fingerprint": "simulated",
    }


# ── deltas ───────────────────────────────────────────────────────────────────
def _deltas(flags: Flags, reply: SimulatedReply) -> Iterator[dict[str, Any]]:
    rules = flags.reasoning
    stream, tools = flags.stream, flags.tools
    cumulative = stream.deltas == "cumulative"
    yield {"role": "assistant", "content": ""}
    for text in _steps("" if _shape(rules) in ("tags", "none") else reply.reasoning, cumulative=cumulative):
        yield _reasoning_keys(rules, text)
    for text in _steps(_tagged_text(rules, reply), cumulative=cumulative):
        yield {"content": text}
    whole_calls = stream.tools is False or tools.arguments == "object"
    for index, call in enumerate(reply.calls):
        first = {"name": call.name, "arguments": call.arguments if whole_calls else ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": first}]}
        for text in () if whole_calls else split_pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _steps(text: str, *, cumulative: bool) -> Iterator[str]:
    """Return the pieces of a text, or after each piece the whole text up to it."""
    return accumulate(split_pieces(text)) if cumulative else iter(split_pieces(text))


# ── reasoning ────────────────────────────────────────────────────────────────
def _shape(rules: ReasoningFlags) -> str:
    """Return the form of reasoning: a field, a list of details, content parts, tags, or none."""
    if rules.shape == "content-parts" and rules.part:
        return "content-parts"
    if rules.fields and rules.shape != "tags":
        return "details" if rules.shape == "details" else "field"
    return "tags" if rules.tags else "none"


def _reasoning_keys(rules: ReasoningFlags, text: str) -> dict[str, Any]:
    """Return the keys of a message or a delta that hold reasoning.

    If it is sent back in another field than the first in which it arrives, it arrives in both.
    """
    out: dict[str, Any] = {}
    shape = _shape(rules)
    if shape == "content-parts" and rules.part is not None:
        forms = {"text": text, "texts": [text], "parts": [{"type": "text", "text": text}]}
        out["content"] = [{"type": rules.part, rules.part: forms[rules.part_form or "parts"]}]
    elif shape in ("field", "details") and rules.fields:
        first, replay_field = rules.fields[0], rules.replay_field
        details = [{"type": "reasoning.text", "text": text, "index": 0}]
        set_value(out, first, details if shape == "details" else text)
        if replay_field in rules.fields and replay_field != first and form(rules) in ("details", BOTH):
            set_value(out, replay_field, details)
    return out


def _tagged_text(rules: ReasoningFlags, reply: SimulatedReply) -> str:
    """Return content with the reasoning in it, where it has tags. A limit that cuts it leaves its tag open."""
    if not reply.reasoning or not rules.tags or _shape(rules) != "tags":
        return reply.text
    opening, closing = rules.tags[:2]
    opening = "" if rules.tags_at == "start-open" else opening
    closing = f"\n{closing}\n\n" if reply.reasoning_complete else ""
    return f"{opening}\n{reply.reasoning}{closing}{reply.text}"


# ── ending ───────────────────────────────────────────────────────────────────
def _put_usage(target: dict[str, Any], flags: Flags, reply: SimulatedReply, *, in_choice: bool = False) -> None:
    """Write the token counts into a body or a chunk, or into its choice."""
    paths = flags.usage.at or ()
    path = next((p for p in paths if p.startswith("choices.") is in_choice), "usage")
    counts = _usage(_USUAL_USAGE if flags.usage == UsagePaths() else flags.usage, reply)
    if path == ".":
        target.update(counts)
    else:
        set_value(target, path.split(".", 2)[2] if path.startswith("choices.") else path, counts)


def _stream_usage(flags: Flags, request: ParsedRequest) -> str:
    """Return the place of usage in a stream. If the registry sets a switch for usage, none comes without it."""
    place = flags.simulator.stream_usage or "chunk"
    defaults = flags.body.set or {}
    switch = "stream_options.include_usage"
    return "none" if get(defaults, switch) is True and get(request.body, switch) is not True else place


_USUAL_USAGE = UsagePaths(input=["prompt_tokens"], output=["completion_tokens"], total=["total_tokens"])


def _usage(rules: UsagePaths, reply: SimulatedReply) -> dict[str, Any]:
    """Return token counts at the first of the registry's paths, without those that the endpoint excludes."""
    counts = reply.usage
    excluded = rules.excluded_from_totals or []
    values = {
        "input": (counts.input or 0) - ((counts.cached or 0) if "cached" in excluded else 0),
        "output": (counts.output or 0) - ((counts.reasoning or 0) if "reasoning" in excluded else 0),
        "total": counts.total,
        "reasoning": counts.reasoning,
        "cached": counts.cached,
    }
    out: dict[str, Any] = {}
    for name, value in values.items():
        for path in (getattr(rules, name) or [])[:1]:
            set_value(out, path, value)
    return out


# ── an endpoint's own paths ───────────────────────────────────────────────────


def _place_message(message: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """Return a message or a delta of a reply with the endpoint's own paths."""
    messages, tools = flags.messages, flags.tools
    out: dict[str, Any] = {}
    for key, value in message.items():
        if key == "content":
            set_value(out, messages.answer_field or key, value)
        elif key == "tool_calls":
            set_value(out, tools.calls_field or key, [_place_call(call, tools) for call in value])
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] |= value
        else:
            out[key] = value
    return out


def _place_call(call: dict[str, Any], tools: Tools) -> dict[str, Any]:
    """Return a call, or a piece of one, with the endpoint's own paths."""
    paths = tools.call_paths or CallPaths()
    function = dict(call["function"])
    if tools.arguments == "object":
        function["arguments"] = json.loads(function["arguments"] or "{}")
    if paths == CallPaths():
        return {**call, "function": function}
    out = {} if "index" not in call else {"index": call["index"]}
    places = {"id": paths.id or "id", "name": paths.name or "function.name"}
    places["arguments"] = paths.arguments or "function.arguments"
    for key, value in {**call, **function}.items():
        if key in places:
            set_value(out, places[key], value)
    return out


def _place_choice(body: dict[str, Any], choice: dict[str, Any] | None, flags: Flags) -> dict[str, Any]:
    """Return a body or a chunk with its only choice at the endpoint's own path; None: a chunk without a choice."""
    paths = flags.reply
    if paths == ReplyPaths():
        return {**body, "choices": [] if choice is None else [choice]}
    if choice is None:
        return body
    own = {"message": paths.message, "delta": paths.delta, "finish_reason": paths.finish}
    out: dict[str, Any] = {}
    for key, value in choice.items():
        path = own.get(key) or key
        if path == ".":
            out |= value
        else:
            set_value(out, path, value)
    if paths.choices == ".":
        return {**body, **{key: value for key, value in out.items() if key != "index"}}
    set_value(body := copy.deepcopy(body), paths.choices or "choices", [out])
    return body
