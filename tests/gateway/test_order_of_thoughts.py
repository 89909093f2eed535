"""Reasoning that goes to a client beside a call comes back in the order in which the model wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import Registry
from cnllm.gateway.store.memory import MemoryStore
from cnllm.sdk import http_client

Json = dict[str, Any]
THINKING = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
TEXT = {"type": "text", "text": "I look it up."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "rain"}}
USER = {"role": "user", "parts": [{"text": "Rain?"}]}
TOOLS = [{"functionDeclarations": [{"name": "search", "parameters": {"type": "object"}}]}]


@pytest.mark.parametrize("shown", [False, True])
def test_thinking_stands_before_the_text_of_its_turn(shown: bool, tmp_path: Path) -> None:
    overlay = tmp_path / "own.toml"
    overlay.write_text(
        '[providers.own]\nprotocol = "anthropic-messages"\nbase_url = "http://127.0.0.1:9/own"\nkeys = []\n'
    )
    bodies: list[Json] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
        usage = {"input_tokens": 3, "output_tokens": 2}
        return httpx.Response(200, json={**reply, "content": [THINKING, TEXT, CALL], "usage": usage})

    transport = httpx.MockTransport(answer)
    http = http_client(Registry.load(overlay), transport=transport, store=MemoryStore(), family="httpx")
    url = "http://cnllm.invalid/v1beta/models/own/m:generateContent"
    config = {"thinkingConfig": {"includeThoughts": shown}}
    asked: Json = {"contents": [USER], "tools": TOOLS, "generationConfig": config}
    content = http.post(url, json=asked).json()["candidates"][0]["content"]
    called = next(part["functionCall"] for part in content["parts"] if "functionCall" in part)
    result = {"functionResponse": {"id": called["id"], "name": "search", "response": {"output": "It rains."}}}
    asked["contents"] += [content, {"role": "user", "parts": [result]}]
    http.post(url, json=asked)
    sent = next(turn["content"] for turn in bodies[-1]["messages"] if turn["role"] == "assistant")
    assert [block["type"] for block in sent] == ["thinking", "text", "tool_use"]
    assert sent[0] == THINKING


# ── reasoning between and behind calls ────────────────────────────────────────


def items(order: str) -> list[Json]:
    """The items of a reply of Responses: a thought for each t, a call for each c."""
    out: list[Json] = []
    for number, kind in enumerate(order):
        if kind == "t":
            summary = [{"type": "summary_text", "text": f"Thought {number}."}]
            out.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "e"})
        else:
            call = {"call_id": f"call_{number}", "name": "search", "arguments": f'{{"q":"{number}"}}'}
            out.append({"type": "function_call", "id": f"fc_{number}", "status": "completed", **call})
    return out


def stream_of(output: list[Json]) -> bytes:
    """A stream of these items."""
    events: list[Json] = []
    for index, item in enumerate(output):
        event = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "reasoning":
            added, text = {**item, "summary": []}, item["summary"][0]["text"]
            piece = {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": text}
        else:
            added = {**item, "arguments": "", "status": "in_progress"}
            piece = {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
        events += [{"type": "response.output_item.added", "output_index": index, "item": added}, {**event, **piece}]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": output}
    events.append({"type": "response.completed", "response": response})
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def second_request(folder: Path, wire: str, reply: Json | bytes, ask: Any, flags: str = "") -> Json:
    """What the endpoint gets when a client asks again. `ask` sends a request by (client, what it got at first)."""
    overlay = folder / "own.toml"
    head = f'[providers.own]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9/own"\nkeys = []\n'
    overlay.write_text(head + flags)
    bodies: list[Json] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, content=reply) if isinstance(reply, bytes) else httpx.Response(200, json=reply)

    transport = httpx.MockTransport(answer)
    http = http_client(Registry.load(overlay), transport=transport, store=MemoryStore(), family="httpx")
    ask(http, ask(http, None))
    return bodies[-1]


def as_gemini_cli(http: httpx.Client, got: httpx.Response | None) -> httpx.Response:
    """Stream as a client of Gemini that keeps no thoughts."""
    asked: Json = {"contents": [USER], "tools": TOOLS}
    if got is not None:
        frames = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: ")]
        parts = [part for frame in frames for part in frame["candidates"][0]["content"].get("parts", ())]
        calls = [part for part in parts if "functionCall" in part]
        results = [
            {"functionResponse": {"id": c["functionCall"]["id"], "name": "search", "response": {"output": "ok"}}}
            for c in calls
        ]
        asked["contents"] += [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    return http.post("http://cnllm.invalid/v1beta/models/own/m:streamGenerateContent?alt=sse", json=asked)


@pytest.mark.parametrize(("order", "sent"), [("tctc", "tctc"), ("tcct", "tcc"), ("ct", "c")])
def test_a_thought_goes_back_before_the_call_that_it_led_to(order: str, sent: str, tmp_path: Path) -> None:
    output = items(order)
    body = second_request(tmp_path, "openai-responses", stream_of(output), as_gemini_cli)
    again = [item for item in body["input"] if item["type"] in ("reasoning", "function_call")]
    assert "".join("t" if item["type"] == "reasoning" else "c" for item in again) == sent
    assert [item["id"] for item in again if item["type"] == "reasoning"] == [
        item["id"] for item in output[: len(sent)] if item["type"] == "reasoning"
    ]


def content(order: str) -> list[Json]:
    """The content of a reply of Messages: a block of thinking for each t, a call for each c."""
    thinking = [
        {**THINKING, "thinking": f"Thought {number}.", "signature": f"s{number}="} for number in range(len(order))
    ]
    calls = [{**CALL, "id": f"toolu_{number}", "input": {"q": str(number)}} for number in range(len(order))]
    return [thinking[number] if kind == "t" else calls[number] for number, kind in enumerate(order)]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("order", ["tctc", "tct", "ct", "cct"])
def test_the_store_knows_the_calls_between_thoughts(order: str, keeps: bool, tmp_path: Path) -> None:
    """Claude refuses a turn whose blocks of thinking were moved."""
    blocks = content(order)
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    reply = {**head, "content": blocks, "usage": {"input_tokens": 3, "output_tokens": 2}}

    def ask(http: httpx.Client, got: httpx.Response | None) -> httpx.Response:
        tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
        asked: Json = {"model": "own/m", "messages": [{"role": "user", "content": "Rain?"}], "tools": [tool]}
        if got is not None:
            message = got.json()["choices"][0]["message"]
            message = message if keeps else {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]}
            asked["messages"].append(message)
            for call in message["tool_calls"]:
                asked["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
        return http.post("http://cnllm.invalid/v1/chat/completions", json=asked)

    body = second_request(tmp_path, "anthropic-messages", reply, ask)
    sent = next(turn["content"] for turn in body["messages"] if turn["role"] == "assistant")
    assert [{**block, "id": None} for block in sent] == [{**block, "id": None} for block in blocks]


def test_a_call_that_the_client_dropped_moves_no_other_one(tmp_path: Path) -> None:
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}

    def ask(http: httpx.Client, got: httpx.Response | None) -> httpx.Response:
        tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
        asked: Json = {"model": "own/m", "messages": [{"role": "user", "content": "Rain?"}], "tools": [tool]}
        if got is not None:
            calls = got.json()["choices"][0]["message"]["tool_calls"][1:]
            asked["messages"].append({"role": "assistant", "content": None, "tool_calls": calls})
            asked["messages"] += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
        return http.post("http://cnllm.invalid/v1/chat/completions", json=asked)

    body = second_request(tmp_path, "anthropic-messages", {**reply, "content": content("ctc")}, ask)
    sent = next(turn["content"] for turn in body["messages"] if turn["role"] == "assistant")
    assert [(block["type"], block.get("input")) for block in sent] == [("thinking", None), ("tool_use", {"q": "2"})]


# ── what comes behind the call that it stands before ──────────────────────────

DETAILS = """reasoning.fields = ["reasoning", "reasoning_details"]
reasoning.replay = "always"
reasoning.replay_as = "details"
reasoning.replay_field = "reasoning_details"
"""


def blocks_of(text: str) -> list[Json]:
    """The blocks of a stream of Messages."""
    blocks: list[Json] = []
    for event in [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if "partial_json" in delta:
                blocks[-1]["input"] = {**blocks[-1]["input"], **json.loads(delta["partial_json"] or "{}")}
            for key in delta.keys() & {"thinking", "text", "signature"}:
                blocks[-1][key] = blocks[-1].get(key, "") + delta[key]
    return blocks


def test_a_signature_that_comes_behind_the_call_goes_back_with_its_thought(tmp_path: Path) -> None:
    thought: Json = {"type": "reasoning.text", "text": "Let me see.", "index": 0}
    signature: Json = {"type": "reasoning.text", "signature": "c2ln", "index": 0}
    called = {"index": 0, "id": "call_a1b2c3d4e5f6", "function": {"name": "search", "arguments": '{"q":"rain"}'}}
    deltas: list[Json] = [
        {"reasoning": "Let me see.", "reasoning_details": [thought]},
        {"tool_calls": [{"type": "function", **called}]},
        {"reasoning_details": [signature]},
    ]
    choices: list[Json] = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks = [json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode() for choice in choices]

    def ask(http: httpx.Client, got: httpx.Response | None) -> httpx.Response:
        tool = {"name": "search", "input_schema": {"type": "object"}}
        asked: Json = {"model": "own/m", "max_tokens": 99, "tools": [tool], "stream": True}
        asked["messages"] = [{"role": "user", "content": "Rain?"}]
        if got is not None:
            blocks = blocks_of(got.text)
            assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
                for block in blocks
                if block["type"] == "tool_use"
            ]
            asked["messages"] += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        return http.post("http://cnllm.invalid/v1/messages", json=asked)

    reply = b"".join(b"data: %b\n\n" % chunk for chunk in [*chunks, b"[DONE]"])
    body = second_request(tmp_path, "openai-chat", reply, ask, DETAILS)
    (turn,) = [turn for turn in body["messages"] if turn["role"] == "assistant"]
    assert turn["reasoning_details"] == [thought, signature]
