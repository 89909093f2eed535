"""Decode bodies and events of OpenAI Responses.

A reply is a list of items. `client_items` reads items, and has the record of each one. This module decodes the events
of a stream, and the reply as one object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get
from cnllm.protocols import FastDecoder
from cnllm.protocols.pieces import (
    ANOTHER,
    ANSWERED,
    ENDED,
    FINISH_RANKS,
    REFUSAL,
    REFUSED,
    CallEnd,
    Decoder,
    ExtraPiece,
    Fault,
    FinishWord,
    Head,
    PartEnd,
    Piece,
    ReasoningPiece,
)
from cnllm.protocols.reported import add_counts, as_index, find_fault, finish_word, read_finish
from cnllm.protocols.responses.client_items import (
    CUSTOM_CALL,
    ItemRecord,
    OutputRecords,
    RecordMatcher,
    annotation_pieces,
    annotations_of,
    as_function_call,
    begin_part,
    call_pieces,
    complete_item,
    content_keys,
    item_id,
    item_type,
    read_call,
    text_pieces,
    whole_text,
)
from cnllm.registry.flags import Flags
from cnllm.types import Note
from cnllm.types.lenient_json import arguments_text, join_halves, replace_surrogates
from cnllm.types.tools import custom_arguments

__all__ = ["ResponsesDecoder", "fast_decoder"]


class ResponsesDecoder(Decoder):
    """The decoder of one reply.

    Texts of several items may come at the same time, their pieces mixed. The first item of a kind is passed on as it
    comes. Events of the next one wait until its end, and so do the items behind.
    """

    __slots__ = ("_begun", "_records", "_waiting", "reads_all")

    def __init__(self, flags: Flags) -> None:
        self._records = OutputRecords(flags)
        self._begun: dict[str, ItemRecord] = {}  # by kind: the item that is passed on
        self._waiting: OrderedDict[int, list[dict[str, Any]]] = OrderedDict()  # events by the index of their item
        self.reads_all = False

    def decode(self, data: dict[str, Any], *, whole: bool = False) -> Iterator[Piece]:
        """Yield the pieces of one event, or with `whole` of one body."""
        kind = data.get("type")
        read = _EVENTS.get(kind) if type(kind) is str and not whole else None
        if read is _response_ended or (read is None and type(data.get("output")) is list):
            yield from self.end()
        if read is not None:
            if not self._waits(data):
                yield from read(data, self._records)
                if read is _item_done:
                    yield from self._release()
        elif whole or type(data.get("output")) is list:
            yield from _response(data, self._records, is_final=True)
        elif (fault := find_fault(data, self._records.flags, None)) is not None:
            yield Fault(fault)

    def end(self) -> Iterator[Piece]:
        """Yield the pieces of the events that wait."""
        while self._waiting:
            self._begun.clear()
            yield from self._release()

    def _waits(self, data: dict[str, Any]) -> bool:
        """Keep an event of an item that has to wait; return whether it does."""
        index = as_index(data.get("output_index"))
        if type(index) is not int:
            return False
        if index not in self._waiting and not (self._waiting and index not in self._records.at):
            if (kind := _text_kind(data)) is None:
                return False
            record = self._records.find(kind, {"item_id": get(data, "item.id"), **data})
            begun = self._begun.get(kind)
            if begun is None or begun.done:
                begun = self._begun[kind] = record
            if begun is record or record.done:
                return False
        self._waiting.setdefault(index, []).append(data)
        self.reads_all = True  # an event like this one continues no part that is passed on
        return True

    def _release(self) -> Iterator[Piece]:
        """Yield the pieces of the events that wait, up to an item that still has to."""
        while self._waiting:
            index, events = next(iter(self._waiting.items()))
            kind = next(filter(None, map(_text_kind, events)), None)
            begun = self._begun.get(kind or "")
            if begun is not None and not begun.done:
                return
            del self._waiting[index]
            self.reads_all = bool(self._waiting)
            for data in events:
                yield from _EVENTS[data["type"]](data, self._records)
            if kind is not None and (record := self._records.at.get(index)) is not None:
                self._begun[kind] = record


def _text_kind(data: dict[str, Any]) -> str | None:
    """Return the kind of the item of text that an event adds text to or ends; None for any other event."""
    kind = data["type"].removeprefix("response.")
    if kind == "output_item.done":
        item = data.get("item")
        kind = item_type(item) if type(item) is dict else ""
        return kind if kind in ("message", "reasoning") else None
    if kind == "content_part.done":
        return "reasoning" if get(data, "part.type") == "reasoning_text" else "message"
    name, _, rest = kind.partition(".")
    if not rest or rest == "added":
        return None
    if name in ("output_text", "refusal"):
        return "message"
    return "reasoning" if name.startswith("reasoning_") else None


_ABOUT = (
    *("service_tier", "access_programs", "conversation", "image", "input_transformations", "moderation", "prompt"),
    *("prompt_cache_diagnostics", "prompt_cache_options", "prompt_cache_retention", "tool_usage"),
)
"""Keys of a response that `Reply.extra` has."""


# ── the reply as a whole ──────────────────────────────────────────────────────


def _response(data: dict[str, Any], records: OutputRecords, *, is_final: bool) -> Iterator[Piece]:
    """Decode the reply as one object; `is_final`: this is its final version."""
    yield Head(data.get("id"), data.get("model"), data.get("created_at"))
    output = data.get("output")
    if (fault := find_fault(data, records.flags, type(output) is list)) is not None:
        yield Fault(fault)
    if type(output) is list:
        yield ANSWERED
        if is_final:
            matches = RecordMatcher(records)
            for item in output:
                if type(item) is dict:
                    item = as_function_call(item, records.flags)
                    record = matches.match(item) or records.add(item_type(item), item)
                    yield from complete_item(item, record, records)
    if is_final:
        for key in _ABOUT:
            if value := data.get(key):
                yield ExtraPiece(key, value)
    yield from add_counts(records.counts, data, records.flags)
    if is_final:
        yield from _finish(data.get("status"), records.flags)
        reason = read_finish(get(data, "incomplete_details.reason"), records.flags)
        if reason is not None:  # it counts, and not the status
            yield REFUSED if reason.kind == "content_filter" else FinishWord(finish_word(data.get("status")), "length")
            if reason.kind is None:
                yield ExtraPiece("incomplete_details", data["incomplete_details"])
                yield Note("finish-unknown", "finish", reason.word, "length: the reply is incomplete")


def _finish(word: Any, flags: Flags) -> Iterator[Piece]:
    """Give a finish reason, and that the reply ends where it is one that ends replies."""
    if (finish := read_finish(word, flags)) is not None:
        yield finish
        if finish.kind in FINISH_RANKS:
            yield ENDED


def _response_started(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode an event with the reply at its beginning."""
    response = data.get("response")
    if type(response) is not dict:
        return
    is_first = data.get("type") == "response.created"
    if is_first and records.start.is_another(response.get("id"), has_content=bool(records.all)):
        yield ANOTHER
        return
    yield from _response(response, records, is_final=False)


def _response_ended(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode an event with the reply at its end. A status that says that the reply goes on outranks its name."""
    response = data.get("response")
    records.start.has_ended = True
    status = ""
    if type(response) is dict:
        yield from _response(response, records, is_final=True)
        status = finish_word(response.get("status"))
    word = str(data["type"]).rpartition(".")[2]
    word = "completed" if word == "done" else word
    if not status or word != "completed":
        yield from _finish(word, records.flags)


def _error_event(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode an error event: the error is an object of its own, or stands in the event's own keys."""
    yield Fault(data.get("error") or {k: v for k, v in data.items() if k not in ("type", "sequence_number")})


# ── items ─────────────────────────────────────────────────────────────────────


def _item_added(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Begin an item. Of a call the known keys are given; all other items are given by their pieces."""
    item = data.get("item")
    if type(item) is not dict:
        return
    yield ANSWERED
    item = as_function_call(item, records.flags)
    record = records.announce(item_type(item), item, data.get("output_index"))
    if record.kind == "function_call":
        keys = {key: value for key, value in item.items() if key != "status"}  # it is that of the beginning
        yield from read_call(keys, record, records, "")
        yield CallEnd(record.number, False)  # until its end comes


def _item_done(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """End an item, which comes as a whole."""
    item = data.get("item")
    if type(item) is not dict:
        return
    yield ANSWERED
    item = as_function_call(item, records.flags)
    event_keys = {"output_index": data.get("output_index"), "item_id": item_id(item)}
    record = records.find(item_type(item), event_keys)
    yield from complete_item(item, record, records)
    record.done = True
    if records.current_part is None or records.current_part[0] is record:
        records.current_part = None
        yield PartEnd()


# ── pieces ────────────────────────────────────────────────────────────────────


def _index(data: dict[str, Any]) -> int:
    """Return the index of a part in its item."""
    index = data.get("content_index")
    return index if type(index) is int and index > 0 else 0


def _text_delta(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a piece of a message."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return
    yield ANSWERED
    record, index = records.find("message", data), _index(data)
    yield from text_pieces(record, index, text, records)
    if tokens := data.get("logprobs"):
        record.logprobs.add(index)
        if type(tokens) is list:
            yield ExtraPiece("logprobs", tokens)


def _refusal_delta(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a piece of a refusal."""
    yield from REFUSAL
    yield from _text_delta(data, records)


def _text_done(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a whole part of a message. It counts only if it did not come in pieces."""
    part = data.get("part")
    part_data = part if type(part) is dict else data
    if part_data.get("type") == "reasoning_text":
        yield from _reasoning_done({**data, "text": part_data.get("text")}, records, "content")
        return
    is_refusal = type(part_data.get("refusal")) is str
    text = part_data.get("refusal" if is_refusal else "text")
    if type(text) is not str or not text:
        return
    yield ANSWERED
    if is_refusal:
        yield from REFUSAL
    record, index = records.find("message", data), _index(data)
    yield from whole_text(record, index, text, records)
    if type(part) is dict:
        record.part_keys[index] = content_keys(part)
        yield from annotations_of(part, record, index)


def _annotation_added(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a source of a part of a message."""
    yield from annotation_pieces(records.find("message", data), _index(data), data.get("annotation"))


def _reasoning_delta(data: dict[str, Any], records: OutputRecords, reasoning_field: str) -> Iterator[Piece]:
    """Decode a piece of reasoning, from the one field that counts. For another item that may be another field."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return
    yield ANSWERED
    record = records.find("reasoning", data)
    record.reasoning_field = record.reasoning_field or reasoning_field
    if record.reasoning_field == reasoning_field:
        yield from begin_part(record, 0, "thought", records)
        yield ReasoningPiece(text, reasoning_field, is_only=True)


def _reasoning_done(data: dict[str, Any], records: OutputRecords, reasoning_field: str) -> Iterator[Piece]:
    """Decode whole reasoning. It counts only if none came in pieces; there may be several such parts."""
    record = records.find("reasoning", data)
    if record.reasoning_field is None and 0 not in record.parts:
        record.reasoning_field = f"{reasoning_field}.done"
    if record.reasoning_field != f"{reasoning_field}.done":
        return
    part = data.get("part")
    text = data.get("text") if type(part) is not dict else part.get("text")
    index = data.get("summary_index", data.get("content_index"))
    is_known = f"{index}" in record.whole_parts  # two events report the same text
    if type(text) is not str or not text or is_known:
        return
    record.whole_parts.add(f"{index}")
    yield ANSWERED
    yield from begin_part(record, 0, "thought", records)
    yield ReasoningPiece(text, reasoning_field, is_only=True)


def _arguments_delta(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a piece of a call's arguments."""
    if piece := arguments_text(data.get("delta")):
        yield ANSWERED
        record = records.find("function_call", data)
        piece, record.half = join_halves(record.half, piece)
        yield from _add_arguments(piece, record, records)


def _add_arguments(piece: str, record: ItemRecord, records: OutputRecords) -> Iterator[Piece]:
    """Add a piece to the arguments of a call."""
    record.raw.append(piece)
    record.size += len(piece)
    yield from call_pieces(record, piece, records)


def _arguments_done(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode the whole arguments of a call."""
    if data.get("arguments") is None:
        return
    yield ANSWERED
    call: dict[str, Any] = {key: data[key] for key in ("name", "call_id") if key in data}
    record = records.find("function_call", data)
    yield from read_call(call, record, records, arguments_text(data["arguments"]))
    yield CallEnd(record.number, not record.unfinished)


def _input_delta(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode a piece of a custom tool's input as one of the arguments of its function."""
    piece = data.get("delta")
    if type(piece) is not str or not piece or records.has(CUSTOM_CALL, data):
        return
    yield ANSWERED
    record = records.find("function_call", data)
    piece, record.half = join_halves(record.half, piece)
    before, _, after = custom_arguments(piece)[1].partition(":")
    text = after[1:-2]
    yield from _add_arguments(text if record.size else f'{before}:"{text}', record, records)


def _input_done(data: dict[str, Any], records: OutputRecords) -> Iterator[Piece]:
    """Decode the whole input of a custom tool."""
    if type(data.get("input")) is str and not records.has(CUSTOM_CALL, data):
        yield from _arguments_done(
            {**data, "arguments": custom_arguments(replace_surrogates(data["input"]))[1]}, records
        )


_EVENTS: dict[str, Callable[[dict[str, Any], OutputRecords], Iterator[Piece]]] = {
    "error": _error_event,
    "response.created": _response_started,
    "response.queued": _response_started,
    "response.in_progress": _response_started,
    "response.completed": _response_ended,
    "response.done": _response_ended,
    "response.incomplete": _response_ended,
    "response.failed": _response_ended,
    "response.cancelled": _response_ended,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.content_part.done": _text_done,
    "response.output_text.delta": _text_delta,
    "response.output_text.done": _text_done,
    "response.output_text.annotation.added": _annotation_added,
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _text_done,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.custom_tool_call_input.delta": _input_delta,
    "response.custom_tool_call_input.done": _input_done,
    "response.reasoning_summary_text.delta": partial(_reasoning_delta, reasoning_field="summary"),
    "response.reasoning_summary_text.done": partial(_reasoning_done, reasoning_field="summary"),
    "response.reasoning_summary_part.done": partial(_reasoning_done, reasoning_field="summary"),
    "response.reasoning_text.delta": partial(_reasoning_delta, reasoning_field="content"),
    "response.reasoning_text.done": partial(_reasoning_done, reasoning_field="content"),
}
"""The events with content; all others only announce one of these."""


# ── the fast decoder ──────────────────────────────────────────────────────────

_FIELDS = {
    "response.output_text.delta": None,
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "content",
}
"""The most common events, and the field of their reasoning."""


class _Delta(msgspec.Struct, gc=False):
    """One of the most common events."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"
    ]
    delta: str
    output_index: int | None = None
    content_index: int | None = None
    logprobs: tuple[()] | None = None


_decode_delta = msgspec.json.Decoder(_Delta).decode


def fast_decoder(flags: Flags) -> FastDecoder:
    """Return the fast decoder: it reads deltas that continue the last part.

    A delta of another part is left to the full decoder.
    """
    last: tuple[Any, ...] | None = None
    is_first = True

    def read(text: bytes) -> tuple[str, str | None] | None:
        """Decode one event."""
        nonlocal last, is_first
        try:
            event = _decode_delta(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            last, is_first = None, False
            return None
        part = (event.type, event.output_index, event.content_index)
        if part != last and not is_first:
            last = part
            return None
        last, is_first = part, False
        return (event.delta, _FIELDS[event.type]) if event.delta else None

    return read
