"""An answer that is not valid goes back with the validator's words: what is said, and what both replies come to."""

from __future__ import annotations

from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.engine.run.continuation import total_cost, total_usage
from cnllm.types import Message, Note, Reply, Text

__all__ = ["add_usage", "correction_failed", "correction_turns", "validation_error"]

_INVALID = "answer-invalid"


def validation_error(reply: Reply) -> str | None:
    """What is wrong with the answer, in the validator's words; None where nothing is that asking again could mend.

    Only a whole answer is ever corrected: one that was cut off, withheld or is a call is not invalid but missing.
    """
    if reply.finish != "stop":
        return None
    return next((note.said for note in reply.notes if note.code == _INVALID), None)


def correction_turns(plan: Plan, reply: Reply, words: str) -> list[Message]:
    """The turns that ask for another answer: the one that was not valid, and why."""
    again = "Answer again, with the corrected JSON and nothing else."
    if plan.answer is not None and plan.answer.method == "tool":
        again = f"Call {plan.answer.name} again, with corrected arguments."
    said = Message("user", (Text(f"That answer is not valid against the JSON Schema: {words}\n{again}"),))
    return [reply.message, said] if reply.text.strip() else [said]


def add_usage(first: Reply, last: Reply, words: str, nth: int, most: int) -> Reply:
    """The last reply, with the tokens and the price of both: both were paid for."""
    did = f"sent back, and asked again ({nth} of {most}); usage and cost are of all requests"
    note = Note("answer-corrected", "corrections", words, did)
    kept = [n for n in first.notes if n.code != _INVALID]
    known = set(kept)
    notes = [*kept, note, *(n for n in last.notes if n not in known)]
    both = [first, last]
    return replace(last, notes=notes, usage=total_usage(both), cost=total_cost(both))


def correction_failed(reply: Reply, words: str, why: str) -> Reply:
    """The reply, where no correction of it came."""
    note = Note("correction-failed", "corrections", words, f"sent back, but no other answer came: {why}")
    return replace(reply, notes=[*reply.notes, note])
