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
