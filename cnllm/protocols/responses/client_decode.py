"""Decode bodies and events of OpenAI Responses.

A reply is a list of items. A stream announces each item, sends it piece by piece, and again as a whole at its end;
its last event repeats the whole reply. Each item has a record here, so that text that came in pieces does not count
again, and data that only a later event has is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get, get_first
from cnllm.protocols import FastDecoder
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import find_error
from cnllm.protocols.usage import merge_counts, read_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]


class Item:
    """The record of one item.

    `number` counts the items; `parts` are the numbers of the sink's parts for each part of its content; `raw` are
    the pieces of a call's arguments; `reasoning_field` is the field of its reasoning; `whole` is the item at its
    end, `repeats` how often it came again after that. `whole_parts` are the parts of its reasoning that came whole.
    """

    __slots__ = (
        "done",
        "has_name",
        "id",
        "kind",
        "number",
        "parts",
        "raw",
        "reasoning_field",
        "repeats",
        "size",
        "whole",
        "whole_parts",
    )

    def __init__(self, number: int, kind: str, id: str | None) -> None:
        self.number = number
        self.kind = kind
        self.id = id
        self.parts: dict[int, list[int]] = {}
        self.raw: list[str] = []
        self.size = 0  # characters of these pieces
        self.whole_parts: set[str] = set()
        self.repeats = 0
        self.reasoning_field: str | None = None
        self.has_name = False
        self.done = False
        self.whole: dict[str, Any] = {}


class State:
    """The records of a reply: by position in the output, by id, by kind, and the part that is being written."""

    __slots__ = ("all", "at", "current_part", "ids", "kinds", "usage")

    def __init__(self) -> None:
        self.all: list[Item] = []
        self.at: dict[int, Item] = {}
        self.ids: dict[str, Item] = {}
        self.kinds: dict[str, list[Item]] = {}
        self.current_part: tuple[Item, int] | None = None
        self.usage: dict[str, Any] = {}


_MAX_REPEATS = 8  # repetitions of a complete item that are read
_MESSAGE_KEYS = ("id", "status", "phase")  # keys of a message that a later part needs if it goes back alone


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """Decode one event, or with `whole` one body. Return its events; the rest is stored in `sink`."""
    kind = data.get("type")
    read = _EVENTS.get(kind) if type(kind) is str and not whole else None
    if read is not None:
        return read(data, flags, sink)
    if whole or type(data.get("output")) is list:
        return _response(data, flags, sink, is_final=True)
    if sink.fault is None:
        sink.fault = _find_error(data, flags)
    return []


# ── the reply as a whole ──────────────────────────────────────────────────────


def _response(data: dict[str, Any], flags: Flags, sink: EventSink, *, is_final: bool) -> list[Event]:
    """Decode the reply as one object; `over`: this is its final version."""
    if sink.id is None and type(data.get("id")) is str:
        sink.id = data["id"] or None
    if sink.model is None and type(data.get("model")) is str:
        sink.model = data["model"] or None
    if sink.created is None and type(data.get("created_at")) in (int, float):
        sink.created = data["created_at"] or None
    if sink.fault is None:
        sink.fault = _find_error(data, flags)
    out: list[Event] = []
    output = data.get("output")
    if type(output) is list:
        sink.answered = True
        if is_final:
            matches = _Matches(_state(sink))
            for item in output:
                if type(item) is dict:
                    record = matches.of(item) or _add_record(_kind(item), item, sink)
                    out += _complete_item(item, record, flags, sink)
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        state = _state(sink)
        merge_counts(state.usage, usage)
        out += sink.add_usage(read_counts(state.usage, flags))
    status = data.get("status")
    if is_final and type(status) is str and status:
        sink.raw_finish = status
        sink.finished = True
    reason = get(data, "incomplete_details.reason")
    if is_final and type(reason) is str and (flags.finish or {}).get(reason) == "content_filter":
        sink.refused = True
    return out


class _Matches:
    """Finds the records of the items of a whole reply: by id, else the next of the kind. Endpoints change ids."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = len(state.all)
        self._used: set[int] = set()
        self._next: dict[str, int] = {}

    def of(self, item: dict[str, Any]) -> Item | None:
        """Return the record of an item that is not matched so far, or None if the item is new."""
        kind = _kind(item)
        record = self._state.ids.get(_id(item) or "")
        if record is None or record.kind != kind or not self._is_free(record):
            record = self._next_of(kind)
        if record is not None:
            self._used.add(record.number)
        return record

    def _is_free(self, record: Item) -> bool:
        """Whether a record existed before and is not matched."""
        return record.number < self._count and record.number not in self._used

    def _next_of(self, kind: str) -> Item | None:
        """Return the next free record of a kind, or None."""
        records = self._state.kinds.get(kind, [])
        position = self._next.get(kind, 0)
        while position < len(records) and not self._is_free(records[position]):
            position += 1
        self._next[kind] = position
        return records[position] if position < len(records) else None


def _response_started(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an event with the reply at its beginning."""
    response = data.get("response")
    return _response(response, flags, sink, is_final=False) if type(response) is dict else []


def _response_ended(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an event with the reply at its end."""
    response = data.get("response")
    out: list[Event] = []
    if type(response) is dict:
        out = _response(response, flags, sink, is_final=True)
    sink.finished = True
    if sink.raw_finish is None:
        sink.raw_finish = str(data["type"]).rpartition(".")[2]
    return out


def _error_event(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode an error event: the error is an object of its own, or stands in the event's own keys."""
    if sink.fault is None:
        inner = data.get("error")
        sink.fault = inner if inner else {k: v for k, v in data.items() if k not in ("type", "sequence_number")}
    return []


def _find_error(data: dict[str, Any], flags: Flags) -> Any:
    """Return the error in an object, or None."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        error = get(data, path)
        if type(error) is dict and error:
            return error
        if error and type(data.get("output")) is not list:  # a plain sentence, or a list of them, without a reply
            return data
    return None if "output" in data or "object" in data else find_error(data)


# ── items ─────────────────────────────────────────────────────────────────────


def _state(sink: EventSink) -> State:
    """Return the records of the reply."""
    state_value = sink.state.get("items")
    if state_value is None:
        state_value = sink.state["items"] = State()
    state: State = state_value
    return state


def _id(item: dict[str, Any], key: str = "id") -> str | None:
    """Return the id of an item, or None."""
    return item[key] if type(item.get(key)) is str and item[key] else None


def _kind(item: dict[str, Any]) -> str:
    """Return the type of an item."""
    kind = item.get("type")
    if type(kind) is str:
        return kind
    return "message" if "content" in item else ""


def _add_record(kind: str, item: dict[str, Any], sink: EventSink, position: Any = None, key: str = "id") -> Item:
    """Add a record."""
    state = _state(sink)
    record = Item(len(state.all), kind, _id(item, key))
    state.all.append(record)
    state.kinds.setdefault(kind, []).append(record)
    if type(position) is int:
        state.at[position] = record
    if record.id is not None:
        state.ids[record.id] = record
    return record


def _find_record(kind: str, data: dict[str, Any], sink: EventSink, key: str = "item_id") -> Item:
    """Return the record for an event. Its position counts before its id, because some endpoints change ids."""
    state = _state(sink)
    id = _id(data, key)
    position = data.get("output_index")
    record = state.at.get(position) if type(position) is int else None
    if record is not None and record.kind == kind and (not record.done or record.id == id):
        return record
    record = state.ids.get(id or "")
    if record is not None and record.kind == kind:
        return record
    if type(position) is not int and id is None and state.all and state.all[-1].kind == kind and not state.all[-1].done:
        return state.all[-1]
    return _add_record(kind, data, sink, position, key)


def _item_added(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Begin an item. Of a call the known keys are reported; all other items are reported by their pieces."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    record = _add_record(_kind(item), item, sink, data.get("output_index"))
    return _call(item, record, sink, "") if record.kind == "function_call" else []


def _item_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """End an item, which comes as a whole."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    event_keys = {"output_index": data.get("output_index"), "item_id": item.get("id")}
    record = _find_record(_kind(item), event_keys, sink)
    out = _complete_item(item, record, flags, sink)
    record.done = True
    state = _state(sink)
    if state.current_part is None or state.current_part[0] is record:
        state.current_part = None
        out += sink.end_block()
    return out


def _complete_item(item: dict[str, Any], record: Item, flags: Flags, sink: EventSink) -> list[Event]:
    """Add the parts of a whole item that have not come, and the seal of the item.

    The version at the end of the item stays; the whole reply adds only keys that were missing there.
    """
    if record.done:
        record.repeats += 1
        if record.repeats > _MAX_REPEATS:
            message = f"a complete item came again more than {_MAX_REPEATS} times"
            return sink.note("item-repeated", "stream", message, "further repetitions are not read")
        item = {**item, **{key: value for key, value in record.whole.items() if value is not None}}
        if item == record.whole:
            return []
    record.whole = item
    match record.kind:
        case "message":
            return _message(item, record, sink)
        case "reasoning":
            return _reasoning_item(item, record, flags, sink)
        case "function_call":
            return _call(item, record, sink, item.get("arguments"))
    if record.done or record.parts:
        return []
    record.parts[0] = [sink.part_count]
    _state(sink).current_part = None
    return sink.add_opaque(item)


def _message(item: dict[str, Any], record: Item, sink: EventSink) -> list[Event]:
    """Add the missing parts of a message, and its seals."""
    out: list[Event] = []
    content = item.get("content")
    parts = content if type(content) is list else [content]
    item_keys = {k: v for k, v in item.items() if k not in ("type", "role", "content")}
    later_keys = {k: v for k, v in item_keys.items() if k in _MESSAGE_KEYS}
    first = min((i for i, part_numbers in record.parts.items() if part_numbers), default=None)
    for index, part in enumerate(parts):
        if type(part) is str:
            part = {"type": "output_text", "text": part}
        if type(part) is not dict:
            continue
        is_refusal = part.get("type") == "refusal"
        key = "refusal" if is_refusal else "text"
        text = part.get(key)
        if type(text) is not str:
            if index not in record.parts:  # unknown type: stored as received, as a message of its own
                record.parts[index] = []
                _state(sink).current_part = None
                out += sink.add_opaque({**item, "content": [part]})
            continue
        sink.refused = sink.refused or is_refusal
        if index not in record.parts and text:
            out += _write_text(record, index, text, sink)
        if len(part_numbers := record.parts.get(index, [])) == 1:
            part_keys = {k: v for k, v in part.items() if k != key and (k != "type" or v != "output_text")}
            first = index if first is None else min(first, index)
            if first < index:  # the item's own keys go back with its first part
                sink.add_seal({"item": later_keys, "part": part_keys, "at": index}, part_numbers[0])
            else:
                sink.add_seal({"item": item_keys, "part": part_keys}, part_numbers[0])
    return out


def _reasoning_item(item: dict[str, Any], record: Item, flags: Flags, sink: EventSink) -> list[Event]:
    """Add the missing reasoning of an item, and its seal."""
    out: list[Event] = []
    if 0 not in record.parts:
        text, reasoning_field = _reasoning_text(item, flags)
        out += _begin_part(record, 0, "thought", sink)
        if text:
            out += _write_reasoning(text, reasoning_field, sink)
    elif len(record.parts[0]) > 1:  # its pieces were interrupted by other parts: now it is in one part
        out += _begin_part(record, 0, "thought", sink, always=True)
        record.parts[0] = record.parts[0][-1:]
    sink.add_seal(item, record.parts[0][0])
    return out


def _reasoning_text(item: dict[str, Any], flags: Flags) -> tuple[str, str]:
    """Return the text of a reasoning item and its field. Only one field counts: the other repeats the text."""
    fields = (flags.reasoning.fields if flags.reasoning else None) or ()
    for reasoning_field in fields:
        parts = item.get(reasoning_field)
        parts = parts if type(parts) is list else [parts]
        texts = [part.get("text") if type(part) is dict else part for part in parts]
        if text := "".join(t for t in texts if type(t) is str):
            return text, reasoning_field
    return "", "" if not fields else fields[0]


def _call(item: dict[str, Any], record: Item, sink: EventSink, arguments: Any) -> list[Event]:
    """Add a call that begins, continues, or is whole; `arguments` are all arguments known so far."""
    if type(arguments) is str:  # pieces are joined only if the arguments are at least as long
        continues = len(arguments) > record.size and arguments.startswith("".join(record.raw))
        piece: Any = arguments[record.size :] if continues else ""
        if continues:
            record.raw, record.size = [arguments], len(arguments)
    else:
        piece = None if record.size else arguments
    out = _call_piece(
        record, piece, sink, None if record.has_name else item.get("name"), item.get("call_id") or item.get("id")
    )
    other_keys = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", "arguments") and v is not None}
    if other_keys and 0 in record.parts:
        sink.add_seal(other_keys, record.parts[0][0])
    return out


def _call_piece(record: Item, piece: Any, sink: EventSink, name: Any = None, id: Any = None) -> list[Event]:
    """Add a piece of a call."""
    part_count = sink.part_count
    function = {"name": name, "arguments": piece}
    out = sink.add_call_pieces([{"index": record.number, "id": id, "function": function}], False)
    record.has_name = record.has_name or (type(name) is str and bool(name))
    if sink.part_count > part_count:
        record.parts.setdefault(0, [part_count])
        _state(sink).current_part = None
    return out


# ── pieces ────────────────────────────────────────────────────────────────────


def _begin_part(
    record: Item, index: int, kind: Literal["text", "thought"], sink: EventSink, *, always: bool = False
) -> list[Event]:
    """Begin a part of the reply for this part of this item, unless it is being written."""
    state = _state(sink)
    if (
        not always
        and state.current_part is not None
        and state.current_part[0] is record
        and state.current_part[1] == index
    ):
        return []
    out = sink.begin_block(kind)
    record.parts.setdefault(index, []).append(sink.part_count - 1)
    state.current_part = (record, index)
    return out


def _write_text(record: Item, index: int, text: str, sink: EventSink) -> list[Event]:
    """Add text to a part of a message."""
    return [*_begin_part(record, index, "text", sink), *sink.add_text(text)]


def _index(data: dict[str, Any]) -> int:
    """Return the index of a part in its item."""
    index = data.get("content_index")
    return index if type(index) is int and index > 0 else 0


def _text_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a message."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    return _write_text(_find_record("message", data, sink), _index(data), text, sink)


def _refusal_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a refusal."""
    sink.refused = True
    return _text_delta(data, flags, sink)


def _text_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a whole part of a message. It counts only if it did not come in pieces."""
    part = data.get("part")
    part_data = part if type(part) is dict else data
    if part_data.get("type") == "reasoning_text":
        return _reasoning_done({**data, "text": part_data.get("text")}, flags, sink, "content")
    is_refusal = type(part_data.get("refusal")) is str
    text = part_data.get("refusal" if is_refusal else "text")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    sink.refused = sink.refused or is_refusal
    record, index = _find_record("message", data, sink), _index(data)
    return [] if index in record.parts else _write_text(record, index, text, sink)


def _write_reasoning(text: str, reasoning_field: str, sink: EventSink) -> list[Event]:
    """Add reasoning of an item from the one field that counts. For another item that may be another field."""
    sink.source = reasoning_field
    return sink.add_reasoning(text, reasoning_field)


def _reasoning_delta(data: dict[str, Any], flags: Flags, sink: EventSink, reasoning_field: str) -> list[Event]:
    """Decode a piece of reasoning."""
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    record = _find_record("reasoning", data, sink)
    record.reasoning_field = record.reasoning_field or reasoning_field
    return (
        [*_begin_part(record, 0, "thought", sink), *_write_reasoning(text, reasoning_field, sink)]
        if record.reasoning_field == reasoning_field
        else []
    )


def _reasoning_done(data: dict[str, Any], flags: Flags, sink: EventSink, reasoning_field: str) -> list[Event]:
    """Decode whole reasoning. It counts only if none came in pieces; there may be several such parts."""
    record = _find_record("reasoning", data, sink)
    if record.reasoning_field is None and 0 not in record.parts:
        record.reasoning_field = f"{reasoning_field}.done"
    if record.reasoning_field != f"{reasoning_field}.done":
        return []
    part = data.get("part")
    text = data.get("text") if type(part) is not dict else part.get("text")
    index = data.get("summary_index", data.get("content_index"))
    is_known = f"{index}" in record.whole_parts  # two events report the same text
    if type(text) is not str or not text or is_known:
        return []
    record.whole_parts.add(f"{index}")
    sink.answered = True
    return [*_begin_part(record, 0, "thought", sink), *_write_reasoning(text, reasoning_field, sink)]


def _arguments_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode a piece of a call's arguments."""
    piece = data.get("delta")
    if type(piece) is not str or not piece:
        return []
    sink.answered = True
    record = _find_record("function_call", data, sink)
    record.raw.append(piece)
    record.size += len(piece)
    return _call_piece(record, piece, sink)


def _arguments_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """Decode the whole arguments of a call."""
    if type(data.get("arguments")) is not str:
        return []
    sink.answered = True
    call: dict[str, Any] = {key: data[key] for key in ("name", "call_id") if key in data}
    return _call(call, _find_record("function_call", data, sink), sink, data["arguments"])


def _for_field(reasoning_field: str, handler: Callable[..., list[Event]]) -> Callable[..., list[Event]]:
    """Return a handler for a field of reasoning."""
    return lambda data, flags, sink: handler(data, flags, sink, reasoning_field)


_EVENTS: dict[str, Callable[[dict[str, Any], Flags, EventSink], list[Event]]] = {
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
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _text_done,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.reasoning_summary_text.delta": _for_field("summary", _reasoning_delta),
    "response.reasoning_summary_text.done": _for_field("summary", _reasoning_done),
    "response.reasoning_summary_part.done": _for_field("summary", _reasoning_done),
    "response.reasoning_text.delta": _for_field("content", _reasoning_delta),
    "response.reasoning_text.done": _for_field("content", _reasoning_done),
}
"""The events with content; all others only announce one of these."""


# ── the fast decoder ──────────────────────────────────────────────────────────

_FIELDS = {
    "response.output_text.delta": None,
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "content",
}
"""The most common events, and the field of their reasoning."""


class Delta(msgspec.Struct, gc=False):
    """One of the most common events."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"
    ]
    delta: str
    output_index: int | None = None
    content_index: int | None = None


_decode_delta = msgspec.json.Decoder(Delta).decode


def fast_decoder(flags: Flags) -> FastDecoder:
    """Return the fast decoder: it reads deltas that continue the last part.

    A delta of another part is left to the full decoder.
    """
    last: tuple[Any, ...] | None = None
    is_first = True

    def read(text: bytes) -> tuple[str, str | None] | None:
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
