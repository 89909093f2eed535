"""The questions of `cnllm probe`, from the questions themselves."""

from __future__ import annotations

from cnllm.probe.question import Question
from cnllm.probe.questions import QUESTIONS
from docs.generate.markdown import table

__all__ = ["page"]


def page() -> str:
    """Return the page of the questions."""
    rows = [
        (
            ", ".join(f"`{flag}`" for flag in question.flags),
            question.proof,
            str(question.requests),
            "yes" if question.capable else "",
        )
        for question in QUESTIONS
        if _is_shown(question)
    ]
    parts = [
        "# The questions of a probe",
        "In the order in which [`cnllm probe`](../how-to/probe.md) asks them. *Requests* is the most that one run of a "
        "question sends, without its control; a question that finds something runs twice, and a third time where the "
        "two runs differ. *Capable*: it takes a model that can do it; a weak one leaves the flag unknown.",
        table(("flags", "proof", "requests", "capable"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def _is_shown(question: Question) -> bool:
    return any(not flag.startswith("_") for flag in question.flags)
