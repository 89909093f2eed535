"""Report the progress of calls and loops as small values to a callback.

    client = Client(on_event=print)

Each value is immutable and has its `call`, a number that no other call of this process has, and its `model`
("provider/id"). None holds a key, a prompt or an answer. The call waits for the callback, so it should be quick; its
exceptions are logged and do not reach the call. The logger `cnllm.client` gets the same values at DEBUG, and faults
with their repairs at INFO.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

from msgspec import Struct

from cnllm.errors import CnllmError, EndpointError, IdleTimeout, StreamCut
from cnllm.system.processes import fork_safe, generation
from cnllm.types import Cost, Note, Reply, Usage

__all__ = [
    "CallEnded",
    "Counters",
    "LeakFound",
    "LoopEnded",
    "OnEvent",
    "Recovered",
    "Repaired",
    "ReplyCut",
    "RequestSent",
    "ResponseStarted",
    "RetryScheduled",
    "TelemetryEvent",
    "ToolEnded",
    "Watch",
    "check_callback",
    "watch_call",
]

_DEBUG, _INFO = 10, 20  # logging's levels; importing it takes longer than all of this
_numbers = itertools.count(1)
_REPAIRS: tuple[str, ...] = (
    "answer-corrected",
    "answer-prose",
    "text-mended",
    "unreadable-chunk",
    "deltas-reread",
    "continued",
)
_REPAIRS += ("call-unanswered", "result-orphan", "arguments-emptied", "arguments-decoded", "step-again")


class TelemetryEvent(Struct, frozen=True, kw_only=True):
    """The fields of every value."""

    call: int
    model: str


class RequestSent(TelemetryEvent, frozen=True, kw_only=True, tag="sent"):
    """A request is sent. `attempt` counts from 1; `host` and `protocol` name the endpoint; `size` is in bytes."""

    attempt: int
    host: str
    protocol: str
    stream: bool
    size: int


class ResponseStarted(TelemetryEvent, frozen=True, kw_only=True, tag="begun"):
    """The response began, `seconds` after its request."""

    attempt: int
    status: int
    seconds: float


class RetryScheduled(TelemetryEvent, frozen=True, kw_only=True, tag="retrying"):
    """A retry follows after `seconds`. `error` is the class of the error, `why` its message."""

    attempt: int
    error: str
    why: str
    status: int | None
    seconds: float


class ReplyCut(TelemetryEvent, frozen=True, kw_only=True, tag="cut"):
    """A stream ended without its terminator."""

    why: str


class Recovered(TelemetryEvent, frozen=True, kw_only=True, tag="recovered"):
    """A second request brought the rest of a stream that was cut."""


class Repaired(TelemetryEvent, frozen=True, kw_only=True, tag="repaired"):
    """A fault in the reply or in the history was repaired. `code` and `flag` are those of the note."""

    code: str
    flag: str


class LeakFound(TelemetryEvent, frozen=True, kw_only=True, tag="leak"):
    """A tool call stood in the text. `text-call` became a call; `text-call-stripped` and others did not."""

    code: str


class CallEnded(TelemetryEvent, frozen=True, kw_only=True, tag="ended"):
    """A call ended: with a reply (`finish`), with an `error` (its class), or closed by its caller (neither).

    `registry` is the version of the data on the endpoint, as in `Reply.registry`. `charged` says whether a failed call
    may be charged; `cost` is then, and for a call that was closed, what is known of it.
    """

    attempts: int
    seconds: float
    finish: str | None = None
    error: str | None = None
    status: int | None = None
    usage: Usage = Usage()
    cost: Cost | None = None
    response_model: str | None = None
    response_id: str | None = None
    registry: str | None = None
    charged: bool | None = None


class ToolEnded(TelemetryEvent, frozen=True, kw_only=True, tag="tool"):
    """A tool of a loop gave its result after `seconds`; None where it did not run. `error`: the result is an error.

    `call` is the number of the loop. `tool` is "unknown" for a name that the run has no tool for.
    """

    tool: str
    seconds: float | None
    error: bool


class LoopEnded(TelemetryEvent, frozen=True, kw_only=True, tag="loop"):
    """A tool loop ended. `stopped` gives the reason: "done" where the model finished."""

    stopped: str
    steps: int
    calls: int
    usage: Usage
    cost: Cost | None
    returned: int = 0
    fallback: bool = False


OnEvent = Callable[[Any], object]
"""The callback, called with each of the values above."""

RecordCall = Callable[[Any, Any, Sequence[Note]], None]
"""Takes the end of a call, its last request, and the notes of its reply."""


def check_callback(on_event: OnEvent | None) -> OnEvent | None:
    """Return the callback. Raise `TypeError` for one that is not a plain function."""
    if on_event is not None and (not callable(on_event) or inspect.iscoroutinefunction(on_event)):
        raise TypeError("on_event must be a plain function of one argument, not an async one")
    return on_event


def watch_call(on_event: OnEvent | None, record: RecordCall | None = None) -> Watch | None:
    """Return a `Watch` for one call, or None where nobody listens. `record` writes the call down at its end."""
    if on_event is not None or record is not None or ("logging" in sys.modules and _log().isEnabledFor(_INFO)):
        return Watch(on_event, record)
    return None


@cache
def _log() -> Any:
    import logging

    log = logging.getLogger("cnllm.client")
    log.addHandler(logging.NullHandler())
    return log


class Watch:
    """Reports the progress of one call, as its driver sees it."""

    def __init__(self, on_event: OnEvent | None, record: RecordCall | None = None) -> None:
        self.model = ""
        self._plan: Any = None
        self._record = record
        self._on_event = on_event
        self._call = next(_numbers)
        self._start = self._request_start = time.monotonic()
        self._attempt = 0
        self._generation = 0  # that of the process which sent the last request
        self._ended = self._cut = False

    def emit(self, kind: type[TelemetryEvent], **fields: Any) -> TelemetryEvent:
        """Pass a value to the callback and the logger, and return it."""
        value = kind(call=self._call, model=self.model, **fields)
        level = _INFO if kind in (RetryScheduled, ReplyCut, Recovered, LeakFound) else _DEBUG
        if "logging" in sys.modules:  # a program that has not imported it has configured no logger
            _log().log(level, "%r", value)
        if self._on_event is not None:
            try:
                self._on_event(value)
            except Exception:  # a faulty callback must not break the call
                import logging

                logging.getLogger("cnllm.watch").exception("on_event raised; the call goes on")
        return value

    def request_sent(self, plan: Any) -> None:
        """Report that a request is about to be sent."""
        from urllib.parse import urlsplit

        self.model, self._plan = plan.model.name, plan
        self._attempt += 1
        self._generation = generation()
        self._request_start = time.monotonic()
        host = urlsplit(plan.url).hostname or ""
        size = len(plan.content)
        self.emit(
            RequestSent, attempt=self._attempt, host=host, protocol=plan.model.protocol, stream=plan.stream, size=size
        )

    def reply_cut(self, why: str) -> None:
        """Report once that a stream was cut."""
        if not self._cut:
            self._cut = True
            self.emit(ReplyCut, why=why)

    def response_started(self, status: int) -> None:
        """Report that the response began."""
        self.emit(ResponseStarted, attempt=self._attempt, status=status, seconds=time.monotonic() - self._request_start)

    def retry_scheduled(self, error: CnllmError, seconds: float) -> None:
        """Report that the request will be sent again."""
        status = error.status if isinstance(error, EndpointError) else None
        self.emit(
            RetryScheduled,
            attempt=self._attempt,
            error=type(error).__name__,
            why=error.message,
            status=status,
            seconds=seconds,
        )

    def notes(self, notes: Sequence[Note]) -> None:
        """Report the repairs and leaks among the notes."""
        for note in notes:
            if note.code.startswith("text-call"):
                self.emit(LeakFound, code=note.code)
            elif note.code in _REPAIRS:
                self.emit(Repaired, code=note.code, flag=note.flag)

    def call_ended(self, reply: Reply | None, partial: Reply | None = None) -> None:
        """Report the end of the call: with a reply, or closed by its caller. After an error report nothing.

        `partial` is what had arrived of a call that was closed.
        """
        arrived = partial if reply is None else reply
        fields: dict[str, Any] = {}
        if arrived is not None and not self._ended:
            fields = {"usage": arrived.usage, "cost": arrived.cost}
            fields |= {"response_model": arrived.model, "response_id": arrived.id}
            if reply is not None:
                self.notes(reply.notes)
                fields |= {"finish": reply.finish, "registry": reply.registry, "notes": reply.notes}
        self._end(**fields)

    def call_failed(self, error: CnllmError) -> None:
        """Report that the call ended with an error."""
        if isinstance(error, StreamCut | IdleTimeout):
            self.reply_cut(error.message)
        reply = error.reply
        usage = reply.usage if reply is not None else Usage()
        status = error.status if isinstance(error, EndpointError) else None
        charged = error.meaning.charged
        self._end(error=type(error).__name__, status=status, usage=usage, cost=error.cost, charged=charged)

    def _end(self, *, notes: Sequence[Note] = (), **fields: Any) -> None:
        if self._ended or (self._attempt and self._generation != generation()):  # a fork does not end its parent's call
            return
        self._ended = True
        seconds = time.monotonic() - self._start
        ended = self.emit(CallEnded, attempts=self._attempt, seconds=seconds, **fields)
        if self._record is not None and self._attempt:  # otherwise nothing was sent
            self._record(ended, self._plan, notes)


class Counters:
    """Counts the telemetry events. An instance is an `on_event` callback. Safe to share between clients and threads."""

    def __init__(self) -> None:
        self.calls = self.errors = self.requests = self.retries = self.cuts = 0
        self.recoveries = self.repairs = self.leaks = self.loops = self.loops_stopped = 0
        self.tools = self.tool_errors = self.fallbacks = 0
        self.tool_seconds = 0.0
        self.input = self.output = 0
        self._lock = fork_safe(Lock())

    def __call__(self, value: TelemetryEvent) -> None:
        with self._lock:
            self._count(value)

    def _count(self, value: TelemetryEvent) -> None:
        match value:
            case RequestSent():
                self.requests += 1
            case RetryScheduled():
                self.retries += 1
            case ReplyCut():
                self.cuts += 1
            case Recovered():
                self.recoveries += 1
            case Repaired():
                self.repairs += 1
            case LeakFound():
                self.leaks += 1
            case ToolEnded():
                self.tools += 1
                self.tool_errors += value.error
                self.tool_seconds += value.seconds or 0.0
            case LoopEnded():
                self.loops += 1
                self.loops_stopped += value.stopped != "done"
                self.fallbacks += value.fallback
            case CallEnded():
                self.calls += 1
                self.errors += value.error is not None
                self.input += value.usage.input or 0
                self.output += value.usage.output or 0

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in vars(self).items() if name != "_lock")
        return f"Counters({fields})"
