"""What is tried where a chain breaks is a setting, of a run and of the registry; and the last event sums a run up."""

import contextlib
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from client.peer import DONE, Close, Step, chunked, delta, stream, usage, whole
from client.support import overlay
from waits import replace_waits

import cnllm
from cnllm import Recovery, Registry, RunSummary
from cnllm.registry.read import builtin_path, read

from .support import ONCE, Loops, Peer, asks_whole, at, ran, says, says_whole, sent, turns

CUT = [stream(delta("The sky"), delta(" is"))]
EMPTY = says_whole("")
BROKEN: list[Step] = [chunked(whole(), end=False)[:-30], Close()]
GARBLED: list[Step] = [b"HTTP/1.1 200 OK\r\nbad header\x00\r\n\r\n", Close()]


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> None:
    nap = anyio.sleep

    async def asleep(seconds: float) -> None:
        await nap(0)

    replace_waits(monkeypatch, lambda seconds: None)
    monkeypatch.setattr(anyio, "sleep", asleep)


def now() -> str:
    return "noon"


def attempts(client: Loops, script: Any, verb: str = "run", **options: Any) -> int:
    """How many requests a run sends to a peer that always answers so."""
    with Peer(script) as peer:
        model = options.pop("model", None) or at(peer)
        if callable(model):
            model = model(peer)
        with contextlib.suppress(cnllm.CnllmError):
            ran(client, verb, model, **options)
        return len(peer.received)


def test_how_often_a_step_is_taken_again_is_an_option(client: Loops) -> None:
    for steps, resume, count in ((0, False, 1), (1, False, 2), (2, True, 4), (None, None, 5)):
        recovery = Recovery(steps=steps, resume=resume)
        assert attempts(client, EMPTY, recovery=recovery) == count, recovery
    assert attempts(client, EMPTY, recovery={"steps": 0, "resume": False}) == 1


def test_how_often_a_cut_stream_is_asked_for_again_is_an_option(client: Loops) -> None:
    for streams, count in ((0, 1), (1, 2), (2, 3)):
        with Peer(CUT, BROKEN) as peer:
            with pytest.raises(cnllm.StreamCut):
                ran(client, "run_stream", at(peer), recovery=Recovery(streams=streams, resume=False))
            assert len(peer.received) == count
    with Peer(CUT, BROKEN, BROKEN, BROKEN, says_whole(" blue.")) as peer:
        run = ran(client, "run_stream", at(peer), recovery=Recovery(resume="Weiter bitte."))[1]
    assert sent(peer)[-1] == {"role": "user", "content": "Weiter bitte."}
    assert (run.reply.text, run.fallback) == ("The sky is blue.", True)


def test_the_registry_sets_it_and_the_option_wins(client: Loops, tmp_path: Path) -> None:
    def model(peer: Peer) -> cnllm.Model:
        path = overlay(tmp_path, peer.url, "recovery = { steps = 1, resume = false, cycle = 1 }")
        return Registry([read(builtin_path(), builtin=True), read(path)]).resolve("home/m")

    key = {"api_key": "sk-not-needed-0123456789"}
    assert attempts(client, EMPTY, model=model, **key) == 2
    assert attempts(client, EMPTY, model=model, recovery={"steps": 2}, **key) == 3
    calls = [asks_whole(("say", '{"n": 1}')), asks_whole(("say", '{"n": 2}'))] * 4

    def say(n: int) -> int:
        return n

    for options, steps in (({}, 8), ({"recovery": {"cycle": 2}}, 6)):
        with Peer(*calls) as peer:
            run = ran(client, "run", model(peer), tools=[say], max_steps=8, **options, **key)[1]
            assert len(run.steps) == steps, options


@pytest.mark.parametrize("wrong", [3, "no", {"step": 1}, {"steps": -1}, {"steps": True}, {"cycle": 0}, {"resume": 3}])
def test_what_is_no_such_setting_is_refused_before_anything_is_sent(wrong: Any) -> None:
    with Peer(says_whole("Hi.")) as peer, Loops("sync") as client:
        with pytest.raises((TypeError, ValueError), match="recovery"):
            client.run(at(peer), recovery=wrong)
        assert peer.received == []


# ── what may have been paid for ──────────────────────────────────────────────
def test_a_request_whose_answer_cannot_be_read_is_not_sent_again(client: Loops, verb: str) -> None:
    assert attempts(client, GARBLED, verb) == 1


def test_a_request_whose_stream_was_cut_is_not_sent_again(client: Loops) -> None:
    with Peer(CUT, GARBLED) as peer:
        with pytest.raises(cnllm.StreamCut):
            ran(client, "run_stream", at(peer), recovery={"resume": False})
        assert len(peer.received) == 2


def test_a_whole_body_that_breaks_off_is_a_cut_reply_and_if_cut_decides(client: Loops) -> None:
    assert attempts(client, BROKEN, if_cut="error") == 1
    assert attempts(client, BROKEN, recovery={"steps": 2}) == 3


# ── the end of a run ─────────────────────────────────────────────────────────
def last(events: list[Any]) -> Any:
    ends = [e for e in events if isinstance(e, cnllm.Finished)]
    assert events[-1] is ends[-1]
    assert not any(end.run for end in ends[:-1])
    return ends[-1].run


def fails() -> str:
    raise OSError("no clock")


def summary(stopped: cnllm.Stopped, steps: int, calls: int, returned: int, fallback: bool = False) -> RunSummary:
    return RunSummary(stopped=stopped, steps=steps, calls=calls, returned=returned, fallback=fallback)


def test_the_last_event_sums_the_run_up(client: Loops) -> None:
    both = [("now", "{}"), ("fails", "{}")]
    same = [("now", "{}")]
    table: list[tuple[list[Any], dict[str, Any], RunSummary]] = [
        ([both, "Noon."], {}, summary("done", 2, 2, 1)),
        (["Hi."], {}, summary("done", 1, 0, 0)),
        ([both, both], {"max_steps": 2}, summary("max_steps", 2, 4, 2)),
        ([same] * 5, {"max_repeats": 2}, summary("repeated", 2, 2, 2)),
        ([[("nothing", "{}")], "Oh."], {}, summary("done", 2, 1, 0)),
    ]
    for script, options, wanted in table:
        with Peer(*turns("run_stream", *script)) as peer:
            events, run = ran(client, "run_stream", at(peer), tools=[now, fails], **options)
        assert last(events) == wanted
        assert (run.stopped, run.calls, run.returned, run.fallback) == (
            wanted.stopped,
            wanted.calls,
            wanted.returned,
            False,
        )
        assert [step.run for step in run.steps] == [*[None] * (wanted.steps - 1), wanted]
    with Peer(says("So far", finish="length")) as peer:
        assert last(ran(client, "run_stream", at(peer))[0]) == summary("length", 1, 0, 0)


def test_it_tells_of_a_fallback(client: Loops) -> None:
    with Peer(CUT, BROKEN, BROKEN, BROKEN, says_whole(" blue.")) as peer:
        events, run = ran(client, "run_stream", at(peer))
    assert last(events) == summary("done", 1, 0, 0, fallback=True)
    markup = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
    with Peer([stream(delta(markup), delta(finish="stop"), usage(), DONE)]) as peer:
        options = {"tools": [now], "recover_text_calls": "strip"}
        events, run = ran(client, "run_stream", at(peer), **options)
    assert "fallback" in [note.code for note in run.reply.notes]
    assert last(events).fallback


def test_a_reply_of_no_run_ends_as_before(client: Loops) -> None:
    with Peer(says("Hi.")) as peer:
        events = list(client.stream(at(peer)))
    assert events[-1] == cnllm.Finished("stop", "stop")
    assert msgspec.json.encode(events[-1]) == b'{"type":"finished","finish":"stop","raw":"stop"}'


def test_one_who_watches_is_told() -> None:
    seen: list[Any] = []
    script = turns("run", [("now", "{}"), ("fails", "{}")], "Noon.")
    with Peer(*script) as peer, Loops("sync", retry=ONCE, on_event=seen.append) as watched:
        watched.run(at(peer), tools=[now, fails])
    assert (seen[-1].calls, seen[-1].returned, seen[-1].fallback) == (2, 1, False)
