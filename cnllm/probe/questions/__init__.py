"""The questions of a probe, in the order in which they are asked: what decides most comes first."""

from __future__ import annotations

from cnllm.probe.question import Question
from cnllm.probe.questions import (
    effort,
    history,
    media,
    messages,
    output,
    params,
    reasoning,
    stream,
    tool_rules,
    tools,
    window,
)

__all__ = ["QUESTIONS"]

QUESTIONS: tuple[Question, ...] = (
    *reasoning.QUESTIONS,
    *tools.QUESTIONS,
    *params.QUESTIONS,
    *messages.QUESTIONS,
    *output.QUESTIONS,
    *tool_rules.QUESTIONS,
    *history.QUESTIONS,
    *effort.QUESTIONS,
    *media.QUESTIONS,
    *stream.QUESTIONS,
    *window.QUESTIONS,
)
