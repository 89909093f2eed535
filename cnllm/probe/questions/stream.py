"""Ask for streams: whether they come, how they end, and where their token counts are."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.probe.facts import Finding
from cnllm.probe.observed import counts_in, pieces_of, repeats
from cnllm.probe.question import (
    ASK_WEATHER,
    HELLO,
    SAME,
    WEATHER,
    ProbeContext,
    Steps,
    need,
    offers_tools,
    question,
    reasons_by_choice,
)

__all__ = ["stream", "stream_tools", "whole_in_other_mode"]


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
    plain = yield context.ask([HELLO], why="a stream", stream=True)
    need(plain.passed and plain.streamed and isinstance(plain.data, list))
    has_repeats = repeats(pieces_of(plain.data).get("content", []))  # that two streams have none proves nothing
    found = [Finding("stream.deltas", "cumulative", "works")] if has_repeats else []
    if plain.done and (plain.reply is None or not plain.reply.raw_finish):
        found.append(Finding("stream.terminator", "done", "works"))
    if not context.is_flat:
        return found
    whole = yield context.ask([HELLO], why="the control", control=True)
    counted = yield context.ask([HELLO], why=f"a stream, {_SWITCH}=true", stream=True, set={_SWITCH: True})
    flag = f"when.stream.body.set.{_SWITCH}"
    answer = counted if counted.passed and isinstance(counted.data, list) else plain
    place = _usage_place(context, answer.data)
    if place != "none" and _usage_place(context, plain.data) == "none":
        found.append(Finding(flag, True, "works"))
    if place == "none" and whole.usage.input is None and _has_numbers(answer.data):
        return found  # the places of this endpoint's counts are not known
    return [*found, Finding("simulator.stream_usage", place, "works")]


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
    "whole answers in the other mode",
    "when.no-reasoning.stream.required",
    requests=1,
    applies=lambda c: bool(c.known.get("stream.required")) and reasons_by_choice(c),
)
def whole_in_other_mode(context: ProbeContext) -> Steps:
    """Ask an endpoint that answers only in streams for a whole answer in the mode that it does not have by itself.

    Proof: the whole answer comes, so that the refusal was one of a request in the other mode.
    """
    is_on = context.known.get("reasoning.default") == "on"
    mode, patch = ("no-reasoning", context.off) if is_on else ("reasoning", context.on)
    flag = f"when.{mode}.stream.required"
    whole = replace(context, known={**context.known, flag: False})
    answer = yield whole.ask([HELLO], why=f"a whole answer, {mode}", patch=patch)
    if answer.refused:
        return [Finding(f"{SAME}stream.required", True, "works")]
    return [Finding(flag, False, "works")] if answer.passed and not answer.streamed else []


@question("stream with tools", "stream.tools", requests=1, by_model=True, capable=True, applies=offers_tools)
def stream_tools(context: ProbeContext) -> Steps:
    """Ask for a stream with a call.

    Proof: a call comes in pieces.
    """
    answer = yield context.ask([ASK_WEATHER], why="a stream with tools", tools=(WEATHER,), stream=True)
    need(answer.passed and answer.calls and isinstance(answer.data, list))
    pieces = [get(chunk, "choices.0.delta.tool_calls.0.function.arguments") for chunk in answer.data]
    need(not context.is_flat or len([p for p in pieces if p]) > 1)
    return [Finding("stream.tools", True, "works")]
