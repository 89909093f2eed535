"""The tools of a run by name: check the calls of a model, and execute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cnllm.tools import (
    Tool,
    bound,
    check_parameters,
    decode_encoded_arguments,
    problem_with,
    undecided_parameters,
)
from cnllm.types import ToolCall, ToolResult, checks

__all__ = ["Toolbox", "check_seconds"]


def check_seconds(name: str, value: Any) -> None:
    """Raise `ValueError` for a value that is not a valid time limit."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name}={checks.short_text(value)}; expected a number of seconds above 0")
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{name} has too many digits; expected a number of seconds that a clock can count")


class Toolbox:
    """The tools of a run by name. Raises `ValueError` for a tool that cannot be executed or checked."""

    def __init__(self, tools: Sequence[Tool], approves: bool = False) -> None:
        self._approves = approves
        self._tools: dict[str, Tool] = {}
        self._unchecked: dict[str, tuple[str, ...]] = {}
        self.add(tools)

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools. Raise `ValueError` for one that cannot be executed or checked."""
        for index, tool in enumerate(tools):
            if tool.definition is not None or tool.search is not None:
                continue  # a tool of the endpoint, which executes it itself
            if tool.function is None:
                raise ValueError(
                    f"tools[{index}] ({tool.name}) has no function to execute; give a function, or use `call`"
                )
            check_seconds(f"tools[{index}] ({tool.name}).timeout", tool.timeout)
            if tool.name in self._tools:
                raise ValueError(f"tools[{index}] ({tool.name}) has the same name as another tool")
            check_parameters(tool)
            self._unchecked[tool.name] = undecided_parameters(tool)
            self._tools[tool.name] = tool

    def refusal(self, call: ToolCall) -> str | None:
        """Return the reason why a call is not executed, in words for the model. None where it can be executed."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"There is no tool {call.name!a}. The tools are: {', '.join(self._tools) or 'none'}."
        if call.excluded:
            return f"The call of {call.name} was not executed: {call.problem}."
        return problem_with(tool, call, built=not self._approves)

    def unchecked(self, call: ToolCall) -> tuple[str, ...]:
        """Return the patterns of the tool's schema that this call is not checked for."""
        return self._unchecked.get(call.name, ())

    def has(self, name: str) -> bool:
        """Whether there is a tool with this name."""
        return name in self._tools

    def decode_call(self, call: ToolCall) -> ToolCall:
        """Return the call to check, approve and execute: the same object unless its arguments were encoded twice."""
        tool = self._tools.get(call.name)
        return call if tool is None or call.excluded else decode_encoded_arguments(tool, call)

    def find(self, call: ToolCall) -> Tool:
        """Return the tool of a call."""
        return self._tools[call.name]

    def execute(self, call: ToolCall) -> Any:
        """Execute a call and return the function's result, which may be an awaitable. Raise the function's errors."""
        tool = self._tools[call.name]
        if self._approves and (problem := problem_with(tool, call)) is not None:  # now building its values is allowed
            return ToolResult(call.id, problem, call.name, error=True)
        return tool(**bound(tool, call.arguments or {}))
