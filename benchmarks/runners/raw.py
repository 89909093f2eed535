"""The limit: plain sockets, HTTP in the form that the stub writes, orjson; no TLS, no checks, no retry."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import orjson

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.by_hand import Collected


def _request(setting: Setting, stream: bool) -> bytes:
    body: bytes = orjson.dumps(payloads.body(stream))
    path = setting.base_url.partition(str(setting.port))[2] + "/chat/completions"
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{setting.port}\r\nauthorization: Bearer {payloads.KEY}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _connect(setting: Setting) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", setting.port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Dechunk:
    """Takes the chunks of a body apart; done with the last."""

    __slots__ = ("collected", "done", "head", "left", "rest")

    def __init__(self) -> None:
        self.rest, self.left, self.head, self.done = b"", 0, True, False
        self.collected = Collected()

    def feed(self, data: bytes) -> None:
        data = self.rest + data if self.rest else data
        at, size, left = 0, len(data), self.left
        if self.head:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self.rest = data
                return
            self.head = False
        found: list[bytes] = []
        while at < size:
            if left > 2:  # of the chunk; 2 is the line end after it
                take = min(left - 2, size - at)
                found.append(data[at : at + take])
            elif left:
                take = min(left, size - at)
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    break
                left, at = int(data[at:end], 16) + 2, end + 2
                if left == 2:
                    self.done = True
                    break
                continue
            at += take
            left -= take
        self.left, self.rest = left, data[at:]
        self.collected.feed(b"".join(found))


def call(setting: Setting) -> Callable[[], Got]:
    plug = _connect(setting)

    def one() -> Got:
        plug.sendall(_request(setting, False))
        data = plug.recv(65536)
        end = data.index(b"\r\n\r\n")
        at = data.index(b"content-length: ") + 16
        need = end + 4 + int(data[at : data.index(b"\r", at)])
        while len(data) < need:
            data += plug.recv(65536)
        message = orjson.loads(data[end + 4 :])["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one


def stream(setting: Setting) -> Callable[[], Got]:
    plug = _connect(setting)

    def one() -> Got:
        plug.sendall(_request(setting, True))
        read = Dechunk()
        while not read.done:
            read.feed(plug.recv(65536))
        return read.collected.got()

    return one


class _Plug(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> asyncio.Future[Got]:
        self.read, self.found = Dechunk(), asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.found

    def data_received(self, data: bytes) -> None:
        self.read.feed(data)
        if self.read.done:
            self.found.set_result(self.read.collected.got())


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    idle: list[_Plug] = []

    async def one() -> Got:
        if idle:
            plug = idle.pop()
        else:
            _, plug = await asyncio.get_running_loop().create_connection(_Plug, "127.0.0.1", setting.port)
        got = await plug.ask(_request(setting, True))
        idle.append(plug)
        return got

    return one
