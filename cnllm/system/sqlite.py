"""Use SQLite beside other processes: tell that one is in the way, and try again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["is_busy", "try_again"]

T = TypeVar("T")
_PAUSE = 0.01  # seconds


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process or connection is in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def try_again(work: Callable[[], T], seconds: float) -> T:
    """Return the result of work, which is tried for so many seconds while another process is in its way.

    SQLite waits itself for most locks. A switch to WAL mode fails at once while another process does it.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
