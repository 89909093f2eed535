"""The arithmetic of one key's use, without I/O: what workers lease, settle and return.

A worker leases requests, tokens and money in blocks, uses them for its requests, and reports what became of them with
its next operation. Operations of a worker are numbered, so that one that is sent twice counts once. Money on lease is
kept from all others. The money of a worker that reports no more (it was killed) counts as spent when its lease
expires: what it sent may have been charged, and unknown is not zero.

`redis_script.py` does the same in Lua; a test compares the two.
"""

from __future__ import annotations

from msgspec import Struct

from cnllm.gateway.limits import window
from cnllm.gateway.limits.keys import KeyRecord

__all__ = ["HEADROOM_SHARE", "Account", "Grant", "Lease", "Operation", "update"]

HEADROOM_SHARE = 500
"""What a worker may lease beyond its need is at most this fraction of what is left."""


class Operation(Struct, array_like=True):
    """The report of a worker, and its wishes.

    `requests`, `tokens` and `money` (by currency) are pairs of a need and of what is welcome beyond it. `charges` is
    money that was spent, `closed` money on lease that is free again or was spent, by currency. `request_counts` and
    `token_counts` correct counts of slots (slot 0: now), as flat lists. `calls`, `used` and `unpriced` are for the
    statistics: replies, their tokens, replies of unknown cost. `lease` is in microseconds.
    """

    worker: str
    number: int
    lease: int
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


class Grant(Struct, array_like=True):
    """The answer to a worker. `state` is "ok", "revoked", or "lost" where its lease had expired.

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


class Lease(Struct):
    """The holdings of a worker. `open` is money by currency; `grant` is the answer to the last operation."""

    number: int
    expires: int
    open: dict[str, int]
    grant: Grant


class Account(Struct):
    """The use of a key. `spent` is money by currency, `last` the time of the last operation in microseconds."""

    requests: list[int] = []
    tokens: list[int] = []
    spent: dict[str, int] = {}
    leases: dict[str, Lease] = {}
    calls: int = 0
    used: int = 0
    unpriced: int = 0
    last: int = 0

    def open(self, currency: str) -> int:
        """Return the money on lease."""
        return sum(lease.open.get(currency, 0) for lease in self.leases.values())


def update(account: Account, record: KeyRecord | None, operation: Operation, now: int) -> Grant:
    """Carry out an operation at a time in microseconds, and return the grant."""
    now = max(now, account.last)
    account.last = now
    expire(account, now)
    lease = account.leases.get(operation.worker)
    if lease is None:
        if operation.number != 1:
            return Grant("lost", now)
        lease = account.leases[operation.worker] = Lease(0, 0, {}, Grant("ok", now))
    elif lease.number == operation.number:
        return lease.grant
    _report(account, lease, operation, now)
    if record is None or record.revoked is not None:
        grant = Grant("revoked", now)
    else:
        grant = _grant(account, record, lease, operation, now)
    lease.number = operation.number
    lease.expires = now + operation.lease
    lease.grant = grant
    return grant


def expire(account: Account, now: int) -> None:
    """Count the money of leases that have expired as spent."""
    for worker in [worker for worker, lease in account.leases.items() if lease.expires <= now]:
        for currency, units in account.leases.pop(worker).open.items():
            if units > 0:
                account.spent[currency] = account.spent.get(currency, 0) + units


def _report(account: Account, lease: Lease, operation: Operation, now: int) -> None:
    """Take in the outcome of the requests that the worker had."""
    for currency, units in operation.charges.items():
        account.spent[currency] = account.spent.get(currency, 0) + units
    for currency, units in operation.closed.items():
        lease.open[currency] = max(0, lease.open.get(currency, 0) - units)
    for counts, corrections in ((account.requests, operation.request_counts), (account.tokens, operation.token_counts)):
        window.trim(counts, now)
        for index in range(0, len(corrections), 2):
            window.add(counts, corrections[index] or window.slot_of(now), corrections[index + 1])
    account.calls += operation.calls
    account.used += operation.used
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
        unspent = record.budgets.get(currency, 0) - account.spent.get(currency, 0)
        free = max(0, unspent - account.open(currency))
        units = min(need, free)
        units += min(spare, (free - units) // HEADROOM_SHARE)
        lease.open[currency] = lease.open.get(currency, 0) + units
        grant.money.append((currency, units, unspent))
    return grant


def _take(counts: list[int], slot: int, limit: int, need: int, spare: int) -> int:
    """Count what is free of a need, and a little more, and return it."""
    free = max(0, limit - window.total(counts))
    granted = min(need, free) + min(spare, limit // HEADROOM_SHARE, max(0, free - need))
    window.add(counts, slot, granted)
    return granted
