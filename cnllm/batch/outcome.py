"""The outcome of a request: its line in the output, and whether another run asks again."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from cnllm.batch.output import LineError, encode_line
from cnllm.batch.state import DONE, FAILED, RETRYABLE
from cnllm.errors import CnllmError, EndpointError
from cnllm.types import Reply

__all__ = [
    "FAULT",
    "INVALID",
    "Outcome",
    "fault_outcome",
    "line_of",
    "outcome_of_error",
    "outcome_of_reply",
]

INVALID = "InvalidAnswer"
"""The type of an answer that does not follow the schema, after its corrections."""
FAULT = "BadRow"
"""The type of a line that is no request."""


class Outcome(Struct, frozen=True):
    """A finished row: a reply, an error, or both where an answer came and is not whole or not valid.

    `cached` is the reply as JSON where it comes from the cache of another run.
    """

    state: int
    reply: Reply | None
    error: LineError | None
    cached: bytes | None = None


def outcome_of_reply(reply: Reply) -> Outcome:
    """Return the outcome of a reply. One that does not follow the schema is a failure, and so is a cut one."""
    for note in reply.notes:
        if note.code == "answer-invalid":
            return Outcome(FAILED, reply, LineError(INVALID, note.said))
    if reply.finish in ("cut", "error"):
        return Outcome(RETRYABLE, reply, LineError("StreamCut", "the reply is not whole", retryable=True))
    return Outcome(DONE, reply, None)


def outcome_of_error(error: CnllmError) -> Outcome:
    """Return the outcome of a request that failed."""
    status = error.status if isinstance(error, EndpointError) else None
    retryable = error.meaning.again is True
    state = RETRYABLE if retryable else FAILED
    return Outcome(state, error.reply, LineError(type(error).__name__, str(error), status, retryable))


def fault_outcome(message: str) -> Outcome:
    """Return the outcome of a row that was not sent."""
    return Outcome(FAILED, None, LineError(FAULT, message))


def line_of(
    row_id: str | int | None, outcome: Outcome, attempts: int, identity: bytes | None, line: int | None = None
) -> bytes:
    """Return the line of a row. One without an id is named by its `line` in the input."""
    data: dict[str, Any] = {
        "id": row_id,
        "reply": None if outcome.reply is None else outcome.reply.to_dict(),
        "error": outcome.error,
        "attempts": attempts,
        "identity": None if identity is None else identity.hex(),
    }
    if outcome.cached is not None:
        data |= {"reply": Raw(outcome.cached), "from_cache": True}
    if line is not None:
        data["line"] = line
    return encode_line(data)
