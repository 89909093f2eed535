"""Records read from the store, as --json prints them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from cnllm.store.text import as_json, as_text, from_json
from cnllm.system import processes
from cnllm.types import Cost, Note, ToolCall, Usage
from cnllm.types.totals import sum_costs

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "WHOLE_FINISHES",
    "ConversationSummary",
    "Origin",
    "PrefixBreak",
    "PrefixRecord",
    "RecordedConversation",
    "RecordedTurn",
    "SearchHit",
    "State",
    "TurnError",
    "cost_columns",
    "price_column",
    "state_of",
    "stored_cost",
    "sum_by_currency",
]

State = Literal["done", "partial", "failed", "interrupted", "running"]
"""A whole answer; a partial answer; no answer; ended on this side; still running."""

Origin = Literal["endpoint", "simulated", "replayed"]
"""The source of the answer."""

WHOLE_FINISHES = ("stop", "tool_calls")
"""The finishes of a whole answer."""

_SLACK = 2.0  # seconds; systems say when they began in whole seconds


class TurnError(Struct, frozen=True, omit_defaults=True):
    """The error of a turn. `charged`: whether the endpoint may charge it; null is what errors of its type say."""

    type: str
    message: str
    charged: bool | None = None


class PrefixBreak(Struct, frozen=True):
    """The first part that differed: its place in the body, the cause in words, and both texts, shortened."""

    where: str
    cause: str
    before: str | None
    after: str | None


class PrefixRecord(Struct, frozen=True, kw_only=True):
    """Whether a request of a gateway's client began as the one before it; `kept` is null for the first one.

    `lost` is about the number of tokens that no cache could serve, and `cost` how much more they cost; null is unknown.
    """

    kept: bool | None = None
    broken: PrefixBreak | None = None
    lost: int | None = None
    cost: Cost | None = None


class RecordedTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn. `messages` are as `Message.to_dict` gives them; `exchanges` are lines of a cassette.

    `registry` is the version of the data on the endpoint; null where there was no reply. A turn with `client` has no
    messages: the protocol of a gateway's client, whose key has the name `key`, or "library" or "batch".
    """

    number: int
    began: str
    model: str
    origin: Origin
    state: State
    messages: list[dict[str, Any]]
    protocol: str | None = None
    base_url: str | None = None
    finish: str | None = None
    raw_finish: str | None = None
    reply_id: str | None = None
    reply_model: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    seconds: float | None = None
    error: TurnError | None = None
    notes: list[Note] = []
    incomplete: list[ToolCall] = []
    registry: str | None = None
    exchanges: list[dict[str, Any]] = []
    client: str | None = None
    tag: str | None = None
    key: str | None = None
    prefix: PrefixRecord | None = None


class RecordedConversation(Struct, frozen=True, kw_only=True):
    """A whole conversation."""

    id: str
    began: str
    turns: list[RecordedTurn]


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """A conversation in a listing. `origins` and `models` are in the order of their first turns.

    `cost` is what endpoints may have charged, by currency. Where the cost of a turn is unknown, no sum is complete.
    """

    id: str
    began: str
    last: str
    turns: int
    models: list[str]
    origins: list[Origin]
    state: State
    prompt: str
    cost: list[Cost]


class SearchHit(Struct, frozen=True, kw_only=True):
    """A message that contains all words of a search."""

    conversation: str
    turn: int
    began: str
    model: str
    role: str
    where: Literal["text", "reasoning"]
    excerpt: str


def cost_columns(cost: Cost | None) -> dict[str, str | None]:
    """Return the columns of a cost. `bill` is there for more than an amount: missing parts, or the endpoint's bill."""
    if cost is None:
        return {"cost": None, "currency": None, "bill": None}
    bill = None if cost.complete and cost.by == "registry" else as_json(cost)
    return {"cost": str(cost.amount), "currency": cost.currency, "bill": bill}


def price_column(connection: sqlite3.Connection, price: object) -> int | None:
    """Return the column of the price in force, the number of its row; None where the registry has none.

    Each price stands in the file once: it is longer than the rest of a call.
    """
    if price is None:
        return None
    data = as_json(price)
    connection.execute("INSERT OR IGNORE INTO prices (data) VALUES (?)", (data,))
    number: int = connection.execute("SELECT id FROM prices WHERE data = ?", (data,)).fetchone()[0]
    return number


def stored_cost(amount: object, currency: object, bill: object = None) -> Cost | None:
    """Return the cost in three columns; None where there is none. Raise `ValueError` for a damaged one."""
    if amount is None or currency is None:
        return None
    if bill is not None:
        try:
            cost: Cost = from_json(as_text(bill), Cost)
            return cost
        except (ValueError, TypeError, RecursionError):
            raise ValueError("the cost is damaged") from None
    try:
        decimal = Decimal(as_text(amount))
    except InvalidOperation:
        decimal = Decimal("NaN")
    if not decimal.is_finite():
        raise ValueError("the cost is not a number")
    return Cost(decimal, as_text(currency))


def sum_by_currency(costs: Iterable[Cost | None]) -> list[Cost]:
    """Return the sum of the known costs in each currency, in the order in which the currencies occur."""
    groups: dict[str, list[Cost]] = {}
    for cost in filter(None, costs):
        groups.setdefault(cost.currency, []).append(cost)
    return [total for group in groups.values() if (total := sum_costs(group)) is not None]


def state_of(state: str, process: int | None, began: str) -> State:
    """Return the state of a turn. A pending turn is running, unless its process has ended."""
    if state == "pending":
        return "running" if type(process) is int and process > 0 and _runs_since(process, began) else "interrupted"
    return state if state in get_args(State) else "interrupted"  # type: ignore[return-value]


def _runs_since(process: int, began: str) -> bool:
    """Whether a process runs, and is not a later one with the same number: a container's first process has 1."""
    if not processes.is_alive(process):
        return False
    start = processes.start_time(process)
    try:
        return start is None or start < datetime.datetime.fromisoformat(began).timestamp() + _SLACK
    except ValueError:
        return True
