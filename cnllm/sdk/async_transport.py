"""The transport of asynchronous SDKs: a request of httpx is answered by `cnllm.AsyncClient`, on asyncio or trio."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from cnllm.client.async_client import AsyncClient, AsyncStream
from cnllm.gateway.default_keys import DefaultKeys
from cnllm.gateway.exchange import Exchange, reply_events
from cnllm.gateway.resources import resource_body
from cnllm.gateway.responses import continued_body, keep_response
from cnllm.gateway.state import State, keep_turn, restored_request
from cnllm.sdk.family import httpx_family
from cnllm.sdk.service import FAILURES, IDENTITY, Answer, SdkRequest, Service, process_store
from cnllm.types import Reply

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = ["make_client"]


def make_client(
    family: str | None,
    registry: Registry | None,
    models: Mapping[str, str] | None,
    store: Any,
    token_keys: Any,
    options: dict[str, Any],
) -> Any:
    """Return an asynchronous client of a family of httpx."""
    client = AsyncClient(registry, **options)
    httpx = httpx_family(family, client.registry.providers)
    service = Service(client, models, DefaultKeys() if token_keys is None else token_keys, options)
    state = State(process_store() if store is None else store, service.keys)
    transport = _transport_class(httpx)(httpx, client, service, state, owns_store=isinstance(store, str))
    # Without timeouts of its own the SDK's default does not replace cnllm's: it takes this client's.
    return httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)


@functools.cache
def _transport_class(httpx: Any) -> Any:
    """Return the class of transports of a family."""
    return type("AsyncSdkTransport", (_Transport, httpx.AsyncBaseTransport), {})


@functools.cache
def _stream_class(httpx: Any) -> Any:
    """Return the class of response bodies of a family."""
    return type("AsyncSdkStream", (_Body, httpx.AsyncByteStream), {})


class _Transport:
    """Answers requests of httpx."""

    def __init__(self, httpx: Any, client: AsyncClient, service: Service, state: State, *, owns_store: bool) -> None:
        self._httpx = httpx
        self._client = client
        self._service = service
        self._state = state
        self._owns_store = owns_store

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of httpx."""
        url, headers = request.url, dict(request.headers)
        sdk_request = SdkRequest(self._service, request.method, url.path, headers, request.extensions.get("timeout"))
        try:
            return await self._answer(request, sdk_request)
        except FAILURES as error:
            return self._response(request, sdk_request.failed(error))

    async def _answer(self, request: Any, sdk_request: SdkRequest) -> Any:
        """Return the response to a request. Raises the errors of `FAILURES`."""
        endpoint = sdk_request.endpoint()
        run = self._state.run
        if endpoint.verb not in ("generate", "count"):
            query = request.url.query.decode("ascii", "replace")
            data = await run(resource_body(endpoint, self._service.names, query, IDENTITY))
            return self._response(request, sdk_request.json(data))
        body = sdk_request.body(await request.aread())
        if sdk_request.continues:
            body = await run(continued_body(IDENTITY, body))
        exchange = sdk_request.open(body, count=endpoint.verb == "count")
        if endpoint.verb == "count":
            return self._response(request, sdk_request.json(exchange.count_body()))
        restored = await run(restored_request(exchange, IDENTITY))
        is_whole = exchange.needs_whole_reply or not exchange.stream
        with sdk_request.preparing():
            options = sdk_request.options(restored)
            call = self._client.prepare(exchange.model, restored.messages, stream=not is_whole, **options)
        sdk_request.add_notes(call.plan.notes)
        if not exchange.stream:
            reply = await _reply(call)
            await self._keep(sdk_request, exchange, reply)
            return self._response(request, sdk_request.whole(reply))
        items = _whole(call) if is_whole else _events(call)
        body_stream = _stream_class(self._httpx)(
            self._pieces(sdk_request, exchange, items), self._httpx.RemoteProtocolError
        )
        try:
            await body_stream.begin()
        except BaseException:
            await body_stream.aclose()
            raise
        return self._response(request, sdk_request.head(), body_stream)

    async def _pieces(
        self, sdk_request: SdkRequest, exchange: Exchange, items: AsyncGenerator[Any]
    ) -> AsyncGenerator[bytes | str]:
        """Yield the bytes of a stream, and why it failed if it did. Raises an error before the first piece."""
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    if type(item) is Reply:
                        await self._keep(sdk_request, exchange, item)
                        yield sdk_request.last_piece(item)
                    elif data := sdk_request.piece(item):
                        yield data
        except FAILURES as error:
            failure = sdk_request.last_failure(error)
            if failure is None:
                raise
            yield failure[0]
            yield failure[1]

    async def _keep(self, sdk_request: SdkRequest, exchange: Exchange, reply: Reply) -> None:
        """Keep what the program may lose, before the reply is complete for it."""
        sdk_request.add_notes(reply.notes)
        await self._state.run(keep_turn(exchange, reply, IDENTITY))
        if sdk_request.continues:
            await self._state.run(keep_response(IDENTITY, exchange, reply))

    def _response(self, request: Any, answer: Answer, stream: Any = None) -> Any:
        """Return a response of httpx."""
        content = {"content": answer.content} if stream is None else {"stream": stream}
        return self._httpx.Response(answer.status, headers=answer.headers, request=request, **content)

    async def aclose(self) -> None:
        """Close the connections to endpoints, and a store that this transport opened."""
        await self._client.aclose()
        if self._owns_store:
            await self._state.close()


class _Body:
    """The body of a streamed response. Closing it, from any task, ends the call."""

    def __init__(self, pieces: AsyncGenerator[bytes | str], broken: Any) -> None:
        self._pieces = pieces
        self._broken = broken
        self._first: bytes | str | None = None
        self._reading: anyio.CancelScope | None = None

    async def begin(self) -> None:
        """Wait for the first piece. Raises the error of a call that has none."""
        self._first = await anext(self._pieces)

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


async def _events(call: AsyncStream) -> AsyncGenerator[Any]:
    """Yield the events of a call in lists, and then its reply."""
    async with call:
        async for events in call.batches():
            yield events
        yield call.reply


async def _whole(call: AsyncStream) -> AsyncGenerator[Any]:
    """Yield the events of a call whose reply is needed whole, and then its reply."""
    reply = await _reply(call)
    yield list(reply_events(reply))
    yield reply


async def _reply(call: AsyncStream) -> Reply:
    """Return the reply of a call."""
    async with call:
        async for _ in call.batches():
            pass
        return call.reply
