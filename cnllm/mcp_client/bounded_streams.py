"""Bound what a server makes this process keep: the answers to its own requests, where it does not read them.

A reply that cannot be read ends its request at once: nobody waits for another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec

from cnllm.mcp_client.line_codec import reply_id
from cnllm.mcp_client.result_repair import repair_result
from cnllm.system.closing import AsyncClosing
from cnllm.types.json_form import mend_halves

__all__ = ["bounded_streams", "unreadable_reason"]

_DEEP = "Invalid JSON: recursion limit"

_MAX_WAITING = 1000  # messages to a server that does not read


def unreadable_reason(error: object) -> str:
    """Return the reason of a failure by a reply that cannot be read. The package's text shows what the server sent."""
    return (
        "its answer is nested too deeply" if _DEEP in str(error) else "its answer has another form than the protocol's"
    )


@asynccontextmanager
async def bounded_streams(transport: Any) -> AsyncIterator[tuple[_Reader, _Writer]]:
    """Yield the streams of a transport. Nothing is read from a server while too many messages to it wait."""
    async with transport as (read, write):
        writer = _Writer(write)
        yield _Reader(read, writer.has_room), writer


class _Stream(AsyncClosing):
    """A stream of messages in front of another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Writer(_Stream):
    """The messages to a server. `has_room` is set while few of them wait."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._waiting = 0

    async def send(self, message: Any) -> None:
        self._count(1)
        try:
            await self._stream.send(message)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._waiting += change
        if self._waiting < _MAX_WAITING:
            self.has_room.set()
        else:
            self.has_room.clear()


class _Reader(_Stream):
    """The messages from a server."""

    def __init__(self, stream: Any, has_room: asyncio.Event) -> None:
        super().__init__(stream)
        self._has_room = has_room

    async def receive(self) -> Any:
        await self._has_room.wait()
        return _readable(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        await self._has_room.wait()
        return _readable(await anext(self._stream))


class _Reply(msgspec.Struct):
    """The fields of a message by which it is known to be a reply."""

    id: int | str
    method: str | None = None


def _readable(item: Any) -> Any:
    """Return what stands for a line that the package `mcp` could not read; any other item as it is, repaired.

    That is the message without halves of characters; else an error for the request that the line replies to.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
    from pydantic import ValidationError

    if isinstance(item, SessionMessage):
        return _repair_message(item)
    if not isinstance(item, ValidationError):
        return item
    found = item.errors(include_url=False, include_context=False)[0]["input"]
    try:
        if isinstance(found, str):
            line = mend_halves(found.encode())
            with contextlib.suppress(ValidationError):
                return _repair_message(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
            reply = _read_reply(line)
        else:
            reply = msgspec.convert(found, _Reply)
    except (msgspec.MsgspecError, UnicodeError):
        return item
    if reply is None or reply.method is not None:
        return item
    error = ErrorData(code=PARSE_ERROR, message=unreadable_reason(item))
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=reply.id, error=error))


def _read_reply(line: bytes) -> _Reply | None:
    """Return the fields of a message; None where it is nested too deeply, and in no usual form of a reply."""
    try:
        return msgspec.json.decode(line, type=_Reply)
    except RecursionError:
        return None if (id := reply_id(line)) is None else _Reply(id)


def _repair_message(item: Any) -> Any:
    """Return a message whose result, if it has one, can be read in all its parts."""
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCResponse

    message = item.message
    if not isinstance(message, JSONRPCResponse):
        return item
    result = repair_result(message.result)
    if result is message.result:
        return item
    return SessionMessage(message.model_copy(update={"result": result}), metadata=item.metadata)
