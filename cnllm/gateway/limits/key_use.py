"""A key or a team with its use, and the account that each is kept in."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from cnllm.errors import CnllmError
from cnllm.estimates.money import format_units
from cnllm.gateway.limits import window
from cnllm.gateway.limits.account import FLIGHTS, Account, Grant, Lease, add_units, advance
from cnllm.gateway.limits.keys import KeyRecord, period_bounds

__all__ = ["KeyUse", "account_of", "name_taken", "no_such_name", "record_data", "use_data", "use_of"]

_decode_account = msgspec.msgpack.Decoder(Account).decode


class KeyUse(Struct, frozen=True):
    """A key or a team and its use so far. Money is units by currency; `last` is seconds since 1970.

    `spent` is the money of the period that began at `starts`, where the budget has one, and `past` that of the periods
    before. `open` is money that running calls hold. `minute_requests` and `minute_tokens` count against the limits of
    now, `flights` are requests in flight. `unpriced` replies have a cost that is not known.
    """

    record: KeyRecord
    spent: dict[str, int] = {}
    open: dict[str, int] = {}
    calls: int = 0
    tokens: int = 0
    unpriced: int = 0
    last: float | None = None
    starts: dict[str, int] = {}
    past: dict[str, int] = {}
    minute_requests: int = 0
    minute_tokens: int = 0
    flights: int = 0
    wall: float = 0.0


def account_of(data: bytes | None) -> Account:
    """Return a stored account; a new one for None. Raise `ValueError` for other data."""
    if not data:
        return Account()
    try:
        account = _decode_account(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        account = _scripted_account(data)
    if not account.seen:  # of a version with one clock, that of the wall
        account.seen = account.last / 1_000_000
    return account


class _ScriptedLease(Struct):
    number: int
    expires: float
    open: dict[str, int] | list[tuple[str, int]]


def _scripted_account(data: bytes) -> Account:
    """Return an account that a script on a Redis server wrote: an empty table is a list there.

    The grants in it, which some versions packed as bytes, are answers to workers that have ended.
    """
    fields = msgspec.msgpack.decode(data, type=dict[str, Raw])
    leases = msgspec.msgpack.decode(
        fields.pop("leases"), type=dict[str, _ScriptedLease] | list[tuple[str, _ScriptedLease]]
    )
    values = {name: value for name, raw in fields.items() if (value := msgspec.msgpack.decode(raw))}
    account = msgspec.convert(values, Account, strict=False)
    for worker, lease in leases.items() if isinstance(leases, dict) else ():
        open = lease.open if isinstance(lease.open, dict) else {}
        account.leases[worker] = Lease(lease.number, int(lease.expires), open, Grant("ok"))
    return account


def use_of(record: KeyRecord, account: Account, now: int, wall: float) -> KeyUse:
    """Return a key with its use, from its account at a time of both clocks."""
    advance(account, record, now, wall)
    open: dict[str, int] = {}
    for lease in account.leases.values():
        for currency, units in lease.open.items():
            add_units(open, currency, units)
    flights = open.pop(FLIGHTS, 0)
    minute = window.total(account.requests), window.total(account.tokens)
    counts = account.calls, account.used, account.unpriced
    return KeyUse(
        record, account.spent, open, *counts, account.seen or None, account.starts, account.past, *minute, flights, wall
    )


def record_data(record: KeyRecord) -> dict[str, Any]:
    """Return the limits of a key or a team as JSON. Amounts are texts."""
    data: dict[str, Any] = msgspec.to_builtins(record)
    for name in ("budgets", "soft_budgets"):
        data[name] = {currency: format_units(units) for currency, units in data[name].items()}
    return data


def use_data(use: KeyUse) -> dict[str, Any]:
    """Return a key or a team with its use as JSON: each limit beside its use."""

    def amounts(units: dict[str, int]) -> dict[str, str]:
        return {currency: format_units(count) for currency, count in sorted(units.items()) if count}

    record = use.record
    bounds = {
        currency: period_bounds(period, record.time_zone, use.wall) for currency, period in record.periods.items()
    }
    state = "revoked" if record.revoked is not None else "expired" if record.is_expired(use.wall) else "in use"
    return {
        **record_data(record),
        "state": state,
        "last_use": use.last,
        "calls": use.calls,
        "tokens": use.tokens,
        "spent": amounts(use.spent),
        "spent_before": amounts(use.past),
        "reserved": amounts(use.open),
        "period_starts": {currency: start for currency, (start, _) in bounds.items()},
        "period_ends": {currency: end for currency, (_, end) in bounds.items()},
        "minute_requests": use.minute_requests,
        "minute_tokens": use.minute_tokens,
        "in_flight": use.flights,
        "unpriced_calls": use.unpriced,
    }


def name_taken(name: str) -> CnllmError:
    """Return the error of a name that a key in use, or a team, has."""
    kind, name = _kind(name)
    hint = "choose another name" if kind == "team" else "choose another name, or revoke that key first"
    return CnllmError(f"a {kind} in use is called {name}", hint=hint)


def no_such_name(name: str) -> CnllmError:
    """Return the error of a name without a key in use, or without a team."""
    kind, name = _kind(name)
    return CnllmError(f"no {kind} in use is called {name}", hint=f"cnllm serve {kind}s list shows the names")


def _kind(name: str) -> tuple[str, str]:
    """Return whose name it is, and the name that the user knows."""
    return ("team", name.removeprefix("team:")) if name.startswith("team:") else ("key", name)
