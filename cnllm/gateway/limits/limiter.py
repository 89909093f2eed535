"""The limits of all keys in one process: who a key belongs to, and what its requests may use."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict

from cnllm.errors import CnllmError
from cnllm.estimates.quote import Quote
from cnllm.gateway.limits import refusal
from cnllm.gateway.limits.book import AsyncKeyBook
from cnllm.gateway.limits.key_worker import KeyWorker, Reservation
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.gateway.limits.refusal import Refused

__all__ = ["LEASE_SECONDS", "Limiter"]

LEASE_SECONDS = 30.0
"""The money of a process that reports no more counts as spent after so long."""
_RECORD_SECONDS = 0.4
"""A record is looked up again after so long, so that a revocation takes effect within a second."""
_TICK_SECONDS = 0.5
_MOST_RECORDS = 10_000


class Limiter:
    """The limits of all keys, on one event loop."""

    def __init__(self, book: AsyncKeyBook, *, lease: float = LEASE_SECONDS) -> None:
        self._book = book
        self._lease = lease
        self._records: OrderedDict[str, tuple[float, KeyRecord]] = OrderedDict()
        self._searches: dict[str, asyncio.Task[KeyRecord | None]] = {}
        self._workers: dict[str, KeyWorker] = {}
        self._ticks: asyncio.Task[None] | None = None

    async def find(self, digest: str) -> KeyRecord | None:
        """Return the record of a key; None for one that is unknown or revoked. Raises `Refused` where nobody knows."""
        entry = self._records.get(digest)
        if entry is not None and asyncio.get_running_loop().time() - entry[0] < _RECORD_SECONDS:
            return entry[1]
        search = self._searches.get(digest)
        if search is None:
            search = self._searches[digest] = asyncio.ensure_future(self._search(digest))
            search.add_done_callback(lambda _: self._searches.pop(digest, None))
        try:
            return await asyncio.shield(search)
        except CnllmError:
            raise Refused(refusal.unavailable()) from None

    async def _search(self, digest: str) -> KeyRecord | None:
        """Look a key up."""
        asked = asyncio.get_running_loop().time()
        record = await self._book.find(digest)
        if record is None or record.revoked is not None:
            self._records.pop(digest, None)
            return None
        self._records[digest] = (asked, record)
        self._records.move_to_end(digest)
        while len(self._records) > _MOST_RECORDS:
            self._records.popitem(last=False)
        return record

    async def admit(self, digest: str, record: KeyRecord) -> None:
        """Count a request by its head, before its body is read. Raises `Refused`."""
        if record.rpm is not None or digest in self._workers:
            await self._worker(digest, record).admit()

    async def reserve(self, digest: str, record: KeyRecord, quote: Quote, tokens: int) -> Reservation:
        """Reserve what an admitted request needs; `tokens` is its estimated length. Raises `Refused`."""
        return await self._worker(digest, record).reserve(quote, tokens)

    def _worker(self, digest: str, record: KeyRecord) -> KeyWorker:
        """Return the worker of a key, which knows its newest record."""
        worker = self._workers.get(digest)
        if worker is None:
            worker = self._workers[digest] = KeyWorker(self._book, digest, record, self._lease)
        worker.record = record
        if self._ticks is None:
            self._ticks = asyncio.ensure_future(self._tick())
        return worker

    async def _tick(self) -> None:
        """Let each key renew its lease, for as long as one has something."""
        try:
            while self._workers:
                await asyncio.sleep(_TICK_SECONDS)
                self._workers = {digest: worker for digest, worker in self._workers.items() if worker.tick()}
        finally:
            self._ticks = None

    async def aclose(self) -> None:
        """Report everything, and close the book."""
        if self._ticks is not None:
            self._ticks.cancel()
        for worker in list(self._workers.values()):
            await worker.aclose()
        self._workers = {}
        with contextlib.suppress(CnllmError):
            await self._book.aclose()
