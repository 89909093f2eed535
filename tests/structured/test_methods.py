"""Each way of asking for an answer by a schema: what is sent, and what a caller gets, whole and streamed."""

from pathlib import Path
from typing import Any

import pytest
from cases import each
from client.peer import DONE, Peer, call_delta, delta, reply, stream
from client.support import SEARCH, Driver, ask, counted, drained, folds

import cnllm

from .support import ADA, GOOD, LIST, SCHEMA, Json, Person, codes, endpoint, gives, note

METHODS = ["json_schema", "json_object", "tool", "prompt"]
VERBS = ["call", "stream"]
AUTO = 'tool_choice = { allowed = ["auto"], otherwise = "narrow" }'
FORCED = {"type": "function", "function": {"name": "answer"}}


def sent(method: str, body: Json) -> None:
    """The body asks by this method."""
    prompt = "\n".join(m["content"] for m in body["messages"] if m["role"] == "system")
    kind = body.get("response_format", {}).get("type")
    assert kind == (method if method.startswith("json") else None)
    assert ('"minimum":0' in prompt) == (method in ("json_object", "prompt"))
    assert ("JSON" in prompt) == (method in ("json_object", "prompt"))
    tools = body.get("tools", [])
    assert [t["function"]["name"] for t in tools] == (["answer"] if method == "tool" else [])
    assert all(t["function"]["parameters"] == SCHEMA for t in tools)
    if method == "json_schema":
        assert body["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", METHODS)
def test_each_method_gives_a_checked_answer(client: Driver, tmp_path: Path, method: str, verb: str) -> None:
    with Peer([gives(verb, method, GOOD)]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, method), schema=SCHEMA)
        sent(method, peer.received[0].json())
    assert (got.parsed, got.text, got.finish, got.tool_calls) == (ADA, GOOD, "stop", [])
    assert got.message.text == GOOD
    assert got.message.tool_calls == []
    assert got.to_dict()["parsed"] == ADA
    if method != "json_schema":
        where = f"{tmp_path}/overlay.toml:5"
        assert [n.where for n in got.notes if n.flag == "schema.methods"] == [where]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", METHODS)
def test_a_model_class_gives_its_instance(client: Driver, tmp_path: Path, method: str, verb: str) -> None:
    with Peer([gives(verb, method, GOOD, name="Person")]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, method), schema=Person)
    assert got.parsed == Person(name="Ada", age=36)
    assert got.to_dict()["parsed"] == ADA


@pytest.mark.parametrize("method", METHODS)
def test_the_events_tell_the_same(client: Driver, tmp_path: Path, method: str) -> None:
    with Peer([gives("stream", method, GOOD)]) as peer:
        events, got = drained(client.stream(endpoint(tmp_path, peer, method), schema=SCHEMA))
    folds(events, got)
    assert counted(events, cnllm.TextDelta) == 2
    assert counted(events, cnllm.ToolCallStart) == counted(events, cnllm.Restarted) == 0
    ends = [event for event in events if isinstance(event, cnllm.BlockEnd)]
    assert ends == [cnllm.BlockEnd(i, part) for i, part in enumerate(got.message.parts)]


# ── which method ─────────────────────────────────────────────────────────────
@each(
    "allowed, wire",
    [
        (["auto", "none", "required", "named"], FORCED),
        (["auto", "required"], "required"),
        (["auto"], "auto"),
        ([], None),
    ],
)
def test_the_tool_is_forced_as_the_endpoint_takes_it(tmp_path: Path, allowed: list[str], wire: Any) -> None:
    with Peer() as peer:
        model = endpoint(tmp_path, peer, "tool", f"tool_choice.allowed = {allowed}")
    plan = cnllm.engine.build_request(model, "hi", schema=SCHEMA, on_unsupported="error")
    assert plan.body.get("tool_choice") == wire
    in_words = "calling the function answer" in str(plan.body["messages"])
    assert in_words == (wire in ("auto", None))
    assert note(plan, "schema-as-tool").where == f"{tmp_path}/overlay.toml:5"
    if in_words:
        assert note(plan, "schema-tool-choice").where == f"{tmp_path}/overlay.toml:6"


THINKER = """
reasoning.mode = "toggle"
reasoning.default = "on"
reasoning.on = { set = { thinking = true } }
reasoning.off = { set = { thinking = false } }
when.reasoning.tool_choice = { allowed = ["auto"], otherwise = "reasoning-off" }
"""


@each("reasoning, wire", [("off", FORCED), ("on", "auto"), (None, "auto")])
def test_reasoning_is_never_given_up_to_force_a_tool(tmp_path: Path, reasoning: Any, wire: Any) -> None:
    with Peer() as peer:
        flags = 'tool_choice.allowed = ["auto", "named"]' + THINKER
        model = endpoint(tmp_path, peer, "tool", flags)
    plan = cnllm.engine.build_request(model, "hi", schema=SCHEMA, reasoning=reasoning)
    assert plan.body["tool_choice"] == wire
    assert plan.body.get("thinking") is (None if reasoning is None else reasoning == "on")


@each("more", ["tools.supported = false", ""])
def test_where_the_tool_cannot_be_the_next_method_is(tmp_path: Path, more: str) -> None:
    with Peer() as peer:
        model = endpoint(tmp_path, peer, 'tool", "json_object', more)
    plan = cnllm.engine.build_request(model, "hi", schema=SCHEMA, tools=None if more else [SEARCH])
    assert plan.body["response_format"] == {"type": "json_object"}
    assert plan.body.get("tools") == (None if more else [SEARCH])
    assert "skipped" in note(plan, "schema-method").did


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_of_the_callers_own_tools_is_a_call(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, "tool", '{"q": "x"}', name="search", finish="tool_calls")]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, "tool"), schema=SCHEMA, tools=[SEARCH], corrections=1)
        assert len(peer.received) == 1
    assert [call.name for call in got.tool_calls] == ["search"]
    assert (got.finish, got.parsed) == ("tool_calls", None)


# ── the answer tool ──────────────────────────────────────────────────────────
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("raw", ["stop", "tool_calls"])
def test_its_finish_is_stop_whatever_the_endpoint_calls_it(client: Driver, tmp_path: Path, verb: str, raw: str) -> None:
    with Peer([gives(verb, "tool", GOOD, finish=raw)]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, "tool"), schema=SCHEMA)
    assert (got.finish, got.raw_finish) == ("stop", raw)
    assert not {"finish-follows", "finish-unknown"} & set(codes(got))


@pytest.mark.parametrize("verb", VERBS)
def test_an_auto_tool_may_be_answered_in_text(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, "prompt", GOOD, before="Here you are:\n")]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, "tool", AUTO), schema=SCHEMA)
    assert got.parsed == ADA
    assert note(got, "answer-prose").said == "Here you are:"


@pytest.mark.parametrize("verb", VERBS)
def test_prose_beside_the_call_is_left_out_and_noted(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, "tool", GOOD, before="Let me answer.")]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, "tool", AUTO), schema=SCHEMA)
    assert (got.text, got.parsed) == (GOOD, ADA)
    assert note(got, "answer-prose").said == "Let me answer."


def test_a_stream_begins_anew_where_prose_was_delivered(client: Driver, tmp_path: Path) -> None:
    thought = delta(reasoning_content="Hm.")
    pieces = [delta("Let me"), call_delta(id="c1", name="answer", arguments=GOOD), delta(" see."), delta(finish="stop")]
    with Peer([stream(thought, *pieces, DONE)]) as peer:
        model = endpoint(tmp_path, peer, "tool", 'reasoning.fields = ["reasoning_content"]')
        events, got = drained(client.stream(model, schema=SCHEMA))
    folds(events, got)
    assert counted(events, cnllm.Restarted) == 1
    assert (got.text, got.reasoning, note(got, "answer-prose").said) == (GOOD, "Hm.", "Let me see.")


@pytest.mark.parametrize("verb", VERBS)
def test_sources_of_prose_beside_the_call_have_no_place_in_the_answer(
    client: Driver, tmp_path: Path, verb: str
) -> None:
    source = {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0, "end_index": 3}}
    call = {"id": "c1", "type": "function", "function": {"name": "answer", "arguments": GOOD}}
    whole = reply("Let me.", finish="tool_calls", tool_calls=[call], annotations=[source])
    pieces = [delta("Let me."), call_delta(id="c1", name="answer", arguments=GOOD), delta(annotations=[source])]
    with Peer([whole if verb == "call" else stream(*pieces, delta(finish="stop"), DONE)]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, "tool"), schema=SCHEMA)
    assert (got.text, [(each.url, each.start) for each in got.citations]) == (GOOD, [("https://a.example", None)])


def test_the_first_of_several_answers_counts(client: Driver, tmp_path: Path) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "answer", "arguments": text}}
        for n, text in enumerate([GOOD, GOOD, '{"name": "Eve", "age": 1}'])
    ]
    with Peer([reply("", finish="tool_calls", tool_calls=calls)]) as peer:
        got = client.call(endpoint(tmp_path, peer, "tool"), schema=SCHEMA)
    assert (got.parsed, got.tool_calls) == (ADA, [])
    assert "Eve" in note(got, "answer-twice").said


# ── answers that are no objects ──────────────────────────────────────────────
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", METHODS)
def test_a_list_goes_into_an_object_and_comes_out_of_it(client: Driver, tmp_path: Path, method: str, verb: str) -> None:
    text = '["a", "b"]' if method == "prompt" else '{"answer": ["a", "b"]}'
    with Peer([gives(verb, method, text)]) as peer:
        got = ask(client, verb, endpoint(tmp_path, peer, method), schema=LIST)
    assert (got.parsed, got.text) == (["a", "b"], text)
    assert ("schema-wrapped" in codes(got)) == (method != "prompt")


def test_references_keep_their_targets_inside_the_object(tmp_path: Path) -> None:
    schema = {"$defs": {"s": {"type": "string"}}, "type": "array", "items": {"$ref": "#/$defs/s"}}
    with Peer() as peer:
        plan = cnllm.engine.build_request(endpoint(tmp_path, peer, "json_schema"), "hi", schema=schema)
    inner = plan.body["response_format"]["json_schema"]["schema"]["properties"]["answer"]
    assert inner["items"] == {"$ref": "#/properties/answer/$defs/s"}
    assert schema["items"] == {"$ref": "#/$defs/s"}
