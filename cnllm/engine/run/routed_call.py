"""Run one call on the targets of a route: the steps of `Call`, with a next target where one fails.

Before the first token the next target takes over. After it, a reply goes on only from the text that was delivered: by a
declared prefill, or from another target whose reply begins with the same text. Delivered text is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.engine.encode import prefill
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.call import Call
from cnllm.engine.run.effects import (
    Effect,
    FinalEvents,
    HideSecrets,
    HoldContent,
    MayRepeat,
    Send,
    SetReadDeadline,
    Sleep,
    Steps,
    UseTarget,
)
from cnllm.engine.run.retry_policy import CooldownState, context_obstacle, may_wait
from cnllm.engine.run.takeover import FirstToken, Follower, RepeatedStart
from cnllm.errors import (
    CannotSend,
    CnllmError,
    ContextTooLong,
    EndpointError,
    KeyMissing,
    NoTarget,
    StreamCut,
    Timeout,
    TransportError,
    Untrusted,
)
from cnllm.registry.model import Model
from cnllm.types import (
    TOKEN_EVENTS,
    BlockEnd,
    Cost,
    Event,
    Finished,
    Note,
    NoteAdded,
    Reply,
    Text,
    TextDelta,
    ToolCallEnd,
    Usage,
)
from cnllm.types.delivered import Diverged, final_events
from cnllm.types.totals import total_usage, with_costs

__all__ = ["RouteTarget", "RoutedCall"]

_CONTENT = (*TOKEN_EVENTS, ToolCallEnd)
_CLOSING = (Finished, BlockEnd, ToolCallEnd)
_FAILURES = (EndpointError, TransportError, StreamCut)
_TOLERANCE = 0.02  # seconds by which a timer may be early


class RouteTarget(Struct, frozen=True):
    """A target: its number in the list, its model, and why it cannot serve the request."""

    number: int
    model: Model
    obstacle: str | None = None

    @property
    def key(self) -> str:
        """Return what a cooldown is remembered by."""
        return f"{self.model.name} {self.model.flags.base_url or ''}"


class RoutedCall(Call):
    """One call on the targets of a route. `plan` is that of the target that is being asked.

    `open_call` builds the call of one target, or raises `KeyMissing`, `Untrusted` or `CannotSend`. `on_turn` gets the
    outcome of each target that was asked: its plan, its reply or error, and the seconds to the first token of a stream.
    """

    def __init__(
        self,
        targets: Sequence[RouteTarget],
        open_call: Callable[[RouteTarget, Sequence[Note]], Call],
        *,
        named_model: Model,
        first_token: float | None,
        cooldown: float,
        state: CooldownState,
        on_turn: Callable[[RouteTarget, Plan, Reply | CnllmError, float | None], None] | None = None,
    ) -> None:
        self.named_model = named_model
        self._on_turn = on_turn
        self._first_token_seconds: float | None = None  # of the current target
        self._open_call = open_call
        self._first_token_limit = first_token
        self._cooldown = cooldown
        self._state = state
        self._queue = [target for target in targets if target.obstacle is None]
        self._cooling: list[RouteTarget] = []  # tried last
        self._reasons: dict[str, str] = {}  # target → why it did not answer
        self._refusal: CnllmError | None = None  # why the first of those that could not be asked was not
        self._notes: list[Note] = []
        self._errors: list[CnllmError] = []
        self._costs: list[tuple[CnllmError | None, Sequence[Cost | None]]] = []  # of failed attempts; None is unknown
        self._partial: Reply | None = None  # the first part of a reply that another call continues
        self._joined_errors: list[CnllmError] = []  # those whose replies are in it
        self._has_content = False  # whether content was delivered
        self._texts: list[str] = []
        self._closing: list[Event] = []
        self._new_notes: Sequence[Note] = ()  # they go out with the first content
        for target in targets:
            if target.obstacle is not None:
                self._pass_over(target, target.obstacle)
        if not self._advance():
            raise self._no_target()

    def possible_plans(self) -> list[Plan]:
        """Return the requests to all targets that may be asked, that of the current one first."""
        plans = [self.plan]
        for target in (*self._queue, *self._cooling):
            with suppress(KeyMissing, Untrusted, CannotSend):  # it is passed over
                plans.append(self._open_call(target, ()).plan)
        return plans

    def partial_reply(self) -> Reply | None:
        """Return the reply as far as it was read."""
        reply = rest = self._call.partial_reply()
        if self._partial is None or rest is None:
            reply = self._partial or rest
        else:
            reply = prefill.join_halves(self._partial, rest)
        return None if reply is None else with_costs(reply, self._other_costs(*self._joined_errors))

    def complete(self) -> Steps:
        """Return the reply in one piece."""
        return self._run(streams=False)

    def stream(self) -> Steps:
        """Return the reply and deliver its events."""
        return self._run(streams=True)

    # ── targets ──────────────────────────────────────────────────────────────

    def _advance(self) -> bool:
        """Open the next target that can be tried. Whether there is one."""
        while self._queue or self._cooling:
            if not self._queue:
                target = self._cooling.pop(0)
            elif self._state.acquire((target := self._queue.pop(0)).key):
                pass
            else:
                self._pass_over(target, "it failed a short time ago")
                self._cooling.append(target)
                continue
            if self._prepare(target):
                return True
        return False

    def _prepare(self, target: RouteTarget) -> bool:
        """Open the call of a target. Whether it could be opened."""
        try:
            call = self._open_call(target, tuple(self._notes))
        except (KeyMissing, Untrusted, CannotSend) as error:
            self._pass_over(target, _obstacle(error))
            self._refusal = self._refusal or error
            return False
        self._target, self._call, self.plan = target, call, call.plan
        return True

    def _pass_over(self, target: RouteTarget, reason: str) -> None:
        self._reasons.setdefault(target.model.name, reason)
        self._notes.append(Note("target-passed-over", "route", target.model.name, reason))

    def _record(self, error: CnllmError) -> bool:
        """Keep the failure of the current target. Whether another target may succeed."""
        meaning = error.meaning
        if self._on_turn is not None:
            self._on_turn(self._target, self.plan, error, None)
        name = self._target.model.name
        self._reasons[name] = _reason(error)
        self._errors.append(error)
        if meaning.cools:
            self._state.fail(self._target.key, max(self._cooldown, error.retry_after or 0.0) if self._cooldown else 0.0)
        else:
            self._state.succeed(self._target.key)  # it answered
        self._costs.append((error, error.costs))
        if isinstance(error, ContextTooLong):
            self._drop_small_windows(self._target.model)
        return meaning.elsewhere is True

    def _drop_small_windows(self, failed: Model) -> None:
        for targets in (self._queue, self._cooling):
            for target in list(targets):
                if (reason := context_obstacle(target.model, failed)) is not None:
                    targets.remove(target)
                    self._pass_over(target, reason)

    def _other_costs(self, *errors: CnllmError) -> list[Cost | None]:
        """Return the costs of the failed attempts without those of some errors."""
        return [cost for error, costs in self._costs if error not in errors for cost in costs]

    def _no_target(self) -> CnllmError:
        """Return the error of a route whose targets all failed: the first one that was asked names the cause."""
        reasons = tuple(self._reasons.items())
        if not self._errors:
            message = f"no target can take this request: {self._listing()}"
            none = NoTarget(message, targets=reasons, hint=self._refusal.hint if self._refusal is not None else None)
            none.__cause__ = self._refusal
            return none
        error = self._errors[0]
        error.add_attempts(self._other_costs(error))
        error.targets = reasons
        if len(reasons) > 1:
            error.hint = f"every target was tried: {self._listing()}"
        return error

    # ── before the first token ───────────────────────────────────────────────

    def _run(self, *, streams: bool) -> Steps:
        while True:
            yield from self._use_target()
            self._closing = []
            self._texts = []
            try:
                steps = self._call.stream() if streams else self._call.complete()
                reply = yield from self._attempt(steps, streams=streams)
            except _FAILURES as error:
                elsewhere = self._record(error)
                if self._has_content:
                    return (yield from self._continue_reply(error, elsewhere=elsewhere))
                failed = self._target.model.name
                if not elsewhere:
                    error.add_attempts(self._other_costs(error))
                    raise
                if not self._advance():
                    raise self._no_target() from error
                self._take_note(failed, error)
                continue
            if self._closing:
                yield FinalEvents(self._closing)
            return self._add_cost(reply)

    def _use_target(self) -> Generator[Effect, Any, None]:
        """Send the next requests to the current target."""
        if events := (yield UseTarget(self._target.number, self.plan)):
            yield FinalEvents(events)

    def _take_note(self, failed: str, error: CnllmError) -> None:
        """Put into the plan of the target that takes over why it does."""
        note = Note("target-failed", "route", f"{failed}: {_reason(error)}", f"{self._target.model.name} took over")
        self._notes.append(note)
        self.plan = self._call.plan = replace(self._call.plan, notes=[*self._call.plan.notes, note])
        self._new_notes = [note]

    def _add_cost(self, reply: Reply) -> Reply:
        """Return the reply with what the failed attempts cost, where that is known."""
        self._state.succeed(self._target.key)
        if self._on_turn is not None:
            self._on_turn(self._target, self.plan, reply, self._first_token_seconds)
        failed = [error.reply for error in self._errors if error.reply is not None and error.reply.usage != Usage()]
        if failed:
            reply = replace(reply, usage=total_usage([*failed, reply]))
        return with_costs(reply, self._other_costs())

    def _attempt(self, steps: Steps, *, streams: bool) -> Steps:
        """Carry out the steps of one target, up to its reply."""
        has_others = bool(self._queue or self._cooling)
        wait = FirstToken(self._first_token_limit)
        if not (streams and has_others) or self._has_content:
            wait.limit = None
        retries, answer = 0, None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as stop:
                if wait.held:
                    yield FinalEvents(wait.held)
                return stop.value  # type: ignore[no-any-return]
            kind = type(effect)
            if streams and isinstance(effect, list):
                answer = yield from self._deliver(effect, steps, wait, may_fail_over=has_others)
            elif kind is Send and wait.limit is not None:
                answer = yield Send(wait.limit_plan(effect.plan))
                if isinstance(answer, tuple) and answer[0] < 300:
                    wait.has_deadline = True
                    yield SetReadDeadline(max(wait.remaining(), 0.001))
            elif kind is HoldContent:  # the target answers in time
                wait.limit, answer = None, None
                if wait.has_deadline:
                    yield SetReadDeadline(None)
            else:
                if kind is Sleep:
                    if effect.error is not None and not may_wait(effect.error, effect.seconds, retries):
                        steps.close()
                        raise self._add_cost_to_error(effect.error)
                    retries += 1
                    wait.begin += effect.seconds
                answer = yield effect

    def _deliver(
        self, events: list[Event], steps: Steps, wait: FirstToken, *, may_fail_over: bool
    ) -> Generator[Effect, Any, Any]:
        """Deliver events of the current target. Those before the first content go out with it.

        Raises `StreamCut` where a chunk was damaged and another target can go on, `Timeout` where no content came.
        """
        is_final = type(events) is FinalEvents
        damage = _damage_at(events) if may_fail_over else None
        events = events[:damage]
        if not self._has_content:
            wait.held += events
            events = []
            if any(isinstance(event, _CONTENT) for event in wait.held):
                self._has_content = True
                self._first_token_seconds = wait.seconds()
                events, wait.held = [*(NoteAdded(n) for n in self._new_notes), *wait.held], []
                if wait.has_deadline:
                    yield SetReadDeadline(None)
        self._texts += [e.text for e in events if type(e) is TextDelta]
        if damage is not None:
            steps.close()
            if self._has_content:
                yield FinalEvents(events)
            cut = StreamCut("a chunk of the stream cannot be read", reply=self._delivered_reply())
            raise self._add_cost_to_error(cut)
        if is_final:
            yield FinalEvents([*self._closing, *(e for e in events if not isinstance(e, _CLOSING))])
            self._closing = [e for e in events if isinstance(e, _CLOSING)]
            return None
        answer = yield events
        if wait.limit is not None and not self._has_content and wait.remaining() <= _TOLERANCE:
            steps.close()
            raise self._add_cost_to_error(Timeout(f"no token came within {wait.limit:g} s"))
        return answer

    def _add_cost_to_error(self, error: CnllmError) -> CnllmError:
        """Return an error of the current target with the costs of its earlier attempts."""
        self._call.add_attempts(error)
        return error

    def _delivered_reply(self) -> Reply | None:
        """Return the reply as far as it can be trusted, where a chunk of its stream was damaged."""
        reply = self._call.partial_reply()
        if reply is None:
            return None
        text = "".join(self._texts)
        parts = tuple(part for part in reply.message.parts if type(part) is not Text)
        message = replace(reply.message, parts=(*parts, Text(text)) if text else parts)
        return replace(reply, text=text, message=message, finish="cut", raw_finish=None)

    # ── after the first token ────────────────────────────────────────────────

    def _continue_reply(self, error: CnllmError, *, elsewhere: bool) -> Steps:
        """Return the reply that goes on from the delivered text. Raise the error where none does."""
        closing, partial = self._closing, error.reply
        if elsewhere and partial is not None and prefill.prefill_turn(partial) is not None:
            self._partial = partial
            self._joined_errors = [error]
            failed, broken = self._target.model.name, self._call.plan
            reply = None
            if broken.prefill is not None:
                reply = yield from self._prefill_reply(self._partial)
            # A target may have delivered more text before it failed, too: the next one goes on from there.
            while reply is None and prefill.prefill_turn(self._partial) is not None and self._advance():
                self._partial = (yield HideSecrets(self._partial)) or self._partial
                yield from self._use_target()
                if self.plan.prefill is not None:
                    reply = yield from self._prefill_reply(self._partial)
                else:
                    reply = yield from self._follow(self._call.plan, Follower(self._partial.text))
            if reply is not None:
                return reply
            self.plan = broken
            error.hint = f"{failed} broke off, and no other target could go on: {self._listing()}"
        error.reply = self._partial or partial
        error.add_attempts(self._other_costs(error, *self._joined_errors))
        error.targets = tuple(self._reasons.items())
        yield FinalEvents(closing)
        raise error

    def _listing(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._reasons.items())

    def _prefill_reply(self, partial: Reply) -> Generator[Effect, Any, Reply | None]:
        """Let the current target go on from the beginning of the reply; return the whole reply, None if it did not."""
        turn = prefill.prefill_turn(partial)
        assert turn is not None
        try:
            plan = self._call._replan(turn, prefill=True, stream=True)
        except CannotSend as error:
            self._reasons[self._target.model.name] = error.message
            return None
        if (yield MayRepeat()) is False:
            return None
        return (yield from self._follow(plan, RepeatedStart(partial.text)))

    def _follow(self, plan: Plan, texts: Follower | RepeatedStart) -> Generator[Effect, Any, Reply | None]:
        """Carry out a call that goes on from the delivered text; return the whole reply, None if it did not."""
        assert self._partial is not None
        before, call = self._partial, self._call
        plan = replace(plan, corrections=0, if_cut="error", prefill=None)
        self._call = Call(plan, retry=call._retry, timeouts=plan.timeouts, replan=call._replan)
        self.plan = plan
        steps, answer, retries = self._call.stream(), None, 0
        calls: list[Event] = []
        delivered = False
        try:
            while True:
                try:
                    effect = steps.send(answer)
                except StopIteration as stop:
                    reply: Reply = stop.value
                    break
                if isinstance(effect, list):
                    events = texts.feed(effect)
                    calls += [event for event in events if type(event) is ToolCallEnd]
                    passed = [e for e in events if isinstance(e, _CONTENT) and type(e) is not ToolCallEnd]
                    delivered = delivered or bool(passed)
                    effect = type(effect)(passed)
                elif type(effect) is Sleep and effect.error is not None:
                    if not may_wait(effect.error, effect.seconds, retries):
                        raise self._add_cost_to_error(effect.error)
                    retries += 1
                answer = yield effect
            rest = texts.end()
        except Diverged:
            steps.close()
            other = self._call.partial_reply()
            self._costs.append((None, [None if other is None else other.cost]))
            self._reasons[self._target.model.name] = "its reply is another one"
            return None
        except _FAILURES as error:
            steps.close()
            self._record(error)
            if delivered and error.reply is not None:
                self._partial = texts.join(before, error.reply)
                self._joined_errors.append(error)
            return None
        did = f"{self._target.model.name} went on from the text that had arrived; usage and cost are those of both"
        note = Note("target-continued", texts.flag, "the stream was cut", did)
        whole = with_costs(texts.join(before, reply), self._other_costs(*self._joined_errors))
        more = [*(n for n in whole.notes if n not in before.notes), note]
        whole = replace(whole, notes=[*before.notes, *more])
        self._state.succeed(self._target.key)
        closing = (event for event in final_events(whole) if not isinstance(event, _CONTENT))
        yield FinalEvents([NoteAdded(note), *rest, *calls, *closing])
        return whole


def _obstacle(error: CnllmError) -> str:
    """Return why a target cannot be asked."""
    if isinstance(error, KeyMissing):
        return f"{error.env[0]} is not set" if error.env else "it has no key"
    return "its key is not trusted with its address" if isinstance(error, Untrusted) else error.message


def _reason(error: CnllmError) -> str:
    """Return a failure in a few words."""
    kind = type(error).__name__
    status = f"{error.status} " if isinstance(error, EndpointError) else ""
    return f"{kind}: {status}{error.message}"


def _damage_at(events: Sequence[Event]) -> int | None:
    """Return where a batch of events is no longer whole; None where it is."""
    places = (i for i, e in enumerate(events) if type(e) is NoteAdded and e.note.code == "unreadable-chunk")
    return next(places, None)
