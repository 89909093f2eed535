"""Run a tool loop as a generator: it yields effects for the client to perform, and receives their results.

Everything that a loop decides is in this file, once; `Run` and `AsyncRun` only perform the effects:

    CallModel(messages, …)  → the Reply, the error that ended the call, or None where the run was cancelled meanwhile
    ApproveCalls(call)      → whether the call may be executed: True, False, or the reason why not
    ExecuteCalls(calls)     → None; the client puts each result into `results` at the index of its call, and leaves
                              None where no result came
    ReportStep(step)        → None
    a list                  → None; deliver these events

During a call of the model the client delivers the events as they arrive and passes each to `Loop.observe`. It holds
`Finished` back: the loop decides how a step ends after it has checked the reply.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.history import repair
from cnllm.engine.run import continuation
from cnllm.engine.run.effects import ApproveCalls, CallModel, ExecuteCalls, ReportStep
from cnllm.errors import CnllmError, EmptyReply, ReplyTooLarge, StreamCut, Timeout, TransportError
from cnllm.leaks.fallback_text import fallback
from cnllm.types import (
    Cost,
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
    Step,
    Stopped,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolUse,
    Usage,
)
from cnllm.types.checks import plural
from cnllm.types.delivered import Delivered, closing_events, text_events
from cnllm.types.endings import is_paused
from cnllm.types.policy import Recovery
from cnllm.types.totals import sum_costs

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["Loop", "LoopRules"]

CANCELLED_RESULT = "cancelled before it gave a result"


_DEFAULT_RECOVERY = Recovery(steps=3, streams=3, resume=True, cycle=3)  # where the registry sets none
Steps = Generator[Any, Any, Any]


class LoopRules(Struct, frozen=True, kw_only=True):
    """The rules of a loop.

    `decode_call` returns the form of a call that is checked and executed. `check_call` returns what is wrong with that
    form, None where it can be executed. `unchecked_patterns` lists what the check cannot judge. `approves` means that
    the user approves each call first. `first_choice` is a tool choice for the first step only. `retry_cut_steps` means
    that a step whose reply broke off is repeated.
    """

    decode_call: Callable[[ToolCall], ToolCall]
    check_call: Callable[[ToolCall], str | None]
    unchecked_patterns: Callable[[ToolCall], Sequence[str]]
    stream: bool
    max_steps: int
    max_repeats: int | None
    approves: bool
    first_choice: str | None
    retry_cut_steps: bool


class Loop:
    """One tool loop. `effects()` yields its steps; the attributes hold the state so far.

    `plan` is the last request; it holds the rules of recovery.
    """

    def __init__(self, messages: Sequence[Message], rules: LoopRules) -> None:
        self.history, self._interrupted_count = repair.settle_calls(messages)
        self.steps: list[Step] = []
        self.reply: Reply | None = None
        self.stopped: Stopped | None = None
        self.cancelled = False
        self.plan: Plan | None = None
        self._rules = rules
        self._notes: list[Note] = []
        self._calls: list[Reply | CnllmError | None] = []  # the calls of the model in this step
        self.lost_costs: list[Cost | None] = []  # of calls that belong to no step; None is unknown
        self._tool_uses: tuple[ToolUse, ...] = ()  # of this step
        self._resumed = False
        self._used = {call.id for message in self.history for call in message.tool_calls}
        self._delivered = Delivered()  # of the model's call

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy of a loop that ended has: no functions, and no request."""
        return {**vars(self), "plan": None, "_rules": None, "_calls": []}

    @property
    def messages(self) -> list[Message]:
        """Return the conversation, with a result for every call at any time."""
        return repair.settle_calls(self.history)[0]

    @property
    def recovery(self) -> Recovery:
        """Return the recovery rules of the last request, with defaults."""
        return (Recovery() if self.plan is None else self.plan.recovery).with_defaults(_DEFAULT_RECOVERY)

    @property
    def calls(self) -> int:
        """Count the calls that the model made."""
        return sum(step.called for step in self.steps)

    @property
    def returned(self) -> int:
        """Count the calls that gave a result without an error."""
        return sum(step.returned for step in self.steps)

    @property
    def fallback(self) -> bool:
        """Whether a sentence replaced an answer, the model was asked to continue, or a whole call replaced a stream."""
        return self._resumed or any(map(_has_fallback, self.steps))

    def observe(self, event: Event) -> None:
        """Record an event of the model's call that was delivered."""
        if type(event) is Restarted:
            self._delivered = Delivered()
        else:
            self._delivered.rest(event)

    def effects(self) -> Steps:
        """Yield the effects of the loop (see the docstring of this file)."""
        try:
            while self.stopped is None and not self.cancelled:
                yield from self._step()
        finally:
            self.end()

    def end(self) -> None:
        """End the loop.

        Where a reply was being read, keep the part that was delivered.
        """
        if self.stopped is not None:
            return
        reasoning, text = self._delivered.text(ReasoningDelta), self._delivered.text(TextDelta)
        if reasoning or text:
            parts: list[Part] = [Reasoning(reasoning)] if reasoning else []
            parts += [Text(text)] if text else []
            turn = Message("assistant", parts, by=None if self.plan is None else self.plan.model.name)
            self.reply = Reply(
                text=text,
                reasoning=reasoning,
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
                registry="" if self.plan is None else self.plan.model.data_version,
            )
            self._append_turn(turn)
        self.stopped = "cancelled" if self.cancelled else "error"

    def _append_turn(self, turn: Message) -> None:
        """Append a turn to the history where it has content."""
        if any(map(repair.has_content, turn.parts)):
            self.history.append(turn)

    # ── a step ───────────────────────────────────────────────────────────────

    def _step(self) -> Steps:
        start = time.monotonic()
        self._notes = []
        if not self.steps and self._interrupted_count:
            subject = f"{self._interrupted_count} call{plural(self._interrupted_count)} without a result"
            self._note("call-unanswered", "messages", subject, repair.INTERRUPTED)
        if self._rules.first_choice and len(self.steps) == 1:
            self._note("tool-choice", "tool_choice", self._rules.first_choice, "auto: the first step has called")
        reply = yield from self._reply()
        if reply is None:
            return
        self._delivered = Delivered()
        reply = self.reply = continuation.unique_call_ids(reply, self._used)
        self._append_turn(reply.message)
        self.lost_costs.append(reply.cost)  # until its step is complete
        may_be_last = self._may_be_last(reply)
        if self._rules.stream and not may_be_last:
            yield [Finished(reply.finish, reply.raw_finish)]
        results: tuple[ToolResult, ...] = ()
        self._tool_uses = ()
        if reply.tool_calls:
            results = yield from self._results(reply)
        step = Step(
            number=len(self.steps) + 1,
            reply=reply,
            calls=tuple(reply.tool_calls),
            results=results,
            seconds=time.monotonic() - start,
            notes=tuple(self._notes),
            tool_uses=self._tool_uses,
        )
        self.lost_costs.pop()
        self.steps.append(step)
        if not self.cancelled:
            self.stopped = self._stop_reason(reply)
            if self.stopped is not None:
                summary = RunSummary(
                    stopped=self.stopped,
                    steps=len(self.steps),
                    calls=self.calls,
                    returned=self.returned,
                    fallback=self.fallback,
                )
                step = self.steps[-1] = replace(step, run=summary)
            if self._rules.stream and may_be_last:
                yield [Finished(reply.finish, reply.raw_finish, UNSET if step.run is None else step.run)]
        yield ReportStep(step)

    def _may_be_last(self, reply: Reply) -> bool:
        """Whether the run may end with this step: its `Finished` then waits for the results and sums up the run."""
        is_last = len(self.steps) + 1 >= self._rules.max_steps
        if is_last or reply.finish in ("content_filter", "cut"):
            return True
        if not reply.tool_calls:
            return not is_paused(reply)
        if not self._rules.max_repeats:
            return False
        steps = [(step.calls, None) for step in self.steps]
        return continuation.is_repeating([*steps, (reply.tool_calls, None)], self._rules.max_repeats, self._cycle)

    def _stop_reason(self, reply: Reply) -> Stopped | None:
        """Return why the loop ends after this reply; None where it goes on."""
        if reply.finish in ("content_filter", "cut"):
            return reply.finish
        max_repeats = self._rules.max_repeats if reply.tool_calls else None
        if not reply.tool_calls and not is_paused(reply):
            if reply.finish == "length":
                return "length"
            return "incomplete" if self._has_lost_calls(reply) else "done"
        steps = [(step.calls, step.results) for step in self.steps]
        if max_repeats and continuation.is_repeating(steps, max_repeats, self._cycle):
            return "repeated"
        return "max_steps" if len(self.steps) >= self._rules.max_steps else None

    @property
    def _cycle(self) -> int:
        return self.recovery.cycle or 1

    def _note(self, code: NoteCode, flag: str, subject: str, did: str) -> None:
        self._notes.append(Note(code, flag, subject, did))

    # ── calls of the model ───────────────────────────────────────────────────

    def _reply(self) -> Generator[Any, Any, Reply | None]:
        """Return a reply that the loop can continue from, with the costs of all calls of its step.

        None where the run was cancelled. Raises the error that ended the call.
        """
        self._calls = []
        reply: Reply | None = None
        try:
            reply = yield from self._usable_reply()
        except CnllmError as error:
            self.lost_costs += self._step_costs()
            others = self._step_costs(error)
            self._calls = []
            error.add_attempts(others)
            raise
        finally:
            if reply is None:
                self.lost_costs += self._step_costs()
        return reply if reply is None or len(self._calls) == 1 else replace(reply, cost=sum_costs(self._step_costs()))

    def _step_costs(self, without: CnllmError | None = None) -> list[Cost | None]:
        """Return the costs of the calls of the model in this step, except that of one that failed."""
        return [cost for call in self._calls if call is not without or call is None for cost in _costs(call)]

    def _usable_reply(self) -> Generator[Any, Any, Reply | None]:
        """Return a reply that the loop can continue from; None where the run was cancelled."""
        first: Reply | CnllmError | None = yield from self._call_model(self.history, stream=self._rules.stream)
        result = first
        usable: Reply | None = None
        tries = 0
        limit = (self.recovery.steps or 0) if self._rules.retry_cut_steps else 0
        while result is not None and tries < limit and (reason := self._retry_reason(result)) is not None:
            tries += 1
            usable = result if usable is None and isinstance(result, Reply) else usable
            self._note("step-again", "stream.if_cut", reason, "the step was taken again, without streaming")
            result = yield from self._call_model(self.history, stream=False)
        if result is None or self.cancelled:
            return None
        if usable is not None and usable.text.strip() and self._needs_continuation(result):
            # A reply with text is better than none.
            result = usable
        if self._rules.retry_cut_steps and self._needs_continuation(result):
            continued = yield from self._continue_reply(result)
            if self.cancelled:
                return None
            if continued is not None:
                return continued
        if isinstance(result, CnllmError):
            if usable is None:
                if self._rules.stream and result.reply is not None:
                    yield [Finished(result.reply.finish, result.reply.raw_finish)]
                raise result from result.__cause__
            result = usable
        if self._rules.stream and result is not first:
            yield [
                *self._delivered.remaining_events(result),
                *closing_events(result),
            ]
        return result

    def _has_lost_calls(self, reply: Reply) -> bool:
        """Whether the endpoint reports calls of the offered tools but sent none that can be executed."""
        return bool(self.plan is None or self.plan.callable) and continuation.has_lost_calls(reply)

    def _retry_reason(self, result: Reply | CnllmError) -> str | None:
        """Return why a step is tried again; None where it is not. A cut stream was already repeated before.

        Failures of the network are final, unless the body of a whole reply broke off: either the call was already tried
        again because nothing had arrived, or it is unknown whether the request was served and paid for.
        """
        if isinstance(result, Reply):
            return "calls were announced and none came" if self._has_lost_calls(result) else None
        if isinstance(result, EmptyReply):
            return "the reply was empty"
        is_broken_off = isinstance(result, TransportError) and result.began and not isinstance(result, Timeout)
        return "the reply broke off" if is_broken_off else None

    def _needs_continuation(self, result: Reply | CnllmError) -> bool:
        """Whether asking the model to continue is the only way on."""
        if isinstance(result, Reply):
            return self._has_lost_calls(result)
        is_cut = isinstance(result, StreamCut) and not isinstance(result, ReplyTooLarge)
        return isinstance(result, EmptyReply) or (is_cut and result.reply is not None and bool(result.reply.text))

    def _call_model(self, messages: list[Message], *, stream: bool) -> Generator[Any, Any, Reply | CnllmError | None]:
        """Call the model, and return its reply or error; None where the run was cancelled."""
        self._calls.append(None)
        is_free = bool(self._rules.first_choice and self.steps)
        result: Reply | CnllmError | None = yield CallModel(list(messages), stream, is_free)
        self._calls[-1] = result
        return result

    def _continue_reply(self, result: Reply | CnllmError) -> Generator[Any, Any, Reply | None]:
        """Ask the model to continue a reply that broke off again and again.

        The prompt is the caller's, or the sentence in the registry. An answer by a schema is not continued but written
        anew: it is checked and parsed in one piece. Return None where there is no prompt, or no whole reply.
        """
        assert self.plan is not None
        resume = self.recovery.resume
        prompt = resume if isinstance(resume, str) else fallback(self.plan.flags.resume or {}, self.plan.prompt)
        if not resume or not prompt:
            return None
        partial = result if isinstance(result, Reply) else result.reply
        reasoning, text = "", ""
        if partial is not None and self.plan.answer is None:
            reasoning, text = partial.reasoning, partial.text
        turns = [Message("assistant", (Text(text),), by=self.plan.model.name)] if text.strip() else []
        more = yield from self._call_model([*self.history, *turns, Message("user", (Text(prompt),))], stream=False)
        if not isinstance(more, Reply) or self._has_lost_calls(more):
            return None
        self._resumed = True
        self._note("continued", "resume", "the reply broke off repeatedly", "the model was asked to continue")
        whole = continuation.join_replies(reasoning, text, more)
        if not self._rules.stream:
            return whole
        before = self._delivered
        if before.has_calls or (before.text(ReasoningDelta), before.text(TextDelta)) != (reasoning, text):
            yield [Restarted(), *Delivered().remaining_events(whole), *closing_events(whole)]
            return whole
        yield [*text_events(more.reasoning, whole.text[len(text) :]), *closing_events(whole)]
        return whole

    # ── execution of the calls ───────────────────────────────────────────────

    def _decode_call(self, call: ToolCall) -> ToolCall:
        """Return the form of a call that is executed, and note where it differs."""
        decoded = self._rules.decode_call(call)
        if decoded is not call:
            subject = f"JSON inside JSON strings: {call.name} {call.raw[:80]}"
            self._note("arguments-decoded", "tools", subject, "decoded")
        return decoded

    def _results(self, reply: Reply) -> Generator[Any, Any, tuple[ToolResult, ...]]:
        """Return a result for every call of a reply, in order, and append the results to the history.

        This holds also where the run is cancelled or fails meanwhile.
        """
        calls = [self._decode_call(call) for call in reply.tool_calls]
        results: list[ToolResult | None] = [None] * len(calls)
        seconds: list[float | None] = [None] * len(calls)
        execute = ExecuteCalls([], [], [])
        indexes: list[int] = []
        try:
            for index, call in enumerate(calls):
                ended = f"not run: the reply ended as {reply.finish}"
                reason = self._rules.check_call(call) if reply.finish in ("tool_calls", "length") else ended
                for pattern in self._rules.unchecked_patterns(call) if reason is None else ():
                    did = "the call is checked without this"
                    self._note("pattern-unjudged", "tools", f"{call.name}: {pattern}", did)
                if reason is None and self._rules.approves and not self.cancelled:
                    reason = _refusal((yield ApproveCalls(call)))
                if self.cancelled:
                    break
                if reason is None:
                    indexes.append(index)
                else:
                    results[index] = continuation.failed_result_text(call, reason)
            if indexes and not self.cancelled:
                count = len(indexes)
                execute = ExecuteCalls([calls[index] for index in indexes], [None] * count, [None] * count)
                yield execute
        finally:
            for index, result, time_taken in zip(indexes, execute.results, execute.seconds, strict=False):
                results[index], seconds[index] = result, time_taken
            reason = CANCELLED_RESULT if self.cancelled else repair.INTERRUPTED
            complete = [
                r or continuation.failed_result_text(call, reason) for call, r in zip(calls, results, strict=True)
            ]
            self.history += [Message("tool", (result,)) for result in complete]
            self._tool_uses = tuple(
                ToolUse(name=call.name, seconds=took, error=result.error)
                for call, took, result in zip(calls, seconds, complete, strict=True)
            )
        return tuple(complete)


def _has_fallback(step: Step) -> bool:
    """Whether a step's reply is a fallback sentence, or came in a second request in place of a stream."""
    codes = {note.code for note in (*step.reply.notes, *step.notes)}
    return not codes.isdisjoint(("fallback", "again-whole", "reply-continued", "step-again"))


def _costs(result: Reply | CnllmError | None) -> Sequence[Cost | None]:
    """Return the costs of a call of the model; None is unknown, as that of a cancelled call."""
    if isinstance(result, Reply):
        return (result.cost,)
    return (None,) if result is None else result.costs


def _refusal(approval: Any) -> str | None:
    """Return what the model reads where a call was not approved; None where it was."""
    if isinstance(approval, str):
        return f"not approved: {approval}" if approval else "not approved"
    return None if approval else "not approved"
