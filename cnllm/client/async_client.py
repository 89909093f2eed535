"""AsyncClient: the driver of `cnllm.client.sync_client`, awaiting; on asyncio or trio."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast, overload

from cnllm.client.async_run import AsyncRunMethods
from cnllm.client.async_stream import AsyncCallRun, AsyncStream, DeferredStream
from cnllm.client.base import BaseClient, is_httpx_transport
from cnllm.client.call_driver import CallSetup
from cnllm.client.event_loop import run_in_thread
from cnllm.client.telemetry import OnEvent
from cnllm.client.tool_sets import has_set_options
from cnllm.client.verb_help import with_options
from cnllm.engine.run.call import Call
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.transports import AsyncHttpx, AsyncTransport, default_async_transport
from cnllm.types import Reply, checks
from cnllm.types.policy import Limits, Retry, Timeouts

if TYPE_CHECKING:
    import httpx

    from cnllm.types.call_options import Answer, BaseOptions, CallOptions
    from cnllm.types.message_types import Messages
    from cnllm.types.route import Fallback

__all__ = ["AsyncClient", "AsyncStream"]


class AsyncClient(BaseClient, AsyncRunMethods):
    """The same verbs as `Client`, awaited; on asyncio or trio."""

    def __init__(
        self,
        registry: Registry | None = None,
        transport: AsyncTransport | httpx.AsyncBaseTransport | None = None,
        simulate: bool = False,
        api_key: str | None = None,
        *,
        timeout: float | Timeouts | None = None,
        retry: Retry | None = None,
        limits: Limits | None = None,
        on_event: OnEvent | None = None,
        raw_log: bool | str | os.PathLike[str] | None = None,
        fallback: list[str] | tuple[str, ...] | Fallback | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(registry, simulate, api_key, timeout, retry, limits, on_event, raw_log, fallback)
        if transport is not None and is_httpx_transport(transport, "handle_async_request"):
            transport = AsyncHttpx(cast("httpx.AsyncBaseTransport", transport))
        self._connections = transport
        self._open_transport()

    def with_registry(self, registry: Registry) -> Self:
        """Return a client of another registry with the same settings and connections. `aclose` of one closes both."""
        checks.require_type("registry", registry, Registry, "a cnllm.Registry")
        client = object.__new__(type(self))
        self._input_checker()  # now, so that both share it
        client.__dict__.update(self.__dict__, registry=registry, _cooldowns=None, _held_sets=None)
        client._open_transport()
        return client

    def _open_transport(self) -> None:
        """Set the transport: connections, or the simulator of the registry; with a raw log, what records it."""
        transport: Any = self._connections
        if transport is None and self.simulate:
            from cnllm.simulator.transport import AsyncSimTransport

            transport = AsyncSimTransport(self.registry)
        elif transport is None:
            transport = self._connections = default_async_transport()
        self._warm = getattr(transport, "warm", None)
        if self._raw_log is not None:
            from cnllm.cassette import AsyncRecorder

            transport = AsyncRecorder(transport, self._raw_log.write, self._secrets)
        self._transport = transport

    @overload
    async def call(
        self,
        model: str | Model,
        messages: Messages,
        *,
        schema: type[Answer] | None = None,
        **options: Unpack[BaseOptions],
    ) -> Reply[Answer]: ...

    @overload
    async def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]: ...

    @with_options
    async def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]:
        """Return the whole reply. Raise the errors of `Client.call`."""
        given: Mapping[str, Any] = options
        if has_set_options(given):
            given = await run_in_thread(partial(self._open_sets, given))
        _, setup = self._open_call(model, messages, False, given)
        runner = AsyncCallRun(setup)
        async for _ in runner.batches():
            pass
        assert runner.finished is not None
        return runner.finished

    @overload
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        schema: type[Answer] | None = None,
        **options: Unpack[BaseOptions],
    ) -> AsyncStream[Answer]: ...

    @overload
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncStream[Any]: ...

    @with_options
    def stream(
        self,
        model: str | Model,
        messages: Messages,
        *,
        by: Literal["sentence"] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncStream[Any]:
        """Return an async context manager over the reply's events. With `by="sentence"` text comes in sentences."""
        if has_set_options(options):
            return self._deferred_stream(model, messages, True, options, by)
        return AsyncStream(*self._open_call(model, messages, True, options), by)

    def prepare(
        self, model: str | Model, messages: Messages, *, stream: bool, **options: Unpack[CallOptions]
    ) -> AsyncStream[Any]:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        if has_set_options(options):
            return self._deferred_stream(model, messages, stream, options)
        return AsyncStream(*self._open_call(model, messages, stream, options))

    def _deferred_stream(
        self, model: str | Model, messages: Messages, stream: bool, options: Mapping[str, Any], by: str | None = None
    ) -> AsyncStream[Any]:
        async def open_call() -> tuple[Call, CallSetup]:
            expanded = await run_in_thread(partial(self._open_sets, options))
            return self._open_call(model, messages, stream, expanded)

        return DeferredStream(open_call, by)

    async def warm(self, model: str | Model) -> None:
        """Open a connection; see `Client.warm`."""
        self._require_open()
        warm = self._warm
        if warm is not None:
            await warm(self.plan(model, "hi"))

    async def aclose(self) -> None:
        """Close the connections, and the servers of tools. A later call raises `ClientClosed`."""
        self._closed = True
        if self._checker is not None:
            self._checker.close()
        if (held := self._take_held_sets()) is not None:
            await run_in_thread(held.release)
        close = getattr(self._transport, "aclose", None)
        if close is not None:
            await close()

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
