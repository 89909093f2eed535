"""Build conversations that go on from a call which the model itself made, in a form that the endpoint takes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.exchange import Answer, Ask
from cnllm.probe.question import TIME, WEATHER, Context, Finding, Steps, offers_tools, question
from cnllm.types import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult

__all__ = ["ANSWERED", "THANKS", "Earlier", "earlier", "earlier_calls"]

_TEXT = Message("user", "What is the weather in Bern? Use the tool.")
_THOUGHT = "The user wants the weather in Bern, so I call the tool."
_ABOUT_CALL = "Let me look that up."
_STATE = "_earlier"
ANSWERED = Message("assistant", "It is sunny in Bern.")
THANKS = Message("user", "Thank you. Say hello in one short sentence.")


class Earlier:
    """A turn with calls that the model wrote, and what the endpoint wants to have with it.

    `named`: results carry the tool's name. `thoughtful`: the turn has its reasoning.
    """

    def __init__(self, context: Context, genuine: Answer, patch: Mapping[str, Any]) -> None:
        assert genuine.reply is not None
        state = context.known.get(_STATE) or {}
        self.context = context
        self.patch = patch
        self.turn = genuine.reply.message
        self.raw = get(genuine.data, "choices.0.message") if context.is_flat else None
        self.named = bool(state.get("named"))
        self.thoughtful = bool(state.get("thoughtful"))

    def ask(
        self,
        why: str,
        *,
        after: tuple[Message, ...] = (),
        named: bool | None = None,
        thoughtful: bool | None = None,
        content: Any = _ABOUT_CALL,
        reasoning: Any = ...,
        full: tuple[int, ...] = (),
        id: str | None = None,
        media: tuple[Media, ...] = (),
        extra: str | None = None,
        control: bool = False,
    ) -> Ask:
        """Return a request that goes on from the call.

        `after` are messages after its result, `content` what stands beside the calls (... for no key), `reasoning` what
        stands in place of the reasoning, `full` the indexes of further turns that have reasoning, `id` the call's id,
        `extra` a further key of the turn.
        """
        named = self.named if named is None else named
        thoughtful = self.thoughtful if thoughtful is None else thoughtful
        turn = self._turn(thoughtful, id)
        results = tuple(
            ToolResult(c.id, "Sunny, 21 degrees.", c.name, media=media) for c in turn.parts if type(c) is ToolCall
        )
        messages = [_TEXT, turn, Message("tool", results), *after]
        context = self.context
        ask = context.ask(messages, why=why, tools=(WEATHER, TIME), patch=self.patch, control=control)
        if not context.is_flat:
            return ask
        body = dict(ask.body or {})
        key = context.bodies.turns
        body[key] = [
            self._flat(index, message, named, thoughtful, content, reasoning, full)
            for index, message in enumerate(body[key])
        ]
        if extra is not None:
            body[key] = [{**m, extra: True} if m.get("tool_calls") else m for m in body[key]]
        return replace(ask, body=body)

    def _turn(self, thoughtful: bool, id: str | None) -> Message:
        parts: list[Part] = []
        for part in self.turn.parts:
            if type(part) is Reasoning and not thoughtful:
                continue
            if type(part) in (Text, ToolCall) and not thoughtful:
                part = replace(part, seal=None)
            if type(part) is ToolCall and id is not None:
                part = replace(part, id=id)
            parts.append(part)
            if type(part) is ToolCall and id is not None:
                break  # one call, one id
        return Message("assistant", tuple(parts))

    def _flat(
        self,
        index: int,
        message: dict[str, Any],
        named: bool,
        thoughtful: bool,
        content: Any,
        reasoning: Any,
        full: tuple[int, ...],
    ) -> dict[str, Any]:
        """Return a message of a wire whose turns are flat objects, with what the question wants in it."""
        if message.get("role") == "tool":
            rest = {k: v for k, v in message.items() if k != "name"}
            return {**rest, "name": WEATHER.name} if named else rest
        if message.get("role") != "assistant":
            return message
        fields = self.context.candidates.fields
        flat = {k: v for k, v in message.items() if k not in fields}
        if flat.get("tool_calls"):
            flat = {k: v for k, v in flat.items() if k != "content"}
            if content is not ...:
                flat = {"role": "assistant", "content": content, **flat}
            if reasoning is not ...:
                return {**flat, self.field: reasoning}
        if index in full or (thoughtful and flat.get("tool_calls")):
            return {**flat, **self._thought(flat)}
        return flat

    @property
    def field(self) -> str:
        """Return the key in which reasoning arrives."""
        fields = self.context.known.get("reasoning.fields") or self.context.candidates.fields[:1]
        return str(fields[0])

    def _thought(self, flat: dict[str, Any]) -> dict[str, Any]:
        """Return the reasoning in the keys in which the endpoint wrote it."""
        raw = self.raw if isinstance(self.raw, dict) else {}
        found = {field: raw[field] for field in self.context.candidates.fields if raw.get(field)}
        if found:
            return found
        if isinstance(raw.get("content"), list):
            thoughts = [p for p in raw["content"] if isinstance(p, dict) and p.get("type") != "text"]
            own = flat.get("content")
            return {"content": [*thoughts, *([{"type": "text", "text": own}] if isinstance(own, str) and own else [])]}
        return {self.field: _THOUGHT}


def earlier(context: Context, patch: Mapping[str, Any] | None = None) -> Generator[Ask, Answer, Earlier | None]:
    """Return the builder of conversations that go on from a call; None where the model makes none."""
    patch = context.plain if patch is None else patch
    ask = context.ask([_TEXT], why="a call, to continue from", tools=(WEATHER, TIME), patch=patch, control=True)
    genuine = yield ask
    return Earlier(context, genuine, patch) if genuine.calls else None


# ── what the endpoint wants with a turn ──────────────────────────────────────
_FORMS = ((False, False), (True, False), (False, True), (True, True))


@question("earlier calls", "tools.result_name", requests=5, capable=True, applies=offers_tools)
def earlier_calls(context: Context) -> Steps:
    """Look for a form of the turn that passes: with the tool's name in the result, with its reasoning, or both.

    Proof: a result without (or with) the tool's name is refused, and the reverse passes.
    """
    builder = yield from earlier(context)
    if builder is None:
        return []
    state = context.hint(_STATE)
    forms = [(state["named"], state["thoughtful"])] if state is not None else list(_FORMS)
    if not context.is_flat:
        forms = [f for f in forms if not f[0]]
    words = ""
    passing: tuple[bool, bool] | None = None
    for named, thoughtful in sorted(forms, key=lambda form: sum(form)):
        answer = yield builder.ask(_describe(named, thoughtful), named=named, thoughtful=thoughtful)
        if answer.passed:
            passing = (named, thoughtful)
            break
        words = words or answer.message
    if passing is None:
        return []
    named, thoughtful = passing
    found = [Finding(_STATE, {"named": named, "thoughtful": thoughtful}, "works")]
    if context.is_flat:
        other = yield builder.ask(_describe(not named, thoughtful), named=not named, thoughtful=thoughtful)
        if other.refused:
            found.append(Finding("tools.result_name", named, "refused", other.message))
    return found


def _describe(named: bool, thoughtful: bool) -> str:
    return f"an earlier call, its result with{'' if named else 'out'} a name" + (
        ", with reasoning" if thoughtful else ""
    )
