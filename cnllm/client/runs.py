"""The part that both tool loops share: options, the tools by name, and the state of a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from cnllm.client.call_driver import CallSetup
from cnllm.client.telemetry import LoopEnded, ToolEnded, Watch, watch_call
from cnllm.client.tool_sets import HeldSets
from cnllm.engine.options import read_tool_choice
from cnllm.engine.run.effects import CallModel
from cnllm.engine.run.tool_loop import Loop, LoopRules
from cnllm.errors import LoopStopped
from cnllm.registry.model import Model
from cnllm.tools import (
    Tool,
    as_tools,
    bound,
    decode_encoded_arguments,
    problem_with,
    undecided_parameters,
)
from cnllm.tools.values import has_sets
from cnllm.types import (
    Answer_co,
    Cost,
    Event,
    Message,
    Reply,
    Step,
    Stopped,
    ToolCall,
    ToolResult,
    ToolUse,
    Usage,
    checks,
)
from cnllm.types.checks import plural
from cnllm.types.client_data import CarriedBody, ClientData
from cnllm.types.messages import as_messages
from cnllm.types.tools import without_mark
from cnllm.types.totals import sum_costs, total_usage

if TYPE_CHECKING:
    from cnllm.sentences import BySentence

__all__ = ["LoopSettings", "RunSetup", "RunState", "loop_stopped_error", "prepare_loop", "with_run_totals"]


def check_seconds(name: str, value: Any) -> None:
    """Raise `ValueError` for a value that is not a valid time limit."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name}={checks.short_text(value)}; expected a number of seconds above 0")
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{name} has too many digits; expected a number of seconds that a clock can count")


class LoopSettings(Struct, frozen=True):
    """The options of a loop, with their defaults; see `Client.run`."""

    max_steps: int = 10
    max_repeats: int | None = 3
    max_parallel: int = 8
    tool_timeout: float | None = None
    on_step: Callable[..., Any] | None = None
    approve: Callable[..., Any] | None = None
    by: str | None = None
    on_event: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_steps", 1), ("max_repeats", 2), ("max_parallel", 1)):
            value = getattr(self, name)
            is_unlimited = value is None and name == "max_repeats"
            if not is_unlimited and (type(value) is not int or value < least):
                raise ValueError(f"{name}={checks.short_text(value)}; expected a number from {least}")
        check_seconds("tool_timeout", self.tool_timeout)
        for name in ("on_step", "approve"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise checks.wrong_type(name, value, "a function of one argument, or None,")
        if self.by is not None:
            from cnllm.sentences import check_by

            check_by(self.by)

    def limit(self, tool: Tool) -> float | None:
        """Return the time limit of a tool in seconds, or None."""
        return self.tool_timeout if tool.timeout is None else tool.timeout


_LOOP_OPTIONS = ("max_steps", "max_repeats", "max_parallel", "tool_timeout", "on_step", "approve")


class Toolbox:
    """The tools of a run by name."""

    def __init__(self, *, approves: bool) -> None:
        self._approves = approves
        self._tools: dict[str, Tool] = {}
        self._unchecked: dict[str, tuple[str, ...]] = {}

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools. Raise `ValueError` for one that cannot be executed or checked."""
        for index, tool in enumerate(tools):
            if tool.definition is not None or tool.search is not None:
                continue  # a tool of the endpoint, which executes it itself
            if tool.function is None:
                raise ValueError(
                    f"tools[{index}] ({tool.name}) has no function to execute; give a function, or use `call`"
                )
            check_seconds(f"tools[{index}] ({tool.name}).timeout", tool.timeout)
            if (known := self._tools.get(tool.name)) is not None:
                if without_mark(known) == without_mark(tool):
                    continue
                raise ValueError(f"tools[{index}] ({tool.name}) has the same name as another tool")
            self._unchecked[tool.name] = undecided_parameters(tool)
            self._tools[tool.name] = tool

    def refusal(self, call: ToolCall) -> str | None:
        """Return the reason why a call is not executed, in words for the model. None where it can be executed."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"There is no tool {call.name!a}. The tools are: {', '.join(self._tools) or 'none'}."
        if call.excluded:
            return f"The call of {call.name} was not executed: {call.problem}."
        try:
            return problem_with(tool, call, built=not self._approves)
        except ValueError as error:  # the part of the schema that this call needs refers to nothing
            return f"The call of {call.name} was not executed: {error}."

    def find_unchecked(self, call: ToolCall) -> tuple[str, ...]:
        """Return the patterns of the tool's schema that this call is not checked for."""
        return self._unchecked.get(call.name, ())

    def has(self, name: str) -> bool:
        """Whether there is a tool with this name."""
        return name in self._tools

    def decode_call(self, call: ToolCall) -> ToolCall:
        """Return the call to check, approve and execute: the same object unless its arguments were encoded twice."""
        tool = self._tools.get(call.name)
        return call if tool is None or call.excluded else decode_encoded_arguments(tool, call)

    def find(self, call: ToolCall) -> Tool:
        """Return the tool of a call."""
        return self._tools[call.name]

    def execute(self, call: ToolCall) -> Any:
        """Execute a call and return the function's result, which may be an awaitable. Raise the function's errors."""
        tool = self._tools[call.name]
        if self._approves and (problem := problem_with(tool, call)) is not None:  # now building its values is allowed
            return ToolResult(call.id, problem, call.name, error=True)
        return tool(**bound(tool, call.arguments or {}))


class RunSetup(Struct, frozen=True):
    """Holds what a run needs. `held` are the sets of its tools, which are open while it lasts."""

    loop: Loop
    options: LoopSettings
    toolbox: Toolbox
    open_call: Callable[[CallModel], CallSetup]
    held: HeldSets | None = None


class RunState(Generic[Answer_co]):
    """The state of a run, readable at any time."""

    def __init__(self, setup: RunSetup) -> None:
        checks.require_type("setup", setup, RunSetup, "the value that Client.run_stream passes")
        self._loop = setup.loop
        self._options = setup.options
        self._toolbox = setup.toolbox
        self._open_call = setup.open_call
        self._held = setup.held
        self._key: str | None = None
        self._end_reported = False
        self._own_watch: Watch | None = None
        self._sentences: BySentence | None = None
        if self._options.by is not None:
            from cnllm.sentences import BySentence

            self._sentences = BySentence()
        self._begin()

    def _begin(self) -> None:
        """Set what only one of the two loops has."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, in another process for example: it can be read, and does not go on."""
        if self._loop.stopped is None:
            raise TypeError("a run that goes on cannot be copied; copy its messages instead")
        return {"_loop": self._loop, "_held": None, "_sentences": None, "_end_reported": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _deliver(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the events to deliver, unchanged or by sentence, until the run is cancelled."""
        if (sentences := self._sentences) is not None:
            events = [part for event in events for part in sentences.feed(event)]
        for event in events:
            if self._loop.cancelled:
                return
            yield event

    def _flush_sentence(self) -> Sequence[Event]:
        """Return the withheld beginning of a sentence whose rest will not arrive."""
        return [] if self._sentences is None else self._sentences.close()

    def _fail(self, error: BaseException) -> None:
        """Give an error of a callback, or of a tool that ends the program, the run: its tools have run."""
        self._loop.cancelled = self._loop.cancelled or not isinstance(error, Exception)
        if isinstance(getattr(error, "run", None), RunState | None):  # a class of the caller's may have its own
            with contextlib.suppress(AttributeError, TypeError):
                error.run = self  # type: ignore[attr-defined]

    def _end_loop(self) -> None:
        """End the loop, and report the end once."""
        self._loop.end()
        if not self._end_reported:
            self._end_reported = True
            if (watch := self._watch()) is not None:
                for step in self.steps:
                    watch.notes(step.notes)
                watch.emit(
                    LoopEnded,
                    stopped=str(self._loop.stopped),
                    steps=len(self.steps),
                    calls=self.calls,
                    returned=self.returned,
                    usage=self.usage,
                    cost=self.cost,
                    fallback=self.fallback,
                )

    def _report_tools(self, step: Step) -> None:
        """Report each call of a tool in a step."""
        if step.tool_uses and (watch := self._watch()) is not None:
            for use in step.tool_uses:
                name = use.name if self._toolbox.has(use.name) else "unknown"
                watch.emit(ToolEnded, tool=name, seconds=use.seconds, error=use.error)

    def _watch(self) -> Watch | None:
        """Return what reports the events of the run itself, None where nobody listens."""
        if self._own_watch is None:
            self._own_watch = watch_call(self._options.on_event)
        if self._own_watch is not None and self._loop.plan is not None:
            self._own_watch.model = self._loop.plan.model.name
        return self._own_watch

    def _begin_call(self, effect: CallModel) -> CallSetup:
        """Open the next call of the model. Return what its driver needs."""
        setup = self._open_call(effect)
        self._loop.plan, self._key = setup.call.plan, setup.key
        return setup

    @property
    def reply(self) -> Reply[Answer_co]:
        """Return the last reply; of a cancelled one the delivered part, with finish `cut`.

        Raise `LoopStopped` where no reply has arrived.
        """
        if self._loop.reply is None:
            if self.stopped is None:
                raise LoopStopped("no reply has arrived yet", run=self, hint="read the run's events first")
            raise loop_stopped_error(self)
        return self._loop.reply

    @property
    def messages(self) -> list[Message]:
        """Return the whole conversation. It can be continued at any time: every call in it has a result."""
        return self._loop.messages

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps so far."""
        return tuple(self._loop.steps)

    @property
    def stopped(self) -> Stopped | None:
        """Return the reason why the run ended; None while it goes on."""
        return self._loop.stopped

    @property
    def calls(self) -> int:
        """Return the number of calls in the steps so far."""
        return self._loop.calls

    @property
    def returned(self) -> int:
        """Return the number of calls whose result is no error."""
        return self._loop.returned

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """Return each call of a tool so far: its name, its seconds, and whether its result is an error."""
        return tuple(use for step in self._loop.steps for use in step.tool_uses)

    @property
    def fallback(self) -> bool:
        """Whether a sentence replaced an answer, the model was asked to continue, or a second request was needed."""
        return self._loop.fallback

    @property
    def usage(self) -> Usage:
        """Return the sum of the steps' counts. A count that one step lacks is unknown.

        Failed attempts, and a step that did not end, do not count; `cost` has them.
        """
        return total_usage([step.reply for step in self._loop.steps])

    @property
    def cost(self) -> Cost | None:
        """Return the cost of the steps, and of calls that failed; it names what it leaves out, None is unknown."""
        return sum_costs([*(step.reply.cost for step in self._loop.steps), *self._loop.lost_costs])

    @property
    def is_charged(self) -> bool:
        """Whether the endpoint may charge for what was asked so far."""
        return bool(self._loop.steps or self._loop.lost_costs)

    def __repr__(self) -> str:
        counts = f"steps: {len(self._loop.steps)}, calls: {self.calls}"
        return f"<{type(self).__name__} {self.stopped or 'going on'}: {counts}>"


def prepare_loop(
    open_call: Callable[..., CallSetup],
    on_event: Callable[..., Any] | None,
    model: str | Model,
    messages: Any,
    options: Mapping[str, Any],
    *,
    stream: bool,
    by: str | None = None,
) -> RunSetup:
    """Return the setup of a run that has not begun. Raise the errors of its options, messages and tools.

    Where the tools hold sets, the run opens them at its first call, and the errors of their tools come then.
    """
    own = {name: options[name] for name in _LOOP_OPTIONS if name in options}
    rules = LoopSettings(**own, by=by, on_event=on_event)
    tools = options.get("tools")
    sets = HeldSets() if has_sets(tools) else None
    toolbox = Toolbox(approves=rules.approve is not None)
    further = {k: v for k, v in options.items() if v is not None and k not in _LOOP_OPTIONS and k != "tools"}
    request: dict[str, Any] = {"if_cut": "again-whole", **further}
    if not (isinstance(model, str) or type(model) is Model):
        checks.require_type("model", model, Model, "a name or a cnllm.Model")
    loop_rules = LoopRules(
        decode_call=toolbox.decode_call,
        check_call=toolbox.refusal,
        unchecked_patterns=toolbox.find_unchecked,
        stream=stream,
        max_steps=rules.max_steps,
        max_repeats=rules.max_repeats,
        approves=rules.approve is not None,
        first_choice=_forced_choice(request.get("tool_choice")),
        retry_cut_steps=isinstance(request["if_cut"], str) and str.__str__(request["if_cut"]) == "again-whole",
    )
    loop = Loop(as_messages(messages), loop_rules)
    open_call = partial(open_call, conversation=os.urandom(5).hex())  # in the log, the steps stand together
    resolved: list[Model] = []  # a tier or an alias keeps its first model for the whole run

    def open_first() -> CallSetup:
        if sets is not None:
            sets.retain(tools)
        tool_list = as_tools([] if tools is None else tools)
        toolbox.add(tool_list)
        if tool_list:
            request["tools"] = tool_list
        first = open_call(model, loop.messages, stream, request)
        resolved.append(first.call.named_model)
        return first

    def begin(effect: CallModel) -> CallSetup:
        if prepared or not resolved:
            return prepared.pop() if prepared else open_first()
        options = {k: v for k, v in request.items() if k != "tool_choice"} if effect.free else request
        replies = [step.reply for step in loop.steps if step.reply.extra]
        if replies and type(options.get("extra_body")) is not ClientData:
            options = {**options, "extra_body": CarriedBody(options.get("extra_body") or {}, replies)}
        return open_call(resolved[0], effect.messages, effect.stream, options)

    prepared = [] if sets is not None else [open_first()]
    return RunSetup(loop, rules, toolbox, begin, sets)


def _forced_choice(choice: Any) -> str | None:
    """Return the tool, or "required", that tool_choice forces in every step; None where the model is free."""
    if choice is None:
        return None
    try:
        kind, name = read_tool_choice(choice)
    except (TypeError, ValueError):
        return None  # the request refuses it
    return name or ("required" if kind == "required" else None)


def with_run_totals(run: RunState, reply: Reply) -> Reply:
    """Return the last reply of a run with the usage, the cost and the notes of all its steps."""
    if not run.steps:
        return reply
    notes = {str(note): note for step in run.steps for note in (*step.reply.notes, *step.notes)}
    notes |= {str(note): note for note in reply.notes}
    return replace(reply, usage=run.usage, cost=run.cost, notes=list(notes.values()))


def loop_stopped_error(run: RunState) -> LoopStopped:
    """Return the error of a run that ended before the model finished."""
    steps = run.steps
    reason = {
        "max_steps": f"the model had not finished after {len(steps)} step{plural(len(steps))}",
        "repeated": f"the model made the same calls with the same results again and again, {len(steps)} steps in all",
        "length": "the last reply reached its length limit",
        "content_filter": "the content filter stopped the last reply",
        "cut": "the last reply was cut off",
        "incomplete": "the last reply announced calls, and none arrived",
    }.get(str(run.stopped), f"the loop was stopped: {run.stopped}")
    if run._loop.reply is None:
        reason = f"no reply had arrived when the run ended: {run.stopped}"
    tool_names = ", ".join(dict.fromkeys(call.name for call in steps[-1].calls)) if steps else ""
    error = LoopStopped(
        f"{reason}{f' (it called {tool_names})' if tool_names else ''}",
        run=run,
        hint="run.messages is the history so far; you can continue from it",
    )
    error.reply = run.reply if steps else None
    return error
