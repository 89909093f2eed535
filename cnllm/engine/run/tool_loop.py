"""A tool loop as a generator: it yields what is to be done in the world and is sent what came of it.

Everything that is decided about a loop is here, once; `Run` and `AsyncRun` only do what is yielded:

    Ask(messages, …)  → the Reply, the error that the call ended with, or None where the run was cancelled meanwhile
    Approve(call)     → whether a call may be executed: True, False, or why not
    Execute(calls)    → None; what came was put into `results` at the place of its call, what never came is None
    Report(step)      → None
    a list            → None; deliver these events

While a call is being made, its events are delivered as they come, each told to `Loop.saw`, but for `Finished`: what a
step ends with is known when it has been checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.history import repair
from cnllm.engine.run import continuation
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep, Step, Stopped
from cnllm.engine.run.endings import closing_events
from cnllm.errors import CnllmError
from cnllm.leaks.script import fallback
from cnllm.types import (
    Event,
    Finished,
    Message,
    Note,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    RunSummary,
    Text,
    TextDelta,
    ToolCall,
    ToolCallStart,
    ToolResult,
    Usage,
)
from cnllm.types.policy import Recovery

__all__ = ["Loop"]

CANCELLED = "cancelled before it gave a result"


_USUAL = Recovery(steps=3, streams=3, resume=True, cycle=3)  # of a registry that says nothing
Steps = Generator[Any, Any, Any]


class Loop:
    """One loop: `effects()` are its steps, the rest is what has come of them so far.

    `meant` makes of a call what is checked and executed; `refuse` says what is wrong with that, None where it can be
    executed; `unjudged` what it is not checked for; `approves` whether someone is asked before; `forced` is a choice
    of tools that holds for the first step alone; `again` whether a step that broke off is taken again. `plan` is the
    request that was sent last; it says what is tried where a step breaks off.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        meant: Callable[[ToolCall], ToolCall],
        refuse: Callable[[ToolCall], str | None],
        unjudged: Callable[[ToolCall], Sequence[str]] = lambda call: (),
        stream: bool,
        max_steps: int,
        max_repeats: int | None,
        approves: bool,
        forced: str | None,
        again: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.history, self._made_up = repair.settle_calls(messages)
        self.steps: list[Step] = []
        self.reply: Reply | None = None
        self.stopped: Stopped | None = None
        self.cancelled = False
        self.plan: Plan | None = None
        self._meant = meant
        self._refuse = refuse
        self._unjudged = unjudged
        self._stream = stream
        self._max_steps = max_steps
        self._max_repeats = max_repeats
        self._approves = approves
        self._forced = forced
        self._again = again
        self._clock = clock
        self._notes: list[Note] = []
        self._resumed = False
        self._used = {call.id for message in self.history for call in message.tool_calls}
        self._said: dict[type, list[str]] = {TextDelta: [], ReasoningDelta: []}
        self._begun = False

    @property
    def messages(self) -> list[Message]:
        """The conversation, at any time with a result for every call."""
        return repair.settle_calls(self.history)[0]

    @property
    def recovery(self) -> Recovery:
        """What is tried where a reply breaks off, as the request says that was sent last."""
        return (Recovery() if self.plan is None else self.plan.recovery).with_defaults(_USUAL)

    @property
    def calls(self) -> int:
        """How many calls the model made."""
        return sum(step.called for step in self.steps)

    @property
    def returned(self) -> int:
        """How many of them gave a result that is no error."""
        return sum(step.returned for step in self.steps)

    @property
    def fallback(self) -> bool:
        """Whether a sentence stands in place of an answer, or the model had to be asked to go on."""
        return self._resumed or any(_is_fallback(step.reply) for step in self.steps)

    def _summary(self, stopped: Stopped) -> RunSummary:
        return RunSummary(
            stopped=stopped,
            steps=len(self.steps),
            calls=self.calls,
            returned=self.returned,
            fallback=self.fallback,
        )

    def observe(self, event: Event) -> None:
        """An event of the model's call was delivered."""
        kind = type(event)
        if kind is TextDelta or kind is ReasoningDelta:
            self._said[kind].append(event.text)  # type: ignore[union-attr]
        elif kind is ToolCallStart:
            self._begun = True
        elif kind is Restarted:
            self._forget()

    def _forget(self) -> None:
        self._said[TextDelta].clear()
        self._said[ReasoningDelta].clear()
        self._begun = False

    def effects(self) -> Steps:
        """See the module."""
        try:
            while self.stopped is None and not self.cancelled:
                yield from self._step()
        finally:
            self.end()

    def end(self) -> None:
        """No more is going to be done; of a reply that was being read, what was delivered is kept."""
        if self.stopped is not None:
            return
        thought, text = self._delivered()
        if thought or text:
            parts: list[Part] = [Reasoning(thought)] if thought else []
            parts += [Text(text)] if text else []
            turn = Message("assistant", parts, by=None if self.plan is None else self.plan.model.name)
            self.reply = Reply(
                text=text,
                reasoning=thought,
                tool_calls=[],
                finish="cut",
                raw_finish=None,
                usage=Usage(),
                cost=None,
                model=None,
                id=None,
                notes=[] if self.plan is None else self.plan.notes,
                message=turn,
                incomplete=[],
            )
            self._keep(turn)
        self.stopped = "cancelled" if self.cancelled else "error"

    def _delivered(self) -> tuple[str, str]:
        return "".join(self._said[ReasoningDelta]), "".join(self._said[TextDelta])

    def _keep(self, turn: Message) -> None:
        if any(map(repair.has_content, turn.parts)):
            self.history.append(turn)

    # ── a step ───────────────────────────────────────────────────────────────

    def _step(self) -> Steps:
        began = self._clock()
        self._notes = []
        if not self.steps and self._made_up:
            self._note("call-unanswered", "messages", f"{self._made_up} calls without a result", repair.INTERRUPTED)
        if self._forced and len(self.steps) == 1:
            self._note("tool-choice", "tool_choice", self._forced, "auto: the first step has called")
        reply = yield from self._reply()
        if reply is None:
            return
        self._forget()
        reply = self.reply = continuation.unique_call_ids(reply, self._used)
        self._keep(reply.message)
        late = self._may_be_last(reply)
        if self._stream and not late:
            yield [Finished(reply.finish, reply.raw_finish)]
        results: tuple[ToolResult, ...] = ()
        if reply.tool_calls:
            results = yield from self._results(reply)
        step = Step(
            number=len(self.steps) + 1,
            reply=reply,
            calls=tuple(reply.tool_calls),
            results=results,
            seconds=self._clock() - began,
            notes=tuple(self._notes),
        )
        self.steps.append(step)
        if not self.cancelled:
            self.stopped = self._verdict(reply)
            if self.stopped is not None:
                step = self.steps[-1] = replace(step, run=self._summary(self.stopped))
            if self._stream and late:
                yield [Finished(reply.finish, reply.raw_finish, UNSET if step.run is None else step.run)]
        yield ReportStep(step)

    def _may_be_last(self, reply: Reply) -> bool:
        """Whether the run may end with this step: its `Finished` then waits for the results, for it sums them up."""
        if not reply.tool_calls or reply.finish in ("content_filter", "cut") or len(self.steps) + 1 >= self._max_steps:
            return True
        if not self._max_repeats:
            return False
        steps = [(step.calls, None) for step in self.steps]
        return continuation.is_repeating([*steps, (reply.tool_calls, None)], self._max_repeats, self._cycle)

    def _verdict(self, reply: Reply) -> Stopped | None:
        """Why it ends here, if it does."""
        if reply.finish in ("content_filter", "cut"):
            return reply.finish
        if not reply.tool_calls:
            if reply.finish == "length":
                return "length"
            return "incomplete" if continuation.has_lost_calls(reply) and not reply.text.strip() else "done"
        made = [(step.calls, step.results) for step in self.steps]
        if self._max_repeats and continuation.is_repeating(made, self._max_repeats, self._cycle):
            return "repeated"
        return "max_steps" if len(self.steps) >= self._max_steps else None

    @property
    def _cycle(self) -> int:
        return self.recovery.cycle or 1

    def _note(self, code: str, flag: str, said: str, did: str, where: str = "") -> None:
        self._notes.append(Note(code, flag, said, did, where))

    # ── the model's part ─────────────────────────────────────────────────────

    def _reply(self) -> Generator[Any, Any, Reply | None]:
        """A reply that can be gone on with; None when the run was cancelled. Raises what the call ended with."""
        first: Reply | CnllmError | None = yield self._ask(self.history, stream=self._stream)
        got = first
        kept: Reply | None = None
        tries = 0
        most = (self.recovery.steps or 0) if self._again else 0
        while got is not None and tries < most and (why := continuation.retry_reason(got, tries)) is not None:
            tries += 1
            kept = got if kept is None and isinstance(got, Reply) else kept
            self._note("step-again", "stream.if_cut", why, "the step was taken again, without streaming")
            got = yield self._ask(self.history, stream=False)
        if got is None or self.cancelled:
            return None
        if (
            kept is not None and kept.text.strip() and continuation.needs_continuation(got)
        ):  # what said something stands
            got = kept
        if self._again and continuation.needs_continuation(got):
            more = yield from self._continued(got)
            if self.cancelled:
                return None
            if more is not None:
                return more
        if isinstance(got, CnllmError):
            if kept is None:
                if self._stream and got.reply is not None:
                    yield [Finished(got.reply.finish, got.reply.raw_finish)]
                raise got from got.__cause__
            got = kept
        if self._stream and got is not first:
            yield [*continuation.remaining_events(*self._delivered(), self._begun, got), *closing_events(got)]
        return got

    def _ask(self, messages: list[Message], *, stream: bool) -> CallModel:
        return CallModel(list(messages), stream, bool(self._forced and self.steps))

    def _continued(self, got: Reply | CnllmError) -> Generator[Any, Any, Reply | None]:
        """The last resort: what came, and the words the registry has for asking a model to go on."""
        assert self.plan is not None
        resume = self.recovery.resume
        prompt = resume if isinstance(resume, str) else fallback(self.plan.flags.resume or {}, self.plan.prompt)
        if not resume or not prompt:
            return None
        came = got if isinstance(got, Reply) else got.reply
        thought, text = (came.reasoning, came.text) if came is not None else ("", "")
        turns = [Message("assistant", (Text(text),), by=self.plan.model.name)] if text.strip() else []
        more = yield self._ask([*self.history, *turns, Message("user", (Text(prompt),))], stream=False)
        if not isinstance(more, Reply) or continuation.has_lost_calls(more):
            return None
        self._resumed = True
        self._note("continued", "resume", "the reply broke off again and again", "the model was asked to go on")
        whole = continuation.join_replies(thought, text, more)
        if not self._stream:
            return whole
        if self._begun or self._delivered() != (thought, text):
            yield [*continuation.remaining_events("", "", True, whole), *closing_events(whole)]
            return whole
        rest = whole.text[len(text) :]
        new = [*([ReasoningDelta(more.reasoning)] if more.reasoning else []), *([TextDelta(rest)] if rest else [])]
        yield [*new, *closing_events(whole)]
        return whole

    # ── the tools' part ──────────────────────────────────────────────────────

    def _as_meant(self, call: ToolCall) -> ToolCall:
        meant = self._meant(call)
        if meant is not call:
            self._note(
                "arguments-decoded", "tools", f"JSON inside JSON strings: {call.name} {call.raw[:80]}", "decoded"
            )
        return meant

    def _results(self, reply: Reply) -> Generator[Any, Any, tuple[ToolResult, ...]]:
        """A result for every call of a reply, in order, into the history too, whatever happens meanwhile."""
        calls = [self._as_meant(call) for call in reply.tool_calls]
        results: list[ToolResult | None] = [None] * len(calls)
        execute = ExecuteCalls([], [])
        places: list[int] = []
        try:
            for place, call in enumerate(calls):
                why = (
                    None if reply.finish in ("tool_calls", "length") else f"not run: the reply ended as {reply.finish}"
                )
                why = why or self._refuse(call)
                for said in self._unjudged(call) if why is None else ():
                    self._note("pattern-unjudged", "tools", f"{call.name}: {said}", "the call is checked but for this")
                if why is None and self._approves and not self.cancelled:
                    why = _refusal((yield ApproveCalls(call)))
                if self.cancelled:
                    break
                if why is None:
                    places.append(place)
                else:
                    results[place] = continuation.failed_result_text(call, why)
            if places and not self.cancelled:
                execute = ExecuteCalls([calls[place] for place in places], [None] * len(places))
                yield execute
        finally:
            for place, result in zip(places, execute.results, strict=False):
                results[place] = result
            why = CANCELLED if self.cancelled else repair.INTERRUPTED
            told = [r or continuation.failed_result_text(call, why) for call, r in zip(calls, results, strict=True)]
            self.history += map(continuation.result_turn, told)
        return tuple(told)


def _is_fallback(reply: Reply) -> bool:
    return any(note.code == "fallback" for note in reply.notes)


def _refusal(said: Any) -> str | None:
    """What the model is told where a call was not approved."""
    if isinstance(said, str):
        return f"not approved: {said}" if said else "not approved"
    return None if said else "not approved"
