"""Write sampling parameters and limits into the body, by the flags: renamed, dropped, clamped, fixed."""

from __future__ import annotations

from typing import Any

from cnllm.engine.adjustments import Ledger
from cnllm.jsonpath import get, set_value
from cnllm.registry.flags import Flags, Param
from cnllm.registry.param_rules import Rule, path, state

__all__ = ["apply_params", "note_extra_body"]


def apply_params(body: dict[str, Any], asked: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Write each parameter at its path. One that the endpoint is not known to refuse keeps its own name."""
    rules = flags.params or {}
    for name, value in asked.items():
        _one(body, name, value, rules.get(name), flags, ledger.for_option(name))
    for name, rule in rules.items():
        if type(rule) is Param and name not in asked and (default := _default(rule.default, flags)) is not None:
            set_value(body, rule.as_ or name, default)
            ledger.note(
                "param-default",
                f"params.{name}.default",
                "not given",
                f"{default} is sent: it is required",
            )


def note_extra_body(extra: dict[str, Any], flags: Flags, ledger: Ledger) -> None:
    """Note the keys of `extra_body` that have no effect or are refused: they are sent all the same."""
    if ledger.policy == "send":
        return
    for name, rule in (flags.params or {}).items():
        if rule is False and name in extra:
            did = "sent as it is: extra_body goes out verbatim, though the endpoint does not take it"
            ledger.note("param-verbatim", f"params.{name}", f"{name}={extra[name]}", did)
        elif state(rule) == "ignored":
            value = get(extra, path(name, rule))
            if value is not None:
                did = "sent as it is: extra_body goes out verbatim, though the endpoint ignores it"
                ledger.note("param-verbatim", f"params.{name}", f"{name}={value}", did)
        elif type(rule) is Param and rule.fixed is not None:
            value = get(extra, rule.as_ or name)
            if value is not None and value != rule.fixed:
                did = f"sent as it is: extra_body goes out verbatim, though it is fixed at {rule.fixed}"
                ledger.note("param-verbatim", f"params.{name}", f"{name}={value}", did)


def _default(default: Any, flags: Flags) -> Any:
    """Return a default; of several the first known one, where a text names another flag.

    A limit of the output that would leave at most half the window for the input is reduced to that half.
    """
    if type(default) is not list:
        return default
    for one in default:
        found = one
        for key in one.split(".") if type(one) is str else ():
            found = getattr(flags if found is one else found, key, None)
        if found is not None:
            window = flags.limits.context if flags.limits and one == "limits.output" else None
            return found if window is None else min(found, window // 2)
    return None


def _one(body: dict[str, Any], name: str, value: Any, rule: Rule, flags: Flags, ledger: Ledger) -> None:
    """Write one parameter."""
    flag = f"params.{name}"
    where = path(name, rule)
    match state(rule):
        case "refused":
            if ledger.may_change("param-dropped", flag, value, "left out: the endpoint does not take it"):
                return
        case "ignored":
            # Left out, so that the body holds what has an effect, and stays whole the day the endpoint refuses it.
            if not ledger.may_change("param-dropped", flag, value, "left out: the endpoint ignores it"):
                ledger.note("param-ignored", flag, value, "sent as asked: the endpoint ignores it")
                set_value(body, where, value)
            return
    ceiling = flags.limits.output if flags.limits and name == "max_tokens" else None
    above = ceiling is not None and _number(value) and value > ceiling
    if above and ledger.may_change("param-clamped", "limits.output", f"{name}={value}", f"{ceiling}"):
        value = ceiling
    if type(rule) is Param:
        value = _fitted(name, value, rule, flag, ledger)
        if value is None:
            return
    set_value(body, where, value)


def _fitted(name: str, value: Any, rule: Param, flag: str, ledger: Ledger) -> Any:
    """Return the value in the rule's range; None to leave it out."""
    if rule.fixed is not None:
        if value == rule.fixed:
            return value
        fixed = ledger.may_change("param-fixed", flag, f"{name}={value}", f"left out: it is fixed at {rule.fixed}")
        return None if fixed else value
    if rule.items is not None and type(value) is list and len(value) > rule.items:
        kept = ", ".join(repr(v) for v in value[: rule.items])
        if ledger.may_change("param-clamped", flag, f"{len(value)} items", f"the first {rule.items}: {kept}"):
            value = value[: rule.items]
    if not _number(value):
        return value
    nearest = _nearest(value, rule)
    if nearest == value:
        return value
    match rule.otherwise or "clamp":
        case "error":
            if ledger.cannot("param-range", flag, f"{name}={value}", "out of range"):
                return None
        case "drop":
            if ledger.may_change("param-dropped", flag, f"{name}={value}", "left out: out of range"):
                return None
        case _:
            if ledger.may_change("param-clamped", flag, f"{name}={value}", f"{nearest}"):
                return nearest
    return value


def _nearest(value: float, rule: Param) -> float:
    """Return the nearest valid value; at an open bound, one declared step inside it."""
    step = rule.step if rule.step is not None else 0.01
    if rule.min is not None and value < rule.min:
        value = _whole(rule.min)
    if rule.max is not None and value > rule.max:
        value = _whole(rule.max)
    if rule.above is not None and value <= rule.above:
        value = _whole(rule.above + step)
    if rule.below is not None and value >= rule.below:
        value = _whole(rule.below - step)
    return value


def _whole(value: float) -> float:
    """Return a number without a fraction as a whole one: TOML's 1 and 1.0 are one value."""
    return int(value) if value == int(value) else round(value, 10)


def _number(value: Any) -> bool:
    return type(value) in (int, float)
