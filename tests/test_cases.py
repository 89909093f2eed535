"""`each` runs every case, and loses neither a failure nor a mark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import each
from examples import SHARE, has_turn, some


def run(test: Callable[..., None], **fixtures: Any) -> str:
    """What the test reports; "" where it passes."""
    try:
        test(**fixtures)
    except (pytest.fail.Exception, pytest.skip.Exception) as outcome:
        return f"{type(outcome).__name__}: {outcome}"
    return ""


def test_every_case_that_fails_is_named() -> None:
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2, 3])
    @each("word", ["a", "b"])
    def test(number: int, word: str) -> None:
        seen.append((number, word))
        assert number != 2 or word != "b"

    report = run(test)
    assert report.startswith("Failed: 1 of 6 cases failed: b-2")
    assert sorted(seen) == [(n, w) for n in (1, 2, 3) for w in "ab"]


def test_a_case_may_be_skipped_and_all_of_them() -> None:
    tried: list[int] = []

    @each("number", [pytest.param(1, marks=pytest.mark.skip(reason="not here")), 2])
    def some(number: int) -> None:
        tried.append(number)

    @each("number", [pytest.param(1, marks=pytest.mark.skip(reason="not here"))])
    def none(number: int) -> None:
        tried.append(number)

    assert (run(some), run(none), tried) == ("", "Skipped: not here", [2])


@pytest.mark.parametrize(
    "mark",
    [pytest.mark.skipif(False, reason="x"), pytest.mark.xfail, pytest.mark.sampled],
)
def test_any_other_mark_is_an_error(mark: pytest.MarkDecorator) -> None:
    @each("number", [1, pytest.param(2, marks=mark, id="two")])
    def test(number: int) -> None:
        raise AssertionError("no case may run")

    with pytest.raises(pytest.UsageError, match=rf"'two' has the mark {mark.name}"):
        test()


def test_each_case_has_a_folder_a_patch_and_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: set[Path] = set()

    @each("number", [1, 2])
    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int], number: int) -> None:
        assert seen == []
        assert "NUMBER_OF_THE_CASE" not in os.environ
        monkeypatch.setenv("NUMBER_OF_THE_CASE", str(number))
        seen.append(number)
        folders.add(tmp_path)

    assert run(test, tmp_path=tmp_path, monkeypatch=monkeypatch, seen=[0]) == ""
    assert len(folders) == 2


def test_a_test_without_a_case_fails() -> None:
    @each("number", list)
    def test(number: int) -> None:
        raise AssertionError("there is no case")

    assert run(test).endswith("the test has no case")


@pytest.mark.parametrize("part", [0, 1])
def test_every_part_and_every_share_of_what_is_absent_is_skipped(part: int) -> None:
    @each("number", lambda: some([pytest.param(0, marks=pytest.mark.skip(reason="not here"))], 1), parts=2)
    def test(number: int) -> None:
        raise AssertionError("there is no case")

    assert run(test, part=part) == "Skipped: not here"


@pytest.mark.parametrize(("turns", "cases"), [(4, 1), (4, 3), (4, 4), (5, 23), (1, 3)])
def test_each_case_has_one_turn_and_each_turn_a_case(turns: int, cases: int) -> None:
    tried = {(turn, case) for turn in range(turns) for case in range(cases) if has_turn((turn, turns), case, cases)}
    assert {turn for turn, _ in tried} == {*range(turns)}
    assert {case for _, case in tried} == {*range(cases)}
    assert len(tried) == max(turns, cases)


@pytest.mark.share(3)
@pytest.mark.parametrize("number", range(9))
def test_the_other_cases_of_a_share_are_marked_long(number: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("long") is None) is (number in (0, 5, 7))


@pytest.mark.share(3)
@each("number", range(9))
def test_each_tries_a_share_of_its_cases(number: int) -> None:
    assert number in (0, 5, 7) or SHARE == 1


@pytest.fixture(params=["one", "two"])
def backend(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.mark.parametrize("number", range(4))
def test_a_case_with_another_driver_is_marked_long(backend: str, number: int, request: pytest.FixtureRequest) -> None:
    is_tried = (backend, number) in {("one", 0), ("two", 1), ("two", 2), ("one", 3)}
    assert (request.node.get_closest_marker("long") is None) is is_tried
