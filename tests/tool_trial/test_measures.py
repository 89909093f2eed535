"""The measures are those of K2 Vendor Verifier, counted over any replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm.tool_trial import TaskResult, measure
from cnllm.tool_trial.tasks import ReplyResult
from cnllm.tool_trial.trial import fits_schema

REPLIES = st.builds(
    ReplyResult,
    expected=st.booleans(),
    called=st.booleans(),
    valid=st.booleans(),
    first=st.none() | st.floats(0, 9),
    seconds=st.none() | st.floats(0, 9),
)
RESULTS = st.lists(
    st.builds(
        TaskResult,
        task=st.just("t"),
        problem=st.none() | st.just("wrong"),
        replies=st.lists(REPLIES, max_size=4).map(tuple),
        seconds=st.none() | st.floats(0, 9),
    ),
    max_size=6,
)


@given(RESULTS)
def test_shares_are_those_of_the_definitions(results: list[TaskResult]) -> None:
    replies = [reply for result in results for reply in result.replies]
    measures = measure("native", results)
    called = [reply for reply in replies if reply.called]
    expected = [reply for reply in replies if reply.expected]
    both = [reply for reply in replies if reply.called and reply.expected]
    assert measures.precision == (len(both) / len(called) if called else None)
    assert measures.recall == (len(both) / len(expected) if expected else None)
    if measures.precision and measures.recall:
        harmonic = 2 * measures.precision * measures.recall / (measures.precision + measures.recall)
        assert measures.f1 == pytest.approx(harmonic)
    assert measures.schema_accuracy == (sum(reply.valid for reply in called) / len(called) if called else None)
    assert measures.success == (sum(result.problem is None for result in results) / len(results) if results else None)
    for seconds, values in (
        (measures.first, [reply.first for reply in replies]),
        (measures.task, [result.seconds for result in results]),
    ):
        known = [value for value in values if value is not None]
        assert (seconds is None) == (not known)
        if seconds is not None:
            assert min(known) <= seconds.median <= seconds.p95 <= max(known)


def test_nothing_is_not_zero() -> None:
    nothing = measure("prompt", [])
    assert (nothing.success, nothing.f1, nothing.schema_accuracy, nothing.first) == (None, None, None, None)


@pytest.mark.parametrize("arguments", ["", "{", '"\ud800"', "[" * 100_000, "[" * 100_000 + "]" * 100_000])
def test_arguments_that_are_no_json_do_not_fit(arguments: str) -> None:
    assert not fits_schema(arguments, {"type": "array"})
