"""A patch through the gateway: what the client reads on its own wire, when the model's first patch is wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from client.peer import Peer, Script
from client.support import overlay

from cnllm import AsyncClient, Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running
from cnllm.types.policy import Retry

from .support import BAD, BAD_LINES, GOOD, GOOD_LINES, LINES, PATCH, PLACE, WORSE, flat, gives, nested, patching

KEY = "the-key-of-the-client"
PRICE = 'price = { currency = "USD", input = 1e6, output = 1e6 }'


@contextlib.contextmanager
def serving(folder: Path, *scripts: Script, flags: str = PRICE) -> Iterator[tuple[httpx.Client, Peer]]:
    with Peer(*scripts) as peer:
        registry = Registry.load(overlay(folder, peer.url, flags))
        client = AsyncClient(registry, api_key="sk-of-the-provider", retry=Retry(attempts=1))
        with (
            running(Gateway(registry, client=client, keys=[KEY])) as url,
            httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as http,
        ):
            yield http, peer


def frames(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def responses_body(stream: bool, format: Any) -> dict[str, Any]:
    """A request as Codex writes it."""
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    tools = [flat(format)]
    return {"model": "home/m", "stream": stream, "store": False, "input": [user], "tools": tools, "tool_choice": "auto"}


def verb(stream: bool) -> str:
    return "stream" if stream else "call"


@pytest.mark.parametrize("stream", [True, False])
def test_codex_reads_the_second_patch_alone(tmp_path: Path, stream: bool) -> None:
    first = gives(verb(stream), patching(BAD), text="I edit it.")
    with serving(tmp_path, [first], [gives("call", patching(GOOD, "c2"))]) as (http, peer):
        response = http.post("/v1/responses", json=responses_body(stream, PATCH))
        notes = http.get(f"/v1/requests/{response.headers['x-request-id']}").json()
        sent = [received.json() for received in peer.received]
    assert PLACE in sent[1]["messages"][-1]["content"]
    assert "x = 1" not in response.text
    if stream:
        events = frames(response)
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        deltas = [e for e in events if e["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(e["delta"] for e in deltas) == GOOD
        [done] = [e for e in events if e["type"] == "response.custom_tool_call_input.done"]
        assert done["input"] == GOOD
        assert [e["type"] for e in events][-1] == "response.completed"
        body = events[-1]["response"]
        items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert items == body["output"]
    else:
        body = response.json()
    message, call = body["output"]
    assert (message["type"], message["content"][0]["text"]) == ("message", "I edit it.")
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", GOOD)
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (6, 8)
    assert "input-corrected" in json.dumps(notes)


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_client_reads_a_custom_call(tmp_path: Path, stream: bool) -> None:
    body = {"model": "home/m", "stream": stream, "messages": [{"role": "user", "content": "Go."}]}
    body |= (
        {"tools": [nested(LINES)], "stream_options": {"include_usage": True}} if stream else {"tools": [nested(LINES)]}
    )
    script = [[gives(verb(stream), patching(BAD_LINES))], [gives("call", patching(GOOD_LINES, "c2"))]]
    with serving(tmp_path, *script) as (http, _):
        response = http.post("/v1/chat/completions", json=body)
    assert "x = 1" not in response.text
    if stream:
        chunks = frames(response)
        calls = [c for chunk in chunks for choice in chunk["choices"] for c in choice["delta"].get("tool_calls", ())]
        assert (calls[0]["type"], calls[0]["custom"]["name"]) == ("custom", "apply_patch")
        assert "".join(call["custom"]["input"] for call in calls) == GOOD_LINES
        usage = chunks[-1]["usage"]
    else:
        [call] = response.json()["choices"][0]["message"]["tool_calls"]
        assert (call["type"], call["custom"]) == ("custom", {"name": "apply_patch", "input": GOOD_LINES})
        usage = response.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 8)


@pytest.mark.parametrize("stream", [True, False])
def test_a_second_wrong_patch_reaches_the_client(tmp_path: Path, stream: bool) -> None:
    script = [[gives(verb(stream), patching(BAD_LINES))], [gives("call", patching(WORSE, "c2"))]]
    with serving(tmp_path, *script) as (http, peer):
        response = http.post("/v1/responses", json=responses_body(stream, LINES))
        notes = http.get(f"/v1/requests/{response.headers['x-request-id']}").json()
        assert len(peer.received) == 2
    body = frames(response)[-1]["response"] if stream else response.json()
    assert [item["input"] for item in body["output"]] == [WORSE]
    assert "input-invalid" in json.dumps(notes)
