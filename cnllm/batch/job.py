"""A row on its way through a run."""

from __future__ import annotations

from typing import Any

from cnllm.batch.rows import Id, Row
from cnllm.batch.state import Record

__all__ = ["Job"]


class Job:
    """A row, its request, and what was tried. `digest` is that of its id, `record` the row of an earlier run.

    `reserved` is the most that the request can cost, in units; None is unknown.
    """

    __slots__ = (
        "asked",
        "attempts",
        "charged",
        "digest",
        "failures",
        "identity",
        "line",
        "messages",
        "options",
        "outcome",
        "prepared",
        "record",
        "reserved",
        "row",
        "row_id",
        "seq",
        "tokens",
    )

    def __init__(self, row: Row, row_id: Id | None, digest: bytes, seq: int) -> None:
        self.row = row
        self.row_id = row_id
        self.digest = digest
        self.seq = seq
        self.messages: Any = None
        self.options: dict[str, Any] = {}
        self.prepared: Any = None  # the call, until it is sent
        self.identity: bytes | None = None
        self.reserved: int | None = None
        self.tokens = 0.0
        self.record: Record | None = None
        self.outcome: Any = None  # for a row that is not sent
        self.line: int | None = None  # of a row without an id
        self.attempts = self.failures = 0
        self.asked = False  # whether this run marked it before
        self.charged = 0  # units, for attempts that were not the last
