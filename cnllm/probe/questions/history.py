"""Ask for earlier turns with and without their reasoning: which are refused, and what stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.exchange import Answer, Ask
from cnllm.probe.question import TIME, WEATHER, Context, Finding, Question, Steps
from cnllm.types import Message, Reasoning, Text, ToolCall, ToolResult

__all__ = ["QUESTIONS"]

_TEXT = Message("user", "What is the weather in Bern? Use the tool.")
_THOUGHT = "The user wants the weather in Bern, so I call the tool."
_THANKS = Message("user", "Thank you. Say hello in one short sentence.")


def _genuine(context: Context, patch: dict[str, Any]) -> Ask:
    return context.ask([_TEXT], why="a call, to continue from", tools=(WEATHER, TIME), patch=patch, control=True)


def _turn(answer: Answer) -> tuple[Message, Message] | None:
    """Return the model's own turn with its calls and their results."""
    if answer.reply is None or not answer.calls:
        return None
    turn = answer.reply.message
    results = tuple(ToolResult(c.id, "Sunny, 21 degrees.", c.name) for c in turn.tool_calls)
    return turn, Message("tool", results)


def _bare(turn: Message) -> Message:
    """Return a turn without its reasoning and seals."""
    parts: list[Any] = []
    for part in turn.parts:
        if type(part) is Reasoning:
            continue
        parts.append(replace(part, seal=None) if type(part) in (Text, ToolCall) else part)
    return Message("assistant", tuple(parts))


class _History:
    """Builds conversations from one genuine turn, with its reasoning in the wire's own form."""

    def __init__(self, context: Context, genuine: Answer, patch: dict[str, Any]) -> None:
        self.context = context
        self.patch = patch
        turn = _turn(genuine)
        assert turn is not None
        self.turn, self.results = turn
        self.raw = get(genuine.data, "choices.0.message") if context.is_flat else None

    def ask(self, messages: list[Message], why: str, *, full: tuple[int, ...] = (), stand_in: Any = ...) -> Ask:
        """Return a request; the turns with these indexes keep their reasoning in the keys in which it arrived."""
        ask = self.context.ask(messages, why=why, tools=(WEATHER, TIME), patch=self.patch)
        if not self.context.is_flat:
            return ask
        body = dict(ask.body or {})
        key = self.context.bodies.turns
        turns = list(body[key])
        for index, message in enumerate(turns):
            if message.get("role") != "assistant":
                continue
            for field in self.context.candidates.fields:
                message.pop(field, None)
            if index in full:
                turns[index] = {**message, **self._thought(message)}
            elif stand_in is not ... and message.get("tool_calls"):
                turns[index] = {**message, self._field: stand_in}
        return replace(ask, body={**body, key: turns})

    @property
    def _field(self) -> str:
        fields = self.context.known.get("reasoning.fields") or self.context.candidates.fields[:1]
        return str(fields[0])

    def _thought(self, message: dict[str, Any]) -> dict[str, Any]:
        raw = self.raw if isinstance(self.raw, dict) else {}
        found = {field: raw[field] for field in self.context.candidates.fields if raw.get(field)}
        if found:
            return found
        if isinstance(raw.get("content"), list):
            return {"content": raw["content"]}
        return {self._field: _THOUGHT}


def _replay(context: Context) -> Steps:
    """Continue from a call with its reasoning, and without it."""
    patch = context.on if context.on is not None else {}
    genuine = yield _genuine(context, patch)
    if _turn(genuine) is None:
        return []
    history = _History(context, genuine, patch)
    bare = [_TEXT, _bare(history.turn), history.results]
    full = [_TEXT, history.turn, history.results]
    missing = yield history.ask(bare, "an earlier call without its reasoning")
    present = yield history.ask(full, "an earlier call with its reasoning", full=(1,))
    if present.refused and missing.passed and context.is_flat:
        return [Finding("reasoning.replay", "never", "refused", present.message)]
    if not (missing.refused and present.passed):
        return []
    quote = missing.message
    found = yield from _extent(context, history, quote)
    if not context.is_flat:
        return found
    for word, value in (("empty", ""), ("space", " ")):
        answer = yield history.ask(bare, f"{word} reasoning in its place", stand_in=value)
        if answer.passed:
            return [*found, Finding("reasoning.if_missing", word, "works", quote)]
    return found


def _extent(context: Context, history: _History, quote: str) -> Any:
    """Ask which turns must have their reasoning: those since the last question, those with calls, or all."""
    answered = Message("assistant", "It is sunny in Bern.")
    earlier = [_TEXT, _bare(history.turn), history.results, answered, _THANKS]
    old = yield history.ask(earlier, "an older call without its reasoning")
    if old.passed:
        return [Finding("reasoning.replay", "since-user", "refused", quote)]
    if not context.is_flat:
        return []
    talk = [_TEXT, history.turn, history.results, answered, _THANKS, answered, _THANKS]
    plain = yield history.ask(talk, "an older answer without its reasoning", full=(1, 3))
    control = yield history.ask(talk, "the same with all of it", full=(1, 3, 5))
    if plain.refused and control.passed:
        return [Finding("reasoning.replay", "always", "refused", quote)]
    return [Finding("reasoning.replay", "tool-turns", "refused", quote)] if plain.passed else []


def _replay_off(context: Context) -> Steps:
    """Send reasoning in an earlier turn while reasoning is off."""
    patch = context.plain
    genuine = yield _genuine(context, patch)
    if _turn(genuine) is None:
        return []
    history = _History(context, genuine, patch)
    missing = yield history.ask([_TEXT, _bare(history.turn), history.results], "an earlier call, reasoning off")
    present = yield history.ask(
        [_TEXT, history.turn, history.results], "an earlier call with reasoning, reasoning off", full=(1,)
    )
    if present.refused and missing.passed:
        return [Finding("when.no-reasoning.reasoning.replay", "never", "refused", present.message)]
    return []


def _offers(more: Callable[[Context], bool]) -> Callable[[Context], bool]:
    return lambda context: context.known.get("tools.supported") is True and more(context)


QUESTIONS = (
    Question(
        "reasoning of earlier turns",
        ("reasoning.replay", "reasoning.if_missing"),
        "a turn without its reasoning is refused and one with it passes, or the reverse; what passes in its place",
        8,
        _replay,
        capable=True,
        applies=_offers(lambda c: True),
    ),
    Question(
        "reasoning of earlier turns, reasoning off",
        ("when.no-reasoning.reasoning.replay",),
        "a turn with reasoning is refused",
        2,
        _replay_off,
        capable=True,
        applies=_offers(
            lambda c: (
                c.is_flat
                and c.known.get("reasoning.mode") == "toggle"
                and c.off is not None
                and c.known.get("reasoning.replay") != "never"
            )
        ),
    ),
)
