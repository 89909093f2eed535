"""Sum the tokens and the cost of logged turns. A sum with an unknown part is a lower bound, and is marked as such."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from cnllm.errors import ERRORS, EndpointError
from cnllm.store.records import TurnError, stored_cost, sum_by_currency
from cnllm.store.text import as_text, from_json
from cnllm.types import Cost, Note, Usage
from cnllm.types.totals import UNKNOWN_REQUEST, is_counted
from cnllm.types.totals import sum_costs as add_costs

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = [
    "BilledCall",
    "CostReport",
    "CostRow",
    "Grouping",
    "billed_calls",
    "reply_numbers",
    "stored_prices",
    "sum_costs",
]

Grouping = Literal["model", "provider", "key", "day", "conversation", "tag"]

_FREE = {name for name, error in ERRORS.items() if error.class_meaning.charged is False}
"""Errors of requests that were not sent, or that the endpoint refused before it did any work. They cost nothing."""

_ANSWERED = {name for name, error in ERRORS.items() if issubclass(error, EndpointError)}
"""Errors that an endpoint reported: others say themselves whether the request was sent."""

_REPEATED = ("again-whole", "step-again")
"""Codes of notes on a request that was cut and made again. Nobody counted the tokens of the first one."""

_NO_TAG = "(no tag)"
_NO_KEY = "(no key)"
_COST_COLUMNS = (
    "usage, cost, currency, bill, error, notes, "
    "EXISTS (SELECT 1 FROM messages WHERE turn = turns.id AND role = 'assistant')"
)


class CostRow(Struct, frozen=True, kw_only=True):
    """The turns of one model, provider, key, day, tag or conversation. `label` names it; it is "" for all turns.

    `unknown` counts turns whose cost is unknown or not complete, `uncounted` those with unknown tokens,
    `uncounted_cached` those with unknown tokens from the cache. Where one is not 0, the sums are lower bounds. `exact`
    is false where a cost is unknown.
    """

    label: str
    turns: int
    input: int
    cached: int
    output: int
    uncounted: int
    uncounted_cached: int
    cost: list[Cost]
    unknown: int
    exact: bool


class CostReport(Struct, frozen=True, kw_only=True):
    """The rows, and their sum. `free` counts simulated and replayed turns, which are in no row."""

    by: Grouping
    rows: list[CostRow]
    total: CostRow
    free: int


class _TurnCost(Struct, frozen=True):
    usage: Usage | None
    cost: Cost | None
    complete: bool
    repeated: bool = False


_NO_CHARGE = _TurnCost(Usage(input=0, output=0, cached=0), None, True)


def sum_costs(
    file: DatabaseFile, by: Grouping, since: str | None = None, conversation: str | None = None
) -> CostReport:
    """Sum the turns that were sent to endpoints: since a time (ISO 8601, UTC), of one conversation, or all."""
    groups: dict[str, list[_TurnCost]] = {}
    free = 0
    for label, turn in _turns(file, by, since, conversation):
        if turn is None:
            free += 1
        else:
            groups.setdefault(label, []).append(turn)
    rows = [_row(label, turns) for label, turns in groups.items()]
    total = _row("", [turn for turns in groups.values() for turn in turns])
    if by == "model":
        rows.sort(key=lambda row: (-max((cost.amount for cost in row.cost), default=Decimal(0)), -row.turns, row.label))
    return CostReport(by=by, rows=rows, total=total, free=free)


def _turns(
    file: DatabaseFile, by: Grouping, since: str | None, conversation: str | None
) -> Iterator[tuple[str, _TurnCost | None]]:
    """Yield the turns in order, with their labels; None for one that cost nothing, because no endpoint was asked."""
    conditions = [("began >= ?", since), ("conversation = ?", conversation)]
    values = [value for _, value in conditions if value is not None]
    where = " AND ".join(condition for condition, value in conditions if value is not None) or "1"
    query = f"SELECT conversation, began, model, tag, key, origin, {_COST_COLUMNS} FROM turns WHERE {where} ORDER BY id"
    for id_, began, model, tag, key, origin, *charge in file.execute(query, *values):
        if origin in ("simulated", "replayed"):
            yield "", None
            continue
        labels = {"model": as_text(model), "conversation": as_text(id_), "tag": as_text(tag) or _NO_TAG}
        labels["provider"] = labels["model"].partition("/")[0]
        labels["key"] = as_text(key) or _NO_KEY
        yield labels.get(by) or _local_day(as_text(began)), _charge(*charge) or _NO_CHARGE


def _charge(
    usage: object, amount: object, currency: object, bill: object, error: object, notes: object, has_reply: object
) -> _TurnCost | None:
    """Return what the columns of a turn say of its cost; None for one that no endpoint charges.

    The cost of a turn that failed is that of the steps before.
    """
    if _is_free(error) and not (amount or usage or has_reply):
        return None
    codes = _note_codes(notes)
    # a note without a bill is of an earlier version: the most that it may have cost
    cost = None if "price-peak" in codes and bill is None else _cost(amount, currency, bill)
    repeated = not codes.isdisjoint(_REPEATED)
    is_complete = cost is not None and cost.complete and not error and not repeated
    return _TurnCost(_decode(usage, Usage), cost, is_complete, repeated)


def _row(label: str, turns: list[_TurnCost]) -> CostRow:
    counts = dict.fromkeys(("input", "cached", "output"), 0)
    uncounted = uncounted_cached = 0
    for turn in turns:
        usage = turn.usage or Usage()
        is_partial = turn.repeated or (turn.cost is not None and UNKNOWN_REQUEST in turn.cost.missing)
        uncounted += is_partial or (turn is not _NO_CHARGE and not is_counted(usage))
        uncounted_cached += usage.cached is None or is_partial
        for name in counts:
            counts[name] += getattr(usage, name) or 0
    unknown = sum(not turn.complete for turn in turns)
    return CostRow(
        label=label,
        turns=len(turns),
        **counts,
        uncounted=uncounted,
        uncounted_cached=uncounted_cached,
        cost=sorted(_sums(turns), key=lambda cost: cost.currency),
        unknown=unknown,
        exact=unknown == 0,
    )


def _sums(turns: list[_TurnCost]) -> list[Cost]:
    """Return the sums of the known costs. Where a turn has a part that nobody knows, each sum names it."""
    sums = sum_by_currency(turn.cost for turn in turns)
    if not any(not turn.complete and (turn.cost is None or turn.cost.complete) for turn in turns):
        return sums
    return [total for cost in sums if (total := add_costs([cost, None])) is not None]


def _is_free(error: object) -> bool:
    """Whether a turn ended with an error that no endpoint charges."""
    failure = _decode(error, TurnError)
    if failure is None or failure.charged:
        return False
    return failure.type in _FREE or (failure.charged is False and failure.type not in _ANSWERED)


def _note_codes(notes: object) -> set[str]:
    """Return the codes of a turn's notes that matter here."""
    if not isinstance(notes, str) or not any(code in notes for code in (*_REPEATED, "price-peak")):
        return set()
    return {note.code for note in _decode(notes, list[Note]) or ()}


def _decode(data: object, kind: type[Any]) -> Any:
    """Return a stored value; None where it is absent or damaged."""
    if not isinstance(data, str | bytes) or not data:
        return None
    try:
        return from_json(data, kind)
    except (ValueError, TypeError, RecursionError):
        return None


def _cost(amount: object, currency: object, bill: object) -> Cost | None:
    try:
        return stored_cost(amount, currency, bill)
    except ValueError:
        return None


def _local_day(time: str) -> str:
    try:
        return datetime.datetime.fromisoformat(time).astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return "unknown"


# ── calls that a bill must have ──────────────────────────────────────────────


class BilledCall(Struct, frozen=True, kw_only=True):
    """A turn that an endpoint may have charged. `price` is the number of the price in force; see `stored_prices`.

    `complete` is false where `cost` is unknown or leaves something out.
    """

    number: int
    began: str
    model: str
    reply_id: str | None
    reply_model: str | None
    usage: Usage
    cost: Cost | None
    complete: bool
    price: int | None


_BILLED_ROWS = 2000  # that are read at once


def billed_calls(file: DatabaseFile, providers: Sequence[str], since: str, until: str) -> Iterator[BilledCall]:
    """Yield the turns of providers that began between two times (ISO 8601, UTC).

    Requests that were not sent, or that the endpoint refused before it did any work, are left out.
    """
    columns = f"id, began, model, reply_id, reply_model, price, {_COST_COLUMNS}"
    where = "id > ? AND origin = 'endpoint' AND began >= ? AND began < ? AND " + _provider_condition(providers)
    last = 0
    while True:
        query = f"SELECT {columns} FROM turns WHERE {where} ORDER BY id LIMIT {_BILLED_ROWS}"
        rows = file.execute(query, last, since, until, *providers)
        for row in rows:
            if (call := _billed_call(row)) is not None:
                yield call
        if len(rows) < _BILLED_ROWS:
            return
        last = rows[-1][0]


def reply_numbers(file: DatabaseFile, providers: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the turns of providers by the id that the endpoint gave the reply."""
    condition = f"origin = 'endpoint' AND reply_id IS NOT NULL AND {_provider_condition(providers)}"
    return {
        as_text(id_): number
        for id_, number in file.execute(f"SELECT reply_id, id FROM turns WHERE {condition}", *providers)
    }


def stored_prices(file: DatabaseFile) -> dict[int, str]:
    """Return the prices that were in force for turns, as JSON."""
    return {number: as_text(data) for number, data in file.execute("SELECT id, data FROM prices")}


def _provider_condition(providers: Sequence[str]) -> str:
    return f"substr(model, 1, instr(model, '/') - 1) IN ({', '.join('?' * len(providers))})"


def _billed_call(row: Sequence[Any]) -> BilledCall | None:
    number, began, model, reply_id, reply_model, price, *charge = row
    if (found := _charge(*charge)) is None:
        return None
    return BilledCall(
        number=number,
        began=as_text(began),
        model=as_text(model),
        reply_id=as_text(reply_id) or None,
        reply_model=as_text(reply_model) or None,
        usage=found.usage or Usage(),
        cost=found.cost,
        complete=found.complete,
        price=price if type(price) is int else None,
    )
