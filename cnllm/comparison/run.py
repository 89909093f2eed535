"""Ask hosts the tasks, in turns, and judge each reply from the recorded bytes, before anything is repaired."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.cassette import Recorder
from cnllm.cassette.parts import RecordedExchange
from cnllm.client.secret_removal import insert_key, plan_secrets
from cnllm.comparison.tasks import ComparisonTask, RightStep, make_tasks
from cnllm.engine import Plan, StreamParser, build_request
from cnllm.errors import CnllmError, EmptyReply
from cnllm.estimates.money import amount_of, units_of
from cnllm.estimates.worst_case import WorstCase, settled_cost, worst_case
from cnllm.protocols import wire
from cnllm.registry import Registry
from cnllm.registry.flags import Price
from cnllm.registry.model import Model
from cnllm.schemas.validate import validation_errors
from cnllm.tool_trial.trial import MAX_TOKENS, AllowanceSpent, fits_schema
from cnllm.types import (
    Cost,
    Message,
    Reasoning,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from cnllm.types.totals import sum_costs

__all__ = [
    "Budget",
    "ComparisonResult",
    "Host",
    "HostEntry",
    "LiveExchanges",
    "OnResult",
    "TaskChoice",
    "TaskExchange",
    "first_request",
    "open_host",
    "request_hash",
    "run_task",
]

_CONTENT = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta)


class TaskExchange(Struct, frozen=True):
    """One request of a task and the response as it was recorded. `sha256` is the hash of the request."""

    task: str
    step: int
    sha256: str
    recorded: dict[str, Any]

    @property
    def cassette(self) -> RecordedExchange:
        """Return the exchange as the line of a cassette."""
        return msgspec.convert(self.recorded, RecordedExchange)

    def check(self) -> None:
        """Raise `ValueError` for a record that cannot be read."""
        recorded = self.cassette
        if recorded.response is not None and len(recorded.chunks) != len(recorded.response.times):
            raise ValueError(f"the record of {self.task} has not one time for each piece")


class TaskChoice(Struct, frozen=True):
    """The choice of tasks: the seed, the number of tool turns, the longest text, and whether to stop early."""

    seed: int
    turns: int
    most_tokens: int | None = None
    early: bool = False

    @property
    def tasks(self) -> tuple[ComparisonTask, ...]:
        """Return the tasks."""
        return make_tasks(self.seed, self.turns, most_tokens=self.most_tokens)


class HostEntry(Struct, frozen=True):
    """A host in a report. `upstream` is the endpoint behind a router that alone may answer.

    `mixture`: a router chooses the endpoint anew for each request. `same_weights`: whether the registry says that this
    is the model; None where it does not know. `price` is assumed where its own is not known; `stopped` says why it
    ended early.
    """

    name: str
    model: str
    protocol: str
    upstream: str | None
    mixture: bool
    same_weights: bool | None
    price: Price | None = None
    stopped: str | None = None
    exchanges: tuple[TaskExchange, ...] = ()


class Host(Struct, frozen=True):
    """A column of a comparison: the model that is asked, with an assumed price, and what a report says of it."""

    model: Model
    entry: HostEntry

    @property
    def name(self) -> str:
        """Return the name of the column."""
        return self.entry.name


def open_host(entry: HostEntry, registry: Registry) -> Host:
    """Return the host of an entry."""
    model = registry.resolve(entry.model, protocol=entry.protocol)
    model = model if entry.upstream is None else model.pin(entry.upstream)
    price = entry.price
    return Host(model if price is None else model.derive(partial(replace, price=price)), entry)


class ComparisonResult(Struct, frozen=True):
    """The outcome of a task: for each figure that it belongs to, whether it is good, and what was measured.

    `problem` says what is wrong, None where all is right. `lost` counts calls that are missing among those on the
    wire, `recovered` those of them that the host left in the text, from where cnllm reads them, `empty` turns that held
    nothing. A task without marks was not asked. `notes` are the codes of what was changed in the
    request for this host. Times are in seconds, `first` to the first piece of content.
    """

    task: str
    kind: str
    marks: dict[str, bool]
    problem: str | None
    lost: int = 0
    recovered: int = 0
    empty: int = 0
    first: float | None = None
    rate: float | None = None
    cost: str | None = None
    currency: str | None = None
    notes: tuple[str, ...] = ()


Ask = Callable[[ComparisonTask, int, Plan], TaskExchange]
OnResult = Callable[[str, ComparisonResult], object]
"""Called with the name of a host and each result of it."""


class Budget:
    """The money that may be spent, by currency; a currency without a cap has no limit here."""

    def __init__(self, caps: Mapping[str, Decimal]) -> None:
        self._caps = {currency: units_of(amount) for currency, amount in caps.items()}
        self._spent: dict[str, int] = {}

    @property
    def spent(self) -> dict[str, Decimal]:
        """Return what has been spent at most, by currency."""
        return {currency: amount_of(units) for currency, units in self._spent.items()}

    def reserve(self, plan: Plan) -> WorstCase | None:
        """Reserve the most that a request can cost, and return it; None where nothing is reserved.

        Raises `AllowanceSpent` where the cap might be passed.
        """
        worst = worst_case(plan)
        if not self._caps or plan.flags.price is None:
            return None
        currency = worst.currency or ""
        spent, cap = self._spent.get(currency, 0), self._caps.get(currency)
        if worst.cost is None or cap is None or spent + worst.cost > cap:
            raise AllowanceSpent(
                f"the next request to {plan.model.provider} might go beyond --max-cost", hint="allow more"
            )
        self._spent[currency] = spent + worst.cost
        return worst

    def settle(self, reserved: WorstCase | None, reply: Reply | None, *, is_free: bool) -> None:
        """Replace the reserved amount by the cost of the reply, where that is known; by nothing where it `is_free`."""
        cost = 0 if is_free else None if reserved is None else settled_cost(reserved, reply)
        if reserved is not None and cost is not None:
            self._spent[reserved.currency or ""] += cost - (reserved.cost or 0)


class LiveExchanges:
    """Sends requests and records them, without keys and other secrets."""

    def __init__(self, transport: Any, budget: Budget, key: str | None) -> None:
        self._recorded: list[dict[str, Any]] = []
        self._budget = budget
        self._key = key
        self._secrets: tuple[str, ...] = () if key is None else (key,)
        self._warm = getattr(transport, "warm", None)
        self._transport = Recorder(transport, self._recorded.append, lambda: self._secrets)

    def ask(self, task: ComparisonTask, step: int, plan: Plan) -> TaskExchange:
        """Send a request and read the whole response. A failure of the network is recorded, too.

        A connection is opened before, so that its time is not the host's.
        """
        reserved = self._budget.reserve(plan)
        request = insert_key(plan, self._key)
        self._secrets = plan_secrets(request, self._key)
        body: Iterator[bytes] = iter(())
        may_cost = True
        if self._warm is not None:
            self._warm(request)
        try:
            _, _, body = self._transport.send(request)
            for _ in body:
                pass
        except CnllmError as error:  # the recorder has it
            may_cost = error.meaning.charged is not False
        finally:
            if (close := getattr(body, "close", None)) is not None:
                close()
        recorded = self._recorded.pop()
        del recorded["request"]["body"]  # the seed makes it again, and its hash is kept
        exchange = TaskExchange(task.name, step, request_hash(plan), recorded)
        turn = _read(plan, exchange)
        self._budget.settle(reserved, turn.reply, is_free=not (may_cost and turn.may_cost))
        return exchange


def request_hash(plan: Plan) -> str:
    """Return the hash of a request: its method, its address and its body, without the key."""
    text = f"{plan.method} {plan.url}\n".encode() + plan.content
    return hashlib.sha256(text).hexdigest()


def first_request(host: Host, task: ComparisonTask) -> Plan:
    """Return the first request of a task."""
    return _request(host.model, task, _opening(host, task))


def _opening(host: Host, task: ComparisonTask) -> list[Message]:
    """Return the messages before the first request."""
    messages = [Message.user(task.prompt)]
    if task.thought is not None:
        call = ToolCall("call_0", task.tools[0]["function"]["name"], {"digits": 5}, '{"digits": 5}')
        messages += [Message("assistant", (Reasoning(task.thought), call), by=host.model.name)]
        messages += [Message.tool(call.id, '{"ready": true}')]
    return messages


def _request(model: Model, task: ComparisonTask, messages: list[Message]) -> Plan:
    options: dict[str, Any] = {"max_tokens": task.max_tokens or MAX_TOKENS}
    if task.tools:
        options["tools"] = list(task.tools)
    if task.schema is not None:
        options["schema"] = task.schema
    return build_request(model, messages, stream=True, **options)


# ── one task ─────────────────────────────────────────────────────────────────
def run_task(host: Host, task: ComparisonTask, ask: Ask) -> tuple[ComparisonResult, list[TaskExchange]]:
    """Ask a host one task, as far as it goes right. Raise `AllowanceSpent` where the next request may cost too much.

    A host to which cnllm does not send reasoning back is not asked what stands only there.
    """
    messages = _opening(host, task)
    exchanges: list[TaskExchange] = []
    judge = _Judge(task)
    for number, step in enumerate(task.steps):
        plan = _request(host.model, task, messages)
        if task.fact.encode() not in plan.content:
            judge.note(plan)
            break
        exchange = ask(task, number, plan)
        exchanges.append(exchange)
        reply = judge.read(plan, step, _read(plan, exchange))
        if reply is None or judge.problem is not None or number + 1 == len(task.steps):
            break
        messages.append(reply.message)
        order = [call for _, call in sorted(_matches(step, reply.tool_calls))]
        messages += [Message.tool(call.id, text) for call, text in zip(order, step.results, strict=True)]
    return judge.result(), exchanges


class _Turn(Struct, frozen=True):
    """The content of a recorded response: the reply, or the error; and the times.

    `may_cost` is false for a refusal, for which no host asks money.
    """

    reply: Reply | None
    error: str | None
    first: float | None
    seconds: float | None
    may_cost: bool = True


def _read(plan: Plan, exchange: TaskExchange) -> _Turn:
    """Read a recorded response. Nothing but the record and the plan decides, so that a replay reads the same."""
    recorded = exchange.cassette
    response = recorded.response
    if response is None:
        return _Turn(None, "no response" if recorded.error is None else recorded.error.type, None, None)
    parser = StreamParser(plan.model, plan=plan, status=response.status, headers=response.headers)
    first = last = None
    try:
        for chunk, last in zip(recorded.chunks, response.times, strict=True):
            events = parser.feed(chunk)
            if first is None and any(isinstance(event, _CONTENT) for event in events):
                first = last
        parser.end(orderly=recorded.ended == "whole")
        return _Turn(parser.close(), None, first, last)
    except EmptyReply as error:
        return _Turn(error.reply, "the turn came back empty", first, last)
    except CnllmError as error:
        return _Turn(None, type(error).__name__, first, last, error.meaning.charged is not False)


def _matches(step: RightStep, calls: Sequence[ToolCall]) -> list[tuple[int, ToolCall]]:
    """Return the calls with the place of each in the step; a call that the step does not hold is left out."""
    rest = dict(enumerate(step.calls))
    found = []
    for call in calls:
        place = next((place for place, right in rest.items() if right == (call.name, call.arguments)), None)
        if place is not None:
            del rest[place]
            found.append((place, call))
    return found


class _Judge:
    """Judges the replies to one task."""

    def __init__(self, task: ComparisonTask) -> None:
        self._task = task
        self._schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in task.tools}
        self.problem: str | None = None
        self._marks: dict[str, bool] = {}
        self._counts = {"lost": 0, "recovered": 0, "empty": 0}
        self._first: float | None = None
        self._rates: list[float] = []
        self._costs: list[Cost | None] = []
        self._notes: set[str] = set()

    def read(self, plan: Plan, step: RightStep, turn: _Turn) -> Reply | None:
        """Judge one reply."""
        self.note(plan)
        reply = turn.reply
        self._mark("answered", good=reply is not None)
        if reply is None:
            self.problem = turn.error
            self._costs.append(None)
            return None
        self._measure(turn, reply)
        finish = (plan.flags.finish or {}).get(reply.raw_finish or "", reply.finish)
        if step.calls:
            self._judge_calls(plan, step, reply, finish)
        elif self._task.cut:
            self._mark("cut", f"a reply that the limit cut ended with {reply.raw_finish}", good=finish == "length")
        elif self._task.schema is not None:
            self._judge_answer(step, reply)
        else:
            if self._task.tools and len(self._task.steps) == 1 and self._task.thought is None:
                self._mark("restraint", "a tool was called for nothing", good=not reply.tool_calls)
            self._judge_text(step, reply)
        return reply

    def note(self, plan: Plan) -> None:
        """Take up what was changed in a request."""
        self._notes |= {note.code for note in plan.notes}

    def _measure(self, turn: _Turn, reply: Reply) -> None:
        if self._first is None:
            self._first = turn.first
        if turn.first is not None and turn.seconds is not None and turn.seconds > turn.first and reply.usage.output:
            self._rates.append(reply.usage.output / (turn.seconds - turn.first))
        self._costs.append(reply.cost)

    def _judge_calls(self, plan: Plan, step: RightStep, reply: Reply, finish: str) -> None:
        """Judge a reply that has to call. A call counts where it came as one; those read from text are lost ones."""
        on_wire = [call for call in (*reply.tool_calls, *reply.incomplete) if call.via == "wire"]
        lost = [call for call in reply.tool_calls if call.via != "wire"]
        is_empty = not reply.text.strip() and not reply.tool_calls and not reply.incomplete
        if on_wire or lost or is_empty or finish == "tool_calls":  # a plain answer may be the model's choice
            self._counts["lost"] += max(0, len(step.calls) - len(on_wire))
            reason = "the turn came back empty" if is_empty else "a call is missing"
            self._mark("kept", "a call stands in the text" if lost else reason, good=len(on_wire) >= len(step.calls))
        self._counts["recovered"] += len(lost)
        self._counts["empty"] += is_empty
        self._mark("called", "no tool was called", good=bool(on_wire))
        if on_wire:
            no_text = "" if wire(plan.model.protocol).text_arguments else "{}"
            valid = all(fits_schema(call.raw or no_text, self._schemas.get(call.name)) for call in on_wire)
            self._mark("valid", "arguments do not fit their schema", good=valid)
        right = len(_matches(step, reply.tool_calls)) == len(step.calls) == len(reply.tool_calls)
        self._mark(self._task.kind, "not the right calls", good=right and not lost)

    def _judge_answer(self, step: RightStep, reply: Reply) -> None:
        assert self._task.schema is not None
        try:
            answer = msgspec.json.decode(reply.text)
            valid = not validation_errors(answer, self._task.schema)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            answer, valid = None, False
        self._mark("schema", "the answer does not fit the schema", good=valid)
        self._mark("structured", "not the right answer", good=valid and answer == json.loads(step.exactly or ""))

    def _judge_text(self, step: RightStep, reply: Reply) -> None:
        if step.exactly is not None:
            plain = reply.text.replace(",", " ").replace("，", " ").split()
            right = plain == step.exactly.replace(",", " ").split()
        else:
            right = all(word in reply.text.replace(",", "") for word in step.words)
        self._mark(self._task.kind, f"not the right answer: {reply.text[:60]!a}", good=right)

    def _mark(self, figure: str, problem: str | None = None, *, good: bool) -> None:
        self._marks[figure] = self._marks.get(figure, True) and good
        if not good and self.problem is None:
            self.problem = problem

    def result(self) -> ComparisonResult:
        """Return the result."""
        task = self._task
        marks = dict(self._marks)
        if marks.get("answered"):
            marks.setdefault(task.kind, False)  # it ended before its last step
        if task.language == "zh" and task.kind in marks:
            marks["chinese"] = marks[task.kind]
        cost = sum_costs(self._costs)
        return ComparisonResult(
            task=task.name,
            kind=task.kind,
            marks=marks,
            problem=self.problem,
            **self._counts,
            first=self._first,
            rate=round(sum(self._rates) / len(self._rates), 3) if self._rates else None,
            cost=str(cost.amount) if cost is not None and cost.complete else None,
            currency=None if cost is None else cost.currency,
            notes=tuple(sorted(self._notes)),
        )
