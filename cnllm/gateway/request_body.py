"""Read the body of a client's request, within the bounds of its size, its time, and what all clients hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar

from cnllm.gateway.endpoints import NO_WIRE
from cnllm.gateway.exchange import read_body, read_remembered_body
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.service import Receive, Service
from cnllm.protocols import server_api, wire
from cnllm.types import Note
from cnllm.types.checks import short_text
from cnllm.types.message_memory import MessageMemory

__all__ = ["MOST_VALUES", "ClientGone", "RequestBody", "busy_failure", "ends_connection", "in_thread"]

T = TypeVar("T")

MOST_VALUES = 500_000
"""The most values of a body: objects, arrays, and what they hold. A text counts as one, however long it is."""

_SMALL = 256 * 1024  # bytes that are parsed in less than some milliseconds
_FEW = 1000  # commas of a body that is decoded in less than some milliseconds, or turns that are remembered
_REMEMBERED = 4 * 1024  # bytes of a body whose turns and tools are remembered; a shorter one is decoded in less time
_NEW = 16 * 1024  # bytes of new turns or tools on which work does not take long
_SLICE = 64 * 1024  # bytes in which values are counted without giving other threads their turn
_CLOSING = 1024 * 1024  # a longer body that nobody reads ends the connection


class ClientGone(BaseException):
    """The client has closed its connection, or does not read."""


class RequestBody:
    """The body of one request. What it takes of the bytes that all may hold is given back by `release`.

    `protocol` is that of the client, once it is known.
    """

    def __init__(self, service: Service, headers: Mapping[str, str], receive: Receive, client: str) -> None:
        self.size = 0
        self.is_read = False
        self.protocol = NO_WIRE
        self.notes: list[Note] = []  # on changes of the body
        self._is_long = False  # work on it may take long
        self._headers = headers
        self._receive = receive
        self._bounds = service.bounds
        self._held = service.held
        self._threads = service.threads
        self._client = client
        self._is_late = False

    async def json(self, memory: Callable[[], MessageMemory]) -> dict[str, Any]:
        """Return the JSON object. A long one is parsed in a thread, unless the client's memory has most of it.

        Raises as `content` does.
        """
        content = await self.content(self._bounds.body_bytes)
        protocol, cache = self.protocol, None
        if _REMEMBERED <= len(content) <= MOST_VALUES:
            cache = memory()
            if (body := read_remembered_body(content, protocol, cache, _NEW)) is not None:
                self._is_long = len(body[wire(protocol).turns]) > _FEW
                return body
        self._is_long = len(content) > _SMALL or content.count(b",") > _FEW

        def read() -> dict[str, Any]:
            """Return the object of the body."""
            _check_values(content)
            body = None if cache is None else read_remembered_body(content, protocol, cache, len(content))
            return read_body(content, self.notes) if body is None else body

        return await self.run(read)

    async def content(self, limit: int) -> bytes:
        """Return the bytes. Raises `ClientGone`, and `RequestFailed` for too many, late or compressed ones."""
        if (coding := self._headers.get("content-encoding", "").strip().lower()) not in ("", "identity"):
            sentence = f"content-encoding: {short_text(coding)} is not read; send the body uncompressed"
            raise RequestFailed(Failure(415, sentence, "content_encoding"))
        if _length(self._headers) > limit:
            raise RequestFailed(_too_long(limit))
        self._take(_length(self._headers))
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def expire() -> None:
            self._is_late = True
            task.cancel()

        timer = loop.call_later(self._bounds.body_seconds, expire)
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size > limit:
                    raise RequestFailed(_too_long(limit))
                if size > self.size:
                    self._take(size - self.size)
                pieces.append(piece)
                if not message.get("more_body"):
                    self.is_read = True
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except asyncio.CancelledError:
            if not self._is_late:
                raise
            task.uncancel()
            sentence = f"the body did not arrive within {self._bounds.body_seconds:g} seconds"
            raise RequestFailed(Failure(408, sentence, "timeout")) from None
        finally:
            timer.cancel()

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of work on this body. Work on a long one is done in a thread: others go on meanwhile."""
        if not self._is_long:
            return work()
        return await in_thread(self._threads, work)

    def release(self) -> None:
        """Give back what is held: the request has ended."""
        if self.size:
            self._held.give(self._client, self.size)
            self.size = 0

    def _take(self, size: int) -> None:
        """Count bytes that are held. Raises `RequestFailed` beyond the bound."""
        if not size:
            return
        if status := self._held.refusal(self._client, size):
            raise RequestFailed(busy_failure(status, self.protocol, "bytes"))
        self._held.take(self._client, size)
        self.size += size


def _check_values(content: bytes) -> None:
    """Raise `RequestFailed` for a JSON text with too many values, before any is made: they take much time and memory.

    Each comma and each bracket counts, unless it stands in a string. The text is read in slices, so that other threads
    go on.
    """
    if len(content) <= MOST_VALUES:
        return
    count, is_string, is_escaped = 0, False, False
    for start in range(0, len(content), _SLICE):
        piece = content[start + is_escaped : start + _SLICE].replace(b"\\\\", b"")
        is_escaped = piece.endswith(b"\\")  # the next slice begins with a character that is no end of a string
        pieces = piece.replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[is_string::2])
        is_string ^= len(pieces) % 2 == 0
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if count > MOST_VALUES:
            raise RequestFailed(Failure(400, f"the body has more than {MOST_VALUES:,} values", "too_many_values"))


async def in_thread(threads: Executor, work: Callable[[], T]) -> T:
    """Return the result of work that is done in a thread."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def ends_connection(headers: Mapping[str, str]) -> bool:
    """Whether the connection ends where nobody reads a request's body: it is long, or may never be sent."""
    return "transfer-encoding" in headers or "expect" in headers or _length(headers) > _CLOSING


def busy_failure(status: int, protocol: str, what: str) -> Failure:
    """Return the answer where one client holds too much (429), or where all do."""
    if status == 429:
        message = f"this address holds too many {what} of the gateway; try again in 1 second"
        return Failure(429, message, "too_many_requests", 1.0)
    status = server_api(protocol).overloaded_status
    return Failure(status, f"the gateway's clients hold too many {what}; try again in 1 second", "overloaded", 1.0)


def _length(headers: Mapping[str, str]) -> int:
    """Return the length of a body that the head names, 0 where it names none."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def _too_long(limit: int) -> Failure:
    """Return the answer to a body that is too long."""
    return Failure(413, f"the body has more than {limit:,} bytes", "too_large")
