"""The limits of all keys in one process: who a key belongs to, and what its requests may use."""

from __future__ import annotations

import asyncio
import contextlib

from cnllm.errors import CnllmError
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits import refusal
from cnllm.gateway.limits.book import AsyncKeyBook
from cnllm.gateway.limits.key_worker import Flight, KeyWorker, Reservation, SoftBudget
from cnllm.gateway.limits.keys import KeyRecord, Rights, team_digest
from cnllm.gateway.limits.refusal import Refused
from cnllm.types.newest import Newest

__all__ = ["LEASE_SECONDS", "Limiter", "Reservations"]

LEASE_SECONDS = 30.0
"""The money of a process that reports no more counts as spent after so long."""
_RECORD_SECONDS = 0.4
"""A record is looked up again after so long, so that a revocation takes effect within a second."""
_TICK_SECONDS = 0.5
_MOST_RECORDS = 10_000


class Reservations(list[Reservation]):
    """The reservations of one request: of its key, and of its team if it has one. See `Reservation`."""

    @property
    def soft_budgets(self) -> list[SoftBudget]:
        """Return the soft budgets that are spent."""
        return [entry.soft_budget for entry in self if entry.soft_budget is not None]

    def settle(self, cost: int | None, tokens: int | None) -> None:
        """Replace every reservation by the real cost and tokens."""
        for reservation in self:
            reservation.settle(cost, tokens)

    def forfeit(self) -> None:
        """Charge all that every one holds."""
        for reservation in self:
            reservation.forfeit()

    def release(self) -> None:
        """Release all of them."""
        for reservation in self:
            reservation.release()


class Limiter:
    """The limits of all keys, on one event loop."""

    def __init__(self, book: AsyncKeyBook, *, lease: float = LEASE_SECONDS) -> None:
        self._book = book
        self._lease = lease
        self._records: Newest[str, tuple[float, Rights]] = Newest(_MOST_RECORDS)
        self._searches: dict[str, asyncio.Task[Rights | None]] = {}
        self._workers: dict[str, KeyWorker] = {}
        self._ticks: asyncio.Task[None] | None = None

    async def find(self, digest: str, *, is_known: bool = False) -> Rights | None:
        """Return the rights of a key; None for one that is unknown or revoked.

        Raises `Refused` for one that has expired, and where nobody knows: also of a key that `is_known`, such as one of
        a file, and that the store has lost.
        """
        entry = self._records.get(digest)
        if entry is not None and asyncio.get_running_loop().time() - entry[0] < _RECORD_SECONDS:
            return entry[1]
        search = self._searches.get(digest)
        if search is None:
            search = self._searches[digest] = asyncio.ensure_future(self._search(digest, is_known=is_known))
            search.add_done_callback(lambda _: self._searches.pop(digest, None))
        try:
            return await asyncio.shield(search)
        except CnllmError:
            raise Refused(refusal.unavailable()) from None

    async def _search(self, digest: str, *, is_known: bool) -> Rights | None:
        """Look a key up. No key is ever removed: one that this process has seen and the store has not is lost."""
        start = asyncio.get_running_loop().time()
        rights = await self._book.find(digest, is_known=is_known or digest in self._records)
        if rights is None or rights.key.revoked is not None or rights.key.is_expired(rights.wall):
            self._records.pop(digest, None)
            if rights is None or rights.key.revoked is not None:
                return None
            raise Refused(refusal.expired(rights.key))
        self._records[digest] = (start, rights)
        return rights

    async def admit(self, digest: str, rights: Rights) -> list[Flight]:
        """Count a request by its head, before its body is read, and return what it must release at its end.

        Raises `Refused`. What the key let in and its team does not counts for neither.
        """
        flights: list[Flight] = []
        try:
            for name, record in _holders(digest, rights):
                if record.rpm is not None or record.concurrency is not None or name in self._workers:
                    flight = await self._worker(name, record).admit()
                    flights += () if flight is None else (flight,)
        except BaseException as error:
            for flight in flights:
                flight.release(is_counted=False)
            self._forget(digest, error)
            raise
        return flights

    async def reserve(
        self, digest: str, rights: Rights, worst: WorstCase, tokens: int, team_tokens: int = 0
    ) -> Reservations:
        """Reserve what an admitted request needs, of its key and of its team. Raises `Refused`.

        `tokens` is its estimated length as it counts for the key, `team_tokens` as it counts for the team.
        """
        reservations = Reservations()
        try:
            for (name, record), count in zip(_holders(digest, rights), (tokens, team_tokens), strict=False):
                reservations.append(await self._worker(name, record).reserve(worst, count))
        except BaseException as error:
            reservations.release()
            self._forget(digest, error)
            raise
        return reservations

    def _forget(self, digest: str, error: BaseException) -> None:
        """Forget a record where its key or team is known to be revoked: a new team may soon have the name."""
        if isinstance(error, Refused) and error.refusal.kind == "key":
            self._records.pop(digest, None)

    def _worker(self, digest: str, record: KeyRecord) -> KeyWorker:
        """Return the worker of a key or a team, which knows its newest record."""
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


def _holders(digest: str, rights: Rights) -> list[tuple[str, KeyRecord]]:
    """Return the record of a key and that of its team, each with what the store knows it by."""
    return [(digest if record.kind == "key" else team_digest(record.name), record) for record in rights.records]
