"""The questions of a probe, in the order in which they are asked: what decides most comes first."""

from __future__ import annotations

from cnllm.probe.question import Question
from cnllm.probe.questions import reasoning, stream, tools

__all__ = ["QUESTIONS"]

QUESTIONS: tuple[Question, ...] = (
    *reasoning.QUESTIONS,
    *tools.QUESTIONS,
    *stream.QUESTIONS,
)
