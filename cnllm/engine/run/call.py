"""A call as a generator: it yields what is to be done in the world and is sent what came of it.

Everything that is decided about a call (retry, waiting, recovery of a cut stream) is here, once; `Client` and
`AsyncClient` only do what is yielded:

    Send(plan)      → (status, headers), or the TransportError that happened
    ReadAll(most)   → (the rest of the body, no more than a piece beyond that many bytes, the TransportError that ended
                      it or None)
    Hurry(seconds)  → None; from now on reading ends after so many seconds
    Drain()         → None; the rest of the body is of no interest, but a connection read to its end can be used again
    Sleep(seconds)  → None; `why` it is tried again after that
    Saw(what)       → None; something that nobody has to do anything about: a stream was "cut", then "recovered"
    a list          → deliver these events, then read on: bytes, None at the end, or the TransportError
    a Last          → deliver these events, nothing else
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.decode.parser import StreamParser
from cnllm.engine.encode import prefill
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run import corrections
from cnllm.engine.run.continuation import remaining_events
from cnllm.engine.run.endings import corrected_events, final_events, is_verdict
from cnllm.errors import CannotSend, CnllmError, EndpointError, IdleTimeout, ReplyTooLarge, StreamCut, TransportError
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Message,
    Note,
    NoteAdded,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCallEnd,
)
from cnllm.types.policy import Retry, Timeouts

__all__ = ["Call", "DrainBody", "FinalEvents", "Observed", "ReadBody", "Send", "SetReadDeadline", "Sleep"]

_LATE = 2.0  # seconds in which usage may follow a finish
_AGAIN = 3  # whole calls after a cut stream, where the registry says nothing

Effect = Any  # one of the structs below, or a list of events
Steps = Generator[Effect, Any, Reply]


class Send(Struct, frozen=True):
    """Send a request and wait for the status line."""

    plan: Plan


class ReadBody(Struct, frozen=True):
    """Read the rest of the body, and no more than a piece beyond `most` bytes of it: the parser tells that."""

    most: int


class SetReadDeadline(Struct, frozen=True):
    """Let reading end, as if the stream did, after so many seconds."""

    seconds: float


class DrainBody(Struct, frozen=True):
    """Read what is left of the body, if it is there."""


class Sleep(Struct, frozen=True):
    """Wait, then try again what failed with `why`."""

    seconds: float
    why: CnllmError | None = None


class Observed(Struct, frozen=True):
    """Something happened that is worth knowing."""

    what: Literal["cut", "recovered"]
    why: str = ""


class FinalEvents(list[Event]):
    """Events to deliver without reading on."""


class Call:
    """One call. `stream()` and `whole()` are its steps; `parser` is what is being read, for a look in the middle."""

    def __init__(
        self,
        plan: Plan,
        *,
        retry: Retry,
        timeouts: Timeouts,
        again: Callable[..., Plan],
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

    def partial_reply(self) -> Reply | None:
        """What has been read; nothing more is going to be."""
        if self.parser is None:
            return None
        try:
            return _closed(self.parser, broken=True)
        except (StreamCut, EndpointError) as error:
            return error.reply

    # ── whole ────────────────────────────────────────────────────────────────

    def complete(self) -> Steps:
        """The reply in one piece, corrected where the plan says so."""
        return (yield from self._corrected((yield from self._whole())))

    def _whole(self) -> Steps:
        if self.plan.stream:  # an endpoint that only streams: collect
            steps = self._stream()
            sent: Any = None
            while True:
                try:
                    effect = steps.send(sent)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                sent = yield [] if type(effect) is list else FinalEvents() if type(effect) is FinalEvents else effect
        tries = 0
        while True:
            tries += 1
            head = yield Send(self.plan)
            error: CnllmError
            if isinstance(head, TransportError):
                error = head
            else:
                status, headers = head
                body = yield from self._rest(status)
                try:
                    return self._parsed(status, headers, body)
                except EndpointError as failed:
                    error = failed
            yield Sleep(self._wait(error, tries), error)

    def _rest(self, status: int) -> Generator[Effect, Any, bytes]:
        """The rest of a body. A refusal stands though its words broke off; silence in the middle is told as such."""
        body: bytes
        body, broken = yield ReadBody(self.plan.limits.reply)
        if broken is not None and (status < 300 or isinstance(broken, IdleTimeout)):
            broken.began = True
            raise broken
        return body

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
        if not self.plan.corrections or self.plan.answer is None:
            return (yield from self._stream())
        held: list[Event] = []  # the end, which is none if the answer is to be corrected
        steps, sent = self._stream(), None
        while True:
            try:
                effect = steps.send(sent)
            except StopIteration as stop:
                reply: Reply = stop.value
                break
            if isinstance(effect, list):
                held += [event for event in effect if is_verdict(event)]
                effect = type(effect)(event for event in effect if not is_verdict(event))
            sent = yield effect
        corrected = yield from self._corrected(reply)
        if corrected is reply:
            yield FinalEvents(held)
        else:
            yield FinalEvents(corrected_events(reply, corrected, held))
        return corrected

    def _stream(self) -> Steps:
        tries = 0
        while True:
            tries += 1
            head = yield Send(self.plan)
            try:
                if isinstance(head, TransportError):
                    raise head
                status, headers = head
                if status >= 300 or not self.plan.stream:
                    try:
                        body = yield from self._rest(status)
                    except TransportError:
                        tries = self._retry.attempts
                        raise
                    return (yield from self._deliver_whole(status, headers, body))
                return (yield from self._read(status, headers))
            except (EndpointError, TransportError) as error:
                if self._delivered:
                    raise
                yield Sleep(self._wait(error, tries), error)

    def _deliver_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> Steps:
        self.parser = parser = StreamParser(self.plan.model, plan=self.plan, status=status, headers=headers)
        events = [*parser.feed(body), *parser.end()]
        try:
            reply = parser.close()
        except EndpointError as error:
            if status < 300 and not error.retryable:
                self._delivered = True
                yield FinalEvents(events)
            raise
        self._delivered = True
        yield FinalEvents(events)
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
                yield SetReadDeadline(_LATE)
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
            if self.plan.if_cut != "error":
                yield Observed("cut", str(broken or cut))
            if self.plan.if_cut == "again-whole" and not isinstance(cut, ReplyTooLarge):
                return (yield from self._once_more(parser, last, cut, broken))
            self._delivered = True
            yield FinalEvents(last)
            if self.plan.if_cut == "keep" and cut.reply is not None:
                return cut.reply
            if isinstance(broken, IdleTimeout):
                raise broken from cut
            raise cut from broken
        except EndpointError as error:
            if self._delivered or not error.retryable:
                self._delivered = True
                yield FinalEvents(last)
            raise
        self._delivered = True
        yield FinalEvents(last)
        if parser.done and broken is None:
            yield DrainBody()
        return reply

    # ── corrections ──────────────────────────────────────────────────────────

    def _corrected(self, reply: Reply) -> Steps:
        """The reply, or the one that came of sending an invalid answer back. That is asked for whole."""
        if self.plan.answer is None:
            return reply
        turns: list[Message] = []
        most = self.plan.corrections
        for nth in range(1, most + 1):
            words = corrections.validation_error(reply)
            if words is None:
                break
            turns += corrections.correction_turns(self.plan, reply, words)
            try:
                found = yield from self._inner(self._retry, *turns).complete()
            except CnllmError as error:  # what came before is whole, and paid for
                return corrections.correction_failed(reply, words, str(error))
            if found.finish not in ("stop", "tool_calls"):
                return corrections.correction_failed(reply, words, f"it ended with {found.finish}")
            reply = corrections.add_usage(reply, found, words, nth, most)
        return reply

    def _inner(self, retry: Retry, *more: Message) -> Call:
        """A call within this one: whole, with what was said since, and with no second thoughts of its own."""

        def again(*further: Message) -> Plan:
            return replace(self._again(*more, *further), corrections=0)

        return Call(
            replace(again(), if_cut="error"),  # where an endpoint only streams, this one may be cut as well
            retry=retry,
            timeouts=self._timeouts,
            again=again,
            clock=self._clock,
            chance=self._chance,
        )

    # ── recovery ─────────────────────────────────────────────────────────────

    def _once_more(
        self, parser: StreamParser, last: list[Event], cut: StreamCut, broken: TransportError | None
    ) -> Steps:
        """The call once more, whole; what was delivered is not delivered again if the new reply continues it."""
        before = [e for e in last if not isinstance(e, BlockEnd | ToolCallEnd | Finished)]
        self._delivered = True
        yield FinalEvents(before)
        assert cut.reply is not None
        once = replace(self._retry, attempts=1)
        failed: CnllmError = cut
        if (whole := (yield from self._prefilled(cut.reply, once))) is not None:
            return whole
        most = _AGAIN if self.plan.recovery.streams is None else self.plan.recovery.streams
        for tries in range(1, most + 1):
            inner = self._inner(once)
            try:
                yield from inner.complete()
            except (StreamCut, TransportError, EndpointError) as error:
                failed = error
                if not _may_go_again(error):
                    break
            else:
                assert inner.parser is not None
                return (yield from self._continued(cut.reply, inner.parser.close()))
            if tries < most:
                yield Sleep(self._pause(tries), failed)
        yield FinalEvents([e for e in last if e not in before])
        raise cut from failed

    def _prefilled(self, old: Reply, once: Retry) -> Generator[Effect, Any, Reply | None]:
        """The reply with what the endpoint adds to its beginning; None where it is to be asked for anew."""
        if self.plan.prefill is None or self.plan.recovery.streams == 0:
            return None
        if (turn := prefill.prefill_turn(old)) is None:
            return None
        try:
            plan = replace(self._again(turn, prefill=True), corrections=0, if_cut="error", prefill=None)
            inner = Call(
                plan, retry=once, timeouts=self._timeouts, again=self._again, clock=self._clock, chance=self._chance
            )
            more = yield from inner.complete()
        except (StreamCut, TransportError, EndpointError, CannotSend):
            return None
        reply = prefill.join_replies(old, more)
        note = Note(
            "reply-continued",
            "messages.prefill",
            "the stream was cut",
            "continued from what had come; usage and cost are those of both requests",
            self.plan.model.where("messages.prefill"),
        )
        reply = replace(reply, notes=[*reply.notes, note])
        events: list[Event] = [NoteAdded(note)]
        events += [ReasoningDelta(reply.reasoning)] if reply.reasoning else []
        events += [TextDelta(rest)] if (rest := reply.text[len(old.text) :]) else []
        yield Observed("recovered")
        yield FinalEvents([*events, *final_events(reply)])
        return reply

    def _continued(self, old: Reply, new: Reply) -> Steps:
        note = Note(
            "again-whole",
            "stream.if_cut",
            "the stream was cut",
            "asked once more without streaming",
            self.plan.model.where("stream.if_cut"),
        )
        events: list[Event] = [NoteAdded(note)]
        events += remaining_events(old.reasoning, old.text, bool(old.incomplete), new)
        reply = replace(new, notes=[*new.notes, note])
        yield Observed("recovered")
        yield FinalEvents([*events, *final_events(reply)])
        return reply


def _may_go_again(error: CnllmError) -> bool:
    """Whether a request may go out once more that is sent to recover a cut stream.

    A reply that broke off is what is being recovered from. Of other failures only those are tried again after which
    the request cannot have been served.
    """
    if isinstance(error, EndpointError | TransportError):
        return error.retryable or (isinstance(error, TransportError) and error.began)
    return isinstance(error, StreamCut)


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
