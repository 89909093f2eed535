"""Ask for streams: whether they come, how they end, and where their token counts are."""

from __future__ import annotations

import itertools
from typing import Any

from cnllm.jsonpath import get
from cnllm.probe.exchange import Answer
from cnllm.probe.question import WEATHER, Context, Finding, Question, Steps
from cnllm.types import Message

__all__ = ["STREAM", "STREAM_TOOLS"]


def _stream(context: Context) -> Steps:
    """Ask for a stream."""
    answer = yield context.ask([Message("user", "Say hello in one short sentence.")], why="a stream", stream=True)
    if not answer.passed or not answer.streamed or not isinstance(answer.data, list):
        return []
    found = [Finding("stream.deltas", _deltas(answer), "works")] if _deltas(answer) else []
    if answer.reply is not None and answer.reply.raw_finish:
        pass
    elif answer.done:
        found.append(Finding("stream.terminator", "done", "works"))
    if context.is_flat and (place := _usage_place(answer.data)) is not None:
        found.append(Finding("simulator.stream_usage", place, "works"))
    return found


def _deltas(answer: Answer) -> str | None:
    """Return whether the pieces of text repeat what came before."""
    texts = [get(chunk, "choices.0.delta.content") for chunk in answer.data]
    texts = [text for text in texts if isinstance(text, str) and text]
    if len(texts) < 3:
        return None
    grows = all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    return "cumulative" if grows and len(texts[-1]) > len(texts[0]) else None  # two streams do not prove the reverse


def _usage_place(chunks: list[Any]) -> str | None:
    """Return where the token counts of a stream are."""
    for chunk in chunks:
        if isinstance(get(chunk, "choices.0.usage"), dict):
            return "choice"
        if isinstance(get(chunk, "usage"), dict):
            return "last" if get(chunk, "choices.0") is not None else "chunk"
    return "none"


def _stream_tools(context: Context) -> Steps:
    """Ask for a stream with a call."""
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


STREAM = Question(
    "stream",
    ("stream.deltas", "stream.terminator", "simulator.stream_usage"),
    "the reply comes in events; what their texts and their last ones hold",
    1,
    _stream,
)
STREAM_TOOLS = Question(
    "stream with tools",
    ("stream.tools",),
    "a call comes in pieces",
    1,
    _stream_tools,
    by_model=True,
    capable=True,
    applies=lambda c: c.known.get("tools.supported") is True,
)
