"""The arithmetic of one key's use, without I/O: what workers lease, report and give back.

Workers are the processes of the gateway. A worker leases requests, tokens and money in blocks and spends them on its
requests. Its next operation reports what became of them. A worker numbers its operations, so that one that arrives
twice counts once. No other worker can lease money that is on lease. If a worker dies, its leased money counts as spent
when the lease expires, because the endpoint may have charged it.

A book reads an account, carries out an operation on it, and writes it back: all of it, or nothing. There are two
clocks. `now`, in microseconds, is for leases and for the counts of a minute; it never goes back, unless the machine or
the store restarts. `wall`, in seconds since 1970, only decides when the period of a budget begins and when a key
expires.
"""

from __future__ import annotations

from msgspec import Struct

from cnllm.gateway.limits import window
from cnllm.gateway.limits.keys import KeyRecord, period_bounds

__all__ = ["FLIGHTS", "HEADROOM_DIVISOR", "Account", "Grant", "Lease", "Operation", "add_units", "advance", "update"]

HEADROOM_DIVISOR = 500
"""A worker may lease beyond its need: at most the rest of a budget, or a limit per minute, divided by this number."""
_MOST_PERIODS = 8  # beside the present one whose money is known
_LARGEST = 2**63 - 1
"""The largest sum: no store could write a larger one, and the key would be refused from then on."""
FLIGHTS = "requests"
"""The place among amounts of money, by currency, that requests in flight have: they are lent, and come back."""


class Operation(Struct, array_like=True):
    """The report of a worker, and what it asks for. Amounts of money hold the requests in flight, too.

    `requests`, `tokens` and `money` (by currency) are pairs of a need and of what is welcome beyond it. `charges` is
    money that was spent, `closed` money on lease that is free again or was spent, by currency. `request_counts` and
    `token_counts` correct counts of slots (slot 0: now), as flat lists. `calls`, `used` and `unpriced` are for the
    statistics: replies, their tokens, replies of unknown cost. `lease` is in microseconds.
    """

    worker: str = ""
    number: int = 0
    lease: int = 0
    requests: tuple[int, int] = (0, 0)
    tokens: tuple[int, int] = (0, 0)
    money: dict[str, tuple[int, int]] = {}
    charges: dict[str, int] = {}
    closed: dict[str, int] = {}
    request_counts: list[int] = []
    token_counts: list[int] = []
    calls: int = 0
    used: int = 0
    unpriced: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.charges or self.closed or self.request_counts or self.token_counts or self.calls)


class Grant(Struct, array_like=True):
    """The answer to a worker. `state` is "ok", "revoked", "expired", "unknown", or "lost" where its lease had expired.

    `money` has the currency, the units granted, and the units of the budget that are not spent, those on lease
    included. The windows are there where the need did not fit into them.
    """

    state: str
    now: int = 0
    requests: int = 0
    tokens: int = 0
    money: list[tuple[str, int, int]] = []
    request_window: list[int] = []
    token_window: list[int] = []
    wall: float = 0.0


class Lease(Struct):
    """The holdings of a worker. `open` is money by currency; `grant` is the answer to the last operation."""

    number: int
    expires: int
    open: dict[str, int]
    grant: Grant


class Account(Struct):
    """The use of a key or a team. `spent` is money by currency, of this period where the budget has one.

    `starts` are the beginnings of the periods that `spent` belongs to, `past` is the money of those before. `others`
    has the money of some other periods, by their beginnings, for a clock that comes back to one of them. `last` and
    `seen` are the times of the last operation: `now` and `wall`.
    """

    requests: list[int] = []
    tokens: list[int] = []
    spent: dict[str, int] = {}
    leases: dict[str, Lease] = {}
    calls: int = 0
    used: int = 0
    unpriced: int = 0
    last: int = 0
    starts: dict[str, int] = {}
    past: dict[str, int] = {}
    seen: float = 0.0
    others: dict[str, dict[int, int]] = {}

    def open(self, currency: str) -> int:
        """Return the money on lease."""
        return sum(lease.open.get(currency, 0) for lease in self.leases.values())


def update(account: Account, record: KeyRecord | None, operation: Operation, now: int, wall: float) -> Grant:
    """Carry out an operation at a time of both clocks, and return the grant."""
    advance(account, record, now, wall)
    account.last, account.seen = now, wall
    lease = account.leases.get(operation.worker)
    if lease is None:
        if operation.number != 1:
            return Grant("lost", now)
        lease = account.leases[operation.worker] = Lease(0, 0, {}, Grant("ok", now))
    elif lease.number == operation.number:
        return lease.grant
    _report(account, lease, operation, now)
    if record is None:
        grant = Grant("unknown", now)
    elif record.revoked is not None:
        grant = Grant("revoked", now)
    elif record.is_expired(wall):
        grant = Grant("expired", now)
    else:
        grant = _grant(account, record, lease, operation, now)
    grant.wall = wall
    lease.number = operation.number
    lease.expires = now + operation.lease
    lease.grant = grant
    return grant


def advance(account: Account, record: KeyRecord | None, now: int, wall: float) -> None:
    """Bring an account up to a time of both clocks: end the leases that expired, begin the periods of budgets."""
    if now < account.last:  # this clock began anew, or was set back
        for lease in account.leases.values():
            lease.expires -= account.last - now
        for counts in (account.requests, account.tokens):
            window.set_back(counts, account.last, now)
    window.trim(account.requests, now)
    window.trim(account.tokens, now)
    _expire(account, now)
    if record is not None:
        for currency in record.budgets:
            _begin_period(account, record, currency, wall)


def _expire(account: Account, now: int) -> None:
    """Count the money of leases that have expired as spent."""
    for worker in [worker for worker, lease in account.leases.items() if lease.expires <= now]:
        for currency, units in account.leases.pop(worker).open.items():
            if currency != FLIGHTS:
                add_units(account.spent, currency, units)


def _begin_period(account: Account, record: KeyRecord, currency: str, wall: float) -> None:
    """Begin a budget anew where a period has ended, but each period once.

    A clock that goes back gives nothing back, and what was spent in a period counts where the clock comes to it again.
    """
    period, old = record.periods.get(currency), account.starts.get(currency)
    if period is None:
        if old is not None:  # it is a budget in all again
            del account.starts[currency]
            account.others.pop(currency, None)
            add_units(account.spent, currency, account.past.pop(currency, 0))
        return
    start = period_bounds(period, record.time_zone, wall)[0]
    if start == old:
        return
    spent, others = account.spent.pop(currency, 0), account.others.setdefault(currency, {})
    again = others.pop(start, 0)
    if old is not None:
        others[old] = spent
        while len(others) > _MOST_PERIODS:
            del others[next(iter(others))]  # that which was left first
        if start < old:
            again = max(again, spent)
    add_units(account.past, currency, spent - again)
    add_units(account.spent, currency, again)
    account.starts[currency] = start


def add_units(amounts: dict[str, int], currency: str, units: int) -> None:
    """Add to one of some amounts."""
    if units:
        amounts[currency] = min(amounts.get(currency, 0) + units, _LARGEST)


def _report(account: Account, lease: Lease, operation: Operation, now: int) -> None:
    """Take in the outcome of the requests that the worker had."""
    for currency, units in operation.charges.items():
        add_units(account.spent, currency, units)
    for currency, units in operation.closed.items():
        lease.open[currency] = max(0, lease.open.get(currency, 0) - units)
    for counts, corrections in ((account.requests, operation.request_counts), (account.tokens, operation.token_counts)):
        for index in range(0, len(corrections), 2):
            window.add(counts, corrections[index] or window.slot_of(now), corrections[index + 1])
    account.calls += operation.calls
    account.used = min(account.used + operation.used, _LARGEST)
    account.unpriced += operation.unpriced


def _grant(account: Account, record: KeyRecord, lease: Lease, operation: Operation, now: int) -> Grant:
    """Give out what is free."""
    grant = Grant("ok", now, money=[])
    slot = window.slot_of(now)
    if record.rpm is not None:
        grant.requests = _take(account.requests, slot, record.rpm, *operation.requests)
        if grant.requests < operation.requests[0]:
            grant.request_window = list(account.requests)
    if record.tpm is not None:
        grant.tokens = _take(account.tokens, slot, record.tpm, *operation.tokens)
        if grant.tokens < operation.tokens[0]:
            grant.token_window = list(account.tokens)
    for currency, (need, spare) in operation.money.items():
        on_lease = account.open(currency)
        if currency != FLIGHTS:
            unspent = record.budgets.get(currency, 0) - account.spent.get(currency, 0)
        else:
            unspent = record.concurrency if record.concurrency is not None else on_lease + need
        free = max(0, unspent - on_lease)
        units = min(need, free)
        units += min(spare, (free - units) // HEADROOM_DIVISOR)
        add_units(lease.open, currency, units)
        grant.money.append((currency, units, unspent))
    return grant


def _take(counts: list[int], slot: int, limit: int, need: int, spare: int) -> int:
    """Count what is free of a need, and a little more, and return it."""
    free = max(0, limit - window.total(counts))
    granted = min(need, free) + min(spare, limit // HEADROOM_DIVISOR, max(0, free - need))
    window.add(counts, slot, granted)
    return granted
