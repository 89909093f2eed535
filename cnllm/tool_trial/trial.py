"""Try tasks on a model, with native tools and with tools described in the prompt, and measure the results.

A trial keeps within a number of requests and a sum of money: its transport counts before it sends.

Calls where they belong and calls valid by their schema are the two measures of Moonshot's K2 Vendor Verifier
(https://github.com/MoonshotAI/K2-Vendor-Verifier, "Evaluation Metrics"):

- A reply counts as positive if its finish is `tool_calls`. Precision is TP / (TP + FP), recall TP / (TP + FN), and F1
  their harmonic mean. There the truth is what Moonshot's own API answered to the same request; here it is the script of
  the task, which knows after each result whether another call is needed.
- Schema accuracy is the share of the replies that called in which the arguments of every call are JSON and fit the
  schema of the tool. Arguments count as they arrived: what cnllm repairs is still the endpoint's mistake.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.sync_client import Client
from cnllm.engine import Plan
from cnllm.errors import CnllmError
from cnllm.estimates.money import units_of
from cnllm.estimates.worst_case import WorstCase, settled_cost, worst_case
from cnllm.registry.flags import Flags
from cnllm.registry.model import Model
from cnllm.schemas.validate import validation_errors
from cnllm.tool_trial.tasks import ReplyResult, Task, TaskResult, World
from cnllm.tools import Tool, as_tools
from cnllm.types import Event, Finished, Reply, TextDelta, ToolCallDelta, ToolCallStart

__all__ = [
    "MAX_TOKENS",
    "MODES",
    "AllowanceSpent",
    "Mode",
    "ModeReport",
    "TrialAllowance",
    "TrialReport",
    "fits_schema",
    "measure",
    "try_tools",
]


_MAX_STEPS = 6

MAX_TOKENS = 4096
"""The most output tokens of a request, so that its highest price is known before it is sent."""

_REFUSED = 400  # the first status of a refusal, which costs nothing

Mode = Literal["native", "prompt"]
MODES: tuple[Mode, ...] = ("native", "prompt")
"""Tools of the wire, and tools that the prompt describes."""


class TrialReport(Struct, frozen=True):
    """The results of a model. `stopped` says why tasks are missing; None if all were tried. `failed`: the first error
    of an endpoint that answered nothing at all."""

    model: str
    protocol: str
    modes: tuple[ModeReport, ...]
    requests: int
    stopped: str | None
    failed: str | None


def try_tools(
    open_client: Callable[[Any], Client],
    transport: Any,
    model: Model,
    allowance: TrialAllowance,
    *,
    tasks: Sequence[Task],
    on_result: Callable[[Mode, TaskResult], object] = lambda mode, result: None,
) -> TrialReport:
    """Try each task with each kind of tools. `open_client` makes a client that sends over the transport it is given.

    It ends early when the allowance is spent, and where the first task's first request fails: an endpoint without key
    or network would fail in all the others.
    """
    counting = _CountingTransport(transport, allowance)
    before = allowance.requests
    reports: dict[Mode, list[TaskResult]] = {}
    stopped: str | None = None
    failed: str | None = None
    with open_client(counting) as client:
        for mode in MODES:
            reports[mode] = []
            target = model if mode == "native" else model.derive(_describe_tools)
            for task in tasks:
                try:
                    result = _try_task(client, counting, target, task, allowance)
                except AllowanceSpent as error:
                    stopped = error.message
                    break
                if not result.replies and not any(reports.values()):
                    failed = result.problem
                    break
                reports[mode].append(result)
                on_result(mode, result)
            if stopped or failed:
                break
    modes = tuple(measure(mode, results) for mode, results in reports.items())
    return TrialReport(model.name, model.protocol, modes, allowance.requests - before, stopped, failed)


def _describe_tools(flags: Flags) -> Flags:
    """Return the flags of an endpoint without tools, for which cnllm describes them in the prompt."""
    return replace(flags, tools=replace(flags.tools, supported=False, otherwise="prompt"))


def _try_task(
    client: Client, transport: _CountingTransport, model: Model, task: Task, allowance: TrialAllowance
) -> TaskResult:
    """Try one task. Raise `AllowanceSpent`; every other error is how the task ended."""
    world = task.begin()
    tools = as_tools(world.tools)
    watch = _ReplyWatch(world, transport, tools)
    begun = time.monotonic()
    try:
        with client.run_stream(
            model,
            world.prompt,
            tools=tools,
            max_steps=_MAX_STEPS,
            max_tokens=MAX_TOKENS,
            on_step=lambda step: watch.end_step(step.reply, allowance),
        ) as run:
            for event in run:
                watch.see(event)
        problem = None if run.stopped == "done" else f"it stopped: {run.stopped}"
        problem = problem or world.check(run.reply.text)
    except AllowanceSpent:
        raise
    except CnllmError as error:
        problem = error.message
    return TaskResult(task.name, problem, tuple(watch.replies), time.monotonic() - begun)


class _ReplyWatch:
    """Watches one task: when pieces arrive, and what each reply was meant to be."""

    def __init__(self, world: World, transport: _CountingTransport, tools: Sequence[Tool]) -> None:
        self.replies: list[ReplyResult] = []
        self._world = world
        self._transport = transport
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._expected = world.expects_call()
        self._first: float | None = None
        self._end: float | None = None

    def see(self, event: Event) -> None:
        """Take the time of an event."""
        if isinstance(event, TextDelta | ToolCallStart | ToolCallDelta) and self._first is None:
            self._first = time.monotonic() - self._transport.sent_at
        elif isinstance(event, Finished):
            self._end = time.monotonic() - self._transport.sent_at

    def end_step(self, reply: Reply, allowance: TrialAllowance) -> None:
        """Keep the result of a reply whose calls were executed."""
        allowance.settle(reply)
        called = reply.finish == "tool_calls"
        valid = all(fits_schema(call.raw or "{}", self._schemas.get(call.name)) for call in reply.tool_calls)
        self.replies.append(ReplyResult(self._expected, called, called and valid, self._first, self._end))
        self._expected, self._first, self._end = self._world.expects_call(), None, None


# ── the allowance ────────────────────────────────────────────────────────────


class AllowanceSpent(CnllmError):
    """The next request would go beyond --max-requests or --max-cost."""


class TrialAllowance:
    """The requests and the money that a trial may still use. `requests` counts what it has.

    A request counts with the most that it can cost, until the cost of its reply is known.
    """

    def __init__(self, max_requests: int | None = None, max_cost: float | None = None) -> None:
        self.max_requests = max_requests
        self.max_cost = None if max_cost is None else Decimal(str(max_cost))
        self.requests = 0
        self._spent = 0  # in units of money
        self._open: WorstCase | None = None  # of the last request, which is in what was spent

    def take(self, plan: Plan) -> None:
        """Count a request. Raise `AllowanceSpent` if it may not be sent."""
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise AllowanceSpent(f"--max-requests {self.max_requests} is reached", hint="allow more to try the rest")
        worst = worst_case(plan)
        if self.max_cost is not None and worst.attempt is None:
            reason = ", ".join(worst.unknown)
            raise AllowanceSpent(
                f"--max-cost {self.max_cost} cannot be kept: {reason} is not known", hint="use --max-requests"
            )
        highest = worst.attempt or 0
        if self.max_cost is not None and self._spent + highest > units_of(self.max_cost):
            raise AllowanceSpent(
                f"the next request might go beyond --max-cost {self.max_cost}", hint="allow more to try the rest"
            )
        self.requests += 1
        self._spent += highest
        self._open = replace(worst, cost=worst.attempt)

    def settle(self, reply: Reply | None) -> None:
        """Count the last request with what its reply has cost, where that is known; None is a refusal."""
        if self._open is not None:
            cost = 0 if reply is None else settled_cost(self._open, reply)
            self._spent += 0 if cost is None else cost - (self._open.cost or 0)
            self._open = None


class _CountingTransport:
    """Sends over another transport what the allowance permits. `sent_at` is the time of the last request."""

    def __init__(self, transport: Any, allowance: TrialAllowance) -> None:
        self._transport = transport
        self._allowance = allowance
        self.sent_at = 0.0

    def send(self, plan: Plan) -> tuple[int, Mapping[str, str], Iterator[bytes]]:
        """Send a plan. Raise `AllowanceSpent` instead if it may not be sent."""
        self._allowance.take(plan)
        self.sent_at = time.monotonic()
        answer: tuple[int, Mapping[str, str], Iterator[bytes]] = self._transport.send(plan)
        if answer[0] >= _REFUSED:
            self._allowance.settle(None)
        return answer

    def close(self) -> None:
        """Close the other transport."""
        if (close := getattr(self._transport, "close", None)) is not None:
            close()


class Seconds(Struct, frozen=True):
    """A median, and the time within which 95 of 100 are."""

    median: float
    p95: float


class ModeReport(Struct, frozen=True):
    """The results of the tasks with one kind of tools, and their measures; null where nothing was there to count.

    `first` is the time to the first piece of text or of a call, by reply; `task` the time of a whole task. `success` is
    the share of tasks that ended right.
    """

    tools: Mode
    tasks: int
    right: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    valid: int
    first: Seconds | None
    task: Seconds | None
    success: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    schema_accuracy: float | None
    results: tuple[TaskResult, ...]

    @property
    def called(self) -> int:
        """Return the number of replies that called."""
        return self.true_positives + self.false_positives


# ── measures ─────────────────────────────────────────────────────────────────


def measure(tools: Mode, results: Sequence[TaskResult]) -> ModeReport:
    """Return the report on tasks with one kind of tools."""
    replies = [reply for result in results for reply in result.replies]
    counts = Counter((reply.expected, reply.called) for reply in replies)
    hits, misplaced, missed = counts[True, True], counts[False, True], counts[True, False]
    right = sum(result.problem is None for result in results)
    valid = sum(reply.called and reply.valid for reply in replies)
    return ModeReport(
        tools=tools,
        tasks=len(results),
        right=right,
        true_positives=hits,
        false_positives=misplaced,
        false_negatives=missed,
        true_negatives=counts[False, False],
        valid=valid,
        first=_seconds(reply.first for reply in replies),
        task=_seconds(result.seconds for result in results),
        success=_share(right, len(results)),
        precision=_share(hits, hits + misplaced),
        recall=_share(hits, hits + missed),
        f1=_share(2 * hits, 2 * hits + misplaced + missed),
        schema_accuracy=_share(valid, hits + misplaced),
        results=tuple(results),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _seconds(values: Iterable[float | None]) -> Seconds | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Seconds(statistics.median(known), known[min(len(known) - 1, int(0.95 * len(known)))])


def fits_schema(arguments: str, schema: dict[str, Any] | None) -> bool:
    """Whether arguments of a call are JSON and fit the schema of its tool, as they arrived."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return schema is not None and not validation_errors(value, schema)
