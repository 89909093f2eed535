"""Nothing is written behind the end of a stream, nor behind its error."""

from __future__ import annotations

import pytest

from cnllm import BlockEnd, Event, Finished, TextDelta, ToolCallEnd, ToolCallStart, Usage, UsageSeen, engine
from cnllm.protocols import PROTOCOLS
from cnllm.types import ReasoningDelta, Text, ToolCall

LATE: list[Event] = [
    TextDelta("more"),
    ReasoningDelta("more"),
    ToolCallStart(0, "call_1", "now"),
    ToolCallEnd(0, ToolCall("call_1", "now", {}, "{}")),
    BlockEnd(1, Text("more")),
    UsageSeen(Usage(input=1, output=2)),
    Finished("stop"),
    Finished("error"),
]


def begun(protocol: str) -> engine.StreamWriter:
    """A writer whose stream has begun."""
    writer = engine.StreamWriter(protocol, id="x", model="m")
    assert writer.feed(TextDelta("Hi."))
    return writer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_written_behind_the_end(protocol: str) -> None:
    writer = begun(protocol)
    assert writer.feed(Finished("stop"))
    assert [writer.feed(event) for event in LATE] == [b""] * len(LATE)
    assert writer.feed_texts(TextDelta, ["more"]) == b""
    assert writer.error(502, "the reply broke off") == b""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_written_behind_an_error(protocol: str) -> None:
    writer = begun(protocol)
    assert b"broke off" in writer.error(502, "the reply broke off")
    assert [writer.feed(event) for event in LATE] == [b""] * len(LATE)
    assert writer.feed_texts(TextDelta, ["more"]) == b""
    assert writer.error(502, "the reply broke off") == b""


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("finish", ["error", "cut"])
def test_an_error_follows_the_last_event_of_a_reply_that_broke_off(protocol: str, finish: str) -> None:
    writer = begun(protocol)
    writer.feed(Finished(finish))  # type: ignore[arg-type]
    assert writer.feed(TextDelta("more")) == b""
    assert b"broke off" in writer.error(502, "the reply broke off")
