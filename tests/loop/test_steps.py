"""A loop's steps: what is done, told and counted, and why it ends."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from client.peer import answer, call_delta, delta, frame, refused, stream, texts
from msgspec import UNSET

import cnllm

from .support import (
    Backend,
    Loops,
    Peer,
    asks,
    at,
    counted,
    legal,
    ran,
    registry,
    results,
    says,
    says_whole,
    sent,
    turns,
    written,
)

MANUAL = Path(__file__).parents[2] / "docs" / "how-to" / "tools.md"


def search(q: str) -> str:
    """Look it up."""
    return f"found {q}"


def now() -> str:
    return "noon"


def test_the_model_is_told_results_until_it_is_done(client: Loops, verb: str) -> None:
    script = turns(verb, [("search", '{"q": "sky"}')], [("search", '{"q": "sea"}'), ("now", "{}")], "Both are blue.")
    told: list[cnllm.Step] = []
    with Peer(*script) as peer:
        events, run = ran(client, verb, at(peer), tools=[search, now], on_step=told.append)
    assert (run.stopped, run.reply.text) == ("done", "Both are blue.")
    assert results(peer, 1) == {"c_search_0": "found sky"}
    assert [m["role"] for m in sent(peer, 2)] == [*("user", "assistant", "tool"), *("assistant", "tool", "tool")]
    assert [m["content"] for m in sent(peer, 2) if m["role"] == "tool"] == ["found sky", "found sea", "noon"]
    assert tuple(told) == run.steps
    assert [(step.number, step.called, step.returned) for step in told] == [(1, 1, 1), (2, 2, 2), (3, 0, 0)]
    assert str(told[1]).startswith("step 2: 2 calls, 2 returned, ")
    assert (run.usage.input, run.usage.output, run.usage.cached) == (9, 12, None)
    assert run.messages[-1] == run.reply.message
    legal(run.messages)
    if verb == "run_stream":
        assert [e.finish for e in events if isinstance(e, cnllm.Finished)] == ["tool_calls", "tool_calls", "stop"]
        assert written(events) == "Both are blue."
        assert counted(events, cnllm.ToolCallEnd) == 3


def test_the_simulator_s_tool_round_ends_in_an_answer_with_its_result(backend: Backend) -> None:
    with Loops(backend, simulate=True) as simulated:
        run = simulated.run("glm-4.7", "What is the weather?", tools=[search])
    assert len(run.steps) == 2
    assert "found" in run.reply.text
    assert run.cost is None


def test_what_it_cost_is_the_sum_of_its_steps() -> None:
    model = "deepseek/deepseek-flash"
    with Peer(*turns("run", [("now", "{}")], "Noon.")) as peer, Loops("sync", api_key="sk-0123456789") as client:
        target = client._client.registry.resolve(model, base_url=peer.url)
        run = client.run(target, tools=[now])
    costs = [step.reply.cost for step in run.steps]
    assert run.cost.amount == costs[0].amount + costs[1].amount
    assert run.cost.amount > 0


def test_a_step_that_ends_before_its_results_is_in_the_cost(client: Loops, verb: str) -> None:
    asked: list[str] = []

    def approve(call: cnllm.ToolCall) -> bool:
        asked.append(call.name)
        if len(asked) == 2:
            raise LookupError("nobody is there")
        return True

    again = turns(verb, [("now", "{}")], [("now", "{}")])
    with Peer(says_whole("Noon."), *again) as peer:
        model = cnllm.Registry.load().resolve("deepseek/deepseek-flash", base_url=peer.url)
        each = client.call(model, api_key="sk-0123456789").cost
        assert each is not None
        with pytest.raises(LookupError) as caught:
            ran(client, verb, model, tools=[now], approve=approve, api_key="sk-0123456789")
    run = caught.value.run  # type: ignore[attr-defined]
    assert (len(run.steps), run.stopped) == (1, "error")
    assert run.cost.amount == each.amount * 2


def test_an_error_in_the_first_step_has_the_cost_of_its_reply(client: Loops, verb: str) -> None:
    def approve(call: cnllm.ToolCall) -> bool:
        raise cnllm.CnllmError("nobody is there")

    with Peer(*turns(verb, [("now", "{}")])) as peer:
        model = cnllm.Registry.load().resolve("deepseek/deepseek-flash", base_url=peer.url)
        with pytest.raises(cnllm.CnllmError, match="nobody") as caught:
            ran(client, verb, model, tools=[now], approve=approve, api_key="sk-0123456789")
    error = caught.value
    assert error.run.steps == ()
    assert error.cost == error.run.cost
    assert error.cost is not None
    assert error.meaning.charged


def test_max_steps_ends_it_with_a_history_to_go_on_from(client: Loops, verb: str) -> None:
    script = turns(verb, *[[("search", f'{{"q": "{n}"}}')] for n in range(3)], "Done at last.")
    with Peer(*script) as peer:
        if verb == "run":
            with pytest.raises(cnllm.LoopStopped, match=r"not finished after 2 steps \(it called search\)") as stopped:
                client.run(at(peer), tools=[search], max_steps=2)
            run, more = stopped.value.run, stopped.value.reply
            assert more == run.reply
        else:
            run = ran(client, verb, at(peer), tools=[search], max_steps=2)[1]
        assert (run.stopped, len(peer.received)) == ("max_steps", 2)
        assert ran(client, verb, at(peer), run.messages, tools=[search])[1].reply.text == "Done at last."
    assert [m["content"] for m in sent(peer) if m["role"] == "tool"] == ["found 0", "found 1", "found 2"]


def test_a_choice_that_forces_a_call_holds_for_the_first_step(client: Loops, verb: str) -> None:
    with Peer(*turns(verb, [("now", "{}")], "Noon.")) as peer:
        run = ran(client, verb, at(peer), tools=[now], tool_choice="required")[1]
    assert [r.json().get("tool_choice") for r in peer.received] == ["required", None]
    assert [note.code for note in run.steps[1].notes] == ["tool-choice"]


def test_other_options_go_with_every_step(client: Loops, verb: str) -> None:
    with Peer(*turns(verb, [("now", "{}")], "Noon.")) as peer:
        ran(client, verb, at(peer), tools=[now], temperature=0.5, extra_body={"x": 1}, tool_choice="auto")
    for request in peer.received:
        body = request.json()
        assert (body["temperature"], body["x"], body["tool_choice"]) == (0.5, 1, "auto")
        assert [t["function"]["name"] for t in body["tools"]] == ["now"]


def test_ids_that_come_again_are_made_unique(client: Loops, verb: str) -> None:
    call = ("search", '{"q": "a"}', "call_0")
    other = ("search", '{"q": "b"}', "call_0")
    with Peer(*turns(verb, [call], [other], "Done.")) as peer:
        ran(client, verb, at(peer), tools=[search])
    assert list(results(peer).values()) == ["found a", "found b"]


def test_a_history_with_calls_that_nobody_answered_is_completed(client: Loops, verb: str) -> None:
    function = {"name": "search", "arguments": "{}"}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": function}]},
        {"role": "user", "content": "and?"},
    ]
    with Peer(*turns(verb, "Done.")) as peer:
        run = ran(client, verb, at(peer), history, tools=[search])[1]
    assert "interrupted" in results(peer)["x"]
    assert [(note.code, note.flag) for note in run.steps[0].notes] == [("call-unanswered", "messages")]
    assert len(history) == 3


def test_a_result_that_came_late_is_the_calls_and_none_is_made_up(client: Loops, verb: str) -> None:
    function = {"name": "search", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("x", "y", "z")]
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "z", "content": "in time"},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "x", "content": "late"},
    ]
    with Peer(*turns(verb, "Done.")) as peer:
        run = ran(client, verb, at(peer), history, tools=[search])[1]
    told = results(peer)
    assert (told["x"], told["z"]) == ("late", "in time")
    assert "interrupted" in told["y"]
    assert [m.role for m in run.messages] == ["user", "assistant", "tool", "tool", "user", "tool", "assistant"]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_last_reply_that_is_not_whole_is_no_done(client: Loops, verb: str, finish: str) -> None:
    script = (says_whole if verb == "run" else says)("The sky", finish=finish)
    with Peer(script) as peer:
        if verb == "run":
            with pytest.raises(cnllm.LoopStopped, match="the last reply"):
                client.run(at(peer), tools=[now])
        run = ran(client, verb, at(peer), tools=[now])[1]
    assert (run.stopped, run.reply.text, run.reply.finish) == (finish, "The sky", finish)


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sky"}}


def _message(verb: str, text: str, *blocks: dict[str, Any], stop: str, container: str | None = None) -> list[bytes]:
    """A reply of the Messages wire: a text and blocks, perhaps with a container."""
    usage, content = {"input_tokens": 3, "output_tokens": 4}, [{"type": "text", "text": text}, *blocks]
    body: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "usage": usage,
    }
    end: dict[str, Any] = {"stop_reason": stop, "stop_sequence": None}
    if container is not None:
        end["container"] = {"id": container, "expires_at": "2026-12-01T00:00:00Z"}
    body |= end
    if verb == "run":
        return [answer(200, json.dumps(body).encode())]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": end, "usage": usage},
        {"type": "message_stop"},
    ]
    return [stream(*map(frame, events))]


def test_a_turn_that_the_endpoint_paused_goes_on(client: Loops, verb: str) -> None:
    paused = [_message(verb, "I look.", SEARCH, stop="pause_turn")] * 4
    with Peer(*paused, _message(verb, "Blue.", stop="end_turn")) as peer:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        events, run = ran(client, verb, model, tools=[now])
    assert (run.stopped, run.reply.text, len(run.steps)) == ("done", "Blue.", 5)
    turn = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, SEARCH]}
    assert peer.received[1].json()["messages"] == [{"role": "user", "content": "hi"}, turn]
    assert run.messages[-1].text == "Blue."
    assert run.usage.output == 20
    if verb == "run_stream":
        assert [event.run is UNSET for event in events if isinstance(event, cnllm.Finished)] == [True] * 4 + [False]


CALL = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        (None, "c_1"),
        ({"container": {"skills": []}}, {"id": "c_1", "skills": []}),
        ({"container": "c_0", "speed": "fast"}, "c_0"),
    ],
)
def test_the_container_of_an_endpoints_own_tool_goes_back(client: Loops, verb: str, own: Any, sent: Any) -> None:
    calls = {**CALL, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    first = _message(verb, "I look.", SEARCH, calls, stop="tool_use", container="c_1")
    second = _message(verb, "Again.", {**CALL, "id": "toolu_2"}, stop="tool_use")
    with Peer(first, second, _message(verb, "Noon.", stop="end_turn")) as peer:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        run = ran(client, verb, model, tools=[now], extra_body=own)[1]
    bodies = [received.json() for received in peer.received]
    assert run.reply.text == "Noon."
    assert [body.get("container") for body in bodies] == [(own or {}).get("container"), sent, sent]
    assert [body.get("speed") for body in bodies] == [(own or {}).get("speed")] * 3


def test_a_container_goes_to_no_other_endpoint(client: Loops, verb: str) -> None:
    first = _message(verb, "I look.", CALL, stop="tool_use", container="c_1")
    with Peer(first, [refused(503)]) as peer, Peer(*turns(verb, "Noon.")) as other:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        run = ran(client, verb, model, tools=[now], fallback=[at(other, "n")])[1]
    assert run.reply.text == "Noon."
    assert peer.received[1].json()["container"] == "c_1"
    assert "container" not in other.received[0].json()


def test_a_turn_with_thoughts_between_its_calls_goes_back_in_its_order(client: Loops) -> None:
    content: list[Any] = [
        *({"type": "thinking", "thinking": "First.", "signature": "s1"}, CALL),
        *({"type": "thinking", "thinking": "Then.", "signature": "s2"}, {"type": "text", "text": "Once more."}),
        {**CALL, "id": "toolu_2"},
    ]
    body: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    body |= {"stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4}}
    with Peer([answer(200, json.dumps(body).encode())], _message("run", "Noon.", stop="end_turn")) as peer:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        client.run(model, "hi", tools=[now])
    assert peer.received[1].json()["messages"][1] == {"role": "assistant", "content": content}


def test_a_paused_turn_is_no_answer_by_a_schema_yet(client: Loops, verb: str) -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    paused = _message(verb, "I look.", SEARCH, stop="pause_turn")
    with Peer(paused, _message(verb, '{"color": "blue"}', stop="end_turn")) as peer:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        run = ran(client, verb, model, tools=[now], schema=schema)[1]
    assert (run.stopped, run.reply.parsed, len(run.steps)) == ("done", {"color": "blue"}, 2)
    assert peer.received[1].json()["messages"][-1]["content"][-1] == SEARCH
    assert not {"answer-invalid", "answer-corrected"} & {note.code for step in run.steps for note in step.reply.notes}


def test_a_turn_that_is_always_paused_is_no_done(client: Loops, verb: str) -> None:
    with Peer(_message(verb, "I look.", SEARCH, stop="pause_turn")) as peer:
        model = registry().resolve("openai-compatible/m", base_url=peer.url, protocol="anthropic-messages")
        run = ran(client, verb, model, tools=[now], max_steps=2)[1]
    assert (run.stopped, len(peer.received)) == ("max_steps", 2)


def test_errors_carry_the_run(client: Loops, verb: str) -> None:
    refusal = b'HTTP/1.1 401 x\r\ncontent-length: 30\r\n\r\n{"error": {"message": "bad!"}}'
    with Peer(*turns(verb, [("now", "{}")]), [refusal]) as peer, pytest.raises(cnllm.BadKey) as caught:
        ran(client, verb, at(peer), tools=[now])
    run: Any = caught.value.run
    assert run.stopped == "error"
    assert [m.role for m in run.messages] == ["user", "assistant", "tool"]


def test_an_error_takes_the_run_into_another_process(client: Loops, verb: str) -> None:
    refusal = b'HTTP/1.1 401 x\r\ncontent-length: 30\r\n\r\n{"error": {"message": "bad!"}}'
    with Peer(*turns(verb, [("now", "{}")]), [refusal]) as peer, pytest.raises(cnllm.BadKey) as caught:
        ran(client, verb, at(peer), tools=[now], on_step=lambda step: None)
    error = caught.value
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.hint) == (str(error), error.hint)
    facts = ("messages", "steps", "reply", "stopped", "calls", "usage", "cost", "tool_uses", "fallback")
    assert [getattr(copied.run, fact) for fact in facts] == [getattr(error.run, fact) for fact in facts]
    assert repr(copied.run) == repr(error.run)


def test_a_run_that_goes_on_is_not_copied() -> None:
    with cnllm.Client(simulate=True) as client:
        run = client.run_stream("deepseek-flash", "Hi", tools=[now])
        with run, pytest.raises(TypeError, match="a run that goes on cannot be copied"):
            pickle.dumps(run)
        copied = copy.deepcopy(run)
        copied.close()
        assert (copied.stopped, list(copied)) == ("cancelled", [])


def test_without_tools_it_is_a_call(client: Loops, verb: str) -> None:
    with Peer(*turns(verb, "Hi.")) as peer:
        assert ran(client, verb, at(peer))[1].reply.text == "Hi."
    assert "tools" not in peer.received[0].json()


def test_what_cannot_run_is_said_before_anything_is_sent(client: Loops, verb: str) -> None:
    declared = {"name": "look", "parameters": {"type": "object"}}
    with Peer(asks()) as peer:
        for tools, words in (([declared], "look"), ([now, {"name": "now"}], "two tools"), ("now", "list")):
            with pytest.raises((ValueError, TypeError), match=words):
                ran(client, verb, at(peer), tools=tools)
        for name in ("max_steps", "max_parallel", "max_repeats"):
            with pytest.raises(ValueError, match=name):
                ran(client, verb, at(peer), tools=[now], **{name: 0})
        for least in ({"max_repeats": 1}, {"tool_timeout": 0}, {"tool_timeout": "5"}):
            with pytest.raises(ValueError, match="expected a number"):
                ran(client, verb, at(peer), tools=[now], **least)
        with pytest.raises(ValueError, match=r"\(now\).timeout=-1"):
            ran(client, verb, at(peer), tools=[cnllm.tool(now, timeout=-1)])
        broken = cnllm.Tool("broken", None, {"type": "objekt"}, now)
        with pytest.raises(ValueError, match="the parameters of broken are not a JSON Schema"):
            ran(client, verb, at(peer), tools=[broken])
        with pytest.raises(TypeError, match="unknown option 'max_stepps'"):
            ran(client, verb, at(peer), tools=[now], max_stepps=3)
        assert peer.received == []


def test_the_example_of_the_manual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    section = MANUAL.read_text().split("## The tool loop\n")[1].split("\n### ")[0]
    example = section.split("```python\n")[1].split("```")[0]
    exec(compile(example, str(MANUAL), "exec"), {"__name__": "example"})
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("step 1: 1 call, 1 returned")
    assert "21 degrees" in told[2]
    assert told[-1].endswith("done")


def _texts(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, cnllm.TextDelta)]


def test_every_step_may_come_by_sentence(client: Loops) -> None:
    first = stream(
        *texts("Let me ", "see. It"), call_delta(id="c", name="now", arguments="{}"), delta(finish="tool_calls")
    )
    with Peer([first], says("One. T", "wo 3", ".14. 好", "的。再见")) as peer:
        events, run = ran(client, "run_stream", at(peer), tools=[now], by="sentence")
    assert _texts(events) == ["Let me see. ", "It", "One. ", "Two 3.14. ", "好的。", "再见"]
    kinds = [type(e) for e in events if isinstance(e, cnllm.TextDelta | cnllm.ToolCallStart | cnllm.Finished)]
    assert kinds[2] is cnllm.ToolCallStart  # what was said before a call comes before it
    assert kinds[-1] is cnllm.Finished
    assert run.reply.text == "One. Two 3.14. 好的。再见"


def test_by_sentence_what_came_before_an_error_comes_before_it(client: Loops) -> None:
    events: list[Any] = []
    with (
        Peer([stream(*texts("One. Tw"))]) as peer,
        pytest.raises(cnllm.StreamCut) as caught,
        client.run_stream(at(peer), by="sentence", if_cut="error") as run,
    ):
        events.extend(run)
    assert caught.value.run is not None
    assert _texts(events) == ["One. ", "Tw"]


def test_a_run_that_is_cancelled_within_a_piece_gives_no_more_sentences(client: Loops) -> None:
    with Peer(says("One. Two. Three. ")) as peer, client.run_stream(at(peer), by="sentence") as run:
        seen = []
        for event in run:
            seen.append(event)
            if isinstance(event, cnllm.TextDelta):
                run.cancel()
    assert _texts(seen) == ["One. "]
    assert run.stopped == "cancelled"


def test_another_way_of_delivering_is_refused_before_anything_is_sent(client: Loops) -> None:
    by: Any = "word"
    with Peer(says("x")) as peer, pytest.raises(ValueError, match="by='word'"):
        client.run_stream(at(peer), by=by)
    assert peer.received == []
