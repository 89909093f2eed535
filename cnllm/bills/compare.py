"""Compare the calls of the log with a bill: by request where the bill has their ids, else by the sums that it has."""

from __future__ import annotations

import datetime
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cnllm.bills.causes import BillCause, PriceBook, Variants, find_causes
from cnllm.bills.exports import Export
from cnllm.bills.files import BillFiles
from cnllm.bills.reader import BillLine, BillTable, find_table
from cnllm.bills.sums import BillSum, LogSum
from cnllm.bills.times import Period, seconds_of
from cnllm.errors import CnllmError
from cnllm.store.costs import BilledCall, billed_calls, reply_numbers, stored_prices

if TYPE_CHECKING:
    from cnllm.registry.flags import Price
    from cnllm.store.file import DatabaseFile

__all__ = ["BillCause", "BillReport", "BillRow", "BillState", "BillTotal", "compare_bill"]

BillState = Literal["matched", "bill-only", "ours-only", "different"]
_PRECISION = 100  # digits of sums
_VERSION = re.compile(r"-(?:latest|preview|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{8}|\d{6}|\d{4})$")
_DAY = 24 * 3600 * 1000
_MOST_WORDS = 20  # that are named
_SHIFT_SLACK = Decimal("0.000001")

_Key = tuple[Period, str | None]


class BillRow(Struct, frozen=True, kw_only=True):
    """One sum of the bill and of the log in one currency. `period` is a day, a month or a span in the bill's zone.

    `model` is "" where the bill does not name models, and `id` that of a single request. `ours` is the amount of the
    log, and `calls` the number of its calls. `tokens` has the counts of both by kind. null is unknown.
    """

    period: str
    model: str
    id: str | None
    state: BillState
    currency: str | None
    bill: Decimal | None
    ours: Decimal | None
    difference: Decimal | None
    calls: int
    tokens: dict[str, tuple[Decimal | None, int | None]]
    causes: list[BillCause]


class BillTotal(Struct, frozen=True, kw_only=True):
    """The rows of a state in a currency."""

    state: BillState
    currency: str | None
    rows: int
    bill: Decimal
    ours: Decimal


class BillReport(Struct, frozen=True, kw_only=True):
    """The comparison. `exports` names what was read, `periods` the first and the last one of the bill.

    `undated` counts rows without a time, which are totals, and `foreign` those of other products. `unknown` are words
    for kinds of tokens that the export does not describe: the tokens of their sums are not compared. `unread` are files
    that are no known export. `overlaps` are pairs of files with rows for the same time, which may count twice.
    """

    exports: list[str]
    periods: list[str]
    rows: list[BillRow]
    totals: list[BillTotal]
    undated: int
    foreign: int
    unknown: list[str]
    unread: list[str]
    repeated: list[str]
    overlaps: list[tuple[str, str]]

    @property
    def agrees(self) -> bool:
        """Whether all of the bill and of the log agree. A bill of which every row is left out agrees with nothing."""
        is_empty = not self.rows and bool(self.undated or self.foreign)
        return not is_empty and all(row.state == "matched" for row in self.rows)


def compare_bill(
    file: DatabaseFile,
    path: str,
    exports: Sequence[Mapping[str, Export]],
    price_now: Callable[[str], Price | None],
    since: str | None = None,
) -> BillReport:
    """Compare the log with a bill: a file, a folder or a ZIP archive. `price_now` returns today's price of a model.

    A table is one of the first `exports` that it fits, so that those of the user come first. `since` leaves out times
    before it (ISO 8601, UTC). Raises `CnllmError` for a bill that cannot be read.
    """
    with localcontext(prec=_PRECISION), BillFiles(path) as files:
        tables, unread, repeated = _known_tables(files, exports)
        bills: dict[tuple[str, ...], _Bill] = {}
        overlaps = _Overlaps()
        for table in tables:
            bill = bills.setdefault(tuple(table.export.providers), _Bill(file, table.export.providers))
            bill.read(table, overlaps, _milliseconds(since) if since else None)
        rows = [row for bill in bills.values() for row in bill.rows(price_now)]
        periods = sorted({period for bill in bills.values() for period in bill.periods})
        return BillReport(
            exports=list(dict.fromkeys(table.export.title for table in tables)),
            periods=[periods[0].label, periods[-1].label] if periods else [],
            rows=rows,
            totals=_totals(rows),
            undated=sum(table.undated for table in tables),
            foreign=sum(table.foreign for table in tables),
            unknown=sorted({word for bill in bills.values() for word in bill.unknown}),
            unread=unread,
            repeated=repeated,
            overlaps=overlaps.pairs,
        )


def _known_tables(
    files: BillFiles, exports: Sequence[Mapping[str, Export]]
) -> tuple[list[BillTable], list[str], list[str]]:
    """Return the tables of known exports, the names of other files, and those of files with the bytes of another."""
    tables: list[BillTable] = []
    repeated: list[str] = []
    seen: set[bytes] = set()
    candidates = files.tables()
    unread = files.others
    for candidate in candidates:
        digest, encoding = candidate.content()
        if digest in seen:
            repeated.append(candidate.name)
            continue
        seen.add(digest)
        table = next((table for known in exports if (table := find_table(candidate, encoding, known))), None)
        if table is None:
            unread.append(candidate.name)
        else:
            tables.append(table)
    if not tables:
        known = ", ".join(sorted({export.title.partition(",")[0] for known in exports for export in known.values()}))
        hint = f"known are exports of {known}; describe the columns of another one: --columns FILE"
        raise CnllmError(f"{files.path}: its columns are those of no known export", hint=hint)
    return tables, unread, repeated


class _Overlaps:
    """Finds files of one export that have rows for the same time."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._files: dict[tuple[str, Period], str] = {}

    def add(self, table: BillTable, period: Period) -> None:
        """Take in a row of a table."""
        other = self._files.setdefault((table.name, period), table.file.name)
        if other != table.file.name and (other, table.file.name) not in self.pairs:
            self.pairs.append((other, table.file.name))


class _Bill:
    """The bill of one vendor, and the calls of the log that it must have."""

    def __init__(self, file: DatabaseFile, providers: list[str]) -> None:
        self._file = file
        self._providers = providers
        self._sums: dict[_Key, BillSum] = {}
        self._requests: dict[int, tuple[_Key, str, BillSum]] = {}
        self._numbers: dict[str, int] | None = None
        self.unknown: set[str] = set()
        self._labels: dict[str, str] = {}
        self._billed_names: set[str] = set()
        self._named_periods: set[Period] = set()

    @property
    def periods(self) -> set[Period]:
        """Return the times that the bill has rows for."""
        return {period for period, _ in [*self._sums, *(key for key, _, _ in self._requests.values())]}

    def read(self, table: BillTable, overlaps: _Overlaps, since: int | None) -> None:
        """Add the rows of a table to the sums, or to the request that they are for."""
        for line in table.lines():
            if since is not None and line.period.start < since:
                continue
            overlaps.add(table, line.period)
            if line.unknown is not None and len(self.unknown) < _MOST_WORDS:
                self.unknown.add(line.unknown)
            self._sum(line).add(table.name, table.export, line)

    def _sum(self, line: BillLine) -> BillSum:
        name = None if line.model is None else _plain_name(line.model)
        if name is not None and line.model is not None:
            self._labels.setdefault(name, line.model)
            self._billed_names.add(name)
            self._named_periods.add(line.period)
        key = (line.period, name)
        if line.id is not None:
            if self._numbers is None:
                self._numbers = reply_numbers(self._file, self._providers)
            if (number := self._numbers.get(line.id)) is not None:
                return self._requests.setdefault(number, (key, line.id, BillSum()))[2]
        return self._sums.setdefault(key, BillSum())

    def rows(self, price_now: Callable[[str], Price | None]) -> list[BillRow]:
        """Return the rows, in the order of time and model."""
        if not (periods := sorted(self.periods)):
            return []
        logs: dict[_Key, LogSum] = {}
        requests: dict[int, LogSum] = {}
        for call, keys in self._calls(periods):
            if call.number in self._requests:
                requests.setdefault(call.number, LogSum()).add(call)
            for key in keys:
                logs.setdefault(key, LogSum()).add(call)
        found = [*self._request_pairs(requests)]
        both = dict.fromkeys([*(key for key, bill in self._sums.items() if bill.has_content), *logs])
        found += [_SumPair(key, None, key, self._sums.get(key), logs.get(key)) for key in both]
        found.sort(key=lambda pair: (pair.key[0], pair.key[1] or "", pair.id or ""))
        book = PriceBook(stored_prices(self._file), price_now)
        variants: dict[_Key | int, Variants] = {
            pair.origin: Variants(book)
            for pair in found
            if pair.origin is not None and pair.bill is not None and pair.log is not None and pair.state == "different"
        }
        if variants:
            for call, keys in self._calls(periods):
                for origin in (call.number, *keys):
                    if origin in variants:
                        variants[origin].add(call)
        rows: list[BillRow] = []
        for pair in found:
            rows += self._bill_rows(pair, book, None if pair.origin is None else variants.get(pair.origin))
        for find in (_find_shifts, _find_fees, _find_names):
            for places, cause in [*find(rows)]:
                for place in places:
                    rows[place] = replace(rows[place], causes=[cause, *rows[place].causes])
        return rows

    def _request_pairs(self, requests: Mapping[int, LogSum]) -> Iterator[_SumPair]:
        """Yield the sums of the requests that agree, and each one that does not."""
        equal: dict[_Key, tuple[BillSum, LogSum]] = {}
        for number, (key, id_, bill) in self._requests.items():
            pair = _SumPair(key, id_, number, bill, requests.get(number))
            if pair.state != "matched" or pair.log is None:
                yield pair
                continue
            both = equal.setdefault(key, (BillSum(), LogSum()))
            both[0].join(bill)
            both[1].join(pair.log)
        for key, both in equal.items():
            yield _SumPair(key, None, None, *both)

    def _names(self, call: BilledCall, period: Period) -> Iterator[str | None]:
        """Yield the sums of a time that a call belongs to: that of its model, and that of all models."""
        if (period, None) in self._sums:
            yield None
            if period not in self._named_periods:
                return
        own = call.model.partition("/")[2]
        candidates = [_plain_name(name) for name in (own, call.reply_model) if name]
        name = next((name for name in candidates if name in self._billed_names), candidates[0])
        self._labels.setdefault(name, own)
        yield name

    def _calls(self, periods: list[Period]) -> Iterator[tuple[BilledCall, list[_Key]]]:
        """Yield the calls that the bill must have, each with the sums that it belongs to."""
        calendar, first, last = _Calendar(periods), periods[0].start, max(period.end for period in periods)
        wide = _DAY if self._requests else 0  # a request near the first or the last midnight has its id, too
        for call in billed_calls(self._file, self._providers, _iso_time(first - wide), _iso_time(last + wide)):
            time = _milliseconds(call.began)
            if call.number in self._requests:
                yield call, []
            elif first <= time < last:
                yield call, [(period, name) for period in calendar.find(time) for name in self._names(call, period)]

    def _bill_rows(self, pair: _SumPair, book: PriceBook, variants: Variants | None) -> Iterator[BillRow]:
        (period, name), bill, log = pair.key, pair.bill, pair.log
        for currency in _currencies(bill, log):
            amount = bill.money.get(currency) if bill is not None and currency is not None else None
            own = log.money.get(currency) if log is not None and currency is not None else None
            yield BillRow(
                period=period.label,
                model="" if name is None else self._labels.get(name, name),
                id=pair.id,
                state=pair.state,
                currency=currency,
                bill=_tidy(amount),
                ours=_tidy(own),
                difference=None if amount is None or own is None else _tidy(amount - own),
                calls=0 if log is None else log.calls,
                tokens=_tokens(bill, log),
                causes=[] if pair.state == "matched" else find_causes(bill, log, currency, book, variants),
            )


class _SumPair(NamedTuple):
    """A sum of the bill and that of the log. `origin` names the calls; None where they agree."""

    key: _Key
    id: str | None
    origin: _Key | int | None
    bill: BillSum | None
    log: LogSum | None

    @property
    def state(self) -> BillState:
        """Return whether they agree."""
        bill, log = self.bill, self.log
        if bill is None or not bill.has_content:
            return "ours-only"
        if log is None or not log.calls:
            return "bill-only"
        counts = _tokens(bill, log).values()
        if any(ours is not None and theirs is not None and ours != theirs for theirs, ours in counts):
            return "different"
        if not bill.money:
            return "matched" if all(None not in pair for pair in counts) else "different"
        if log.incomplete or {*bill.money} != {*log.money}:
            return "different"
        is_equal = all(abs(amount - log.money[currency]) <= bill.slack for currency, amount in bill.money.items())
        return "matched" if is_equal else "different"


class _Calendar:
    """The times of a bill, and the days between them that it has no row for."""

    def __init__(self, periods: list[Period]) -> None:
        self._periods = periods
        self._starts = [period.start for period in periods]
        self._longest = max(period.end - period.start for period in periods)
        self._first = periods[0]

    def find(self, time: int) -> list[Period]:
        """Return the times of the bill that hold a time; a day of its own where there is none."""
        found = []
        place = bisect_right(self._starts, time) - 1
        while place >= 0 and self._starts[place] > time - self._longest:
            if time < self._periods[place].end:
                found.append(self._periods[place])
            place -= 1
        return found or [self._gap(time)]

    def _gap(self, time: int) -> Period:
        number = (time - self._first.start) // _DAY
        start = self._first.start + number * _DAY
        label = datetime.date.fromisoformat(
            self._first.label[:7] + "-01" if len(self._first.label) == 7 else self._first.label[:10]
        )
        return Period(start, start + _DAY, (label + datetime.timedelta(days=number)).isoformat())


# ── one sum ───────────────────────────────────────────────────────────────────


def _tokens(bill: BillSum | None, log: LogSum | None) -> dict[str, tuple[Decimal | None, int | None]]:
    """Return the counts of the bill, each with that of the log."""
    counts = {} if bill is None else bill.tokens
    return {kind: (_exact(number), 0 if log is None else log.tokens(kind, number)) for kind, number in counts.items()}


def _exact(number: Decimal) -> Decimal:
    """Return a number without zeros behind it and without an exponent."""
    plain = number.normalize()
    return plain.quantize(Decimal(1)) if plain == plain.to_integral_value() else plain


def _tidy(number: Decimal | None) -> Decimal | None:
    return None if number is None else _exact(number)


def _sum(numbers: Iterable[Decimal | None]) -> Decimal:
    return _exact(sum((number for number in numbers if number is not None), Decimal(0)))


def _currencies(bill: BillSum | None, log: LogSum | None) -> list[str | None]:
    money = {**({} if bill is None else bill.money), **({} if log is None else log.money)}
    return [*sorted(money)] or [None]


def _totals(rows: list[BillRow]) -> list[BillTotal]:
    order: tuple[BillState, ...] = ("matched", "different", "bill-only", "ours-only")
    totals = []
    for state, currency in sorted({(order.index(row.state), row.currency or "") for row in rows}):
        members = [row for row in rows if (row.state, row.currency or "") == (order[state], currency)]
        bill, ours = _sum(row.bill for row in members), _sum(row.ours for row in members)
        totals.append(BillTotal(state=order[state], currency=currency or None, rows=len(members), bill=bill, ours=ours))
    return totals


# ── causes of several rows, each with the places of its rows ────────────────────


def _find_shifts(rows: list[BillRow]) -> Iterator[tuple[Sequence[int], BillCause]]:
    """Yield the cause of two differences on neighbouring days that cancel each other: a call near midnight."""
    last: dict[tuple[str, str | None], int] = {}
    for place, row in enumerate(rows):
        key = (row.model, row.currency)
        before = last.get(key)
        last[key] = place
        if before is None or row.id is not None or "matched" in (row.state, rows[before].state):
            continue
        gaps = [(rows[index].bill or Decimal(0)) - (rows[index].ours or Decimal(0)) for index in (before, place)]
        if gaps[0] and abs(gaps[0] + gaps[1]) <= _SHIFT_SLACK:
            cause = BillCause(
                "day", "the day before or after has the opposite difference: a call near midnight", certain=True
            )
            yield (before, place), cause


def _find_fees(rows: list[BillRow]) -> Iterator[tuple[Sequence[int], BillCause]]:
    """Yield the cause of fees in rows of their own: the log has them in the cost of the calls that they are for."""
    groups: dict[tuple[str, str | None], list[int]] = {}
    for place, row in enumerate(rows):
        if row.id is None and row.state in ("different", "bill-only"):
            groups.setdefault((row.period, row.currency), []).append(place)
    for places in groups.values():
        fees = [place for place in places if any(cause.code == "fee" for cause in rows[place].causes)]
        others = [place for place in places if rows[place].difference is not None]
        gap = _sum(rows[place].difference for place in others) + _sum(rows[place].bill for place in fees)
        if fees and others and abs(gap) <= _SHIFT_SLACK:
            cause = BillCause("fee", "the bill has the fees of these calls in rows of their own", certain=True)
            yield (*fees, *others), cause


def _find_names(rows: list[BillRow]) -> Iterator[tuple[Sequence[int], BillCause]]:
    """Yield the cause of a row of either side that have one time and one amount: two names of a model."""
    groups: dict[tuple[str, str | None, Decimal], list[int]] = {}
    for place, row in enumerate(rows):
        amount = row.bill if row.state == "bill-only" else row.ours
        if row.state in ("bill-only", "ours-only") and row.id is None and row.model and amount:
            groups.setdefault((row.period, row.currency, round(amount, 6)), []).append(place)
    for places in groups.values():
        if [rows[place].state for place in places] not in (["bill-only", "ours-only"], ["ours-only", "bill-only"]):
            continue
        for place, other in (places, places[::-1]):
            name = rows[other].model
            if rows[place].state == "bill-only":
                detail = f"the log has the same amount for {name}: it may be another name of the model"
            else:
                detail = f"the bill has the same amount for {name}: it may be another name of the model"
            yield (place,), BillCause("name", detail, certain=True)


@lru_cache(maxsize=1024)
def _plain_name(model: str) -> str:
    """Return the name of a model without its version: vendors bill `Model 4.5` for `model-4-5-20251001`."""
    name = re.sub(r"[^0-9a-z\u0080-\uffff]+", "-", model.casefold()).strip("-")
    while match := _VERSION.search(name):
        name = name[: match.start()]
    return name


def _milliseconds(time: str) -> int:
    return round((seconds_of(time) or 0) * 1000)


def _iso_time(milliseconds: int) -> str:
    time = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return time.isoformat(timespec="milliseconds")
