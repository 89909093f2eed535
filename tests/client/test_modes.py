"""Endpoints that cannot stream what is asked, and those that only stream: one face all the same."""

from pathlib import Path

import pytest

import cnllm

from .conftest import Make
from .peer import Peer, Reset, delta, failure, refused, reply, said, stream, texts
from .support import QUICK, SEARCH, Driver, drained, folds, home

CALL = {"id": "c0", "type": "function", "function": {"name": "search", "arguments": '{"q": "sky"}'}}
CALLED = reply("Let me see.", finish="tool_calls", tool_calls=[CALL], reasoning_content="Hm.")


# ── tools cannot be streamed ─────────────────────────────────────────────────
def test_a_stream_with_tools_is_called_whole_and_delivered_as_events(client: Driver, tmp_path: Path) -> None:
    with Peer([CALLED]) as peer:
        model = home(tmp_path, peer, 'stream.tools = false\nreasoning.fields = ["reasoning_content"]')
        events, got = drained(client.stream(model, tools=[SEARCH]))
        whole = client.call(model, tools=[SEARCH])
    assert "stream" not in peer.received[0].json()
    assert peer.received[0].headers["accept"] == "application/json"
    assert [type(event) for event in events if not isinstance(event, cnllm.NoteAdded | cnllm.UsageSeen)] == [
        cnllm.ReasoningDelta,
        cnllm.TextDelta,
        cnllm.ToolCallStart,
        cnllm.ToolCallDelta,
        cnllm.BlockEnd,
        cnllm.BlockEnd,
        cnllm.ToolCallEnd,
        cnllm.Finished,
    ]
    assert (got.text, got.tool_calls, got.usage) == (whole.text, whole.tool_calls, whole.usage)
    assert [note.where for note in got.notes if note.code == "stream-whole"] == [f"{tmp_path}/overlay.toml:5"]
    folds(events, got)


def test_without_tools_it_streams(client: Driver, tmp_path: Path) -> None:
    with Peer([stream(*said("The sky"))]) as peer:
        drained(client.stream(home(tmp_path, peer, "stream.tools = false")))
    assert peer.received[0].json()["stream"] is True


def test_its_failures_are_those_of_a_whole_call(make: Make, tmp_path: Path) -> None:
    client = make(retry=QUICK)
    with Peer([refused(503, retry_after_ms="1")], [Reset()], [CALLED]) as peer:
        model = home(tmp_path, peer, "stream.tools = false")
        assert drained(client.stream(model, tools=[SEARCH]))[1].text == "Let me see."
        assert len(peer.received) == 3
    with Peer([refused(400, "no tools")]) as peer, pytest.raises(cnllm.BadRequest, match="no tools"):
        drained(client.stream(home(tmp_path, peer, "stream.tools = false"), tools=[SEARCH]))


def test_it_may_be_left_early_too(client: Driver, tmp_path: Path) -> None:
    with Peer([CALLED]) as peer:
        model = home(tmp_path, peer, "stream.tools = false")
        with client.stream(model, tools=[SEARCH]) as streamed:
            for _ in streamed:
                break
        assert client.call(model).text == "Let me see."


# ── only streams are answered ────────────────────────────────────────────────
def test_a_whole_call_is_streamed_and_collected(client: Driver, tmp_path: Path) -> None:
    with Peer([stream(*said("The sky", " is blue."))]) as peer:
        got = client.call(home(tmp_path, peer, "stream.required = true"))
    assert peer.received[0].json()["stream"] is True
    assert peer.received[0].headers["accept"] == "text/event-stream"
    assert (got.text, got.finish, got.usage.total) == ("The sky is blue.", "stop", 7)
    assert "stream-collected" in [note.code for note in got.notes]


def test_a_collected_stream_that_is_cut_is_no_reply(client: Driver, tmp_path: Path) -> None:
    with Peer([stream(*texts("The sky"))]) as peer:
        model = home(tmp_path, peer, "stream.required = true")
        with pytest.raises(cnllm.StreamCut) as caught:
            client.call(model)
        assert caught.value.reply is not None
        assert caught.value.reply.text == "The sky"
        assert client.call(model, if_cut="keep").finish == "cut"
        assert len(peer.received) == 2


def test_a_collected_stream_is_retried_as_a_stream_is(make: Make, tmp_path: Path) -> None:
    client = make(retry=QUICK)
    with Peer([refused(503, retry_after_ms="1")], [stream(*said("The sky"))]) as peer:
        assert client.call(home(tmp_path, peer, "stream.required = true")).text == "The sky"
        assert len(peer.received) == 2
    broken = stream(delta("The sky"), b"data: " + failure("busy", "rate_limit_exceeded") + b"\n\n")
    with Peer([broken]) as peer:
        with pytest.raises(cnllm.RateLimited):
            client.call(home(tmp_path, peer, "stream.required = true"))
        assert len(peer.received) in (1, 3)
