"""The transports: status, headers, pieces, pace."""

import asyncio
import json

import pytest
from cases import each

from cnllm import Client, EndpointError
from cnllm.simulator import AsyncSimTransport, SimTransport

from .support import KEY, REGISTRY, Plan, ask


def plan(stream: bool = False, content: bytes | None = None) -> Plan:
    body = json.dumps({"model": "m", "stream": stream, **ask("hi")}).encode()
    return Plan(model=REGISTRY.resolve("plain/m"), content=body if content is None else content, headers=KEY)


def test_a_whole_answer() -> None:
    status, headers, pieces = SimTransport(REGISTRY).send(plan())
    assert (status, headers["content-type"], headers["x-cnllm-simulated"]) == (200, "application/json", "1")
    assert json.loads(b"".join(pieces))["object"] == "chat.completion"


def test_a_stream_comes_one_event_a_piece() -> None:
    status, headers, pieces = SimTransport(REGISTRY).send(plan(stream=True))
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    received = list(pieces)
    assert all(p.endswith(b"\n\n") and p.count(b"\n\n") == 1 for p in received)
    assert received[-1] == b"data: [DONE]\n\n"


@each("content", [b"", b"{", b"\xff", b"[]", b'"x"', b"\xef\xbb\xbf{}"])
def test_bytes_that_are_no_json_object(content: bytes) -> None:
    status, headers, pieces = SimTransport(REGISTRY).send(plan(content=content))
    assert (status, headers["content-type"]) == (400, "application/json")
    assert json.loads(b"".join(pieces))["error"]["type"] == "invalid_request_error"


def test_the_same_awaited() -> None:
    async def received() -> tuple[int, dict[str, str], list[bytes]]:
        status, headers, pieces = await AsyncSimTransport(REGISTRY).send(plan(stream=True))
        return status, headers, [piece async for piece in pieces]

    status, headers, pieces = SimTransport(REGISTRY).send(plan(stream=True))
    assert asyncio.run(received()) == (status, headers, list(pieces))


@pytest.mark.parametrize(
    ("name", "near"),
    [("zai/glm-4.77", "zai/glm-4.7"), ("deepseek/deepsek-flash", "deepseek/deepseek-flash")],
)
def test_a_client_refuses_an_id_that_no_list_has_and_names_a_similar_one(name: str, near: str) -> None:
    with Client(simulate=True) as client, pytest.raises(EndpointError) as caught:
        client.call(name, "hi")
    assert caught.value.status == 404
    assert f"did you mean {near}?" in str(caught.value.hint)
    assert f"did you mean {near}?" in client.plan(name, "hi").notes[0].did


def test_an_endpoint_without_a_list_takes_any_id() -> None:
    with Client(simulate=True) as client:
        model = client.registry.resolve("openai-compatible/any", base_url="http://127.0.0.1:9/v1")
        assert client.call(model, "hi").text
