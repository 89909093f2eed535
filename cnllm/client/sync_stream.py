"""One call of `Client`: the driver of its steps, and the `Stream` of its events."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, Generic

from cnllm.client.call_driver import BodyPieces, CallDriver, CallSetup
from cnllm.client.secret_removal import redact_bytes
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.effects import (
    CheckInputs,
    DrainBody,
    FinalEvents,
    ReadBody,
    Send,
    Sleep,
)
from cnllm.errors import CnllmError, TransportError
from cnllm.system.closing import Closing
from cnllm.types import Answer_co, Event, Reply, checks

__all__ = ["CallRun", "Stream"]


class CallRun(CallDriver):
    """Carries out the steps of a call, one after another."""

    _pause: threading.Event | None = None  # ends a wait between two attempts

    def events(self) -> Generator[Event]:
        """Yield the events, and carry out the other steps in between."""
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
                    if step:
                        if self._first is None:
                            self._observe_first(step)
                        yield from self._echo.events(step)
                    result = self._next_chunk() if kind is list else None
                else:
                    result = self._carry_out(step)
        except CnllmError as error:
            if self._finish_empty_turn(error):
                return
            public_error = self._report_error(error)
            yield from self._echo.flush()
            raise public_error from error.__cause__
        finally:
            self.close()
            self._report_end()

    def leave(self) -> None:
        """End the call from another thread, as soon as possible. No further request is sent."""
        super().leave()
        if self._pause is not None:
            self._pause.set()

    def _carry_out(self, step: Any) -> Any:
        if self._closed:
            self._require_open()
        match step:
            case Send():
                return self._send(step.plan)
            case ReadBody():
                return self._read_all(step)
            case CheckInputs():
                return self._check_inputs(step)
            case DrainBody() if hasattr(self._body, "drain"):
                self._body.drain()
            case Sleep():
                self._begin_wait(step)
                self._wait(step.seconds)
            case _:
                return self._apply(step)
        return None

    def _wait(self, seconds: float) -> None:
        """Wait until the time is over, or `leave` ends it."""
        pause = self._pause = threading.Event()
        if not self._closed:  # else `leave` came before there was a wait to end
            pause.wait(min(seconds, threading.TIMEOUT_MAX))

    def _send(self, plan: Plan) -> Any:
        if self._body is not None:
            self.close()
        request = self._begin_request(plan)
        try:
            status, headers, body = self._transport.send(request)
        except TransportError as error:
            self._require_open()
            return error
        finally:
            self._request = None
        return self._take_response(status, headers, iter(body))

    def _next_chunk(self) -> Any:
        if self._closed:
            self._require_open()
        try:
            chunk = next(self._body, None) if self._body is not None else None
        except TransportError as error:
            self._require_open()
            return error
        if chunk is not None:
            return redact_bytes(self._echo.needles, chunk)
        self._require_open()  # otherwise the end would be the endpoint's
        return None

    def _read_all(self, step: ReadBody) -> Any:
        pieces = BodyPieces(step)
        take = pieces.take
        broken: TransportError | None = None
        try:
            for chunk in self._body:
                if not take(chunk) or getattr(self._body, "has_ended", False):
                    break
        except TransportError as error:
            broken = error
        finally:
            if not pieces.is_stream:
                self.close()
        return self._body_bytes(pieces, broken)

    def close(self) -> None:
        """Close the response."""
        body, self._body = self._body, None
        if hasattr(body, "close"):
            body.close()


class Stream(Closing, Generic[Answer_co]):
    """The events of one call: iterate over it once, then `reply`. Leaving the `with` block ends the call."""

    def __init__(self, setup: CallSetup, by: str | None = None) -> None:
        if type(setup) is not CallSetup:
            checks.require_type("setup", setup, CallSetup, "the value that `Client.stream` passes")
        self._runner = CallRun(setup)
        self._events: Generator[Event] = self._runner.events()
        if by is not None:
            from cnllm.sentences import by_sentence, check_by

            check_by(by)
            self._events = by_sentence(self._events)

    @property
    def plan(self) -> Plan:
        """Return the request, with a note for every change."""
        return self._runner.plan

    @property
    def reply(self) -> Reply[Answer_co]:
        """Return the reply. Read the remaining events first.

        Raise the error that ended the call, each time; `StreamCut` when the call was closed early, and `CnllmError`
        while another thread reads it.
        """
        for _ in iter(self):
            pass
        return self._runner.finished or self._runner.abandon()

    def take_empty_turns(self) -> None:
        """Let a reply be whole in which the model ended its turn without a word. Else it is an `EmptyReply`."""
        self._runner.takes_empty_turns = True

    def stop(self) -> Reply[Answer_co] | None:
        """End the call and return what arrived: with finish `cut` unless it is the whole reply; None if nothing did.

        Where another thread reads it, that thread has what arrived, and here a `CnllmError` says so.
        """
        is_read_elsewhere = self._is_read_elsewhere()
        self.close()
        if is_read_elsewhere:
            raise CnllmError("another thread reads this stream, and gets the end", hint="use the `reply` of its error")
        return self._runner.partial_reply()

    def cancel(self) -> None:
        """End the call from another thread. The one that reads it gets a `TransportError`, with what arrived."""
        self._runner.leave()

    def __iter__(self) -> Iterator[Event]:
        if self._is_read_elsewhere():
            raise CnllmError("another thread reads this stream", hint="each event is delivered once: use one reader")
        return self._events

    def close(self) -> None:
        """End the call at any point, from any thread. One that reads it gets the error of `cancel`."""
        if self._is_read_elsewhere():
            self.cancel()
        else:
            self._events.close()
            self._runner.close()

    def _is_read_elsewhere(self) -> bool:
        """Whether another thread, or a callback of this one, runs within the call."""
        return inspect.getgeneratorstate(self._events) == inspect.GEN_RUNNING
