"""Anthropic Messages, reading: bodies and events → what they mean.

A body is a list of blocks; a stream opens each block, adds to it and closes it. What a block has beside its text goes
back with it as it came: signatures, citations, and whole blocks that nobody here understands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get, get_first
from cnllm.protocols import Quick
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import has_error_status, find_error
from cnllm.protocols.usage import merge_counts, read_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]

_TEXT, _THOUGHT, _HIDDEN, _CALL = "text", "thinking", "redacted_thinking", "tool_use"
_OPEN = "block"  # what is remembered: the block that is open,
_COUNTS = "usage"  # and the counts so far
_ENDS = ("message_delta", "message_stop")


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """One decoded event of a stream, or with `whole` one body: its events, and what it leaves in `sink`."""
    fault = _fault(data, flags)
    if fault is not None and sink.fault is None:
        sink.fault = fault
    out: list[Event] = []
    kind = data.get("type")
    if whole or kind == "message":
        _head(data, sink)
        out += _blocks(data.get("content"), sink)
        _reason(data, sink)
    elif kind == "message_start":
        if type(message := data.get("message")) is dict:
            sink.answered = True
            _head(message, sink)
            out += _blocks(message.get("content"), sink)
            _reason(message, sink)
            out += _count(message, flags, sink)
    elif kind == "content_block_start":
        out += _close(sink)
        out += _begun(data.get("content_block"), data.get("index"), sink)
    elif kind == "content_block_delta":
        if type(delta := data.get("delta")) is dict:
            out += _added(delta, data.get("index"), sink)
    elif kind == "content_block_stop":
        out += _close(sink)
    elif kind in _ENDS:
        out += _close(sink)
        if type(delta := data.get("delta")) is dict:
            _reason(delta, sink)
        sink.finished = sink.finished or (kind == _ENDS[1] and sink.answered)
    return out + _count(data, flags, sink)


def _head(message: dict[str, Any], sink: EventSink) -> None:
    if sink.id is None and type(message.get("id")) is str:
        sink.id = message["id"] or None
    if sink.model is None and type(message.get("model")) is str:
        sink.model = message["model"] or None


def _reason(said: dict[str, Any], sink: EventSink) -> None:
    reason = said.get("stop_reason")
    if type(reason) is str and reason:
        sink.raw_finish = reason
        sink.finished = sink.answered = True


def _count(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Counts come in parts: each event's are laid over those before, but nothing known is lost to a zero."""
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is not dict:
        return []
    known = sink.state.setdefault(_COUNTS, {})
    merge_counts(known, usage)
    return sink.add_usage(read_counts(known, flags))


# ── blocks ───────────────────────────────────────────────────────────────────


class _Block:
    """The block that is open: its place in the stream, and `beside`, what it has beside its text.

    `given` is a call's input as it stood in the block itself; pieces of it that follow take its place. `sealed` counts
    the sink's parts when it was told of what stands beside.
    """

    __slots__ = ("_own", "_sizes", "_texts", "beside", "given", "kind", "pieces", "place", "sealed")

    def __init__(self, kind: str, place: Any, beside: dict[str, Any]) -> None:
        self.kind = kind
        self.place = place
        self.beside = beside
        self.given: Any = None
        self.pieces: list[str] = []
        self.sealed = -1
        self._own: dict[str, list[Any]] = {}  # lists that grow
        self._texts: dict[str, list[str]] = {}  # texts that grow, in pieces
        self._sizes: dict[str, int] = {}  # of these

    def add(self, delta: dict[str, Any]) -> None:
        """Add a delta of no special kind: text to text, one of many to the many, and else it is what there is."""
        for key, value in delta.items():
            if key == "type":
                continue
            old, many = self.beside.get(key), f"{key}s"
            if key == "citation" or (old is None and type(self.beside.get(many)) is list):
                self._many(many).append(value)
            elif type(old) is str and type(value) is str:
                self._text(key, old, value)
            elif type(old) is list and type(value) is list:
                self._many(key).extend(value)
            else:
                self.beside[key] = value
                self._own.pop(key, None)
                self._texts.pop(key, None)
                self._sizes.pop(key, None)

    def _many(self, key: str) -> list[Any]:
        """A list that may be changed: what came is the chunk's."""
        own = self._own.get(key)
        if own is None:
            old = self.beside.get(key)
            own = self._own[key] = self.beside[key] = list(old) if type(old) is list else []
        return own

    def _text(self, key: str, old: str, more: str) -> None:
        pieces = self._texts.setdefault(key, [old])
        size = self._sizes.get(key, len(old))
        if key == "signature" and size == len(more) and "".join(pieces) == more:
            return  # it came once more
        pieces.append(more)
        self._sizes[key] = size + len(more)

    def whole(self) -> dict[str, Any]:
        """All that stands beside the text."""
        return {**self.beside, **{key: "".join(pieces) for key, pieces in self._texts.items()}}

    def seal(self) -> dict[str, Any] | None:
        """What stands beside the text, or None where it says nothing."""
        whole = self.whole()
        return whole if any(whole.values()) else None


def _blocks(content: Any, sink: EventSink) -> list[Event]:
    """The blocks of a whole body."""
    if type(content) is not list:
        if type(content) is str:
            sink.answered = True
            return sink.add_text(content) if content else []
        return []
    sink.answered = True
    out: list[Event] = []
    for place, block in enumerate(content):
        out += _begun(block, place, sink)
        out += _close(sink)
    return out


def _begun(block: Any, place: Any, sink: EventSink) -> list[Event]:
    """A block, or its beginning."""
    if type(block) is not dict:
        return sink.add_opaque(block) if block else []
    sink.answered = True
    kind = block.get("type")
    if type(kind) is not str:
        kind = ""
    out: list[Event]
    if kind in (_TEXT, _THOUGHT) and type(block.get(kind)) in (str, type(None)):
        opened = sink.state[_OPEN] = _Block(kind, place, _besides(block, kind))
        out = sink.begin_block("text" if kind == _TEXT else "thought")
        _sealed(opened, sink)
        return out + _said(opened, block.get(kind), sink)
    if kind == _HIDDEN:
        sink.state[_OPEN] = _Block(kind, place, dict(block))
        out = sink.begin_block("thought")
        sink.add_seal(block)
        return out
    if kind == _CALL and type(block.get("name")) is str and block["name"]:
        opened = sink.state[_OPEN] = _Block(kind, _place(place), {})
        opened.given = block.get("input")
        function = {"name": block["name"], "arguments": ""}
        head = {**_besides(block, "name", "input"), "id": block.get("id"), "index": opened.place, "function": function}
        return sink.add_call_pieces([head], True)
    sink.state[_OPEN] = _Block(kind, place, dict(block))
    return sink.add_opaque(block)


def _added(delta: dict[str, Any], place: Any, sink: EventSink) -> list[Event]:
    """More of the block that is open; one that was never opened begins with it."""
    kind = delta.get("type")
    opened: _Block | None = sink.state.get(_OPEN)
    out: list[Event] = []
    for own, word in ((_TEXT, "text_delta"), (_THOUGHT, "thinking_delta")):
        if kind == word:
            if opened is None or opened.kind != own:
                out += _close(sink)
                out += _begun({"type": own}, place, sink)
                opened = sink.state[_OPEN]
            assert opened is not None
            return out + _said(opened, delta.get(own), sink)
    if opened is None:
        return sink.add_opaque(delta)
    piece = delta.get("partial_json")
    if kind == "input_json_delta" and type(piece) is str:
        opened.pieces.append(piece)
        if opened.kind == _CALL:
            return sink.add_call_pieces([{"index": opened.place, "function": {"arguments": piece}}], False)
    else:
        opened.add(delta)
    if opened.kind in (_TEXT, _THOUGHT, _CALL):
        _sealed(opened, sink)
    return []


def _said(opened: _Block, text: Any, sink: EventSink) -> list[Event]:
    if type(text) is not str or not text:
        return []
    return sink.add_text(text) if opened.kind == _TEXT else sink.add_reasoning(text, _THOUGHT)


def _sealed(opened: _Block, sink: EventSink) -> None:
    """Tell the part that was begun last where to find what stands beside it."""
    if opened.beside and opened.sealed != sink.part_count:
        opened.sealed = sink.part_count
        sink.add_seal(opened.seal)


def _close(sink: EventSink) -> list[Event]:
    """The block that is open is over: an input that came with it and in no pieces is all there is."""
    opened: _Block | None = sink.state.pop(_OPEN, None)
    if opened is None:
        return []
    out: list[Event] = []
    if opened.kind == _CALL and not any(opened.pieces) and opened.given not in (None, {}):
        out += sink.add_call_pieces([{"index": opened.place, "function": {"arguments": opened.given}}], False)
    if opened.kind not in (_TEXT, _THOUGHT, _CALL):
        sink.add_seal(_whole(opened))  # once, not with every piece: a program to run may come in thousands
    return out + sink.end_block()


def _whole(opened: _Block) -> dict[str, Any]:
    """A block that is kept as it is, with the input that came in pieces."""
    whole = opened.whole()
    if not opened.pieces:
        return whole
    raw = "".join(opened.pieces)
    try:
        given: Any = msgspec.json.decode(raw) if raw else whole.get("input")
    except (msgspec.DecodeError, RecursionError):
        given = raw
    return {**whole, "input": given}


def _besides(block: dict[str, Any], *own: str) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("type", *own) and value is not None}


def _place(place: Any) -> Any:
    return None if type(place) in (list, dict) else place


# ── failures ─────────────────────────────────────────────────────────────────


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """The error that a body or an event reports, or None. An object with 0 as its code reports success."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        found = get(data, path)
        if type(found) is dict:
            code = get_first(found, paths.code if paths else None)
            said = get_first(found, paths.message if paths else None)
            if code not in (0, "0") and (said or code or has_error_status(found)):
                return found
        elif type(found) is str and found:
            return data
    kind = data.get("type")
    if kind == "error":
        return data
    return find_error(data) if kind is None else None


# ── the commonest event ──────────────────────────────────────────────────────


class _Said(msgspec.Struct, gc=False):
    type: Literal["text_delta", "thinking_delta"]
    text: str | None = None
    thinking: str | None = None


class _Delta(msgspec.Struct, gc=False):
    type: Literal["content_block_delta"]
    delta: _Said
    usage: None = None
    error: None = None


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[_Delta]:
    return msgspec.json.Decoder(_Delta)


def fast_decoder(flags: Flags) -> Quick:
    """The fast way: one piece of text or of thinking, and nothing beside it."""
    decode = _decoder().decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        try:
            said = decode(text).delta
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if said.type == "text_delta":
            return None if said.thinking or not said.text else (said.text, None)
        return None if said.text or not said.thinking else (said.thinking, _THOUGHT)

    return read
