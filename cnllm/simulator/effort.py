"""Compute the length of simulated reasoning from the effort or the budget of a request."""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import LEVELS, Reasoning
from cnllm.simulator.tokenize import split_pieces

__all__ = ["reasoning_text"]

_STEPS = {"minimal": 0, "low": 1, "medium": 2, "high": 4, "xhigh": 6, "max": 8}
"""Additional sentences for each level."""
_TOKENS_PER_STEP = 1024
"""Tokens of a budget for each additional sentence."""
_MAX_STEPS = 40
"""The most additional sentences for a budget."""


def reasoning_text(reasoning: Reasoning | None, body: dict[str, Any], start: str, step: str) -> str:
    """Return `start` and further steps: more for a higher effort or a larger budget, within the budget."""
    budget = reasoning.budget if reasoning is not None else None
    tokens = get(body, budget.at) if budget is not None and budget.at else None
    steps = _effort_steps(reasoning, body)
    if type(tokens) is int and tokens > 0:
        steps = min(_MAX_STEPS, tokens // _TOKENS_PER_STEP)
    text = start + "".join(step.format(n=n + 1) for n in range(steps))
    return "".join(split_pieces(text)[:tokens]) if type(tokens) is int and tokens > 0 else text


def _effort_steps(reasoning: Reasoning | None, body: dict[str, Any]) -> int:
    effort = reasoning.effort if reasoning is not None else None
    word = get(body, effort.at) if effort is not None and effort.at else None
    if effort is None or not isinstance(word, str):
        return 0
    levels = [level for level in LEVELS if getattr(effort, level) == word]
    level = word if word in levels or not levels else levels[-1]
    return _STEPS.get(level.lower(), 0)
