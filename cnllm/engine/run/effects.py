"""What a tool loop asks of the world, and what it tells of itself."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cnllm.types import Message, Note, Reply, RunSummary, ToolCall, ToolResult

__all__ = ["ApproveCalls", "CallModel", "ExecuteCalls", "ReportStep", "Step", "Stopped"]

Stopped = Literal[
    "done",
    "length",
    "content_filter",
    "cut",
    "incomplete",
    "max_steps",
    "repeated",
    "cancelled",
    "error",
]
"""Why a run ended: the model was `done`; its last reply ended otherwise (`length`, `content_filter`, `cut`, or
`incomplete`: calls were announced and none came); the loop was stopped (`max_steps`, `repeated`, `cancelled`); an
`error` was raised."""


class Step(Struct, frozen=True, kw_only=True):
    """One turn of a loop: what the model replied, the calls in it and what each of them gave, in order.

    `seconds` is how long all of it took; `notes` are what the loop noticed or did about it, `reply.notes` has the rest.
    The last step of a run has the summary of the `run`.
    """

    number: int
    reply: Reply
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    seconds: float = 0.0
    notes: tuple[Note, ...] = ()
    run: RunSummary | None = None

    @property
    def called(self) -> int:
        """How many calls the model made."""
        return len(self.calls)

    @property
    def returned(self) -> int:
        """How many of them gave a result that is no error."""
        return sum(not result.error for result in self.results)

    def __str__(self) -> str:
        return f"step {self.number}: {self.called} calls, {self.returned} returned, {self.seconds:.1f} s"


class CallModel(Struct, frozen=True):
    """Call the model; `free`: a choice of tools that forces a call is not to be sent any more."""

    messages: list[Message]
    stream: bool
    free: bool


class ApproveCalls(Struct, frozen=True):
    """Ask whether a call may be executed."""

    call: ToolCall


class ExecuteCalls(Struct, frozen=True):
    """Execute calls side by side."""

    calls: list[ToolCall]
    results: list[ToolResult | None]


class ReportStep(Struct, frozen=True):
    """Tell of a step."""

    step: Step
