"""What a model can do, in three states: yes, no, unknown. Read off the flags, and off nothing else.

Each capability is a function below, with the flags it goes by. What no flag says is unknown; so is what only
`[defaults]` says, for that is what is done with an endpoint of which nothing is known. Nothing is worked out before
somebody asks: `value` reads flags, `fact` (line, source) looks lines up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from cnllm.config.process import cached_property
from cnllm.registry.flags import LEVELS
from cnllm.registry.model import Fact, Model, conditions

__all__ = ["KINDS", "Capability", "CapabilityRule", "CapabilityState", "capabilities"]

_NOWHERE: frozenset[str] = frozenset()


class CapabilityState(Struct, frozen=True):
    """A state, and the flag (in a mode) that settles it."""

    value: bool | None = None
    flag: str = ""
    mode: frozenset[str] = _NOWHERE


class CapabilityRule(Struct, frozen=True):
    """One capability: its name, the group it is shown in, what a "yes" means, and how it is found."""

    name: str
    group: str
    says: str
    find: Callable[[Model], CapabilityState]


class Capability:
    """The state of one capability of one model, and lazily what says so. Immutable."""

    def __init__(self, kind: CapabilityRule, model: Model, facts: _Facts) -> None:
        self.kind = kind
        self._model = model
        self._facts = facts
        self._found: CapabilityState | None = None

    @property
    def state(self) -> CapabilityState:
        """The state, and the flag that settles it."""
        if self._found is None:
            self._found = self.kind.find(self._model)
        return self._found

    @property
    def value(self) -> bool | None:
        """True, False, or None: unknown."""
        return self.state.value

    @cached_property
    def fact(self) -> Fact | None:
        """The flag that settles it, with layer, line and source; None where nothing does."""
        found = self.state
        return None if found.value is None else self._facts.of(found.flag, found.mode)

    @property
    def where(self) -> str:
        """ "providers.toml:97", or "" where nothing settles it."""
        return self.fact.where if self.fact else ""

    @property
    def source(self) -> str | None:
        """The URL (or repository, or thread) behind it."""
        return self.fact.source if self.fact else None

    def __repr__(self) -> str:
        return f"<Capability {self.kind.name} {self.value} {self.where}>"


class _Facts:
    """A model's facts, explained once and only if somebody asks."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def _all(self) -> list[Fact]:
        return self._model.explain()

    def of(self, flag: str, mode: frozenset[str]) -> Fact | None:
        where = self._model.where(flag, mode)
        said = [f for f in self._all if f.where == where]
        under = f".{flag}"
        return next(
            (f for f in said if f.flag == flag or f.flag.startswith(f"{flag}.") or f.flag.endswith(under)), None
        )


def capabilities(model: Model) -> dict[str, Capability]:
    """Every capability by its name, in the order in which they are shown."""
    facts = _Facts(model)
    return {name: Capability(kind, model, facts) for name, kind in KINDS.items()}


# ── the modes a model can be in ──────────────────────────────────────────────


def _states(model: Model) -> list[bool | None]:
    """The states of reasoning that can be had, without it first; None where nobody knows."""
    mode = model.flags.reasoning.mode if model.flags.reasoning else None
    return {"never": [False], "always": [True], "toggle": [False, True]}.get(mode or "", [None])  # type: ignore[return-value]


def _any(found: Iterable[CapabilityState]) -> CapabilityState:
    """Can it be had in one of several modes? No only where each says no."""
    ranked = sorted(found, key=lambda f: (f.value is not True, f.value is not None))
    return ranked[0] if ranked else CapabilityState()


def _flag(value: bool | None, flag: str, mode: frozenset[str] = _NOWHERE) -> CapabilityState:
    return CapabilityState(value, flag, mode)


# ── tools ────────────────────────────────────────────────────────────────────


def _no_tools(model: Model) -> bool:
    return model.flags.tools is not None and model.flags.tools.supported is False


def _tools(model: Model) -> CapabilityState:
    """`tools.supported`; without it, whoever names a choice of tools it takes (`tool_choice.allowed`) takes tools."""
    tools, choice = model.flags.tools, model.flags.tool_choice
    if tools is not None and tools.supported is not None:
        return _flag(tools.supported, "tools.supported")
    if choice is not None and choice.allowed and set(choice.allowed) != {"none"}:
        return _flag(True, "tool_choice.allowed")
    return CapabilityState()


def _forced(model: Model, reasoning: bool | None) -> CapabilityState:
    """`tool_choice.allowed` in one state of reasoning: does it hold required or named?"""
    mode = conditions(reasoning=reasoning, tools=True, forced=True)
    choice = model.flags_for(mode).tool_choice
    if choice is None or choice.allowed is None:
        return CapabilityState()
    return _flag("required" in choice.allowed or "named" in choice.allowed, "tool_choice.allowed", mode)


def _forced_tool(model: Model) -> CapabilityState:
    """`tool_choice.allowed` in any state of reasoning that can be had (`reasoning.mode`)."""
    if _no_tools(model):
        return _flag(False, "tools.supported")
    return _any(_forced(model, state) for state in _states(model))


def _forced_reasoning(model: Model) -> CapabilityState:
    """`tool_choice.allowed` in the mode `reasoning`; no where `reasoning.mode` is never."""
    if _no_tools(model):
        return _flag(False, "tools.supported")
    states = _states(model)
    if True not in states:
        return _flag(False, "reasoning.mode") if states == [False] else CapabilityState()
    return _forced(model, True)


def _parallel(model: Model) -> CapabilityState:
    """`tools.parallel`."""
    if _no_tools(model):
        return _flag(False, "tools.supported")
    return _flag(model.flags.tools.parallel if model.flags.tools else None, "tools.parallel")


def _strict(model: Model) -> CapabilityState:
    """`tools.strict`."""
    if _no_tools(model):
        return _flag(False, "tools.supported")
    return _flag(model.flags.tools.strict if model.flags.tools else None, "tools.strict")


def _stream_tools(model: Model) -> CapabilityState:
    """`stream.tools`."""
    if _no_tools(model):
        return _flag(False, "tools.supported")
    return _flag(model.flags.stream.tools if model.flags.stream else None, "stream.tools")


# ── reasoning ────────────────────────────────────────────────────────────────


def _reasoning(model: Model) -> CapabilityState:
    """`reasoning.mode`: toggle and always are yes, never is no."""
    states = _states(model)
    return _flag(None if states == [None] else True in states, "reasoning.mode")


def _reasoning_off(model: Model) -> CapabilityState:
    """`reasoning.mode`: never is yes, always no; toggle is yes if `reasoning.off` or `reasoning.default` says how."""
    states, flags = _states(model), model.flags.reasoning
    if len(states) == 1:
        return _flag(None if states == [None] else states == [False], "reasoning.mode")
    if flags is not None and flags.off is not None:
        return _flag(True, "reasoning.off")
    return _flag(True, "reasoning.default") if flags is not None and flags.default == "off" else CapabilityState()


def _reasoning_default(model: Model) -> CapabilityState:
    """`reasoning.default`, or `reasoning.mode` where there is no choice."""
    states, flags = _states(model), model.flags.reasoning
    if len(states) == 1 and states != [None]:
        return _flag(states == [True], "reasoning.mode")
    default = flags.default if flags is not None else None
    return _flag(None if default is None else default == "on", "reasoning.default")


def _levels(model: Model) -> CapabilityState:
    """`reasoning.effort` with a place and at least two levels; no where `reasoning.mode` is never."""
    flags = model.flags.reasoning
    if _states(model) == [False]:
        return _flag(False, "reasoning.mode")
    effort = flags.effort if flags is not None else None
    known = effort is not None and effort.at and sum(getattr(effort, level) is not None for level in LEVELS) > 1
    return _flag(True, "reasoning.effort") if known else CapabilityState()


def _budget(model: Model) -> CapabilityState:
    """`reasoning.budget.at`; no where `reasoning.mode` is never."""
    flags = model.flags.reasoning
    if _states(model) == [False]:
        return _flag(False, "reasoning.mode")
    known = flags is not None and flags.budget is not None and flags.budget.at
    return _flag(True, "reasoning.budget.at") if known else CapabilityState()


# ── what it reads ────────────────────────────────────────────────────────────


def _reads(kind: str) -> Callable[[Model], CapabilityState]:
    """`input` holds this kind."""
    return lambda model: _flag(None if model.flags.input is None else kind in model.flags.input, "input")


# ── how it answers ───────────────────────────────────────────────────────────


def _methods(wanted: frozenset[str]) -> Callable[[Model], CapabilityState]:
    """`schema.methods` holds one of these, as said by more than `[defaults]`."""

    def find(model: Model) -> CapabilityState:
        methods = model.flags.schema.methods if model.flags.schema else None
        if methods is None or model.layer("schema.methods") == "defaults":
            return CapabilityState()
        return _flag(not wanted.isdisjoint(methods), "schema.methods")

    return find


def _whole(model: Model) -> CapabilityState:
    """`stream.required` is false in any state of reasoning that can be had."""

    def one(state: bool | None) -> CapabilityState:
        mode = conditions(reasoning=state, stream=False)
        stream = model.flags_for(mode).stream
        required = stream.required if stream is not None else None
        return CapabilityState() if required is None else _flag(not required, "stream.required", mode)

    return _any(one(state) for state in _states(model))


_ALL = (
    CapabilityRule("tools", "Tools", "takes tools", _tools),
    CapabilityRule(
        "forced-tool", "Tools", "a call of a tool can be forced, with reasoning off if need be", _forced_tool
    ),
    CapabilityRule(
        "forced-tool-reasoning", "Tools", "a call of a tool can be forced while it reasons", _forced_reasoning
    ),
    CapabilityRule("parallel-tools", "Tools", "takes parallel_tool_calls", _parallel),
    CapabilityRule("strict-tools", "Tools", "takes strict on a function", _strict),
    CapabilityRule("stream-tools", "Tools", "a reply with tool calls can be streamed", _stream_tools),
    CapabilityRule("reasoning", "Reasoning", "can reason", _reasoning),
    CapabilityRule("reasoning-off", "Reasoning", "can answer without reasoning", _reasoning_off),
    CapabilityRule("reasoning-default", "Reasoning", "reasons unless told otherwise", _reasoning_default),
    CapabilityRule("reasoning-levels", "Reasoning", "takes levels of reasoning", _levels),
    CapabilityRule("reasoning-budget", "Reasoning", "takes a number of tokens to reason with", _budget),
    CapabilityRule("images", "Reads", "reads images", _reads("image")),
    CapabilityRule("audio", "Reads", "hears audio", _reads("audio")),
    CapabilityRule("video", "Reads", "watches video", _reads("video")),
    CapabilityRule("files", "Reads", "reads files", _reads("file")),
    CapabilityRule("schema", "Answers", "keeps to a JSON Schema by itself", _methods(frozenset({"json_schema"}))),
    CapabilityRule("json", "Answers", "answers in JSON by itself", _methods(frozenset({"json_schema", "json_object"}))),
    CapabilityRule("whole", "Answers", "answers whole, without streaming, too", _whole),
)

KINDS: dict[str, CapabilityRule] = {kind.name: kind for kind in _ALL}
"""Every capability, by name."""
