"""The yardstick: httpx and orjson by hand, with an own line splitting; no retry, no checks, no types."""

from collections.abc import Awaitable, Callable
from functools import cache

import httpx
import orjson

from benchmarks import payloads
from benchmarks.payloads import Got, Setting

_HEADERS = {"authorization": f"Bearer {payloads.KEY}", "content-type": "application/json"}


class Collected:
    """Bytes in, text out: the least that a client must do with a stream."""

    __slots__ = ("arguments", "reasoning", "rest", "text")

    def __init__(self) -> None:
        self.rest = b""
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.arguments: list[str] = []

    def feed(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                for choice in orjson.loads(line[6:])["choices"]:
                    delta = choice["delta"]
                    if found := delta.get("reasoning_content"):
                        self.reasoning.append(found)
                    if found := delta.get("content"):
                        self.text.append(found)
                    if found := delta.get("tool_calls"):
                        self.arguments.append(found[0]["function"]["arguments"])

    def got(self) -> Got:
        reasoning, text = "".join(self.reasoning), "".join(self.text)
        return Got(len(reasoning), len(text), orjson.loads("".join(self.arguments)))


@cache
def _client() -> httpx.Client:
    return httpx.Client(headers=_HEADERS, timeout=60)


@cache
def _async_client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    return httpx.AsyncClient(headers=_HEADERS, timeout=60, limits=limits)


def call(setting: Setting) -> Callable[[], Got]:
    client, url = _client(), setting.base_url + "/chat/completions"

    def one() -> Got:
        answer = client.post(url, content=orjson.dumps(payloads.body(False)))
        message = orjson.loads(answer.content)["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one


def acall(setting: Setting) -> Callable[[], Awaitable[Got]]:
    client, url = _async_client(), setting.base_url + "/chat/completions"

    async def one() -> Got:
        answer = await client.post(url, content=orjson.dumps(payloads.body(False)))
        message = orjson.loads(answer.content)["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one


def stream(setting: Setting) -> Callable[[], Got]:
    client, url = _client(), setting.base_url + "/chat/completions"

    def one() -> Got:
        collected = Collected()
        with client.stream("POST", url, content=orjson.dumps(payloads.body(True))) as response:
            for data in response.iter_bytes():
                collected.feed(data)
        return collected.got()

    return one


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    client, url = _async_client(), setting.base_url + "/chat/completions"

    async def one() -> Got:
        collected = Collected()
        async with client.stream("POST", url, content=orjson.dumps(payloads.body(True))) as response:
            async for data in response.aiter_bytes():
                collected.feed(data)
        return collected.got()

    return one
