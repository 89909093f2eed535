"""Bodies with one value replaced by an odd one: each is served, or refused with a sentence that names the place."""

from __future__ import annotations

import asyncio
import codecs
import copy
import json
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from cnllm import Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.tokens import Keyring

from .support import Upstream, gateway_for, say

Path = tuple[str | int, ...]
T: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "zai/glm-4.7",
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "r",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "w", "description": "d", "parameters": T, "strict": False}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "w"}},
        "temperature": 0.5,
        "top_p": 1,
        "max_tokens": 10,
        "max_completion_tokens": 20,
        "stop": ["a"],
        "seed": 1,
        "n": 1,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": T, "strict": True}},
        "reasoning_effort": "low",
        "parallel_tool_calls": True,
        "metadata": {"a": "b"},
        "user": "u",
        "logprobs": True,
    },
    "/v1/messages": {
        "model": "zai/glm-4.7",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "t1", "name": "w", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "x"}],
                        "is_error": False,
                    }
                ],
            },
        ],
        "tools": [{"name": "w", "description": "d", "input_schema": T}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "temperature": 1,
        "top_k": 5,
        "stop_sequences": ["a"],
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": T}},
    },
    "/v1/responses": {
        "model": "zai/glm-4.7",
        "instructions": "i",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "hi"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "x"}],
                "encrypted_content": "e",
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "w", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "x"},
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [{"type": "function", "name": "z", "parameters": T}],
            },
        ],
        "tools": [
            {"type": "function", "name": "w", "description": "d", "parameters": T, "strict": False},
            {
                "type": "custom",
                "name": "p",
                "description": "x",
                "format": {"type": "grammar", "syntax": "lark", "definition": "s"},
            },
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "q", "parameters": T}]},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "w"}]},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": T}, "verbosity": "low"},
        "max_output_tokens": 20,
        "temperature": 1,
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "metadata": {"a": "b"},
        "previous_response_id": None,
        "parallel_tool_calls": True,
        "truncation": "auto",
    },
    "/v1beta/models/zai/glm-4.7:generateContent": {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
            {
                "role": "model",
                "parts": [
                    {"text": "t", "thought": True},
                    {"functionCall": {"id": "1", "name": "w", "args": {"a": 1}}, "thoughtSignature": "QUJD"},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "w", "response": {"output": "x"}}}]},
        ],
        "tools": [
            {"functionDeclarations": [{"name": "w", "description": "d", "parametersJsonSchema": T}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["w"]}},
        "generationConfig": {
            "temperature": 1,
            "topP": 1,
            "topK": 3,
            "maxOutputTokens": 10,
            "stopSequences": ["a"],
            "seed": 1,
            "responseMimeType": "application/json",
            "responseSchema": T,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 10},
        },
        "safetySettings": [{"category": "x", "threshold": "y"}],
        "cachedContent": "c",
    },
}

HALF = "half of a pair"  # stands for a lone surrogate, which Python's encoder writes only by hand
ODD: list[Any] = [
    None, 7, -1, 1.5, "", "x", [], {}, [7], {"a": 1}, True, 10**30, [[]], HALF, [None], {"type": 7}, [{"type": "x"}],
]  # fmt: skip
PYTHON = (
    "object is not", "has no attribute", "unexpected keyword", "unhashable", "not subscriptable", "argument of type",
    "not supported between", "list indices", "is not iterable", "not JSON serializable", "Expected `",
)  # fmt: skip
"""Words of Python's own errors, which say nothing of the place."""


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from paths(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from paths(value, (*path, index))


def replaced(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    out = copy.deepcopy(data)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return out


async def answer(app: Gateway, url: str, content: bytes) -> tuple[int, str]:
    requests = [{"type": "http.request", "body": content, "more_body": False}]
    sent: list[Any] = []
    never = asyncio.Event()

    async def receive() -> Any:
        if not requests:
            await never.wait()
        return requests.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"x-api-key", b"k")]
    scope = {"type": "http", "method": "POST", "path": url, "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent).decode()


async def faults(every: int) -> list[str]:
    app = Gateway(Registry.load(), simulate=True, keys=["k"], token_keys=Keyring([bytes(32)]))
    out = []
    number = 0
    for url, body in BODIES.items():
        for path in paths(body):
            for odd in ODD:
                number += 1
                if number % every:
                    continue
                changed = replaced(body, path, odd)
                if isinstance(changed, dict) and "generate" not in url and number % 2:
                    changed = {**changed, "stream": True}
                content = json.dumps(changed).replace(json.dumps(HALF), '"a\\ud800"').encode()
                status, text = await answer(app, url, content)
                if status >= 500 or (status == 400 and any(word in text for word in PYTHON)):
                    out.append(f"{url} {path} = {odd!r}: {status} {text[:200]}")
    assert number > 5000
    return out


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("cnllm.gateway").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("cnllm.gateway").setLevel(logging.NOTSET)


def test_odd_values_are_served_or_refused_with_their_place() -> None:
    assert asyncio.run(faults(every=7)) == []


@pytest.mark.long
def test_every_odd_value_is_served_or_refused_with_its_place() -> None:
    assert asyncio.run(faults(every=1)) == []


def test_half_of_a_character_in_a_body_is_replaced_with_a_note(tmp_path: pathlib.Path) -> None:
    upstream = Upstream(say("Hello."))
    with gateway_for(upstream, tmp_path) as http:
        for url, body in bodies_of("deepseek/deepseek-v4-pro", "x😀HALF y").items():
            content = json.dumps(body).replace("HALF", "\\ud83d \\\\ud83d \\ude00").encode()
            answer = http.post(url, content=content)
            assert answer.status_code == 200, answer.text
            assert upstream.bodies[-1]["messages"][-1]["content"] == "x😀\ufffd \\ud83d \ufffd y"
            log = http.get(f"/v1/requests/{answer.headers['x-request-id']}").json()
            assert "text-mended" in [note["code"] for note in log["notes"]]
            marked = http.post(url, content=codecs.BOM_UTF8 + content)
            assert marked.status_code == 200, marked.text
            assert upstream.bodies[-1] == upstream.bodies[-2]
        assert http.post("/v1/chat/completions", content=b'{"model":"\\ud83d"').status_code == 400


def bodies_of(model: str, text: str) -> dict[str, Any]:
    turns = [{"role": "user", "content": text}]
    return {
        "/v1/chat/completions": {"model": model, "messages": turns},
        "/v1/messages": {"model": model, "messages": turns, "max_tokens": 100},
        "/v1/responses": {"model": model, "input": text},
        f"/v1beta/models/{model}:generateContent": {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    }
