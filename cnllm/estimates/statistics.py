"""Intervals and tests for small numbers: Wilson's interval, a bootstrap of the median, exact paired tests, Holm.

All are exact or seeded, so that the same results give the same figures to the last digit.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["adjust_sign_tests", "detectable_share", "looks", "median_interval", "sign_test", "wilson"]

_Z = 1.959963984540054  # of 95 %
_SAMPLES = 400
_POWER = 0.8


def wilson(hits: int, number: int, z: float = _Z) -> tuple[float, float] | None:
    """Return the interval in which a share lies with 95 %, or so many standard errors wide; None without data."""
    if not number:
        return None
    share, z2 = hits / number, z * z
    middle = share + z2 / (2 * number)
    spread = z * math.sqrt(share * (1 - share) / number + z2 / (4 * number * number))
    low, high = ((middle - spread) / (1 + z2 / number), (middle + spread) / (1 + z2 / number))
    return round(max(0.0, low), 6), round(min(1.0, high), 6)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval in which a median lies with 95 %, by a bootstrap; None without data."""
    if not values:
        return None
    rng = random.Random(len(values))
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(_SAMPLES))
    return medians[int(0.025 * _SAMPLES)], medians[int(0.975 * _SAMPLES) - 1]


def sign_test(worse: int, better: int) -> float:
    """Return the probability of at least so many pairs in which a host is worse, if worse and better were as likely."""
    number = worse + better
    return float(sum(math.comb(number, count) for count in range(worse, number + 1)) / 2**number)


def adjust_sign_tests(counts: Mapping[tuple[str, str], tuple[int, int]]) -> dict[tuple[str, str], float]:
    """Return the probabilities of several sign tests, each given by its worse and better pairs, for all together.

    They are corrected step by step (Holm), but each other test counts with the probability that it can reach with its
    pairs, and not as a whole one: among three pairs nothing is shown, so that such a test costs the others nothing.
    """
    ordered = sorted((sign_test(*pair), name) for name, pair in counts.items())
    numbers = [sum(counts[name]) for _, name in ordered]
    adjusted: dict[tuple[str, str], float] = {}
    highest = 0.0
    for index, (value, name) in enumerate(ordered):
        rest = Counter(numbers[index:])
        highest = max(highest, min(1.0, sum(times * _highest_chance(number, value) for number, times in rest.items())))
        adjusted[name] = highest
    return adjusted


def _highest_chance(number: int, most: float) -> float:
    """Return the highest probability up to `most` that a sign test of so many pairs can have; 0 without one."""
    tails = _tails(number)
    place = bisect_right(tails, most)
    return tails[place - 1] if place else 0.0


@lru_cache(maxsize=1024)
def _tails(number: int) -> tuple[float, ...]:
    """Return the probabilities that a sign test of so many pairs can have, the lowest first."""
    return tuple(sign_test(worse, number - worse) for worse in range(number, -1, -1))


def looks(tasks: int, alpha: float, *, early: bool) -> tuple[tuple[int, float], ...]:
    """Return after how many tasks the results are looked at, each with the error that this look may have.

    They add up to `alpha`, so that looking three times makes no more false alarms than looking once.
    """
    if not early:
        return ((tasks, alpha),)
    return ((tasks // 4, alpha * 0.1), (tasks // 2, alpha * 0.2), (tasks, alpha * 0.7))


@lru_cache(maxsize=1024)
def detectable_share(pairs: int, alpha: float, tests: int) -> float | None:
    """Return the share of tasks that a host has to spoil, so that so many pairs show it in four runs of five.

    The reference is taken to spoil none. None where even a host that spoils every task would not be shown.
    """
    needed = max(1, math.ceil(-math.log2(alpha / max(1, tests))))
    if needed > pairs:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        missed = sum(math.comb(pairs, k) * share**k * (1 - share) ** (pairs - k) for k in range(needed))
        low, high = (low, share) if 1 - missed >= _POWER else (share, high)
    return round(high, 4)
