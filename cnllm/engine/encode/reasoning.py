"""How reasoning is asked for: the caller's word → body patches, by the flags."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cnllm.engine.adjustments import Ledger
from cnllm.registry.flags import LEVELS, Budget, Effort, Patch, Reasoning

__all__ = ["ReasoningPlan", "is_reasoning", "plan_reasoning"]


class ReasoningPlan(Struct, frozen=True):
    """What goes into the body: patches, then values at paths; `budget` is the path and tokens of a token budget."""

    patches: tuple[Patch, ...] = ()
    puts: tuple[tuple[str, Any], ...] = ()
    budget: tuple[str, int] | None = None


_NOTHING = ReasoningPlan()


def is_reasoning(asked: str | int | None, reasoning: Reasoning | None) -> bool | None:
    """Will the model think? None when nobody can tell."""
    mode = reasoning.mode if reasoning else None
    if mode in ("always", "never"):
        return mode == "always"
    if asked is None:
        default = reasoning.default if reasoning else None
        return None if default is None else default == "on"
    return asked not in ("off", 0)


def plan_reasoning(asked: str | int | None, reasoning: Reasoning | None, ledger: Ledger) -> ReasoningPlan:
    """The patches for what was asked, each lossy step noted. Raises `CannotSend` where the caller forbade adjusting."""
    flags = reasoning or Reasoning()
    if asked is None:
        return _NOTHING
    if asked == 0 and type(asked) is int:
        asked = "off"
    if flags.mode == "never":
        if asked != "off" and not ledger.may_change(
            "reasoning-unsupported", "reasoning.mode", asked, "left out: the model does not reason"
        ):
            return _asked_on(asked, flags, ledger)
        return _NOTHING
    if asked == "off":
        return _off(flags, ledger)
    return _asked_on(asked, flags, ledger)


def _off(flags: Reasoning, ledger: Ledger) -> ReasoningPlan:
    if flags.mode == "always" and ledger.may_change(
        "reasoning-always", "reasoning.mode", "off", "left on: it cannot be turned off"
    ):
        return _NOTHING
    if flags.off is not None:
        return ReasoningPlan((flags.off,))
    if flags.default != "off":
        ledger.may_change("reasoning-unknown", "reasoning.off", "off", "left as it is: no way to turn it off is known")
    return _NOTHING


def _asked_on(asked: str | int, flags: Reasoning, ledger: Ledger) -> ReasoningPlan:
    patches = (flags.on,) if flags.on is not None else ()
    known = flags.on is not None or flags.mode == "always" or flags.default == "on"
    if asked == "on":
        if not known and flags.effort is None and flags.budget is None:
            ledger.may_change("reasoning-unknown", "reasoning.on", "on", "left as it is: no way to turn it on is known")
        if flags.on is None and flags.default != "on" and flags.mode != "always" and flags.effort is not None:
            return ReasoningPlan(patches, _level("medium", flags.effort, ledger, note=False))
        return ReasoningPlan(patches)
    if type(asked) is int:
        if flags.budget is not None and flags.budget.at:
            return ReasoningPlan(patches, budget=(flags.budget.at, _within(asked, flags.budget, ledger)))
        level = _nearest_level(asked, flags, flags.effort)
        if level is not None and flags.effort is not None:
            did = f"{level}: it takes levels, not tokens"
            if not ledger.may_change("reasoning-level", "reasoning.effort", f"{asked} tokens", did):
                return ReasoningPlan(patches, ((flags.effort.at, asked),) if flags.effort.at else ())
            return ReasoningPlan(patches, _level(level, flags.effort, ledger, note=False))
    elif flags.effort is not None and flags.effort.at:
        return ReasoningPlan(patches, _level(str(asked), flags.effort, ledger))
    elif flags.budget is not None and flags.budget.at and flags.effort_budgets:
        tokens = flags.effort_budgets.get(str(asked))
        if tokens is not None:
            return ReasoningPlan(patches, budget=(flags.budget.at, _within(tokens, flags.budget, ledger, quiet=True)))
    if known:
        switch = "reasoning.on" if flags.on is not None else "reasoning.mode"
        ledger.may_change("reasoning-level", switch, asked, "on: no levels are known")
    else:
        ledger.may_change("reasoning-unknown", "reasoning.effort", asked, "left out: how it is asked for is unknown")
    return ReasoningPlan(patches)


def _level(level: str, effort: Effort, ledger: Ledger, *, note: bool = True) -> tuple[tuple[str, Any], ...]:
    """The level's word at its place, or that of the nearest level the endpoint has (the stronger of two as near)."""
    if effort.at is None:
        return ()
    word = getattr(effort, level)
    if word is None:
        declared = [name for name in LEVELS if getattr(effort, name) is not None]
        if not declared:
            return ()
        wanted = LEVELS.index(level)
        nearest = min(declared, key=lambda name: (abs(LEVELS.index(name) - wanted), -LEVELS.index(name)))
        word = getattr(effort, nearest)
    if note and word.lower() != level and not ledger.may_change("reasoning-level", "reasoning.effort", level, word):
        word = level
    return ((effort.at, word),)


def _within(tokens: int, budget: Budget, ledger: Ledger, *, quiet: bool = False) -> int:
    fitted = tokens
    if budget.min is not None:
        fitted = max(fitted, budget.min)
    if budget.max is not None:
        fitted = min(fitted, budget.max)
    if fitted == tokens or quiet:
        return fitted
    return fitted if ledger.may_change("reasoning-budget", "reasoning.budget", tokens, f"{fitted}") else tokens


def _nearest_level(tokens: int, flags: Reasoning, effort: Effort | None) -> str | None:
    scale = {
        k: v
        for k, v in (flags.effort_budgets or {}).items()
        if effort is not None and getattr(effort, k, None) is not None
    }
    return min(scale, key=lambda name: abs(scale[name] - tokens)) if scale else None
