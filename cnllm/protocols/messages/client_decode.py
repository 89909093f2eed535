"""Decode bodies and events of Anthropic Messages.

A body is a list of blocks; a stream opens each block, adds to it and closes it. The keys of a block beside its text
go back with it as received: signatures, citations, and whole blocks of unknown types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from cnllm.protocols import FastDecoder
from cnllm.protocols.pieces import (
    ANOTHER,
    ANSWERED,
    ENDED,
    FINISH_RANKS,
    CallEnd,
    CallPieces,
    CitationPiece,
    Decoder,
    ExtraPiece,
    Fault,
    FinishWord,
    Head,
    OpaquePiece,
    PartEnd,
    PartSeal,
    PartStart,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from cnllm.protocols.reported import ReplyStart, add_counts, as_index, find_fault, read_finish
from cnllm.registry.flags import Flags
from cnllm.types.lenient_json import arguments_text

__all__ = ["MessagesDecoder", "fast_decoder"]

_TEXT, _THOUGHT, _HIDDEN, _CALL = "text", "thinking", "redacted_thinking", "tool_use"
_DELTAS = {"text_delta": _TEXT, "thinking_delta": _THOUGHT}
_BEGIN = "content_block_start"
_BLOCK_EVENTS = (_BEGIN, "content_block_delta", "content_block_stop")
_ENDS = ("message_delta", "message_stop")
_ABOUT = ("stop_sequence", "stop_details", "container", "diagnostics", "context_management", "input_transformations")
"""Keys of a message that `Reply.extra` has."""


def _about(data: dict[str, Any]) -> Iterator[Piece]:
    """Give the keys about the reply as a whole."""
    yield from (ExtraPiece(key, data[key]) for key in _ABOUT if key in data)


class MessagesDecoder(Decoder):
    """The decoder of one reply.

    Pieces of several blocks may come in turns. A block of text or thinking that begins behind another one of its kind
    waits for the end of that one, and so do the blocks behind it. One of another kind does not wait, because some
    endpoints leave out the ends.
    """

    __slots__ = (
        *("_calls", "_counts", "_flags", "_has_block", "_has_reason", "_number", "_open", "_start", "_texts"),
        *("_waiting", "reads_all"),
    )

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._open: _Block | None = None
        self._calls: dict[Any, _Block] = {}  # the calls whose end has not come, by position: proxies interleave them
        self._number = 0  # of the last block of text or thinking
        self._texts: dict[Any, _Block] = {}  # the blocks of text and thinking, by position: a signature may come late
        self._waiting: dict[int, list[dict[str, Any]]] = {}  # the events of blocks that wait, by position
        self.reads_all = False
        self._start = ReplyStart()
        self._has_block = False  # a block has begun
        self._has_reason = False  # a stop reason came
        self._counts: dict[str, Any] = {}  # so far; a zero never replaces a known one

    def decode(self, data: dict[str, Any], *, whole: bool = False) -> Iterator[Piece]:
        """Yield the pieces of one event of a stream, or with `whole` of one body."""
        kind = data.get("type")
        fault = find_fault(data, self._flags, data.get("content"), is_event=kind is not None)
        if fault is not None or kind == "error":
            yield Fault(data if fault is None else fault)
        if whole or kind == "message":
            yield Head(data.get("id"), data.get("model"))
            yield from self._blocks(data.get("content"))
            yield from _about(data)
            for finish in self._finish(data):
                yield finish
                if type(finish) is FinishWord and finish.kind in FINISH_RANKS:
                    yield ENDED
        elif kind == "message_start":
            if type(message := data.get("message")) is dict:
                if self._start.is_another(message.get("id"), has_content=self._has_block):
                    yield ANOTHER
                    return
                yield ANSWERED
                yield Head(message.get("id"), message.get("model"))
                yield from self._blocks(message.get("content"))
                yield from self._finish(message)
                yield from _about(message)
                # The output of the start is a token or two of the first answer, whatever follows: it says nothing.
                outputs = self._flags.usage.output or ()
                yield from add_counts(self._counts, message, self._flags, outputs)
        elif kind in _BLOCK_EVENTS:
            if not self._waits(data):
                yield from self._read_block_event(data)
                yield from self._release()
        elif kind in _ENDS:
            yield from self._release(all_blocks=True)
            is_torn = self._open is not None and not self._has_reason
            yield from self._close()
            if type(delta := data.get("delta")) is dict:
                yield from self._finish(delta)
                yield from _about(delta)
            yield from _about(data)
            if kind == _ENDS[1] and not is_torn:  # neither the block has an end nor the message a reason
                self._start.has_ended = True
                yield ENDED
        yield from add_counts(self._counts, data, self._flags)

    def end(self) -> Iterator[Piece]:
        """Yield the pieces of the blocks that wait, and close the one that was cut."""
        yield from self._release(all_blocks=True)
        yield from self._close()

    def _finish(self, message: dict[str, Any]) -> Iterator[Piece]:
        """Give the stop reason. A stream ends with `message_stop` alone."""
        reason = message.get("stop_reason")
        if reason:
            self._has_reason = True
            yield ANSWERED
        if (finish := read_finish(reason, self._flags)) is not None:
            yield finish
            if finish.kind is None:
                yield ExtraPiece("stop_reason", finish.word)

    # ── blocks ────────────────────────────────────────────────────────────────

    def _waits(self, data: dict[str, Any]) -> bool:
        """Keep an event of a block that has to wait; return whether it does."""
        position = as_index(data.get("index"))
        if type(position) is not int:
            return False
        if position not in self._waiting:
            text = self._open_text()
            is_next = text is not None and text.kind == _kind(data) and text.position != position
            if data["type"] != _BEGIN or not (self._waiting or is_next):
                return False
            self._waiting[position] = []
        self._waiting[position].append(data)
        self.reads_all = True  # a delta like this one does not continue the block that is passed on
        return True

    def _release(self, *, all_blocks: bool = False) -> Iterator[Piece]:
        """Yield the pieces of the blocks that wait, up to one that still has to."""
        while self._waiting and (all_blocks or self._open_text() is None):
            events = self._waiting.pop(next(iter(self._waiting)))
            self.reads_all = bool(self._waiting)
            for data in events:
                yield from self._read_block_event(data)

    def _open_text(self) -> _Block | None:
        """Return the open block, if it is one of text or thinking with a position."""
        block = self._open
        return block if block is not None and block.number is not None and type(block.position) is int else None

    def _read_block_event(self, data: dict[str, Any]) -> Iterator[Piece]:
        """Decode an event of a block."""
        kind = data["type"]
        if kind == _BEGIN:
            yield from self._close()
            yield from self._begin_block(data.get("content_block"), data.get("index"))
            if self._open is not None and self._open.kind == _CALL:
                yield CallEnd(self._open.position, False)  # until its stop comes
        elif kind == "content_block_delta":
            if type(delta := data.get("delta")) is dict:
                yield from self._add_delta(delta, data.get("index"))
        else:
            position = as_index(data.get("index"))
            if type(position) is not int and self._open is not None:
                position = self._open.position
            if position not in self._calls or self._open is self._calls[position]:
                yield from self._close()
            self._calls.pop(position, None)
            yield CallEnd(position, True)

    def _blocks(self, content: Any) -> Iterator[Piece]:
        """Decode the blocks of a whole body."""
        if type(content) is str:
            yield ANSWERED
            if content:
                yield TextPiece(content)
        if type(content) is not list:
            return
        yield ANSWERED
        for position, block in enumerate(content):
            yield from self._begin_block(block, position)
            yield from self._close()

    def _begin_block(self, block: Any, position: Any) -> Iterator[Piece]:
        """Decode a block, or its beginning."""
        if type(block) is not dict:
            if block:
                yield OpaquePiece(block)
            return
        self._has_block = True
        yield ANSWERED
        kind = block.get("type")
        if type(kind) is not str:
            kind = ""
        if kind in (_TEXT, _THOUGHT) and type(block.get(kind)) in (str, type(None)):
            self._open = _Block(kind, as_index(position), _other_keys(block, kind))
            self._number = self._open.number = self._number + 1
            self._texts[self._open.position] = self._open
            yield PartStart("text" if kind == _TEXT else "thought", self._open.number)
            yield from self._seal(self._open)
            yield from _text_pieces(kind, block.get(kind))
        elif kind == _HIDDEN:
            self._open = _Block(kind, position, dict(block))
            yield PartStart("thought")
            yield PartSeal(block)
        elif kind == _CALL and type(block.get("name")) is str and block["name"]:
            self._open = _Block(kind, as_index(position), {})
            self._open.input = block.get("input")
            self._calls[self._open.position] = self._open
            function = {"name": block["name"], "arguments": ""}
            others = _other_keys(block, "name", "input")
            head = {**others, "id": block.get("id"), "index": self._open.position, "function": function}
            yield CallPieces([head], True)
        else:
            self._open = _Block(kind, position, dict(block))
            yield OpaquePiece(block)

    def _add_delta(self, delta: dict[str, Any], position: Any) -> Iterator[Piece]:
        """Decode a delta of the open block; without one, the delta begins a block."""
        kind = delta.get("type")
        if type(kind) is str and (text_type := _DELTAS.get(kind)) is not None:
            if self._open is None or self._open.kind != text_type:
                yield from self._close()
                yield from self._begin_block({"type": text_type}, position)
            yield from _text_pieces(text_type, delta.get(text_type))
            return
        block = self._open
        is_input = kind == "input_json_delta" and delta.get("partial_json") is not None
        piece = arguments_text(delta.get("partial_json"))
        position = as_index(position)
        if is_input and type(position) is int:
            block = self._calls.get(position, block)
        elif not is_input and (block is None or block.position != position):
            block = self._texts.get(position, block)
        if block is None:
            if is_input:  # of a call that has ended, or whose beginning is missing: then it is incomplete
                yield CallPieces([{"index": position, "function": {"arguments": piece}}], False)
            else:
                yield OpaquePiece(delta)
            return
        if is_input:
            block.pieces.append(piece)
            if block.kind == _CALL:
                yield CallPieces([{"index": block.position, "function": {"arguments": piece}}], False)
                return
        else:
            block.add(delta)
        if block.kind in (_TEXT, _THOUGHT, _CALL):
            yield from self._seal(block)

    def _seal(self, block: _Block) -> Iterator[Piece]:
        """Give the seal of a part: a function that reads the keys beside it at the end."""
        if block.other_keys:
            yield PartSeal(block.seal, block.number)

    def _close(self) -> Iterator[Piece]:
        """Close the open block. An input in the block itself counts if no pieces followed."""
        block, self._open = self._open, None
        if block is None:
            return
        if block.kind == _TEXT:
            yield from _citations(block)
        if block.kind == _CALL and not any(block.pieces) and block.input not in (None, {}):
            yield CallPieces([{"index": block.position, "function": {"arguments": block.input}}], False)
        if block.kind not in (_TEXT, _THOUGHT, _CALL):
            # Once, not with every piece: a program may come in thousands of pieces.
            yield PartSeal(_stored_block(block))
        yield PartEnd()


class _Block:
    """The open block: its position in the stream, and `other_keys`, its keys beside its text.

    `input` is the input of a call in the block itself; pieces of it that follow replace it. `number` is that of its
    part, where it has a text.
    """

    __slots__ = ("_sizes", "_texts", "input", "kind", "number", "other_keys", "pieces", "position")

    def __init__(self, kind: str, position: Any, other_keys: dict[str, Any]) -> None:
        self.kind = kind
        self.position = position
        # Lists may grow, and those of a chunk must not change.
        self.other_keys = {key: [*value] if type(value) is list else value for key, value in other_keys.items()}
        self.input: Any = None
        self.number: int | None = None
        self.pieces: list[str] = []
        self._texts: dict[str, list[str]] = {}  # texts that grow, in pieces
        self._sizes: dict[str, int] = {}  # lengths of these texts

    def add(self, delta: dict[str, Any]) -> None:
        """Add a delta of no special type: text is appended to text, an item to its list, and all else replaces."""
        for key, value in delta.items():
            if key == "type":
                continue
            previous = self.other_keys.get(key)
            items: Any = self.other_keys.get(f"{key}s")
            if key == "citation" and type(items) is not list:
                items = self.other_keys["citations"] = []
            if key == "citation" or (previous is None and type(items) is list):
                items.append(value)
            elif type(previous) is str and type(value) is str:
                self._text(key, previous, value)
            elif type(previous) is list and type(value) is list:
                previous.extend(value)
            else:
                self.other_keys[key] = [*value] if type(value) is list else value
                self._texts.pop(key, None)
                self._sizes.pop(key, None)

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


def _kind(data: dict[str, Any]) -> str:
    """Return the type of the block that an event begins."""
    block = data.get("content_block")
    kind = block.get("type") if type(block) is dict else None
    return kind if type(kind) is str else ""


def _text_pieces(kind: str, text: Any) -> Iterator[Piece]:
    """Give text or reasoning, if there is any."""
    if type(text) is str and text:
        yield TextPiece(text) if kind == _TEXT else ReasoningPiece(text, _THOUGHT)


def _citations(block: _Block) -> Iterator[Piece]:
    """Give the sources of a block of text. Each of them is for the whole block."""
    citations = block.other_keys.get("citations")
    for citation in citations if type(citations) is list else ():
        if type(citation) is dict:
            title = citation.get("title") or citation.get("document_title") or citation.get("source")
            yield CitationPiece(citation, citation.get("url"), title, in_part=True)


def _stored_block(open_block: _Block) -> dict[str, Any]:
    """Return a block that is stored as received, with the input from its pieces."""
    whole = open_block.whole()
    if not open_block.pieces:
        return whole
    raw = "".join(open_block.pieces)
    try:
        call_input: Any = msgspec.json.decode(raw) if raw else whole.get("input")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        call_input = raw
    return {**whole, "input": call_input}


def _other_keys(block: dict[str, Any], *excluded: str) -> dict[str, Any]:
    """Return the keys of a block without its type and these."""
    return {key: value for key, value in block.items() if key not in ("type", *excluded) and value is not None}


# ── the fast decoder ──────────────────────────────────────────────────────────


class _TextDelta(msgspec.Struct, gc=False):
    """A delta of text or reasoning."""

    type: Literal["text_delta", "thinking_delta"]
    text: str | None = None
    thinking: str | None = None


class _BlockDelta(msgspec.Struct, gc=False):
    """The event of such a delta."""

    type: Literal["content_block_delta"]
    delta: _TextDelta
    usage: None = None
    error: None = None


_decode_delta = msgspec.json.Decoder(_BlockDelta).decode


def fast_decoder(flags: Flags) -> FastDecoder | None:
    """Return the fast decoder: one piece of text or reasoning, and nothing else.

    None where counts or errors may stand at another place of an event than the usual ones.
    """
    places = (*(flags.usage.at or ()), *(flags.error.at or ()))
    if not {path.partition(".")[0] for path in places} <= {"usage", "error"}:
        return None

    def read(text: bytes) -> tuple[str, str | None] | None:
        """Decode one event."""
        try:
            delta = _decode_delta(text).delta
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if delta.type == "text_delta":
            return None if delta.thinking or not delta.text else (delta.text, None)
        return None if delta.text or not delta.thinking else (delta.thinking, _THOUGHT)

    return read
