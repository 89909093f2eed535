"""The transport of blocking SDKs: a request of httpx is answered by `cnllm.Client`."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cnllm.client.sync_client import Client, Stream
from cnllm.gateway.default_keys import DefaultKeys
from cnllm.gateway.exchange import Exchange, reply_events
from cnllm.gateway.resources import resource_body
from cnllm.gateway.responses import continued_body, keep_response
from cnllm.gateway.state import SyncState, keep_turn, restored_request
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
    """Return a client of a family of httpx."""
    client = Client(registry, **options)
    httpx = httpx_family(family, client.registry.providers)
    service = Service(client, models, DefaultKeys() if token_keys is None else token_keys, options)
    state = SyncState(process_store() if store is None else store, service.keys)
    transport = _transport_class(httpx)(httpx, client, service, state, owns_store=isinstance(store, str))
    # Without timeouts of its own the SDK's default does not replace cnllm's: it takes this client's.
    return httpx.Client(transport=transport, timeout=None, trust_env=False)


@functools.cache
def _transport_class(httpx: Any) -> Any:
    """Return the class of transports of a family."""
    return type("SdkTransport", (_Transport, httpx.BaseTransport), {})


@functools.cache
def _stream_class(httpx: Any) -> Any:
    """Return the class of response bodies of a family."""
    return type("SdkStream", (_Body, httpx.SyncByteStream), {})


class _Transport:
    """Answers requests of httpx."""

    def __init__(self, httpx: Any, client: Client, service: Service, state: SyncState, *, owns_store: bool) -> None:
        self._httpx = httpx
        self._client = client
        self._service = service
        self._state = state
        self._owns_store = owns_store

    def handle_request(self, request: Any) -> Any:
        """Answer a request of httpx."""
        url, headers = request.url, dict(request.headers)
        sdk_request = SdkRequest(self._service, request.method, url.path, headers, request.extensions.get("timeout"))
        try:
            return self._answer(request, sdk_request)
        except FAILURES as error:
            return self._response(request, sdk_request.failed(error))

    def _answer(self, request: Any, sdk_request: SdkRequest) -> Any:
        """Return the response to a request. Raises the errors of `FAILURES`."""
        endpoint = sdk_request.endpoint()
        run = self._state.run
        if endpoint.verb not in ("generate", "count"):
            query = request.url.query.decode("ascii", "replace")
            data = run(resource_body(endpoint, self._service.names, query, IDENTITY))
            return self._response(request, sdk_request.json(data))
        body = sdk_request.body(request.read())
        if sdk_request.continues:
            body = run(continued_body(IDENTITY, body))
        exchange = sdk_request.open(body, count=endpoint.verb == "count")
        if endpoint.verb == "count":
            return self._response(request, sdk_request.json(exchange.count_body()))
        restored = run(restored_request(exchange, IDENTITY))
        is_whole = exchange.needs_whole_reply or not exchange.stream
        with sdk_request.preparing():
            options = sdk_request.options(restored)
            call = self._client.prepare(exchange.model, restored.messages, stream=not is_whole, **options)
        sdk_request.add_notes(call.plan.notes)
        if not exchange.stream:
            reply = _reply(call)
            self._keep(sdk_request, exchange, reply)
            return self._response(request, sdk_request.whole(reply))
        items = _whole(call) if is_whole else _events(call)
        body_stream = _stream_class(self._httpx)(
            call, self._pieces(sdk_request, exchange, items), self._httpx.RemoteProtocolError
        )
        try:
            body_stream.begin()
        except BaseException:
            body_stream.close()
            raise
        return self._response(request, sdk_request.head(), body_stream)

    def _pieces(
        self, sdk_request: SdkRequest, exchange: Exchange, items: Generator[Any, None, None]
    ) -> Generator[bytes, None, str | None]:
        """Yield the bytes of a stream and return why it failed, or None. Raises an error before the first piece."""
        try:
            with contextlib.closing(items):
                for item in items:
                    if type(item) is Reply:
                        self._keep(sdk_request, exchange, item)
                        yield sdk_request.last_piece(item)
                    elif data := sdk_request.piece([item]):
                        yield data
        except FAILURES as error:
            failure = sdk_request.last_failure(error)
            if failure is None:
                raise
            yield failure[0]
            return failure[1]
        return None

    def _keep(self, sdk_request: SdkRequest, exchange: Exchange, reply: Reply) -> None:
        """Keep what the program may lose, before the reply is complete for it."""
        sdk_request.add_notes(reply.notes)
        self._state.run(keep_turn(exchange, reply, IDENTITY))
        if sdk_request.continues:
            self._state.run(keep_response(IDENTITY, exchange, reply))

    def _response(self, request: Any, answer: Answer, stream: Any = None) -> Any:
        """Return a response of httpx."""
        content = {"content": answer.content} if stream is None else {"stream": stream}
        return self._httpx.Response(answer.status, headers=answer.headers, request=request, **content)

    def close(self) -> None:
        """Close the connections to endpoints, and a store that this transport opened."""
        self._client.close()
        if self._owns_store:
            self._state.close()


class _Body:
    """The body of a streamed response. Closing it, from any thread, ends the call."""

    def __init__(self, call: Stream, pieces: Generator[bytes, None, str | None], broken: Any) -> None:
        self._call = call
        self._pieces = pieces
        self._broken = broken
        self._first: bytes | None = None
        self._cancelled = False  # by another thread, while one reads

    def begin(self) -> None:
        """Wait for the first piece. Raises the error of a call that has none."""
        self._first = next(self._pieces)

    def __iter__(self) -> Iterator[bytes]:
        first, self._first = self._first, None
        if first is not None:
            yield first
        while True:
            try:
                piece = next(self._pieces)
            except StopIteration as stop:
                message = stop.value
                break
            if self._cancelled:
                self._pieces.close()
                raise self._broken("the response was closed")
            yield piece
        if message is not None:  # a program that overlooks the failure must not take this for the end
            raise self._broken(message)

    def close(self) -> None:
        """End the call."""
        if inspect.getgeneratorstate(self._pieces) != inspect.GEN_RUNNING:
            self._pieces.close()
        else:
            self._cancelled = True
            self._call.cancel()


def _events(call: Stream) -> Generator[Any, None, None]:
    """Yield the events of a call, and then its reply."""
    with call:
        yield from call
        yield call.reply


def _whole(call: Stream) -> Generator[Any, None, None]:
    """Yield the events of a call whose reply is needed whole, and then its reply."""
    reply = _reply(call)
    yield from reply_events(reply)
    yield reply


def _reply(call: Stream) -> Reply:
    """Return the reply of a call."""
    with call:
        return call.reply
