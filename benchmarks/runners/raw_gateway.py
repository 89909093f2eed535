"""The limit of a gateway: raw asyncio and orjson; a request is parsed and sent on, each answer and chunk encoded anew.

    python -m benchmarks.runners.raw_gateway PORT URL

It listens on PORT, and sends every request to the chat endpoint under URL, over connections that stay open. No key is
looked at, nothing is checked, nothing is kept, and no error is handled.
"""

import asyncio
import re
import sys
from collections import deque
from typing import cast
from urllib.parse import urlsplit

import orjson
import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_NAME = "model"  # the client's name of the model


class Endpoint(asyncio.Protocol):
    """A connection to the endpoint, which serves one request after another."""

    def __init__(self, gateway: "Server") -> None:
        self.gateway = gateway
        self.buffer = b""
        self.client: Client | None = None
        self.is_stream = False
        self.events = b""  # the beginning of an event that is not complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, client: "Client", request: bytes) -> None:
        """Send a request; the answer goes to a client."""
        self.client, self.buffer, self.events, self.is_stream = client, b"", b"", False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.is_stream:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end]
            if (length := _LENGTH.search(head)) is not None:
                if len(self.buffer) >= end + 4 + int(length[1]):
                    self._send_whole(self.buffer[end + 4 :])
                return
            self.is_stream, self.buffer = True, self.buffer[end + 4 :]
            self._write(_EVENTS)
        self._read_chunks()

    def _send_whole(self, body: bytes) -> None:
        answer = orjson.loads(body)
        answer["model"] = _NAME
        content = orjson.dumps(answer)
        self._finish(_JSON % (len(content), content))

    def _read_chunks(self) -> None:
        """Take the HTTP chunks apart, and send their events."""
        start, pieces, is_end = 0, [self.events], False
        while (end := self.buffer.find(b"\r\n", start)) >= 0:
            size = int(self.buffer[start:end], 16)
            if len(self.buffer) < end + 4 + size:
                break
            start = end + 4 + size
            if not size:
                is_end = True
                break
            pieces.append(self.buffer[end + 2 : start - 2])
        self.buffer = self.buffer[start:]
        *events, self.events = b"".join(pieces).split(b"\n\n")
        content = b"".join(map(_event, events))
        out = b"%x\r\n%b\r\n" % (len(content), content) if content else b""
        if is_end:
            self._finish(out + b"0\r\n\r\n")
        elif out:
            self._write(out)

    def _write(self, data: bytes) -> None:
        """Send a part of an answer, unless its client has gone."""
        if self.client is not None and not self.client.transport.is_closing():
            self.client.transport.write(data)

    def _finish(self, data: bytes) -> None:
        client, self.client = self.client, None
        self.gateway.idle.append(self)
        if client is not None and not client.transport.is_closing():
            client.transport.write(data)
            client.is_busy = False
            client.read()


def _event(event: bytes) -> bytes:
    """Parse an event and encode it again."""
    if not event.startswith(b"data: {"):
        return event + b"\n\n"
    chunk = orjson.loads(event[6:])
    chunk["model"] = _NAME
    return b"data: %b\n\n" % orjson.dumps(chunk)


class Client(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, gateway: "Server") -> None:
        self.gateway = gateway
        self.buffer = b""
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.read()

    def read(self) -> None:
        """Send the next request on, if it is complete and the one before it is answered."""
        end = self.buffer.find(b"\r\n\r\n")
        if self.is_busy or end < 0:
            return
        length = _LENGTH.search(self.buffer[:end])
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self.buffer) < size:
            return
        body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
        if not body:  # a program that waits for this gateway to start asks so
            self.transport.write(_JSON % (2, b"{}"))
            return
        request = orjson.loads(body)
        request["model"] = "bench"
        self.is_busy = True
        self.gateway.send(self, orjson.dumps(request))


class Server:
    """The gateway: its idle connections to the endpoint."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = parts.hostname or "", parts.port or 80
        self.head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n".encode()
        self.idle: deque[Endpoint] = deque()
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, client: Client, body: bytes) -> None:
        """Send a body to the endpoint."""
        request = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (self.head, len(body), body)
        if self.idle:
            self.idle.pop().ask(client, request)
            return
        task = asyncio.get_running_loop().create_task(self._connect(client, request))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connect(self, client: Client, request: bytes) -> None:
        _, endpoint = await asyncio.get_running_loop().create_connection(lambda: Endpoint(self), *self.address)
        endpoint.ask(client, request)


async def main(port: int, url: str) -> None:
    """Serve until the process is ended."""
    gateway = Server(url)
    server = await asyncio.get_running_loop().create_server(lambda: Client(gateway), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
