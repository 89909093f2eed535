"""Sum the rows of a bill and the calls of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TypeVar

from cnllm.bills.exports import Export, Kind
from cnllm.bills.reader import BillLine
from cnllm.store.costs import BilledCall

__all__ = ["TOKENS", "BillSum", "LogSum"]

TOKENS = ("prompt", "cached", "cache_write", "cache_write_1h", "output")
"""The counts that both sides have. `prompt` includes what the cache served and what was written to it."""

_WRITES: tuple[Kind, ...] = ("cache_write", "cache_write_5m", "cache_write_1h")
_ZERO = Decimal(0)


class _ExportSum:
    """The rows of one export in a sum. `kinds` are those of the tokens that it counts."""

    def __init__(self, kinds: frozenset[Kind]) -> None:
        self.kinds = kinds
        self.counts: defaultdict[Kind, Decimal] = defaultdict(Decimal)
        self.money: defaultdict[str, Decimal] = defaultdict(Decimal)
        self.list_money: defaultdict[str, Decimal] = defaultdict(Decimal)
        self.slack = _ZERO
        self.is_unknown = False

    def join(self, other: _ExportSum) -> None:
        """Add the rows of another sum."""
        self.slack += other.slack
        self.is_unknown = self.is_unknown or other.is_unknown
        _add(self.money, other.money)
        _add(self.list_money, other.list_money)
        _add(self.counts, other.counts)


K = TypeVar("K")


def _add(sums: defaultdict[K, Decimal], more: Mapping[K, Decimal]) -> None:
    """Add numbers to sums, key by key."""
    for key, number in more.items():
        sums[key] += number


class BillSum:
    """A sum of a bill. Where two exports have the same numbers, those of one count."""

    def __init__(self) -> None:
        self.rates: dict[Kind, set[Decimal]] = {}
        self.tiers: dict[str, None] = {}
        self.is_fee = True
        self._parts: dict[str, _ExportSum] = {}

    def add(self, name: str, export: Export, line: BillLine) -> None:
        """Add a row."""
        part = self._parts.setdefault(name, _ExportSum(_counted_kinds(export)))
        _add(part.counts, line.counts)
        if line.amount is not None and line.currency is not None:
            part.money[line.currency] += line.amount
            part.slack += _rounding(len(export.amount), export.places)
            if line.list_amount is not None:
                part.list_money[line.currency] += line.list_amount
        if line.kind is not None and line.rate is not None and any(line.counts.values()):
            self.rates.setdefault(line.kind, set()).add(line.rate)
        part.is_unknown = part.is_unknown or line.unknown is not None
        self.tiers.update(dict.fromkeys(line.tier))
        tells_kinds = export.kind is not None or bool(export.pattern)
        self.is_fee = self.is_fee and tells_kinds and line.model is not None and not line.counts and line.kind is None

    def join(self, other: BillSum) -> None:
        """Add another sum."""
        for name, theirs in other._parts.items():
            self._parts.setdefault(name, _ExportSum(theirs.kinds)).join(theirs)
        self.is_fee = False

    @property
    def has_content(self) -> bool:
        """Whether anything was charged or counted."""
        return any(any(part.money.values()) or any(part.counts.values()) for part in self._parts.values())

    @property
    def money(self) -> Mapping[str, Decimal]:
        """Return the amounts by currency."""
        return next((part.money for part in self._parts.values() if part.money), {})

    @property
    def list_money(self) -> Mapping[str, Decimal]:
        """Return the amounts before a discount by currency."""
        return next((part.list_money for part in self._parts.values() if part.list_money), {})

    @property
    def slack(self) -> Decimal:
        """Return how far rounded rows can be from their exact sum."""
        return next((part.slack for part in self._parts.values() if part.money), _ZERO)

    @property
    def tokens(self) -> dict[str, Decimal]:
        """Return the counts, of the export with the most kinds of them."""
        counted = [part for part in self._parts.values() if part.counts and not part.is_unknown]
        if not counted:
            return {}
        part = max(counted, key=lambda part: len(part.kinds))
        kinds, counts = part.kinds, part.counts
        sums: dict[str, tuple[Kind, ...]] = {
            "prompt": ("prompt",) if "prompt" in kinds else ("input", "cached", *_WRITES) if "input" in kinds else (),
            "cached": ("cached",) if "cached" in kinds else (),
            "cache_write": _WRITES if kinds & {*_WRITES} else (),
            "cache_write_1h": ("cache_write_1h",) if "cache_write_1h" in kinds else (),
            "output": ("output",) if "output" in kinds else (),
        }
        return {kind: sum((counts.get(part, _ZERO) for part in parts), _ZERO) for kind, parts in sums.items() if parts}

    @property
    def requests(self) -> Decimal | None:
        """Return the number of requests; None where the bill does not have it."""
        numbers = (part.counts.get("requests") for part in self._parts.values())
        return next((number for number in numbers if number is not None), None)


@lru_cache(maxsize=64)
def _rounding(columns: int, places: int) -> Decimal:
    """Return how far the sum of rounded columns can be from the exact one."""
    return Decimal(columns).scaleb(-places) / 2


def _counted_kinds(export: Export) -> frozenset[Kind]:
    """Return the kinds of tokens that an export counts: a day without a row of one has none of it."""
    return frozenset(export.counts or (export.kinds.values() if export.count is not None else ()))


class LogSum:
    """A sum of calls of the log. `incomplete` counts calls whose cost is unknown or leaves something out."""

    def __init__(self) -> None:
        self.calls = 0
        self.incomplete = 0
        self.unpriced = 0
        self.missing: dict[str, None] = {}
        self.money: dict[str, Decimal] = {}
        self.most: dict[str, Decimal | None] = {}
        self.prices: dict[int | None, None] = {}
        self._counts = dict.fromkeys(TOKENS, 0)
        self._unknown: set[str] = set()

    def add(self, call: BilledCall) -> None:
        """Add a call."""
        self.calls += 1
        self.prices[call.price] = None
        usage, cost = call.usage, call.cost
        counts = (usage.input, usage.cached, usage.cache_write, usage.cache_write_1h, usage.output)
        for kind, number in zip(TOKENS, counts, strict=True):
            self._counts[kind] += number or 0
            if number is None:
                self._unknown.add(kind)
        self.incomplete += not call.complete
        self.unpriced += cost is None
        if cost is not None:
            self.missing.update(dict.fromkeys(cost.missing))
            self._add_money(cost.currency, cost.amount, cost.at_most)

    def _add_money(self, currency: str, amount: Decimal, at_most: Decimal | None) -> None:
        self.money[currency] = self.money.get(currency, _ZERO) + amount
        before = self.most.get(currency, _ZERO)
        self.most[currency] = None if before is None or at_most is None else before + at_most

    def join(self, other: LogSum) -> None:
        """Add another sum."""
        self.calls += other.calls
        self.incomplete += other.incomplete
        self.unpriced += other.unpriced
        self.missing.update(other.missing)
        self.prices.update(other.prices)
        for currency, amount in other.money.items():
            self._add_money(currency, amount, other.most[currency])
        for kind in TOKENS:
            self._counts[kind] += other._counts[kind]
        self._unknown |= other._unknown

    def tokens(self, kind: str, theirs: Decimal) -> int | None:
        """Return a count; None where a call did not report it, unless the reported ones are what the bill has."""
        number = self._counts[kind]
        return None if kind in self._unknown and number != theirs else number
