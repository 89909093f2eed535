"""Write what a gateway's calls cost to the conversations of `cnllm logs`, in a thread of its own.

No word of a client or a model is written. A call costs the event loop an append to a queue. Where the file cannot be
written, calls are lost, and a warning says so at most once a minute.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.fork import generation
from cnllm.gateway.monitoring.entry import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from cnllm.store import Store
    from cnllm.store.calls import GatewayCall
    from cnllm.store.records import PrefixRecord

__all__ = ["CallLog", "FinishedCall"]

_LOGGER = logging.getLogger("cnllm.gateway")
_MOST = 10_000  # calls that wait
_BATCH = 500  # calls of one transaction
_PAUSE = 0.5  # seconds in which calls gather
_WARN_SECONDS = 60.0
_CLOSE_SECONDS = 5.0


class FinishedCall(Struct, frozen=True):
    """A call that has ended, and the conversation that it belongs to."""

    entry: Entry
    conversation: str
    is_simulated: bool
    prefix: PrefixRecord | None


class CallLog:
    """Writes calls to the store at `path`; None is that of `cnllm logs`."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._waiting: deque[FinishedCall] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._generation = -1
        self._closed = False
        self._lost = 0
        self._warned = -_WARN_SECONDS

    def add(self, call: FinishedCall) -> None:
        """Take a call. The thread that writes it starts with the first one: after a fork of the server."""
        if len(self._waiting) >= _MOST:
            self._lost += 1
            return
        self._waiting.append(call)
        if self._thread is None or self._generation != generation():
            self._generation = generation()
            self._wake = threading.Event()
            self._thread = threading.Thread(target=self._run, name="cnllm-calls", daemon=True)
            self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what waits, and end the thread. A file that cannot be written does not hold the end up for long."""
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._generation == generation():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        """Write calls until the log is closed. The file stays open: to open and close it costs more than a batch."""
        file = _OpenFile(self._path)
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            if not self._closed:
                time.sleep(_PAUSE)
            self._write(file)
        file.close()

    def _write(self, file: _OpenFile) -> None:
        """Write the calls that wait, some in each transaction."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                file.add([_gateway_call(call) for call in batch])
            except CnllmError as error:
                self._lose(len(batch), error.message)
            except (ImportError, OSError, TypeError, ValueError) as error:  # some builds of Python have no SQLite
                self._lose(len(batch), f"{type(error).__name__}: {error}")

    def _lose(self, count: int, reason: str) -> None:
        """Count calls that are lost, and warn."""
        self._lost += count
        now = time.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            _LOGGER.warning("calls cannot be logged: %s; calls lost: %d", reason, self._lost)


class _OpenFile:
    """The store, opened for the first calls, and anew after a failure or where another file stands at its path."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._store: Store | None = None
        self._id: tuple[int, int] | None = None

    def add(self, calls: list[GatewayCall]) -> None:
        """Write calls."""
        from cnllm.store import Store
        from cnllm.store.calls import add_calls

        if self._store is not None and self._id != _file_id(self._store.path):
            self.close()
        if self._store is None:
            self._store = Store.open(self._path)
            self._id = _file_id(self._store.path)
        try:
            add_calls(self._store.file, calls)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file if it is open."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one at the same path; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _gateway_call(call: FinishedCall) -> GatewayCall:
    """Return the record of a call for the store."""
    from cnllm.store.calls import GatewayCall
    from cnllm.store.records import Failure

    entry = call.entry
    began = datetime.datetime.fromtimestamp(entry.time - entry.seconds, datetime.UTC)
    failure = entry.error or ("Interrupted" if entry.outcome and not entry.finish else "")
    return GatewayCall(
        conversation=call.conversation,
        began=began.isoformat(timespec="milliseconds"),
        model=entry.model,
        protocol=entry.upstream_protocol,
        client=entry.protocol,
        origin="simulated" if call.is_simulated else "endpoint",
        tag=entry.key,
        finish=entry.finish,
        usage=entry.usage,
        cost=entry.cost,
        seconds=entry.seconds,
        error=Failure(failure, entry.outcome) if failure else None,
        notes=entry.notes,
        registry=entry.registry,
        prefix=call.prefix,
    )
