"""Client: a thin driver of the steps in `cnllm.engine.run.call`."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from cnllm.client import credentials
from cnllm.client.base import BaseClient, CallDriver, check_delivery, is_httpx_transport
from cnllm.client.sync_run import RunMethods
from cnllm.client.telemetry import OnEvent, Watch, watch_call
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
from cnllm.transports import Httpx, Transport, default_transport
from cnllm.types import Event, Reply, checks
from cnllm.types.policy import Limits, Retry, Timeouts

if TYPE_CHECKING:
    import httpx

    from cnllm.types.route import Fallback

__all__ = ["Client", "Stream"]


class Client(BaseClient, RunMethods):
    """Calls models. Safe to share between threads; close it, or use `with`.

    `transport` is an httpx transport or anything with `send(plan)` (see `cnllm.transports`). `simulate` answers from
    the registry, without key or network. `api_key` goes with every call, to any endpoint; without it the key comes
    from the environment or the keys file. `timeout` is a number of seconds or `Timeouts`, `limits` say how many bytes
    of a reply are read; a setting without an argument comes from CNLLM_TIMEOUT, CNLLM_ATTEMPTS, CNLLM_MAX_REPLY_BYTES
    and the like (see `cnllm.config.settings`). `on_event` is called with each event of `cnllm.client.telemetry`.
    `raw_log`, or CNLLM_RAW_LOG, keeps every exchange as recorded bytes, without secrets (`cnllm.cassette.raw_log`):
    True for the data folder, or a folder. `fallback` names the models that take over where the first one fails: a list
    of names, or a `cnllm.Fallback`; it is an option of every call, too. `api_key` does not go to those
    at another endpoint.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        transport: Transport | httpx.BaseTransport | None = None,
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
        if simulate and transport is None:
            from cnllm.simulator.transport import SimTransport

            transport = SimTransport(self.registry)
        elif transport is not None and is_httpx_transport(transport, "handle_request"):
            transport = Httpx(cast("httpx.BaseTransport", transport))
        self._transport: Any = default_transport() if transport is None else transport
        self._warm = getattr(self._transport, "warm", None)
        if self._raw_log is not None:
            from cnllm.cassette import Recorder

            self._transport = Recorder(cast("Any", self._transport), self._raw_log.write, self._secrets)

    def call(self, model: str | Model, messages: Any, **options: Any) -> Reply:
        """Return the whole reply. Raise `EndpointError`, `TransportError`, `KeyMissing`, and the errors of `plan`."""
        _, runner = self._open_call(model, messages, False, options)
        for _ in runner.events():
            pass
        assert runner.finished is not None
        return runner.finished

    def stream(
        self, model: str | Model, messages: Any, *, by: Literal["sentence"] | None = None, **options: Any
    ) -> Stream:
        """Return a context manager over the reply's events. Nothing is sent before it is entered or iterated.

        With `by="sentence"` its `TextDelta`s hold whole sentences (see `cnllm.sentences`).
        """
        check_delivery(by)
        return Stream(*self._open_call(model, messages, True, options), by)

    def prepare(self, model: str | Model, messages: Any, *, stream: bool, **options: Any) -> Stream:
        """Return a call whose request is built and not sent. A whole reply has its events at its end."""
        return Stream(*self._open_call(model, messages, stream, options))

    def _open_call(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any]
    ) -> tuple[Call, _CallRun]:
        if has_set_options(options):
            options = self._open_sets(options)
        if self._fallback is not None or "fallback" in options:
            return self._open_route(model, messages, stream, options)
        call, key = self._start_call(model, messages, stream, options)
        return call, _CallRun(
            self._transport, call.stream() if stream else call.complete(), key, watch_call(self._on_event)
        )

    def _open_route(
        self, model: str | Model, messages: Any, stream: bool, options: dict[str, Any]
    ) -> tuple[Call, _CallRun]:
        call, key, keys = self._start_route(model, messages, stream, options)
        steps = call.stream() if stream else call.complete()
        runner = _CallRun(self._transport, steps, key, watch_call(self._on_event))
        runner.keys = keys
        return call, runner

    def warm(self, model: str | Model) -> None:
        """Open a connection to a model's endpoint, so that the first call need not wait for it.

        Raise `TransportError` if that fails. Only the fast transport does it; other transports do nothing.
        """
        warm = self._warm
        if warm is not None:
            warm(self.plan(model, "hi"))

    def close(self) -> None:
        """Close the connections, and the servers of tools."""
        if (held := self._take_held_sets()) is not None:
            held.release()
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _CallRun(CallDriver):
    """Carries out the steps of a call, one after another."""

    def __init__(self, transport: Any, steps: Any, key: str | None, watch: Watch | None) -> None:
        super().__init__(transport, steps, key, watch)
        self._closed = False

    def events(self) -> Generator[Event]:
        """Yield the events, and carry out the other steps in between."""
        send = self._steps.send
        result: Any = None
        try:
            while True:
                step = send(result)
                kind = type(step)
                if kind is list:
                    yield from self._echo.events(step)
                    result = self._next_chunk()
                elif kind is FinalEvents:
                    yield from self._echo.events(step)
                    result = None
                else:
                    result = self._carry_out(step)
        except StopIteration as stop:
            self.finished = self._echo.reply(stop.value)
        except CnllmError as error:
            public_error = self._report_error(error)
            yield from self._echo.flush()
            raise public_error from error.__cause__
        finally:
            self.close()
            self._report_end()

    def leave(self) -> None:
        """End the call from another thread, as soon as possible. No further request is sent."""
        self._closed = True
        set_read_deadline = getattr(self._body, "set_read_deadline", None)
        if set_read_deadline is not None:
            set_read_deadline(0)

    def _carry_out(self, step: Any) -> Any:
        if self._closed:
            raise TransportError("the call was closed before its end")
        match step:
            case Send():
                return self._send(step.plan)
            case ReadBody():
                return self._read_all(step.most)
            case SetReadDeadline() if hasattr(self._body, "set_read_deadline"):
                self._body.set_read_deadline(step.seconds)
            case DrainBody() if hasattr(self._body, "drain"):
                self._body.drain()
            case UseTarget():
                return self._use_target(step)
            case Observed():
                self._report_observed(step)
            case Sleep():
                import time

                self._report_retry(step)
                time.sleep(step.seconds)
        return None

    def _send(self, plan: Plan) -> Any:
        self.close()
        request = self._insert_key(plan)
        try:
            status, headers, body = self._transport.send(request)
        except TransportError as error:
            return error
        self._report_start(status)
        self._body = iter(body)
        if self._closed:  # `leave` was called during the send
            self.leave()
        return status, headers

    def _next_chunk(self) -> Any:
        if self._closed:
            raise TransportError("the call was closed before its end")
        try:
            chunk = next(self._body, None) if self._body is not None else None
            return chunk if chunk is None else credentials.redact_bytes(self._needles, chunk)
        except TransportError as error:
            return error

    def _read_all(self, remaining: int) -> Any:
        pieces: list[bytes] = []
        broken: TransportError | None = None
        try:
            for chunk in self._body:
                pieces.append(chunk)
                if (remaining := remaining - len(chunk)) < 0:
                    break
        except TransportError as error:
            broken = error
        finally:
            self.close()
        return self._join_body(pieces, broken)

    def close(self) -> None:
        """Close the response."""
        body, self._body = self._body, None
        if hasattr(body, "close"):
            body.close()


class Stream:
    """The events of one call: iterate over it once, then `reply`. Leaving the `with` block ends the call."""

    def __init__(self, call: Call, runner: _CallRun, by: str | None = None) -> None:
        checks.require_type("call", call, Call, "the value that `Client.stream` passes")
        checks.require_type("runner", runner, _CallRun, "the value that `Client.stream` passes")
        check_delivery(by)
        self._call = call
        self._runner = runner
        self._events: Iterator[Event] = runner.events()
        if by is not None:
            from cnllm.sentences import by_sentence

            self._events = by_sentence(runner.events())

    @property
    def plan(self) -> Plan:
        """Return the request, with a note for every change."""
        return self._call.plan

    @property
    def reply(self) -> Reply:
        """Return the reply. Read the remaining events first. Raise `StreamCut` when the call was closed early."""
        for _ in self._events:
            pass
        return self._runner.finished or self._runner.abandon(self._call)

    def stop(self) -> Reply | None:
        """End the call and return the partial reply with finish `cut`, or None if nothing arrived."""
        self.close()
        return self._runner.redact_reply(self._call.partial_reply())

    def cancel(self) -> None:
        """End the call from another thread. The thread that reads it gets a `TransportError`."""
        self._runner.leave()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """End the call at any point."""
        close = getattr(self._events, "close", None)
        if close is not None:
            close()
        self._runner.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
