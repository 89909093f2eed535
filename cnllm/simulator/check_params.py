"""What an endpoint refuses about parameters: their names and values, limits, and how reasoning is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cnllm.registry import param_rules
from cnllm.registry.flags import LEVELS, Budget, Flags, Param, Reasoning
from cnllm.simulator.jsonpath import at, leaves
from cnllm.simulator.request import input_tokens, off_asked, on_asked, param_path
from cnllm.simulator.violations import Case, Wrong

__all__ = ["context_violations", "param_violations", "reasoning_violations"]


def param_violations(case: Case) -> Iterator[Wrong]:
    """Yield the parameters that the endpoint does not take, or not with their values."""
    for name, rule in (case.flags.params or {}).items():
        if param_rules.state(rule) == "ignored":
            continue
        path = param_path(case.flags, name)
        value = at(case.body, path or name)
        if path is None or (path != name and value is None):
            yield from _old_name(case, name, path)
        if value is None:
            yield from _missing(case, name, rule, path)
        elif isinstance(rule, Param) and (said := _outside(rule, value)):
            yield Wrong("param", f"invalid {path}: {said}", param=path, value=value)
    yield from _dropped(case)
    yield from _output(case)


def _old_name(case: Case, name: str, path: str | None) -> Iterator[Wrong]:
    """A parameter under a name that this endpoint does not know: it is refused, or has another.

    Recordings show endpoints that take an old name as well as the new one, so that a strict one alone minds.
    """
    value = at(case.body, name)
    refuses = case.refuses_by_name if path is None else case.strict
    if value is None or not refuses or name in _first_keys(case.flags):
        return
    instead = f" Use '{path}' instead." if path is not None else ""
    yield Wrong("param", f"Unsupported parameter: '{name}'.{instead}", param=name, value=value)


def _first_keys(flags: Flags) -> set[str]:
    """The keys of a body that some flag puts a value under."""
    paths = [p for name in flags.params or {} if (p := param_path(flags, name)) is not None]
    reasoning = flags.reasoning
    if reasoning is not None:
        paths += [place.at for place in (reasoning.effort, reasoning.budget) if place is not None and place.at]
        paths += [path for patch in (reasoning.on, reasoning.off) if patch is not None for path in patch.set or {}]
    paths += list((flags.body.set if flags.body is not None else None) or {})
    return {path.partition(".")[0] for path in paths}


def _missing(case: Case, name: str, rule: Any, path: str | None) -> Iterator[Wrong]:
    """A parameter that has a default in the registry is one that the endpoint demands."""
    if not case.strict or not isinstance(rule, Param) or rule.default is None or path is None:
        return
    if not isinstance(rule.default, list) or any(isinstance(one, int | float) for one in rule.default):
        yield Wrong("param", f"{path}: field required", param=path)


def _dropped(case: Case) -> Iterator[Wrong]:
    for path in (case.flags.body.drop if case.flags.body is not None else None) or ():
        value = at(case.body, path)
        if value is not None and case.refuses_by_name:
            yield Wrong("param", f"Unsupported parameter: '{path}'.", param=path, value=value)


def _output(case: Case) -> Iterator[Wrong]:
    """How much the answer may have."""
    path = param_path(case.flags, "max_tokens") or "max_tokens"
    room = at(case.body, path)
    most = case.flags.limits.output if case.flags.limits is not None else None
    if room is not None and (type(room) is not int or room < 1):
        yield Wrong("param", f"invalid {path}: it is a positive integer", param=path, value=room)
    elif room is not None and most is not None and room > most:
        message = f"invalid {path}: {room} is more than this model's {most}"
        yield Wrong("max-tokens", message, param=path, value=room)


def context_violations(case: Case) -> Iterator[Wrong]:
    """Yield the overflow of a prompt that is longer than the window. A token is estimated, as in the usage."""
    window = case.flags.limits.context if case.flags.limits is not None else None
    if window is None:
        return
    tokens = input_tokens(case.asked)
    if tokens > window:
        # In the words by which the clients of every wire know it.
        message = (
            f"The prompt is too long: its token count of {tokens} exceeds the maximum number of tokens allowed "
            f"({window}), the maximum context length of this model."
        )
        yield Wrong("context", message, param="messages", value=tokens)


# ── reasoning ────────────────────────────────────────────────────────────────
def reasoning_violations(case: Case) -> Iterator[Wrong]:
    """Yield what is wrong with how reasoning is asked for."""
    reasoning = case.flags.reasoning
    if reasoning is None:
        return
    if reasoning.mode == "never" and case.refuses_by_name and on_asked(reasoning, case.body):
        yield Wrong("param", "This model does not reason.", param="reasoning")
    yield from _effort(case, reasoning)
    if reasoning.budget is not None and reasoning.budget.at:
        yield from _budget(case, reasoning, reasoning.budget, reasoning.budget.at)


def _effort(case: Case, reasoning: Reasoning) -> Iterator[Wrong]:
    effort = reasoning.effort
    if effort is None or not effort.at or (sent := at(case.body, effort.at)) is None:
        return
    words = [word for level in LEVELS if (word := getattr(effort, level)) is not None]
    for patch in (reasoning.on, reasoning.off):
        said = leaves(patch.set).get(effort.at) if patch is not None and patch.set else None
        words += [said] if isinstance(said, str) else []
    # Where it cannot be turned off, or another switch does it, "none" is judged by the mode.
    if words and sent not in words and not (sent == "none" and off_asked(reasoning, case.body)):
        allowed = ", ".join(dict.fromkeys(words))
        message = f"invalid {effort.at}: '{sent}' is none of {allowed}"
        yield Wrong("param", message, param=effort.at, value=sent)


def _budget(case: Case, reasoning: Reasoning, budget: Budget, path: str) -> Iterator[Wrong]:
    tokens = at(case.body, path)
    if tokens is None:
        return
    if any(patch is not None and at(patch.set, path) == tokens for patch in (reasoning.off, reasoning.on)):
        return  # no number of tokens, but the endpoint's word for off or on
    if type(tokens) is not int or _bound_broken(tokens, budget.min, budget.max):
        message = f"invalid {path}: {_bound_broken(tokens, budget.min, budget.max) or 'not an integer'}"
        yield Wrong("param", message, param=path, value=tokens)
    ceiling = at(case.body, param_path(case.flags, budget.under) or budget.under) if budget.under else None
    if type(tokens) is int and type(ceiling) is int and tokens >= ceiling:
        yield Wrong("param", f"invalid {path}: must be less than {budget.under}", param=path, value=tokens)


# ── values ───────────────────────────────────────────────────────────────────
def _outside(rule: Param, value: Any) -> str | None:
    """Why a value is not taken, None where it is."""
    if rule.fixed is not None and value != rule.fixed:
        return f"only {rule.fixed} is allowed for this model"
    if rule.items is not None and isinstance(value, list) and len(value) > rule.items:
        return f"at most {rule.items} items are allowed"
    return _bound_broken(value, rule.min, rule.max, rule.above, rule.below)


def _bound_broken(
    value: Any,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> str | None:
    """Which bound a value breaks, in words; None where it breaks none."""
    if least is None and most is None and above is None and below is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "it must be a number"
    if least is not None and value < least:
        return f"must be at least {least:g}"
    if most is not None and value > most:
        return f"must be at most {most:g}"
    if above is not None and value <= above:
        return f"must be greater than {above:g}"
    if below is not None and value >= below:
        return f"must be less than {below:g}"
    return None
