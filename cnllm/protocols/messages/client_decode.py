"""Decode bodies and events of Anthropic Messages.

A body is a list of blocks; a stream opens each block, adds to it and closes it. The keys of a block beside its text
go back with it as received: signatures, citations, and whole blocks of unknown types.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get, get_first
from cnllm.protocols import FastDecoder
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import find_error, has_error_status
from cnllm.protocols.usage import add_counts, merge_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]

_TEXT, _THOUGHT, _HIDDEN, _CALL = "text", "thinking", "redacted_thinking", "tool_use"
_OPEN = "block"  # keys of the state: the open block,
_COUNTS = "usage"  # and the counts so far
_ENDS = ("message_delta", "message_stop")


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """Decode one event of a stream, or with `whole` one body. Return its events; the rest is stored in `sink`."""
    fault = _fault(data, flags)
    if fault is not None and sink.fault is None:
        sink.fault = fault
    out: list[Event] = []
    kind = data.get("type")
    if whole or kind == "message":
        _head(data, sink)
        out += _blocks(data.get("content"), sink)
        out += sink.add_extra("stop_sequence", data.get("stop_sequence"))
        if _reason(data, sink):
            sink.finished = True
    elif kind == "message_start":
        if type(message := data.get("message")) is dict:
            sink.answered = True
            _head(message, sink)
            out += _blocks(message.get("content"), sink)
            _reason(message, sink)
            out += _count(message, flags, sink)
    elif kind == "content_block_start":
        out += _close(sink)
        out += _begin_block(data.get("content_block"), data.get("index"), sink)
        if (begun := sink.state.get(_OPEN)) is not None and begun.kind == _CALL:
            sink.end_call(begun.position, False)  # until its stop comes
    elif kind == "content_block_delta":
        if type(delta := data.get("delta")) is dict:
            out += _add_delta(delta, data.get("index"), sink)
    elif kind == "content_block_stop":
        position, open_block = data.get("index"), sink.state.get(_OPEN)
        if type(position) is not int and open_block is not None:
            position = open_block.position
        out += _close(sink)
        sink.end_call(_valid_position(position), True)
    elif kind in _ENDS:
        out += _close(sink)
        if type(delta := data.get("delta")) is dict:
            _reason(delta, sink)
            out += sink.add_extra("stop_sequence", delta.get("stop_sequence"))
        sink.finished = sink.finished or kind == _ENDS[1]
    return out + _count(data, flags, sink)


def _head(message: dict[str, Any], sink: EventSink) -> None:
    """Read the id and the model of a message."""
    if sink.id is None and type(message.get("id")) is str:
        sink.id = message["id"] or None
    if sink.model is None and type(message.get("model")) is str:
        sink.model = message["model"] or None


def _reason(message: dict[str, Any], sink: EventSink) -> bool:
    """Read the stop reason. Return whether a reply ends with it; a stream ends with `message_stop` alone."""
    reason = message.get("stop_reason")
    sink.answered = sink.answered or bool(reason)
    return sink.report_finish(reason)


def _count(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Merge the counts, which come in parts. A zero never replaces a known count."""
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is not dict:
        return []
    counts = sink.state.setdefault(_COUNTS, {})
    merge_counts(counts, usage)
    return add_counts(counts, flags, sink)


# ── blocks ────────────────────────────────────────────────────────────────────


class _Block:
    """The open block: its position in the stream, and `other_keys`, its keys beside its text.

    `input` is the input of a call in the block itself; pieces of it that follow replace it. `sealed_at` is the number
    of the sink's parts when the seal was added.
    """

    __slots__ = ("_own_lists", "_sizes", "_texts", "input", "kind", "other_keys", "pieces", "position", "sealed_at")

    def __init__(self, kind: str, position: Any, other_keys: dict[str, Any]) -> None:
        self.kind = kind
        self.position = position
        self.other_keys = other_keys
        self.input: Any = None
        self.pieces: list[str] = []
        self.sealed_at = -1
        self._own_lists: dict[str, list[Any]] = {}  # lists that grow
        self._texts: dict[str, list[str]] = {}  # texts that grow, in pieces
        self._sizes: dict[str, int] = {}  # lengths of these texts

    def add(self, delta: dict[str, Any]) -> None:
        """Add a delta of no special type: text is appended to text, an item to its list, and all else replaces."""
        for key, value in delta.items():
            if key == "type":
                continue
            previous, list_key = self.other_keys.get(key), f"{key}s"
            if key == "citation" or (previous is None and type(self.other_keys.get(list_key)) is list):
                self._own_list(list_key).append(value)
            elif type(previous) is str and type(value) is str:
                self._text(key, previous, value)
            elif type(previous) is list and type(value) is list:
                self._own_list(key).extend(value)
            else:
                self.other_keys[key] = value
                self._own_lists.pop(key, None)
                self._texts.pop(key, None)
                self._sizes.pop(key, None)

    def _own_list(self, key: str) -> list[Any]:
        """Return a list of the block's own that may change: the list of a chunk must not."""
        own_list = self._own_lists.get(key)
        if own_list is None:
            previous = self.other_keys.get(key)
            own_list = self._own_lists[key] = self.other_keys[key] = list(previous) if type(previous) is list else []
        return own_list

    def _text(self, key: str, previous: str, text: str) -> None:
        """Append text to a key."""
        pieces = self._texts.setdefault(key, [previous])
        size = self._sizes.get(key, len(previous))
        if key == "signature" and size == len(text) and "".join(pieces) == text:
            return  # the endpoint repeated it
        pieces.append(text)
        self._sizes[key] = size + len(text)

    def whole(self) -> dict[str, Any]:
        """Return all keys beside the text."""
        return {**self.other_keys, **{key: "".join(pieces) for key, pieces in self._texts.items()}}

    def seal(self) -> dict[str, Any] | None:
        """Return the keys beside the text, or None if all are empty."""
        whole = self.whole()
        return whole if any(whole.values()) else None


def _blocks(content: Any, sink: EventSink) -> list[Event]:
    """Decode the blocks of a whole body."""
    if type(content) is not list:
        if type(content) is str:
            sink.answered = True
            return sink.add_text(content) if content else []
        return []
    sink.answered = True
    out: list[Event] = []
    for position, block in enumerate(content):
        out += _begin_block(block, position, sink)
        out += _close(sink)
    return out


def _begin_block(block: Any, position: Any, sink: EventSink) -> list[Event]:
    """Decode a block, or its beginning."""
    if type(block) is not dict:
        return sink.add_opaque(block) if block else []
    sink.answered = True
    kind = block.get("type")
    if type(kind) is not str:
        kind = ""
    out: list[Event]
    if kind in (_TEXT, _THOUGHT) and type(block.get(kind)) in (str, type(None)):
        open_block = sink.state[_OPEN] = _Block(kind, position, _other_keys(block, kind))
        out = sink.begin_block("text" if kind == _TEXT else "thought")
        _add_seal(open_block, sink)
        return out + _add_text(open_block, block.get(kind), sink)
    if kind == _HIDDEN:
        sink.state[_OPEN] = _Block(kind, position, dict(block))
        out = sink.begin_block("thought")
        sink.add_seal(block)
        return out
    if kind == _CALL and type(block.get("name")) is str and block["name"]:
        open_block = sink.state[_OPEN] = _Block(kind, _valid_position(position), {})
        open_block.input = block.get("input")
        function = {"name": block["name"], "arguments": ""}
        head = {
            **_other_keys(block, "name", "input"),
            "id": block.get("id"),
            "index": open_block.position,
            "function": function,
        }
        return sink.add_call_pieces([head], True)
    sink.state[_OPEN] = _Block(kind, position, dict(block))
    return sink.add_opaque(block)


def _add_delta(delta: dict[str, Any], position: Any, sink: EventSink) -> list[Event]:
    """Decode a delta of the open block; without one, the delta begins a block."""
    kind = delta.get("type")
    open_block: _Block | None = sink.state.get(_OPEN)
    out: list[Event] = []
    for text_type, delta_type in ((_TEXT, "text_delta"), (_THOUGHT, "thinking_delta")):
        if kind == delta_type:
            if open_block is None or open_block.kind != text_type:
                out += _close(sink)
                out += _begin_block({"type": text_type}, position, sink)
                open_block = sink.state[_OPEN]
            assert open_block is not None
            return out + _add_text(open_block, delta.get(text_type), sink)
    if open_block is None:
        return sink.add_opaque(delta)
    piece = delta.get("partial_json")
    if kind == "input_json_delta" and type(piece) is str:
        open_block.pieces.append(piece)
        if open_block.kind == _CALL:
            return sink.add_call_pieces([{"index": open_block.position, "function": {"arguments": piece}}], False)
    else:
        open_block.add(delta)
    if open_block.kind in (_TEXT, _THOUGHT, _CALL):
        _add_seal(open_block, sink)
    return []


def _add_text(open_block: _Block, text: Any, sink: EventSink) -> list[Event]:
    """Add text or reasoning."""
    if type(text) is not str or not text:
        return []
    return sink.add_text(text) if open_block.kind == _TEXT else sink.add_reasoning(text, _THOUGHT)


def _add_seal(open_block: _Block, sink: EventSink) -> None:
    """Add the seal of the last part: a function that reads the keys beside it at the end."""
    if open_block.other_keys and open_block.sealed_at != sink.part_count:
        open_block.sealed_at = sink.part_count
        sink.add_seal(open_block.seal)


def _close(sink: EventSink) -> list[Event]:
    """Close the open block. An input in the block itself counts if no pieces followed."""
    open_block: _Block | None = sink.state.pop(_OPEN, None)
    if open_block is None:
        return []
    out: list[Event] = _citations(open_block, sink) if open_block.kind == _TEXT else []
    if open_block.kind == _CALL and not any(open_block.pieces) and open_block.input not in (None, {}):
        out += sink.add_call_pieces(
            [{"index": open_block.position, "function": {"arguments": open_block.input}}], False
        )
    if open_block.kind not in (_TEXT, _THOUGHT, _CALL):
        # Once, not with every piece: a program may come in thousands of pieces.
        sink.add_seal(_stored_block(open_block))
    return out + sink.end_block()


def _citations(open_block: _Block, sink: EventSink) -> list[Event]:
    """Report the sources of a block of text. Each of them is for the whole block."""
    citations = open_block.other_keys.get("citations")
    out: list[Event] = []
    for citation in citations if type(citations) is list else ():
        if type(citation) is dict:
            title = citation.get("title") or citation.get("document_title") or citation.get("source")
            out += sink.add_citation(citation, citation.get("url"), title, part=sink.part_count - 1)
    return out


def _stored_block(open_block: _Block) -> dict[str, Any]:
    """Return a block that is stored as received, with the input from its pieces."""
    whole = open_block.whole()
    if not open_block.pieces:
        return whole
    raw = "".join(open_block.pieces)
    try:
        call_input: Any = msgspec.json.decode(raw) if raw else whole.get("input")
    except (msgspec.DecodeError, RecursionError):
        call_input = raw
    return {**whole, "input": call_input}


def _other_keys(block: dict[str, Any], *excluded: str) -> dict[str, Any]:
    """Return the keys of a block without its type and these."""
    return {key: value for key, value in block.items() if key not in ("type", *excluded) and value is not None}


def _valid_position(position: Any) -> Any:
    """Return a position, or None for an invalid one."""
    return None if type(position) in (list, dict) else position


# ── failures ──────────────────────────────────────────────────────────────────


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """Return the error in a body or an event, or None. An object with 0 as its code reports success."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        error = get(data, path)
        if type(error) is dict:
            code = get_first(error, paths.code if paths else None)
            message = get_first(error, paths.message if paths else None)
            if code not in (0, "0") and (message or code or has_error_status(error)):
                return error
        elif type(error) is str and error:
            return data
    kind = data.get("type")
    if kind == "error":
        return data
    return find_error(data) if kind is None else None


# ── the fast decoder ──────────────────────────────────────────────────────────


class _TextDelta(msgspec.Struct, gc=False):
    """A delta of text or reasoning."""

    type: Literal["text_delta", "thinking_delta"]
    text: str | None = None
    thinking: str | None = None


class _Delta(msgspec.Struct, gc=False):
    """The event of such a delta."""

    type: Literal["content_block_delta"]
    delta: _TextDelta
    usage: None = None
    error: None = None


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[_Delta]:
    """Return the decoder of the most common event."""
    return msgspec.json.Decoder(_Delta)


def fast_decoder(flags: Flags) -> FastDecoder | None:
    """Return the fast decoder: one piece of text or reasoning, and nothing else.

    None where counts or errors may stand at another place of an event than the usual ones.
    """
    places = (*((flags.usage and flags.usage.at) or ()), *((flags.error and flags.error.at) or ()))
    if not {path.partition(".")[0] for path in places} <= {"usage", "error"}:
        return None
    decode = _decoder().decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        """Decode one event."""
        try:
            delta = decode(text).delta
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if delta.type == "text_delta":
            return None if delta.thinking or not delta.text else (delta.text, None)
        return None if delta.text or not delta.thinking else (delta.thinking, _THOUGHT)

    return read
