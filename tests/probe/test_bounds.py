"""A bound is found from any refusal, and is exact."""

from __future__ import annotations

from collections.abc import Callable, Generator

from hypothesis import given
from hypothesis import strategies as st

from cnllm.probe.bounds import ProvenBound, find_bound, numbers
from cnllm.probe.exchange import Ask, ProbeAnswer
from cnllm.probe.run import ProbeOptions, ProbeSettings


def answers(
    steps: Generator[Ask, ProbeAnswer, ProvenBound | ProbeAnswer | None], accepts: Callable[[float], bool], words: str
) -> tuple[ProvenBound | ProbeAnswer | None, int]:
    sent = 0
    try:
        ask = next(steps)
        while True:
            sent += 1
            value = (ask.body or {})["value"]
            ask = steps.send(ProbeAnswer() if accepts(value) else ProbeAnswer(refused=True, status=400, message=words))
    except StopIteration as end:
        return end.value, sent


def ask(value: float) -> Ask:
    return Ask(body={"value": value})


@given(st.integers(1, 200_000), st.booleans())
def test_the_bound_in_the_words_is_found_and_tried(limit: int, excluded: bool) -> None:
    words = f"1000000000 is out of range: must be {'less than' if excluded else 'at most'} {limit}"
    accepts: Callable[[float], bool] = lambda value: value < limit if excluded else value <= limit  # noqa: E731
    found, sent = answers(find_bound(ask, 10**9, 1), accepts, words)
    assert isinstance(found, ProvenBound)
    assert (found.value, found.open) == (limit, excluded)
    assert sent <= 3


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_a_number_that_is_no_bound_is_never_one(limit: int, said: int) -> None:
    words = f"error {said}: not accepted"
    found, _ = answers(find_bound(ask, 10**9, 1), lambda value: value <= limit, words)
    if isinstance(found, ProvenBound):
        assert (found.value, found.open) in {(limit, False), (limit + 1, True)}


def test_what_takes_everything_has_no_bound() -> None:
    assert answers(find_bound(ask, 10**9, 1), lambda value: True, "")[0] is None


def test_numbers_of_a_sentence() -> None:
    assert numbers("must be between -1 and 2.0, not 131,072 (x4)") == [-1, 2, 131072]


def test_the_options_of_a_probe_are_its_settings() -> None:
    assert set(ProbeOptions.__annotations__) == set(ProbeSettings.__struct_fields__)
