"""Define the effects of a tool loop: what its client performs, and what the loop reports."""

from __future__ import annotations

from msgspec import Struct

from cnllm.types import Message, Note, Reply, RunSummary, Stopped, ToolCall, ToolResult

__all__ = ["ApproveCalls", "CallModel", "ExecuteCalls", "ReportStep", "Step", "Stopped"]


class Step(Struct, frozen=True, kw_only=True):
    """One step of a loop: the model's reply, the calls in it and the result of each, in order.

    `seconds` is the time of the whole step; `notes` are the loop's, `reply.notes` has the others. The last step of a
    run has the summary of the `run`.
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
        """Count the calls that the model made."""
        return len(self.calls)

    @property
    def returned(self) -> int:
        """Count the calls that gave a result without an error."""
        return sum(not result.error for result in self.results)

    def __str__(self) -> str:
        return f"step {self.number}: {self.called} calls, {self.returned} returned, {self.seconds:.1f} s"


class CallModel(Struct, frozen=True):
    """Call the model; `free` means that a tool choice which forces a call is no longer sent."""

    messages: list[Message]
    stream: bool
    free: bool


class ApproveCalls(Struct, frozen=True):
    """Ask whether a call may be executed."""

    call: ToolCall


class ExecuteCalls(Struct, frozen=True):
    """Execute calls in parallel."""

    calls: list[ToolCall]
    results: list[ToolResult | None]


class ReportStep(Struct, frozen=True):
    """Report a step."""

    step: Step
