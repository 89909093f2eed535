"""Record the items of a reply, so that each of them counts once.

A stream announces each item, sends it piece by piece, and again as a whole at its end; its last event repeats the whole
reply. A record of each item tells which of its parts have come.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ItemRecord", "OutputRecords", "RecordMatcher", "item_type"]


class ItemRecord:
    """The record of one item.

    `number` counts the items; `parts` are the numbers of the reply's parts for each part of its content; `raw` are
    the pieces of a call's arguments; `reasoning_field` is the field of its reasoning; `whole` is the item at its
    end, `repeats` how often it came again after that. `unfinished`: the status of a version at its end says so.
    `whole_parts` are the parts of its reasoning that came whole.
    """

    def __init__(self, number: int, kind: str, id: str | None) -> None:
        self.number = number
        self.kind = kind
        self.id = id
        self.parts: dict[int, list[int]] = {}
        self.raw: list[str] = []
        self.size = 0  # characters of these pieces
        self.whole_parts: set[str] = set()
        self.logprobs: set[int] = set()  # the parts whose tokens have come
        self.repeats = 0
        self.reasoning_field: str | None = None
        self.has_name = False
        self.done = self.unfinished = False
        self.whole: dict[str, Any] = {}


class OutputRecords:
    """The records of a reply: by position in the output, by id, by kind, and the part that is being written."""

    def __init__(self) -> None:
        self.all: list[ItemRecord] = []
        self.at: dict[int, ItemRecord] = {}
        self.ids: dict[str, ItemRecord] = {}
        self.kinds: dict[str, list[ItemRecord]] = {}
        self.current_part: tuple[ItemRecord, int] | None = None
        self.usage: dict[str, Any] = {}
        self._part_count = 0

    def new_part(self) -> int:
        """Return the number of a part that begins."""
        self._part_count += 1
        return self._part_count

    def add(self, kind: str, item: dict[str, Any], position: Any = None, key: str = "id") -> ItemRecord:
        """Add a record."""
        record = ItemRecord(len(self.all), kind, item_id(item, key))
        self.all.append(record)
        self.kinds.setdefault(kind, []).append(record)
        if type(position) is int:
            self.at[position] = record
        if record.id is not None:
            self.ids[record.id] = record
        return record

    def find(self, kind: str, data: dict[str, Any], key: str = "item_id") -> ItemRecord:
        """Return the record for an event. Its position counts before its id, because some endpoints change ids."""
        id = item_id(data, key)
        position = data.get("output_index")
        record = self.at.get(position) if type(position) is int else None
        if record is not None and record.kind == kind and (not record.done or record.id == id):
            return record
        record = self.ids.get(id or "")
        if record is not None and record.kind == kind:
            return record
        if type(position) is not int and id is None and self.all:
            last = self.all[-1]
            if last.kind == kind and not last.done:
                return last
        return self.add(kind, data, position, key)


class RecordMatcher:
    """A search for the records of a whole reply's items: by id, else the next of the kind. Endpoints change ids."""

    def __init__(self, state: OutputRecords) -> None:
        self.output_records = state
        self._count = len(state.all)
        self._used: set[int] = set()
        self._next: dict[str, int] = {}

    def match(self, item: dict[str, Any]) -> ItemRecord | None:
        """Return the record of an item that is not matched so far, or None if the item is new."""
        kind = item_type(item)
        record = self.output_records.ids.get(item_id(item) or "")
        if record is None or record.kind != kind or not self._is_free(record):
            record = self._next_of(kind)
        if record is not None:
            self._used.add(record.number)
        return record

    def _is_free(self, record: ItemRecord) -> bool:
        """Whether a record existed before and is not matched."""
        return record.number < self._count and record.number not in self._used

    def _next_of(self, kind: str) -> ItemRecord | None:
        """Return the next free record of a kind, or None."""
        records = self.output_records.kinds.get(kind, [])
        position = self._next.get(kind, 0)
        while position < len(records) and not self._is_free(records[position]):
            position += 1
        self._next[kind] = position
        return records[position] if position < len(records) else None


def item_id(item: dict[str, Any], key: str = "id") -> str | None:
    """Return the id of an item, or None."""
    return item[key] if type(item.get(key)) is str and item[key] else None


def item_type(item: dict[str, Any]) -> str:
    """Return the type of an item."""
    kind = item.get("type")
    if type(kind) is str:
        return kind
    return "message" if "content" in item else ""
