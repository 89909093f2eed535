"""A search that the endpoint hands to its client: its calls are answered with their own arguments, unseen."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cnllm
from cnllm import Reply

from .peer import Close, Peer, Script, answer, call_delta, delta, frame, reply, stream
from .support import ONCE, SEARCH, Driver, drained, folds, home

ADAPTERS = ["httpx"]
FLAGS = """
price = { currency = "CNY", input = 1.0, output = 2.0 }
tools.result_name = true
web_search = { tool = { type = "builtin_function", function = { name = "$find" } }, echo = "$find", fee = 0.03 }
"""
ARGUMENTS = '{"search_result": {"search_id": "1"}, "usage": {"total_tokens": 13}}'
USAGE = {"prompt_tokens": 1_000_000, "completion_tokens": 500_000, "total_tokens": 1_500_000}


@pytest.fixture(params=["sync", "asyncio"])
def client(request: pytest.FixtureRequest) -> Any:
    with Driver(request.param, retry=ONCE, api_key="sk-not-needed-0123456789") as made:
        yield made


def answers(verb: str, text: str = "", *names: str, finish: str = "", arguments: str = ARGUMENTS) -> Script:
    """A reply with text, and with calls of these functions."""
    calls = [
        {"id": f"call_{text}_{n}", "type": "builtin_function", "function": {"name": name, "arguments": arguments}}
        for n, name in enumerate(names)
    ]
    finish = finish or ("tool_calls" if names else "stop")
    if verb == "call":
        message: dict[str, Any] = {"role": "assistant", "content": text}
        message |= {"tool_calls": calls} if calls else {}
        body = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        return [answer(200, msgspec.json.encode({**body, "usage": USAGE}))]
    pieces = [delta(text)] if text else []
    for n, call in enumerate(calls):
        pieces += [
            call_delta(n, "", id=call["id"], type=call["type"], function={"name": names[n], "arguments": ""}),
            call_delta(n, arguments),
        ]
    return [stream(*pieces, delta(finish=finish), frame({"choices": [], "usage": USAGE}))]


def ask(client: Driver, verb: str, model: cnllm.Model, **options: Any) -> tuple[list[Any], Reply]:
    if verb == "call":
        return [], client.call(model, **options)
    return drained(client.stream(model, **options))


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_the_search_is_run_and_only_the_answer_is_seen(client: Driver, tmp_path: Path, verb: str) -> None:
    scripts = [answers(verb, "I look. ", "$find"), answers(verb, "", "$find", "$find"), answers(verb, "It rains.")]
    with Peer(*scripts) as peer:
        events, got = ask(client, verb, home(tmp_path, peer, FLAGS), tools=[cnllm.web_search()])
        first, second, third = [request.json() for request in peer.received]
    assert first["tools"] == [{"type": "builtin_function", "function": {"name": "$find"}}]
    call = {"id": "call_I look. _0", "type": "builtin_function", "function": {"name": "$find", "arguments": ARGUMENTS}}
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "I look. ", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "name": "$find", "content": ARGUMENTS},
    ]
    assert third["messages"][: len(second["messages"])] == second["messages"]
    assert [m["content"] for m in third["messages"] if m["role"] == "tool"] == [ARGUMENTS] * 3
    assert all(
        body["tools"] == first["tools"] and body.get("stream") == first.get("stream") for body in (second, third)
    )
    assert (got.text, got.tool_calls, got.finish) == ("I look. It rains.", [], "stop")
    assert got.message.text == got.text
    assert not got.message.tool_calls
    assert got.usage.input == 3 * USAGE["prompt_tokens"]
    assert got.cost is not None
    assert got.cost.amount == 3 * 2 + 3 * Decimal("0.03")
    if events:
        folds(events, got)
        assert [e.usage for e in events if isinstance(e, cnllm.UsageSeen)] == [got.usage]
        ends = [(e.index, e.part) for e in events if isinstance(e, cnllm.BlockEnd)]
        assert ends == list(enumerate(got.message.parts))


def test_a_search_is_not_run_where_the_budget_has_no_room(tmp_path: Path) -> None:
    """Each of them is one more request."""
    asked: list[bool] = []

    async def run(model: cnllm.Model, rooms: list[bool]) -> Reply:
        async def may_repeat() -> bool:
            asked.append(rooms[len(asked)])
            return asked[-1]

        async with cnllm.AsyncClient(retry=ONCE, api_key="sk-not-needed-0123456789") as client:
            call = client.prepare(model, "Hi", stream=False, tools=[cnllm.web_search()])
            call.ask_before_repeats(may_repeat)
            async with call:
                return await call.complete()

    scripts = [answers("call", "I look. ", "$find"), answers("call", "Again. ", "$find"), answers("call", "It rains.")]
    with Peer(*scripts) as peer:
        got = asyncio.run(run(home(tmp_path, peer, FLAGS), [True, False]))
        assert len(peer.received) == 2
    assert asked == [True, False]
    assert (got.text, got.finish) == ("I look. Again. ", "stop")
    assert [note.did for note in got.notes if note.code == "web-search"] == [
        "not run: the budget has no room for another request"
    ]


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_an_answer_without_a_search_costs_no_fee(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer(answers(verb, "Hello.")) as peer:
        _, got = ask(client, verb, home(tmp_path, peer, FLAGS), tools=[cnllm.web_search()])
        assert len(peer.received) == 1
    assert got.cost is not None
    assert got.cost.amount == 2


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_search_beside_a_function_waits_for_its_result(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer(answers(verb, "", "$find", "search")) as peer:
        events, got = ask(client, verb, home(tmp_path, peer, FLAGS), tools=[SEARCH, cnllm.web_search()])
        assert len(peer.received) == 1
    assert [call.name for call in got.tool_calls] == ["search"]
    assert [call.name for call in got.message.tool_calls] == ["search"]
    assert "web-search" in [note.code for note in got.notes]
    if events:
        folds(events, got)
        assert [e.index for e in events if isinstance(e, cnllm.ToolCallStart)] == [0]
        assert "web-search" in [e.note.code for e in events if isinstance(e, cnllm.NoteAdded)]


@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("arguments", [ARGUMENTS, ARGUMENTS[:20]])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_search_of_a_reply_that_is_not_whole_is_not_run_and_not_seen(
    client: Driver, tmp_path: Path, verb: str, arguments: str, finish: str
) -> None:
    script = answers(verb, "I look. ", "$find", finish=finish, arguments=arguments)
    with Peer(script) as peer:
        events, got = ask(client, verb, home(tmp_path, peer, FLAGS), tools=[cnllm.web_search()])
        assert len(peer.received) == 1
    assert (got.text, got.tool_calls, got.incomplete, got.finish) == ("I look. ", [], [], finish)
    assert not got.message.tool_calls
    assert [note.did for note in got.notes if note.code == "web-search"] == [f"not run: the reply ended with {finish}"]
    if events:
        folds(events, got)
        assert not any(isinstance(event, cnllm.ToolCallStart) for event in events)
        assert "web-search" in [e.note.code for e in events if isinstance(e, cnllm.NoteAdded)]


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_model_that_only_searches_is_stopped(client: Driver, tmp_path: Path, verb: str) -> None:
    with Peer(answers(verb, "Again.", "$find")) as peer:
        _, got = ask(client, verb, home(tmp_path, peer, FLAGS), tools=[cnllm.web_search()])
        assert len(peer.received) == 11
    assert (got.tool_calls, got.text, got.finish) == ([], "Again." * 11, "stop")
    assert got.notes[-1].code == "web-search"


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_a_step_that_fails_keeps_what_came_before(client: Driver, tmp_path: Path, verb: str) -> None:
    broken: Script = [stream(delta("It r"), end=False), Close()] if verb == "stream" else [answer(500, b"{}")]
    with Peer(answers(verb, "I look. ", "$find"), answers(verb, "", "$find"), broken) as peer:
        model = home(tmp_path, peer, FLAGS)
        with pytest.raises(cnllm.CnllmError) as caught:
            ask(client, verb, model, tools=[cnllm.web_search()])
    if verb == "stream":
        assert caught.value.reply is not None
        assert caught.value.reply.text == "I look. It r"


def test_a_caller_who_offers_the_function_himself_gets_its_calls(client: Driver, tmp_path: Path) -> None:
    own = {"type": "builtin_function", "function": {"name": "$find"}}
    with Peer(answers("call", "", "$find"), [reply("no")]) as peer:
        got = client.call(home(tmp_path, peer, FLAGS), tools=[own])
        assert peer.received[0].json()["tools"] == [own]
        assert len(peer.received) == 1
    assert [call.name for call in got.tool_calls] == ["$find"]


@pytest.mark.parametrize(("name", "searches"), [("$find", True), ("$other", False)])
def test_another_function_of_the_endpoint_is_no_search(
    client: Driver, tmp_path: Path, name: str, searches: bool
) -> None:
    own = {"type": "builtin_function", "function": {"name": name}}
    with Peer() as peer:
        plan = client.plan(home(tmp_path, peer, FLAGS), tools=[own])
    assert plan.body["tools"] == [own]
    assert (plan.search is not None) is searches
