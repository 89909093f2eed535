"""Ask for streams: whether they come, how they end, and where their token counts are."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.exchange import ProbeAnswer
from cnllm.probe.facts import Finding
from cnllm.probe.observed import counts_in, repeats
from cnllm.probe.question import WEATHER, ProbeContext, Steps, offers_tools, question
from cnllm.types import Message

_HELLO = [Message("user", "Say hello in one short sentence.")]
__all__ = ["stream", "stream_tools", "whole_without_reasoning"]


_SWITCH = "stream_options.include_usage"


@question(
    "stream",
    "stream.deltas",
    "stream.terminator",
    "simulator.stream_usage",
    f"when.stream.body.set.{_SWITCH}",
    requests=2,
)
def stream(context: ProbeContext) -> Steps:
    """Ask for a stream, and on a flat wire for its token counts too.

    Proof: the reply comes in events; what their texts and their last ones hold, with and without the switch.
    """
    plain = yield context.ask(_HELLO, why="a stream", stream=True)
    if not plain.passed or not plain.streamed or not isinstance(plain.data, list):
        return []
    found = [Finding("stream.deltas", "cumulative", "works")] if repeats(_texts(plain)) else []
    if plain.done and (plain.reply is None or not plain.reply.raw_finish):
        found.append(Finding("stream.terminator", "done", "works"))
    if not context.is_flat:
        return found
    whole = yield context.ask(_HELLO, why="the control", control=True)
    counted = yield context.ask(_HELLO, why=f"a stream, {_SWITCH}=true", stream=True, set={_SWITCH: True})
    flag = f"when.stream.body.set.{_SWITCH}"
    answer = counted if counted.passed and isinstance(counted.data, list) else plain
    place = _usage_place(context, answer.data)
    if counted.refused:
        found.append(Finding("_stream_options", False, "refused", counted.message))
    elif place != "none" and _usage_place(context, plain.data) == "none":
        found.append(Finding(flag, True, "works"))
    if place == "none" and (whole.reply is None or whole.reply.usage.input is None) and _has_numbers(answer.data):
        return found  # the places of this endpoint's counts are not known
    return [*found, Finding("simulator.stream_usage", place, "works")]


def _texts(answer: ProbeAnswer) -> list[str]:
    """Return the pieces of the text. That two streams do not repeat it proves nothing."""
    texts = [get(chunk, "choices.0.delta.content") for chunk in answer.data]
    return [text for text in texts if isinstance(text, str) and text]


def _usage_place(context: ProbeContext, chunks: list[Any]) -> str:
    """Return where the token counts of a stream are."""
    at = context.learnt.usage[0] if context.learnt.usage is not None else "usage"
    for chunk in chunks:
        if isinstance(get(chunk, "choices.0.usage"), dict):
            return "choice"
        if isinstance(get(chunk, at), dict):
            return "last" if get(chunk, "choices.0") is not None else "chunk"
    return "none"


def _has_numbers(chunks: list[Any]) -> bool:
    """Whether anything in a stream may be a count."""
    inner = [{**choice, "index": None} for c in chunks if isinstance(choice := get(c, "choices.0"), dict)]
    return bool(counts_in(chunks) or counts_in(inner))


@question(
    "a whole answer without reasoning",
    "_whole_in_plain_mode",
    requests=1,
    applies=lambda c: bool(c.known.get("stream.required") and c.known.get("reasoning.default") == "on" and c.off),
)
def whole_without_reasoning(context: ProbeContext) -> Steps:
    """Ask an endpoint that answers only in streams for a whole answer without reasoning.

    Proof: the whole answer comes; the refusal was one of a request in which the model reasons.
    """
    plain = replace(context, known={**context.known, "_whole_in_plain_mode": True})
    answer = yield plain.ask(_HELLO, why="a whole answer without reasoning")
    return [Finding("_whole_in_plain_mode", True, "works")] if answer.passed and not answer.streamed else []


@question("stream with tools", "stream.tools", requests=1, by_model=True, capable=True, applies=offers_tools)
def stream_tools(context: ProbeContext) -> Steps:
    """Ask for a stream with a call.

    Proof: a call comes in pieces.
    """
    answer = yield context.ask(
        [Message("user", "What is the weather in Bern? Use the tool.")],
        why="a stream with tools",
        tools=(WEATHER,),
        stream=True,
    )
    if not answer.passed or not answer.calls or not isinstance(answer.data, list):
        return []
    pieces = [get(chunk, "choices.0.delta.tool_calls.0.function.arguments") for chunk in answer.data]
    if context.is_flat and len([p for p in pieces if p]) < 2:
        return []
    return [Finding("stream.tools", True, "works")]
