"""AsyncClient: the driver of `cnllm.client.sync_client`, awaiting; on asyncio or trio."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from cnllm.client.async_run import AsyncRun
from cnllm.client.async_stream import AsyncStream
from cnllm.client.base import BaseClient
from cnllm.client.runs import loop_stopped_error, prepare_loop
from cnllm.client.verb_help import with_options, with_run_options
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.system.closing import AsyncClosing
from cnllm.system.event_loop import run_in_thread
from cnllm.tools.values import has_sets
from cnllm.transports import AsyncTransport, default_async_transport
from cnllm.types import Reply, checks

if TYPE_CHECKING:
    import httpx

    from cnllm.types.call_options import Answer, CallOptions, RunOptions, TextUnit, TypedOptions, TypedRunOptions
    from cnllm.types.messages import Messages

    AsyncHttpTransport = AsyncTransport | httpx.AsyncBaseTransport
else:
    AsyncHttpTransport = Any

__all__ = ["AsyncClient", "AsyncStream"]


class AsyncClient(BaseClient[AsyncHttpTransport], AsyncClosing):
    """The same verbs as `Client`, awaited; on asyncio or trio."""

    _is_async = True
    _default_transport = staticmethod(default_async_transport)

    def with_registry(self, registry: Registry) -> Self:
        """Return a client of another registry with the same settings and connections.

        `aclose` of one closes the connections of both. The other one stays open and makes new ones.
        """
        checks.require_type("registry", registry, Registry, "a cnllm.Registry")
        client = self._copy(
            registry=registry, _route_memory=[memory.for_registry() for memory in self._route_memory], _held_sets=None
        )
        client._open_transport()
        return client

    @overload
    async def call(
        self, model: str | Model, messages: Messages, **options: Unpack[TypedOptions[Answer]]
    ) -> Reply[Answer]: ...

    @overload
    async def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]: ...

    @with_options
    async def call(self, model: str | Model, messages: Messages, **options: Unpack[CallOptions]) -> Reply[Any]:
        """Return the whole reply. Raise the errors of `Client.call`."""
        return await self._stream(model, messages, options, stream=False).complete()

    @overload
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[TypedOptions[Answer]]
    ) -> AsyncStream[Answer]: ...

    @overload
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
    ) -> AsyncStream[Any]: ...

    @with_options
    def stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[CallOptions]
    ) -> AsyncStream[Any]:
        """Return an async context manager over the reply's events. With `by="sentence"` text comes in sentences."""
        return self._stream(model, messages, options, by, stream=True)

    @overload
    async def run(
        self, model: str | Model, messages: Messages, **options: Unpack[TypedRunOptions[Answer]]
    ) -> AsyncRun[Answer]: ...

    @overload
    async def run(self, model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> AsyncRun[Any]: ...

    @with_run_options
    async def run(self, model: str | Model, messages: Messages, **options: Unpack[RunOptions]) -> AsyncRun[Any]:
        """Run the tool loop; see `Client.run`. Tools, `approve` and `on_step` may be async functions."""
        setup = prepare_loop(self._open_call, self._on_event, model, messages, options, stream=False)
        async with AsyncRun(setup) as run:
            async for _ in run:
                pass
        if run.stopped != "done":
            raise loop_stopped_error(run)
        return run

    @overload
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[TypedRunOptions[Answer]]
    ) -> AsyncRun[Answer]: ...

    @overload
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[RunOptions]
    ) -> AsyncRun[Any]: ...

    @with_run_options
    def run_stream(
        self, model: str | Model, messages: Messages, *, by: TextUnit = None, **options: Unpack[RunOptions]
    ) -> AsyncRun[Any]:
        """Return the run for `async with` and `async for`; see `Client.run_stream`."""
        return AsyncRun(prepare_loop(self._open_call, self._on_event, model, messages, options, stream=True, by=by))

    def prepare(
        self, model: str | Model, messages: Messages, *, stream: bool, **options: Unpack[CallOptions]
    ) -> AsyncStream[Any]:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        return self._stream(model, messages, options, stream=stream)

    def _stream(
        self, model: str | Model, messages: Messages, options: Mapping[str, Any], by: str | None = None, *, stream: bool
    ) -> AsyncStream[Any]:
        open_call = partial(self._open_call, model, messages, stream, options)
        # the servers of sets may have to start
        return AsyncStream(partial(run_in_thread, open_call) if has_sets(options.get("tools")) else open_call(), by)

    async def warm(self, model: str | Model) -> None:
        """Open a connection; see `Client.warm`."""
        self._require_open()
        warm = self._warm
        if warm is not None:
            await warm(self.plan(model, "hi"))

    async def aclose(self) -> None:
        """Close the connections, and the servers of tools. A later call raises `ClientClosed`."""
        if (sets := self._begin_close()) is not None:
            await run_in_thread(sets.release)
        close = getattr(self._transport, "aclose", None)
        if close is not None:
            await close()
        if self._call_log is not None:
            await run_in_thread(self._call_log.close)

    close = aclose
