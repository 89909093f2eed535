"""What an endpoint refuses about the tools of a request and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator

from cnllm.registry.flags import Tools
from cnllm.simulator.check_schema import schema_violation
from cnllm.simulator.jsonpath import at
from cnllm.simulator.request import ParsedTool
from cnllm.simulator.violations import RequestContext, Violation

__all__ = ["tool_violations"]

_CHOICES = ("auto", "none", "required", "named")
_PARALLEL = ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use")
"""Where the wires say whether calls may be parallel."""


def tool_violations(case: RequestContext) -> Iterator[Violation]:
    """Yield all that is wrong with the tools, then with the choice among them."""
    offered = case.request.tools
    if offered is not None:
        yield from _list(case, offered)
        functions = [tool for tool in offered if tool.kind == "function"]
        for index, tool in enumerate(functions):
            yield from _function(case.flags.tools, tool, index)
    yield from _choice(case)
    yield from _parallel(case)


def _list(case: RequestContext, offered: tuple[ParsedTool, ...]) -> Iterator[Violation]:
    if not offered:
        yield Violation("empty-tools", "[] is too short - 'tools'", param="tools")
    if case.flags.tools is not None and case.flags.tools.supported is False:
        yield Violation("param", "This model does not take tools.", param="tools")


def _function(rules: Tools | None, tool: ParsedTool, index: int) -> Iterator[Violation]:
    where = f"tools[{index}].function"
    if not isinstance(tool.name, str) or not tool.name:
        yield Violation("param", f"{where}.name is missing.", param=f"{where}.name", index=index)
        return
    if rules is not None and rules.name_max_length is not None and len(tool.name) > rules.name_max_length:
        message = f"{where}.name is longer than {rules.name_max_length} characters."
        yield Violation("param", message, param=f"{where}.name", value=tool.name, index=index)
    if rules is not None and rules.strict is False and tool.strict:
        yield Violation("param", f"{where}.strict is not supported.", param=f"{where}.strict", value=True, index=index)
    given = tool.parameters
    demanded = rules is not None and rules.parameters
    if (given is not None and not isinstance(given, dict)) or (demanded and not given):
        message = f"{where}.parameters is not a JSON Schema."
        yield Violation("parameters", message, param=f"{where}.parameters", value=tool.name, index=index)
    elif given and rules is not None:
        said = schema_violation(given, rules.schema or (), rules.schema_drop or ())
        if said is not None:
            message = f"Invalid schema for function '{tool.name}': {said}."
            yield Violation("parameters", message, param=f"{where}.parameters", value=tool.name, index=index)


def _choice(case: RequestContext) -> Iterator[Violation]:
    choice = case.request.choice
    if choice is None:
        return
    allowed: list[str] = list((case.flags.tool_choice and case.flags.tool_choice.allowed) or _CHOICES)
    if choice not in allowed:
        message = f"tool_choice {choice} is not supported."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif not case.request.tools:
        message = "tool_choice is only allowed when tools are specified."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif choice == "named" and all(t.name != case.request.named for t in case.request.functions):
        message = f"tool_choice names {case.request.named}, which is not among the tools."
        yield Violation("tool-choice", message, param="tool_choice", value=case.request.named, choice=choice)


def _parallel(case: RequestContext) -> Iterator[Violation]:
    if case.flags.tools is None or case.flags.tools.parallel is not False or not case.refuses_by_name:
        return
    for path in _PARALLEL:
        if (value := at(case.body, path)) is not None:
            yield Violation("param", f"Unsupported parameter: '{path}'.", param=path, value=value)
