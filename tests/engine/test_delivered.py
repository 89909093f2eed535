"""What was delivered of a reply is not delivered twice, wherever it is cut into pieces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from cases import each
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm.types import (
    Citation,
    CitationAdded,
    Event,
    Finished,
    Message,
    ReasoningDelta,
    Reply,
    Restarted,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from cnllm.types.delivered import Delivered, Diverged, RepeatedText

TEXT = "So it is… 思考\n"
SOURCE = CitationAdded(Citation("https://example.org/a", "A"))
END = Finished("stop", "stop")


def cut(text: str, places: list[int]) -> list[str]:
    """Cut a text at some places."""
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


PLACES = st.lists(st.integers(0, 40), max_size=6)


def rest_of(delivered: Delivered, events: list[Event]) -> list[Event]:
    """Return what is new of some events."""
    return [new for event in events if (new := delivered.rest(event)) is not None]


def argument(text: str) -> ToolCallDelta:
    """Return a piece of the arguments of the first call."""
    return ToolCallDelta(0, text)


@given(PLACES, PLACES, st.integers(0, len(TEXT)))
@settings(max_examples=share(100), deadline=None)
def test_what_is_repeated_is_left_out_at_every_cut(first: list[int], second: list[int], size: int) -> None:
    deltas: list[Callable[[str], Event]] = [TextDelta, ReasoningDelta, argument]
    for delta in deltas:
        delivered = Delivered()
        rest_of(delivered, [ToolCallStart(0, "a", "f"), SOURCE, *map(delta, cut(TEXT[:size], first))])
        delivered.restart()
        *new, end = rest_of(delivered, [ToolCallStart(0, "b", "f"), SOURCE, *map(delta, cut(TEXT, second)), END])
        assert "".join(event.text for event in new if hasattr(event, "text")) == TEXT[size:]
        assert {*map(type, new)} <= {type(delta(""))}
        assert end == END


DIVERGING: dict[str, list[Event]] = {
    "another text": [TextDelta("So"), TextDelta("mething")],
    "a text that ends early": [TextDelta("So it"), ToolCallStart(0, "a", "f"), ToolCallDelta(0, "{}"), END],
    "another call": [TextDelta(TEXT), ToolCallStart(0, "a", "g")],
    "no call": [TextDelta(TEXT), END],
    "other arguments": [TextDelta(TEXT), ToolCallStart(0, "a", "f"), ToolCallDelta(0, "[]")],
}


@each("events", DIVERGING.values(), ids=DIVERGING)
def test_a_reply_that_differs_is_named(events: list[Event]) -> None:
    delivered = Delivered()
    rest_of(delivered, [TextDelta(TEXT), ToolCallStart(0, "a", "f"), ToolCallDelta(0, "{}")])
    delivered.restart()
    with pytest.raises(Diverged):
        rest_of(delivered, events)


def test_a_call_that_is_left_out_need_not_come_again() -> None:
    delivered = Delivered()
    rest_of(delivered, [ToolCallStart(0, "a", "f", excluded=True), ToolCallDelta(0, "{}")])
    delivered.restart()
    assert rest_of(delivered, [TextDelta("a"), END]) == [TextDelta("a"), END]


def test_a_third_beginning_repeats_what_the_second_added() -> None:
    delivered = Delivered()
    for text, new in (("So", "So"), ("So it", " it"), ("So it is", " is")):
        assert rest_of(delivered, [TextDelta(text)]) == [TextDelta(new)]
        delivered.restart()


def reply(text: str = "", reasoning: str = "", incomplete: list[ToolCall] | None = None) -> Reply:
    """Return a reply with these texts."""
    return Reply(
        text=text,
        reasoning=reasoning,
        tool_calls=[],
        finish="stop",
        raw_finish=None,
        usage=Usage(),
        cost=None,
        model=None,
        id=None,
        notes=[],
        message=Message("assistant", ()),
        incomplete=incomplete or [],
    )


REMAINING: dict[str, tuple[Reply, Reply, list[Event]]] = {
    "more text": (reply("So", "Hm"), reply("So it is", "Hm"), [TextDelta(" it is")]),
    "more reasoning": (reply("", "Hm"), reply("So", "Hmm"), [ReasoningDelta("m"), TextDelta("So")]),
    "another text": (reply("No"), reply("So"), [Restarted(), TextDelta("So")]),
    "more reasoning before the text": (
        reply("So", "Hm"),
        reply("So", "Hmm"),
        [Restarted(), ReasoningDelta("Hmm"), TextDelta("So")],
    ),
    "a call had begun": (
        reply("So", incomplete=[ToolCall("a", "f", None, "{")]),
        reply("So it"),
        [Restarted(), TextDelta("So it")],
    ),
}


@each("before, whole, events", REMAINING.values(), ids=REMAINING)
def test_the_rest_of_a_whole_reply(before: Reply, whole: Reply, events: list[Event]) -> None:
    assert Delivered.of(before).remaining_events(whole) == events


def test_a_text_that_grows_is_compared_in_linear_time() -> None:
    read: list[int] = []
    pieces = ["word "] * 1000

    def since(start: int) -> str:
        text = "".join(pieces)[start:]
        read.append(len(text))
        return text

    repeated = RepeatedText(since)
    for piece in pieces:
        assert repeated.rest(piece) == ""
    assert repeated.is_complete
    assert repeated.rest("more") == "more"
    assert sum(read) < 3 * len("".join(pieces))


def test_a_source_is_delivered_once() -> None:
    delivered = Delivered()
    first, other = CitationAdded(Citation("https://a.example", "A")), CitationAdded(Citation("https://b.example", "A"))
    assert [delivered.rest(event) for event in (first, other, first, other)] == [first, other, None, None]
    delivered.restart()
    assert [delivered.rest(event) for event in (other, first)] == [None, None]
