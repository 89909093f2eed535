"""Calls of a gateway's clients in the store: what they cost and whether a cache could serve them, without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cnllm.config import redact
from cnllm.store.records import Failure, PrefixRecord, bill_column
from cnllm.store.text import as_json, encodable_text
from cnllm.types import Cost, Note, Usage

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = ["GatewayCall", "add_calls"]

_WHOLE_FINISHES = ("stop", "tool_calls")


class GatewayCall(Struct, frozen=True, kw_only=True):
    """One call. `began` is ISO 8601 in UTC, `client` the protocol of the client, `tag` the name of its key."""

    conversation: str
    began: str
    model: str
    protocol: str
    client: str
    origin: str
    tag: str = ""
    finish: str = ""
    usage: Usage | None = None
    cost: Cost | None = None
    seconds: float = 0.0
    error: Failure | None = None
    notes: Sequence[Note] = ()
    registry: str = ""
    prefix: PrefixRecord | None = None


def add_calls(file: DatabaseFile, calls: Sequence[GatewayCall]) -> None:
    """Write calls that have ended, in one transaction."""
    rows = [_row(call) for call in calls]
    if not rows:
        return
    began = [(call.conversation, call.began) for call in calls]
    names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
    with file.writing() as connection:
        connection.executemany("INSERT OR IGNORE INTO conversations (id, began) VALUES (?, ?)", began)
        connection.executemany(f"INSERT INTO turns ({names}) VALUES ({marks})", [tuple(row.values()) for row in rows])


def _row(call: GatewayCall) -> dict[str, object]:
    """Return the columns of a call."""
    cost = call.cost
    error = (
        None if call.error is None else redact.redact_data({"type": call.error.type, "message": call.error.message}, ())
    )
    notes = [{"code": note.code, "flag": note.flag, "said": "", "did": "", "where": note.where} for note in call.notes]
    return {
        "conversation": call.conversation,
        "began": call.began,
        "state": _state(call),
        "model": encodable_text(call.model),
        "protocol": call.protocol or None,
        "origin": call.origin,
        "finish": call.finish or None,
        "usage": None if call.usage is None else as_json(call.usage),
        "cost": None if cost is None else str(cost.amount),
        "currency": None if cost is None else cost.currency,
        "bill": bill_column(cost),
        "seconds": round(call.seconds, 3),
        "error": None if error is None else as_json(error),
        "notes": as_json(notes),
        "registry": call.registry or None,
        "client": call.client,
        "tag": encodable_text(call.tag) or None,
        "prefix": None if call.prefix is None else as_json(call.prefix),
    }


def _state(call: GatewayCall) -> str:
    """Return the state of a call that has ended."""
    if not call.finish:
        return "failed" if call.error is not None else "interrupted"
    return "done" if call.finish in _WHOLE_FINISHES and call.error is None else "partial"
