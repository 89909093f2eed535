"""Run one call as a generator: it yields effects for the client to perform, and receives their results.

Every decision of a call (retry, waiting, recovery of a cut stream) is made here and in `retry_policy`; `Client` and
`AsyncClient` only perform the effects (see `effects`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cnllm.engine.decode.parser import StreamParser
from cnllm.engine.decode.usual_reply import read_usual_reply
from cnllm.engine.encode import prefill
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run import corrections, retry_policy
from cnllm.engine.run.echo_search import (
    EchoFilter,
    dropped_note,
    echo_turns,
    join_steps,
    search_calls,
    unanswerable_calls,
    without_searches,
)
from cnllm.engine.run.effects import (
    DrainBody,
    Effect,
    FinalEvents,
    MayRepeat,
    Observed,
    Send,
    Sleep,
    Steps,
    map_events,
)
from cnllm.engine.run.response_body import is_stream, read_body, read_events
from cnllm.errors import CannotSend, CnllmError, EndpointError, IdleTimeout, ReplyTooLarge, StreamCut, TransportError
from cnllm.types import (
    BlockEnd,
    Cost,
    Event,
    Finished,
    Message,
    Note,
    NoteAdded,
    Reply,
    ToolCall,
    ToolCallEnd,
)
from cnllm.types.delivered import Delivered, corrected_events, final_events, is_verdict, text_events
from cnllm.types.policy import Retry, Timeouts
from cnllm.types.totals import with_costs

__all__ = ["Call"]

_MOST_SEARCHES = 10  # steps of one reply in which a search is handed to the client
_NO_ROOM = "the budget has no room for another request"
_DEFAULT_STREAM_RETRIES = 3  # whole calls after a cut stream, where the registry sets no number


class Call:
    """One call. `stream()` and `complete()` yield its steps; `parser` holds the reply so far.

    `named_model` is the model that the caller named, also where another one is asked.
    `replan` builds the plan again, with more messages. `is_nested`: the reply is a part of another call's, which checks
    it.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        retry: Retry,
        timeouts: Timeouts,
        replan: Callable[..., Plan],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = retry_policy.random,
        is_nested: bool = False,
    ) -> None:
        self.plan = plan
        self.named_model = plan.model
        self.parser: StreamParser | None = None
        self._retry = retry
        self._timeouts = timeouts
        self._replan = replan
        self._clock = clock
        self._chance = chance
        self._is_streamed = self._delivered = False  # the caller reads events; some were delivered
        self._is_nested = is_nested
        self._failed: list[Cost | None] = []  # the costs of attempts that failed and may be charged
        self._earlier: Reply | None = None  # the reply of the steps before this one
        self._searches_left = _MOST_SEARCHES
        self._step: Call | None = None  # the step after a search

    def possible_plans(self) -> list[Plan]:
        """Return the requests that the call may send, each of which may be charged."""
        return [self.plan]

    def partial_reply(self) -> Reply | None:
        """Return the reply as far as it was read, where nothing more will be read; None before the first byte."""
        if self._step is not None:
            return self._step.partial_reply()
        if self.parser is None:
            return self._earlier
        try:
            reply: Reply | None = self.parser.close_broken()
        except (StreamCut, EndpointError) as error:
            reply = error.reply
        if reply is None:
            return None
        reply = with_costs(reply, self._failed)
        return reply if self._earlier is None else join_steps(self._earlier, reply)

    # ── whole replies ────────────────────────────────────────────────────────

    def complete(self) -> Steps:
        """Return the reply in one piece, corrected where the plan says so."""
        if self.plan.stream:  # an endpoint that only streams is collected
            reply = yield from map_events(self._attempts(self._read), lambda _: [])
        else:
            reply = yield from self._attempts(self._read_whole)
        if self.plan.echo is not None:
            reply = yield from self._search(reply, self.plan.echo, None)
        if self.plan.answer is not None:
            reply = yield from corrections.correct_answer(self.plan, reply, self._ask_again)
        if grammars := corrections.plan_grammars(self.plan):
            reply = yield from self._check_inputs(reply, grammars)
        return reply

    def _attempts(self, read: Callable[[int, Mapping[str, str]], Steps]) -> Steps:
        """Send the request until a response comes, and return the reply that `read` makes of it.

        The reply has the costs of the attempts before it. Nothing is sent again once an event was delivered.
        """
        tries = 0
        try:
            while True:
                tries += 1
                head = yield Send(self.plan)
                try:
                    if isinstance(head, TransportError):
                        raise head
                    reply = yield from read(*head)
                    costs, self._failed = self._failed, []
                    return with_costs(reply, costs) if costs else reply
                except (EndpointError, TransportError) as error:
                    if self._delivered:
                        raise
                    yield Sleep(retry_policy.retry_delay(error, tries, self._retry, self._chance), error)
                    if error.costs and (yield MayRepeat()) is False:
                        raise
                    self._failed += error.costs
        except CnllmError as last_error:
            self.add_attempts(last_error)
            raise

    def add_attempts(self, error: CnllmError) -> None:
        """Add the costs of the attempts before it to the error of the call."""
        error.add_attempts(self._failed)
        self._failed = []

    def _read_whole(self, status: int, headers: Mapping[str, str]) -> Steps:
        """Read and parse a whole response; one that comes as a stream is collected."""
        body = yield from read_body(self.plan, status, self._timeouts.progress)
        if is_stream(status, body):
            return (yield from map_events(self._read(status, headers, body), lambda _: []))
        if (reply := read_usual_reply(self.plan, status, body)) is not None:
            return reply
        parser = self._open_parser(status, headers)
        parser.feed(body)
        return self._close(parser)

    def _open_parser(self, status: int, headers: Mapping[str, str]) -> StreamParser:
        """Return the parser of a response."""
        self.parser = StreamParser(self.plan.model, plan=self.plan, status=status, headers=headers)
        return self.parser

    def _close(self, parser: StreamParser) -> Reply:
        """Return the reply of a whole response; one that was cut where the plan keeps it."""
        try:
            return parser.close()
        except StreamCut as cut:
            if self.plan.if_cut != "keep" or cut.reply is None or isinstance(cut, ReplyTooLarge):
                raise
            return cut.reply

    # ── stream ───────────────────────────────────────────────────────────────

    def stream(self) -> Steps:
        """Return the reply and deliver its events; a plan that cannot be streamed is read whole.

        Each of the steps around the answer is there only where the plan needs it.
        """
        grammars = corrections.plan_grammars(self.plan) if self.plan.callable else {}
        return self._check_stream(self._answer(), grammars) if grammars else self._answer()

    def _answer(self) -> Steps:
        """Return the reply and deliver its events, without checks of inputs."""
        self._is_streamed = True
        steps = self._attempts(self._read if self.plan.stream else self._deliver_whole)
        if self.plan.echo is not None:
            steps = self._search_stream(steps, self.plan.echo)
        return self._correct_stream(steps) if self.plan.corrections and self.plan.answer is not None else steps

    def _check_stream(self, answer: Steps, grammars: corrections.Grammars) -> Steps:
        """Deliver calls whose input has to follow a grammar when they are judged."""
        buffer = corrections.HeldEvents(grammars)
        reply: Reply = yield from corrections.hold_events(answer, buffer)
        if not buffer.events:
            return reply
        judged = yield from self._check_inputs(reply, grammars)
        yield FinalEvents(buffer.after(reply, judged))
        return judged

    def _correct_stream(self, answer: Steps) -> Steps:
        """Correct an answer by a schema, whose end is held back until then."""
        final: list[Event] = []

        def without_verdicts(events: list[Event]) -> list[Event]:
            final.extend(event for event in events if is_verdict(event))
            return [event for event in events if not is_verdict(event)]

        reply = yield from map_events(answer, without_verdicts)
        corrected = yield from corrections.correct_answer(self.plan, reply, self._ask_again)
        yield FinalEvents(final if corrected is reply else corrected_events(reply, corrected, final))
        return corrected

    def _deliver_whole(self, status: int, headers: Mapping[str, str]) -> Steps:
        """Read a whole response and deliver its events."""
        body = yield from read_body(self.plan, status, self._timeouts.progress)
        if is_stream(status, body):
            return (yield from self._read(status, headers, body))
        parser = self._open_parser(status, headers)
        events = [*parser.feed(body), *parser.end()]
        try:
            reply = self._close(parser)
        except (EndpointError, StreamCut) as error:
            if isinstance(error, StreamCut) or (status < 300 and not error.retryable):
                yield self._last(events)
            raise
        yield self._last(events)
        return reply

    def _last(self, events: Sequence[Event]) -> FinalEvents:
        """Return the effect that delivers the last events of a response."""
        self._begin_delivery()
        return FinalEvents(events)

    def _read(self, status: int, headers: Mapping[str, str], begin: bytes = b"") -> Steps:
        """Read a stream and deliver its events. `begin` are the bytes of it that were read."""
        if status >= 300:
            return (yield from self._deliver_whole(status, headers))
        parser = self._open_parser(status, headers)
        last, error = yield from read_events(parser, begin, self._timeouts.progress, self._clock, self._begin_delivery)
        if error is not None and not self.plan.stream:
            error.began, error.retryable = True, False  # as for a whole body
        return (yield from self._end_stream(parser, last, error))

    def _begin_delivery(self) -> None:
        """Take note that events are delivered."""
        self._delivered = self._is_streamed

    def _end_stream(self, parser: StreamParser, last: list[Event], transport_error: TransportError | None) -> Steps:
        """End a stream: return the reply, raise its error, or recover it where it was cut."""
        try:
            reply = parser.close() if transport_error is None else parser.close_broken()
        except StreamCut as cut:
            last = [Finished("cut", e.raw) if type(e) is Finished else e for e in last]
            own = transport_error if isinstance(transport_error, IdleTimeout) or not self.plan.stream else None
            if own is not None:
                own.reply = cut.reply
            if self.plan.if_cut != "error":
                yield Observed("cut", str(transport_error or cut))
            if self.plan.if_cut == "again-whole" and self.plan.stream and not isinstance(cut, ReplyTooLarge):
                return (yield from self._retry_whole(last, cut))
            yield self._last(last)
            if self.plan.if_cut == "keep" and cut.reply is not None:
                return cut.reply
            if own is not None:
                raise own from cut
            raise cut from transport_error
        except EndpointError as error:
            if self._delivered or not error.retryable:
                yield self._last(last)
            raise
        yield self._last(last)
        if parser.done and transport_error is None:
            yield DrainBody()
        return reply

    # ── a search that is handed to the client ────────────────────────────────

    def _search_stream(self, answer: Steps, name: str) -> Steps:
        """Leave out the calls of a search, which are answered."""
        events = EchoFilter(name, self._earlier)
        reply = yield from map_events(answer, events.feed)
        return (yield from self._search(reply, name, events))

    def _search(self, reply: Reply, name: str, events: EchoFilter | None) -> Steps:
        """Return the reply after its searches, whose calls are answered with their arguments.

        `name` is that of the search, `events` the filter of a stream, which goes on; None for a whole reply.
        """
        obstacle = f"the reply ended with {reply.finish}"
        if calls := search_calls(reply, name):
            bare = without_searches(reply, name)
            if bare.tool_calls:
                obstacle = "the model called functions as well; it can search when it has their results"
            elif not self._searches_left:
                obstacle = "the limit of searches"
            elif (yield MayRepeat()) is False:
                obstacle = _NO_ROOM
            else:
                return (yield from self._after_search(reply, bare, calls, stream=events is not None))
        if calls := calls or unanswerable_calls(reply, name):
            note = dropped_note(calls, f"not run: {obstacle}")
            if events is not None:
                yield FinalEvents([NoteAdded(note)])
            reply = without_searches(reply, name)
            reply = replace(reply, notes=[*reply.notes, note])
        if self._earlier is not None:
            reply = join_steps(self._earlier, reply)
        if events is not None:
            yield FinalEvents(events.ending(reply))
        return reply

    def _after_search(self, reply: Reply, bare: Reply, calls: list[ToolCall], *, stream: bool) -> Steps:
        """Return the whole reply, whose next step has the results of the searches."""
        turns = echo_turns(reply, calls, self.plan)
        plan = replace(self._replan(*turns, stream=stream), corrections=0)
        nested = self._nested(plan, lambda *more, **over: self._replan(*turns, *more, **over), self._retry)
        nested._earlier = bare if self._earlier is None else join_steps(self._earlier, bare)
        nested._searches_left = self._searches_left - 1
        self._step = nested
        try:
            return (yield from nested._answer() if stream else nested.complete())
        except CnllmError as error:
            if nested._step is not None:  # the error has the steps before it
                raise
            if error.reply is None:
                error.add_attempts([nested._earlier.cost])
            else:
                error.reply = join_steps(nested._earlier, error.reply)
            raise

    # ── corrections ──────────────────────────────────────────────────────────

    def _check_inputs(self, reply: Reply, grammars: corrections.Grammars) -> Steps:
        """Return the reply, or the one with other calls after one with a wrong input was sent back."""
        if self._is_nested:
            return reply
        asks = self._ask_with_room if self.plan.corrects_inputs else None
        return (yield from corrections.check_inputs(reply, grammars, asks))

    def _ask_with_room(self, *turns: Message) -> Steps:
        """Return the reply to a nested call with the turns since. Raises `CnllmError` where a budget has no room."""
        if (yield MayRepeat()) is False:
            raise CnllmError(_NO_ROOM)
        return (yield from self._ask_again(*turns))

    def _ask_again(self, *turns: Message) -> Steps:
        """Return the reply to a nested call with the turns since."""
        return self._nested_call(self._retry, *turns).complete()

    def _nested_call(self, retry: Retry, *more: Message) -> Call:
        """Return a nested call: whole, with the messages since, and without corrections."""

        def replan(*later: Message, **over: Any) -> Plan:
            plan = replace(self._replan(*more, *later, **over), corrections=0)
            # A client's wish for any JSON object may go out as it is now: the words of a correction have JSON in them.
            return plan if plan.answer is not None else replace(plan, schema=self.plan.schema, answer=self.plan.answer)

        plan = replace(replan(), if_cut="error")  # where an endpoint only streams, this call may be cut as well
        return self._nested(plan, replan, retry)

    def _nested(self, plan: Plan, replan: Callable[..., Plan], retry: Retry) -> Call:
        """Return a call whose reply is a part of this one's."""
        return Call(
            plan,
            retry=retry,
            timeouts=self._timeouts,
            replan=replan,
            clock=self._clock,
            chance=self._chance,
            is_nested=True,
        )

    # ── recovery ─────────────────────────────────────────────────────────────

    def _retry_whole(self, last: list[Event], cut: StreamCut) -> Steps:
        """Repeat the call without streaming.

        Delivered text is not delivered again if the new reply continues it.
        """
        before = [e for e in last if not isinstance(e, BlockEnd | ToolCallEnd | Finished)]
        yield self._last(before)
        assert cut.reply is not None
        retry = replace(self._retry, attempts=1)
        last_error: CnllmError = cut
        before_cut = len(self._failed)
        self._failed.append(cut.reply.cost)
        if (whole := (yield from self._continue_by_prefill(cut.reply, retry))) is not None:
            return whole
        limit = _DEFAULT_STREAM_RETRIES if self.plan.recovery.streams is None else self.plan.recovery.streams
        for tries in range(1, limit + 1):
            # One more request is counted in the worst case. Those after it are not.
            if len(self._failed) > before_cut + 1 and (yield MayRepeat()) is False:
                break
            nested = self._nested_call(retry)
            try:
                reply = yield from nested.complete()
            except (StreamCut, TransportError, EndpointError) as error:
                last_error = error
                self._failed += error.costs
                if not retry_policy.may_recover(error):
                    break
            else:
                whole = reply if nested.parser is None else nested.parser.close()  # a usual reply needs no parser
                return (yield from self._deliver_recovered(cut.reply, whole))
            if tries < limit:
                yield Sleep(retry_policy.backoff(tries, self._retry, self._chance), last_error)
        yield FinalEvents([e for e in last if e not in before])
        del self._failed[before_cut]  # the error has it
        raise cut from last_error

    def _continue_by_prefill(self, old: Reply, retry: Retry) -> Generator[Effect, Any, Reply | None]:
        """Return the reply that the endpoint continued from its beginning; None where it must be requested anew."""
        if self.plan.prefill is None or self.plan.recovery.streams == 0:
            return None
        if (turn := prefill.prefill_turn(old)) is None:
            return None
        try:
            plan = replace(self._replan(turn, prefill=True), corrections=0, if_cut="error", prefill=None)
            rest = yield from self._nested(plan, self._replan, retry).complete()
        except (StreamCut, TransportError, EndpointError, CannotSend) as error:
            self._failed += error.costs
            return None
        self._failed.pop()  # the halves are joined
        reply = prefill.join_halves(old, rest)
        did = "continued from the text that had arrived; usage and cost are those of both requests"
        where = self.plan.model.where("messages.prefill")
        note = Note("reply-continued", "messages.prefill", "the stream was cut", did, where)
        reply = replace(reply, notes=[*reply.notes, note])
        events = [NoteAdded(note), *text_events(reply.reasoning, reply.text[len(old.text) :])]
        yield Observed("recovered")
        yield FinalEvents([*events, *final_events(reply)])
        return reply

    def _deliver_recovered(self, old: Reply, new: Reply) -> Steps:
        """Deliver the rest of a new reply, with the note on its recovery."""
        where = self.plan.model.where("stream.if_cut")
        note = Note("again-whole", "stream.if_cut", "the stream was cut", "repeated without streaming", where)
        reply = replace(new, notes=[*new.notes, note])
        yield Observed("recovered")
        yield FinalEvents([NoteAdded(note), *Delivered.of(old).remaining_events(new), *final_events(reply)])
        return reply
