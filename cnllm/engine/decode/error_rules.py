"""Classify an error by the rules of the registry (`errors`).

Patterns are matched without backtracking: the time grows linearly with the text, whatever pattern a registry file
holds. A pattern outside this subset matches nothing; `cnllm registry check` reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from cnllm.registry.flags import ErrorRule
from cnllm.schemas.patterns import ignore_case

if TYPE_CHECKING:
    from cnllm.schemas.patterns import Pattern

__all__ = ["RETRYABLE", "VAGUE", "classify"]

VAGUE = frozenset({"bad-request", "other"})
"""The kinds that say only that the request failed."""

RETRYABLE = frozenset({"rate", "overloaded"})
"""The kinds that may succeed later, where the rule does not decide."""
_MAX_SEARCHED = 65_536  # characters that a rule searches


def classify(rules: Iterable[ErrorRule], status: int, text: str, codes: Collection[str]) -> tuple[str, bool]:
    """Return the kind of an error, and whether the same request may succeed later.

    `text` holds all texts of the error, its main sentence first; `codes` are its codes in lower case.
    """
    text = text[:_MAX_SEARCHED]
    folded = text.lower()
    for rule in sorted(rules, key=_rank):  # stable: rules of a nearer layer stay first
        if (
            (rule.status is None or status in rule.status)
            and (rule.code is None or any(c.lower() in codes for c in rule.code))
            and (rule.text is None or any(t.lower() in folded for t in rule.text))
            and (rule.pattern is None or any(_compile(p).matches(text) for p in rule.pattern))
            and (rule.unless is None or all(_compile(p).matches(text) is False for p in rule.unless))
        ):
            return rule.kind, rule.retry if rule.retry is not None else rule.kind in RETRYABLE
    return "other", status in (408, 409, 429) or status >= 500


def _rank(rule: ErrorRule) -> int:
    """Return the order of a rule: 0 for a specific one, 1 for a general code, 2 for a status alone."""
    if rule.text is not None or rule.pattern is not None:
        return 0
    if rule.code is None:
        return 2
    return 1 if rule.kind in VAGUE or all(len(code) == 3 and code.isdigit() for code in rule.code) else 0


@lru_cache(maxsize=512)
def _compile(source: str) -> Pattern:
    """Compile a pattern that ignores case."""
    return ignore_case(source)
