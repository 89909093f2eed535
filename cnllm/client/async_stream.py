"""One call of `AsyncClient`: the driver of its steps, and the `AsyncStream` of its events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from cnllm.client.call_driver import BodyPieces, CallDriver, CallSetup
from cnllm.client.secret_removal import redact_bytes
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.effects import (
    CheckInputs,
    DrainBody,
    FinalEvents,
    MayRepeat,
    ReadBody,
    Send,
    Sleep,
)
from cnllm.errors import CnllmError, TransportError
from cnllm.system.closing import AsyncClosing, first_of
from cnllm.system.event_loop import run_in_thread
from cnllm.types import Answer_co, Event, Reply, checks

if TYPE_CHECKING:
    from types import AsyncGeneratorType

    import anyio

__all__ = ["AsyncCallRun", "AsyncStream", "single_events"]


class AsyncCallRun(CallDriver):
    """Carries out the steps of a call, awaiting each.

    `may_repeat` says whether one more request may be sent for the call; None: any may.
    """

    may_repeat: Callable[[], Awaitable[bool]] | None = None
    _pause: anyio.CancelScope | None = None

    async def batches(self) -> AsyncGenerator[list[Event]]:
        """Yield the events, those of one piece of the network together; carry out the other steps in between."""
        send = self._setup.steps.send
        result: Any = None
        self._start = time.monotonic()
        try:
            while True:
                try:
                    step = send(result)
                except StopIteration as stop:
                    self._finish(stop.value)
                    return
                kind = type(step)
                if kind is list or kind is FinalEvents:
                    if self._first is None:
                        self._observe_first(step)
                    if batch := self._echo.events(step):
                        yield batch
                    result = await self._next_chunk() if kind is list else None
                else:
                    result = await self._carry_out(step)
        except CnllmError as error:
            if self._finish_empty_turn(error):
                return
            public_error = self._report_error(error)
            if batch := self._echo.flush():
                yield batch
            raise public_error from error.__cause__
        finally:
            if self._body is not None:
                await self.close()
            self._report_end()

    def leave(self) -> None:
        """End the call from another task, as soon as possible. No further request is sent."""
        super().leave()
        if self._pause is not None:
            self._pause.cancel()

    async def _carry_out(self, step: Any) -> Any:
        if self._closed:
            self._require_open()
        match step:
            case Send():
                return await self._send(step.plan)
            case ReadBody():
                return await self._read_all(step)
            case CheckInputs():
                return await run_in_thread(partial(self._check_inputs, step))
            case MayRepeat() if self.may_repeat is not None:
                return await self.may_repeat()
            case DrainBody() if hasattr(self._body, "drain"):
                await self._body.drain()
            case Sleep():
                import anyio

                self._begin_wait(step)
                with anyio.CancelScope() as self._pause:
                    await anyio.sleep(step.seconds)
            case _:
                return self._apply(step)
        return None

    async def _send(self, plan: Plan) -> Any:
        if self._body is not None:
            await self.close()
        request = self._begin_request(plan)
        try:
            status, headers, body = await self._transport.send(request)
        except TransportError as error:
            self._require_open()
            return error
        except BaseException as error:
            if getattr(error, "sent", True) is False:  # the task was cancelled before there was a connection
                self.is_charged = self._was_charged
            raise
        finally:
            self._request = None
        return self._take_response(status, headers, body.__aiter__())

    async def _next_chunk(self) -> Any:
        if self._closed:
            self._require_open()
        try:
            if self._body is None:
                return None
            return redact_bytes(self._echo.needles, await self._body.__anext__())
        except StopAsyncIteration:
            self._require_open()  # otherwise the end would be the endpoint's
            return None
        except TransportError as error:
            self._require_open()
            return error

    async def _read_all(self, step: ReadBody) -> Any:
        pieces = BodyPieces(step)
        take = pieces.take
        broken: TransportError | None = None
        try:
            async for chunk in self._body:
                if not take(chunk) or getattr(self._body, "has_ended", False):
                    break
        except TransportError as error:
            broken = error
        finally:
            if not pieces.is_stream:
                await self.close()
        return self._body_bytes(pieces, broken)

    async def close(self) -> None:
        body, self._body = self._body, None
        if hasattr(body, "aclose"):
            await body.aclose()


class AsyncStream(AsyncClosing, Generic[Answer_co]):
    """The events of one call, asynchronously; `reply` once they have been read."""

    def __init__(self, setup: CallSetup | Callable[[], Awaitable[CallSetup]], by: str | None = None) -> None:
        self._opened: AsyncCallRun | None = None
        self._open_call: Callable[[], Awaitable[CallSetup]] | None = None
        self._is_left = False  # closed, perhaps before it was open
        self._may_repeat: Callable[[], Awaitable[bool]] | None = None
        if callable(setup):  # the request is built when the stream is entered or iterated: its tools are fetched then
            self._open_call = setup
            self._batches = self._open_batches()
        else:
            checks.require_type("setup", setup, CallSetup, "the value that `AsyncClient.stream` passes")
            self._opened = AsyncCallRun(setup)
            self._batches = self._opened.batches()
        self._events: AsyncGenerator[Event] | None = None
        if by is not None:
            from cnllm.sentences import by_sentence_async, check_by

            check_by(by)
            self._events = by_sentence_async(single_events(self._batches))

    async def _open(self) -> AsyncCallRun:
        """Return the driver of the call, whose request is built now if it was not before."""
        if self._opened is None:
            assert self._open_call is not None
            self._opened = AsyncCallRun(await self._open_call())
            self._opened.may_repeat = self._may_repeat
        return self._opened

    async def _open_batches(self) -> AsyncGenerator[list[Event]]:
        runner = await self._open()
        if not self._is_left:
            async with aclosing(runner.batches()) as batches:
                if (first := await first_of(batches)) is not None:
                    yield first
                async for batch in batches:
                    yield batch

    @property
    def _runner(self) -> AsyncCallRun:
        if self._opened is None:
            message = "the request is not built yet, because its tools are not known"
            raise CnllmError(message, hint="enter or iterate the stream first")
        return self._opened

    @property
    def plan(self) -> Plan:
        """Return the request, with a note for every change."""
        return self._runner.plan

    def possible_plans(self) -> list[Plan]:
        """Return the requests that the call may send: one, or that of each model of a route."""
        return self._runner.call.possible_plans()

    @property
    def reply(self) -> Reply[Answer_co]:
        """Return the reply, once all events have been read.

        Raise the error that ended the call, each time; `StreamCut` before the end, and when the call was closed early.
        """
        return self._runner.finished or self._runner.abandon()

    @property
    def is_charged(self) -> bool:
        """Return whether an endpoint may charge what was sent for the call so far."""
        return self._opened is not None and self._opened.is_charged

    def ask_before_repeats(self, may_repeat: Callable[[], Awaitable[bool]]) -> None:
        """Let `may_repeat` decide about each request beyond those whose cost is bounded before the call."""
        self._may_repeat = may_repeat
        if self._opened is not None:
            self._opened.may_repeat = may_repeat

    def take_empty_turns(self) -> None:
        """Let a reply be whole in which the model ended its turn without a word. Else it is an `EmptyReply`."""
        self._runner.takes_empty_turns = True

    def batches(self) -> AsyncGenerator[list[Event]]:
        """Return the events in lists, each with those of one piece of the network, whatever `by` says."""
        return self._batches

    async def complete(self) -> Reply[Answer_co]:
        """Read the events that are left, and return the reply. Raise `CnllmError` while another task reads it."""
        self._require_unread()
        async for _ in self._batches:
            pass
        return self.reply

    async def stop(self) -> Reply[Answer_co] | None:
        """End the call and return what arrived: with finish `cut` unless it is the whole reply; None if nothing did.

        A task that reads it gets the error of `aclose`.
        """
        await self.aclose()
        return None if self._opened is None else self._opened.partial_reply()

    def __aiter__(self) -> AsyncIterator[Event]:
        self._require_unread()
        if self._events is None:
            self._events = single_events(self._batches)
        return self._events

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def aclose(self) -> None:
        """End the call at any point, from any task. One that reads it gets a `TransportError`, with what arrived."""
        self._is_left = True
        if self._opened is None:
            return
        if self._is_read_elsewhere():
            self._opened.leave()
            return
        if self._events is not None:
            await self._events.aclose()
        await self._batches.aclose()

    def _is_read_elsewhere(self) -> bool:
        """Whether another task waits for events."""
        return cast("AsyncGeneratorType[list[Event]]", self._batches).ag_running

    def _require_unread(self) -> None:
        """Raise `CnllmError` where another task waits for events."""
        if self._is_read_elsewhere():
            raise CnllmError("another task reads this stream", hint="each event is delivered once: use one reader")


async def single_events(batches: AsyncGenerator[list[Event]]) -> AsyncGenerator[Event]:
    """Yield the events of lists one by one. Closes the generator of the lists."""
    try:
        for event in await first_of(batches) or ():
            yield event
        async for batch in batches:
            for event in batch:
                yield event
    finally:
        await batches.aclose()
