"""A client's key, and a team of keys: what they may do. Only the hash of a key is stored."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as day_time
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.cost import cost_of_reply
from cnllm.errors import CnllmError
from cnllm.registry.flags import Price
from cnllm.types import Reply
from cnllm.types.checks import matches_pattern

__all__ = [
    "KEY",
    "NAME",
    "PERIODS",
    "KeyRecord",
    "Period",
    "Rights",
    "new_key",
    "period_bounds",
    "team_digest",
    "zone_of",
]

Period = Literal["day", "week", "month"]
PERIODS: tuple[Period, ...] = ("day", "week", "month")
"""The periods after which a budget begins anew."""
_PREFIX = "sk-cnllm-"
KEY = re.compile(re.escape(_PREFIX) + "[A-Za-z0-9_-]{43}")
"""The form of a key: 256 random bits.

A hash of so many random bits cannot be guessed, however fast it is computed. Slow hashes are for passwords that people
choose; here they would only slow each request down.
"""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The form of a name of a key or a team."""


class KeyRecord(Struct, frozen=True):
    """The rights of a key or a team. Times are seconds since 1970, money is units by currency.

    A budget with a period begins anew with each day, week (on Monday) or month of the time zone. `concurrency` is the
    number of requests in flight. `assumed_price` is a currency and the prices of a million tokens of input and output,
    for models whose price is not known. A key that `is_in_file` is valid where a file of the gateway has it.
    """

    name: str
    created: float
    models: tuple[str, ...] = ()
    rpm: int | None = None
    tpm: int | None = None
    budgets: dict[str, int] = {}
    revoked: float | None = None
    expires: float | None = None
    periods: dict[str, Period] = {}
    soft_budgets: dict[str, int] = {}
    time_zone: str = "UTC"
    concurrency: int | None = None
    team: str | None = None
    assumed_price: tuple[str, float, float] | None = None
    kind: Literal["key", "team"] = "key"
    is_in_file: bool = False

    @property
    def stored_name(self) -> str:
        """Return the name in a store, where a key and a team may be called the same."""
        return self.name if self.kind == "key" else team_digest(self.name)

    def allows(self, model: str) -> bool:
        """Whether the key may use a model, by its name "provider/id".

        A pattern with a slash stands for the whole name, one without for an id at any provider.
        """
        if not self.models:
            return True
        id = model.partition("/")[2]
        return any(matches_pattern(model if "/" in pattern else id, pattern) for pattern in self.models)

    def is_expired(self, wall: float) -> bool:
        """Whether the key has expired at a time."""
        return self.expires is not None and self.expires <= wall


class Rights(Struct, frozen=True):
    """The rights of a key: its own and those of its team, which a request must both pass.

    `wall` is the time at which the store was read, by its own clock.
    """

    key: KeyRecord
    team: KeyRecord | None = None
    wall: float = 0.0

    @property
    def records(self) -> tuple[KeyRecord, ...]:
        """Return the record of the key, and that of its team if it has one."""
        return (self.key,) if self.team is None else (self.key, self.team)

    def allows(self, model: str) -> bool:
        """Whether a model may be used, by its name "provider/id"."""
        return all(record.allows(model) for record in self.records)

    def price(self, known: Price | None) -> Price | None:
        """Return the price of a model; where it is not known, the one that the key assumes."""
        if known is not None and None not in (known.currency, known.input, known.output):
            return known
        return known if self.assumed is None else self.assumed

    @property
    def assumed(self) -> Price | None:
        """Return the price that the key assumes where none is known."""
        if self.key.assumed_price is None:
            return None
        currency, input, output = self.key.assumed_price
        return Price(currency=currency, input=input, output=output)

    def with_price(self, reply: Reply, known: Price | None) -> Reply:
        """Return a reply with its cost by the price that the key assumes, where none is known."""
        price = self.price(known)
        if price is None or reply.cost is not None or price is known:
            return reply
        return replace(reply, cost=cost_of_reply(reply, price))


def new_key() -> str:
    """Return a new random key."""
    return _PREFIX + secrets.token_urlsafe(32)


def team_digest(name: str) -> str:
    """Return what a store knows a team by, in the place of a key's digest and of a key's name."""
    return f"team:{name}"


def zone_of(name: str) -> tzinfo:
    """Return a time zone. Raise `CnllmError` for one that this machine does not know."""
    if name == "UTC":  # without the database of time zones, which small images leave out
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        hint = "use a name such as Asia/Shanghai; the package tzdata brings the list of names"
        raise CnllmError(f"the time zone {name!r} is not known on this machine", hint=hint) from error


def period_bounds(period: Period, zone: str, wall: float) -> tuple[int, int]:
    """Return the first second of the day, week or month that a time is in, and that of the next one."""
    place = zone_of(zone)
    start = datetime.fromtimestamp(wall, place).date()
    match period:
        case "day":
            end = start + timedelta(days=1)
        case "week":
            start -= timedelta(days=start.weekday())
            end = start + timedelta(days=7)
        case "month":
            start = start.replace(day=1)
            end = (start + timedelta(days=32)).replace(day=1)
    first, last = (int(datetime.combine(day, day_time(), place).timestamp()) for day in (start, end))
    return first, last
