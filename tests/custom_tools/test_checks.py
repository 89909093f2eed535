"""The input of a custom tool is checked by its grammar, and a wrong one goes back to the model once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from client.peer import DONE, Peer, call_delta, delta, refused, stream
from client.support import Driver, ask, drained, folds, home

import cnllm

from .support import (
    BAD,
    BAD_LINES,
    GOOD,
    GOOD_LINES,
    LINES,
    PLACE,
    READ,
    WORSE,
    called,
    codes,
    flat,
    gives,
    nested,
    note,
    patching,
)

VERBS = ["call", "stream"]
PRICE = 'price = { currency = "USD", input = 1e6, output = 1e6 }'


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("tool", [flat(), nested()])
def test_a_wrong_input_goes_back_with_the_place_and_the_second_call_counts(
    client: Driver, tmp_path: Path, tool: dict[str, Any], verb: str
) -> None:
    script = [[gives(verb, patching(BAD), text="I edit it.")], [gives("call", patching(GOOD, "c2"))]]
    with Peer(*script) as peer:
        got = ask(client, verb, home(tmp_path, peer, PRICE), messages="Go.", tools=[tool])
        first, second = (received.json() for received in peer.received)
    assert first["tools"] == second["tools"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assistant, result = second["messages"][-2:]
    assert assistant["tool_calls"] == [patching(BAD)]
    assert (result["role"], result["tool_call_id"]) == ("tool", "c1")
    assert PLACE in result["content"]
    assert '"+"' in result["content"]  # what the grammar has there
    assert [call.arguments for call in got.tool_calls] == [{"input": GOOD}]
    assert (got.text, got.finish) == ("I edit it.", "tool_calls")
    assert PLACE in note(got, "input-corrected").said
    assert got.usage == cnllm.Usage(input=6, output=8, total=14)
    assert got.cost == cnllm.Cost(Decimal(14), "USD")


def test_no_byte_of_a_patch_is_delivered_before_it_is_judged(client: Driver, tmp_path: Path) -> None:
    first = gives("stream", called("read", {"path": "a"}, "c0"), patching(BAD_LINES), text="I edit.", thought="Hm.")
    with Peer([first], [gives("call", patching(GOOD_LINES, "c2"), text="Better so.", thought="Oh.")]) as peer:
        tools = [READ, flat(LINES)]
        events, got = drained(client.stream(home(tmp_path, peer), "Go.", tools=tools))
    folds(events, got)
    assert [(e.index, e.name) for e in events if isinstance(e, cnllm.ToolCallStart)] == [
        (0, "read"),
        (1, "apply_patch"),
    ]
    assert not any("x = 1" in e.text for e in events if isinstance(e, cnllm.ToolCallDelta))
    assert (got.text, got.reasoning) == ("I edit.\n\nBetter so.", "Hm.Oh.")
    ends = [e.index for e in events if isinstance(e, cnllm.BlockEnd)]
    assert ends == sorted(set(ends))
    assert {i for i, p in enumerate(got.message.parts) if not isinstance(p, cnllm.ToolCall)} == set(ends)
    assert [e.usage for e in events if isinstance(e, cnllm.UsageSeen)][-1] == got.usage
    codes = [e.note.code for e in events if isinstance(e, cnllm.NoteAdded)]
    assert codes == ["reasoning-replay", "input-corrected"]  # nobody knows whether the endpoint wants its thought back


def test_a_call_that_waits_begins_again_with_the_reply(client: Driver, tmp_path: Path) -> None:
    snapshots = [delta("x" * 30 + "y" * count) for count in range(6)]
    function = patching(GOOD_LINES)["function"]
    call = call_delta(id="c1", name=function["name"], arguments=function["arguments"])
    with Peer([stream(snapshots[0], call, *snapshots[1:], delta(finish="tool_calls"), DONE)]) as peer:
        events, got = drained(client.stream(home(tmp_path, peer), "Go.", tools=[flat(LINES)]))
    folds(events, got)
    assert [type(event) for event in events].count(cnllm.ToolCallStart) == 1
    assert (got.text, [call.arguments for call in got.tool_calls]) == ("x" * 30 + "y" * 5, [{"input": GOOD_LINES}])
    assert cnllm.Restarted() in events


@pytest.mark.parametrize("verb", VERBS)
def test_right_inputs_and_other_tools_cost_no_second_call(client: Driver, tmp_path: Path, verb: str) -> None:
    free = flat(None, "note")
    with Peer([gives(verb, patching(GOOD_LINES), patching("anything", "c2", "note"))]) as peer:
        got = ask(client, verb, home(tmp_path, peer), messages="Go.", tools=[flat(LINES), free])
        assert len(peer.received) == 1
    assert [call.arguments for call in got.tool_calls] == [{"input": GOOD_LINES}, {"input": "anything"}]
    assert not codes(got)


@pytest.mark.parametrize("verb", VERBS)
def test_a_second_failure_goes_on_as_it_is_with_a_note(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, patching(BAD_LINES))], [gives("call", patching(WORSE, "c2"))]) as peer:
        got = ask(client, verb, home(tmp_path, peer), messages="Go.", tools=[flat(LINES)])
        assert len(peer.received) == 2
    assert [call.arguments for call in got.tool_calls] == [{"input": WORSE}]
    assert codes(got) == ["input-corrected", "input-invalid"]
    assert "does not match" in note(got, "input-invalid").said


@pytest.mark.parametrize("verb", VERBS)
def test_where_the_second_call_fails_the_first_one_is_passed_on(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, patching(BAD_LINES))], [refused(400, "too much")]) as peer:
        got = ask(client, verb, home(tmp_path, peer), messages="Go.", tools=[flat(LINES)])
    assert [call.arguments for call in got.tool_calls] == [{"input": BAD_LINES}]
    assert codes(got) == ["input-invalid", "correction-failed"]
    assert "too much" in note(got, "correction-failed").did


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_may_answer_in_words_then(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer([gives(verb, patching(BAD_LINES), text="Let me.")], [gives("call", text="I cannot do that.")]) as peer:
        got = ask(client, verb, home(tmp_path, peer), messages="Go.", tools=[flat(LINES)])
    assert (got.text, got.tool_calls, got.finish) == ("Let me.\n\nI cannot do that.", [], "stop")


def test_right_calls_beside_a_wrong_one_stay_and_are_not_made_twice(client: Driver, tmp_path: Path) -> None:
    read = called("read", {"path": "a"}, "c0")
    again = called("read", {"path": "a"}, "c5")
    with Peer([gives("call", read, patching(BAD_LINES))], [gives("call", again, patching(GOOD_LINES, "c6"))]) as peer:
        got = client.call(home(tmp_path, peer), "Go.", tools=[READ, flat(LINES)])
        waiting = peer.received[1].json()["messages"][-2]
    assert [(call.id, call.name) for call in got.tool_calls] == [("c0", "read"), ("c6", "apply_patch")]
    assert (waiting["tool_call_id"], "right" in waiting["content"]) == ("c0", True)


def test_corrections_can_be_turned_off(client: Driver, tmp_path: Path) -> None:
    with Peer([gives("call", patching(BAD_LINES))]) as peer:
        got = client.call(home(tmp_path, peer), "Go.", tools=[flat(LINES)], corrections=0)
        assert len(peer.received) == 1
    assert (codes(got), got.tool_calls[0].arguments) == (["input-invalid"], {"input": BAD_LINES})


REGEX = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+ [0-9]{2}"}


def test_a_regular_expression_matches_the_whole_input(client: Driver, tmp_path: Path) -> None:
    tool = flat(REGEX, "move")
    with Peer(
        [gives("call", patching("a 123", "c1", "move"))], [gives("call", patching("ab 12", "c2", "move"))]
    ) as peer:
        got = client.call(home(tmp_path, peer), "Go.", tools=[tool])
        assert "[a-z]+ [0-9]{2}" in peer.received[1].json()["messages"][-1]["content"]
    assert [call.arguments for call in got.tool_calls] == [{"input": "ab 12"}]


UNJUDGED = {
    "unreadable": {"syntax": "lark", "definition": "start: {"},
    "imports": {"syntax": "lark", "definition": "start: X\n%import .secret.X"},
    "expression": {"syntax": "regex", "definition": "(a|a|aa)+(?=b)"},
    "unknown": {"syntax": "gbnf", "definition": 'root ::= "a"'},
}


@pytest.mark.parametrize("case", UNJUDGED)
def test_what_cannot_be_judged_is_passed_on_with_a_note(client: Driver, tmp_path: Path, case: str) -> None:
    with Peer([gives("call", patching(WORSE))]) as peer:
        got = client.call(home(tmp_path, peer), "Go.", tools=[flat({"type": "grammar", **UNJUDGED[case]})])
        assert len(peer.received) == 1
        assert UNJUDGED[case]["definition"] in peer.received[0].json()["tools"][0]["function"]["description"]
    assert (codes(got), got.tool_calls[0].arguments) == (["input-unjudged"], {"input": WORSE})
