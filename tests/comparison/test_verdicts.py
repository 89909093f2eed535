"""How often the verdicts of `cnllm compare` name a fault, and accuse a faithful host: exactly, and in drawn runs."""

from __future__ import annotations

import itertools
import math

import pytest

from benchmarks.verdicts import CASES, FAITHFUL, Case, Laboratory, draw_verdicts, hosts_registry
from cnllm.estimates.statistics import adjust_sign_tests, sign_test

ALPHA = 0.05


@pytest.mark.parametrize("pairs", [(6, 7, 9), (1, 2, 12), (6, 6, 6), (4, 8, 10)])
def test_equal_hosts_are_accused_no_more_often_than_promised(pairs: tuple[int, ...]) -> None:
    """All outcomes of some independent tests of equal hosts, each with its probability."""
    accused = 0.0
    for worse in itertools.product(*(range(number + 1) for number in pairs)):
        counts = {("host", str(n)): (hits, pairs[n] - hits) for n, hits in enumerate(worse)}
        if min(adjust_sign_tests(counts).values()) < ALPHA:
            accused += math.prod(math.comb(number, hits) / 2**number for number, hits in zip(pairs, worse, strict=True))
    assert 0 < accused <= ALPHA


def test_a_test_that_can_show_nothing_costs_the_others_nothing() -> None:
    alone = {("host", "kept"): (10, 0)}
    idle = {("host", f"idle-{number}"): (2, 1) for number in range(20)}
    assert adjust_sign_tests(alone | idle)["host", "kept"] == adjust_sign_tests(alone)["host", "kept"]
    busy = {("host", f"busy-{number}"): (20, 20) for number in range(20)}
    adjusted = adjust_sign_tests(alone | busy)["host", "kept"]
    assert sign_test(10, 0) < adjusted <= 21 * sign_test(10, 0)


@pytest.fixture(scope="module")
def laboratories() -> dict[int, Laboratory]:
    registry = hosts_registry()
    return {turns: Laboratory(registry, 11, turns) for turns in CASES}


@pytest.mark.long
@pytest.mark.parametrize(
    ("turns", "case"), [(turns, case) for turns, cases in CASES.items() for case in cases], ids=str
)
def test_each_fault_is_named_at_the_size_that_the_manual_states(
    laboratories: dict[int, Laboratory], turns: int, case: Case
) -> None:
    named = sum(bool(case.figures & figures) for figures in draw_verdicts([laboratories[turns]], case, 100, 3))
    assert named >= 85  # nine of ten, with the chance of a hundred runs


@pytest.mark.long
def test_a_faithful_host_is_accused_in_one_of_a_hundred_runs_at_most(laboratories: dict[int, Laboratory]) -> None:
    for laboratory in laboratories.values():
        assert sum(map(bool, draw_verdicts([laboratory], FAITHFUL, 500, 3))) <= 5


def test_a_parser_that_loses_every_tenth_call_is_named_beside_a_model_that_errs(
    laboratories: dict[int, Laboratory],
) -> None:
    case = CASES[100][0]
    assert sum("kept" in figures for figures in draw_verdicts([laboratories[100]], case, 20, 5)) >= 17
