"""Pack rows into parts that a batch interface takes."""

from __future__ import annotations

from msgspec import Struct

from cnllm.batch.jobs import Job
from cnllm.batch.state import Mark
from cnllm.batch.vendor.bodies import encode_row
from cnllm.registry.flags.batch import Batch

__all__ = ["Packed", "Packer"]

_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a part, whatever the vendor takes: it is held in memory while it is sent."""
_MOST_ROWS = 50_000
_LONGEST_ID = "0123456789abcdef-0000000"


class Packed(Struct, frozen=True):
    """A row of a part: what the state keeps of it, its body, and the most that it can cost, in units."""

    mark: Mark
    number: int
    body: bytes
    cost: int | None


class Packer:
    """The part that is being filled. `retake` says whether a row may be one of an earlier run."""

    def __init__(self, batch: Batch, setting: int) -> None:
        self._batch = batch
        self._setting = setting
        self._most_rows = min(batch.max_rows or _MOST_ROWS, _MOST_ROWS)
        self._most_bytes = min(batch.max_bytes or _MOST_BYTES, _MOST_BYTES)
        self._most_row_bytes = min(batch.max_row_bytes or self._most_bytes, self._most_bytes - 1024)
        self.rows: list[Packed] = []
        self._bytes = 0

    def size_of(self, job: Job) -> int:
        """Return the bytes of a row."""
        assert self._batch.row is not None
        return len(encode_row(self._batch.row, _LONGEST_ID, job.prepared.plan.content)) + 1

    def fits_alone(self, size: int) -> bool:
        """Whether the interface takes a row of this size at all."""
        return size <= self._most_row_bytes

    def has_room(self, size: int) -> bool:
        """Whether the part has room for a row of this size."""
        return len(self.rows) < self._most_rows and self._bytes + size <= self._most_bytes - 1024

    def add(self, job: Job, size: int, *, retake: bool) -> None:
        """Put a row into the part."""
        row = job.row
        mark = Mark(job.seq, job.digest, row.number, row.key, job.identity, self._setting, None, False, retake)
        self.rows.append(Packed(mark, row.number, job.prepared.plan.content, job.reserved))
        self._bytes += size

    def take(self) -> list[Packed]:
        """Return the rows of the part, and begin another."""
        rows, self.rows, self._bytes = self.rows, [], 0
        return rows
