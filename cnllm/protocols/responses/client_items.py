"""Read the items of a reply as pieces, and record each item, so that no part of one counts twice.

A stream announces each item, sends it piece by piece, and again as a whole at its end; its last event repeats the whole
reply. A record of each item tells which of its parts have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from cnllm.jsonpath import get
from cnllm.protocols.pieces import (
    REFUSAL,
    CallEnd,
    CallPieces,
    CitationPiece,
    ExtraPiece,
    MediaPiece,
    OpaquePiece,
    PartSeal,
    PartStart,
    Piece,
    ReasoningPiece,
    TextPiece,
    WholeText,
)
from cnllm.protocols.reported import ReplyStart, as_index, read_finish
from cnllm.registry.flags import Flags
from cnllm.types import Media, Note
from cnllm.types.lenient_json import replace_surrogates
from cnllm.types.tools import custom_arguments

__all__ = [
    "CUSTOM_CALL",
    "ItemRecord",
    "OutputRecords",
    "RecordMatcher",
    "annotation_pieces",
    "annotations_of",
    "as_function_call",
    "begin_part",
    "call_pieces",
    "complete_item",
    "content_keys",
    "item_id",
    "item_type",
    "read_call",
    "text_pieces",
    "whole_text",
]


CUSTOM_CALL = "custom_tool_call"
"""The type of a call of a custom tool."""
_IMAGE_CALL = "image_generation_call"
_MAX_REPEATS = 8  # repetitions of a complete item that are read
_UNFINISHED = ("pending", "length", "error")  # the meanings of the status of an unfinished item
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_COMPARED = ("text", "refusal", "arguments")  # keys of an item that are compared with their pieces
_MESSAGE_KEYS = ("id", "status", "phase")  # keys of a message that a later part needs if it goes back alone


# ── records ──────────────────────────────────────────────────────────────────


class ItemRecord:
    """The record of one item.

    `number` counts the items; `parts` are the numbers of the reply's parts for each part of its content; `raw` are
    the pieces of a call's arguments; `reasoning_field` is the field of its reasoning; `whole` is the item at its
    end, `repeats` how often it came again after that. `unfinished`: the status of a version at its end says so.
    `whole_parts` are the parts of its reasoning that came whole. `announced`: its beginning has come.
    """

    def __init__(self, number: int, kind: str, id: str | None) -> None:
        self.number = number
        self.kind = kind
        self.id = id
        self.phase: Any = None
        self.parts: dict[int, list[int]] = {}
        self.part_keys: dict[int, dict[str, Any]] = {}  # those of ended parts of a message, beside their text
        self.raw: list[str] = []
        self.half = ""  # half of a character behind these pieces
        self.size = 0  # characters of these pieces
        self.whole_parts: set[str] = set()
        self.logprobs: set[int] = set()  # the parts whose tokens have come
        self.repeats = 0
        self.reasoning_field: str | None = None
        self.has_name = False
        self.announced = self.done = self.unfinished = False
        self.whole: dict[str, Any] = {}


class OutputRecords:
    """The records of a reply: by position in the output, by id, by kind, and the part that is being written."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        self.all: list[ItemRecord] = []
        self.at: dict[int, ItemRecord] = {}
        self.ids: dict[str, list[ItemRecord]] = {}  # some endpoints repeat ids
        self.kinds: dict[str, list[ItemRecord]] = {}
        self.current_part: tuple[ItemRecord, int] | None = None
        self.last_text: tuple[ItemRecord, int] | None = None
        self.counts: dict[str, Any] = {}  # of tokens, so far
        self.start = ReplyStart()
        self._part_count = 0

    def new_part(self) -> int:
        """Return the number of a part that begins."""
        self._part_count += 1
        return self._part_count

    def add(self, kind: str, item: dict[str, Any], position: Any = None, key: str = "id") -> ItemRecord:
        """Add a record."""
        record = ItemRecord(len(self.all), kind, item_id(item, key))
        record.phase = item.get("phase")
        self.all.append(record)
        self.kinds.setdefault(kind, []).append(record)
        if type(position := as_index(position)) is int:
            self.at[position] = record
        for id in dict.fromkeys((record.id, item_id(item, "call_id"))):
            if id is not None:
                self.ids.setdefault(id, []).append(record)
        return record

    def announce(self, kind: str, item: dict[str, Any], position: Any) -> ItemRecord:
        """Return the record of an item that is announced: the one of its pieces, where some came before."""
        record = self._find_known(kind, item_id(item), position)
        if record is None or record.announced or record.done:
            record = self.add(kind, item, position)
        record.announced, record.phase = True, item.get("phase")
        return record

    def has(self, kind: str, data: dict[str, Any]) -> bool:
        """Whether an event belongs to a known item of this kind, by its position or its id."""
        position = as_index(data.get("output_index"))
        record = self.at.get(position) if type(position) is int else None
        known = [record] if record is not None else self.ids.get(item_id(data, "item_id") or "", [])
        return bool(known) and known[-1].kind == kind

    def find(self, kind: str, data: dict[str, Any], key: str = "item_id") -> ItemRecord:
        """Return the record for an event. Its position counts before its id, because some endpoints change ids."""
        position = data.get("output_index")
        return self._find_known(kind, item_id(data, key), position) or self.add(kind, data, position, key)

    def _find_known(self, kind: str, id: str | None, position: Any) -> ItemRecord | None:
        """Return the record of an item of a kind; None if there is none so far."""
        position = as_index(position)
        record = self.at.get(position) if type(position) is int else None
        if record is not None and record.kind == kind and (not record.done or record.id == id):
            return record
        known = self.ids.get(id or "")
        if known and known[-1].kind == kind:
            return known[-1]
        last = self.all[-1] if self.all and type(position) is not int and id is None else None
        return last if last is not None and last.kind == kind and not last.done else None


class RecordMatcher:
    """A search for the records of a whole reply's items: by id, else the next of the kind. Endpoints change ids."""

    def __init__(self, state: OutputRecords) -> None:
        self.output_records = state
        self._count = len(state.all)
        self._used: set[int] = set()
        self._next: dict[tuple[bool, str], int] = {}

    def match(self, item: dict[str, Any]) -> ItemRecord | None:
        """Return the record of an item that is not matched so far, or None if the item is new."""
        kind = item_type(item)
        record = self._next_free(item_id(item) or "", is_id=True)
        if record is None or record.kind != kind:
            record = self._next_free(kind, is_id=False)
        if record is not None:
            self._used.add(record.number)
        return record

    def _is_free(self, record: ItemRecord) -> bool:
        """Whether a record existed before and is not matched."""
        return record.number < self._count and record.number not in self._used

    def _next_free(self, name: str, *, is_id: bool) -> ItemRecord | None:
        """Return the next free record with an id, or of a kind; or None."""
        records = (self.output_records.ids if is_id else self.output_records.kinds).get(name, [])
        position = self._next.get((is_id, name), 0)
        while position < len(records) and not self._is_free(records[position]):
            position += 1
        self._next[is_id, name] = position
        return records[position] if position < len(records) else None


# ── items ────────────────────────────────────────────────────────────────────


def as_function_call(item: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """Return the item of a call of a custom tool as one of a function; any other item as it is.

    The empty `input` stays beside the arguments: by it the call goes back in the form in which it came. A call that the
    endpoint itself has answered is an item of its own.
    """
    if item.get("type") != CUSTOM_CALL or _is_hosted(item.get("call_id"), flags):
        return item
    input = item.get("input")
    arguments = custom_arguments(replace_surrogates(input))[1] if type(input) is str else ""
    return {**item, "type": "function_call", "arguments": arguments, "input": ""}


def _is_hosted(id: Any, flags: Flags) -> bool:
    """Whether an id is that of a call that the endpoint itself has answered."""
    beginnings = flags.tools.hosted_call_ids
    return bool(beginnings) and type(id) is str and id.startswith(tuple(beginnings or ()))


def complete_item(item: dict[str, Any], record: ItemRecord, records: OutputRecords) -> Iterator[Piece]:
    """Give the parts of a whole item that have not come, and the seal of the item.

    The version at the end of the item stays; the whole reply adds what was missing or empty there (`_merged`), and its
    texts and arguments are compared. A status counts
    in each version: a call that is unfinished in one of them is no whole call, and such a message is one cut short.
    But a call that a program of the endpoint's makes is in progress until the client answers it.
    """
    finish = read_finish(item.get("status"), records.flags)
    kind = None if finish is None else finish.kind
    if record.kind == "function_call":
        record.unfinished = record.unfinished or (kind in _UNFINISHED and not (kind == "pending" and _by_program(item)))
        yield from _missing_parts(item, record, records)
        yield CallEnd(record.number, not record.unfinished)
        return
    if record.kind == "message" and finish is not None and kind == "length":
        yield finish
    yield from _missing_parts(item, record, records)


def _by_program(item: dict[str, Any]) -> bool:
    """Whether a program that the endpoint runs made a call, and not the model itself."""
    return bool(get(item, "caller.type") == "program")


def _missing_parts(item: dict[str, Any], record: ItemRecord, records: OutputRecords) -> Iterator[Piece]:
    """Give the parts of a whole item that have not come, and its seal."""
    if record.done:
        record.repeats += 1
        if record.repeats > _MAX_REPEATS:
            message = f"a complete item came again more than {_MAX_REPEATS} times"
            yield Note("item-repeated", "stream", message, "further repetitions are not read")
            return
        known = record.whole.get("call_id")
        if known and item.get("call_id") not in (None, "", known):
            return  # another call, which was found by its kind alone
        item = _merged(record.whole, item)
        if item == record.whole:
            return
    record.whole = item
    if record.kind == "message":
        yield from _message(item, record, records)
    elif record.kind == "reasoning":
        yield from _reasoning_item(item, record, records)
    elif record.kind == "function_call":
        record.unfinished = record.unfinished or _differ("".join(record.raw), item.get("arguments"))
        yield from read_call(item, record, records, item.get("arguments"))
    elif not record.done and not record.parts:
        part = records.new_part()
        record.parts[0] = [part]
        records.current_part = None
        if record.kind == _IMAGE_CALL and type(item.get("result")) is str and item["result"]:
            yield MediaPiece(Media(f"image/{item.get('output_format') or 'png'}", item["result"]), part=part)
            yield PartSeal({"item": {key: value for key, value in item.items() if key != "result"}}, part)
        else:
            yield OpaquePiece(item, part)


def _merged(first: Any, later: Any, depth: int = 4) -> Any:
    """Return a version of an item with what a later one adds: keys and values that were empty, and the ends of lists.

    A text or arguments of the later one count, because they are compared with what has come.
    """
    if first in _EMPTY or later in _EMPTY:
        return later if first in _EMPTY else first
    if type(first) is dict and type(later) is dict and depth:
        merged = {key: _merged(first.get(key), value, depth - 1) for key, value in later.items()}
        compared = {key: later[key] for key in _COMPARED if later.get(key)}
        return {**first, **merged, **compared}
    if type(first) is list and type(later) is list:
        pairs = zip(first, later, strict=False)
        merged_items = [_merged(*pair, depth - 1) for pair in pairs] if depth > 1 else first[: len(later)]
        return [*merged_items, *first[len(later) :], *later[len(first) :]]
    return first


def _message(item: dict[str, Any], record: ItemRecord, records: OutputRecords) -> Iterator[Piece]:
    """Give the missing parts of a message, and its seals."""
    content = item.get("content")
    parts = content if type(content) is list else [content]
    item_keys = {k: v for k, v in item.items() if k not in ("type", "role", "content")}
    later_keys = {k: v for k, v in item_keys.items() if k in _MESSAGE_KEYS}
    first = min((i for i, part_numbers in record.parts.items() if part_numbers), default=None)
    last = max((i for i, part in enumerate(parts) if _text_of(part)), default=0)
    for index, part in enumerate(parts):
        if type(part) is str:
            part = {"text": part}
        if type(part) is not dict:
            continue
        if (text := _text_of(part)) is None:
            if index not in record.parts:  # unknown type: stored as received, as a message of its own
                record.parts[index] = []
                records.current_part = None
                yield OpaquePiece({**item, "content": [part]})
            continue
        if part.get("type") == "refusal":
            yield from REFUSAL
        yield from whole_text(record, index, text, records)
        if index not in record.logprobs and type(tokens := part.get("logprobs")) is list and tokens:
            record.logprobs.add(index)
            yield ExtraPiece("logprobs", tokens)
        yield from annotations_of(part, record, index)
        if len(part_numbers := record.parts.get(index, [])) == 1:
            first = index if first is None else min(first, index)
            seal: dict[str, Any] = {"item": item_keys, "part": content_keys(part)}
            if first < index:  # the item's own keys go back with its first part
                seal |= {"item": later_keys, "at": index}
            yield PartSeal({**seal, "more": True} if index < last else seal, part_numbers[0])


def content_keys(part: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a part of a message beside its text."""
    text = "refusal" if part.get("type") == "refusal" else "text"
    return {key: value for key, value in part.items() if key != text and (key != "type" or value != "output_text")}


def _text_of(part: Any) -> str | None:
    """Return the text of a part of a message; None for one of an unknown type."""
    text = part.get("refusal" if part.get("type") == "refusal" else "text") if type(part) is dict else part
    return text if type(text) is str else None


def annotations_of(part: dict[str, Any], record: ItemRecord, index: int) -> Iterator[Piece]:
    """Give the sources of a whole part of a message."""
    annotations = part.get("annotations")
    for annotation in annotations if type(annotations) is list else ():
        yield from annotation_pieces(record, index, annotation)


def annotation_pieces(record: ItemRecord, index: int, annotation: Any) -> Iterator[Piece]:
    """Give a source of a part of a message."""
    if type(annotation) is dict:
        title = annotation.get("title") or annotation.get("filename") or annotation.get("file_id")
        numbers = record.parts.get(index)
        start, end = annotation.get("start_index"), annotation.get("end_index")
        part = numbers[0] if numbers and len(numbers) == 1 else None
        yield CitationPiece(annotation, annotation.get("url"), title, start, end, part=part)


def _reasoning_item(item: dict[str, Any], record: ItemRecord, records: OutputRecords) -> Iterator[Piece]:
    """Give the missing reasoning of an item, and its seal."""
    text, reasoning_field = _reasoning_text(item, records.flags)
    if 0 not in record.parts:
        yield from begin_part(record, 0, "thought", records)
        if text:
            yield ReasoningPiece(text, reasoning_field, is_only=True)
    elif len(record.parts[0]) > 1:  # its pieces were interrupted by other parts: now it is in one part
        yield from begin_part(record, 0, "thought", records, always=True)
        record.parts[0] = record.parts[0][-1:]
    elif text and (record.reasoning_field or reasoning_field).removesuffix(".done") == reasoning_field:
        yield WholeText(text, record.parts[0][0], in_reasoning=True)
    yield PartSeal(item, record.parts[0][0])


def _reasoning_text(item: dict[str, Any], flags: Flags) -> tuple[str, str]:
    """Return the text of a reasoning item and its field. Only one field counts: the other repeats the text."""
    fields = flags.reasoning.fields or ()
    for reasoning_field in fields:
        parts = get(item, reasoning_field)
        parts = parts if type(parts) is list else [parts]
        texts = [part.get("text") if type(part) is dict else part for part in parts]
        if text := "".join(t for t in texts if type(t) is str):
            return text, reasoning_field
    return "", "" if not fields else fields[0]


def read_call(item: dict[str, Any], record: ItemRecord, records: OutputRecords, arguments: Any) -> Iterator[Piece]:
    """Read a call that begins, continues, or is whole; `arguments` are all arguments known so far."""
    arguments = replace_surrogates(arguments)
    if type(arguments) is str:  # pieces are joined only if the arguments are at least as long
        continues = len(arguments) > record.size and arguments.startswith("".join(record.raw))
        piece: Any = arguments[record.size :] if continues else ""
        if continues:
            record.raw, record.size = [arguments], len(arguments)
    else:
        piece = None if record.size else arguments
    name, id = None if record.has_name else item.get("name"), item.get("call_id") or item.get("id")
    yield from call_pieces(record, piece, records, name, id)
    other_keys = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", "arguments") and v is not None}
    if other_keys:
        yield PartSeal(other_keys, record.parts[0][0])


def _differ(pieces: str, whole: Any) -> bool:
    """Whether the arguments of a call, as a whole, are others than those in its pieces: then neither is certain."""
    whole = replace_surrogates(whole)
    if type(whole) is not str or whole.startswith(pieces) or not whole.strip(" {}"):
        return False
    try:
        return bool(msgspec.json.decode(whole) != msgspec.json.decode(pieces))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return True


def call_pieces(
    record: ItemRecord, piece: Any, records: OutputRecords, name: Any = None, id: Any = None
) -> Iterator[Piece]:
    """Give a piece of a call. The first one begins a part of the reply, and a call, even before its name is known."""
    part = None
    if begins := 0 not in record.parts:
        part = records.new_part()
        record.parts[0] = [part]
        records.current_part = None
    record.has_name = record.has_name or (type(name) is str and bool(name))
    item = {"index": record.number, "id": id, "function": {"name": name, "arguments": piece}}
    yield CallPieces([item], begins, part)


def begin_part(
    record: ItemRecord,
    index: int,
    kind: Literal["text", "thought"],
    records: OutputRecords,
    *,
    always: bool = False,
) -> Iterator[Piece]:
    """Begin a part of the reply for this part of this item, unless it is being written."""
    current = records.current_part
    if not always and current is not None and current[0] is record and current[1] == index:
        return
    if kind == "text":
        last, records.last_text = records.last_text, (record, index)
        if index in record.parts and last != (record, index):
            subject = "pieces of a text came after another text had begun"
            yield Note("text-differs", "stream", subject, "kept in the order in which they came")
        if current is not None and current[0] is record and not record.whole:  # parts tell that the message goes on
            keys = {"id": record.id, "phase": record.phase}
            seal = {"item": {key: keys[key] for key in keys if keys[key]}, "at": current[1], "more": True}
            if (part_keys := record.part_keys.get(current[1])) is not None:
                seal["part"] = part_keys
            yield PartSeal(seal, record.parts[current[1]][-1])
    part = records.new_part()
    record.parts.setdefault(index, []).append(part)
    records.current_part = (record, index)
    yield PartStart(kind, part)


def whole_text(record: ItemRecord, index: int, text: str, records: OutputRecords) -> Iterator[Piece]:
    """Give all text of a part of a message. Where it has come in pieces, it shows whether some are missing."""
    numbers = record.parts.get(index)
    if numbers is None and text:
        yield from text_pieces(record, index, text, records)
    elif numbers is not None and len(numbers) == 1:
        yield WholeText(text, numbers[0])


def text_pieces(record: ItemRecord, index: int, text: str, records: OutputRecords) -> Iterator[Piece]:
    """Give text of a part of a message."""
    yield from begin_part(record, index, "text", records)
    yield TextPiece(text)


def item_id(item: dict[str, Any], key: str = "id") -> str | None:
    """Return the id of an item, or that of its call if it has none of its own; else None."""
    return next((id for name in (key, "call_id") if type(id := item.get(name)) is str and id), None)


def item_type(item: dict[str, Any]) -> str:
    """Return the type of an item."""
    kind = item.get("type")
    if type(kind) is str:
        return kind
    return "message" if "content" in item else ""
