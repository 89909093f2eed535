"""A chain that breaks: the step is taken again, nothing is delivered twice, and nothing torn is executed."""

from typing import Any

import anyio
import pytest
from client.peer import DONE, Close, Step, call_delta, chunked, delta, refused, reply, stream, usage, whole
from waits import replace_waits

import cnllm

from .support import Loops, Peer, asks, asks_whole, at, counted, ran, results, says, says_whole, sent, turns, written

CUT = [stream(delta("The sky"), delta(" is"))]
EMPTY = says_whole("")


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the clients slept between tries; they do not sleep really."""
    taken: list[float] = []
    nap = anyio.sleep

    async def asleep(seconds: float) -> None:
        taken.append(seconds)
        await nap(0)

    replace_waits(monkeypatch, taken.append)
    monkeypatch.setattr(anyio, "sleep", asleep)
    return taken


def now() -> str:
    return "noon"


def streams(peer: Peer) -> list[bool]:
    """Which requests asked for a stream."""
    return [bool(request.json().get("stream")) for request in peer.received]


def test_a_cut_stream_is_taken_again_whole_and_nothing_is_delivered_twice(client: Loops) -> None:
    with Peer(asks(("now", "{}")), CUT, says_whole("The sky is blue.")) as peer:
        events, run = ran(client, "run_stream", at(peer), tools=[now])
    assert streams(peer) == [True, True, False]
    assert (run.stopped, run.reply.text, written(events)) == ("done", "The sky is blue.", "The sky is blue.")
    assert counted(events, cnllm.Restarted) == 0
    assert [e.finish for e in events if isinstance(e, cnllm.Finished)] == ["tool_calls", "stop"]
    assert [m.text for m in run.messages if m.role == "assistant"] == ["", "The sky is blue."]


def test_one_that_begins_differently_restarts(client: Loops) -> None:
    with Peer(CUT, says_whole("Blue it is.")) as peer:
        events, run = ran(client, "run_stream", at(peer))
    assert counted(events, cnllm.Restarted) == 1
    assert written(events) == run.reply.text == "Blue it is."


def test_a_call_that_was_cut_is_made_by_the_reply_taken_again(client: Loops) -> None:
    made: list[str] = []

    def write(path: str) -> str:
        made.append(path)
        return "ok"

    cut = [stream(call_delta(0, '{"path": "a', id="c1", name="write"))]
    with Peer(cut, asks_whole(("write", '{"path": "all"}', "c2")), says("Done.")) as peer:
        events, run = ran(client, "run_stream", at(peer), tools=[write])
    assert (made, run.stopped, results(peer)) == (["all"], "done", {"c2": "ok"})
    assert [e.call.arguments for e in events if isinstance(e, cnllm.ToolCallEnd)] == [{"path": "all"}]


def test_where_it_breaks_off_again_and_again_the_model_is_asked_to_go_on(client: Loops) -> None:
    broken: list[Step] = [chunked(whole(), end=False)[:-30], Close()]
    with Peer(CUT, broken, broken, broken, says_whole(" blue.")) as peer:
        events, run = ran(client, "run_stream", at(peer))
    assert streams(peer) == [True, False, False, False, False]
    asked = [(m["role"], m["content"]) for m in sent(peer)]
    assert asked[:2] == [("user", "hi"), ("assistant", "The sky is")]
    assert asked[2][0] == "user"
    assert "go on" in asked[2][1]
    assert written(events) == run.reply.text == run.messages[-1].text == "The sky is blue."
    assert [m.role for m in run.messages] == ["user", "assistant"]
    assert [note.code for note in run.steps[0].notes] == ["continued"]
    assert [e.finish for e in events if isinstance(e, cnllm.Finished)] == ["stop"]


def test_half_an_answer_by_a_schema_is_written_anew(client: Loops) -> None:
    """Its second half alone would be checked, sent back and parsed: 2 in place of 42."""
    broken: list[Step] = [chunked(whole(), end=False)[:-30], Close()]
    cut: list[Step] = [stream(delta("4"))]
    with Peer(cut, broken, broken, broken, says_whole("42")) as peer:
        events, run = ran(client, "run_stream", at(peer), schema={"type": "integer"})
    assert [m["content"] for m in sent(peer) if m["role"] == "assistant"] == []
    assert (run.reply.text, run.reply.parsed, run.stopped) == ("42", 42, "done")
    assert written(events) == "42"
    assert len(peer.received) == 5


def test_the_words_are_in_the_language_of_the_conversation_and_may_be_one_s_own(client: Loops) -> None:
    with Peer(*[EMPTY] * 4, says_whole("好。")) as peer:
        assert ran(client, "run", at(peer), "你好")[1].reply.text == "好。"
    assert "继续" in sent(peer)[-1]["content"]
    assert len(peer.received) == 5


def test_when_that_fails_too_the_error_is_raised_and_the_history_legal(client: Loops) -> None:
    events: list[Any] = []
    with Peer(CUT, [chunked(whole(), end=False)[:-30], Close()]) as peer:
        with client.run_stream(at(peer)) as run, pytest.raises(cnllm.StreamCut) as caught:
            events.extend(run)
        assert len(peer.received) == 5
    assert caught.value.run is run.run
    assert (run.stopped, run.messages[-1].text, written(events)) == ("error", "The sky is", "The sky is")
    assert events[-1] == cnllm.Finished("cut", None)


@pytest.mark.parametrize("if_cut", ["error", "keep"])
def test_the_caller_decides_what_becomes_of_a_cut_stream(client: Loops, if_cut: str) -> None:
    with Peer(CUT) as peer:
        if if_cut == "error":
            with pytest.raises(cnllm.StreamCut):
                ran(client, "run_stream", at(peer), if_cut=if_cut)
        else:
            events, run = ran(client, "run_stream", at(peer), if_cut=if_cut)
            assert (run.stopped, run.reply.text, events[-1].finish) == ("cut", "The sky is", "cut")
        assert len(peer.received) == 1


def test_an_empty_reply_is_asked_for_again(client: Loops, verb: str) -> None:
    empty = EMPTY if verb == "run" else [stream(delta(finish="stop"), usage(), DONE)]
    with Peer(turns(verb, [("now", "{}")])[0], empty, EMPTY, says_whole("Noon.")) as peer:
        events, run = ran(client, verb, at(peer), tools=[now])
    assert (run.stopped, run.reply.text, len(peer.received)) == ("done", "Noon.", 4)
    assert [note.code for note in run.steps[1].notes] == ["step-again"] * 2
    assert verb == "run" or written(events) == "Noon."


LOST = [reply("", reasoning_content="Hm.", finish="tool_calls")]
REFUSED = [refused(400)]


@pytest.mark.parametrize("steps", [0, 1])
def test_an_error_has_the_cost_of_the_tries_and_of_the_steps_before_it(client: Loops, verb: str, steps: int) -> None:
    empty = EMPTY if verb == "run" else [stream(delta(finish="stop"), usage(), DONE)]
    asked = turns(verb, [("now", "{}")])[:steps]
    with Peer(says_whole("Noon."), *asked, empty, EMPTY, REFUSED) as peer:
        model = cnllm.Registry.load().resolve("deepseek/deepseek-flash", base_url=peer.url)
        each = client.call(model).cost
        with pytest.raises(cnllm.BadRequest) as caught:
            ran(client, verb, model, tools=[now])
    error = caught.value
    assert each is not None
    assert error.cost == error.run.cost
    assert error.cost is not None
    assert (error.cost.amount, error.meaning.charged) == (each.amount * (steps + 2), True)


def test_a_step_that_cannot_be_sent_costs_nothing(client: Loops, verb: str) -> None:
    def leave() -> Any:
        return client._client.close()

    with Peer(says_whole("Noon."), turns(verb, [("leave", "{}")])[0]) as peer:
        model = cnllm.Registry.load().resolve("deepseek/deepseek-flash", base_url=peer.url)
        each = client.call(model).cost
        with pytest.raises(cnllm.ClientClosed) as caught:
            ran(client, verb, model, tools=[leave])
    run = caught.value.run
    assert (run.cost, run.stopped, len(run.steps)) == (each, "error", 1)


def test_a_reply_taken_again_is_delivered_though_what_followed_it_failed(client: Loops) -> None:
    empty = [stream(delta(finish="stop"), usage(), DONE)]
    with Peer(empty, LOST, REFUSED) as peer:
        events, run = ran(client, "run_stream", at(peer), tools=[now])
    assert (run.stopped, run.reply.reasoning) == ("incomplete", "Hm.")
    assert "".join(e.text for e in events if isinstance(e, cnllm.ReasoningDelta)) == "Hm."


@pytest.mark.parametrize("after", [[LOST, REFUSED], [LOST] * 3, [EMPTY] * 3])
def test_text_that_was_delivered_is_not_given_up_for_none(client: Loops, after: list[Any]) -> None:
    with Peer(says("Blue.", finish="tool_calls"), *after) as peer:
        events, run = ran(client, "run_stream", at(peer), tools=[now])
    assert (run.stopped, run.reply.text, written(events)) == ("incomplete", "Blue.", "Blue.")
    assert counted(events, cnllm.Restarted) == 0


@pytest.mark.parametrize("word", ["null", "streaming"])
@pytest.mark.parametrize("arguments", ["", '{"folder": "/x"}'])
def test_no_tool_runs_before_the_end_of_its_stream_is_proven(client: Loops, word: str, arguments: str) -> None:
    folders: list[str] = []

    def wipe(folder: str = "/") -> None:
        folders.append(folder)

    begun = call_delta(0, arguments, id="c1", name="wipe"), delta(finish=word)
    with Peer([stream(*begun)], says_whole("Fine.")) as peer:
        run = ran(client, "run_stream", at(peer), tools=[wipe])[1]
    assert (folders, run.stopped, run.reply.text, run.fallback) == ([], "done", "Fine.", True)
    with Peer([stream(*begun, DONE)], says("Fine.")) as peer:
        run = ran(client, "run_stream", at(peer), tools=[wipe])[1]
    assert (folders, run.fallback) == (["/x" if arguments else "/"], False)


def test_a_call_without_a_required_parameter_goes_back_to_the_model(client: Loops, verb: str) -> None:
    def wipe(folder: str) -> None:
        raise AssertionError(folder)

    with Peer(*turns(verb, [("wipe", "")], "Sorry.")) as peer:
        run = ran(client, verb, at(peer), tools=[wipe])[1]
    assert [result.error for step in run.steps for result in step.results] == [True]
    assert "folder" in run.steps[0].results[0].text


def test_calls_announced_after_text_that_do_not_come_break_the_chain(client: Loops, verb: str) -> None:
    """The step is repeated, then the model is asked to continue; without tools such a word means nothing."""
    lost = says_whole("I will look.", finish="tool_calls")
    first = says("I will look.", finish="tool_calls") if verb == "run_stream" else lost
    with Peer(first, lost, says_whole("Noon.")) as peer:
        run = ran(client, verb, at(peer), tools=[now])[1]
    assert (run.stopped, run.reply.text, run.fallback, len(peer.received)) == ("done", "Noon.", True, 3)
    with Peer(first, *[lost] * 3, says_whole("It is noon.")) as peer:
        run = ran(client, verb, at(peer), tools=[now])[1]
    assert (run.stopped, run.reply.text, len(peer.received)) == ("done", "I will look.It is noon.", 5)
    with Peer(first, *[lost] * 4) as peer:
        run = ran(client, verb, at(peer), tools=[now])[1]
    assert (run.stopped, run.reply.text, len(peer.received)) == ("incomplete", "I will look.", 5)
    with Peer(first) as peer:
        run = ran(client, verb, at(peer))[1]
    assert (run.stopped, len(peer.received)) == ("done", 1)


def test_a_whole_body_that_breaks_off_is_asked_for_again(client: Loops) -> None:
    broken: list[Step] = [chunked(whole(), end=False)[:-30], Close()]
    with Peer(broken, [reply("Whole.")]) as peer:
        assert client.run(at(peer)).reply.text == "Whole."


def test_two_calls_the_same_and_results_that_differ_are_progress(client: Loops, verb: str) -> None:
    times = iter(range(100))
    script = turns(verb, *[[("tick", "{}")]] * 5, "Five.")
    with Peer(*script) as peer:
        run = ran(client, verb, at(peer), tools=[cnllm.tool(lambda: next(times), name="tick")])[1]
    assert (run.stopped, len(run.steps)) == ("done", 6)


def test_circles_of_several_steps_are_seen(client: Loops, verb: str) -> None:
    a, b = [("say", '{"n": 1, "m": 0}')], [("say", '{"n": 2}')]
    same = [("say", '{"m": 0, "n": 1}')]

    def say(n: int, m: int = 0) -> int:
        return n + m

    with Peer(*turns(verb, a, b, a, b, a, b, a, b)) as peer:
        run = ran(client, verb, at(peer), tools=[say])[1]
    assert (run.stopped, len(run.steps)) == ("repeated", 6)
    with Peer(*turns(verb, a, same, a, same)) as peer:
        run = ran(client, verb, at(peer), tools=[say])[1]
    assert (run.stopped, len(run.steps)) == ("repeated", 3), "the order of the keys says nothing"
    with Peer(*turns(verb, *[a] * 9, "Done.")) as peer:
        assert ran(client, verb, at(peer), tools=[say], max_repeats=None)[1].stopped == "done"
