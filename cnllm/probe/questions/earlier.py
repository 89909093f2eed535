"""Build conversations that go on from a call which the model itself made, in a form that the endpoint takes.

Where the endpoint takes no tools, the call is made up, and stands beside the reasoning of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get, nest, set_value
from cnllm.probe.exchange import Ask, Asking, ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.observed import message_of
from cnllm.probe.question import (
    ASK_WEATHER,
    TIME,
    WEATHER,
    ProbeContext,
    Steps,
    need,
    question,
    refusal,
)
from cnllm.types import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from cnllm.types.tools import Function

__all__ = ["ANSWERED", "THANKS", "Earlier", "earlier", "earlier_calls", "takes_calls"]

_THOUGHT = "The user wants the weather in Bern, so I call the tool."
_ABOUT_CALL = "Let me look that up."
_CALL = ToolCall("call_0a1b2c3d4e5f", WEATHER.name, {"city": "Bern"}, '{"city": "Bern"}')
_STATE = "_earlier"
ANSWERED = Message("assistant", "It is sunny in Bern.")
THANKS = Message("user", "Thank you. Say hello in one short sentence.")


class TurnForm(Struct, frozen=True):
    """The form of the turn with a call, and of its result.

    `named`: results carry the tool's name. `thoughtful`: the turn has its reasoning. `content` is what stands beside
    the calls (... for no key), `reasoning` what stands in place of the reasoning, `full` the indexes of further turns
    that have reasoning, `id` the call's id.
    """

    named: bool = False
    thoughtful: bool = False
    content: Any = _ABOUT_CALL
    reasoning: Any = ...
    full: tuple[int, ...] = ()
    id: str | None = None


class Earlier:
    """A turn with calls that the model wrote, or that is made up, in the form that the endpoint wants to have."""

    def __init__(self, context: ProbeContext, genuine: ProbeAnswer, patch: Mapping[str, Any]) -> None:
        assert genuine.reply is not None
        self.context = context
        self.patch = patch
        self.tools = _tools(context)
        parts = genuine.reply.message.parts
        thoughts = tuple(part for part in parts if type(part) is Reasoning)
        self.turn = Message("assistant", parts if genuine.calls else (*thoughts, _CALL))
        self.raw = message_of(genuine.data) if context.is_flat else {}
        self.form = TurnForm(**(context.known.get(_STATE) or {}))

    def ask(
        self,
        why: str,
        *,
        after: tuple[Message, ...] = (),
        media: tuple[Media, ...] = (),
        control: bool = False,
        **changes: Any,
    ) -> Ask:
        """Return a request that goes on from the call, with changes of its form. `after` are messages after it."""
        form = replace(self.form, **changes)
        turn = self._turn(form)
        calls = (part for part in turn.parts if type(part) is ToolCall)
        results = tuple(ToolResult(call.id, "Sunny, 21 degrees.", call.name, media=media) for call in calls)
        messages = [ASK_WEATHER, turn, Message("tool", results), *after]
        ask = self.context.ask(messages, why=why, tools=self.tools, patch=self.patch, control=control)
        if not self.context.is_flat:
            return ask
        key = self.context.bodies.turns
        turns = [self._flat(index, message, form) for index, message in enumerate(ask.body[key])]
        return replace(ask, body={**ask.body, key: turns})

    def _turn(self, form: TurnForm) -> Message:
        parts: list[Part] = []
        for part in self.turn.parts:
            if type(part) is Reasoning and not form.thoughtful:
                continue
            if type(part) in (Text, ToolCall) and not form.thoughtful:
                part = replace(part, seal=None)
            if type(part) is ToolCall and form.id is not None:
                parts.append(replace(part, id=form.id))
                break  # one call, one id
            parts.append(part)
        return Message("assistant", tuple(parts))

    def _flat(self, index: int, message: dict[str, Any], form: TurnForm) -> dict[str, Any]:
        """Return a message of a wire whose turns are flat objects, with what the question wants in it."""
        if message.get("role") == "tool":
            rest = {k: v for k, v in message.items() if k != "name"}
            return {**rest, "name": WEATHER.name} if form.named else rest
        if message.get("role") != "assistant":
            return message
        flat = {k: v for k, v in message.items() if k not in {f.partition(".")[0] for f in self.context.fields}}
        if flat.get("tool_calls"):
            flat = {k: v for k, v in flat.items() if k != "content"}
            if form.content is not ...:
                flat = {"role": "assistant", "content": form.content, **flat}
            if form.reasoning is not ...:
                flat |= nest(self.field, form.reasoning)
        if index in form.full or (form.reasoning is ... and form.thoughtful and flat.get("tool_calls")):
            flat |= self._thought(flat)
        return flat

    @property
    def has_form(self) -> bool:
        """Whether it is known in which form the endpoint writes reasoning: another one would prove nothing."""
        return not self.context.is_flat or "reasoning.shape" in self.context.known

    @property
    def field(self) -> str:
        """Return the key in which reasoning arrives."""
        fields = self.context.known.get("reasoning.fields") or self.context.fields[:1]
        return str(fields[0])

    def _thought(self, flat: dict[str, Any]) -> dict[str, Any]:
        """Return the reasoning in the keys in which the endpoint wrote it."""
        raw = self.raw
        found: dict[str, Any] = {}
        for field in self.context.fields:
            if value := get(raw, field):
                set_value(found, field, value)
        if found:
            return found
        if isinstance(raw.get("content"), list):
            thoughts = [p for p in raw["content"] if isinstance(p, dict) and p.get("type") != "text"]
            own = flat.get("content")
            return {"content": [*thoughts, *([{"type": "text", "text": own}] if isinstance(own, str) and own else [])]}
        if self.context.known.get("reasoning.shape") == "tags":
            before, after = self.context.known["reasoning.tags"]
            return {"content": f"{before}{_THOUGHT}{after}\n\n{flat.get('content') or ''}"}
        return nest(self.field, _THOUGHT)


def earlier(context: ProbeContext, patch: Mapping[str, Any] | None = None) -> Asking[Earlier]:
    """Return the builder of conversations that go on from a call. It needs the model to make one, where it may.

    Without tools the text of the answer is left out: only the made-up call stands beside its reasoning.
    """
    patch = context.plain if patch is None else patch
    tools = _tools(context)
    ask = context.ask([ASK_WEATHER], why="a call, to continue from", tools=tools, patch=patch, control=True)
    genuine = yield ask
    need(genuine.calls or (genuine.passed and not tools))
    return Earlier(context, genuine, patch)


def _tools(context: ProbeContext) -> tuple[Function, ...]:
    return () if context.known.get("tools.supported") is False else (WEATHER, TIME)


def takes_calls(context: ProbeContext) -> bool:
    """Whether earlier turns with calls can be asked about: calls come, or the endpoint takes no tools at all."""
    return "tools.supported" in context.known


# ── what the endpoint wants with a turn ──────────────────────────────────────
_FORMS = ((False, False), (True, False), (False, True), (True, True))


@question("earlier calls", "tools.result_name", requests=5, capable=True, applies=takes_calls)
def earlier_calls(context: ProbeContext) -> Steps:
    """Look for a form of the turn that passes: with the tool's name in the result, with its reasoning, or both.

    Proof: a result without (or with) the tool's name is refused, and the reverse passes.
    """
    builder = yield from earlier(context)
    state = context.hint(_STATE)
    forms = [(state["named"], state["thoughtful"])] if state is not None else list(_FORMS)
    if not context.is_flat:
        forms = [f for f in forms if not f[0]]

    def ask(*, named: bool, thoughtful: bool) -> Ask:
        form = f"with{'' if named else 'out'} a name{', with reasoning' if thoughtful else ''}"
        return builder.ask(f"an earlier call, its result {form}", named=named, thoughtful=thoughtful)

    for named, thoughtful in forms:
        if (yield ask(named=named, thoughtful=thoughtful)).passed:
            break
    else:
        return []
    found = [Finding(_STATE, {"named": named, "thoughtful": thoughtful}, "works")]
    if context.is_flat and builder.tools:
        other = yield ask(named=not named, thoughtful=thoughtful)
        found += refusal(other, "tools.result_name", named)
    return found
