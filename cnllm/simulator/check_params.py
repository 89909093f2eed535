"""Check parameters as an endpoint does: their names and values, limits, reasoning, tools and tool_choice."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any

from cnllm.jsonpath import get, leaves
from cnllm.registry import param_rules
from cnllm.registry.flags import LEVELS, BudgetFlags, Flags, Param, ReasoningFlags, Tools
from cnllm.schemas.patterns import matches_whole
from cnllm.schemas.subschemas import schemas_in
from cnllm.simulator.request import ParsedTool, input_tokens, param_path, turns_reasoning_off, turns_reasoning_on
from cnllm.simulator.violations import RequestContext, Violation

__all__ = [
    "context_violations",
    "param_violations",
    "reasoning_violations",
    "tool_violations",
]


_KINDS = ("type", "anyOf", "oneOf", "allOf", "$ref")
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf")
_CHOICES = ("auto", "none", "required", "named")
_PARALLEL = ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use")
"""Paths of the switch for parallel calls on each wire."""


def param_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield parameters that the endpoint does not accept, or not with their values."""
    for name, rule in (context.flags.params or {}).items():
        if param_rules.state(rule) == "ignored":
            continue
        path = param_path(context.flags, name)
        value = get(context.body, path or name)
        if path is None or (path != name and value is None):
            yield from _old_name(context, name, path)
        if value is None:
            yield from _missing_default(context, name, rule, path)
        elif isinstance(rule, Param) and (problem := _value_problem(rule, value)):
            yield Violation("param", f"invalid {path}: {problem}", param=path, value=value)
    yield from _dropped_keys(context)
    yield from _output_limit(context)


def _old_name(context: RequestContext, name: str, path: str | None) -> Iterator[Violation]:
    """Yield a parameter under a name that this endpoint does not accept: it refuses it, or has another name for it.

    Recordings show endpoints that accept an old name as well as the new one, so that only a strict one refuses it.
    """
    value = get(context.body, name)
    refuses = context.refuses_by_name if path is None else context.strict
    if value is None or not refuses or name in _first_keys(context.flags):
        return
    hint = f" Use '{path}' instead." if path is not None else ""
    yield Violation("param", f"Unsupported parameter: '{name}'.{hint}", param=name, value=value)


def _first_keys(flags: Flags) -> set[str]:
    """Return the keys of a body under which some flag puts a value."""
    paths = [p for name in flags.params or {} if (p := param_path(flags, name)) is not None]
    reasoning = flags.reasoning
    paths += [place.at for place in (reasoning.effort, reasoning.budget) if place is not None and place.at]
    paths += [path for patch in (reasoning.on, reasoning.off, flags.body) if patch for path in patch.set or ()]
    return {path.partition(".")[0] for path in paths}


def _missing_default(context: RequestContext, name: str, rule: Any, path: str | None) -> Iterator[Violation]:
    """Yield a required parameter that is missing: one with a default in the registry is required."""
    if not context.strict or not isinstance(rule, Param) or rule.default is None or path is None:
        return
    if not isinstance(rule.default, list) or any(isinstance(item, int | float) for item in rule.default):
        yield Violation("param", f"{path}: field required", param=path)


def _dropped_keys(context: RequestContext) -> Iterator[Violation]:
    """Yield the keys that the endpoint never takes. One that it takes in another mode is of no use, but not refused."""
    body, reasoning = context.flags.body, context.flags.reasoning
    for path in body.drop or ():
        value = get(context.body, path)
        is_own = reasoning.mode != "never" and get(body.set or {}, path) is not None
        if value is not None and not is_own and context.refuses_by_name:
            yield Violation("param", f"Unsupported parameter: '{path}'.", param=path, value=value)


def _output_limit(context: RequestContext) -> Iterator[Violation]:
    """Yield a violation of the limit of output tokens."""
    path = param_path(context.flags, "max_tokens") or "max_tokens"
    tokens = get(context.body, path)
    maximum = context.flags.limits.output
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        yield Violation("param", f"invalid {path}: it is a positive integer", param=path, value=tokens)
    elif tokens is not None and maximum is not None and tokens > maximum:
        message = f"invalid {path}: {tokens} is more than this model's {maximum}"
        yield Violation("max-tokens", message, param=path, value=tokens)


def context_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield a violation if the prompt is longer than the window. Tokens are estimated, as in the usage."""
    window = context.flags.limits.most_input
    if window is None:
        return
    tokens = input_tokens(context.request)
    if tokens > window:
        # The text by which clients of every wire recognise this error.
        message = (
            f"The prompt is too long: its token count of {tokens} exceeds the maximum number of tokens allowed "
            f"({window}), the maximum context length of this model."
        )
        yield Violation("context", message, param="messages", value=tokens)


# ── reasoning ────────────────────────────────────────────────────────────────
def reasoning_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield violations in the parameters of reasoning."""
    reasoning = context.flags.reasoning
    if reasoning.mode == "never" and context.refuses_by_name and turns_reasoning_on(reasoning, context.body):
        yield Violation("param", "This model does not reason.", param="reasoning")
    yield from _effort(context, reasoning)
    if reasoning.budget is not None and reasoning.budget.at:
        yield from _budget(context, reasoning, reasoning.budget, reasoning.budget.at)


def _effort(context: RequestContext, reasoning: ReasoningFlags) -> Iterator[Violation]:
    effort = reasoning.effort
    if effort is None or not effort.at or (effort_word := get(context.body, effort.at)) is None:
        return
    words = [word for level in LEVELS if (word := getattr(effort, level)) is not None]
    for patch in (reasoning.on, reasoning.off):
        patch_word = leaves(patch.set).get(effort.at) if patch is not None and patch.set else None
        words += [patch_word] if isinstance(patch_word, str) else []
    # If reasoning cannot be turned off, or another switch does it, the mode decides on "none".
    is_off = effort_word == "none" and turns_reasoning_off(reasoning, context.body)
    if words and effort_word not in words and not is_off:
        allowed = ", ".join(dict.fromkeys(words))
        message = f"invalid {effort.at}: '{effort_word}' is none of {allowed}"
        yield Violation("param", message, param=effort.at, value=effort_word)


def _budget(context: RequestContext, reasoning: ReasoningFlags, budget: BudgetFlags, path: str) -> Iterator[Violation]:
    tokens = get(context.body, path)
    if tokens is None:
        return
    if any(patch is not None and get(patch.set, path) == tokens for patch in (reasoning.off, reasoning.on)):
        return  # no number of tokens, but the endpoint's word for off or on
    if type(tokens) is not int or _bound_problem(budget, tokens):
        message = f"invalid {path}: {_bound_problem(budget, tokens) or 'not an integer'}"
        yield Violation("param", message, param=path, value=tokens)
    ceiling = get(context.body, param_path(context.flags, budget.under) or budget.under) if budget.under else None
    if type(tokens) is int and type(ceiling) is int and tokens >= ceiling:
        yield Violation("param", f"invalid {path}: must be less than {budget.under}", param=path, value=tokens)


# ── values ───────────────────────────────────────────────────────────────────
def _value_problem(rule: Param, value: Any) -> str | None:
    """Return why a value is not accepted, or None if it is."""
    if rule.fixed is not None and value != rule.fixed:
        return f"only {rule.fixed} is allowed for this model"
    if rule.items is not None and isinstance(value, list) and len(value) > rule.items:
        return f"at most {rule.items} items are allowed"
    return _bound_problem(rule, value)


_BOUNDS = (
    ("min", operator.lt, "at least"),
    ("max", operator.gt, "at most"),
    ("above", operator.le, "greater than"),
    ("below", operator.ge, "less than"),
)


def _bound_problem(rule: Param | BudgetFlags, value: Any) -> str | None:
    """Return the bound that a value breaks, in words, or None."""
    own = {name: bound for name, *_ in _BOUNDS if (bound := getattr(rule, name, None)) is not None}
    bounds = [(own[name], breaks, words) for name, breaks, words in _BOUNDS if name in own]
    if bounds and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "it must be a number"
    return next((f"must be {words} {bound:g}" for bound, breaks, words in bounds if breaks(value, bound)), None)


# ── tools ────────────────────────────────────────────────────────────────────


def tool_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield all violations in the tools, then in tool_choice."""
    rules, tools = context.flags.tools, context.request.tools
    if tools is not None:
        if not tools:
            yield Violation("empty-tools", "[] is too short - 'tools'", param="tools")
        if rules.supported is False:
            yield Violation("param", "This model does not take tools.", param="tools")
        for index, tool in enumerate([tool for tool in tools if tool.kind == "function"]):
            yield from _function(rules, tool, index)
    yield from _choice(context)
    if rules.parallel is False and context.refuses_by_name:
        for path in _PARALLEL:
            if (value := get(context.body, path)) is not None:
                yield Violation("param", f"Unsupported parameter: '{path}'.", param=path, value=value)


def _function(rules: Tools, tool: ParsedTool, index: int) -> Iterator[Violation]:
    path = f"tools[{index}].function"
    name, parameters = tool.name, tool.parameters
    if not isinstance(name, str) or not name:
        yield Violation("param", f"{path}.name is missing.", f"{path}.name", index=index)
        return
    if rules.name_max_length is not None and len(name) > rules.name_max_length:
        message = f"{path}.name is longer than {rules.name_max_length} characters."
        yield Violation("param", message, f"{path}.name", name, index=index)
    if rules.name_pattern is not None and not matches_whole(rules.name_pattern, name):
        yield Violation("param", f"{path}.name does not match {rules.name_pattern}", f"{path}.name", name, index=index)
    if rules.strict is False and tool.strict:
        yield Violation("param", f"{path}.strict is not supported.", f"{path}.strict", True, index=index)
    if (parameters is not None and not isinstance(parameters, dict)) or (rules.parameters and not parameters):
        message = f"{path}.parameters is not a JSON Schema."
        yield Violation("parameters", message, f"{path}.parameters", name, index=index)
    elif parameters and (problem := _schema_violation(parameters, rules.schema or (), rules.schema_drop or ())):
        message = f"Invalid schema for function '{name}': {problem}."
        yield Violation("parameters", message, f"{path}.parameters", name, index=index)


def _choice(context: RequestContext) -> Iterator[Violation]:
    choice = context.request.choice
    if choice is None:
        return
    allowed = context.flags.tool_choice.allowed or _CHOICES
    if choice not in allowed:
        message = f"tool_choice {choice} is not supported."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif not context.request.tools:
        message = "tool_choice is only allowed when tools are specified."
        yield Violation("tool-choice", message, param="tool_choice", value=choice, choice=choice)
    elif choice == "named" and all(t.name != context.request.named for t in context.request.tools):
        message = f"tool_choice names {context.request.named}, which is not among the tools."
        yield Violation("tool-choice", message, param="tool_choice", value=context.request.named, choice=choice)


# ── schemas ──────────────────────────────────────────────────────────────────
# The walk is that of the adaptation of a schema for a request; the rules are not, so that an error there shows here.
def _schema_violation(schema: dict[str, Any], rules: Collection[str], keywords: Collection[str]) -> str | None:
    """Return the violation of the rules of `tools.schema` and `tools.schema_drop`, or None."""
    if "root-object" in rules and (schema.get("type") != "object" or any(key in schema for key in _COMBINED)):
        return "the root must have type 'object' and no combination"
    return next((problem for node in schemas_in(schema) if (problem := _node_violation(node, rules, keywords))), None)


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
