"""Report what a model can do, in three states: yes, no, unknown.

Each capability is a function in this file, with the flags that it reads. It is unknown where no flag says it, and where
only `[defaults]` does, because those are for endpoints of which nothing is known. A fact (line, source)
is looked up on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from msgspec import Struct

from cnllm.registry.flags import LEVELS
from cnllm.registry.model import Fact, Model, conditions
from cnllm.registry.web_search import SEARCH_MODE, search_rules

__all__ = ["KINDS", "Capability", "CapabilityRule", "CapabilityState", "capabilities"]

_ANY_MODE: frozenset[str] = frozenset()


class CapabilityState(Struct, frozen=True):
    """A state, and the flag (in a mode) that decides it."""

    value: bool | None = None
    flag: str = ""
    mode: frozenset[str] = _ANY_MODE


class CapabilityRule(Struct, frozen=True):
    """The rule of one capability.

    It has the name, the group in listings, the meaning of a "yes", and the function that finds the state.
    """

    name: str
    group: str
    says: str
    find: Callable[[Model], CapabilityState]


_FindFact = Callable[[str, frozenset[str]], Fact | None]
"""Finds the fact on a flag in a mode."""


class Capability(Struct, frozen=True):
    """The state of one capability of one model, and on demand its origin."""

    kind: CapabilityRule
    state: CapabilityState
    find_fact: _FindFact

    @property
    def value(self) -> bool | None:
        """Return True or False; None is unknown."""
        return self.state.value

    @property
    def fact(self) -> Fact | None:
        """Return the flag that decides the state, with layer, line and source; None where none does."""
        return None if self.value is None else self.find_fact(self.state.flag, self.state.mode)


def _fact_finder(model: Model, explained: Iterable[Fact] | None) -> _FindFact:
    """Return what finds a fact of a model, whose facts are collected when the first one is needed."""

    @cache
    def by_line() -> dict[str, list[Fact]]:
        found: dict[str, list[Fact]] = {}
        for fact in model.explain() if explained is None else explained:
            found.setdefault(fact.where, []).append(fact)
        return found

    def find(flag: str, mode: frozenset[str]) -> Fact | None:
        facts = by_line().get(model.where(flag, mode), ())
        suffix = f".{flag}"
        return next(
            (f for f in facts if f.flag == flag or f.flag.startswith(f"{flag}.") or f.flag.endswith(suffix)), None
        )

    return find


def capabilities(model: Model, explained: Iterable[Fact] | None = None) -> dict[str, Capability]:
    """Return every capability by its name, in the order of listings; `explained` is what `model.explain()` returns."""
    find_fact = _fact_finder(model, explained)
    wire = _tool_wire(model)
    other = model.over(wire) if wire is not None and model.over is not None else model
    find_of_tools = find_fact if other is model else _fact_finder(other, None)
    return {
        name: Capability(kind, kind.find(other), find_of_tools)
        if kind.group == "Tools"
        else Capability(kind, kind.find(model), find_fact)
        for name, kind in KINDS.items()
    }


# ── modes of a model ─────────────────────────────────────────────────────────


def _tool_wire(model: Model) -> str | None:
    """Return the protocol over which each call with tools is sent; None where some go over the model's own."""
    wires = {
        model.flags_for(conditions(reasoning=state, tools=True)).protocol
        for state in _reasoning_states(model)
        if state is not None
    }
    wire = wires.pop() if len(wires) == 1 else None
    return wire if wire != model.protocol else None


def _reasoning_states(model: Model) -> list[bool | None]:
    """List the possible states of reasoning, without it first; None where they are unknown."""
    mode = model.flags.reasoning.mode
    states: dict[str | None, list[bool | None]] = {"never": [False], "always": [True], "toggle": [False, True]}
    return states.get(mode, [None])


def _best_state(states: Iterable[CapabilityState]) -> CapabilityState:
    """Return the best state of several modes: no only where each says no."""
    ranked = sorted(states, key=lambda f: (f.value is not True, f.value is not None))
    return ranked[0] if ranked else CapabilityState()


# ── tools ────────────────────────────────────────────────────────────────────


def _if_tools(find: Callable[[Model], CapabilityState]) -> Callable[[Model], CapabilityState]:
    """Return a rule of a model that may take tools; one that takes none cannot do what needs them."""
    none = CapabilityState(False, "tools.supported")
    return lambda model: none if model.flags.tools.supported is False else find(model)


def _tools(model: Model) -> CapabilityState:
    """Read `tools.supported`; without it, a model with a tool choice (`tool_choice.allowed`) takes tools."""
    supported, allowed = model.flags.tools.supported, model.flags.tool_choice.allowed
    if supported is not None:
        return CapabilityState(supported, "tools.supported")
    if allowed and set(allowed) != {"none"}:
        return CapabilityState(True, "tool_choice.allowed")
    return CapabilityState()


def _can_force(model: Model, *, reasoning: bool | None) -> CapabilityState:
    """Whether `tool_choice.allowed` holds required or named, in one state of reasoning."""
    mode = conditions(reasoning=reasoning, tools=True, forced=True)
    allowed = model.flags_for(mode).tool_choice.allowed
    if allowed is None:
        return CapabilityState()
    return CapabilityState("required" in allowed or "named" in allowed, "tool_choice.allowed", mode)


@_if_tools
def _forced_tool(model: Model) -> CapabilityState:
    """Read `tool_choice.allowed` in every possible state of reasoning (`reasoning.mode`)."""
    return _best_state(_can_force(model, reasoning=state) for state in _reasoning_states(model))


@_if_tools
def _forced_reasoning(model: Model) -> CapabilityState:
    """Read `tool_choice.allowed` in the mode `reasoning`; no where `reasoning.mode` is never."""
    states = _reasoning_states(model)
    if True not in states:
        return CapabilityState(False, "reasoning.mode") if states == [False] else CapabilityState()
    return _can_force(model, reasoning=True)


def _tool_flag(flag: str) -> Callable[[Model], CapabilityState]:
    """Return a rule: what a flag says, of a model that may take tools."""
    table, name = flag.split(".")
    return _if_tools(lambda model: CapabilityState(getattr(getattr(model.flags, table), name, None), flag))


def _web_search(model: Model) -> CapabilityState:
    """Read `web_search`, over the wire that takes a search: a way to ask for one, or a model that always searches."""
    rules = search_rules(model)
    name = next((name for name in ("tool", "set", "always") if rules is not None and getattr(rules, name)), None)
    if name is None:
        return CapabilityState()
    is_own = rules is model.flags.web_search  # else over the wire that `protocol` names for this mode
    return CapabilityState(True, f"web_search.{name}" if is_own else "protocol", SEARCH_MODE)


# ── reasoning ────────────────────────────────────────────────────────────────


def _reasoning(model: Model) -> CapabilityState:
    """Read `reasoning.mode`: toggle and always are yes, never is no."""
    states = _reasoning_states(model)
    return CapabilityState(None if states == [None] else True in states, "reasoning.mode")


def _reasoning_off(model: Model) -> CapabilityState:
    """Read `reasoning.mode`: never is yes, always no; toggle is yes with `reasoning.off` or `reasoning.default`."""
    states, flags = _reasoning_states(model), model.flags.reasoning
    if len(states) == 1:
        return CapabilityState(None if states == [None] else states == [False], "reasoning.mode")
    if flags.off is not None:
        return CapabilityState(True, "reasoning.off")
    return CapabilityState(True, "reasoning.default") if flags.default == "off" else CapabilityState()


def _reasoning_default(model: Model) -> CapabilityState:
    """Read `reasoning.default`, or `reasoning.mode` where there is no choice."""
    states, flags = _reasoning_states(model), model.flags.reasoning
    if len(states) == 1 and states != [None]:
        return CapabilityState(states == [True], "reasoning.mode")
    return CapabilityState(None if flags.default is None else flags.default == "on", "reasoning.default")


def _levels(model: Model) -> CapabilityState:
    """Read `reasoning.effort` with a path and at least two levels; no where `reasoning.mode` is never."""
    effort = model.flags.reasoning.effort
    if _reasoning_states(model) == [False]:
        return CapabilityState(False, "reasoning.mode")
    has_levels = effort is not None and effort.at and sum(getattr(effort, level) is not None for level in LEVELS) > 1
    return CapabilityState(True, "reasoning.effort") if has_levels else CapabilityState()


def _budget(model: Model) -> CapabilityState:
    """Read `reasoning.budget.at`; no where `reasoning.mode` is never."""
    budget = model.flags.reasoning.budget
    if _reasoning_states(model) == [False]:
        return CapabilityState(False, "reasoning.mode")
    has_budget = budget is not None and budget.at
    return CapabilityState(True, "reasoning.budget.at") if has_budget else CapabilityState()


# ── input ────────────────────────────────────────────────────────────────────


def _reads_kind(kind: str) -> Callable[[Model], CapabilityState]:
    """Return a rule: `input` holds this kind."""
    return lambda model: CapabilityState(None if model.flags.input is None else kind in model.flags.input, "input")


# ── answers ──────────────────────────────────────────────────────────────────


def _answers_by(methods: frozenset[str]) -> Callable[[Model], CapabilityState]:
    """Return a rule: `schema.methods` holds one of these, set outside `[defaults]`."""

    def find(model: Model) -> CapabilityState:
        declared = model.flags.schema.methods
        if declared is None or model.layer("schema.methods") == "defaults":
            return CapabilityState()
        return CapabilityState(not methods.isdisjoint(declared), "schema.methods")

    return find


def _without_stream(model: Model) -> CapabilityState:
    """Read `stream.required`: yes where it is false in any possible state of reasoning."""

    def state_for(state: bool | None) -> CapabilityState:
        mode = conditions(reasoning=state, stream=False)
        required = model.flags_for(mode).stream.required
        return CapabilityState() if required is None else CapabilityState(not required, "stream.required", mode)

    return _best_state(state_for(state) for state in _reasoning_states(model))


_ALL = (
    CapabilityRule("tools", "Tools", "takes tools", _tools),
    CapabilityRule(
        "forced-tool", "Tools", "a call of a tool can be forced, with reasoning off if need be", _forced_tool
    ),
    CapabilityRule(
        "forced-tool-reasoning", "Tools", "a call of a tool can be forced while it reasons", _forced_reasoning
    ),
    CapabilityRule("parallel-tools", "Tools", "takes parallel_tool_calls", _tool_flag("tools.parallel")),
    CapabilityRule("strict-tools", "Tools", "takes strict on a function", _tool_flag("tools.strict")),
    CapabilityRule("stream-tools", "Tools", "a reply with tool calls can be streamed", _tool_flag("stream.tools")),
    CapabilityRule("web-search", "Tools", "can search the web itself", _web_search),
    CapabilityRule("reasoning", "Reasoning", "can reason", _reasoning),
    CapabilityRule("reasoning-off", "Reasoning", "can answer without reasoning", _reasoning_off),
    CapabilityRule("reasoning-default", "Reasoning", "reasons by default", _reasoning_default),
    CapabilityRule("reasoning-levels", "Reasoning", "takes levels of reasoning", _levels),
    CapabilityRule("reasoning-budget", "Reasoning", "takes a number of tokens to reason with", _budget),
    CapabilityRule("images", "Reads", "reads images", _reads_kind("image")),
    CapabilityRule("audio", "Reads", "hears audio", _reads_kind("audio")),
    CapabilityRule("video", "Reads", "watches video", _reads_kind("video")),
    CapabilityRule("files", "Reads", "reads files", _reads_kind("file")),
    CapabilityRule("schema", "Answers", "keeps to a JSON Schema by itself", _answers_by(frozenset({"json_schema"}))),
    CapabilityRule(
        "json", "Answers", "answers in JSON by itself", _answers_by(frozenset({"json_schema", "json_object"}))
    ),
    CapabilityRule("whole", "Answers", "answers whole, without streaming, too", _without_stream),
)

KINDS: dict[str, CapabilityRule] = {kind.name: kind for kind in _ALL}
"""Every capability, by name."""
