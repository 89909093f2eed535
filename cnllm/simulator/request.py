"""What a request asks for, whatever its wire: turns, tools, choice, and the mode it puts the model in."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from cnllm.registry import param_rules
from cnllm.registry.flags import Flags, Reasoning
from cnllm.registry.model import Model, conditions
from cnllm.simulator.jsonpath import at, leaves, within
from cnllm.simulator.tokenize import pieces

__all__ = [
    "Asked",
    "Call",
    "Offer",
    "Turn",
    "flags_for",
    "input_tokens",
    "is_thinking",
    "off_asked",
    "on_asked",
    "param_path",
    "tool_tokens",
    "turn_tokens",
]

Form = Literal["absent", "null", "empty", "text", "parts", "other"]


class Call(Struct, frozen=True):
    """A tool call of an earlier turn, or one the simulator makes. `arguments` is whatever stood there."""

    id: Any
    name: Any
    arguments: Any


class Turn(Struct, frozen=True):
    """One message: its role, the form and text of its content, its calls, and itself as it was sent.

    `calls` is None where the message has no list of calls, empty where it has an empty one. `media` holds the
    kinds of its parts that are not text; `blank` says that a text part is empty.
    """

    role: Any
    form: Form
    text: str
    wire: dict[str, Any]
    media: tuple[str, ...] = ()
    blank: bool = False
    calls: tuple[Call, ...] | None = None
    result_of: Any = None


class Offer(Struct, frozen=True):
    """A tool the request offers. Only those of kind `function` are called; others are the endpoint's own."""

    kind: Any
    name: Any = None
    parameters: Any = None
    strict: bool = False


class Asked(Struct, frozen=True):
    """A request. `broken` names the first place that is not shaped as the wire demands.

    `tools` is None where none were sent. `choice` is auto, none, required, named, or the odd word that stood
    there; `answer` is the kind of structured answer asked for, with its `schema`.
    """

    body: dict[str, Any]
    turns: tuple[Turn, ...]
    tools: tuple[Offer, ...] | None = None
    choice: str | None = None
    named: str | None = None
    parallel: bool = True
    stream: bool = False
    answer: str | None = None
    schema: Any = None
    broken: str | None = None

    @property
    def functions(self) -> list[Offer]:
        """The offered functions that have a name."""
        return [t for t in self.tools or () if t.kind == "function" and isinstance(t.name, str) and t.name]

    @property
    def last(self) -> Turn | None:
        """The last message."""
        return self.turns[-1] if self.turns else None

    @property
    def prompt(self) -> str:
        """What the user said last."""
        return next((t.text for t in reversed(self.turns) if t.role == "user"), "")


def flags_for(model: Model, asked: Asked) -> tuple[Flags, bool | None]:
    """The flags that hold in the mode a request is in, and whether the model thinks in it (None: unknown)."""
    atoms: dict[str, bool | None] = {
        "tools": bool(asked.tools),
        "stream": asked.stream,
        "forced": asked.choice not in (None, "auto", "none"),
        "schema": asked.answer is not None,
        "strict": any(t.strict for t in asked.tools or ()),
        "images": any("image" in t.media for t in asked.turns),
    }
    # How thinking is asked for may itself depend on the rest of the mode, so that is settled first.
    thinks = is_thinking(model.under(conditions(**atoms)).reasoning, asked.body)
    return model.under(conditions(reasoning=thinks, **atoms)), thinks


def is_thinking(reasoning: Reasoning | None, body: dict[str, Any]) -> bool | None:
    """Does the model think, by what the body says and by its default? None where neither tells."""
    if reasoning is None:
        return None
    if reasoning.mode in ("never", "always"):
        return reasoning.mode == "always"
    if off_asked(reasoning, body):
        return False
    if on_asked(reasoning, body):
        return True
    return None if reasoning.default is None else reasoning.default == "on"


def off_asked(reasoning: Reasoning, body: dict[str, Any]) -> bool:
    """Does the body ask for no thinking: by the patch for it, by an effort or a budget of nothing?

    Where no patch for off is declared, another value where the patch for on puts its own counts too.
    """
    if reasoning.off is not None and reasoning.off.set:
        if within(reasoning.off.set, body):
            return True
    elif reasoning.on is not None and reasoning.on.set:
        said = [(at(body, path), value) for path, value in leaves(reasoning.on.set).items()]
        if any(found is not None and found != value for found, value in said):
            return True
    if reasoning.effort is not None and reasoning.effort.at and at(body, reasoning.effort.at) == "none":
        return True
    budget = reasoning.budget
    found = at(body, budget.at) if budget is not None and budget.at else None
    return type(found) is int and found == 0


def on_asked(reasoning: Reasoning, body: dict[str, Any]) -> bool:
    """Does the body ask for thinking: by the patch for it, an effort or a budget?"""
    if reasoning.on is not None and reasoning.on.set and within(reasoning.on.set, body):
        return True
    places = [reasoning.effort and reasoning.effort.at, reasoning.budget and reasoning.budget.at]
    return any(place and at(body, place) is not None for place in places)


def param_path(flags: Flags, name: str) -> str | None:
    """Where a parameter stands in a body, None where the endpoint refuses it or ignores it."""
    rule = (flags.params or {}).get(name)
    return None if param_rules.state(rule) in ("refused", "ignored") else param_rules.path(name, rule)


def input_tokens(asked: Asked) -> int:
    """The tokens of a request. A token is a piece of text; every message and every tool costs a little more."""
    return sum(turn_tokens(asked)) + tool_tokens(asked)


def turn_tokens(asked: Asked) -> list[int]:
    """The tokens of each message."""
    return [len(pieces(t.text)) + 4 + sum(len(pieces(str(c.arguments))) for c in t.calls or ()) for t in asked.turns]


def tool_tokens(asked: Asked) -> int:
    """The tokens of the tools."""
    return len(msgspec.json.encode([t.parameters for t in asked.tools or ()])) // 4 if asked.tools else 0
