"""One key, or one team, in one process: what is leased for it, who waits for a lease, and what has to be reported.

At most one operation of a key is under way. It reports what became of earlier requests, gives back what is left of
the lease, and asks for all that wait now, with something to spare for the next half second. So a busy key costs a few
operations a second, and not one or two a request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque

from msgspec import Struct, field

from cnllm.errors import CnllmError
from cnllm.estimates.worst_case import WorstCase
from cnllm.gateway.limits import refusal, window
from cnllm.gateway.limits.account import FLIGHTS, Grant, Operation, add_units
from cnllm.gateway.limits.book import AsyncKeyBook
from cnllm.gateway.limits.keys import KeyRecord, period_bounds
from cnllm.gateway.limits.refusal import Refusal, Refused

__all__ = ["Flight", "KeyWorker", "Reservation", "SoftBudget"]

_FLUSH_SECONDS = 0.1  # what became of requests is reported so late, with that of others
_PAUSE_SECONDS = 1.0  # no operation is tried for so long after one that failed
_CLOSED_SECONDS = 0.25  # so long a full limit is not asked again: others may give something back


class _Epoch(Struct, eq=False):
    """The numbers of a worker's operations. A lease that was lost ends the epoch, and its money is charged."""

    worker: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0
    open: int = 0  # reservations and requests in flight that are not closed


class _Balance(Struct):
    """A lease that is not used up. `until` is a time of the event loop, after which requests and tokens are void."""

    requests: int = 0
    tokens: int = 0
    money: dict[str, int] = {}
    slot: int = 0
    until: float = 0.0


class _Waiter(Struct, eq=False):
    """A request that waits for a lease: with its head alone, or with its worst case, for a reservation."""

    worst: WorstCase | None
    tokens: int
    future: asyncio.Future[Reservation | Flight]


class SoftBudget(Struct, frozen=True):
    """A warning: a key or a team has spent as much as its soft budget, and is not refused yet.

    `record` is that key or team. `spent` is in units. `start` is the beginning of the budget's period, 0
    where the budget has no period.
    """

    record: KeyRecord
    currency: str
    spent: int
    start: int = 0


class Flight:
    """A request in flight: it counts in its minute, and among those at once until it is released."""

    def __init__(self, worker: KeyWorker, epoch: _Epoch, slot: int, *, is_limited: bool) -> None:
        self._worker = worker
        self._epoch = epoch
        self._slot = slot
        self._is_limited = is_limited
        epoch.open += 1

    def release(self, *, is_counted: bool = True) -> None:
        """End the request, once. If it is not counted, it was never let in: its place in the minute is free again."""
        self._epoch.open -= 1
        self._worker.end_flight(self._epoch, None if is_counted else self._slot, is_limited=self._is_limited)


class Reservation:
    """The reservation of one request. It must be settled or released; a second time does nothing."""

    def __init__(self, worker: KeyWorker, epoch: _Epoch, worst: WorstCase, units: int, tokens: int, slot: int) -> None:
        self.worst = worst
        self._worker = worker
        self._epoch = epoch
        self._units = units
        self._tokens = tokens
        self._slot = slot
        self.soft_budget = worker.soft_budget(worst.currency)
        self._closed = False
        epoch.open += 1

    def settle(self, cost: int | None, tokens: int | None) -> None:
        """Charge the cost of the reply in units, all that is reserved where it is not known; count its tokens."""
        if self._close():
            self._worker.report(self._epoch, self.worst.currency, self._units, cost, reply=True)
            if tokens is not None:
                self._worker.correct_tokens(self._slot, tokens - self._tokens, tokens)

    def forfeit(self) -> None:
        """Charge all that is reserved for one more request of a call, which its first reservation counts."""
        if self._close():
            self._worker.report(self._epoch, self.worst.currency, self._units, None, reply=False)

    def release(self) -> None:
        """Give everything back but the request itself: it was not sent, or refused by the endpoint."""
        if self._close():
            self._worker.report(self._epoch, self.worst.currency, self._units, 0, reply=False)
            self._worker.correct_tokens(self._slot, -self._tokens, 0)

    def _close(self) -> bool:
        """Close the reservation. Return whether it was open."""
        if self._closed:
            return False
        self._closed = True
        self._epoch.open -= 1
        return True


class KeyWorker:
    """One key in this process, on one event loop."""

    def __init__(self, book: AsyncKeyBook, digest: str, record: KeyRecord, lease: float) -> None:
        self.record = record
        self._book = book
        self._digest = digest
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._epoch = _Epoch()
        self._balance = _Balance()
        self._report = Operation()
        self._drawn: dict[str, int] = {}  # since the last operation: what may be needed next
        self._waiters: deque[_Waiter] = deque()
        self._task: asyncio.Task[None] | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._stuck: Operation | None = None  # sent, and nobody knows whether it was carried out
        self._paused_until = 0.0
        self._closed_until = 0.0
        self._is_full = False  # no token was left for the last request
        self._unspent: dict[str, int] = {}  # by currency, at the last operation
        self._wall = 0.0  # the time of the last operation
        self._refusal: Refusal | None = None  # until then
        self._renewed = self._active = self._loop.time()

    # ── requests ─────────────────────────────────────────────────────────────

    async def admit(self) -> Flight | None:
        """Count a request by its head, before anything of its body is read. Raises `Refused`.

        Nobody knows yet how many tokens it has: it is refused where the last request found none left, and none is.
        """
        if self.record.rpm is None and self.record.concurrency is None and not self._is_full:
            return None
        now = self._active = self._loop.time()
        if not self._waiters and (flight := self._take_flight(now)) is not None:
            return flight
        admitted = await self._wait(None, 1, now)
        assert isinstance(admitted, Flight)
        return admitted

    async def reserve(self, worst: WorstCase, tokens: int) -> Reservation:
        """Reserve what an admitted request needs. Raises `Refused`."""
        if (refused := self._never(worst, tokens)) is not None:
            raise Refused(refused)
        now = self._active = self._loop.time()
        if not self._waiters and (reservation := self._take(worst, tokens, now)) is not None:
            return reservation
        admitted = await self._wait(worst, tokens, now)
        assert isinstance(admitted, Reservation)
        return admitted

    async def _wait(self, worst: WorstCase | None, tokens: int, now: float) -> Reservation | Flight:
        """Wait for a lease. Raises `Refused`."""
        if now < self._paused_until:
            raise Refused(refusal.unavailable())
        if worst is None and now < self._closed_until and self._refusal is not None:
            raise Refused(self._refusal)
        waiter = _Waiter(worst, tokens, self._loop.create_future())
        self._waiters.append(waiter)
        self._start()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().release()
            raise

    def _never(self, worst: WorstCase, tokens: int) -> Refusal | None:
        """Return why a request can never be sent with this key; None where it can."""
        record = self.record
        if not record.allows(worst.model):
            return refusal.model_refused(record, worst.model)
        if record.budgets and worst.cost != 0 and (worst.cost is None or worst.currency not in record.budgets):
            return refusal.no_budget(record, worst)
        if record.tpm is not None and tokens > record.tpm:
            return refusal.too_large(record, tokens)
        return None

    def _take_flight(self, now: float) -> Flight | None:
        """Take a request from the lease, if it has one, and a token where none was left."""
        record, balance = self.record, self._balance
        if now >= balance.until or (self._is_full and record.tpm is not None and balance.tokens < 1):
            return None
        is_limited = record.concurrency is not None
        if (record.rpm is not None and balance.requests < 1) or (is_limited and balance.money.get(FLIGHTS, 0) < 1):
            return None
        self._is_full = False
        if record.rpm is not None:
            balance.requests -= 1
            self._draw("requests a minute", 1)
        if is_limited:
            balance.money[FLIGHTS] -= 1
            self._draw(FLIGHTS, 1)
        return Flight(self, self._epoch, balance.slot, is_limited=is_limited)

    def _draw(self, name: str, count: int) -> None:
        """Take note of what was used since the last operation, of nothing too."""
        self._drawn[name] = self._drawn.get(name, 0) + count

    def _take(self, worst: WorstCase, tokens: int, now: float) -> Reservation | None:
        """Take what a request needs from the lease; None where it is not enough."""
        record, balance, currency = self.record, self._balance, worst.currency
        if record.tpm is not None and (now >= balance.until or balance.tokens < tokens):
            return None
        units = 0
        if currency is not None and currency in record.budgets:
            units = worst.cost or 0  # unknown where the budget is newer than the request
            if balance.money.get(currency, 0) < units or currency not in self._unspent:
                return None
            balance.money[currency] = balance.money.get(currency, 0) - units
            self._draw(currency, units)
        if record.tpm is not None:
            balance.tokens -= tokens
            self._draw("tokens", tokens)
        return Reservation(self, self._epoch, worst, units, tokens, balance.slot)

    def soft_budget(self, currency: str | None) -> SoftBudget | None:
        """Return the warning that as much as the soft budget is spent; None below it."""
        record = self.record
        soft = record.soft_budgets.get(currency) if currency is not None else None
        if currency is None or soft is None or currency not in self._unspent or currency not in record.budgets:
            return None
        spent = record.budgets[currency] - self._unspent[currency] + self._report.charges.get(currency, 0)
        if spent < soft:
            return None
        period = record.periods.get(currency)
        start = 0 if period is None else period_bounds(period, record.time_zone, self._wall)[0]
        return SoftBudget(record, currency, spent, start)

    # ── reports ──────────────────────────────────────────────────────────────

    def end_flight(self, epoch: _Epoch, slot: int | None, *, is_limited: bool) -> None:
        """Report the end of a request in flight. `slot` is the slot to correct, where the request was never let in."""
        report = self._report
        if slot is not None and self.record.rpm is not None:
            report.request_counts += [slot, -1]
        if is_limited and epoch is self._epoch:
            add_units(report.closed, FLIGHTS, 1)
            if self._refusal is not None and self._refusal.code == refusal.TOO_MANY_AT_ONCE:
                self._closed_until = 0.0
        if not report.is_empty:
            self._flush_soon()

    def report(self, epoch: _Epoch, currency: str | None, units: int, cost: int | None, *, reply: bool) -> None:
        """Report what became of a reservation. That of an epoch that ended was charged then."""
        report = self._report
        charge = units if cost is None else cost
        if currency is not None and (epoch is self._epoch or not self.record.budgets):
            add_units(report.charges, currency, charge)
            add_units(report.closed, currency, units)
        if reply:
            report.calls += 1
            report.unpriced += cost is None
        self._flush_soon()

    def correct_tokens(self, slot: int, difference: int, used: int) -> None:
        """Correct the count of tokens of a request. Those above the estimate count from now on."""
        self._report.used += used
        if self.record.tpm is not None and difference:
            self._report.token_counts += [0 if difference > 0 else slot, difference]

    def _flush_soon(self) -> None:
        """Report soon, with what others have to report then."""
        if self._flush is None and self._task is None:
            self._flush = self._loop.call_later(_FLUSH_SECONDS, self._start)

    # ── operations ───────────────────────────────────────────────────────────

    def _start(self) -> None:
        """Begin an operation, unless one is under way: it will be followed by another."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._task is None:
            self._task = self._loop.create_task(self._operate())

    async def _operate(self) -> None:
        """Carry out operations until nobody waits."""
        try:
            while True:
                self._waiters = deque(waiter for waiter in self._waiters if not waiter.future.done())
                waiters = list(self._waiters)
                repeated = self._stuck is not None
                operation = self._stuck or self._operation(waiters)
                self._stuck = operation
                start = self._loop.time()
                grant = await self._book.update(self._digest, operation)
                self._stuck = None
                self._renewed = start
                self._apply(operation, grant, start, [] if repeated else waiters)
                if not self._waiters:
                    break
        except CnllmError:
            self._paused_until = self._loop.time() + _PAUSE_SECONDS
            self._refuse_all(refusal.unavailable())
        except BaseException:
            self._refuse_all(refusal.unavailable())
            raise
        finally:
            self._task = None
            if not self._report.is_empty and self._stuck is None:
                self._flush_soon()

    def _operation(self, waiters: list[_Waiter]) -> Operation:
        """Return the next operation: all reports, all that is left of the lease, and all that is needed."""
        report, balance, draws, record, now = self._report, self._balance, self._drawn, self.record, self._loop.time()
        if not (self._epoch.open or report.closed or self._holds) and now - self._renewed >= self._lease:
            self._epoch = _Epoch()  # the lease has expired, and held nothing
        for currency, units in balance.money.items():
            add_units(report.closed, currency, units)
        if balance.requests:
            report.request_counts += [balance.slot, -balance.requests]
        if balance.tokens:
            report.token_counts += [balance.slot, -balance.tokens]
        money: dict[str, tuple[int, int]] = {}
        if record.budgets:
            needs = {currency: 0 for currency in draws if currency in record.budgets}
            for waiter in waiters:
                if waiter.worst is not None and waiter.worst.currency in record.budgets:
                    needs[waiter.worst.currency] = needs.get(waiter.worst.currency, 0) + (waiter.worst.cost or 0)
            money = {currency: (need, draws.get(currency, 0)) for currency, need in needs.items()}
        heads = sum(waiter.worst is None for waiter in waiters)
        if record.concurrency is not None:
            money[FLIGHTS] = (heads, draws.get(FLIGHTS, 0))
        self._epoch.number += 1
        report.worker, report.number = self._epoch.worker, self._epoch.number
        report.lease = int(self._lease * 1_000_000)
        report.requests = (heads, draws.get("requests a minute", 0))
        report.tokens = (sum(waiter.tokens for waiter in waiters), draws.get("tokens", 0))
        report.money = money
        self._report, self._balance, self._drawn = Operation(), _Balance(), {}
        return report

    def _apply(self, operation: Operation, grant: Grant, start: float, waiters: list[_Waiter]) -> None:
        """Take what was granted, and let those pass that it suffices for."""
        if grant.state == "lost":
            self._begin_anew(operation)
            return
        if grant.state != "ok":
            self._refuse_all(_refusal_of(grant.state, self.record))
            return
        self._unspent.update({currency: unspent for currency, _, unspent in grant.money})
        self._wall = grant.wall
        self._balance = _Balance(
            grant.requests,
            grant.tokens,
            {currency: units for currency, units, _ in grant.money},
            window.slot_of(grant.now),
            start + window.LEASE_SECONDS,
        )
        now = min(self._loop.time(), self._balance.until - 0.001)  # those that waited may pass, however late it is
        for waiter in waiters:
            self._waiters.remove(waiter)
            if waiter.future.done():
                continue
            worst = waiter.worst
            admitted = self._take_flight(now) if worst is None else self._take(worst, waiter.tokens, now)
            if admitted is not None:
                waiter.future.set_result(admitted)
            else:
                waiter.future.set_exception(Refused(self._why_not(waiter, grant)))

    def _begin_anew(self, operation: Operation) -> None:
        """Begin an epoch after a lease that expired: the money that was open is charged, whatever became of it."""
        self._epoch = _Epoch()
        report = self._report
        report.closed = {}
        if self.record.budgets:
            report.charges = {}
        else:
            for currency, units in operation.charges.items():
                add_units(report.charges, currency, units)
        report.calls += operation.calls
        report.used += operation.used
        report.unpriced += operation.unpriced
        report.token_counts += operation.token_counts

    def _why_not(self, waiter: _Waiter, grant: Grant) -> Refusal:
        """Return why a grant does not suffice for a request."""
        record, balance, worst = self.record, self._balance, waiter.worst
        if worst is None and record.concurrency is not None and balance.money.get(FLIGHTS, 0) < 1:
            return self._close(refusal.too_many_at_once(record), _CLOSED_SECONDS)
        if worst is None and record.rpm is not None and balance.requests < 1:
            seconds = window.seconds_until(grant.request_window, 1, record.rpm, grant.now) or 0.0
            return self._close(refusal.too_many(record, "request", seconds), seconds)
        if record.tpm is not None and balance.tokens < waiter.tokens:
            counts = list(grant.token_window)
            window.add(counts, window.slot_of(grant.now), -balance.tokens)
            seconds = window.seconds_until(counts, waiter.tokens, record.tpm, grant.now) or 0.0
            refused = refusal.too_many(record, "token", seconds)
            if balance.tokens < 1:
                self._is_full = True
                self._close(refused, seconds)
            return refused
        if worst is None or worst.currency is None:  # the limits were changed meanwhile
            return refusal.unavailable()
        unspent = next((rest for currency, _, rest in grant.money if currency == worst.currency), 0)
        if unspent < (worst.cost or 0):
            return refusal.budget_spent(record, worst, unspent, grant.wall)
        return refusal.budget_held(record, worst)

    def _close(self, reason: Refusal, seconds: float) -> Refusal:
        """Refuse every head for a moment: the limit is used up."""
        self._refusal = reason
        self._closed_until = self._loop.time() + min(seconds, _CLOSED_SECONDS)
        return reason

    def _refuse_all(self, reason: Refusal) -> None:
        """Refuse all that wait."""
        while self._waiters:
            future = self._waiters.popleft().future
            if not future.done():
                future.set_exception(Refused(reason))

    @property
    def _holds(self) -> bool:
        """Whether anything is leased and not used."""
        return bool(self._balance.requests or self._balance.tokens or any(self._balance.money.values()))

    # ── time ─────────────────────────────────────────────────────────────────

    def tick(self) -> bool:
        """Renew the lease, and give back what nobody used. Return whether there is anything left to do."""
        now = self._loop.time()
        holds = self._holds
        is_stuck = self._stuck is not None and now >= self._paused_until
        is_idle = holds and now - self._active > window.LEASE_SECONDS
        if is_stuck or is_idle or (self._epoch.open and now - self._renewed > self._lease / 3):
            self._start()
        return bool(holds or self._epoch.open or self._task or self._stuck or not self._report.is_empty)

    async def aclose(self) -> None:
        """Report everything, and give everything back."""
        self._drawn = {}
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._holds or self._stuck is not None or not self._report.is_empty:
            self._start()
            assert self._task is not None
            await asyncio.wait([self._task])


def _refusal_of(state: str, record: KeyRecord) -> Refusal:
    """Return the refusal of a key that the store does not let pass."""
    match state:
        case "revoked":
            return refusal.revoked()
        case "expired":
            return refusal.expired(record)
    return refusal.unavailable()
