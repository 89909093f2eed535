"""Define the effects of a call and of a tool loop: what their client performs, and what they receive in return.

Send(plan)                → (status, headers), or the TransportError that happened
ReadBody(most, progress)  → (the rest of the body, at most one piece beyond that many bytes; the TransportError
                            that ended it, or None); of a stream of events its beginning, and the rest stays unread
SetReadDeadline(seconds)  → None; from now on reading ends after so many seconds
UseTarget(number, plan)   → events that were held back; from now on requests go to this target of a route
HideSecrets(reply)        → the reply without secrets that its endpoint echoed, or None: another target goes on from it
CheckInputs(checks)       → the verdict of each check, in their order
HoldContent()             → None; content came, and is held back until it is judged
DrainBody()               → None; the rest of the body is not needed, but a connection read to its end can be reused
Sleep(seconds)            → None; the call is tried again after that, because of `error`
MayRepeat()               → False where no more money may be spent on this call; else None, and one more request is sent
Observed(kind)            → None; for the log: a stream was "cut", then "recovered"
a list                    → deliver these events, then read on: bytes, None at the end, or the TransportError
FinalEvents               → deliver these events, and read nothing more

A tool loop yields `CallModel`, `ApproveCalls`, `ExecuteCalls` and `ReportStep`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal

from msgspec import Struct

from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError
from cnllm.types import Event, Message, Reply, Step, ToolCall, ToolResult

__all__ = [
    "ApproveCalls",
    "CallModel",
    "CheckInputs",
    "DrainBody",
    "Effect",
    "ExecuteCalls",
    "FinalEvents",
    "HideSecrets",
    "HoldContent",
    "InputCheck",
    "InputVerdict",
    "MayRepeat",
    "Observed",
    "ReadBody",
    "ReportStep",
    "Send",
    "SetReadDeadline",
    "Sleep",
    "Steps",
    "UseTarget",
    "map_events",
]

Effect = Any  # one of the structs below, or a list of events
Steps = Generator[Effect, Any, Reply]


class Send(Struct, frozen=True):
    """Send a request and wait for the status line."""

    plan: Plan


class ReadBody(Struct, frozen=True):
    """Read the rest of the body, at most one piece beyond `most` bytes: the parser reports the excess.

    `progress` is the most seconds in which only white space and comments come. `is_reply`: the response is no error.
    Reading ends where such a body turns out to be a stream of events: what comes next is read piece by piece.
    """

    most: int
    progress: float | None = None
    is_reply: bool = False


class SetReadDeadline(Struct, frozen=True):
    """End reading after so many seconds, as if the stream had ended; None: no longer."""

    seconds: float | None


class DrainBody(Struct, frozen=True):
    """Read the rest of the body, if it has arrived."""


class Sleep(Struct, frozen=True):
    """Wait, then try again the request that failed with `error`."""

    seconds: float
    error: CnllmError | None = None


class MayRepeat(Struct, frozen=True):
    """Ask whether one more request may be sent for the call, beyond those that `worst_case` counts.

    Earlier requests may have been charged, so that it may cost as much again.
    """


class Observed(Struct, frozen=True):
    """Report an event that is of interest for logs."""

    kind: Literal["cut", "recovered"]
    reason: str = ""


class InputCheck(Struct, frozen=True):
    """The input of one call, to be checked by a grammar. `syntax` is lark or regex."""

    syntax: str
    definition: str
    text: str


class InputVerdict(Struct, frozen=True):
    """The outcome of a check: `problem` where the input does not follow the grammar, `unknown` why nobody can say."""

    problem: str | None = None
    unknown: str | None = None


class CheckInputs(Struct, frozen=True):
    """Check inputs by their grammars. It may take seconds, and must not hold other work up."""

    checks: tuple[InputCheck, ...]


class HoldContent(Struct, frozen=True):
    """Report that content came which is not delivered until it is judged."""


class UseTarget(Struct, frozen=True):
    """Send the next requests to a target of a route, with its key."""

    number: int
    plan: Plan


class HideSecrets(Struct, frozen=True):
    """Remove from a reply the secrets that its endpoint echoed: another endpoint goes on from it."""

    reply: Reply


class FinalEvents(list[Event]):
    """A list of events to deliver without reading on."""


class CallModel(Struct, frozen=True):
    """Call the model; `free` means that a tool choice which forces a call is no longer sent."""

    messages: list[Message]
    stream: bool
    free: bool


class ApproveCalls(Struct, frozen=True):
    """Ask whether a call may be executed."""

    call: ToolCall


class ExecuteCalls(Struct, frozen=True):
    """Execute calls in parallel. The client sets the result of each, and the seconds that it took."""

    calls: list[ToolCall]
    results: list[ToolResult | None]
    seconds: list[float | None]


class ReportStep(Struct, frozen=True):
    """Report a step."""

    step: Step


def map_events(steps: Steps, change: Callable[[list[Event]], list[Event]]) -> Steps:
    """Carry out steps and return their reply. Their events are delivered as a function returns them."""
    answer = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            reply: Reply = stop.value
            return reply
        answer = yield type(effect)(change(effect)) if isinstance(effect, list) else effect
