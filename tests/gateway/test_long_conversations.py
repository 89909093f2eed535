"""A long conversation through a gateway: what it remembers of earlier requests changes no byte and no note."""

from __future__ import annotations

import copy
import json
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builtin import BUILTIN
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm import Client, engine
from cnllm.gateway.conversation_key import conversation_key
from cnllm.gateway.exchange import ClientRequest, Exchange, read_body, read_remembered_body
from cnllm.gateway.failures import RequestFailed
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.service import Memories
from cnllm.gateway.state import SyncState, keep_reply, restored_request
from cnllm.gateway.tokens import Keyring
from cnllm.store.prefix import content_fingerprint
from cnllm.types import Media, Message, Text
from cnllm.types.message_memory import MessageMemory

from .support import Answer, Upstream, call, gateway_for, say

Json = dict[str, Any]
WORDS = st.sampled_from(["Hi", "", "Go on.", "é", "<think>x</think>"])
EXTRA = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}, {"weight": 1}, {"name": "me"}])
THOUGHTS = st.sampled_from(["", "", "Hm."])


def chat_turns(number: int, text: str, thought: str, extra: Json) -> list[Json]:
    call = {"id": f"call_{number:024}", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    told = {"reasoning_content": thought} if thought else {}
    return [
        {"role": "assistant", "content": text, "tool_calls": [call], **told},
        {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": f"r{number}", **extra}]},
    ]


def messages_turns(number: int, text: str, thought: str, extra: Json) -> list[Json]:
    blocks: list[Json] = [{"type": "thinking", "thinking": thought, "signature": "s"}] if thought else []
    blocks += [{"type": "text", "text": text}] if text else []
    call = {"type": "tool_use", "id": f"toolu_{number:024}", "name": "f", "input": {"a": number}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"r{number}", **extra}
    return [{"role": "assistant", "content": [*blocks, call]}, {"role": "user", "content": [result]}]


def chat_tool(number: int, extra: Json) -> Json:
    function = {"name": f"f{number}", "parameters": {"type": "object", "properties": {}}, **extra}
    return {"type": "web_search"} if number == 3 else {"type": "function", "function": function, **extra}


def messages_tool(number: int, extra: Json) -> Json:
    if number == 3:
        return {"type": "web_search_20250305", "name": "web_search"}
    return {"name": f"f{number}", "input_schema": {"type": "object", "properties": {}}, **extra}


TURNS = {"openai-chat": chat_turns, "anthropic-messages": messages_turns}
TOOL = {"openai-chat": chat_tool, "anthropic-messages": messages_tool}
TOOLS = st.none() | st.lists(st.tuples(st.integers(0, 3), EXTRA), max_size=3)
PARTS = st.lists(st.tuples(st.integers(0, 4), WORDS, THOUGHTS, EXTRA), min_size=1, max_size=6)


@pytest.mark.parametrize("protocol", TURNS)
@examples(100)
@given(PARTS)
def test_a_remembered_turn_is_read_as_a_new_one(protocol: str, parts: list[Any]) -> None:
    memory = MessageMemory()
    body: Json = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    for part in parts:
        body = copy.deepcopy(body)
        body["messages"] += TURNS[protocol](*part)
        known, new = (engine.decode_request(protocol, body, memory=each) for each in (memory, None))
        assert known == new
        answer = Message.assistant("Done.")
        keys = [conversation_key(known.messages, answer, each) for each in (memory, memory, None)]
        assert keys[0] == keys[1] == keys[2]
        content = msgspec.json.encode(body)
        assert content_fingerprint(content, memory) == content_fingerprint(content)


@pytest.mark.parametrize("protocol", TURNS)
@examples(100)
@given(PARTS, st.lists(st.tuples(st.integers(0, 12), st.sampled_from([None, 1]), st.booleans(), TOOLS), max_size=6))
def test_a_body_is_read_as_if_it_were_the_first(protocol: str, parts: list[Any], edits: list[Any]) -> None:
    memory = MessageMemory()
    history: list[Json] = [{"role": "user", "content": "Hi"}]
    steps = [history := [*history, *TURNS[protocol](*part)] for part in parts]
    offered = edits[0][3] if edits else None
    for end, indent, is_changed, tools in [(99, None, False, offered)] * len(parts) + edits:
        turns = (steps.pop(0) if steps else history)[: end + 1]
        if is_changed:
            turns = [*turns[:-1], {"role": "user", "content": f"again {end}"}, *history[end + 1 :]]
        sent: Json = {"max_tokens": 9, "messages": turns, "model": "m"}
        if tools is not None:
            sent["tools"] = [TOOL[protocol](*tool) for tool in tools]
        content = json.dumps(sent, indent=indent).encode()
        body = read_remembered_body(content, protocol, memory, len(content))
        assert body is not None
        assert msgspec.json.encode(body) == msgspec.json.encode(read_body(content, []))
        known, new = (engine.decode_request(protocol, sent, memory=m) for sent, m in ((body, memory), (body, None)))
        assert known == new
        assert engine.decode_request(protocol, body, memory=memory) == new  # what is kept did not change


def test_threads_that_share_a_memory_read_the_same() -> None:
    history: list[Json] = [{"role": "user", "content": "Hi"}]
    bodies: list[bytes] = []
    for number in range(12):
        history = [*history, *chat_turns(number, "Look.", "", {})]
        bodies += [msgspec.json.encode({"messages": history})] * 2
    meant = [engine.decode_request("openai-chat", read_body(content, [])) for content in bodies]

    def read(number: int) -> bool:
        body = read_remembered_body(bodies[number], "openai-chat", memory, len(bodies[number]))
        return engine.decode_request("openai-chat", body or {}, memory=memory) == meant[number]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(100):
                memory = MessageMemory()
                assert all(threads.map(read, [number for number in range(len(bodies)) for _ in range(4)]))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    "content",
    [
        b'{"messages":[{"a":1},{"b":2}],"messages":[{"a":1}]}',
        b'{"messages":[{"a":1} , {"b":2}\n]\n,"x":[1]}',
        b'{"messages":[{"a":1}]}',
        b'{"messages":[{"a":true}]}',
        b'{"messages":[{"a":1.0}]}',
        b'{"messages":[{"a":1}, 5]}',
        b'{"messages":[]}',
        b'{"messages":{"a":1}}',
        b'{"messages":[{"a":1}],"tools":[{"b":1},{"c":1}]}',
        b'{"tools":[{"b":1}],"messages":[{"a":1}]}',
        b'{"messages":[{"a":1}],"tools":[]}',
        b'{"messages":[{"a":1}],"tools":null}',
        b'{"messages":[{"a":1}],"tools":{"b":1}}',
        b'{"messages":[{"b":1}],"tools":[{"a":1}]}',
        b"{}",
    ],
)
def test_a_body_of_any_form_is_read_as_json(content: bytes) -> None:
    memory = MessageMemory()
    for earlier in (
        b'{"messages":[{"a":1}],"tools":[{"b":1}]}',
        b'{"messages":[{"a":1},{"b":2}]}',
        b'{"messages":[{"b":1}],"tools":[{"c":1}]}',
        content,
    ):
        read_remembered_body(earlier, "openai-chat", memory, 100)
    body = read_remembered_body(content, "openai-chat", memory, 100)
    assert body is None or repr(body) == repr(read_body(content, []))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"messages":[{"a":1}',
        b'{"messages":[{"a":1},]}',
        b'{"messages":[{"a":1} {"b":2}]}',
        b'{"messages":[{"a":1}]}x',
    ],
)
def test_a_broken_body_is_left_to_the_one_who_names_its_fault(content: bytes) -> None:
    memory = MessageMemory()
    read_remembered_body(b'{"messages":[{"a":1}]}', "openai-chat", memory, 100)
    assert read_remembered_body(content, "openai-chat", memory, 100) is None
    with pytest.raises(RequestFailed):
        read_body(content, [])


def test_long_instructions_beside_known_turns_are_no_reason_to_read_all_again() -> None:
    memory = MessageMemory()
    turns = [{"role": "user", "content": "x" * 3000}] * 12
    rest = {"system": "s" * 3000, "tools": [messages_tool(number, {}) for number in range(3)]}
    for messages, most in ((turns, 100_000), ([*turns, {"role": "user", "content": "And?"}], 1000)):
        body = {**rest, "messages": messages}
        assert read_remembered_body(msgspec.json.encode(body), "anthropic-messages", memory, most) == body


def test_the_memory_holds_about_as_much_as_it_says() -> None:
    memory = MessageMemory(8 << 20)

    def run(first: int) -> None:
        for conversation in range(first, first + 6):
            history: list[Json] = [{"role": "user", "content": f"Hi {conversation}"}]
            for number in range(100):
                history += chat_turns(number, f"{conversation} " * 20, "", {})
                content = msgspec.json.encode({"messages": history})
                body = read_remembered_body(content, "openai-chat", memory, len(content))
                engine.decode_request("openai-chat", body or {}, memory=memory)

    run(0)
    tracemalloc.start()
    run(6)  # everything that is kept is new
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 3 * (8 << 20)


@pytest.mark.parametrize("protocol", TURNS)
def test_the_endpoint_gets_the_same_bytes_whatever_went_before(protocol: str, tmp_path: Path) -> None:
    """Each step of a conversation is sent to one gateway, and to a gateway that has seen nothing."""
    steps: list[list[Json]] = []
    path = {"openai-chat": "/v1/chat/completions", "anthropic-messages": "/v1/messages"}[protocol]
    messages: list[Json] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    tools = [TOOL[protocol](number, {"cache_control": {"type": "ephemeral"}, "x": 1}) for number in range(9)]
    for number in range(12):
        messages = [*messages, *TURNS[protocol](number, "Look.", "Hm." if number % 2 else "", {})]
        steps.append([*messages, {"role": "user", "content": "And?"}] if number % 3 == 2 else messages)
    steps += [[*steps[5][:4], *steps[5][6:]], steps[-1]]  # the client edits its history, and goes back

    def sent(groups: list[list[list[Json]]]) -> list[tuple[Json, list[Json]]]:
        out: list[tuple[Json, list[Json]]] = []
        for group in groups:
            upstream = Upstream(say("Yes."))
            with gateway_for(upstream, tmp_path, keys=["the-key-of-the-client"]) as http:
                for history in group:
                    body = {"model": "deepseek/deepseek-v4-pro", "max_tokens": 99, "messages": history, "tools": tools}
                    answer = http.post(path, json=body)
                    assert answer.status_code == 200, answer.text
                    notes = http.get(answer.headers["x-cnllm-notes"].partition("log=")[2]).json()["notes"]
                    assert any(note["code"] == "reasoning-filled" for note in notes)
                    out.append((upstream.bodies[-1], [note for note in notes if note["code"] != "prefix-broken"]))
        return out

    known, chosen = sent([steps]), [1, 6, 11, 12, 13]
    assert [known[number] for number in chosen] == sent([[steps[number]] for number in chosen])


def test_a_responses_client_gets_the_same_whatever_went_before(tmp_path: Path) -> None:
    """Its items are no messages of their own, their names depend on the tools, and an item may add tools."""
    schema: Json = {"type": "object", "properties": {}}
    schema["description"] = "Do it. " * 99  # so that the body is remembered
    tools: list[Json] = [{"type": "function", "name": f"f{n}", "parameters": schema, "x": 1} for n in range(8)]
    inner: Json = {"type": "function", "name": "f0", "parameters": schema, "strict": True}
    tools += [{"type": "namespace", "name": "n", "tools": [inner]}, {"type": "custom", "name": "c"}]
    tools += [{"type": "web_search"}, {"type": "shell"}]
    others: list[Json] = [{**inner, "name": "n__f0"}, *tools]  # has the name that `tools` give to another
    items: list[Json] = [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "x": 1}]}]
    steps: list[tuple[list[Json], list[Json]]] = []
    for number in range(9):
        id, ok = f"call_{number:024}", {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
        call: Json = {"type": "function_call", "name": "f0", "arguments": "{}"}
        output: Json = {"type": "function_call_output", "output": f"r{number}"}
        if number % 2:
            call["namespace"] = "n"
        if number == 4:
            call, output = {"type": "shell_call", "action": {"commands": ["ls"]}}, {"type": "shell_call_output"}
            output["output"] = [ok]
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": "Hm."}]}
        items = [*items, thought, {**call, "call_id": id}]
        steps.append((items, tools))  # its turn is open
        items = [*items, {**output, "call_id": id}]
        if number == 5:
            steps.append((items, others))
        if number == 6:
            items.append({"type": "shell_call_output", "call_id": "of another", "output": [ok]})
        if number == 7:
            items.append({"type": "additional_tools", "tools": [{**inner, "name": "g"}]})
        steps.append((items, tools))
    steps += [([*items[:4], *items[7:]], tools), steps[7]]

    def sent(groups: list[list[tuple[list[Json], list[Json]]]]) -> list[Any]:
        out: list[Any] = []
        for group in groups:
            upstream = Upstream(say("Yes."))
            with gateway_for(upstream, tmp_path, keys=["the-key-of-the-client"]) as http:
                for history, offer in group:
                    body: Json = {"model": "zai/glm-5.3", "instructions": "Be kind.", "store": False}
                    answer = http.post("/v1/responses", json={**body, "input": history, "tools": offer})
                    assert answer.status_code == 200, answer.text
                    notes = http.get(answer.headers["x-cnllm-notes"].partition("log=")[2]).json()["notes"]
                    out.append((upstream.bodies[-1], [note for note in notes if note["code"] != "prefix-broken"]))
        return out

    assert sent([steps]) == sent([[step] for step in steps])


@pytest.mark.parametrize("kind", ["answer", "call"])
def test_thoughts_that_were_given_back_are_given_back_until_another_reply_makes_them_doubtful(
    kind: str, tmp_path: Path
) -> None:
    """Two conversations of a client begin alike; the endpoint thinks something else in the second."""
    history: list[Json] = [{"role": "user", "content": "Hi"}]
    for number in range(4):
        history += chat_turns(number, "Look.", "", {})
    history.append({"role": "user", "content": "And?"})
    id = "call_a1b2c3d4e5f6g7h8i9j0k1"  # of a form that no two calls have
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}

    def reply(thought: str) -> Answer:
        said = call("上海", thought=thought, ids=[id]) if kind == "call" else say("Yes.")
        return said if kind == "call" else Answer([{"reasoning_content": thought}, *said.deltas])

    def ask(messages: list[Json]) -> tuple[Json, list[Any]]:
        body = {"model": "moonshotai-cn/kimi-k3", "max_tokens": 99, "messages": messages, "tools": [weather]}
        answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        turns = upstream.bodies[-1]["messages"]
        thoughts = [turn.get("reasoning_content") for turn in turns if turn["role"] == "assistant"]
        return {key: value for key, value in message.items() if key != "reasoning_content"}, thoughts

    upstream = Upstream(reply("First."), say("A."), say("B."), reply("Second."), say("C."))
    with gateway_for(upstream, tmp_path, "moonshotai-cn", keys=["the-key-of-the-client"]) as http:
        message, _ = ask(history)
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
        turns = [*history, message, *results, {"role": "user", "content": "Go on."}]
        assert [ask(turns)[1][-1] for _ in range(2)] == ["First."] * 2
        ask(history)
        assert ask(turns)[1][-1] not in ("First.", "Second.")


@pytest.mark.parametrize("protocol", TURNS)
def test_a_turn_late_in_a_session_takes_little_more_work_than_an_early_one(protocol: str, tmp_path: Path) -> None:
    """The model thinks before each call, and its thoughts go back: with tokens, and out of the store."""
    names = ModelNames(BUILTIN, {"m": "deepseek/deepseek-v4-pro?protocol=openai-chat"})
    keys, store = Keyring.load(tmp_path / "keys.json"), SyncState(None)
    memory, client = MessageMemory(), Client(BUILTIN, api_key="the-key-of-the-provider")
    body: Json = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}
    if protocol == "anthropic-messages":
        body["system"] = "Be kind."
    body["tools"] = [TOOL[protocol](number, {}) for number in (0, 1, 2, 4, 5, 6, 7, 8, 9)]

    def turn(number: int) -> None:
        content = msgspec.json.encode(body)
        known = read_remembered_body(content, protocol, memory, len(content))
        assert known is not None
        exchange = Exchange(ClientRequest(protocol, known, "", {}, "me", memory=memory), names, keys)
        request = store.run(restored_request(exchange, "me"))
        plan = client.with_memory(memory).plan(exchange.model, request.messages, **request.options)
        thoughts = [turn.get("reasoning_content") for turn in plan.turns if turn["role"] == "assistant"]
        assert thoughts == [f"Hm {earlier}." for earlier in range(number)]
        function = {"name": "f0", "arguments": "{}"}
        call = {"id": f"call_a1b2c3d4e5f6g7h8{number:04}", "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "reasoning_content": f"Hm {number}.", "tool_calls": [call]}
        answer: Json = {"id": "r", "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}
        answer["usage"] = {"prompt_tokens": 5, "completion_tokens": 3}
        reply = engine.parse_response(plan.model, 200, {}, msgspec.json.encode(answer), plan=plan)
        back = msgspec.json.decode(exchange.whole(reply))
        store.run(keep_reply(exchange, reply, "me"))
        if protocol == "openai-chat":
            message = back["choices"][0]["message"]
            message.pop("reasoning_content")
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"}
            body["messages"] += [message, result]
        else:
            id = next(block["id"] for block in back["content"] if block["type"] == "tool_use")
            result = {"type": "tool_result", "tool_use_id": id, "content": "ok"}
            body["messages"] += [
                {"role": "assistant", "content": back["content"]},
                {"role": "user", "content": [result]},
            ]

    def entered(number: int) -> int:
        """How many functions are called for a turn."""
        frames = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal frames
            frames += event == "call"

        sys.setprofile(count)
        try:
            turn(number)
        finally:
            sys.setprofile(None)
        return frames

    counts = [entered(number) for number in range(60)]
    assert counts[59] < 2 * min(counts[20:30])
    assert counts[59] - counts[29] < 30 * 15  # the store is asked for each turn, and nothing else is done again
    assert not store.store.find_turns("me", prefixes=[b""]).by_prefix  # turns with calls are found by these alone


def test_conversations_that_differ_in_a_picture_are_two() -> None:
    def key(**source: Any) -> bytes:
        picture = Media("image/png", source.get("data"), source.get("url"))
        return conversation_key([Message("user", (Text("See"), picture))], Message.assistant("Yes."))

    keys = [key(data="AA=="), key(data="AQ=="), key(url="https://x.test/a"), key(url="https://x.test/b")]
    keys += [
        key(data="AA==", url="https://x.test/c"),
        conversation_key([Message("user", (Text("See"),))], Message.assistant("Yes.")),
    ]
    assert len(set(keys)) == len(keys)
    assert key(data="AA==") == keys[0]


def test_identities_share_no_memory() -> None:
    memories = Memories()
    assert memories.of("a") is memories.of("a")
    assert memories.of("a") is not memories.of("b")
    first = memories.of("a")
    for number in range(100):
        memories.of(str(number))
    assert memories.of("a") is not first
