"""Batches without a server: the transport that replaces the network has the same interfaces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.simulator import AsyncSimTransport, SimTransport

from .support import KEY, Json


@dataclass(frozen=True)
class Plan:
    """As much of a plan as a transport looks at."""

    model: Model
    url: str
    method: str = "GET"
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: KEY)


def run(plans: list[Plan], transport: SimTransport) -> list[Json]:
    """The bodies of the answers."""
    return [json.loads(b"".join(transport.send(plan)[2])) for plan in plans]


@pytest.mark.parametrize(
    ("name", "wire", "base"),
    [
        ("anthropic/claude-haiku-4-5", None, "https://api.anthropic.com"),
        ("anthropic/claude-haiku-4-5", None, "http://127.0.0.1:1/some/proxy"),
        ("google/gemini-3.8-flash", "gemini", "https://generativelanguage.googleapis.com/v1beta"),
    ],
)
def test_a_job_in_memory_at_any_base_url(registry: Registry, name: str, wire: str | None, base: str) -> None:
    model = registry.resolve(name, protocol=wire)
    transport = SimTransport(registry)
    if wire is None:
        params = {"model": model.id, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        body: Json = {"requests": [{"custom_id": "a", "params": params}]}
        url = f"{base}/v1/messages/batches"
    else:
        request = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        body = {"batch": {"inputConfig": {"requests": {"requests": [{"request": request, "metadata": {"key": "a"}}]}}}}
        url = f"{base}/models/{model.id}:batchGenerateContent"
    [job] = run([Plan(model, url, "POST", msgspec.json.encode(body))], transport)
    poll = f"{base}/{job['name']}" if wire else f"{url}/{job['id']}"
    _, over = run([Plan(model, poll), Plan(model, poll)], transport)
    if wire:
        assert over["metadata"]["output"]["inlinedResponses"]["inlinedResponses"][0]["metadata"] == {"key": "a"}
    else:
        assert over["results_url"] == f"{url}/{job['id']}/results"
        [result] = run([Plan(model, f"{poll}/results")], transport)
        assert result["result"]["type"] == "succeeded"


def test_the_async_transport_serves_batches(registry: Registry) -> None:
    model = registry.resolve("openai/gpt-5.4-mini")
    plan = Plan(model, "https://api.openai.com/v1/batches")

    async def send() -> Json:
        _, _, pieces = await AsyncSimTransport(registry).send(plan)
        body: Json = json.loads(b"".join([piece async for piece in pieces]))
        return body

    assert asyncio.run(send())["data"] == []


def test_calls_are_no_steps(registry: Registry) -> None:
    model = registry.resolve("openai/gpt-5.4-mini")
    content = msgspec.json.encode({"model": model.id, "messages": [{"role": "user", "content": "hi"}]})
    plan = Plan(model, "https://api.openai.com/v1/chat/completions", "POST", content)
    [answer] = run([plan], SimTransport(registry))
    assert answer["object"] == "chat.completion"
