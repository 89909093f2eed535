"""What both loops have in common: what a caller asks for, the tools by their names, and what a run tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.client.telemetry import report_loop_end
from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.continuation import total_cost, total_usage
from cnllm.engine.run.effects import CallModel, Step, Stopped
from cnllm.engine.run.tool_loop import Loop
from cnllm.errors import LoopStopped
from cnllm.registry.model import Model
from cnllm.tools import (
    Tool,
    as_tools,
    bound,
    check_parameters,
    decode_encoded_arguments,
    problem_with,
    undecided_parameters,
)
from cnllm.types import Cost, Event, Message, Reply, ToolCall, ToolResult, Usage, checks
from cnllm.types.convert import as_messages

if TYPE_CHECKING:
    from cnllm.sentences import BySentence

__all__ = ["RunOptions", "RunState", "Toolbox", "loop_stopped_error", "prepare_loop"]


class RunOptions(Struct, frozen=True):
    """How a loop is run; see `Client.run`."""

    max_steps: int
    max_repeats: int | None
    max_parallel: int
    tool_timeout: float | None
    on_step: Callable[..., Any] | None
    approve: Callable[..., Any] | None
    by: str | None = None
    on_event: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_steps", 1), ("max_repeats", 2), ("max_parallel", 1)):
            value = getattr(self, name)
            if type(value) is not int and (value is not None or name != "max_repeats"):
                raise ValueError(f"{name}={checks.short_text(value)}; a number from {least} is meant")
            if value is not None and value < least:
                raise ValueError(f"{name}={checks.short_text(value)}; a number from {least} is meant")
        _seconds("tool_timeout", self.tool_timeout)
        for name in ("on_step", "approve"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise checks.wrong_type(name, value, "a function of one argument, or None,")
        if self.by is not None:
            from cnllm.sentences import check_by

            check_by(self.by)

    def limit(self, tool: Tool) -> float | None:
        """How many seconds a tool may take."""
        return self.tool_timeout if tool.timeout is None else tool.timeout


def _seconds(name: str, value: Any) -> None:
    """Raises `ValueError` for what is no time that can be waited for."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name}={checks.short_text(value)}; a number of seconds above 0 is meant")
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{name} is a number of many digits; a number of seconds that a clock can count is expected")


class Toolbox:
    """The tools of a run by their names. Raises `ValueError` for one that nobody could execute or check."""

    def __init__(self, tools: Sequence[Tool], approves: bool = False) -> None:
        self._approves = approves
        self._tools: dict[str, Tool] = {}
        self._unjudged: dict[str, tuple[str, ...]] = {}
        for index, tool in enumerate(tools):
            if tool.definition is not None:
                continue  # the endpoint's own, which it executes itself
            if tool.function is None:
                raise ValueError(
                    f"tools[{index}] ({tool.name}) has no function to execute; give a function, or use `call`"
                )
            _seconds(f"tools[{index}] ({tool.name}).timeout", tool.timeout)
            if tool.name in self._tools:
                raise ValueError(f"tools[{index}] ({tool.name}) has the name of another tool")
            check_parameters(tool)
            self._unjudged[tool.name] = undecided_parameters(tool)
            self._tools[tool.name] = tool

    def refusal(self, call: ToolCall) -> str | None:
        """Why a call is not executed, in words for the model; None where it can be."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"There is no tool {call.name!a}. The tools are: {', '.join(self._tools) or 'none'}."
        if call.excluded:
            return f"The call of {call.name} was not executed: {call.problem}."
        return problem_with(tool, call, built=not self._approves)

    def unchecked(self, call: ToolCall) -> tuple[str, ...]:
        """Return what a call is not checked for, though its tool's schema asks for it."""
        return self._unjudged.get(call.name, ())

    def decode_call(self, call: ToolCall) -> ToolCall:
        """The call as it is checked, approved and executed; the very same unless its arguments were encoded twice."""
        tool = self._tools.get(call.name)
        return call if tool is None or call.excluded else decode_encoded_arguments(tool, call)

    def find(self, call: ToolCall) -> Tool:
        """The tool that is called."""
        return self._tools[call.name]

    def execute(self, call: ToolCall) -> Any:
        """What the function of the tool returns for a call, which may be something to await. Raises what it raises."""
        tool = self._tools[call.name]
        if self._approves and (problem := problem_with(tool, call)) is not None:  # what only an approved call may ask
            return ToolResult(call.id, problem, call.name, error=True)
        return tool(**bound(tool, call.arguments or {}))


class RunState:
    """What a run tells, at any time."""

    def __init__(self, loop: Loop, rules: RunOptions, toolbox: Toolbox, opened: Callable[[CallModel], Any]) -> None:
        checks.require_type("loop", loop, Loop, "what Client.run_stream passes")
        checks.require_type("rules", rules, RunOptions, "what Client.run_stream passes")
        checks.require_type("toolbox", toolbox, Toolbox, "what Client.run_stream passes")
        if not callable(opened):
            raise checks.wrong_type("opened", opened, "what Client.run_stream passes")
        self._loop = loop
        self._rules = rules
        self._toolbox = toolbox
        self._opened = opened
        self._key: str | None = None
        self._ended = False
        self._whole: BySentence | None = None
        if rules.by is not None:
            from cnllm.sentences import BySentence

            self._whole = BySentence()

    def _shaped(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events as they are delivered: as they came, or by sentence."""
        whole = self._whole
        return events if whole is None else [shaped for event in events for shaped in whole.feed(event)]

    def _held(self) -> Sequence[Event]:
        """What was held for the rest of its sentence, which will not come."""
        return [] if self._whole is None else self._whole.close()

    def _end(self) -> None:
        """Tells whoever watches that it is over, once."""
        if self._loop.stopped is not None and not self._ended:
            self._ended = True
            model = "" if self._loop.plan is None else self._loop.plan.model.name
            loop = self._loop
            report_loop_end(
                self._rules.on_event, model, str(loop.stopped), self.steps, self.usage, self.cost, loop.fallback
            )

    def _began(self, plan: Plan, key: str | None) -> None:
        self._loop.plan, self._key = plan, key

    @property
    def reply(self) -> Reply:
        """The last reply; of one that was cancelled what had been delivered, with finish `cut`.

        Raises `LoopStopped` where none has come.
        """
        if self._loop.reply is None:
            raise LoopStopped("no reply has come", run=self, hint="read the run's events first")
        return self._loop.reply

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, which can be gone on with at any time: every call in it has a result."""
        return self._loop.messages

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was done so far."""
        return tuple(self._loop.steps)

    @property
    def stopped(self) -> Stopped | None:
        """Why it ended; None while it goes on."""
        return self._loop.stopped

    @property
    def calls(self) -> int:
        """How many calls the model made."""
        return self._loop.calls

    @property
    def returned(self) -> int:
        """How many of them gave a result that is no error."""
        return self._loop.returned

    @property
    def fallback(self) -> bool:
        """Whether a sentence of the registry stands in place of an answer, or the model had to be asked to go on."""
        return self._loop.fallback

    @property
    def usage(self) -> Usage:
        """The sum of the steps' counts; one that a step did not tell is unknown. Tries that broke off are not in it."""
        return total_usage([step.reply for step in self._loop.steps])

    @property
    def cost(self) -> Cost | None:
        """The sum of the steps' costs, None where it is not known."""
        return total_cost([step.reply for step in self._loop.steps])

    def __repr__(self) -> str:
        did = f"{len(self._loop.steps)} steps, {self.calls} calls"
        return f"<{type(self).__name__} {self.stopped or 'going on'}: {did}>"


def prepare_loop(
    opened: Callable[..., Any],
    rules: RunOptions,
    model: str | Model,
    messages: Any,
    tools: Sequence[Any] | None,
    options: Mapping[str, Any],
    *,
    stream: bool,
) -> tuple[Loop, RunOptions, Toolbox, Callable[[CallModel], Any]]:
    """A loop that has not begun. What is wrong with the options, the messages or the tools is raised here."""
    offered = as_tools([] if tools is None else tools)
    toolbox = Toolbox(offered, rules.approve is not None)
    said = {"if_cut": "again-whole", **{k: v for k, v in options.items() if v is not None}}
    if offered:
        said["tools"] = offered
    if not (isinstance(model, str) or type(model) is Model):
        checks.require_type("model", model, Model, "a name or a cnllm.Model")
    loop = Loop(
        as_messages(messages),
        decode_call=toolbox.decode_call,
        check_call=toolbox.refusal,
        unchecked_patterns=toolbox.unchecked,
        stream=stream,
        max_steps=rules.max_steps,
        max_repeats=rules.max_repeats,
        approves=rules.approve is not None,
        first_choice=_forced(said.get("tool_choice")),
        retry_cut_steps=isinstance(said["if_cut"], str) and str.__str__(said["if_cut"]) == "again-whole",
    )
    free = {k: v for k, v in said.items() if k != "tool_choice"}
    first = opened(model, loop.messages, stream, said)
    made: list[Any] = [first]
    found = first[0].plan.model  # a tier or an alias stays with the model that began

    def begin(ask: CallModel) -> Any:
        if made:
            return made.pop()
        return opened(found, ask.messages, ask.stream, free if ask.free else said)

    return loop, rules, toolbox, begin


def _forced(choice: Any) -> str | None:
    """A choice of tools that would make the model call for ever."""
    if isinstance(choice, Mapping):
        choice = checks.as_dict("tool_choice", choice)
        function = choice.get("function")
        if isinstance(function, Mapping):
            function = checks.as_dict("tool_choice", function)
        choice = choice.get("name") or (function.get("name") if isinstance(function, Mapping) else choice.get("type"))
    if choice is not None and not isinstance(choice, str):
        return None  # the request refuses it
    return None if choice in (None, "auto", "none") else str.__str__(choice)


def loop_stopped_error(run: RunState) -> LoopStopped:
    """The error of a run that ended before the model was done."""
    steps = run.steps
    why = {
        "max_steps": f"the model was not done after {len(steps)} steps",
        "repeated": f"the model made the same calls with the same results again and again, {len(steps)} steps in all",
        "length": "the last reply was cut off by the limit of its length",
        "content_filter": "the last reply was stopped by the content filter",
        "cut": "the last reply was cut off",
        "incomplete": "the last reply announced calls, and none came",
    }.get(str(run.stopped), f"the loop was stopped: {run.stopped}")
    wanted = ", ".join(dict.fromkeys(call.name for call in steps[-1].calls)) if steps else ""
    error = LoopStopped(
        f"{why}{f' (it called {wanted})' if wanted else ''}",
        run=run,
        hint="run.messages is the history so far, and can be gone on with",
    )
    error.reply = run.reply if steps else None
    return error
