"""How many examples or cases a property is tried on: a share of them in each run, all of them in `.ci/long`.

A test that takes `SHARE` or `share` by itself has the marker `sampled`; those of hypothesis get it from conftest.py. Of
the cases of a test with the marker `share(n)`, one of n is tried, whether pytest or `each` makes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["PROFILE", "SHARE", "TURN", "changes", "examples", "has_turn", "load", "share", "some"]

T = TypeVar("T")

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
_USUAL = 100
SHARE = 1 if PROFILE == "full" else 12
"""One example of so many is tried in this run."""
_FEWEST = 12

# No test measures time: how long an example takes says how busy the machine is.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def changes(notes: Sequence[Any]) -> int:
    """How many messages notes are about: one of several messages has their number."""
    return sum(1 + int(more[1]) if (more := _MORE.search(note.said)) else 1 for note in notes)


_MORE = re.compile(r"; (\d+) more, the last in messages\[\d+\]$")


def share(count: int) -> int:
    """So many of that many examples are tried in this run."""
    return min(count, max(_FEWEST, count // SHARE))


def examples(count: int, **more: Any) -> settings:
    """Settings for a property that is worth that many examples, however long each takes."""
    return settings(_UNHURRIED, max_examples=share(count), **more)


def some(items: Sequence[T], start: int = 0) -> Sequence[T]:
    """Those of a table that this run tries: one of four from `start` on, all in .ci/long or of a short table."""
    return items if SHARE == 1 else items[start % 4 :: 4] or items


TURN = pytest.StashKey[tuple[int, int]]()
"""Which turn an item of pytest has, and of how many."""


def has_turn(turn: tuple[int, int], case: int, cases: int) -> bool:
    """Whether .ci/run tries a case in a turn: each case has one turn, and each turn one case or more.

    .ci/long tries every case in every turn. Turns shift by one each round, as tables often have a period of their own.
    """
    number, count = turn
    return number == (case + case // count) % count or (number >= cases and number % cases == case)


def load() -> None:
    """Load the profile that HYPOTHESIS_PROFILE names: "same" (a share of the examples), "full", or "explore"."""
    settings.register_profile("same", _UNHURRIED, max_examples=share(_USUAL), derandomize=True, database=None)
    settings.register_profile("full", _UNHURRIED, max_examples=_USUAL, derandomize=True, database=None)
    settings.register_profile("explore", _UNHURRIED, max_examples=5_000)
    settings.load_profile(PROFILE)


load()  # before a module of tests makes settings of its own
