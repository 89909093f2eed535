"""Turns: what is there before, after and without an answer."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from cnllm import errors
from cnllm.store import Store
from cnllm.types import Cost, Media, Message, Text, ToolCall, ToolResult, Usage

from .support import ask, reply, user


def test_a_conversation_comes_back_as_it_was_said(tmp_path: Path) -> None:
    call = ToolCall("c1", "look_up", {"q": "天空"}, '{"q": "天空"}', "text")
    picture = Message("user", [Text("look"), Media("image/png", data="AAAA")])
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        with conversation.turn([picture], model="zai/glm-4.7") as turn:
            assert conversation.messages() == [picture]  # before anything is sent
            turn.finish(reply("", "let me see", (call,), finish="tool_calls"))
        ask(conversation, "and now?")
    with Store.open(tmp_path / "a.db") as store:
        again = store.conversation("last")
        assert again.id == conversation.id
        said = [picture, reply("", "let me see", (call,)).message, user("and now?"), reply().message]
        assert again.messages() == said  # reasoning, seals, calls and who wrote it included
        assert again.messages(user("more")) == [*said, user("more")]
        (kept,) = store.records()
    first = kept.turns[0]
    assert (first.state, first.finish, first.reply_model, first.reply_id) == ("done", "tool_calls", "glm-4.7", "r1")
    assert first.usage == Usage(12, 34, 46, 20, 3)
    assert (str(first.cost.amount), first.cost.currency) == ("0.00012", "USD") if first.cost else False
    assert first.notes == reply().notes
    assert first.seconds is not None


def test_a_summary_has_the_times_of_its_first_and_its_last_turn(tmp_path: Path) -> None:
    times = ["2026-01-02T03:04:05+00:00", "2026-01-03T03:04:05+00:00", "2026-01-04T03:04:05+00:00"]
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        for text in ("one", "two", "three"):
            ask(conversation, text)
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        ids = [row[0] for row in file.execute("SELECT id FROM turns ORDER BY id")]
        file.executemany("UPDATE turns SET began = ? WHERE id = ?", zip(times, ids, strict=True))
    with Store.open(tmp_path / "a.db") as store:
        (summary,) = store.summaries()
    assert (summary.began, summary.last, summary.turns) == (times[0], times[-1], 3)


def test_a_summary_counts_what_endpoints_may_have_charged(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        ask(conversation, "one")
        ask(conversation, "two", origin="simulated")  # at the price of the model, and nobody pays it
        assert store.summaries()[0].cost == [Cost(Decimal("0.00012"), "USD")]
        ask(conversation, "three", reply(cost=None))
        assert store.summaries()[0].cost == [Cost(Decimal("0.00012"), "USD", missing=("request",))]


def test_the_last_system_message_holds(tmp_path: Path) -> None:
    def system(text: str) -> Message:
        return Message("system", [Text(text)])

    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        for text in ("be brief", "be long"):
            with conversation.turn([system(text), user("hi")], model="zai/glm-4.7") as turn:
                turn.finish(reply())
        assert [m.role for m in conversation.messages()] == ["system", "user", "assistant", "user", "assistant"]
        assert conversation.messages()[0].text == "be long"
        assert conversation.messages(system("be odd"), user("?"))[0].text == "be odd"


def test_what_never_ended_is_interrupted_and_the_question_is_kept(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        conversation.turn([user("one")], model="zai/glm-4.7")
        assert store.summaries()[0].state == "running"  # this process could still end it
        with pytest.raises(KeyboardInterrupt), conversation.turn([user("two")], model="zai/glm-4.7"):
            raise KeyboardInterrupt
        with conversation.turn([user("three")], model="zai/glm-4.7") as turn:
            turn.fail(KeyboardInterrupt(), reply("Hel", finish="cut"))
        with conversation.turn([user("four")], model="zai/glm-4.7"):
            pass
        (kept,) = store.records()
        assert [t.state for t in kept.turns] == ["running", "interrupted", "interrupted", "interrupted"]
        assert [m.text for m in conversation.messages()] == ["one", "two", "three", "Hel", "four"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say when a process began")
def test_a_turn_of_an_earlier_process_with_the_same_number_is_interrupted(tmp_path: Path) -> None:
    """The first process of each container has the number 1."""
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        conversation.turn([user("one")], model="zai/glm-4.7")
        with pytest.raises(errors.CnllmError, match="is being answered"):
            store.delete([conversation.id])
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
            connection.execute("UPDATE turns SET began = '2026-01-01T00:00:00.000+00:00'")
        assert store.summaries()[0].state == "interrupted"
        assert [turn.state for record in store.records() for turn in record.turns] == ["interrupted"]
        assert store.delete([conversation.id]) == 1


def test_a_refused_question_is_kept_but_not_asked_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        ask(conversation, "hi")
        refused = errors.ContentFiltered("not this", status=400)
        with pytest.raises(errors.ContentFiltered), conversation.turn([user("ugly")], model="zai/glm-4.7"):
            raise refused
        cut = errors.StreamCut("cut", reply=reply("Hel", finish="cut"))
        with pytest.raises(errors.StreamCut), conversation.turn([user("long")], model="zai/glm-4.7"):
            raise cut
        assert [m.text for m in conversation.messages()] == ["hi", "Hello", "long", "Hel"]
        (kept,) = store.records()
        assert [t.state for t in kept.turns] == ["done", "failed", "partial"]
        assert kept.turns[1].messages == [{"role": "user", "content": "ugly"}]
        failure = kept.turns[1].error
        assert failure is not None
        assert (failure.type, failure.message) == ("ContentFiltered", "not this")


def test_what_was_never_sent_is_forgotten(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        missing = errors.KeyMissing("no key", env=["X"])
        with pytest.raises(errors.KeyMissing), store.conversation().turn([user("hi")], model="zai/glm-4.7"):
            raise missing
        assert store.summaries() == []
        assert list(store.records()) == []


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    path, secret = tmp_path / "a.db", "sk-0123456789abcdef"
    with Store.open(path) as store:
        conversation = store.conversation()
        question = Message("user", [Text(f"is {secret} a key?")], extra={"hint": secret})
        place = f"https://me:{secret}@example.com/v1?key={secret}"
        with conversation.turn([question], model="zai/glm-4.7", base_url=place, secrets=[secret]) as turn:
            turn.finish(reply(f"yes, {secret}", f"{secret}!", id=secret))
        with pytest.raises(errors.BadKey), conversation.turn([question], model="a/b", secrets=[secret]):
            raise errors.BadKey(f"{secret} is wrong", status=401)
        (kept,) = store.records()
        assert "yes, [redacted]" in json.dumps(kept.turns[0].messages)
        assert kept.turns[0].base_url == "https://redacted@example.com/v1?key=[redacted]"
        assert store.search([secret]) == []
        for file in tmp_path.iterdir():
            assert secret.encode() not in file.read_bytes(), file


def test_exchanges_are_kept_unless_they_are_not_wanted(tmp_path: Path) -> None:
    entry = {"request": {"body": {"x": "天" * 5000}}, "response": {"chunks": ["data: 1\n\n"]}, "ended": "whole"}
    with Store.open(tmp_path / "a.db") as store:
        for wanted in (True, False):
            with store.conversation().turn([user("hi")], model="zai/glm-4.7", exchanges=wanted) as turn:
                turn.exchange(entry)
                turn.finish(reply())
        kept = list(store.records(exchanges=True))
        assert [one.turns[0].exchanges for one in kept] == [[entry], []]
        assert [one.turns[0].exchanges for one in store.records()] == [[], []]


def test_half_a_surrogate_pair_is_kept_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        conversation = store.conversation()
        ask(conversation, "say it", reply("so: \ud83d."))
        assert conversation.messages()[1].text == "so: \ud83d."
        assert store.search(["so:"])[0].excerpt == "so: ?."


def test_a_conversation_is_found_by_what_its_id_begins_with(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        with pytest.raises(errors.CnllmError, match="no conversation yet"):
            store.conversation("last")
        ids = []
        for text in map(str, range(20)):
            conversation = store.conversation()
            ask(conversation, text)
            ids.append(conversation.id)
        assert store.ids() == ids
        assert [one.id for one in store.summaries(3)] == ids[:-4:-1]
        assert store.conversation(ids[3][:8]).id == ids[3]
        with pytest.raises(errors.CnllmError, match="may be"):  # twenty ids have sixteen first letters
            store.conversation(next(i[0] for i in ids if sum(j[0] == i[0] for j in ids) > 1))
        for wrong in ("", "%", "zz"):
            with pytest.raises(errors.CnllmError, match="begins with"):
                store.conversation(wrong)
        ask(store.conversation(ids[0]), "again")
        assert store.conversation("last").id == ids[0]
        assert (store.summaries(1)[0].turns, store.summaries(1)[0].prompt) == (2, "0")
        assert [str(cost.amount) for cost in store.summaries(1)[0].cost] == ["0.00024"]


def test_a_void_turn_can_be_read_and_is_not_gone_on_from(tmp_path: Path) -> None:
    with Store.open(tmp_path / "c.db") as store:
        conversation = store.conversation()
        ask(conversation, "first")
        turn = conversation.turn([user("second")], model="zai/glm-4.7")
        turn.fail(InterruptedError("stopped"), reply("half"), void=True)
        assert [message.text for message in conversation.messages()] == ["first", "Hello"]
        (found,) = store.records([conversation.id])
        assert [one.state for one in found.turns] == ["done", "failed"]
        assert "half" in str(found.turns[1].messages)


def test_turns_can_be_taken_out_again_and_the_last_one_takes_the_conversation_along(tmp_path: Path) -> None:
    with Store.open(tmp_path / "c.db") as store:
        conversation = store.conversation()
        ask(conversation, "first")
        ask(conversation, "second")
        numbers = [number for number, _ in conversation.turns()]
        conversation.forget(numbers[1])
        assert [message.text for message in conversation.messages()] == ["first", "Hello"]
        assert store.prompts(10) == ["first"]
        conversation.forget(numbers[0])
        assert (store.ids(), conversation.turns(), store.prompts(10)) == ([], [], [])


def test_all_that_was_said_in_a_turn_with_tools_is_kept(tmp_path: Path) -> None:
    with Store.open(tmp_path / "c.db") as store:
        conversation = store.conversation()
        call = ToolCall("c1", "calc", {}, "{}")
        said = [reply("", calls=(call,)).message, Message("tool", [ToolResult("c1", "42", "calc")]), reply().message]
        conversation.turn([user("first")], model="zai/glm-4.7").finish(reply(), said)
        assert [message.role for message in conversation.messages()] == ["user", "assistant", "tool", "assistant"]


def test_a_summary_of_no_conversation_and_costs_of_no_id_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        with pytest.raises(errors.CnllmError, match="there is no conversation 'nothing'"):
            store.summary("nothing")
        with pytest.raises(TypeError, match="conversation is int"):
            store.costs(conversation=10**400)  # type: ignore[arg-type]


def test_a_turn_that_was_deleted_before_its_end_is_named_as_such(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "a.db") as other:
        conversation = store.conversation()
        turn = conversation.turn([user("hi")], model="zai/glm-4.7")
        other.conversation(conversation.id).forget(turn.number)
        with pytest.raises(errors.CnllmError, match="its turn was deleted before it ended"):
            turn.finish(reply())
        ask(store.conversation(), "and now?")
        assert store.count() == 1
