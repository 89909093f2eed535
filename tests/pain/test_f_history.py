"""F: one bad turn must not kill the session for ever (F8 and F11 stand with the other wires)."""

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm

from .support import (
    Json,
    Wire,
    call_chunk,
    call_turn,
    chunk,
    expect_note,
    failed,
    home,
    plan,
    play,
    read_whole,
    result_turn,
    tool,
)

ASK: Json = {"role": "user", "content": "Why?"}
DEEPSEEK = "deepseek/deepseek-flash"
STRICT = [DEEPSEEK, "alibaba/qwen3.6-plus", "moonshotai/kimi-k2.5", "minimax/MiniMax-M2.5", "openai/gpt-6-sol"]
LISTS: Json = {
    "type": "object",
    "properties": {
        "todos": {"type": "array", "items": {"type": "string"}},
        "where": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "text": {"type": "string"},
        "either": {"type": ["array", "string"]},
    },
}


def wire(name: str | cnllm.Model, history: Any, **options: Any) -> list[Json]:
    messages: list[Json] = json.loads(plan(name, history, **{"tools": [tool()], **options}).content)["messages"]
    return messages


def arguments(message: Json) -> Any:
    return json.loads(message["tool_calls"][0]["function"]["arguments"])


def shape(messages: list[Json]) -> list[str]:
    """Roles, with the ids that are called and answered."""
    out = []
    for m in messages:
        ids = ",".join(c["id"] for c in m.get("tool_calls", ())) or m.get("tool_call_id", "")
        out.append(f"{m['role']} {ids}".strip())
    return out


# ── F1-F4: arguments ─────────────────────────────────────────────────────────
@pytest.mark.share(3)
@each("raw", ["", " ", "null", None])
@each("name", STRICT)
def test_F1_no_arguments_are_an_empty_object_when_read_and_when_written(name: str, raw: str | None) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": raw}}
    whole = read_whole(name, {"content": None, "tool_calls": [call]}, "tool_calls").message
    streamed = play(name, [call_chunk({"index": 0, **call}), chunk(finish="tool_calls")]).reply.message
    for turn in (whole, streamed):
        assert [c.arguments for c in turn.tool_calls] == [{}]
        assert wire(name, [ASK, turn, result_turn("c1")])[1]["tool_calls"][0]["function"]["arguments"] == "{}"


@each("raw", ['{"q":', "[1]", "q=a", "12", '{"q":"a"}{"q":"b"}', '{"q":NaN}', '"a"'])
@each("name", STRICT)
def test_F2_arguments_that_are_no_object_go_as_an_empty_one_and_stay_in_the_history(name: str, raw: str) -> None:
    turn = cnllm.Message.from_dict(call_turn(arguments=raw))
    history = [ASK, turn, result_turn(text="The arguments were no JSON.")]
    request = plan(name, history, tools=[tool()])
    assert request.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert request.body["messages"][2]["content"] == "The arguments were no JSON."
    [note] = [n for n in request.notes if n.code == "arguments-emptied"]
    assert "messages[1]" in note.said
    assert raw in note.said
    assert turn.tool_calls[0].raw == raw


def test_F2_arguments_encoded_twice_and_decoded_ones_go_as_the_object_they_are() -> None:
    twice = json.dumps('{"q":"a"}')
    decoded = call_turn()
    decoded["tool_calls"][0]["function"]["arguments"] = {"q": "a"}
    for turn, codes in ((call_turn(arguments=twice), ["arguments-decoded"]), (decoded, [])):
        request = plan(DEEPSEEK, [ASK, turn, result_turn()], tools=[tool()])
        assert request.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"q":"a"}'
        assert [note.code for note in request.notes if note.code.startswith("arguments-")] == codes


@pytest.mark.parametrize(("given", "shown"), [(["a"], '["a"]'), (12, "12"), (True, "true")])
def test_F2_decoded_arguments_that_are_no_object_are_told_of(given: Any, shown: str) -> None:
    turn = call_turn()
    turn["tool_calls"][0]["function"]["arguments"] = given
    request = plan(DEEPSEEK, [ASK, turn, result_turn()], tools=[tool()])
    assert arguments(request.body["messages"][1]) == {}
    [note] = [n for n in request.notes if n.code == "arguments-emptied"]
    assert note.said.endswith(f"are not a JSON object: {shown}")


HALF = "a\ud800"


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ('{"q":"a\ud800"}', {"q": "a\ufffd"}),
        ({"q": HALF}, {"q": "a\ufffd"}),
        ([HALF], {}),
        ('{"q":"a\ud800', {}),
        (HALF, {}),
    ],
)
@pytest.mark.parametrize("name", STRICT)
def test_F2_half_of_a_character_in_arguments_stops_no_request(name: str, given: Any, meant: Json) -> None:
    said = call_turn(HALF)
    said["tool_calls"][0]["function"] = {"name": "search" + HALF, "arguments": given}
    turn = cnllm.Message.from_dict(said)
    assert cnllm.Message.from_dict(turn.to_dict()) == turn
    request = plan(name, [ASK, turn, result_turn(HALF), result_turn(HALF)], tools=[tool()])
    assert arguments(request.body["messages"][1]) == meant
    assert json.dumps([note.said for note in request.notes], ensure_ascii=False).encode()


def test_F3_arguments_that_were_cut_are_never_sent_and_a_400_is_not_repeated() -> None:
    refusal = failed(400, {"error": {"message": "Unterminated string starting at: line 1"}})
    peer = Wire(refusal)
    history = [ASK, call_turn(arguments='{"q":"Oslo and'), result_turn()]
    with cnllm.Client(transport=peer.transport, api_key="k") as client, pytest.raises(cnllm.EndpointError) as raised:
        client.call(DEEPSEEK, history, tools=[tool()])
    assert arguments(peer.body()["messages"][1]) == {}
    assert len(peer.requests) == 1
    assert not raised.value.retryable


def test_F4_a_list_inside_a_string_is_decoded_where_the_schema_wants_a_list_alone() -> None:
    said = {"todos": '["a", "b"]', "where": '{"city": "Oslo"}', "text": '["a"]', "either": '["a"]', "more": '["a"]'}
    turn = call_turn(arguments=json.dumps(said))
    request = plan(DEEPSEEK, [ASK, turn, result_turn()], tools=[tool(parameters=LISTS)])
    meant = {**said, "todos": ["a", "b"], "where": {"city": "Oslo"}}
    assert arguments(request.body["messages"][1]) == meant
    [note] = [n for n in request.notes if n.code == "arguments-decoded"]
    assert "messages[1]" in note.said
    assert "todos, where" in note.said
    assert arguments(wire(DEEPSEEK, [ASK, turn, result_turn()], tools=[tool("other")])[1]) == said


@each("text", ["[a", "{}", "plain", "[1"])
def test_F4_what_is_no_list_stays_as_it_is(text: str) -> None:
    turn = call_turn(arguments=json.dumps({"todos": text}))
    assert arguments(wire(DEEPSEEK, [ASK, turn, result_turn()], tools=[tool(parameters=LISTS)])[1]) == {"todos": text}


# ── F5-F7: pairs ─────────────────────────────────────────────────────────────
@each("name", STRICT)
def test_F5_a_call_that_nothing_answers_is_answered(name: str) -> None:
    two = call_turn("c1")
    two["tool_calls"] += call_turn("c2")["tool_calls"]
    for after in ([], [ASK], [{"role": "assistant", "content": "So."}, ASK]):
        request = plan(name, [ASK, two, result_turn("c2", "found"), *after], tools=[tool()])
        sent = request.body["messages"]
        assert shape(sent)[:4] == ["user", "assistant c1,c2", "tool c1", "tool c2"]
        assert "interrupted" in sent[2]["content"]
        assert sent[3]["content"] == "found"
        [note] = [n for n in request.notes if n.code == "call-unanswered"]
        assert "messages[1]" in note.said
        assert "search" in note.said


@each("name", STRICT)
def test_F6_a_result_of_no_call_is_left_out(name: str) -> None:
    whole = [call_turn("c1"), result_turn("c1")]
    for orphaned in (
        [result_turn("c0"), *whole],
        [*whole, result_turn("c1", "again")],
        [*whole, ASK, result_turn("c9")],
    ):
        request = plan(name, [ASK, *orphaned, ASK], tools=[tool()])
        assert [s for s in shape(request.body["messages"]) if s != "user"] == ["assistant c1", "tool c1"]
        assert request.body["messages"][2]["content"] == "found"
        [note] = [n for n in request.notes if n.code == "result-orphan"]
        assert "messages[" in note.said
        assert note.did == "left out"


def test_F6_a_call_that_broke_off_before_its_name_is_left_out_with_its_result() -> None:
    two = call_turn("c1")
    two["tool_calls"] += [{"id": "c2", "type": "function", "function": {"name": "", "arguments": None}}]
    request = plan(DEEPSEEK, [ASK, two, result_turn("c2"), result_turn("c1"), ASK], tools=[tool()])
    assert shape(request.body["messages"]) == ["user", "assistant c1", "tool c1", "user"]
    assert {n.code for n in request.notes} >= {"call-nameless", "result-orphan"}


def test_F6_a_model_without_tools_is_told_of_them_in_words(tmp_path: Path) -> None:
    history = [ASK, call_turn("c1"), result_turn("c1", "20 °C"), result_turn("c0", "lost"), ASK]
    request = plan(home(tmp_path, "tools.supported = false"), history)
    assert [m["role"] for m in request.body["messages"]] == ["user", "assistant", "user", "user"]
    assert "search" in request.body["messages"][1]["content"]
    assert "20 °C" in request.body["messages"][2]["content"]
    assert "lost" in request.body["messages"][2]["content"]
    expect_note(request.notes, "tools.supported", said="messages[1]", did="in words", where="overlay.toml")


@each("name", ["minimax/MiniMax-M2.5", DEEPSEEK])
def test_F7_results_stand_right_after_their_calls_and_the_rest_after_them(name: str) -> None:
    two = call_turn("c1")
    two["tool_calls"] += call_turn("c2")["tool_calls"]
    beside = {"role": "user", "content": "By the way."}
    request = plan(name, [ASK, two, result_turn("c2"), beside, result_turn("c1"), ASK], tools=[tool()])
    sent = request.body["messages"]
    assert shape(sent) == ["user", "assistant c1,c2", "tool c1", "tool c2", "user", "user"]
    assert sent[4]["content"] == "By the way."
    assert {n.said for n in request.notes if n.code == "result-moved"} == {
        "messages[2] answers messages[1]; 1 more, the last in messages[4]",
    }


def test_F6_a_model_without_tools_sees_the_arguments_whatever_form_they_came_in(tmp_path: Path) -> None:
    decoded = call_turn("c1")
    decoded["tool_calls"][0]["function"]["arguments"] = {"q": "Oslo"}
    history = [ASK, decoded, result_turn("c1"), ASK, call_turn("c2", arguments='{"q":"Ro'), ASK]
    request = plan(home(tmp_path, "tools.supported = false"), history)
    sent = request.body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "user", "assistant", "user", "user"]
    assert sent[1]["content"] == '[called search with {"q":"Oslo"}]'
    assert sent[4]["content"] == '[called search with {"q":"Ro]'
    assert "interrupted" in sent[5]["content"]
    assert [n.code for n in request.notes].count("tools-as-text") == 1


@each("name", STRICT)
def test_F7_what_stands_beside_results_is_the_users_after_them(name: str) -> None:
    called = cnllm.Message("assistant", [cnllm.ToolCall("c1", "search", {}), cnllm.ToolCall("c2", "search", {})])
    one, two = cnllm.ToolResult("c1", "one"), cnllm.ToolResult("c2", "two")
    beside = cnllm.Text("By the way.")
    for results in (
        [cnllm.Message("tool", [one, beside]), cnllm.Message("tool", [two])],
        [cnllm.Message("tool", [beside]), cnllm.Message("tool", [one, two])],
        [cnllm.Message("user", [one, two, beside])],
        [cnllm.Message("user", [beside, two, one])],
        [cnllm.Message("tool", [one]), cnllm.Message("user", [two, beside])],
    ):
        request = plan(name, [ASK, called, *results], tools=[tool()])
        sent = request.body["messages"]
        assert shape(sent) == ["user", "assistant c1,c2", "tool c1", "tool c2", "user"]
        assert [m["content"] for m in sent[2:]] == ["one", "two", "By the way."]
        notes = [n for n in request.notes if n.code == "result-beside"]
        assert len(notes) == 1
        assert "messages[" in notes[0].said


def test_F7_a_users_message_of_results_alone_leaves_nothing_behind() -> None:
    called = cnllm.Message("assistant", [cnllm.ToolCall("c1", "search", {})])
    for role in ("user", "system"):
        sent = wire(DEEPSEEK, [ASK, called, cnllm.Message(role, [cnllm.ToolResult("c1", "found")])])
        assert shape(sent) == ["user", "assistant c1", "tool c1"]
    own = cnllm.Message("assistant", [*called.parts, cnllm.ToolResult("c1", "found"), cnllm.Text("So.")])
    sent = wire(DEEPSEEK, [ASK, own, ASK])
    assert shape(sent) == ["user", "assistant c1", "tool c1", "user"]
    assert sent[1]["content"] == "So."


def test_F6_a_call_that_no_assistant_made_is_left_out_with_a_note() -> None:
    turn = cnllm.Message("user", [cnllm.Text("Why?"), cnllm.ToolCall("c1", "search", {})])
    request = plan(DEEPSEEK, [turn, result_turn("c1")], tools=[tool()])
    assert request.body["messages"] == [ASK]
    assert [n.code for n in request.notes] == ["call-misplaced", "result-orphan"]


# ── F9: ids ──────────────────────────────────────────────────────────────────
def test_F9_ids_that_begin_anew_each_turn_are_paired_in_their_turn_and_made_unique() -> None:
    history = [ASK]
    for n in range(3):
        both = call_turn("search:0")
        both["tool_calls"] += call_turn("search:1")["tool_calls"]
        history += [both, result_turn("search:0", f"{n}a"), result_turn("search:1", f"{n}b"), ASK]
    request = plan("moonshotai/kimi-k3", history, tools=[tool()])
    sent = request.body["messages"]
    called = [c["id"] for m in sent for c in m.get("tool_calls", ())]
    assert called[:2] == ["search:0", "search:1"]
    assert len(set(called)) == 6
    answers = [(m["tool_call_id"], m["content"]) for m in sent if m["role"] == "tool"]
    assert answers == list(zip(called, ["0a", "0b", "1a", "1b", "2a", "2b"], strict=True))
    [note] = [n for n in request.notes if n.code == "ids-repeated"]
    assert "messages[5]" in note.said
    assert wire("moonshotai/kimi-k3", history[:9])[:9] == sent[:9]


def test_F9_one_id_for_all_calls_of_a_turn_is_told_apart_by_order() -> None:
    same = call_turn("call")
    same["tool_calls"] += call_turn("call")["tool_calls"]
    sent = wire("llamacpp/any", [ASK, same, result_turn("call", "first"), result_turn("call", "second")])
    ids = [c["id"] for c in sent[1]["tool_calls"]]
    assert ids[0] != ids[1]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [(ids[0], "first"), (ids[1], "second")]


def test_F9_a_result_is_not_taken_for_that_of_a_call_which_was_broken_off() -> None:
    history = [ASK, call_turn("search:0"), ASK, call_turn("search:0"), result_turn("search:0", "found"), ASK]
    contents = [m["content"] for m in wire(DEEPSEEK, history) if m["role"] == "tool"]
    assert "interrupted" in contents[0]
    assert contents[1] == "found"


@each("empty", ["", None])
def test_F9_without_ids_the_order_tells(empty: str | None) -> None:
    two = call_turn()
    two["tool_calls"] = [{**c, "id": empty} for c in [*two["tool_calls"], *call_turn(name="weather")["tool_calls"]]]
    results = [{"role": "tool", "tool_call_id": empty, "content": text} for text in ("one", "two")]
    sent = wire(DEEPSEEK, [ASK, two, *results])
    ids = [c["id"] for c in sent[1]["tool_calls"]]
    assert all(ids)
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == list(zip(ids, ["one", "two"], strict=True))


# ── F10, F12 ─────────────────────────────────────────────────────────────────
@each("content", ["", None, " \n", [], [{"type": "text", "text": ""}]])
@each("name", STRICT)
def test_F10_turns_that_say_nothing_are_left_out(name: str, content: Any) -> None:
    empty = {"role": "assistant", "content": content, "tool_calls": [], "reasoning": "cut off while it thou"}
    request = plan(name, [ASK, empty, ASK, {"role": "assistant", "content": "So."}, ASK], tools=[tool()])
    assert [m["role"] for m in request.body["messages"]] == ["user", "user", "assistant", "user"]
    assert "tool_calls" not in request.body["messages"][2]
    [note] = [n for n in request.notes if n.code == "turn-empty"]
    assert "messages[1]" in note.said


@pytest.mark.share(3)
@each("name", STRICT)
def test_F10_an_empty_last_message_is_left_out_or_an_ellipsis(name: str) -> None:
    for empty in ("", " \n", [], [{"type": "text", "text": ""}]):
        last = {"role": "user", "content": empty}
        for history, did in (
            ([ASK, call_turn(), result_turn()], "left out"),
            ([ASK], "left out"),
            ([ASK, {"role": "assistant", "content": "So."}], "sent as an ellipsis"),
            ([{"role": "system", "content": "Be brief."}], "sent as an ellipsis"),
            ([], "sent as an ellipsis"),
        ):
            request = plan(name, [*history, last], tools=[tool()])
            sent = request.body["messages"]
            assert [m["role"] for m in sent] == [m["role"] for m in history] + ["user"] * (did != "left out")
            assert sent[-1]["content"] == ("…" if did != "left out" else history[-1]["content"])
            [note] = [n for n in request.notes if n.code == "turn-empty"]
            assert (note.said, note.did) == (f"messages[{len(history)}] by user is empty", did)


def test_F10_an_empty_system_message_is_left_out() -> None:
    for role in ("system", "developer"):
        request = plan(DEEPSEEK, [{"role": role, "content": " "}, ASK])
        assert request.body["messages"] == [ASK]
        [note] = [n for n in request.notes if n.code == "turn-empty"]
        assert "messages[0]" in note.said


def test_F10_nothing_empty_and_nothing_dangling_is_in_the_body() -> None:
    body = plan(DEEPSEEK, [ASK], tools=[], tool_choice="auto").body
    assert not {"tools", "tool_choice"} & body.keys()


@each("status, tries", [(400, 1), (404, 1), (422, 1)])
def test_F12_a_request_that_is_wrong_is_sent_once(status: int, tries: int) -> None:
    said = "messages[3]: Invalid 'messages[3].content'"
    peer = Wire(failed(status, {"error": {"message": said}}))
    with cnllm.Client(transport=peer.transport, api_key="k") as client, pytest.raises(cnllm.EndpointError) as raised:
        client.call(DEEPSEEK, "Why?")
    assert len(peer.requests) == tries
    assert said in str(raised.value)
