"""Translate the caller's reasoning option into changes of the body, by the flags."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.registry.flags import LEVELS, BudgetFlags, Effort, Patch, ReasoningFlags

__all__ = ["ReasoningPlan", "can_turn_off", "is_reasoning", "plan_reasoning"]


class ReasoningPlan(Struct, frozen=True):
    """The changes of the body: patches, then values at paths.

    `budget` is the path and the tokens of a token budget.
    """

    patches: tuple[Patch, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()
    budget: tuple[str, int] | None = None


_NO_CHANGE = ReasoningPlan()


def is_reasoning(option: str | int | None, flags: ReasoningFlags) -> bool | None:
    """Whether the model will reason; None where it is unknown."""
    if flags.mode in ("always", "never"):
        return flags.mode == "always"
    if option is None:
        return None if flags.default is None else flags.default == "on"
    return option not in ("off", 0)


def can_turn_off(flags: ReasoningFlags) -> bool:
    """Whether reasoning may be turned off: it is not known to stay on."""
    return flags.mode != "always" and (flags.off is not None or flags.default != "on")


def plan_reasoning(option: str | int | None, flags: ReasoningFlags, ledger: Ledger) -> ReasoningPlan:
    """Return the changes for the caller's option, with a note on each step that loses something.

    Raises `CannotSend` where the caller's policy forbids the change.
    """
    if option is None:
        return _NO_CHANGE
    if flags.effort is not None and (flags.effort.at is None or not _declared_levels(flags.effort)):
        flags = replace(flags, effort=None)  # a place without words says nothing
    if option == 0 and type(option) is int:
        option = "off"
    if flags.mode == "never":
        did = "left out: the model does not reason"
        if option != "off" and not ledger.may_change("reasoning-unsupported", "reasoning.mode", option, did):
            return _turn_on(option, flags, ledger)
        return _NO_CHANGE
    if option == "off":
        return _turn_off(flags, ledger)
    return _turn_on(option, flags, ledger)


def _turn_off(flags: ReasoningFlags, ledger: Ledger) -> ReasoningPlan:
    """Return the changes that turn reasoning off."""
    did = "left on: it cannot be turned off"
    if flags.mode == "always" and ledger.may_change("reasoning-always", "reasoning.mode", "off", did):
        return _NO_CHANGE
    if flags.off is not None:
        return ReasoningPlan((flags.off,))
    if flags.default != "off":
        ledger.may_change("reasoning-unknown", "reasoning.off", "off", "not changed: no way to turn it off is known")
    return _NO_CHANGE


def _turn_on(option: str | int, flags: ReasoningFlags, ledger: Ledger) -> ReasoningPlan:
    """Return the changes that turn reasoning on, with a level or a budget."""
    patches = (flags.on,) if flags.on is not None else ()
    is_known = flags.on is not None or flags.mode == "always" or flags.default == "on"
    if option == "on":
        if not is_known and flags.effort is None and flags.budget is None:
            ledger.may_change("reasoning-unknown", "reasoning.on", "on", "not changed: no way to turn it on is known")
        if flags.on is None and flags.default != "on" and flags.mode != "always" and flags.effort is not None:
            return ReasoningPlan(patches, _effort_value("medium", flags.effort, ledger, note=False))
        return ReasoningPlan(patches)
    if type(option) is int:
        if flags.budget is not None and flags.budget.at:
            return ReasoningPlan(patches, budget=(flags.budget.at, _limit_budget(option, flags.budget, ledger)))
        level = _nearest_level(option, flags)
        if level is not None and flags.effort is not None:
            values = _effort_value(level, flags.effort, ledger, note=False)
            did = f"{values[0][1]}: it takes levels, not tokens"
            if not ledger.may_change("reasoning-level", "reasoning.effort", f"{option} tokens", did):
                return ReasoningPlan(patches, ((flags.effort.at, option),) if flags.effort.at else ())
            return ReasoningPlan(patches, values)
    elif flags.effort is not None and flags.effort.at:
        return ReasoningPlan(patches, _effort_value(str(option), flags.effort, ledger))
    elif flags.budget is not None and flags.budget.at and flags.effort_budgets:
        tokens = flags.effort_budgets.get(str(option))
        if tokens is not None:
            limited = _limit_budget(tokens, flags.budget, ledger, quiet=True)
            return ReasoningPlan(patches, budget=(flags.budget.at, limited))
    if is_known:
        switch = "reasoning.on" if flags.on is not None else "reasoning.mode"
        ledger.may_change("reasoning-level", switch, option, "on: no levels are known")
    else:
        ledger.may_change("reasoning-unknown", "reasoning.effort", option, "left out: no way to request it is known")
    return ReasoningPlan(patches)


def _effort_value(level: str, effort: Effort, ledger: Ledger, *, note: bool = True) -> tuple[tuple[str, Any], ...]:
    """Return the level's word with its path.

    Where the endpoint lacks the level, use the nearest one; of two equally near, the stronger.
    """
    assert effort.at is not None
    value = getattr(effort, level)
    if value is None:
        position = LEVELS.index(level)
        nearest = min(
            _declared_levels(effort), key=lambda name: (abs(LEVELS.index(name) - position), -LEVELS.index(name))
        )
        value = getattr(effort, nearest)
    if note and value.lower() != level and not ledger.may_change("reasoning-level", "reasoning.effort", level, value):
        value = level
    return ((effort.at, value),)


def _declared_levels(effort: Effort) -> list[str]:
    """Return the levels for which the endpoint has a word."""
    return [name for name in LEVELS if getattr(effort, name) is not None]


def _limit_budget(tokens: int, budget: BudgetFlags, ledger: Ledger, *, quiet: bool = False) -> int:
    """Return a budget within the endpoint's limits."""
    limited = tokens
    if budget.min is not None:
        limited = max(limited, budget.min)
    if budget.max is not None:
        limited = min(limited, budget.max)
    if limited == tokens or quiet:
        return limited
    return limited if ledger.may_change("reasoning-budget", "reasoning.budget", tokens, f"{limited}") else tokens


def _nearest_level(tokens: int, flags: ReasoningFlags) -> str | None:
    """Return the level whose budget is nearest to a number of tokens."""
    scale = {k: v for k, v in (flags.effort_budgets or {}).items() if getattr(flags.effort, k, None) is not None}
    return min(scale, key=lambda name: abs(scale[name] - tokens)) if scale else None
