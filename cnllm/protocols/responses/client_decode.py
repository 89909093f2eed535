"""OpenAI Responses, reading: bodies and events → what they mean.

A reply is a list of items. A stream tells of each item when it begins, piece by piece, and again as a whole when it is
done; its last event repeats the whole reply. Each item has a record here, so that what came in pieces does not count
again, and what only the later word has is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get, get_first
from cnllm.protocols import Quick
from cnllm.protocols.decode_sink import EventSink
from cnllm.protocols.reported import find_error
from cnllm.protocols.usage import merge_counts, read_counts
from cnllm.registry.flags import Flags
from cnllm.types import Event

__all__ = ["decode_chunk", "fast_decoder"]


class Item:
    """What is known of one item. `number` counts the items; `parts` are the numbers of the sink's parts that came of
    each part of its content; `raw` are the pieces of a call's arguments; `field` is where its thinking comes; `whole`
    is the item when it was done, `again` how often it came once more. `told` are the parts of its thinking that came
    whole."""

    __slots__ = (
        "again",
        "done",
        "field",
        "id",
        "kind",
        "named",
        "number",
        "parts",
        "raw",
        "size",
        "told",
        "whole",
    )

    def __init__(self, number: int, kind: str, id: str | None) -> None:
        self.number = number
        self.kind = kind
        self.id = id
        self.parts: dict[int, list[int]] = {}
        self.raw: list[str] = []
        self.size = 0  # of these pieces
        self.told: set[str] = set()
        self.again = 0
        self.field: str | None = None
        self.named = False
        self.done = False
        self.whole: dict[str, Any] = {}


class State:
    """The records of a reply: by place in the output, by id, by kind, and which part is being written."""

    __slots__ = ("all", "at", "ids", "kinds", "now", "usage")

    def __init__(self) -> None:
        self.all: list[Item] = []
        self.at: dict[int, Item] = {}
        self.ids: dict[str, Item] = {}
        self.kinds: dict[str, list[Item]] = {}
        self.now: tuple[Item, int] | None = None
        self.usage: dict[str, Any] = {}


_AGAIN = 8  # times that an item which was done is looked at again
_MARKS = ("id", "status", "phase")  # of a message: what a later part of it needs where it goes back alone


def decode_chunk(data: dict[str, Any], flags: Flags, sink: EventSink, *, whole: bool = False) -> list[Event]:
    """One decoded event, or with `whole` one body: its events, and what it leaves in `sink`."""
    kind = data.get("type")
    read = _EVENTS.get(kind) if type(kind) is str and not whole else None
    if read is not None:
        return read(data, flags, sink)
    if whole or type(data.get("output")) is list:
        return _response(data, flags, sink, over=True)
    if sink.fault is None:
        sink.fault = _fault(data, flags)
    return []


# ── the reply as a whole ─────────────────────────────────────────────────────


def _response(data: dict[str, Any], flags: Flags, sink: EventSink, *, over: bool) -> list[Event]:
    """The reply as one object; `over`: this is its last word."""
    if sink.id is None and type(data.get("id")) is str:
        sink.id = data["id"] or None
    if sink.model is None and type(data.get("model")) is str:
        sink.model = data["model"] or None
    if sink.created is None and type(data.get("created_at")) in (int, float):
        sink.created = data["created_at"] or None
    if sink.fault is None:
        sink.fault = _fault(data, flags)
    out: list[Event] = []
    output = data.get("output")
    if type(output) is list:
        sink.answered = True
        if over:
            known = _Matches(_state(sink))
            for item in output:
                if type(item) is dict:
                    record = known.of(item) or _new(_kind(item), item, sink)
                    out += _complete(item, record, flags, sink)
    usage = get_first(data, flags.usage.at if flags.usage else None)
    if type(usage) is dict:
        state = _state(sink)
        merge_counts(state.usage, usage)
        out += sink.add_usage(read_counts(state.usage, flags))
    status = data.get("status")
    if over and type(status) is str and status:
        sink.raw_finish = status
        sink.finished = True
    why = get(data, "incomplete_details.reason")
    if over and type(why) is str and (flags.finish or {}).get(why) == "content_filter":
        sink.refused = True
    return out


class _Matches:
    """The records of the items of a whole reply: by id, else the next of the kind. Endpoints change ids."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = len(state.all)
        self._taken: set[int] = set()
        self._next: dict[str, int] = {}

    def of(self, item: dict[str, Any]) -> Item | None:
        """The record of an item that is not matched yet, or None where the item is new."""
        kind = _kind(item)
        found = self._state.ids.get(_id(item) or "")
        if found is None or found.kind != kind or not self._free(found):
            found = self._next_of(kind)
        if found is not None:
            self._taken.add(found.number)
        return found

    def _free(self, record: Item) -> bool:
        return record.number < self._count and record.number not in self._taken

    def _next_of(self, kind: str) -> Item | None:
        records = self._state.kinds.get(kind, [])
        place = self._next.get(kind, 0)
        while place < len(records) and not self._free(records[place]):
            place += 1
        self._next[kind] = place
        return records[place] if place < len(records) else None


def _started(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    response = data.get("response")
    return _response(response, flags, sink, over=False) if type(response) is dict else []


def _ended(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    response = data.get("response")
    out: list[Event] = []
    if type(response) is dict:
        out = _response(response, flags, sink, over=True)
    sink.finished = True
    if sink.raw_finish is None:
        sink.raw_finish = str(data["type"]).rpartition(".")[2]
    return out


def _failed(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """An event that is an error, as an object of its own or beside the event's own keys."""
    if sink.fault is None:
        inner = data.get("error")
        sink.fault = inner if inner else {k: v for k, v in data.items() if k not in ("type", "sequence_number")}
    return []


def _fault(data: dict[str, Any], flags: Flags) -> Any:
    """The error that hides in an object, or None."""
    paths = flags.error
    for path in (paths.at if paths else None) or ():
        found = get(data, path)
        if type(found) is dict and found:
            return found
        if found and type(data.get("output")) is not list:  # a plain sentence, or a list of them; no reply beside it
            return data
    return None if "output" in data or "object" in data else find_error(data)


# ── items ────────────────────────────────────────────────────────────────────


def _state(sink: EventSink) -> State:
    found = sink.state.get("items")
    if found is None:
        found = sink.state["items"] = State()
    state: State = found
    return state


def _id(item: dict[str, Any], key: str = "id") -> str | None:
    return item[key] if type(item.get(key)) is str and item[key] else None


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type")
    if type(kind) is str:
        return kind
    return "message" if "content" in item else ""


def _new(kind: str, item: dict[str, Any], sink: EventSink, place: Any = None, key: str = "id") -> Item:
    state = _state(sink)
    made = Item(len(state.all), kind, _id(item, key))
    state.all.append(made)
    state.kinds.setdefault(kind, []).append(made)
    if type(place) is int:
        state.at[place] = made
    if made.id is not None:
        state.ids[made.id] = made
    return made


def _record(kind: str, data: dict[str, Any], sink: EventSink, key: str = "item_id") -> Item:
    """The record that an event of this kind is about; its place counts before its id, which some change as they go."""
    state = _state(sink)
    id = _id(data, key)
    place = data.get("output_index")
    found = state.at.get(place) if type(place) is int else None
    if found is not None and found.kind == kind and (not found.done or found.id == id):
        return found
    found = state.ids.get(id or "")
    if found is not None and found.kind == kind:
        return found
    if type(place) is not int and id is None and state.all and state.all[-1].kind == kind and not state.all[-1].done:
        return state.all[-1]
    return _new(kind, data, sink, place, key)


def _added(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """An item begins. A call is announced with what is known of it; of all else the pieces tell."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    record = _new(_kind(item), item, sink, data.get("output_index"))
    return _call(item, record, sink, "") if record.kind == "function_call" else []


def _done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """An item as a whole."""
    item = data.get("item")
    if type(item) is not dict:
        return []
    sink.answered = True
    place = {"output_index": data.get("output_index"), "item_id": item.get("id")}
    record = _record(_kind(item), place, sink)
    out = _complete(item, record, flags, sink)
    record.done = True
    state = _state(sink)
    if state.now is None or state.now[0] is record:
        state.now = None
        out += sink.end_block()
    return out


def _complete(item: dict[str, Any], record: Item, flags: Flags, sink: EventSink) -> list[Event]:
    """What of a whole item has not come yet, and what it goes back with.

    What was said of it when it was done stays; the reply as a whole adds what was left out there.
    """
    if record.done:
        record.again += 1
        if record.again > _AGAIN:
            said = f"an item that was done came more than {_AGAIN} times again"
            return sink.note("item-repeated", "stream", said, "what it still added is not read")
        item = {**item, **{key: value for key, value in record.whole.items() if value is not None}}
        if item == record.whole:
            return []
    record.whole = item
    match record.kind:
        case "message":
            return _message(item, record, sink)
        case "reasoning":
            return _thought(item, record, flags, sink)
        case "function_call":
            return _call(item, record, sink, item.get("arguments"))
    if record.done or record.parts:
        return []
    record.parts[0] = [sink.part_count]
    _state(sink).now = None
    return sink.add_opaque(item)


def _message(item: dict[str, Any], record: Item, sink: EventSink) -> list[Event]:
    out: list[Event] = []
    content = item.get("content")
    parts = content if type(content) is list else [content]
    beside = {k: v for k, v in item.items() if k not in ("type", "role", "content")}
    marks = {k: v for k, v in beside.items() if k in _MARKS}
    first = min((i for i, known in record.parts.items() if known), default=None)
    for index, part in enumerate(parts):
        if type(part) is str:
            part = {"type": "output_text", "text": part}
        if type(part) is not dict:
            continue
        refused = part.get("type") == "refusal"
        key = "refusal" if refused else "text"
        text = part.get(key)
        if type(text) is not str:
            if index not in record.parts:  # nobody knows what it is: it stays as it came, a message of its own
                record.parts[index] = []
                _state(sink).now = None
                out += sink.add_opaque({**item, "content": [part]})
            continue
        sink.refused = sink.refused or refused
        if index not in record.parts and text:
            out += _write(record, index, text, sink)
        if len(known := record.parts.get(index, [])) == 1:
            rest = {k: v for k, v in part.items() if k != key and (k != "type" or v != "output_text")}
            first = index if first is None else min(first, index)
            if first < index:  # what the item has beside its parts goes with the first of them
                sink.add_seal({"item": marks, "part": rest, "at": index}, known[0])
            else:
                sink.add_seal({"item": beside, "part": rest}, known[0])
    return out


def _thought(item: dict[str, Any], record: Item, flags: Flags, sink: EventSink) -> list[Event]:
    out: list[Event] = []
    if 0 not in record.parts:
        text, field = _thinking(item, flags)
        out += _begin(record, 0, "thought", sink)
        if text:
            out += _think(text, field, sink)
    elif len(record.parts[0]) > 1:  # it came in pieces with other things between them: here it is in one
        out += _begin(record, 0, "thought", sink, anew=True)
        record.parts[0] = record.parts[0][-1:]
    sink.add_seal(item, record.parts[0][0])
    return out


def _thinking(item: dict[str, Any], flags: Flags) -> tuple[str, str]:
    """The text of a reasoning item and the field that has it: one of them tells, the other would tell it again."""
    fields = (flags.reasoning.fields if flags.reasoning else None) or ()
    for field in fields:
        parts = item.get(field)
        parts = parts if type(parts) is list else [parts]
        texts = [p.get("text") if type(p) is dict else p for p in parts]
        if text := "".join(t for t in texts if type(t) is str):
            return text, field
    return "", "" if not fields else fields[0]


def _call(item: dict[str, Any], record: Item, sink: EventSink, arguments: Any) -> list[Event]:
    """A call that begins, goes on, or is whole; `arguments` are all of them, as far as they are known."""
    if type(arguments) is str:  # pieces are joined only where there is as much to compare them with
        goes_on = len(arguments) > record.size and arguments.startswith("".join(record.raw))
        piece: Any = arguments[record.size :] if goes_on else ""
        if goes_on:
            record.raw, record.size = [arguments], len(arguments)
    else:
        piece = None if record.size else arguments
    out = _call_piece(
        record, piece, sink, None if record.named else item.get("name"), item.get("call_id") or item.get("id")
    )
    beside = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", "arguments") and v is not None}
    if beside and 0 in record.parts:
        sink.add_seal(beside, record.parts[0][0])
    return out


def _call_piece(record: Item, piece: Any, sink: EventSink, name: Any = None, id: Any = None) -> list[Event]:
    begun = sink.part_count
    function = {"name": name, "arguments": piece}
    out = sink.add_call_pieces([{"index": record.number, "id": id, "function": function}], False)
    record.named = record.named or (type(name) is str and bool(name))
    if sink.part_count > begun:
        record.parts.setdefault(0, [begun])
        _state(sink).now = None
    return out


# ── pieces ───────────────────────────────────────────────────────────────────


def _begin(
    record: Item, index: int, kind: Literal["text", "thought"], sink: EventSink, *, anew: bool = False
) -> list[Event]:
    """What comes next belongs to this part of this item: a part of the reply begins, unless it is being written."""
    state = _state(sink)
    if not anew and state.now is not None and state.now[0] is record and state.now[1] == index:
        return []
    out = sink.begin_block(kind)
    record.parts.setdefault(index, []).append(sink.part_count - 1)
    state.now = (record, index)
    return out


def _write(record: Item, index: int, text: str, sink: EventSink) -> list[Event]:
    return [*_begin(record, index, "text", sink), *sink.add_text(text)]


def _index(data: dict[str, Any]) -> int:
    index = data.get("content_index")
    return index if type(index) is int and index > 0 else 0


def _text_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    return _write(_record("message", data, sink), _index(data), text, sink)


def _refusal_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    sink.refused = True
    return _text_delta(data, flags, sink)


def _text_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    """A part of a message as a whole: heard already, unless it was not sent in pieces."""
    part = data.get("part")
    said = part if type(part) is dict else data
    if said.get("type") == "reasoning_text":
        return _thought_done({**data, "text": said.get("text")}, flags, sink, "content")
    refused = type(said.get("refusal")) is str
    text = said.get("refusal" if refused else "text")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    sink.refused = sink.refused or refused
    record, index = _record("message", data, sink), _index(data)
    return [] if index in record.parts else _write(record, index, text, sink)


def _think(text: str, field: str, sink: EventSink) -> list[Event]:
    """Thinking of an item, in the one field of it that counts. Another item may have it in the other."""
    sink.source = field
    return sink.add_reasoning(text, field)


def _thought_delta(data: dict[str, Any], flags: Flags, sink: EventSink, field: str) -> list[Event]:
    text = data.get("delta")
    if type(text) is not str or not text:
        return []
    sink.answered = True
    record = _record("reasoning", data, sink)
    record.field = record.field or field
    return [*_begin(record, 0, "thought", sink), *_think(text, field, sink)] if record.field == field else []


def _thought_done(data: dict[str, Any], flags: Flags, sink: EventSink, field: str) -> list[Event]:
    """Thinking as a whole: only where none of it came in pieces, and there may be more than one such part."""
    record = _record("reasoning", data, sink)
    if record.field is None and 0 not in record.parts:
        record.field = f"{field}.done"
    if record.field != f"{field}.done":
        return []
    part = data.get("part")
    text = data.get("text") if type(part) is not dict else part.get("text")
    index = data.get("summary_index", data.get("content_index"))
    told = f"{index}" in record.told  # a text is told of by two events
    if type(text) is not str or not text or told:
        return []
    record.told.add(f"{index}")
    sink.answered = True
    return [*_begin(record, 0, "thought", sink), *_think(text, field, sink)]


def _arguments_delta(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    piece = data.get("delta")
    if type(piece) is not str or not piece:
        return []
    sink.answered = True
    record = _record("function_call", data, sink)
    record.raw.append(piece)
    record.size += len(piece)
    return _call_piece(record, piece, sink)


def _arguments_done(data: dict[str, Any], flags: Flags, sink: EventSink) -> list[Event]:
    if type(data.get("arguments")) is not str:
        return []
    sink.answered = True
    said: dict[str, Any] = {key: data[key] for key in ("name", "call_id") if key in data}
    return _call(said, _record("function_call", data, sink), sink, data["arguments"])


def _of(field: str, read: Callable[..., list[Event]]) -> Callable[..., list[Event]]:
    return lambda data, flags, sink: read(data, flags, sink, field)


_EVENTS: dict[str, Callable[[dict[str, Any], Flags, EventSink], list[Event]]] = {
    "error": _failed,
    "response.created": _started,
    "response.queued": _started,
    "response.in_progress": _started,
    "response.completed": _ended,
    "response.done": _ended,
    "response.incomplete": _ended,
    "response.failed": _ended,
    "response.cancelled": _ended,
    "response.output_item.added": _added,
    "response.output_item.done": _done,
    "response.content_part.done": _text_done,
    "response.output_text.delta": _text_delta,
    "response.output_text.done": _text_done,
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _text_done,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.reasoning_summary_text.delta": _of("summary", _thought_delta),
    "response.reasoning_summary_text.done": _of("summary", _thought_done),
    "response.reasoning_summary_part.done": _of("summary", _thought_done),
    "response.reasoning_text.delta": _of("content", _thought_delta),
    "response.reasoning_text.done": _of("content", _thought_done),
}
"""Events that bring something; the others announce what one of these brings."""


# ── the fast way ─────────────────────────────────────────────────────────────

_FIELDS = {
    "response.output_text.delta": None,
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "content",
}
"""The events that make up nearly all of a stream, and the field of the thinking that they bring."""


class Delta(msgspec.Struct, gc=False):
    """Such an event."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"
    ]
    delta: str
    output_index: int | None = None
    content_index: int | None = None


_decode = msgspec.json.Decoder(Delta).decode


def fast_decoder(flags: Flags) -> Quick:
    """The fast way: deltas that go on with what the last one was about; where another part begins, it steps aside."""
    last: tuple[Any, ...] | None = None
    fresh = True

    def read(text: bytes) -> tuple[str, str | None] | None:
        nonlocal last, fresh
        try:
            found = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            last, fresh = None, False
            return None
        about = (found.type, found.output_index, found.content_index)
        if about != last and not fresh:
            last = about
            return None
        last, fresh = about, False
        return (found.delta, _FIELDS[found.type]) if found.delta else None

    return read
