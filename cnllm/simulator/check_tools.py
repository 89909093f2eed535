"""Check tools and tool_choice as an endpoint does."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Tools
from cnllm.schemas.subschemas import children
from cnllm.simulator.request import ParsedTool
from cnllm.simulator.violations import RequestContext, Violation

__all__ = ["tool_violations"]

_KINDS = ("type", "anyOf", "oneOf", "allOf", "$ref")
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf")
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
        problem = _schema_violation(parameters, rules.schema or (), rules.schema_drop or ())
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


# ── schemas ──────────────────────────────────────────────────────────────────
# The walk is that of the adaptation of a schema for a request; the rules are not, so that an error there shows here.
def _schema_violation(schema: dict[str, Any], rules: Collection[str], keywords: Collection[str]) -> str | None:
    """Return the violation of the rules of `tools.schema` and `tools.schema_drop`, or None."""
    if "root-object" in rules and (schema.get("type") != "object" or any(key in schema for key in _COMBINED)):
        return "the root must have type 'object' and no combination"
    return next((problem for node in _nodes(schema) if (problem := _node_violation(node, rules, keywords))), None)


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema, itself first. Names of properties and values are no schemas."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield node
        stack += children(node)


def _node_violation(node: dict[str, Any], rules: Collection[str], keywords: Collection[str]) -> str | None:
    if (keyword := next((key for key in node if key in keywords), None)) is not None:
        return f"the keyword '{keyword}' is not supported"
    ref = node.get("$ref")
    if isinstance(ref, str):
        if "inline-refs" in rules:
            return "'$ref' is not supported"
        if "root-refs" in rules and (len(node) > 1 or not (ref == "#" or ref.startswith("#/$defs/"))):
            return f"'$ref' must stand alone and point into '#/$defs/', not to '{ref}'"
    if "any-of-only" in rules and (key := next((k for k in ("oneOf", "allOf") if k in node), None)):
        return f"'{key}' is not supported, only 'anyOf' is"
    if "one-type" in rules and isinstance(node.get("type"), list):
        return "'type' must be a string"
    if "branch-types" in rules and isinstance(node.get("anyOf"), list) and "type" in node:
        return "'type' must stand in the branches of 'anyOf', not beside it"
    if "no-tuples" in rules and ("prefixItems" in node or isinstance(node.get("items"), list)):
        return "'items' must be one schema"
    if "typed" in rules and not any(key in node for key in _KINDS):
        return "a schema without 'type'"
    return None
