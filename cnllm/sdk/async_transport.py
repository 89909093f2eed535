"""The transport of asynchronous SDKs: a request of httpx is answered by `cnllm.AsyncClient`, on asyncio or trio."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import anyio

from cnllm.client.async_client import AsyncClient
from cnllm.client.async_stream import AsyncStream
from cnllm.gateway.state import State
from cnllm.protocols.event_order import reply_events
from cnllm.sdk.service import FAILURES, SdkRequest
from cnllm.sdk.transport import TransportBase, subclass
from cnllm.types import Reply

__all__ = ["AsyncSdkTransport"]


class AsyncSdkTransport(TransportBase):
    """Answers requests of httpx."""

    _client: AsyncClient
    make_state = State

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of httpx."""
        sdk_request = self._sdk_request(request)
        try:
            return await self._state.run(self._answer(request, sdk_request, request.aread), _await_step)
        except FAILURES as error:
            return self._response(request, sdk_request.failed(error))

    async def _reply(self, call: AsyncStream) -> Reply:
        """Return the reply of a call."""
        async with call:
            return await call.complete()

    def _body(self, sdk_request: SdkRequest, call: AsyncStream, *, is_whole: bool) -> Any:
        """Return the body of a streamed response."""
        items = _events(call, is_whole=is_whole)
        own = subclass("SdkStream", _AsyncSdkBody, self._httpx.AsyncByteStream)
        return own(self._pieces(sdk_request, items), self._httpx.RemoteProtocolError)

    async def _pieces(self, sdk_request: SdkRequest, items: AsyncGenerator[Any]) -> AsyncGenerator[bytes | str]:
        """Yield the bytes of a stream, and why it failed if it did. Raises an error before the first piece."""
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    if type(item) is Reply:
                        await self._state.run(sdk_request.keep(item))
                        yield sdk_request.last_piece(item)
                    elif data := sdk_request.piece(item):
                        yield data
        except FAILURES as error:
            failure = sdk_request.last_failure(error)
            if failure is None:
                raise
            yield failure[0]
            yield failure[1]

    async def aclose(self) -> None:
        """Close the connections to endpoints, and a store that this transport opened."""
        await self._client.aclose()
        if self._owns_store:
            await self._state.close()


class _AsyncSdkBody:
    """The body of a streamed response. Closing it, from any task, ends the call."""

    def __init__(self, pieces: AsyncGenerator[bytes | str], broken: Any) -> None:
        self._pieces = pieces
        self._broken = broken
        self._first: bytes | str | None = None
        self._reading: anyio.CancelScope | None = None

    async def begin(self) -> None:
        """Wait for the first piece. Raises the error of a call that has none."""
        try:
            self._first = await anext(self._pieces)
        except BaseException:
            await self.aclose()
            raise

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece, self._first = self._first, None
        if piece is None:
            with anyio.CancelScope() as self._reading:
                try:
                    piece = await anext(self._pieces)
                finally:
                    self._reading = None
        if type(piece) is bytes:
            return piece
        # A program that overlooks the failure in the stream must not take this for the end.
        raise self._broken("the response was closed" if piece is None else piece)

    async def aclose(self) -> None:
        """End the call. A task that reads it gets an error."""
        if self._reading is not None:
            self._reading.cancel()
        else:
            await self._pieces.aclose()


async def _events(call: AsyncStream, *, is_whole: bool) -> AsyncGenerator[Any]:
    """Yield the events of a call in lists, and then its reply. `is_whole`: the reply comes before its events."""
    async with call:
        if is_whole:
            yield list(reply_events(await call.complete()))
        else:
            async for events in call.batches():
                yield events
        yield call.reply


async def _await_step(step: Callable[[], Any]) -> Any:
    """Return the result of a step, which may have to be awaited."""
    result = step()
    return await result if inspect.isawaitable(result) else result
