"""H3, H9, H10, H11: what the tool loop makes of replies that lie, are torn, or go round in circles."""

import json
from typing import Any

import pytest

import cnllm
from cnllm import Client

from .support import JSON_HEADERS, SSE_HEADERS, Answer, Json, Wire, anywhere, chunk, sse, whole_body

MADE = {"id": "c0", "type": "function", "function": {"name": "write", "arguments": '{"path": "a", "text": "b"}'}}


def writer() -> tuple[cnllm.Tool, list[tuple[str, str]]]:
    """A tool, and what it was made to write."""
    written: list[tuple[str, str]] = []

    def write(path: str, text: str) -> str:
        written.append((path, text))
        return "written"

    return cnllm.tool(write), written


def whole(message: Json, finish: str) -> Answer:
    return Answer(200, whole_body({"content": None, **message}, finish), JSON_HEADERS)


def streamed(message: Json, finish: str) -> Answer:
    said = {**message}
    if "tool_calls" in said:
        said["tool_calls"] = [{"index": n, **call} for n, call in enumerate(said["tool_calls"])]
    return Answer(200, sse([chunk(said), chunk(finish=finish)]), SSE_HEADERS)


def ran(verb: str, wire: Wire, tool: cnllm.Tool, **options: Any) -> tuple[list[Any], Any]:
    with Client(transport=wire.transport) as client:
        if verb == "run":
            try:
                return [], client.run(anywhere(), "hi", tools=[tool], **options)
            except cnllm.LoopStopped as stopped:
                return [], stopped.run
        with client.run_stream(anywhere(), "hi", tools=[tool], **options) as run:
            return list(run), run


VERBS = [("run", whole), ("run_stream", streamed)]
both = pytest.mark.parametrize(("verb", "says"), VERBS, ids=["run", "run_stream"])


# ── H3 ───────────────────────────────────────────────────────────────────────
@both
@pytest.mark.parametrize("arguments", ['{"path": "a", "text": "b', '{"path": "a"', "{", ""])
def test_H3_a_call_cut_by_length_is_never_executed(verb: str, says: Any, arguments: str) -> None:
    tool, written = writer()
    call = {**MADE, "function": {"name": "write", "arguments": arguments}}
    wire = Wire(says({"content": "I write", "tool_calls": [call]}, "length"))
    _, run = ran(verb, wire, tool)
    assert (written, run.stopped, len(wire.requests)) == ([], "length", 1)
    assert [c.name for c in run.reply.incomplete] == ["write"]
    assert [m.role for m in run.messages] == ["user", "assistant"]
    assert run.messages[-1].tool_calls == []


@both
def test_H3_torn_arguments_under_another_finish_are_told_to_the_model(verb: str, says: Any) -> None:
    tool, written = writer()
    torn = {**MADE, "function": {"name": "write", "arguments": '{"path": "a", "text": "b'}}
    wire = Wire(says({"tool_calls": [torn]}, "tool_calls"), says({"content": "Sorry."}, "stop"))
    _, run = ran(verb, wire, tool)
    assert (written, run.stopped) == ([], "done")
    call, result = wire.body()["messages"][-2:]
    assert call["tool_calls"][0]["function"]["arguments"] == "{}"  # what is not JSON would be refused for ever
    assert "not executed" in result["content"]


@both
def test_H3_whole_calls_beside_the_torn_one_are_executed(verb: str, says: Any) -> None:
    tool, written = writer()
    torn = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"path": "b", "te'}}
    wire = Wire(says({"tool_calls": [MADE, torn]}, "length"), says({"content": "Done."}, "stop"))
    _, run = ran(verb, wire, tool)
    assert (written, run.stopped) == ([("a", "b")], "done")
    assert [c["id"] for c in wire.body()["messages"][-2]["tool_calls"]] == ["c0"]


# ── H9 ───────────────────────────────────────────────────────────────────────
@both
@pytest.mark.parametrize("word", ["stop", "other", "unknown", "STOP"])
def test_H9_calls_that_are_present_are_executed_whatever_the_finish_says(verb: str, says: Any, word: str) -> None:
    tool, written = writer()
    wire = Wire(says({"tool_calls": [MADE]}, word), says({"content": "Done."}, "stop"))
    events, run = ran(verb, wire, tool)
    assert (written, run.stopped, run.reply.text) == ([("a", "b")], "done", "Done.")
    assert wire.body()["messages"][-1] == {"role": "tool", "tool_call_id": "c0", "content": "written"}
    assert any(note.flag == "finish" and note.said == word for note in run.steps[0].reply.notes)
    assert verb == "run" or [e.finish for e in events if isinstance(e, cnllm.Finished)] == ["tool_calls", "stop"]


# ── H10 ──────────────────────────────────────────────────────────────────────
@both
def test_H10_tool_calls_without_any_call_are_a_broken_chain_also_after_text(verb: str, says: Any) -> None:
    """Asked again without streaming, then to go on; an endpoint that never sends the call ends the loop unfinished."""
    tool, _ = writer()
    wire = Wire(says({"content": "All done."}, "tool_calls"), whole({"content": "All done."}, "tool_calls"))
    _, run = ran(verb, wire, tool)
    assert (run.stopped, run.reply.text, len(wire.requests)) == ("incomplete", "All done.", 5)
    assert not wire.body(1).get("stream")
    assert "step-again" in [note.code for step in run.steps for note in step.notes]
    assert any(note.said == "tool_calls" and note.did == "stop" for note in run.reply.notes)


@both
def test_H10_a_call_that_the_stream_lost_is_found_by_asking_again(verb: str, says: Any) -> None:
    tool, written = writer()
    again = whole({"content": "I write.", "tool_calls": [MADE]}, "tool_calls")
    wire = Wire(says({"content": "I write."}, "tool_calls"), again, says({"content": "Done."}, "stop"))
    events, run = ran(verb, wire, tool)
    assert (written, run.stopped, len(run.steps)) == ([("a", "b")], "done", 2)
    if verb == "run_stream":
        assert "".join(e.text for e in events if isinstance(e, cnllm.TextDelta)) == "I write.Done."


@both
def test_H10_where_nothing_at_all_comes_it_is_no_endless_loop(verb: str, says: Any) -> None:
    tool, _ = writer()
    wire = Wire(says({"reasoning_content": "Hm."}, "tool_calls"), whole({"reasoning_content": "Hm."}, "tool_calls"))
    _, run = ran(verb, wire, tool)
    assert (run.stopped, len(wire.requests)) == ("incomplete", 5)  # once, thrice again, and asked to go on


# ── H11 ──────────────────────────────────────────────────────────────────────
@both
@pytest.mark.parametrize("times", [2, 3, 5])
def test_H11_the_same_call_with_the_same_result_again_and_again_is_stopped(verb: str, says: Any, times: int) -> None:
    tool, written = writer()
    orders = ['{"path": "a", "text": "b"}', '{"text": "b", "path": "a"}']  # keys in any order are the same call
    calls = [{**MADE, "function": {"name": "write", "arguments": orders[n % 2]}} for n in range(20)]
    wire = Wire(*[says({"tool_calls": [call]}, "tool_calls") for call in calls])
    _, run = ran(verb, wire, tool, max_repeats=times, max_steps=20)
    assert (run.stopped, len(wire.requests), len(written)) == ("repeated", times, times)
    assert json.loads(wire.requests[-1].content)["model"]
    assert [m.role for m in run.messages][-2:] == ["assistant", "tool"]


def test_H11_run_raises_what_happened_with_its_count() -> None:
    tool, _ = writer()
    wire = Wire(whole({"tool_calls": [MADE]}, "tool_calls"))
    with Client(transport=wire.transport) as client, pytest.raises(cnllm.LoopStopped, match="3 steps") as caught:
        client.run(anywhere(), "hi", tools=[tool])
    assert caught.value.run.stopped == "repeated"
    assert caught.value.reply is not None
