"""Define the effects of a tool loop: what its client performs, and what the loop reports."""

from __future__ import annotations

from msgspec import Struct

from cnllm.types import Message, Step, ToolCall, ToolResult

__all__ = ["ApproveCalls", "CallModel", "ExecuteCalls", "ReportStep"]


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
