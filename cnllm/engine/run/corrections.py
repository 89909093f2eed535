"""Correct an invalid answer: send it back with the error. The reply is that of all requests."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.effects import Steps
from cnllm.errors import CnllmError
from cnllm.types import Message, Note, Reply, Text
from cnllm.types.totals import cost_total, total_usage, with_costs

__all__ = ["correct_answer"]

_INVALID = "answer-invalid"


def correct_answer(plan: Plan, reply: Reply, ask: Callable[..., Steps]) -> Steps:
    """Return the reply, or the corrected one after an invalid answer was sent back. Corrections are not streamed.

    `ask` returns the steps of a call with further turns.
    """
    if plan.answer is None:
        return reply
    turns: list[Message] = []
    for number in range(1, plan.corrections + 1):
        problem = _validation_error(reply)
        if problem is None:
            break
        turns += _answer_turns(plan, reply, problem)
        try:
            corrected = yield from ask(*turns)
        except CnllmError as error:  # the earlier reply is whole, and paid for
            return with_costs(_failed_correction(reply, problem, str(error)), error.costs)
        if corrected.finish not in ("stop", "tool_calls"):
            both = [reply, corrected]
            reply = replace(reply, usage=total_usage(both), cost=cost_total(both))
            return _failed_correction(reply, problem, f"it ended with {corrected.finish}")
        reply = _corrected_answer(reply, corrected, problem, number, plan.corrections)
    return reply


def _validation_error(reply: Reply) -> str | None:
    """Return the validator's message; None where the answer is valid, or where asking again would not help.

    Only a whole answer is corrected: one that was cut off, withheld or is a call is not invalid but missing.
    """
    if reply.finish != "stop":
        return None
    return next((note.said for note in reply.notes if note.code == _INVALID), None)


def _answer_turns(plan: Plan, reply: Reply, problem: str) -> list[Message]:
    """Return the turns that ask for another answer: the invalid one, and the error."""
    instruction = "Answer again, with the corrected JSON and nothing else."
    if plan.answer is not None and plan.answer.method == "tool":
        instruction = f"Call {plan.answer.name} again, with corrected arguments."
    request = Message("user", (Text(f"That answer is not valid against the JSON Schema: {problem}\n{instruction}"),))
    return [reply.message, request] if reply.text.strip() else [request]


def _corrected_answer(first: Reply, last: Reply, problem: str, number: int, limit: int) -> Reply:
    """Return the last reply with the tokens and the cost of both: both were paid for."""
    did = f"sent back, and asked again ({number} of {limit}); usage and cost are of all requests"
    note = Note("answer-corrected", "corrections", problem, did)
    earlier = [n for n in first.notes if n.code != _INVALID]
    seen_notes = set(earlier)
    notes = [*earlier, note, *(n for n in last.notes if n not in seen_notes)]
    both = [first, last]
    return replace(last, notes=notes, usage=total_usage(both), cost=cost_total(both))


def _failed_correction(reply: Reply, problem: str, reason: str) -> Reply:
    """Return the reply with a note that its correction failed."""
    note = Note("correction-failed", "corrections", problem, f"sent back, but no other answer came: {reason}")
    return replace(reply, notes=[*reply.notes, note])
