"""`by="sentence"`: a stream whose text comes in whole sentences."""

from typing import Any

import pytest

import cnllm

from .peer import DONE, Peer, call_delta, delta, reply, said, stream, texts
from .support import Driver, at, counted, drained, folds

PIECES = ("It costs 3", ".", "14 dol", "lars. 好", "的。再", "见")


def texts_of(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, cnllm.TextDelta)]


def test_text_comes_in_whole_sentences(client: Driver) -> None:
    with Peer([stream(delta(reasoning_content="Hm. I th"), delta(reasoning_content="ink."), *said(*PIECES))]) as peer:
        events, got = drained(client.stream(at(peer), by="sentence"))
    assert texts_of(events) == ["It costs 3.14 dollars. ", "好的。", "再见"]
    assert [e.text for e in events if isinstance(e, cnllm.ReasoningDelta)] == ["Hm. I th", "ink."]
    assert got.text == "It costs 3.14 dollars. 好的。再见"
    folds(events, got)


def test_without_it_text_comes_as_it_comes(client: Driver) -> None:
    with Peer([stream(*said(*PIECES))]) as peer:
        assert texts_of(drained(client.stream(at(peer)))[0]) == list(PIECES)


def test_what_was_said_before_a_call_comes_before_it(client: Driver) -> None:
    tool = {"name": "look", "parameters": {"type": "object"}}
    call = call_delta(id="c", name="look", arguments="{}")
    with Peer([stream(*texts("Let me ", "see"), call, delta(finish="tool_calls"), DONE)]) as peer:
        events, got = drained(client.stream(at(peer), tools=[tool], by="sentence"))
    kinds = [type(e) for e in events if isinstance(e, cnllm.TextDelta | cnllm.ToolCallStart)]
    assert kinds == [cnllm.TextDelta, cnllm.ToolCallStart]
    folds(events, got)


def test_a_stream_that_is_cut_delivers_what_it_had(client: Driver) -> None:
    events: list[Any] = []
    with Peer([stream(*texts("One. Tw"))]) as peer, pytest.raises(cnllm.StreamCut):
        drained(client.stream(at(peer), by="sentence"), events)
    assert texts_of(events) == ["One. ", "Tw"]


def test_a_stream_that_begins_anew_begins_its_sentences_anew(client: Driver) -> None:
    with Peer([stream(*texts("One. Tw"))], [reply("Three. Four.")]) as peer:
        events, got = drained(client.stream(at(peer), by="sentence", if_cut="again-whole"))
    assert counted(events, cnllm.Restarted) == 1
    assert texts_of(events)[-2:] == ["Three. ", "Four."]
    folds(events, got)


def test_another_word_is_refused_before_anything_is_sent(client: Driver) -> None:
    by: Any = "word"
    with Peer([stream(*said("x"))]) as peer, pytest.raises(ValueError, match="by='word'"):
        drained(client.stream(at(peer), by=by))
    assert not peer.received
