"""Say once a process that the limits and prices of a model are old.

Asked of models that only a public list describes: `cnllm registry update` reads the list anew. The age is that of the
source of the model's own facts.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from cnllm.registry.provenance import precision_of

if TYPE_CHECKING:
    from cnllm.registry.model import Model

__all__ = ["MOST_DAYS", "UPDATE", "age_warning", "days_since"]

MOST_DAYS = 30
"""The age from which data are called old."""

UPDATE = "cnllm registry update --from models.dev --from litellm"
"""The command that reads the public lists."""

_CATALOGUE_NOTE = "catalogue-model"


def age_warning(model: Model) -> str | None:
    """Return the sentence about old limits and prices of a model of a public list; None for every other one."""
    if not any(note.code == _CATALOGUE_NOTE for note in model.notes):
        return None
    seen = _last_read(model)
    days = days_since(seen) if seen is not None else 0
    if days <= MOST_DAYS:
        return None
    return f"limits and prices from a public list were read {days} days ago, on {seen}; to read it anew: {UPDATE}"


def days_since(day: str) -> int:
    """Return the days from an ISO date to today, by UTC."""
    return (datetime.datetime.now(datetime.UTC).date() - datetime.date.fromisoformat(day)).days


@lru_cache(maxsize=64)
def _last_read(model: Model) -> str | None:
    """Return the day of the oldest source of a model's limits and prices; None where none is known."""
    days = (fact.seen for fact in model.explain() if precision_of(fact.flag, ("limits", "price")))
    return min(filter(None, days), default=None)
