"""Check tools and tool_choice as an endpoint does."""

from __future__ import annotations

from collections.abc import Iterator

from cnllm.jsonpath import get
from cnllm.registry.flags import Tools
from cnllm.simulator.check_schema import schema_violation
from cnllm.simulator.request import ParsedTool
from cnllm.simulator.violations import RequestContext, Violation

__all__ = ["tool_violations"]

_CHOICES = ("auto", "none", "required", "named")
_PARALLEL = ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use")
"""Paths of the switch for parallel calls on each wire."""


def tool_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield all violations in the tools, then in tool_choice."""
    tools = context.request.tools
    if tools is not None:
        yield from _list(context, tools)
        functions = [tool for tool in tools if tool.kind == "function"]
        for index, tool in enumerate(functions):
            yield from _function(context.flags.tools, tool, index)
    yield from _choice(context)
    yield from _parallel(context)


def _list(context: RequestContext, tools: tuple[ParsedTool, ...]) -> Iterator[Violation]:
    if not tools:
        yield Violation("empty-tools", "[] is too short - 'tools'", param="tools")
    if context.flags.tools is not None and context.flags.tools.supported is False:
        yield Violation("param", "This model does not take tools.", param="tools")


def _function(rules: Tools | None, tool: ParsedTool, index: int) -> Iterator[Violation]:
    path = f"tools[{index}].function"
    if not isinstance(tool.name, str) or not tool.name:
        yield Violation("param", f"{path}.name is missing.", param=f"{path}.name", index=index)
        return
    if rules is not None and rules.name_max_length is not None and len(tool.name) > rules.name_max_length:
        message = f"{path}.name is longer than {rules.name_max_length} characters."
        yield Violation("param", message, param=f"{path}.name", value=tool.name, index=index)
    if rules is not None and rules.strict is False and tool.strict:
        yield Violation("param", f"{path}.strict is not supported.", param=f"{path}.strict", value=True, index=index)
    parameters = tool.parameters
    required = rules is not None and rules.parameters
    if (parameters is not None and not isinstance(parameters, dict)) or (required and not parameters):
        message = f"{path}.parameters is not a JSON Schema."
        yield Violation("parameters", message, param=f"{path}.parameters", value=tool.name, index=index)
    elif parameters and rules is not None:
        problem = schema_violation(parameters, rules.schema or (), rules.schema_drop or ())
        if problem is not None:
            message = f"Invalid schema for function '{tool.name}': {problem}."
            yield Violation("parameters", message, param=f"{path}.parameters", value=tool.name, index=index)


def _choice(context: RequestContext) -> Iterator[Violation]:
    choice = context.request.choice
    if choice is None:
        return
    allowed: list[str] = list((context.flags.tool_choice and context.flags.tool_choice.allowed) or _CHOICES)
    if choice not in allowed:
        message = f"tool_choice {choice} is not supported."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif not context.request.tools:
        message = "tool_choice is only allowed when tools are specified."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif choice == "named" and all(t.name != context.request.named for t in context.request.tools):
        message = f"tool_choice names {context.request.named}, which is not among the tools."
        yield Violation("tool-choice", message, param="tool_choice", value=context.request.named, choice=choice)


def _parallel(context: RequestContext) -> Iterator[Violation]:
    if context.flags.tools is None or context.flags.tools.parallel is not False or not context.refuses_by_name:
        return
    for path in _PARALLEL:
        if (value := get(context.body, path)) is not None:
            yield Violation("param", f"Unsupported parameter: '{path}'.", param=path, value=value)
