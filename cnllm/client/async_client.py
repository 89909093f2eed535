"""AsyncClient: the driver of `cnllm.client.sync_client`, awaiting; on asyncio or trio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from cnllm.client import credentials
from cnllm.client.async_run import AsyncRunMethods
from cnllm.client.base import BaseClient, CallDriver, check_delivery, is_httpx_transport
from cnllm.client.event_loop import run_in_thread
from cnllm.client.telemetry import OnEvent, watch_call
from cnllm.client.tool_sets import has_set_options
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.call import Call
from cnllm.engine.run.call_effects import (
    DrainBody,
    FinalEvents,
    Observed,
    ReadBody,
    Send,
    SetReadDeadline,
    Sleep,
    UseTarget,
)
from cnllm.errors import CnllmError, TransportError
from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.transports import AsyncHttpx, AsyncTransport, default_async_transport
from cnllm.types import Event, Reply, checks
from cnllm.types.policy import Limits, Retry, Timeouts

if TYPE_CHECKING:
    import httpx

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
        fallback: Sequence[str] | Fallback | None = None,
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

    async def call(self, model: str | Model, messages: Any, **options: Any) -> Reply:
        """Return the whole reply. Raise the errors of `Client.call`."""
        if has_set_options(options):
            options = await run_in_thread(partial(self._open_sets, options))
        _, runner = self._open_call(model, messages, False, options)
        async for _ in runner.batches():
            pass
        assert runner.finished is not None
        return runner.finished

    def stream(
        self, model: str | Model, messages: Any, *, by: Literal["sentence"] | None = None, **options: Any
    ) -> AsyncStream:
        """Return an async context manager over the reply's events. With `by="sentence"` text comes in sentences."""
        check_delivery(by)
        if has_set_options(options):
            return self._deferred_stream(model, messages, True, options, by)
        return AsyncStream(*self._open_call(model, messages, True, options), by)

    def prepare(self, model: str | Model, messages: Any, *, stream: bool, **options: Any) -> AsyncStream:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        if has_set_options(options):
            return self._deferred_stream(model, messages, stream, options)
        return AsyncStream(*self._open_call(model, messages, stream, options))

    def _deferred_stream(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any], by: str | None = None
    ) -> AsyncStream:
        from cnllm.client.deferred_stream import DeferredStream

        async def open_call() -> tuple[Call, _AsyncCallRun]:
            expanded = await run_in_thread(partial(self._open_sets, options))
            return self._open_call(model, messages, stream, expanded)

        return DeferredStream(open_call, by)

    def _open_call(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any]
    ) -> tuple[Call, _AsyncCallRun]:
        if self._fallback is not None or "fallback" in options:
            return self._open_route(model, messages, stream, options)
        call, key = self._start_call(model, messages, stream, options)
        return call, _AsyncCallRun(
            self._transport, call.stream() if stream else call.complete(), key, watch_call(self._on_event)
        )

    def _open_route(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any]
    ) -> tuple[Call, _AsyncCallRun]:
        call, key, keys = self._start_route(model, messages, stream, options)
        steps = call.stream() if stream else call.complete()
        runner = _AsyncCallRun(self._transport, steps, key, watch_call(self._on_event))
        runner.keys = keys
        return call, runner

    async def warm(self, model: str | Model) -> None:
        """Open a connection; see `Client.warm`."""
        warm = self._warm
        if warm is not None:
            await warm(self.plan(model, "hi"))

    async def aclose(self) -> None:
        """Close the connections, and the servers of tools."""
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


class _AsyncCallRun(CallDriver):
    """Carries out the steps of a call, awaiting each."""

    def events(self) -> AsyncGenerator[Event]:
        """Return the events one by one."""
        return _single_events(self.batches())

    async def batches(self) -> AsyncGenerator[list[Event]]:
        """Yield the events, those of one piece of the network together; carry out the other steps in between."""
        send = self._steps.send
        result: Any = None
        try:
            while True:
                try:
                    step = send(result)
                except StopIteration as stop:
                    self.finished = self._echo.reply(stop.value)
                    return
                kind = type(step)
                if kind is list or kind is FinalEvents:
                    if batch := self._echo.events(step):
                        yield batch
                    result = await self._next_chunk() if kind is list else None
                else:
                    result = await self._carry_out(step)
        except CnllmError as error:
            public_error = self._report_error(error)
            if batch := self._echo.flush():
                yield batch
            raise public_error from error.__cause__
        finally:
            await self.close()
            self._report_end()

    async def _carry_out(self, step: Any) -> Any:
        match step:
            case Send():
                return await self._send(step.plan)
            case ReadBody():
                return await self._read_all(step.most)
            case SetReadDeadline() if hasattr(self._body, "set_read_deadline"):
                self._body.set_read_deadline(step.seconds)
            case DrainBody() if hasattr(self._body, "drain"):
                await self._body.drain()
            case UseTarget():
                return self._use_target(step)
            case Observed():
                self._report_observed(step)
            case Sleep():
                import anyio

                self._report_retry(step)
                await anyio.sleep(step.seconds)
        return None

    async def _send(self, plan: Plan) -> Any:
        await self.close()
        request = self._insert_key(plan)
        try:
            status, headers, body = await self._transport.send(request)
        except TransportError as error:
            return error
        self._report_start(status)
        self._body = body.__aiter__()
        return status, headers

    async def _next_chunk(self) -> Any:
        try:
            if self._body is None:
                return None
            return credentials.redact_bytes(self._needles, await self._body.__anext__())
        except StopAsyncIteration:
            return None
        except TransportError as error:
            return error

    async def _read_all(self, remaining: int) -> Any:
        pieces: list[bytes] = []
        broken: TransportError | None = None
        try:
            async for chunk in self._body:
                pieces.append(chunk)
                if (remaining := remaining - len(chunk)) < 0:
                    break
        except TransportError as error:
            broken = error
        finally:
            await self.close()
        return self._join_body(pieces, broken)

    async def close(self) -> None:
        body, self._body = self._body, None
        if hasattr(body, "aclose"):
            await body.aclose()


class AsyncStream:
    """The events of one call, asynchronously; `reply` once they have been read."""

    def __init__(self, call: Call, runner: _AsyncCallRun, by: str | None = None) -> None:
        checks.require_type("call", call, Call, "the value that `AsyncClient.stream` passes")
        checks.require_type("runner", runner, _AsyncCallRun, "the value that `AsyncClient.stream` passes")
        check_delivery(by)
        self._call = call
        self._runner = runner
        self._batches = runner.batches()
        self._events = _single_events(self._batches)
        if by is not None:
            from cnllm.sentences import by_sentence_async

            self._events = by_sentence_async(self._events)

    @property
    def plan(self) -> Plan:
        """Return the request, with a note for every change."""
        return self._call.plan

    @property
    def reply(self) -> Reply:
        """Return the reply, once all events have been read. Raise `StreamCut` before that, or when there is none."""
        return self._runner.finished or self._runner.abandon(self._call)

    def batches(self) -> AsyncGenerator[list[Event]]:
        """Return the events in lists, each with those of one piece of the network, instead of one by one."""
        return self._batches

    async def stop(self) -> Reply | None:
        """End the call and return the partial reply with finish `cut`, or None if nothing arrived."""
        await self.aclose()
        return self._runner.redact_reply(self._call.partial_reply())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """End the call at any point."""
        await self._events.aclose()
        await self._batches.aclose()
        await self._runner.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _single_events(batches: AsyncGenerator[list[Event]]) -> AsyncGenerator[Event]:
    """Yield the events of lists one by one. Closes the generator of the lists."""
    try:
        async for batch in batches:
            for event in batch:
                yield event
    finally:
        await batches.aclose()
