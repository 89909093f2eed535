"""Which calls a reply may hold, and by which ids: what endpoints ignore is noted, ids are unique and fit."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cnllm

from .calls_support import Calls, Peer
from .test_excluded_calls import REGISTRY, ask, codes, weather, wipe

OVERLAY = """
[providers.home]
title = "A server at home"
protocol = "openai-chat"
base_url = "URL"
keys = []
[models."home/plain"]
tools = { parallel = true }
leaks = [{ open = ["<tool_call>"], close = ["</tool_call>"], format = ["json"], then = "recover" }]
[models."home/param"]
params.parallel_tool_calls = true
tools = { parallel = true }
[models."home/without"]
tools = { parallel = false }
[models."home/prompted"]
tools = { supported = false, otherwise = "prompt" }
[models."home/nine"]
tools = { call_id_pattern = "[A-Za-z0-9]{9}" }
leaks = [{ open = ["<tool_call>"], close = ["</tool_call>"], format = ["json"], then = "recover" }]
[models."home/answers"]
schema.methods = ["tool"]
"""
NINE = re.compile(r"[A-Za-z0-9]{9}")
BLOCK = '<tool_call>\n{"name": "NAME", "arguments": {"city": "CITY"}}\n</tool_call>'


def block(name: str, city: str = "x") -> str:
    return BLOCK.replace("NAME", name).replace("CITY", city)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, cnllm.Client]]:
    made = Peer("openai-chat")
    path: Path = tmp_path_factory.mktemp("home") / "providers.toml"
    path.write_text(OVERLAY.replace("URL", made.url))
    with cnllm.Client(cnllm.Registry.load(path)) as client:
        yield made, client
    made.server.shutdown()
    made.server.server_close()


def test_more_calls_than_one_are_noted_where_one_was_asked_for(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    one: Calls = [("a", "weather", {"city": "x"})]
    two: Calls = [*one, ("b", "wipe", {})]
    for name, asks in (("plain", True), ("param", True), ("without", False)):
        for stream in (False, True):
            for parallel, calls, noted in [
                (False, two, True),
                (False, one, False),
                (True, two, False),
                (None, two, False),
            ]:
                endpoint.script = [(calls, "")]
                reply = ask(client, f"home/{name}", stream, tools=[weather, wipe], parallel_tool_calls=parallel)
                assert ("parallel-ignored" in codes(reply)) is (noted and asks), (name, stream, parallel, len(calls))
                assert len(reply.tool_calls) == len(calls)
                assert not any(call.excluded for call in reply.tool_calls)


def test_calls_written_as_text_are_held_to_the_same_rules(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    ran: list[str] = []

    def weather(city: str = "") -> str:
        """Tell the weather."""
        ran.append(city)
        return "sun"

    def wipe(city: str = "") -> str:
        """Wipe a disk."""
        ran.append("wipe")
        return "wiped"

    for model in ("home/plain", "home/prompted"):
        for stream in (False, True):
            for choice, text in [
                ("weather", block("wipe")),
                ("auto", block("rm_rf")),
                ("auto", block("Weather")),
                ("auto", block("we\\u0430ther")),
                ("none", block("wipe")),
            ]:
                ran.clear()
                endpoint.script = [([], text), ([], "done")]
                options: dict[str, Any] = {"tools": [weather, wipe], "tool_choice": choice}
                run = client.run(model, "hi", **options)
                assert not ran, (model, choice, text)
                endpoint.script = [([], text)]
                reply = ask(client, model, stream, recover_text_calls="recover", **options)
                assert all(call.excluded and call.arguments is None for call in reply.tool_calls)
                assert not run.steps[0].calls or all(call.excluded for call in run.steps[0].calls)
                if reply.tool_calls:
                    assert {"call-excluded", "call-not-offered"} & set(codes(reply))
            endpoint.script = [([], block("weather", "y")), ([], "done")]
            run = client.run(model, "hi", tools=[weather, wipe], tool_choice="weather")
            assert ran == ["y"]
            assert run.reply.text == "done"
            ran.clear()


def test_a_choice_told_in_the_prompt_and_ignored_is_noted(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    for stream in (False, True):
        cases: list[tuple[dict[str, Any], str, str | None]] = [
            ({"tool_choice": "required"}, "words", "tool-choice-ignored"),
            ({"tool_choice": "weather"}, "words", "tool-choice-ignored"),
            ({"parallel_tool_calls": False}, f"{block('weather')}\n{block('weather', 'y')}", "parallel-ignored"),
            ({"tool_choice": "required", "parallel_tool_calls": False}, block("weather"), None),
            ({}, "words", None),
        ]
        for options, text, code in cases:
            endpoint.script = [([], text)]
            reply = ask(client, "home/prompted", stream, tools=[weather, wipe], **options)
            ignored = {"tool-choice-ignored", "parallel-ignored"} & set(codes(reply))
            assert ignored == ({code} if code else set()), (options, text, reply.notes)
            flag = {"tool-choice-ignored": "tool_choice", "parallel-ignored": "tools.parallel"}
            assert all(note.flag == flag[note.code] for note in reply.notes if note.code in ignored)


def test_ids_fit_the_endpoints_pattern_and_are_unique(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    written = f"{block('weather', 'a')}\n{block('weather', 'a')}\n{block('weather', 'b')}"
    same: Calls = [("abcdefghi", "weather", {"city": "a"}), ("abcdefghi", "weather", {"city": "b"})]
    absent: Calls = [(None, "weather", {"city": "a"}), ("", "weather", {"city": "b"})]
    for stream in (False, True):
        for calls, text, count in [([], written, 3), (same, "", 2), (absent, "", 2)]:
            endpoint.script = [(calls, text)]
            history: list[Any] = [cnllm.Message("user", [cnllm.Text("hi")])]
            seen: list[str] = []
            for _ in range(3):  # the same bytes each time
                if stream:
                    with client.stream("home/nine", history, tools=[weather], recover_text_calls="recover") as streamed:
                        began = [e.id for e in streamed if isinstance(e, cnllm.ToolCallStart)]
                    reply = streamed.reply
                    assert began == [call.id for call in reply.tool_calls]
                else:
                    reply = client.call("home/nine", history, tools=[weather], recover_text_calls="recover")
                ids = [call.id for call in reply.tool_calls]
                assert len(ids) == count
                assert all(map(NINE.fullmatch, ids)), ids
                seen += ids
                history += [reply.message, *(cnllm.Message("tool", [cnllm.ToolResult(id, "sun")]) for id in ids)]
                assert ("ids-repeated" in codes(reply)) is (calls is same)
            assert len(set(seen)) == len(seen) == 3 * count
            endpoint.bodies.clear()
            client.call("home/nine", history, tools=[weather])
            sent = [c["id"] for turn in endpoint.bodies[0]["messages"] for c in turn.get("tool_calls") or ()]
            assert sent == seen


def test_two_turns_of_recovered_calls_have_different_ids(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    endpoint.script = [([], block("weather"))]
    for model in ("home/plain", "home/prompted"):
        for stream in (False, True):
            history: list[Any] = [cnllm.Message("user", [cnllm.Text("hi")])]
            ids: list[str] = []
            for _ in range(3):
                options: dict[str, Any] = {"tools": [weather], "recover_text_calls": "recover"}
                if stream:
                    with client.stream(model, history, **options) as streamed:
                        list(streamed)
                    reply = streamed.reply
                else:
                    reply = client.call(model, history, **options)
                [call] = reply.tool_calls
                assert call.via == "text"
                ids.append(call.id)
                history += [reply.message, cnllm.Message("tool", [cnllm.ToolResult(call.id, "sun", "weather")])]
            assert len(set(ids)) == 3


def test_an_answer_by_a_tool_is_no_excluded_call(peer: tuple[Peer, cnllm.Client]) -> None:
    endpoint, client = peer
    endpoint.script = [([("a", "answer", {"n": 3})], "")]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for stream in (False, True):
        for options in ({}, {"tool_choice": "none"}, {"tool_choice": "auto"}):
            reply = ask(client, "home/answers", stream, schema=schema, **options)
            assert reply.parsed == {"n": 3}, reply
            assert not {"call-excluded", "call-not-offered", "tool-choice-ignored"} & set(codes(reply))


def test_results_of_calls_that_share_an_id_go_to_the_call_of_their_name() -> None:
    def call(name: str, city: str) -> dict[str, Any]:
        return {"id": "same", "type": "function", "function": {"name": name, "arguments": json.dumps({"city": city})}}

    def result(text: str, name: str | None) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": "same", "content": text, **({"name": name} if name else {})}

    model = REGISTRY.resolve("openai-compatible/any", base_url="http://127.0.0.1:1/v1")
    cases: list[tuple[list[tuple[str, str | None]], list[str]]] = [
        ([("rain", "weather"), ("noon", "clock")], ["noon", "rain"]),
        ([("noon", "clock"), ("rain", "weather")], ["noon", "rain"]),
        ([("noon", None), ("rain", None)], ["noon", "rain"]),
        ([("rain", "weather"), ("noon", None)], ["noon", "rain"]),
    ]
    for results, meant in cases:
        history: list[Any] = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call("clock", "x"), call("weather", "y")]},
            *(result(text, name) for text, name in results),
            {"role": "user", "content": "go on"},
        ]
        body = cnllm.engine.build_request(model, history).body
        [turn] = [turn for turn in body["messages"] if turn.get("tool_calls")]
        ids = [made["id"] for made in turn["tool_calls"]]
        assert len(set(ids)) == 2
        told = [(turn["tool_call_id"], turn["content"]) for turn in body["messages"] if turn["role"] == "tool"]
        assert told == list(zip(ids, meant, strict=True)), results


def test_without_a_plan_no_call_is_excluded() -> None:
    """As the documentation says: nothing tells what was offered or chosen."""
    model = REGISTRY.resolve("openai-compatible/any", base_url="http://127.0.0.1:1/v1")
    made = {"id": "a", "type": "function", "function": {"name": "any_tool", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [made]}
    body = json.dumps({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    reply = cnllm.engine.parse_response(model, 200, {}, body.encode())
    assert [(call.name, call.excluded) for call in reply.tool_calls] == [("any_tool", False)]
