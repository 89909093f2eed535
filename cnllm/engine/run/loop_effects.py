"""Define the effects of a tool loop: what its client performs, and what the loop reports."""

from __future__ import annotations

from msgspec import Struct

from cnllm.types import Message, Note, Reply, RunSummary, Stopped, ToolCall, ToolResult

__all__ = ["ApproveCalls", "CallModel", "ExecuteCalls", "ReportStep", "Step", "Stopped", "ToolUse"]


class ToolUse(Struct, frozen=True, kw_only=True):
    """One call of a tool: how long it ran, and whether its result is an error.

    `seconds` is None where the tool did not run: its name or its arguments were wrong, it was not approved, or the run
    ended before.
    """

    name: str
    seconds: float | None
    error: bool


class Step(Struct, frozen=True, kw_only=True):
    """One step of a loop: the model's reply, the calls in it and the result of each, in order.

    `seconds` is the time of the whole step, `tool_uses` has that of each call. `notes` are the loop's, `reply.notes`
    has the others. The last step of a run has the summary of the `run`.
    """

    number: int
    reply: Reply
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    seconds: float = 0.0
    notes: tuple[Note, ...] = ()
    run: RunSummary | None = None
    tool_uses: tuple[ToolUse, ...] = ()

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
    """Execute calls in parallel. The client sets the result of each, and the seconds that it took."""

    calls: list[ToolCall]
    results: list[ToolResult | None]
    seconds: list[float | None]


class ReportStep(Struct, frozen=True):
    """Report a step."""

    step: Step
