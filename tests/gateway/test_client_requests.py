"""Every request that a client may send is accepted by every model, refusals of the endpoints included.

The fast test takes models that together have every value of every flag that shapes a request; the long one takes all.
A model that is retired refuses with right.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from examples import SHARE

from cnllm import AsyncClient
from cnllm.gateway import app
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.simulator.transport import AsyncSimTransport

from .client_requests import REQUESTS, ClientRequest, Json

SHAPING = (
    *("protocol", "input", "reasoning", "tool_choice", "tools", "params", "messages", "schema", "stream", "body"),
    "web_search",
)
ENDS = {
    "/v1/messages": "event: message_stop\n",
    "/v1/responses": "event: response.completed\n",
    "/v1/chat/completions": "data: [DONE]\n",
    "/v1beta/models": '"finishReason":"STOP"',
}
"""What the end of a stream says, by the beginning of the path."""
ALLOWED = {"x-cnllm-on-unsupported": "adjust"}
"""What a model cannot read may be left out."""
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
IMAGE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def living_models(registry: Registry) -> list[Model]:
    models = [registry.resolve(name) for name in registry.names()]
    return [m for m in models if m.flags.status is None or m.flags.status.is_ != "retired"]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each flag with its value; of the words of a model nothing counts but whether there are any."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    else:
        yield path, json.dumps(value)[:80]


def distinct_models(registry: Registry) -> list[Model]:
    """Few models that have every value of every flag that shapes a request."""
    values: dict[frozenset[tuple[str, str]], Model] = {}
    for model in living_models(registry):
        flags = msgspec.to_builtins(model.flags)
        flags["simulator"] = {k: v for k, v in (flags.get("simulator") or {}).items() if k != "refusals"}
        shape = {name: flags[name] for name in (*SHAPING, "simulator") if flags.get(name) is not None}
        values.setdefault(frozenset(leaves(shape)), model)
    missing = frozenset().union(*values)
    chosen = []
    while missing:
        best = max(values, key=lambda pairs: len(pairs & missing))
        missing -= best
        chosen.append(values[best])
    return chosen


async def answer(gateway: Any, request: ClientRequest, model: str) -> tuple[int, str]:
    """Status and body of the answer."""
    path, _, query = request.path.replace("MODEL", model).partition("?")
    body = request.body if "MODEL" in request.path else {"model": model, **request.body}
    sent = iter([{"type": "http.request", "body": json.dumps(body).encode()}])
    status, content = 0, b""

    async def receive() -> Any:
        if (message := next(sent, None)) is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    headers = {"host": "127.0.0.1", "content-type": "application/json", **request.headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await gateway(scope, receive, send)
    return status, content.decode()


def fault(request: ClientRequest, status: int, text: str) -> str | None:
    """Why an answer is no answer; None where it is one."""
    if status != 200:
        return f"{status} {text[:400]}"
    if request.streams:
        end = next(end for path, end in ENDS.items() if request.path.startswith(path))
        return None if end in text and '"error":' not in text.replace('"error":null', "") else f"no end: {text[-400:]}"
    body = json.loads(text)
    kinds = ("choices", "output", "content", "candidates", "input_tokens", "totalTokens")
    return None if any(body.get(kind) for kind in kinds) and not body.get("error") else f"empty: {text[:400]}"


def faults(
    registry: Registry, models: Iterable[Model], requests: Sequence[ClientRequest] = REQUESTS, every: int = 1
) -> list[str]:
    """Return the faults in answers of models to requests. One of `every` pairs is tried."""
    pairs = itertools.islice(itertools.product(models, requests), None, None, every)

    async def run() -> list[str]:
        client = AsyncClient(registry, AsyncSimTransport(registry, strict=True), simulate=True)
        gateway = app(registry, client=client, simulate=True, keys=(), store="memory:")
        found = []
        for model, request in pairs:
            request = replace(request, headers={**ALLOWED, **request.headers})
            if (why := fault(request, *await answer(gateway, request, model.name))) is not None:
                found.append(f"{request.name} → {model.name}: {why}")
        await gateway.aclose()
        return found

    return asyncio.run(run())


@pytest.mark.sampled
def test_models_of_every_dialect_accept_every_request() -> None:
    registry = Registry.load()
    models = distinct_models(registry)
    assert len({model.protocol for model in models}) > 1
    assert faults(registry, models, every=1 if SHARE == 1 else 5) == []


IMAGES: dict[str, tuple[Json, str]] = {
    "/v1/chat/completions": (
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE_URL]},
            ]
        },
        "messages[1].content[1]",
    ),
    "/v1/messages": (
        {
            "max_tokens": 9,
            "system": "s",
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": IMAGE}, {"type": "text", "text": "x"}]}
            ],
        },
        "messages[0].content[0]",
    ),
    "/v1/responses": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]},
        "input[0].content[0]",
    ),
    "/v1beta/models/MODEL:generateContent": (
        {"contents": [{"parts": [{"text": "x"}, {"inline_data": {"mime_type": "image/png", "data": "-_8="}}]}]},
        "contents[0].parts[1]",
    ),
}


def test_an_image_for_a_model_that_reads_none_is_refused_by_its_place_and_may_be_left_out(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.toml"
    overlay.write_text("[defaults.call]\non_unsupported = 'adjust'", encoding="utf-8")

    async def run() -> None:
        for registry, works in ((Registry.load(), False), (Registry.load(str(overlay)), True)):
            client = AsyncClient(registry, AsyncSimTransport(registry, strict=True), simulate=True)
            gateway = app(registry, client=client, simulate=True, keys=(), store="memory:")
            for path, (body, place) in IMAGES.items():
                for policy, allows in (("adjust", True), ("error", False), (None, works), ("send", None)):
                    headers = {} if policy is None else {"x-cnllm-on-unsupported": policy}
                    status, text = await answer(gateway, ClientRequest("image", path, body, headers), "zai/glm-4.7")
                    assert status == (200 if allows else 400), (path, policy, text)
                    if allows is False:
                        assert f"{place}: zai/glm-4.7 cannot take this image: the model does not read it" in text
                        assert "x-cnllm-on-unsupported" in text
            await gateway.aclose()

    asyncio.run(run())


def test_an_id_that_looks_like_a_path_is_a_models_name() -> None:
    registry = Registry.load()
    models = [model for model in living_models(registry) if "models/" in model.id]
    assert models
    requests = [
        request for request in REQUESTS if request.name in ("generate: agent", "generate: search", "chat: agent")
    ]
    assert faults(registry, models, requests) == []


def test_a_simulated_model_needs_no_address(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[providers.own]\nprotocol = "openai-chat"\n[models."own/m"]\n')
    registry = Registry.load(str(tmp_path / "own.toml"))
    model = registry.resolve("own/m")
    assert not model.flags.base_url
    assert faults(registry, [model]) == []


@pytest.mark.long
def test_every_model_accepts_every_request() -> None:
    registry = Registry.load()
    assert faults(registry, living_models(registry)) == []


def test_a_refusal_and_a_broken_stream_are_faults() -> None:
    """The check above can fail."""
    registry = Registry.load()

    async def run() -> list[tuple[int, str]]:
        client = AsyncClient(registry, AsyncSimTransport(registry, strict=True), simulate=True)
        gateway = app(registry, client=client, simulate=True, keys=(), store="memory:")
        return [await answer(gateway, request, "zai/glm-4.7") for request in wrong]

    path = "/v1/chat/completions"
    wrong = [
        ClientRequest("a role that nobody knows", path, {"messages": [{"role": "nobody", "content": "x"}]}),
        ClientRequest("no messages", path, {"messages": []}),
    ]
    assert [fault(request, *reply) is not None for request, reply in zip(wrong, asyncio.run(run()), strict=True)] == [
        True,
        True,
    ]
    stream = ClientRequest("cut", path, {"stream": True})
    assert fault(stream, 200, 'data: {"choices":[]}\n\n') is not None
    assert fault(stream, 200, 'data: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n') is not None


def test_nobody_waits_for_a_client_that_has_its_answer() -> None:
    """A server may tell of the client's end long after the answer."""
    body: Json = {"messages": [{"role": "user", "content": "Hi"}]}

    async def run() -> None:
        gateway = app(Registry.load(), simulate=True, keys=(), store="memory:")
        request = ClientRequest("short", "/v1/chat/completions", body)
        before = asyncio.all_tasks()
        status, _ = await answer(gateway, request, "zai/glm-4.7")
        assert status == 200
        await asyncio.sleep(0.06)  # behind the moment from which on a client is watched
        assert asyncio.all_tasks() == before
        await gateway.aclose()

    asyncio.run(run())
