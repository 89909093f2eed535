"""Compare an input with the rows that earlier runs finished, before a request is sent.

One pass reads the input and the state side by side. If the bytes and the setting of a row are those of the finished
row, comparing the digests is enough. The state has its rows in the order in which they were first sent, which is the
order of the input. A row that stands elsewhere in the input is looked up by its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cnllm.batch.rows import Id, InputRow, Reader, RowFault, id_digest, line_digest
from cnllm.batch.settings import BatchSettings
from cnllm.batch.state import DONE, FAILED, SENT, BatchState, RowRecord

__all__ = ["Bits", "InputComparison", "compare"]

_CHUNK = 10_000
_STRAY = 64  # rows that stand elsewhere before the pass through the state goes on from there
_EXAMPLES = 3


class Bits:
    """A set of small numbers: one bit each."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        """Add a number."""
        index = number >> 3
        if index >= len(self._bytes):
            self._bytes.extend(bytes(index + 4096 - len(self._bytes)))
        bit = 1 << (number & 7)
        if not self._bytes[index] & bit:
            self._bytes[index] |= bit
            self.count += 1

    def __contains__(self, number: int) -> bool:
        index = number >> 3
        return index < len(self._bytes) and bool(self._bytes[index] & (1 << (number & 7)))


class InputComparison(msgspec.Struct):
    """The work of a run: `to_send` has the lines up to `scanned` that are to be sent, and all lines after it are new.

    `maybe_sent` counts rows that an earlier run may have sent and whose outcome is unknown. `changed` counts finished
    rows with another identity than now, `changed_cost` is what they cost, in units. `absent` counts finished rows that
    are not in the input.
    """

    to_send: Any
    scanned: int = 0
    matched: int = 0
    done: int = 0
    failed: int = 0
    maybe_sent: int = 0
    changed: int = 0
    changed_cost: int = 0
    changed_settings: set[int | None] = set()
    changed_rows: int = 0
    examples: list[str] = []
    doubled: dict[int, str] = {}
    absent: int = 0


Identify = Callable[[InputRow], bytes | None]


def compare(
    reader: Reader, state: BatchState, setting: int, identify: Identify, settings: BatchSettings, waiting: Bits
) -> InputComparison:
    """Return what is left to send. `identify` returns the identity that a row has now; None where it has none.

    `setting` is the number of the setting of this run. `waiting` are the rows, by their `seq`, that a job of a vendor
    will answer.
    """
    total = state.count()
    found = InputComparison(to_send=Bits())
    seen, records = Bits(), state.raw_records()
    head = next(records, None)  # of the rows of the state, in their order
    updates: list[tuple[int, bytes, int, int]] = []
    strays = 0
    for row in reader.rows():
        if found.matched == total:
            break
        found.scanned = row.number
        if head is not None and head[2] == row.key and head[1] == row.number:
            seq, stored_setting, row_state, known = head[0], head[3], head[4], True
            head = next(records, None)
        else:
            digest = _digest_of(reader, row)
            record = state.find(digest)
            if record is None:
                found.to_send.add(row.number)
                continue
            if record.seq in seen:
                first, record = record, state.find(line_digest(row.number))
                if record is None:
                    found.doubled[row.number] = _first_line(first)
                    continue
            seq, stored_setting, row_state = record.seq, record.setting, record.state
            known = record.key == row.key
            strays += 1
            is_next = head is not None and head[0] == seq
            if is_next or strays >= _STRAY:
                records = records if is_next else state.raw_records(seq)
                head, strays = next(records, None), 0
            if record.number != row.number:
                updates.append((row.number, record.key or row.key, record.setting or setting, seq))
        if seq in seen:
            continue
        same = known and stored_setting == setting
        if not same and row_state == FAILED and _is_fixed(reader, state, row, seq, seen):
            found.to_send.add(row.number)
            continue
        seen.add(seq)
        found.matched += 1
        if row_state == SENT:
            if seq not in waiting:
                found.maybe_sent += 1
                if settings.unsure == "ask":
                    found.to_send.add(row.number)
            continue
        if row_state not in (DONE, FAILED):
            found.to_send.add(row.number)
            continue
        if not same:
            record = state.record(seq)
            if record.id == line_digest(row.number) or record.identity == identify(row):
                updates.append((row.number, row.key, setting, seq))
            elif row_state == FAILED or settings.changed == "redo":
                found.to_send.add(row.number)
                found.changed += row_state == DONE
                continue
            else:
                _note_change(found, reader, row, record)
        if row_state == DONE:
            found.done += 1
        else:
            found.failed += 1
        if len(updates) >= _CHUNK:
            _store(state, updates)
    _store(state, updates)
    fixed = [seq for seq, digest, number in state.faults() if seq not in seen and digest == line_digest(number)]
    if fixed:
        with state.writing():
            state.drop(fixed)
    found.absent = total - found.matched - len(fixed)
    return found


def _is_fixed(reader: Reader, state: BatchState, row: InputRow, seq: int, seen: Bits) -> bool:
    """Whether a line that was no request, or had the id of another one, is a request now."""
    if state.record(seq).id != line_digest(row.number):
        return False
    digest = _digest_of(reader, row)
    other = state.find(digest)
    return digest != line_digest(row.number) and (other is None or other.seq not in seen)


def _id_of(reader: Reader, row: InputRow) -> Id | None:
    """Return the id of a row, else its line; None for a line that is no request."""
    try:
        row_id = reader.content(row).id
    except RowFault:
        return None
    return row.number if row_id is None else row_id


def _digest_of(reader: Reader, row: InputRow) -> bytes:
    """Return the digest of a row's id."""
    row_id = _id_of(reader, row)
    return line_digest(row.number) if row_id is None else id_digest(row_id)


def _note_change(found: InputComparison, reader: Reader, row: InputRow, record: RowRecord) -> None:
    """Count a finished row whose identity is another one now."""
    found.changed += 1
    found.changed_cost += record.cost or 0
    found.changed_settings.add(record.setting)
    found.changed_rows += record.key is not None and record.key != row.key
    if len(found.examples) < _EXAMPLES:
        row_id = _id_of(reader, row)
        found.examples.append(str(row.number if row_id is None else row_id))


def _first_line(record: RowRecord) -> str:
    return f"line {record.number}" if record.number else "an earlier line"


def _store(state: BatchState, updates: list[tuple[int, bytes, int, int]]) -> None:
    if updates:
        with state.writing():
            state.update_rows(("number", "key", "setting"), updates)
        updates.clear()
