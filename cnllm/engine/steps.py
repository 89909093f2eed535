"""A call as a generator: it yields what is to be done in the world and is sent what came of it.

Everything that is decided about a call (retry, waiting, recovery of a cut stream) is here, once; `Client` and
`AsyncClient` only do what is yielded:

    Send(plan)      → (status, headers), or the TransportError that happened
    ReadAll()       → the rest of the body, or the TransportError
    Hurry(seconds)  → None; from now on reading ends after so many seconds
    Drain()         → None; the rest of the body is of no interest, but a connection read to its end can be used again
    Sleep(seconds)  → None
    a list          → deliver these events, then read on: bytes, None at the end, or the TransportError
    a Last          → deliver these events, nothing else
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.chain import continuing, ending
from cnllm.engine.parser import StreamParser
from cnllm.engine.plan import Plan
from cnllm.errors import CnllmError, EndpointError, IdleTimeout, StreamCut, TransportError
from cnllm.policy import Retry, Timeouts
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Note,
    NoteAdded,
    Reply,
    ToolCallEnd,
)

__all__ = ["Call", "Drain", "Hurry", "Last", "ReadAll", "Send", "Sleep"]

_LATE = 2.0  # seconds in which usage may follow a finish
_AGAIN = 3  # whole calls after a cut stream

Effect = Any  # one of the structs below, or a list of events
Steps = Generator[Effect, Any, Reply]


class Send(Struct, frozen=True):
    """Send a request and wait for the status line."""

    plan: Plan


class ReadAll(Struct, frozen=True):
    """Read the rest of the body."""


class Hurry(Struct, frozen=True):
    """Let reading end, as if the stream did, after so many seconds."""

    seconds: float


class Drain(Struct, frozen=True):
    """Read what is left of the body, if it is there."""


class Sleep(Struct, frozen=True):
    """Wait."""

    seconds: float


class Last(list[Event]):
    """Events to deliver without reading on."""


class Call:
    """One call. `stream()` and `whole()` are its steps; `parser` is what is being read, for a look in the middle."""

    def __init__(
        self,
        plan: Plan,
        *,
        retry: Retry,
        timeouts: Timeouts,
        again: Callable[[], Plan],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.plan = plan
        self.parser: StreamParser | None = None
        self._retry = retry
        self._timeouts = timeouts
        self._again = again
        self._clock = clock
        self._chance = chance
        self._delivered = False

    def so_far(self) -> Reply | None:
        """What has been read; nothing more is going to be."""
        if self.parser is None:
            return None
        try:
            return _closed(self.parser, broken=True)
        except (StreamCut, EndpointError) as error:
            return error.reply

    # ── whole ────────────────────────────────────────────────────────────────

    def whole(self) -> Steps:
        """The reply in one piece."""
        if self.plan.stream:  # an endpoint that only streams: collect
            steps = self.stream()
            sent: Any = None
            while True:
                try:
                    effect = steps.send(sent)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                sent = yield [] if type(effect) is list else Last() if type(effect) is Last else effect
        tries = 0
        while True:
            tries += 1
            head = yield Send(self.plan)
            error: CnllmError
            if isinstance(head, TransportError):
                error = head
            else:
                body = yield ReadAll()
                if isinstance(body, TransportError):
                    raise body
                try:
                    status, headers = head
                    return self._parsed(status, headers, body)
                except EndpointError as failed:
                    error = failed
            yield Sleep(self._wait(error, tries))

    def _parsed(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        self.parser = parser = StreamParser(self.plan.model, plan=self.plan, status=status, headers=headers)
        parser.feed(body)
        return parser.close()

    def _wait(self, error: CnllmError, tries: int) -> float:
        """Seconds until the next try; raises the error when there is to be none."""
        asked = error.retry_after if isinstance(error, EndpointError) else None
        may = isinstance(error, EndpointError | TransportError) and error.retryable
        if not may or tries >= self._retry.attempts or (asked is not None and asked > self._retry.cap):
            raise error
        if asked is not None:
            return asked + self._chance() * min(self._retry.base, 1.0)
        return self._pause(tries)

    def _pause(self, tries: int) -> float:
        """Twice as long each time, with jitter, so that many callers do not come back at once."""
        return float(min(self._retry.cap, self._retry.base * 2 ** (tries - 1)) * (0.5 + self._chance() / 2))

    # ── stream ───────────────────────────────────────────────────────────────

    def stream(self) -> Steps:
        """The reply as events; a plan that cannot be streamed is called whole and delivered as events."""
        tries = 0
        while True:
            tries += 1
            head = yield Send(self.plan)
            try:
                if isinstance(head, TransportError):
                    raise head
                status, headers = head
                if status >= 300 or not self.plan.stream:
                    body = yield ReadAll()
                    if isinstance(body, TransportError):
                        tries = self._retry.attempts
                        raise body
                    return (yield from self._deliver_whole(status, headers, body))
                return (yield from self._read(status, headers))
            except (EndpointError, TransportError) as error:
                if self._delivered:
                    raise
                yield Sleep(self._wait(error, tries))

    def _deliver_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> Steps:
        self.parser = parser = StreamParser(self.plan.model, plan=self.plan, status=status, headers=headers)
        events = [*parser.feed(body), *parser.end()]
        try:
            reply = parser.close()
        except EndpointError as error:
            if status < 300 and not error.retryable:
                self._delivered = True
                yield Last(events)
            raise
        self._delivered = True
        yield Last(events)
        return reply

    def _read(self, status: int, headers: Mapping[str, str]) -> Steps:
        self.parser = parser = StreamParser(self.plan.model, plan=self.plan, status=status, headers=headers)
        feed = parser.feed
        clock = self._clock
        patience = self._timeouts.progress
        still: float | None = clock()  # since when nothing was said; while events are delivered the clock is not ours
        hurried = False
        broken: TransportError | None = None
        events: list[Event] = []
        while True:
            chunk = yield events
            if type(chunk) is not bytes:
                broken = chunk
                break
            events = feed(chunk)
            if events:
                if parser.done:
                    break
                still = None
                self._delivered = True
            elif parser.done:
                break
            elif still is None:
                still = clock()
            elif patience is not None and clock() - still > patience:
                broken = IdleTimeout(
                    f"no progress for {patience:g} s, though the connection is alive",
                    hint="give it more time (timeout), or ask for less",
                )
                break
            if parser.finished and not hurried:
                hurried = True
                yield Hurry(_LATE)
        last = [*events, *parser.end()] if parser.done else parser.end()
        return (yield from self._close(parser, last, broken))

    def _close(self, parser: StreamParser, last: list[Event], broken: TransportError | None) -> Steps:
        """The end of a stream: the reply, its error, or its recovery when it was cut."""
        try:
            reply = _closed(parser, broken=broken is not None)
        except StreamCut as cut:
            last = [Finished("cut", e.raw) if type(e) is Finished else e for e in last]
            if isinstance(broken, IdleTimeout):
                broken.reply = cut.reply
            if self.plan.if_cut == "again-whole":
                return (yield from self._once_more(parser, last, cut, broken))
            self._delivered = True
            yield Last(last)
            if self.plan.if_cut == "keep" and cut.reply is not None:
                return cut.reply
            if isinstance(broken, IdleTimeout):
                raise broken from cut
            raise cut from broken
        except EndpointError as error:
            if self._delivered or not error.retryable:
                self._delivered = True
                yield Last(last)
            raise
        self._delivered = True
        yield Last(last)
        if parser.done and broken is None:
            yield Drain()
        return reply

    # ── recovery ─────────────────────────────────────────────────────────────

    def _once_more(
        self, parser: StreamParser, last: list[Event], cut: StreamCut, broken: TransportError | None
    ) -> Steps:
        """The call once more, whole; what was delivered is not delivered again if the new reply continues it."""
        before = [e for e in last if not isinstance(e, BlockEnd | ToolCallEnd | Finished)]
        self._delivered = True
        yield Last(before)
        assert cut.reply is not None
        plan = replace(self._again(), if_cut="error")  # where an endpoint only streams, this one may be cut as well
        failed: CnllmError = cut
        for tries in range(1, _AGAIN + 1):
            inner = Call(
                plan,
                retry=replace(self._retry, attempts=1),
                timeouts=self._timeouts,
                again=self._again,
                clock=self._clock,
                chance=self._chance,
            )
            try:
                yield from inner.whole()
            except (StreamCut, TransportError, EndpointError) as error:
                failed = error
                if isinstance(error, EndpointError) and not error.retryable:
                    break
            else:
                assert inner.parser is not None
                return (yield from self._continued(cut.reply, inner.parser.close()))
            if tries < _AGAIN:
                yield Sleep(self._pause(tries))
        yield Last([e for e in last if e not in before])
        raise cut from failed

    def _continued(self, old: Reply, new: Reply) -> Steps:
        note = Note(
            "again-whole",
            "stream.if_cut",
            "the stream was cut",
            "asked once more without streaming",
            self.plan.model.where("stream.if_cut"),
        )
        events: list[Event] = [NoteAdded(note)]
        events += continuing(old.reasoning, old.text, bool(old.incomplete), new)
        reply = replace(new, notes=[*new.notes, note])
        yield Last([*events, *ending(reply), Finished(reply.finish, reply.raw_finish)])
        return reply


def _closed(parser: StreamParser, *, broken: bool) -> Reply:
    """The reply of a stream. One that broke off before its first event is cut, too: an empty body is no refusal."""
    try:
        return parser.close()
    except EndpointError as error:
        if not broken or error.reply is None or parser._mode == "sse":
            raise
        raise StreamCut(
            "the connection broke off before the reply began",
            hint="try again",
            reply=replace(error.reply, finish="cut"),
        ) from None
