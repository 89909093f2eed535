"""The stub server: one endpoint on loopback, every answer encoded before it is asked for.

The first segment of the path picks the stream: `/<mode><chunks>[t]/v1/…`; with `t` it has no tool call.
  c  16 KB HTTP chunks                              (a buffering proxy, or a burst)
  m  one HTTP chunk per event, in 16 KB writes      (a server that flushes, read late)
  o  one HTTP chunk and one write per event         (a server that flushes, read at once)
How the path ends tells the wire. A chat body without "stream":true is answered with plain JSON. Its one line on
stdout is its port.
"""

import asyncio
import os
import re
import sys
from functools import cache
from typing import cast

import uvloop

from benchmarks import payloads
from benchmarks.wire_payloads import PATHS

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_SEGMENT = re.compile(rb"/([cmo])(\d+)(t?)/")
_OK = b"HTTP/1.1 200 OK\r\nserver: stub\r\ncontent-type: "
_SSE = _OK + b"text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def _pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 16384] for i in range(0, len(data), 16384)]


@cache
def streamed(mode: bytes, n: int, tool: bool, wire: str) -> list[bytes]:
    """Return the writes that make up one streamed answer."""
    chat = wire == "openai-chat"
    events = payloads.events(n, tool) if chat else payloads.Setting(0, mode.decode(), n, wire).events()
    parts = [b"%x\r\n%b\r\n" % (len(p), p) for p in (_pieces(b"".join(events)) if mode == b"c" else events)]
    parts = [_SSE + parts[0], *parts[1:], b"0\r\n\r\n"]
    return _pieces(b"".join(parts)) if mode == b"m" else parts


@cache
def plain() -> bytes:
    return _OK + b"application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(payloads.full()), payloads.full())


class Stub(asyncio.Protocol):
    """One connection, kept alive; requests are answered one after another."""

    def __init__(self) -> None:
        self.buffer = b""
        self.todo: list[bytes] = []  # what is still to be written, last first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

    def connection_lost(self, exc: Exception | None) -> None:
        self.todo = []

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while not self.todo and (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head, length = self.buffer[:end], _LENGTH.search(self.buffer[:end])
            need = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < need:
                return
            body, self.buffer = self.buffer[end + 4 : need], self.buffer[need:]
            found = _SEGMENT.search(head)
            path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
            wire = next((wire for wire, end in PATHS.items() if path.endswith(end)), "openai-chat")
            if found and (wire != "openai-chat" or _STREAM.search(body)):
                self.todo = streamed(found[1], int(found[2]), not found[3], wire)[::-1]
                self._pump()
            else:
                self.transport.write(plain())

    def _pump(self) -> None:
        if self.todo:
            self.transport.write(self.todo.pop())
            if self.todo:
                asyncio.get_running_loop().call_soon(self._pump)
            else:
                self.data_received(b"")


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(main())
