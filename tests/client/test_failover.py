"""The sixteen cases of a public benchmark of failover, in our own words, with both clients on real sockets.

A case passes where the caller gets the complete answer (for a content filter: the reason) and neither provider is
asked more often than is right.
"""

import time
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Fallback, Retry, Timeouts

from .peer import DONE, Peer, Reset, Script, Stay, delta, head, piece, refused, stream, usage
from .routes import ANSWER, PREFILL, broken_chunk, codes, healthy, text_of, tokens, two
from .support import Driver

QUICK = Retry(attempts=3, base=0.01)


@pytest.fixture(params=["sync", "asyncio"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ONE_KEY", "sk-one-0123456789")
    monkeypatch.setenv("TWO_KEY", "sk-two-9876543210")
    return request.param


class Outcome:
    """What a caller saw, and what the providers were sent."""

    def __init__(
        self, events: list[Any], reply: cnllm.Reply | None, error: cnllm.CnllmError | None, one: Peer, two: Peer
    ):
        self.events, self.reply, self.error = events, reply, error
        self.first, self.second = one.received, two.received

    def check_whole(self, first: int, second: int) -> None:
        assert self.error is None, self.error
        assert self.reply is not None
        assert text_of(self.events) == self.reply.text == self.reply.message.text == ANSWER
        assert self.reply.finish == "stop"
        assert not any(isinstance(event, cnllm.Restarted) for event in self.events)
        assert self.events[-1] == cnllm.Finished("stop", self.reply.raw_finish)
        assert sum(isinstance(event, cnllm.Finished) for event in self.events) == 1
        assert (len(self.first), len(self.second)) == (first, second)


def ask(
    backend: Any, folder: Path, first: list[Script], second: list[Script] | None = None, /, **settings: Any
) -> Outcome:
    """Stream one call on two targets."""
    options = {name: settings.pop(name) for name in ("flags", "other") if name in settings}
    rules = Fallback(targets=("two/m",), first_token=settings.pop("first_token", None))
    with (
        two(folder, first, [healthy()] if second is None else second, **options) as (registry, one, other),
        Driver(backend, registry=registry, retry=QUICK, fallback=rules, **settings) as client,
    ):
        events: list[Any] = []
        streamed = client.stream("one/m")
        try:
            with streamed:
                for event in streamed:
                    events.append(event)
            return Outcome(events, streamed.reply, None, one, other)
        except cnllm.CnllmError as error:
            return Outcome(events, None, error, one, other)


def test_01_a_rate_limit_with_retry_after_is_waited_for(backend: Any, tmp_path: Path) -> None:
    got = ask(backend, tmp_path, [[refused(429, "slow down", retry_after="1")], healthy(model="m")])
    got.check_whole(2, 0)
    assert got.first[1].at - got.first[0].at >= 1


def test_02_a_lasting_rate_limit_is_not_hammered(backend: Any, tmp_path: Path) -> None:
    got = ask(backend, tmp_path, [[refused(429, "slow down")]])
    got.check_whole(2, 1)
    assert got.reply is not None
    assert codes(got.reply.notes) == ["target-failed"]


def test_03_one_500_is_tried_again_at_the_same_provider(backend: Any, tmp_path: Path) -> None:
    ask(backend, tmp_path, [[refused(500, "oops")], healthy()]).check_whole(2, 0)


def test_04_a_lasting_503_moves_to_the_next_target(backend: Any, tmp_path: Path) -> None:
    ask(backend, tmp_path, [[refused(503, "busy")]]).check_whole(2, 1)


def test_05_a_reset_before_the_headers_is_tried_again(backend: Any, tmp_path: Path) -> None:
    ask(backend, tmp_path, [[Reset()], healthy()]).check_whole(2, 0)


def test_06_a_silent_provider_is_asked_once(backend: Any, tmp_path: Path) -> None:
    ask(backend, tmp_path, [[Stay()]], timeout=Timeouts(first_byte=0.2)).check_whole(1, 1)


def test_07_a_slow_first_token_ends_at_the_limit(backend: Any, tmp_path: Path) -> None:
    role = piece(delta(role="assistant"))
    slow: Script = [head(transfer_encoding="chunked") + role, Stay()]
    got = ask(backend, tmp_path, [slow], first_token=0.2)
    got.check_whole(1, 1)
    assert got.reply is not None
    assert "no token came within 0.2 s" in got.reply.notes[0].said


@pytest.mark.parametrize("prefill", [True, False])
def test_08_a_cut_stream_goes_on_and_repeats_nothing(backend: Any, tmp_path: Path, prefill: bool) -> None:
    cut: Script = [stream(*tokens(0, 9), end=False), Reset()]
    other = [healthy(9)] if prefill else [healthy()]
    got = ask(backend, tmp_path, [cut], other, other=PREFILL if prefill else "")
    got.check_whole(1, 1)
    assert got.reply is not None
    assert codes(got.reply.notes) == ["target-continued"]
    last = got.second[0].json()["messages"][-1]
    assert last["role"] == ("assistant" if prefill else "user")
    if prefill:
        assert last["content"] == " ".join(ANSWER.split()[:9])


def test_09_a_stream_that_stalls_goes_on_elsewhere(backend: Any, tmp_path: Path) -> None:
    stalls: Script = [stream(*tokens(0, 5), end=False), Stay()]
    ask(backend, tmp_path, [stalls], timeout=Timeouts(idle=0.2)).check_whole(1, 1)


@pytest.mark.parametrize("lost", [True, False])
def test_10_a_broken_chunk_ends_its_stream(backend: Any, tmp_path: Path, lost: bool) -> None:
    bad = stream(*tokens(0, 4), broken_chunk(), *tokens(5 if lost else 4), delta(finish="stop"), usage(), DONE)
    ask(backend, tmp_path, [[bad]]).check_whole(1, 1)


def test_11_a_stream_without_its_last_marker_ends_at_once(backend: Any, tmp_path: Path) -> None:
    got = ask(backend, tmp_path, [[stream(*tokens(), delta(finish="stop"), usage())]])
    got.check_whole(1, 0)
    assert got.reply is not None
    assert got.reply.usage.total == 7


def test_12_too_long_a_context_is_not_sent_there_again(backend: Any, tmp_path: Path) -> None:
    long = refused(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded")
    ask(backend, tmp_path, [[long]]).check_whole(1, 1)


def test_13_a_content_filter_is_the_answer(backend: Any, tmp_path: Path) -> None:
    filtered = refused(400, "Your request was rejected by our safety system.", "content_policy_violation")
    got = ask(backend, tmp_path, [[filtered]])
    assert isinstance(got.error, cnllm.ContentFiltered)
    assert "rejected by our safety system" in str(got.error)
    assert (len(got.first), len(got.second)) == (1, 0)


def test_14_a_target_that_takes_no_prefill_gets_none(backend: Any, tmp_path: Path) -> None:
    cut: Script = [stream(*tokens(0, 9), end=False), Reset()]
    got = ask(backend, tmp_path, [cut, [refused(400, "no assistant message last")]], flags=PREFILL)
    got.check_whole(2, 1)
    assert got.second[0].json()["messages"][-1]["role"] == "user"


def test_15_a_target_that_recovers_is_used_again(backend: Any, tmp_path: Path) -> None:
    down: Script = [refused(503, "busy")]
    rules = Fallback(targets=("two/m",), cooldown=0.3)
    with (
        two(tmp_path, [down, down, healthy(model="m")], [healthy()]) as (registry, one, other),
        Driver(backend, registry=registry, retry=QUICK, fallback=rules) as client,
    ):
        assert client.call("one/m").model == "other-1"
        assert (len(one.received), len(other.received)) == (2, 1)
        passed = client.call("one/m")  # at once: the first target is left alone
        assert (len(one.received), passed.model) == (2, "other-1")
        assert codes(passed.notes) == ["target-passed-over"]
        time.sleep(0.35)
        assert client.call("one/m").model == "m"
        assert client.call("one/m").model == "m"
        assert (len(one.received), len(other.received)) == (4, 2)


def test_16_the_reply_is_that_of_the_target_that_answered(backend: Any, tmp_path: Path) -> None:
    got = ask(backend, tmp_path, [[refused(503, "busy")]])
    got.check_whole(2, 1)
    assert got.reply is not None
    assert (got.reply.model, got.reply.message.by) == ("other-1", "two/m")
    assert (got.reply.usage.input, got.reply.usage.output) == (3, 4)
    note = next(n for n in got.reply.notes if n.code == "target-failed")
    assert "one/m: Overloaded: 503 busy" in note.said
    assert note.did == "two/m took over"
    assert next(e.note for e in got.events if isinstance(e, cnllm.NoteAdded)) == note
    assert "sk-one-0123456789" not in str(got.second[0])


@pytest.mark.parametrize(("wait", "asked"), [("20", 1), ("1", 2)])
def test_the_last_target_is_asked_once_more_after_at_most_five_seconds(
    backend: Any, tmp_path: Path, wait: str, asked: int
) -> None:
    slow: list[Any] = [[refused(429, "slow down", retry_after=wait)]] * 3
    begin = time.monotonic()
    got = ask(backend, tmp_path, slow, slow)
    assert time.monotonic() - begin < 15
    assert isinstance(got.error, cnllm.RateLimited)
    assert (len(got.first), len(got.second)) == (asked, asked)
