"""Decide what an error is by the rules of the registry (`errors`).

Patterns are matched by an engine that never backtracks: whatever a registry file writes, the work grows with the text
and no faster. A pattern that it cannot express matches nothing; `cnllm registry check` reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from cnllm.registry.flags import ErrorRule

if TYPE_CHECKING:
    from cnllm.schemas import Pattern

__all__ = ["RETRYABLE", "VAGUE", "classify"]

VAGUE = frozenset({"bad-request", "other"})
"""The kinds that say no more than that the request failed."""

RETRYABLE = frozenset({"rate", "overloaded"})
"""The kinds that may succeed later, where the rule does not say."""
_LONGEST = 65_536  # characters in which a rule looks


def classify(rules: Iterable[ErrorRule], status: int, said: str, codes: Collection[str]) -> tuple[str, bool]:
    """Return what an error is, and whether the same request may succeed later.

    `said` is all that the error says, its main sentence first; `codes` are its codes in lower case.
    """
    said = said[:_LONGEST]
    folded = said.lower()
    for rule in sorted(rules, key=_rank):  # stable: the nearest layer stays first
        if (
            (rule.status is None or status in rule.status)
            and (rule.code is None or any(c.lower() in codes for c in rule.code))
            and (rule.text is None or any(t.lower() in folded for t in rule.text))
            and (rule.pattern is None or any(_compiled(p).matches(said) for p in rule.pattern))
            and (rule.unless is None or all(_compiled(p).matches(said) is False for p in rule.unless))
        ):
            return rule.kind, rule.retry if rule.retry is not None else rule.kind in RETRYABLE
    return "other", status in (408, 409, 429) or status >= 500


def _rank(rule: ErrorRule) -> int:
    if rule.text is not None or rule.pattern is not None:
        return 0
    if rule.code is None:
        return 2
    return 1 if rule.kind in VAGUE or all(len(code) == 3 and code.isdigit() for code in rule.code) else 0


@lru_cache(maxsize=512)
def _compiled(source: str) -> Pattern:
    from cnllm.schemas import ignore_case  # a call that goes well has no time for it

    return ignore_case(source)
