"""Check parameters as an endpoint does: their names and values, limits, and reasoning."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from cnllm.jsonpath import get, leaves
from cnllm.registry import param_rules
from cnllm.registry.flags import LEVELS, BudgetFlags, Flags, Param, ReasoningFlags
from cnllm.simulator.request import input_tokens, param_path, turns_reasoning_off, turns_reasoning_on
from cnllm.simulator.violations import RequestContext, Violation

__all__ = ["context_violations", "param_violations", "reasoning_violations"]


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
    yield from _dropped(context)
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
    if reasoning is not None:
        paths += [place.at for place in (reasoning.effort, reasoning.budget) if place is not None and place.at]
        paths += [path for patch in (reasoning.on, reasoning.off) if patch is not None for path in patch.set or {}]
    paths += list((flags.body.set if flags.body is not None else None) or {})
    return {path.partition(".")[0] for path in paths}


def _missing_default(context: RequestContext, name: str, rule: Any, path: str | None) -> Iterator[Violation]:
    """Yield a required parameter that is missing: one with a default in the registry is required."""
    if not context.strict or not isinstance(rule, Param) or rule.default is None or path is None:
        return
    if not isinstance(rule.default, list) or any(isinstance(item, int | float) for item in rule.default):
        yield Violation("param", f"{path}: field required", param=path)


def _dropped(context: RequestContext) -> Iterator[Violation]:
    """Yield the keys that the endpoint never takes. One that it takes in another mode is of no use, but not refused."""
    body, reasoning = context.flags.body, context.flags.reasoning
    is_always = reasoning is not None and reasoning.mode == "never"
    for path in (body.drop if body is not None else None) or ():
        value = get(context.body, path)
        is_own = not is_always and body is not None and get(body.set or {}, path) is not None
        if value is not None and not is_own and context.refuses_by_name:
            yield Violation("param", f"Unsupported parameter: '{path}'.", param=path, value=value)


def _output_limit(context: RequestContext) -> Iterator[Violation]:
    """Yield a violation of the limit of output tokens."""
    path = param_path(context.flags, "max_tokens") or "max_tokens"
    tokens = get(context.body, path)
    maximum = context.flags.limits.output if context.flags.limits is not None else None
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        yield Violation("param", f"invalid {path}: it is a positive integer", param=path, value=tokens)
    elif tokens is not None and maximum is not None and tokens > maximum:
        message = f"invalid {path}: {tokens} is more than this model's {maximum}"
        yield Violation("max-tokens", message, param=path, value=tokens)


def context_violations(context: RequestContext) -> Iterator[Violation]:
    """Yield a violation if the prompt is longer than the window. Tokens are estimated, as in the usage."""
    window = context.flags.limits.most_input if context.flags.limits is not None else None
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
    if reasoning is None:
        return
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
    if (
        words
        and effort_word not in words
        and not (effort_word == "none" and turns_reasoning_off(reasoning, context.body))
    ):
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
