"""An excluded call is forwarded to nobody, and a conversation that holds one can go on, on any wire."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import cnllm
from cnllm import engine

from .calls_support import WIRES, Calls, Peer
from .test_excluded_calls import LOOK_ALIKES, REGISTRY, weather, wipe

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
OK = ("b", "weather", {"city": "x"})
SCRIPTS: list[tuple[Calls, str, list[str]]] = [
    ([("a", "wipe", {"city": "y"})], "", []),
    ([("a", "wipe", {"city": "y"})], "words", []),
    ([("a", "wipe", {"city": "y"}), OK], "", ["x"]),
    ([OK, ("a", "wipe", {"city": "y"})], "words", ["x"]),
    ([("a", "wipe", {}), OK, ("c", "wipe", {}), ("d", "weather", {"city": "z"})], "", ["x", "z"]),
]


@pytest.fixture(params=WIRES)
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, cnllm.Model]]:
    made = Peer(request.param)
    model = REGISTRY.resolve("openai-compatible/any", base_url=made.url, protocol=request.param)
    yield made, model
    made.server.shutdown()
    made.server.server_close()


def test_an_excluded_call_is_not_forwarded(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for calls, text, cities in SCRIPTS:
            endpoint.script = [(calls, text)]
            options: dict[str, Any] = {"tools": [weather, wipe], "tool_choice": "weather"}
            reply = client.call(model, "hi", **options)
            with client.stream(model, "hi", **options) as streamed:
                events = list(streamed)
            starts = [event for event in events if isinstance(event, cnllm.ToolCallStart)]
            assert [event.excluded for event in starts] == [name == "wipe" for _, name, _ in calls]
            for protocol in WIRES:
                reader = REGISTRY.resolve("openai-compatible/any", base_url=endpoint.url, protocol=protocol)
                body = json.dumps(engine.encode_reply(protocol, reply)).encode()
                writer = engine.StreamWriter(protocol, id="r", model="m")
                sent = writer.begin() + b"".join(map(writer.feed, events))
                parser = engine.StreamParser(reader)
                parser.feed(sent)
                parser.end()
                whole = None if not (cities or text) else engine.parse_response(reader, 200, {}, body)
                for got in (whole, None if not (cities or text) else parser.close()):
                    if got is None:  # nothing is left to read
                        continue
                    assert [(c.name, (c.arguments or {})["city"]) for c in got.tool_calls] == [
                        ("weather", city) for city in cities
                    ]
                    assert got.text == text
                    assert got.finish == ("tool_calls" if cities else "stop")
                    assert not got.incomplete
                for said in (body, sent):
                    assert b"wipe" not in said
                    assert cities or not re.search(rb'"(tool_calls|tool_use|function_call)"', said)


def pairs(protocol: str, body: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """The calls of a body as (id, name), and the ids that results answer, in order."""
    calls: list[tuple[str, str]] = []
    results: list[str] = []
    if protocol == "openai-chat":
        for turn in body["messages"]:
            calls += [(c["id"], c["function"]["name"]) for c in turn.get("tool_calls") or ()]
            results += [turn["tool_call_id"]] if turn["role"] == "tool" else []
    elif protocol == "openai-responses":
        calls = [(i["call_id"], i["name"]) for i in body["input"] if i.get("type") == "function_call"]
        results = [i["call_id"] for i in body["input"] if i.get("type") == "function_call_output"]
    elif protocol == "anthropic-messages":
        blocks = [b for turn in body["messages"] if isinstance(turn["content"], list) for b in turn["content"]]
        calls = [(b["id"], b["name"]) for b in blocks if b["type"] == "tool_use"]
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    else:
        parts = [part for turn in body["contents"] for part in turn["parts"]]
        said = [part["functionCall"] for part in parts if "functionCall" in part]
        told = [part["functionResponse"] for part in parts if "functionResponse" in part]
        assert [c["name"] for c in said] == [r["name"] for r in told]
        calls, results = [(c.get("id", ""), c["name"]) for c in said], [r.get("id", "") for r in told]
    return calls, results


def test_a_conversation_with_an_excluded_call_goes_on(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    user = cnllm.Message("user", [cnllm.Text("go on")])
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for name in ("wipe", *LOOK_ALIKES, "a" * 90, "天气", "1st", "<b>"):
            calls: Calls = [("a", name, {"city": "y"}), OK]
            endpoint.script = [(calls, "words")]
            reply = client.call(model, "hi", tools=[weather], tool_choice="auto")
            assert [call.excluded for call in reply.tool_calls] == [True, False]
            first = cnllm.Message("user", [cnllm.Text("hi")])
            again = cnllm.Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
            assert again == reply.message
            result = cnllm.Message("tool", [cnllm.ToolResult("b", "sun", "weather")])
            endpoint.script = [([], "done")]
            for history in ([first, reply.message, user], [first, again, result, user]):
                for tools in ([weather], None):
                    endpoint.bodies.clear()
                    client.call(model, history, tools=tools)
                    made, answered = pairs(model.protocol, endpoint.bodies[0])
                    assert [id for id, _ in made] == answered, (name, made, answered)
                    assert len(made) == 2
                    assert all(NAME.fullmatch(said) for _, said in made)
            endpoint.script = [(calls, "words"), ([], "done")]
            endpoint.bodies.clear()
            run = client.run(model, "hi", tools=[weather])
            assert run.reply.text == "done"
            made, answered = pairs(model.protocol, endpoint.bodies[1])
            assert [id for id, _ in made] == answered
            assert all(NAME.fullmatch(said) for _, said in made)
            assert made[1][1] == "weather"
