"""Write what calls cost to the conversations of `cnllm logs`, in a thread of its own.

No word of a user or a model is written. A call costs its caller an append to a queue. Where the file cannot be written,
calls are lost: a warning says so at most once a minute, and one at the end how many.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from cnllm.config import redact
from cnllm.errors import CnllmError
from cnllm.store.records import WHOLE_FINISHES, PrefixRecord, TurnError, cost_columns, price_column
from cnllm.store.text import as_json, encodable_text
from cnllm.system.closing import at_exit
from cnllm.system.files import file_id
from cnllm.system.processes import drop_after_fork, fork_safe, generation
from cnllm.types import Cost, Note, Usage

if TYPE_CHECKING:
    from cnllm.store import Store
    from cnllm.store.file import DatabaseFile

__all__ = [
    "CallLog",
    "LoggedCall",
]


_MOST = 10_000  # calls that wait
_BATCH = 32  # calls of one transaction: half a millisecond, for which other threads may wait
_REST = 0.005  # seconds between two transactions, for other threads
_CACHE_KIB = 512  # of the file's pages: enough for calls that are added at its end
_PAUSE = 0.5  # seconds in which calls gather
_WARN_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_PLAIN_COLUMNS = (
    "conversation",
    "began",
    "protocol",
    "origin",
    "finish",
    "usage",
    "registry",
    "tag",
    "key",
    "reply_id",
    "reply_model",
    "prefix",
)

MakeRecord = Callable[[], "LoggedCall"]


class CallLog:
    """Writes calls to the store at `path`; None is that of `cnllm logs`. `logger` is the name of what gets warnings.

    Safe to share between threads. A forked child writes its own calls, and none of its parent's. Calls that wait are
    written at the end of the program, too, and of a child of multiprocessing.
    """

    def __init__(self, path: str | None = None, logger: str = "cnllm.client") -> None:
        self._path = path
        self._logger = logging.getLogger(logger)
        self._lock = fork_safe(threading.RLock())  # the garbage collector may end a call in any line
        self._waiting: deque[MakeRecord] = deque()
        self._writing = 0  # calls of the transaction that is under way
        self._writer: _WriterThread | None = None
        self._lost = self._reported = 0
        self._warned = -_WARN_SECONDS
        self._is_last = False  # whether the process ends
        drop_after_fork(self)

    def drop_inherited(self) -> None:
        """Begin without the calls of the parent process, which writes its own."""
        self._waiting.clear()
        self._writing = self._lost = self._reported = 0
        self._writer = None
        self._is_last = False

    def add(self, make: MakeRecord) -> None:
        """Take the function that makes the record of a call. The thread that calls it starts with the first one."""
        generation()  # a process that was forked without Python's hooks begins empty, too
        if len(self._waiting) >= _MOST:
            self._lost += 1
            return
        self._waiting.append(make)  # before the look at the thread: one that ends writes what came before its end
        writer = self._writer
        if writer is None:
            self._start()
        elif not writer.wake.is_set():
            writer.wake.set()

    def _start(self) -> None:
        """Start the thread of this process. Where the process ends, no thread starts: write here."""
        with self._lock:
            if self._writer is not None:  # another thread was faster
                self._writer.wake.set()
                return
            if self._is_last or sys.is_finalizing():
                self._write_here()
                return
            wake, closing = threading.Event(), threading.Event()
            wake.set()
            thread = threading.Thread(target=self._run, args=(wake, closing), name="cnllm-calls", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there are too many, or the program ends
                self._lose(len(self._waiting), str(error))
                self._waiting.clear()
                return
            self._writer = _WriterThread(thread, wake, closing, at_exit(self._end))

    def _write_here(self) -> None:
        """Write what waits in this thread."""
        if not self._writing:  # otherwise the garbage collector has ended a call in the middle of a write
            closing = threading.Event()
            closing.set()
            self._run(closing, closing)

    def _end(self) -> None:
        """Close the log at the end of the process."""
        self._is_last = True
        self.close()

    def close(self) -> None:
        """Write what waits, and end the thread. A file that cannot be written does not hold the end up for long.

        A later call starts another thread.
        """
        generation()
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.closing.set()
        writer.wake.set()
        writer.thread.join(_CLOSE_SECONDS)
        writer.forget()
        if writer.thread.is_alive():
            late = len(self._waiting) + self._writing
            self._logger.warning("calls that could not be logged within %g seconds: %d", _CLOSE_SECONDS, late)

    def _run(self, wake: threading.Event, closing: threading.Event) -> None:
        """Write calls until the log is closed. The file stays open: to open and close it costs more than a batch."""
        file = _OpenFile(self._path)
        while not closing.is_set():
            wake.wait()
            closing.wait(_PAUSE)
            wake.clear()
            self._write(file, closing)
        self._write(file, closing)  # calls that were added during the last write
        file.close()
        if self._lost > self._reported:
            self._reported = self._lost
            self._logger.warning("the log of calls ends; calls lost: %d", self._lost)

    def _write(self, file: _OpenFile, closing: threading.Event) -> None:
        """Write the calls that wait, some in each transaction."""
        while batch := self._take():
            try:
                file.add([make() for make in batch])
                self._recover()
            except CnllmError as error:
                self._lose(len(batch), error.message)
            except Exception as error:  # noqa: BLE001 - later calls are written, whatever it is
                self._lose(len(batch), f"{type(error).__name__}: {error}")
            self._writing = 0
            if self._waiting:
                closing.wait(_REST)

    def _take(self) -> list[MakeRecord]:
        """Take the calls of one transaction. A thread that is late with its end may take some at the same time."""
        batch: list[MakeRecord] = []
        with suppress(IndexError):
            while len(batch) < _BATCH:
                batch.append(self._waiting.popleft())
        self._writing = len(batch)
        return batch

    def _lose(self, count: int, reason: str) -> None:
        """Count calls that are lost, and warn."""
        self._lost += count
        now = time.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            self._reported = self._lost
            self._logger.warning("calls cannot be logged: %s; calls lost: %d", reason, self._lost)

    def _recover(self) -> None:
        """Report how many calls were lost before those that are written now."""
        if self._lost:
            self._logger.warning("calls are logged again; calls lost: %d", self._lost)
            self._lost = self._reported = 0


class _WriterThread(NamedTuple):
    """The thread that writes, what wakes it, what ends it, and what keeps the program from ending it."""

    thread: threading.Thread
    wake: threading.Event
    closing: threading.Event
    forget: Callable[[], None]


class _OpenFile:
    """The store, opened for the first calls, and anew after a failure or where another file stands at its path."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._store: Store | None = None

    def add(self, calls: list[LoggedCall]) -> None:
        """Write calls."""
        from cnllm.store import Store

        if self._store is not None and self._store.file.id != file_id(self._store.path):
            self.close()
        if self._store is None:
            self._store = Store.open(self._path)
            self._store.file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        try:
            _add_calls(self._store.file, calls)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file if it is open."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


# ── calls in the store ───────────────────────────────────────────────────────


class LoggedCall(Struct, frozen=True, kw_only=True):
    """One call. `began` is ISO 8601 in UTC, `key` the name of the client's key at a gateway.

    `client` says who made it: the protocol of a gateway's client, "library" or "batch". `price` is that of the model
    when the request was sent, a table of the registry.
    """

    conversation: str
    began: str
    model: str
    protocol: str
    client: str
    origin: str
    tag: str = ""
    key: str = ""
    finish: str = ""
    usage: Usage | None = None
    cost: Cost | None = None
    seconds: float = 0.0
    error: TurnError | None = None
    notes: Sequence[Note] = ()
    registry: str = ""
    reply_id: str | None = None
    reply_model: str | None = None
    prefix: PrefixRecord | None = None
    price: object = None


def _add_calls(file: DatabaseFile, calls: Sequence[LoggedCall]) -> None:
    """Write calls that have ended, in one transaction."""
    rows = [_row(call) for call in calls]
    if not rows:
        return
    began = [(call.conversation, call.began) for call in calls]
    prices = {id(call.price): call.price for call in calls}
    names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
    with file.writing() as connection:
        numbers = {key: price_column(connection, price) for key, price in prices.items()}
        for row, call in zip(rows, calls, strict=True):
            row["price"] = numbers[id(call.price)]
        connection.executemany("INSERT OR IGNORE INTO conversations (id, began) VALUES (?, ?)", began)
        connection.executemany(f"INSERT INTO turns ({names}) VALUES ({marks})", [tuple(row.values()) for row in rows])


def _row(call: LoggedCall) -> dict[str, object]:
    """Return the columns of a call. Its price gets one with the others."""
    error = None if call.error is None else redact.redact_data(msgspec.to_builtins(call.error), ())
    notes = [{"code": note.code, "flag": note.flag, "said": "", "did": "", "where": note.where} for note in call.notes]
    return {
        **{name: _column(getattr(call, name)) for name in _PLAIN_COLUMNS},
        **cost_columns(call.cost),
        "model": encodable_text(call.model),  # never null, not even where it is empty
        "client": call.client,
        "state": _state(call),
        "seconds": round(call.seconds, 3),
        "error": _column(error),
        "notes": as_json(notes),
        "price": None,
    }


def _column(value: object) -> str | None:
    """Return a value of a call as the text of a column; None for one that is empty."""
    if value is None or value == "":
        return None
    return encodable_text(value) if isinstance(value, str) else as_json(value)


def _state(call: LoggedCall) -> str:
    """Return the state of a call that has ended."""
    if not call.finish:
        return "failed" if call.error is not None else "interrupted"
    return "done" if call.finish in WHOLE_FINISHES and call.error is None else "partial"
