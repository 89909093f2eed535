"""The monitoring of a gateway as one part: what is counted of a request, metrics, the last requests, who sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.engine.encode.plan import Plan
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.operator import OperatorAccess
from cnllm.gateway.monitoring.prometheus import Metrics
from cnllm.gateway.monitoring.recent import Recent, RequestRecord
from cnllm.gateway.monitoring.updates import model_label
from cnllm.registry.model import Model
from cnllm.types import Message, Note, Reply, Request, ToolCall, ToolResult

if TYPE_CHECKING:
    from cnllm.gateway.monitoring.spans import ServerSpans

__all__ = ["Monitor", "RequestMonitor", "Round", "last_round", "set_reply"]


_NAME_LENGTH = 200  # characters of a refused model name that are kept

_UNCOUNTED = ("alive", "ready", "metrics", "ui")

_RECOVERIES = frozenset(["again-whole", "reply-continued", "target-continued"])
"""The codes of notes on a reply that was cut and became whole."""


class Monitor(Struct, frozen=True):
    """A gateway's views, and who may see them. Without `metrics` it counts nothing, without `recent` keeps nothing."""

    operator: OperatorAccess
    metrics: Metrics | None = None
    recent: Recent | None = None
    spans: ServerSpans | None = None


class RequestMonitor:
    """The data that the monitoring keeps of one request until it has ended."""

    def __init__(self, monitor: Monitor, entry: Entry, headers: Mapping[str, str]) -> None:
        self._end_span = None if monitor.spans is None else monitor.spans.begin(entry, headers)
        self._plan: Plan | None = None
        self.sent: dict[str, Any] | None = None
        self._monitor = monitor
        self._entry = entry
        self._label = ""
        self._used: Plan | None = None
        self._round = Round()
        self._reply: Reply | None = None

    def ask(self, plan: Plan) -> None:
        """Take in the request to the endpoint."""
        self._plan = plan
        self._entry.upstream_protocol = plan.model.protocol

    @property
    def price(self) -> object:
        """Return the price of the model that was asked last; None where it has none."""
        return None if self._plan is None else self._plan.flags.price

    def begin(self, model: Model, request: Request, *, is_routed: bool, is_stream: bool) -> None:
        """Take the model, the conversation and the kind of the reply in."""
        self._label = model_label(model)
        self._round = last_round(request.messages)
        self._entry.model = request.model or "" if is_routed else model.name
        self._entry.stream = is_stream

    def use(self, plan: Plan) -> bool:
        """Take in which model of a route answers. Return whether that is news."""
        if plan is self._used:
            return False
        self._used = plan
        self.ask(plan)
        self._label = model_label(plan.model)
        self._entry.model = plan.model.name
        return True

    def reply(self, reply: Reply, notes: list[Note]) -> None:
        """Take a reply in, or the part of one that came before an error."""
        self._reply = reply
        self._entry.notes = notes
        set_reply(self._entry, reply, notes)

    def leave(self, reply: Reply) -> None:
        """Take in what had arrived of a reply when its client went."""
        self._entry.usage, self._entry.cost = reply.usage, reply.cost
        self._entry.reply_id, self._entry.reply_model = reply.id, reply.model

    def end(
        self, secrets: Iterable[str], fields: Callable[[Entry], dict[str, Any]], *, is_kept: bool
    ) -> Callable[[], None] | None:
        """Count a request that has ended. `secrets` are those of the client, `fields` makes the log's line.

        Return the function that keeps it for `/ui`, which takes long for a long body; None where nothing is kept.
        """
        entry, monitor = self._entry, self._monitor
        is_counted = entry.verb not in _UNCOUNTED
        if is_counted:
            _end_entry(entry, self._round)
        if self._end_span is not None:
            self._end_span(entry)
        if not is_counted:
            return None
        if monitor.metrics is not None:
            monitor.metrics.count(entry, self._label)
        if not is_kept or monitor.recent is None or entry.verb != "generate":
            return None
        return partial(self._keep, monitor.recent, fields(entry), secrets)

    def _keep(self, recent: Recent, fields: dict[str, Any], secrets: Iterable[str]) -> None:
        """Keep the request for `/ui`, without secrets."""
        plan, reply = self._plan, self._reply
        body = plan.body if plan is not None else None
        content = reply.message.to_dict() if reply is not None else None
        address = None if plan is None else f"{plan.method} {plan.url}"
        if not fields.get("model") and isinstance(name := (self.sent or {}).get("model"), str):
            fields["model"] = name[:_NAME_LENGTH]  # a name that was refused: an operator looks for it
        recent.add(self._entry.id, RequestRecord(fields, self.sent, body, address, content), secrets)


# ── what is counted ──────────────────────────────────────────────────────────


class Round(Struct, frozen=True):
    """The results at the end of a conversation, and the calls that they answer.

    A client sends the whole conversation each time, so that only its last round is new: each call and each result
    counts once. `unanswered` calls have no result, `orphans` are results without a call.
    """

    results: int = 0
    errors: int = 0
    unanswered: int = 0
    orphans: int = 0


def last_round(messages: Sequence[Message]) -> Round:
    """Return the round of calls and results at the end of a conversation."""
    results: list[ToolResult] = []
    calls: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            calls = {part.id for part in message.parts if type(part) is ToolCall and not part.excluded}
            break
        results += [part for part in message.parts if type(part) is ToolResult]
    if not calls and not results:
        return Round()
    result_ids = {result.id for result in results}
    return Round(
        len(results),
        sum(result.error for result in results),
        len(calls - result_ids),
        len(result_ids - calls),
    )


def set_reply(entry: Entry, reply: Reply, notes: Iterable[Note]) -> None:
    """Enter what a reply says; an error of a stream has one, too."""
    entry.finish = reply.finish
    entry.usage = reply.usage
    entry.cost = reply.cost
    entry.registry = reply.registry
    entry.reply_id, entry.reply_model = reply.id, reply.model
    entry.tool_calls = len(reply.tool_calls) + len(reply.incomplete)
    entry.tool_errors = (entry.tool_errors or 0) + sum([call.problem is not None for call in reply.tool_calls])
    entry.recovered = not _RECOVERIES.isdisjoint([note.code for note in notes]) or None
    entry.cut = entry.recovered or reply.finish == "cut" or None
    if reply.incomplete and not entry.broken:
        entry.broken = "call-incomplete"


def _end_entry(entry: Entry, calls: Round) -> None:
    """Enter what only the end of a request shows: its results, its speed, and whether a chain of tool calls broke."""
    if calls.results:
        entry.tool_results = calls.results
    if calls.errors:
        entry.tool_errors = (entry.tool_errors or 0) + calls.errors
    if entry.error in ("StreamCut", "IdleTimeout"):
        entry.cut = True
    if entry.usage is not None and entry.usage.output and entry.finish not in ("cut", "error"):
        seconds = entry.seconds - (entry.first or 0.0)
        if seconds > 0:
            entry.tokens_per_second = round(entry.usage.output / seconds, 3)
    if entry.broken:
        return
    if calls.orphans:
        entry.broken = "result-without-call"
    elif calls.unanswered:
        entry.broken = "call-without-result"
    elif calls.results and (entry.error or entry.finish in ("cut", "error")):
        entry.broken = "no-reply-to-results"
