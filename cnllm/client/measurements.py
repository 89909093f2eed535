"""Remember what was seen of the hosts of routes by measurement, and order their targets by it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.cost import Facts, cost_of
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.routed_call import RouteTarget
from cnllm.errors import CnllmError, ContextTooLong, EmptyReply
from cnllm.estimates.host_order import (
    MOST_TURNS,
    Failure,
    HostRecord,
    HostScore,
    HostTurn,
    ReportedTurns,
    RouteState,
    order_hosts,
)
from cnllm.registry.flags import Price
from cnllm.schemas.validate import Undecided, UnusableSchema, validation_errors
from cnllm.system.files import REPORT_BYTES, read_bounded
from cnllm.system.processes import fork_safe
from cnllm.types import Message, Note, Reply, ToolCall, Usage
from cnllm.types.newest import Newest

__all__ = ["Measurements", "RouteChoice", "read_turns"]

_MOST_HOSTS = 256
_MOST_ROUTES = 256
_MOST_CONVERSATIONS = 2048
_TOPIC = 500  # characters of a message by which a conversation is found
_WARM_SECONDS = 600.0  # for which a host's cache is taken to have a conversation
_WARM_SHARE = 0.9  # of the input that it then has
_MEAN_STEP = 1 / 32  # weight of a turn in the means of a route
_TOOL_FIGURES = ("answered", "kept", "valid")
_RECOVERED = frozenset(("again-whole", "reply-continued"))
_WRONG_CALLS = frozenset(("call-not-offered", "tool-choice-ignored", "answer-missing"))

Outcome = Reply | CnllmError
OnTurn = Callable[[RouteTarget, Plan, Outcome, float | None], None]


class _Share(Struct, frozen=True):
    """A share in a report."""

    good: int
    tasks: int


class _Median(Struct, frozen=True):
    """A median in a report."""

    value: float


class _Figures(Struct, frozen=True):
    """The figures of one host in a report, those that a route is ordered by."""

    host: str
    shares: dict[str, _Share]
    first: _Median | None = None


class _Report(Struct, frozen=True):
    """A report of a comparison, as far as a route reads it."""

    form: str
    figures: list[_Figures]


class RouteChoice(Struct, frozen=True):
    """The last choice of a route: when it was made, who was asked first and why, and the score of each host."""

    time: float
    first: str
    reason: str
    scores: tuple[HostScore, ...]


class _Route(Struct, frozen=True):
    """A route by measurement: the state of its order, its last choice, and the tokens of its usual turn."""

    state: RouteState = RouteState()
    choice: RouteChoice | None = None
    input: float = 4000.0
    output: float = 400.0
    cached: float = 0.0

    def with_usage(self, usage: Usage) -> _Route:
        """Return the route after one more turn; tokens that are not known change nothing."""
        means = {}
        for name in ("input", "output", "cached"):
            if (tokens := getattr(usage, name)) is not None:
                means[name] = getattr(self, name) + _MEAN_STEP * (tokens - getattr(self, name))
        return replace(self, **means)


class Measurements:
    """The turns of the last hour that were seen of hosts, and the order that follows. Safe to share between threads.

    All of it is bounded, and in memory: another process sees its own turns.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns: Newest[str, deque[HostTurn]] = Newest(_MOST_HOSTS)
        self._routes: Newest[tuple[str, ...], _Route] = Newest(_MOST_ROUTES)
        # the last turn of a conversation → who has it, and since when
        self._warm: Newest[int, dict[str, float]] = Newest(_MOST_CONVERSATIONS)
        self._reports: dict[str, Mapping[str, ReportedTurns]] = {}
        self._lock = fork_safe(Lock())

    def order(
        self, targets: Sequence[RouteTarget], history: Sequence[Message], report: str | PathLike[str] | None
    ) -> tuple[list[RouteTarget], Note | None, OnTurn | None]:
        """Return the targets in their order, the note on it, and what takes in the outcome of each.

        Those that cannot serve the request are last. With fewer than two others there is nothing to choose.
        """
        able = [target for target in targets if target.obstacle is None]
        if len(able) < 2:
            return list(targets), None, None
        last = next((message for message in reversed(history) if message.role == "assistant"), None)
        topic = next((message.text[:_TOPIC] for message in history if message.role == "user"), "")
        with self._lock:
            reported = {} if report is None else self._read_report(fspath(report))
            now, keys = self._clock(), tuple(target.key for target in able)
            route = self._routes.get(keys) or _Route()
            times = {} if last is None else self._warm.get(_turn_key(topic, last), {})
            times = {key: at for key, at in times.items() if now - at < _WARM_SECONDS}
            warm = [keys.index(key) for key in reversed(times) if key in keys]
            hosts = [
                HostRecord(target.model.name, tuple(self._turns.get(key, ())), reported.get(target.model.name), *costs)
                for target, key, costs in zip(able, keys, _costs(able, route), strict=True)
            ]
            order = order_hosts(hosts, route.state, now, warm=warm, is_begun=last is not None)
            first = able[order.numbers[0]].model.name
            choice = RouteChoice(time.time(), first, order.reason, order.scores)
            self._routes[keys] = replace(route, state=order.state, choice=choice)
        note = Note(
            "route-measured", "route", "; ".join(map(str, order.scores)), f"{first} is asked first: {order.reason}"
        )
        chosen = [able[number] for number in order.numbers]
        return [*chosen, *(t for t in targets if t.obstacle is not None)], note, partial(self._take, keys, topic, times)

    def _take(
        self,
        keys: tuple[str, ...],
        topic: str,
        times: dict[str, float],
        target: RouteTarget,
        plan: Plan,
        outcome: Outcome,
        first: float | None,
    ) -> None:
        """Take in the outcome of a turn. An error that no other host would have spared says nothing of this one.

        `times` are those at which hosts wrote the last turns of the conversation.
        """
        if isinstance(outcome, CnllmError) and (not outcome.meaning.elsewhere or isinstance(outcome, ContextTooLong)):
            return
        failure = _failure(outcome, plan)
        with self._lock:
            now = self._clock()
            turns = self._turns.get(target.key) or deque(maxlen=MOST_TURNS)
            turns.append(HostTurn(now, failure, first))
            self._turns[target.key] = turns
            if isinstance(outcome, Reply):
                self._routes[keys] = self._routes.get(keys, _Route()).with_usage(outcome.usage)
                times.pop(target.key, None)  # the last one stands last
                times[target.key] = now
                self._warm[_turn_key(topic, outcome.message)] = times

    def choices(self) -> list[RouteChoice]:
        """Return the last choice of each route, the newest first."""
        with self._lock:
            choices = [route.choice for route in self._routes.values() if route.choice is not None]
        return sorted(choices, key=lambda choice: -choice.time)

    def forget_reports(self) -> None:
        """Read each report again at its next use."""
        self._reports = {}

    def _read_report(self, path: str) -> Mapping[str, ReportedTurns]:
        """Return the turns of a report by host; it is read once. Raise `CnllmError` where it cannot be used."""
        if (known := self._reports.get(path)) is None:
            known = self._reports[path] = read_turns(path)
        return known


def read_turns(path: str) -> dict[str, ReportedTurns]:
    """Return the tool turns of each host in a report of a comparison. Raise `CnllmError` where it cannot be used."""
    try:
        report = msgspec.json.decode(read_bounded(Path(path).expanduser(), REPORT_BYTES), type=_Report)
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CnllmError(
            f"the report {path} of a route cannot be read: {why}", hint="write one with `cnllm compare MODEL -o FILE`"
        ) from error
    turns = {}
    for figures in report.figures:
        shares = [share for name in _TOOL_FIGURES if (share := figures.shares.get(name)) is not None]
        number = max((share.tasks for share in shares), default=0)
        failed = min(number, sum(share.tasks - share.good for share in shares))
        turns[figures.host] = ReportedTurns(number, failed, None if figures.first is None else figures.first.value)
    return turns


def _turn_key(topic: str, turn: Message) -> int:
    """Return what a conversation is found by at its next request: its topic, and its last turn as clients repeat it."""
    calls = [(part.name, str(part.arguments)) for part in turn.parts if type(part) is ToolCall]
    return hash((topic, turn.text.strip()[-_TOPIC:], *calls))


def _costs(targets: Sequence[RouteTarget], route: _Route) -> list[list[float | None]]:
    """Return what a turn of a route costs at each target: a usual one, one from its cache, and one that is new there.

    All are None where prices cannot be compared: one is unknown, or there are two currencies.
    """
    input, now = round(route.input), time.time()
    kinds = [min(round(route.cached), input), round(_WARM_SHARE * input), 0]
    usages = [Usage(input=input, output=round(route.output), cached=cached) for cached in kinds]
    prices = [target.model.flags.price for target in targets]
    if len({None if price is None else price.currency for price in prices}) > 1:
        return [[None] * len(kinds)] * len(prices)
    return [[_amount(usage, price, now) for usage in usages] for price in prices]


def _amount(usage: Usage, price: Price | None, now: float) -> float | None:
    """Return the cost of a turn; without a price of cached input there is no cache."""
    if price is not None and price.cached is None:
        usage = replace(usage, cached=0)
    cost = cost_of(usage, price, now, Facts(by_mark=False))
    return None if cost is None or cost.missing else float(cost.amount)


def _failure(outcome: Outcome, plan: Plan) -> Failure:
    """Return what failed in a turn with this outcome: nothing, the turn itself, or its tool calls."""
    if isinstance(outcome, CnllmError):
        return "tool" if plan.tools and isinstance(outcome, EmptyReply) else "error"
    codes = {note.code for note in outcome.notes}
    if outcome.finish in ("cut", "error") or not codes.isdisjoint(_RECOVERED):
        return "error"
    if not plan.tools:
        return ""
    if outcome.incomplete or not codes.isdisjoint(_WRONG_CALLS):
        return "tool"
    schemas = {tool.name: tool.parameters for tool in plan.tools}
    is_wrong = any(not call.excluded and not _is_valid(call, schemas.get(call.name)) for call in outcome.tool_calls)
    return "tool" if is_wrong else ""


def _is_valid(call: ToolCall, schema: dict[str, Any] | None) -> bool:
    """Whether a call can be executed, as far as its schema tells."""
    if call.arguments is None:
        return False
    try:
        return not schema or not validation_errors(call.arguments, schema)
    except (UnusableSchema, Undecided, ValueError):
        return True
