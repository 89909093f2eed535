"""Define a question: what it is about, how it is asked, and what its exchanges prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from cnllm.jsonpath import leaves
from cnllm.probe.bodies import Bodies
from cnllm.probe.candidates import FlagCandidates
from cnllm.probe.exchange import Ask, Asking, ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.observed import Learnt
from cnllm.protocols import wire
from cnllm.registry.flags import Flags
from cnllm.types import Message
from cnllm.types.tools import Function

__all__ = [
    "ASK_WEATHER",
    "HELLO",
    "SAME",
    "SUM",
    "TIME",
    "WEATHER",
    "Finding",
    "NothingProven",
    "ProbeContext",
    "Question",
    "Steps",
    "need",
    "offers_tools",
    "question",
    "reasons_by_choice",
    "refusal",
]

SAME = "_same."
"""The beginning of a finding that the flags whose names begin so hold while the model reasons, too."""

HELLO = Message("user", "Say hello in one short sentence.")
SUM = Message("user", "What is 17 times 23? Answer with the number.")
ASK_WEATHER = Message("user", "What is the weather in Bern? Use the tool.")

Steps = Asking[list[Finding]]
"""A run of a question: it asks, and returns what the answers prove.

Each answer took its request or refused it: a run ends with a request that gets neither.
"""


class ProbeContext(Struct, frozen=True):
    """The knowledge that a question gets: how to build bodies, the facts so far, what is worth trying.

    `known` maps flags to values that two runs agreed on, `hints` the findings of the question's first run,
    `window` the tokens that the endpoint says it takes, `is_own` whether it is a server of one's own, `learnt` how its
    replies are read, `assumed` the flags of any endpoint of the wire.
    """

    bodies: Bodies
    candidates: FlagCandidates
    known: Mapping[str, Any] = {}
    hints: Mapping[str, Finding] = {}
    run: int = 1
    window: int | None = None
    is_own: bool = False
    learnt: Learnt = Learnt()
    assumed: Flags = Flags()

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the keys that may hold reasoning, those that the endpoint has shown first."""
        return (*self.learnt.fields, *(field for field in self.candidates.fields if field not in self.learnt.fields))

    def hint(self, flag: str) -> Any:
        """Return the value of a flag in the question's first run; None where that run found none."""
        return self.hints[flag].value if flag in self.hints else None

    def candidates_for(self, flag: str, values: Iterable[Any]) -> Iterable[Any]:
        """Return the values to try for a flag: the one that the first run found, else all."""
        return [self.hints[flag].value] if flag in self.hints else values

    @property
    def max_tokens_path(self) -> str:
        """Return where the endpoint reads the most tokens of a reply, as far as is known."""
        return self.known.get("params.max_tokens") or self.bodies.path("max_tokens")

    # ── the modes of reasoning ───────────────────────────────────────────────

    @property
    def on(self) -> dict[str, Any] | None:
        """Return the change of the body with which the model reasons, {} where it does so by itself."""
        if self.known.get("reasoning.default") == "on":
            return {}
        return self.known.get("reasoning.on.set")

    @property
    def off(self) -> dict[str, Any] | None:
        """Return the change of the body with which the model does not reason, {} where it does not by itself."""
        if "_quiet" in self.known:
            return {}
        return self.known.get("reasoning.off.set")

    @property
    def plain(self) -> dict[str, Any]:
        """Return the change of the body for questions that have nothing to do with reasoning."""
        return self.off or {}

    # ── requests ─────────────────────────────────────────────────────────────

    def ask(
        self,
        messages: list[Message],
        *,
        why: str = "",
        set: Mapping[str, Any] | None = None,
        control: bool = False,
        stream: bool = False,
        most: int | None = None,
        patch: Mapping[str, Any] | None = None,
        joint: str = "",
        **parts: Any,
    ) -> Ask:
        """Return a request. `set` are values by path, `patch` a change of the mode (the plain one by default).

        `joint` is the path whose value other requests may have beside their own.
        """
        mode = self.plain if patch is None else patch
        reasons = patch is not None and patch == self.on and self.known.get("reasoning.mode") != "never"
        key = f"when.{'reasoning' if reasons else 'no-reasoning'}.stream.required"
        stream = stream or self.known.get(key, self.known.get("stream.required", False))
        values = {**leaves(dict(mode)), **(set or {})}
        body = self.bodies.build(messages, stream=stream, values=values, reasons=reasons, **parts)
        return Ask(body=body, why=why, control=control, stream=stream, most=most, joint=joint)

    @property
    def has_roles(self) -> bool:
        """Whether the messages of this wire have system messages among them."""
        return "any" not in wire(self.bodies.model.protocol).separate_system

    @property
    def is_flat(self) -> bool:
        """Whether a turn of this wire is one object with content, calls and further keys beside each other."""
        return not wire(self.bodies.model.protocol).ordered


class Question(Struct, frozen=True):
    """A question: the flags that it decides, the function that asks it, and the proof in words.

    `requests` is the most that one run sends, without the control. `by_model`: the answer depends on the model, so that
    a question without an effect is asked three times. `capable`: it needs a model that can do it. `opens`: other
    questions depend on what it finds.
    """

    name: str
    flags: tuple[str, ...]
    requests: int
    run: Callable[[ProbeContext], Steps]
    proof: str = ""
    by_model: bool = False
    capable: bool = False
    opens: bool = False
    applies: Callable[[ProbeContext], bool] = lambda context: True


def question(name: str, *flags: str, **settings: Any) -> Callable[[Callable[[ProbeContext], Steps]], Question]:
    """Return a decorator that makes a question of the function that asks it.

    The last paragraph of the function's docstring, after "Proof: ", is the proof. `settings` are fields of `Question`.
    """

    def decorate(run: Callable[[ProbeContext], Steps]) -> Question:
        def steps(context: ProbeContext) -> Steps:
            try:
                return (yield from run(context))
            except NothingProven:
                return []

        proof = " ".join((run.__doc__ or "").partition("Proof: ")[2].split()).removesuffix(".")
        return Question(name, flags, run=steps, proof=proof, **settings)

    return decorate


class NothingProven(Exception):
    """A question lacks what it needs."""


def need(condition: object) -> None:
    """End the question without a finding, unless a condition holds."""
    if not condition:
        raise NothingProven


def refusal(answer: ProbeAnswer, flag: str, value: Any) -> list[Finding]:
    """Return the finding that a refusal is; none where the request was not refused."""
    return [Finding(flag, value, "refused", answer.message)] if answer.refused else []


def offers_tools(context: ProbeContext) -> bool:
    """Whether calls of tools come."""
    return context.known.get("tools.supported") is True


def reasons_by_choice(context: ProbeContext) -> bool:
    """Whether reasoning can be turned on and off."""
    return context.known.get("reasoning.mode") == "toggle" and context.on is not None and context.off is not None


def _in_city(name: str, noun: str) -> Function:
    city = {"type": "object", "properties": {"city": {"type": "string", "description": "The city."}}}
    return Function(name, f"Return the {noun} in a city.", {**city, "required": ["city"]})


WEATHER, TIME = _in_city("get_weather", "weather"), _in_city("get_time", "time")
