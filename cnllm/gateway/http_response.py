"""Send the response to one HTTP request: whole, or as a stream with signs of life, or a failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.gateway.exchange import Exchange, error_body
from cnllm.gateway.failures import Failure, failure_headers
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.request_body import RequestBody, ends_connection
from cnllm.gateway.service import Headers, Send

__all__ = ["JSON", "HttpResponse"]

_LONGEST_MESSAGE = 4096  # characters
_BREAK_SECONDS = 0.5  # for the last piece of a response that breaks off

JSON = (b"content-type", b"application/json")
"""The header of a body in JSON."""

_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_STREAM = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_FRAME, _FRAME_END = b"data: ", b"\n\n"


class JsonArray:
    """The frames of a stream as the objects of one JSON array, for clients that read no server-sent events."""

    def __init__(self) -> None:
        self._before = b"["

    def add(self, frames: bytes) -> bytes:
        """Return frames as objects. Other bytes, which are signs of life, stay as they are: blanks."""
        if not frames.startswith(_FRAME):
            return frames
        objects = frames[len(_FRAME) :].removesuffix(_FRAME_END).replace(_FRAME_END + _FRAME, b"\n,\n")
        out, self._before = self._before + objects, b"\n,\n"
        return out


class HttpResponse:
    """The response to one request with these headers and this body. What it sends stands in the request's entry."""

    def __init__(self, send: Send, entry: Entry, headers: Mapping[str, str], body: RequestBody) -> None:
        self._send = send
        self._entry = entry
        self._headers = headers
        self._body = body
        self.is_started = False
        """Whether the status is sent."""
        self.is_stream = False
        """Whether a stream has begun."""
        self.is_complete = False
        """Whether the last byte is sent."""
        self.array: JsonArray | None = None
        """The form of a stream for a client that asks for no server-sent events."""
        self._has_ended = False  # the last piece of a stream is sent
        self._writing = asyncio.Lock()  # one piece after the other: events and signs of life
        self._sign: asyncio.Future[None] | None = None  # held, so that it is not collected while it runs
        self._exchange: Exchange | None = None  # of a stream
        self._active = 0.0  # when the last event was sent
        self._alarm: asyncio.TimerHandle | None = None

    # ── a stream ─────────────────────────────────────────────────────────────

    def watch_silence(self, exchange: Exchange, ping: float, patience: float, give_up: Callable[[], None]) -> None:
        """Send a sign of life after each `ping` seconds without an event, until `end_watch`.

        `give_up` is called where the client takes nothing for `patience` seconds.
        """
        loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._active = loop.time()
        self._alarm = loop.call_later(ping, self._look, exchange, ping, patience, give_up)

    def end_watch(self) -> None:
        """End what `watch_silence` began."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None  # it holds the request, which holds this response

    def _look(self, exchange: Exchange, ping: float, patience: float, give_up: Callable[[], None]) -> None:
        """Look for silence, and look again later."""
        loop, wait = asyncio.get_running_loop(), ping
        if self._writing.locked():  # the client takes nothing: neither a piece of its reply nor a sign of life
            if loop.time() - self._active > patience:
                give_up()
        elif (rest := self._active + ping - loop.time()) > 0:
            wait = rest
        else:
            self._sign = asyncio.ensure_future(self._write(exchange, exchange.ping))
        self._alarm = loop.call_later(wait, self._look, exchange, ping, patience, give_up)

    async def write(self, exchange: Exchange, data: bytes, *, more: bool = True) -> None:
        """Send a piece of a stream, and its head before the first."""
        await self._write(exchange, data, more=more)
        self._active = asyncio.get_running_loop().time()

    async def _write(self, exchange: Exchange, data: bytes, *, more: bool = True) -> None:
        await self._writing.acquire()
        try:
            if self._has_ended:  # a sign of life that waited for the last piece
                return
            self._has_ended = not more
            if not self.is_stream:
                self.is_stream = True
                self._entry.notes = exchange.notes
                data = exchange.begin() + data
                await self._send_head(200, [_EVENTS if self.array is None else JSON, *_STREAM])
            if self.array is not None:
                data = self.array.add(data) + (b"" if more else b"]")
            await self._send_piece(data, more=more)
        finally:
            self._writing.release()

    # ── a whole response ─────────────────────────────────────────────────────

    async def fail(self, failure: Failure, exchange: Exchange | None = None) -> None:
        """Answer with a failure: as a response of its own, or as the last event of the stream that has begun."""
        if len(failure.message) > _LONGEST_MESSAGE:  # it quotes what a client or an endpoint sent
            failure = replace(failure, message=f"{failure.message[:_LONGEST_MESSAGE]}…")
        self._entry.outcome = failure.message
        if self.is_stream and exchange is not None:
            await self._write(exchange, exchange.failed(failure), more=False)
            return
        headers: Headers = [JSON, *failure_headers(failure)]
        await self.send(failure.status, error_body(self._body.protocol, failure), headers)

    async def break_off(self, failure: Failure) -> None:
        """Answer with a failure in the middle of a request, unless a whole response has begun or nobody reads it."""
        if self.is_started and not self.is_stream:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_BREAK_SECONDS):
                await self.fail(failure, self._exchange)

    async def send_json(self, data: Any) -> None:
        """Send a value as JSON."""
        await self.send(200, msgspec.json.encode(data), [JSON])

    async def send(self, status: int, content: bytes, headers: Headers) -> None:
        """Send a whole response."""
        await self._send_head(status, [*headers, (b"content-length", str(len(content)).encode())])
        await self._send_piece(b"" if self._entry.method == "HEAD" else content, more=False)

    # ── messages of ASGI ─────────────────────────────────────────────────────

    async def _send_head(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""
        self.is_started = True
        entry = self._entry
        entry.status = status
        own: Headers = [(b"x-request-id", id := entry.id.encode()), (b"request-id", id)]
        if entry.model:
            own.append((b"x-cnllm-model", entry.model.encode("ascii", "replace")))
            own.append((b"x-cnllm-notes", b"%d; log=/v1/requests/%s" % (len(entry.notes), id)))
            if entry.upstream_protocol:
                own.append((b"x-cnllm-upstream-protocol", entry.upstream_protocol.encode("ascii", "replace")))
            if "state-unavailable" in [note.code for note in entry.notes]:
                own.append((b"x-cnllm-store", b"failed"))
        if entry.soft_budget:
            own.append((b"x-cnllm-soft-budget", entry.soft_budget.encode("ascii", "replace")))
        if not self._body.is_read and (status == 408 or ends_connection(self._headers)):
            own.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *own]})

    async def _send_piece(self, data: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        if data or not more:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self.is_complete = not more
