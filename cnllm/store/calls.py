"""Calls in the store without a word: of a gateway's clients, of the library and of batches. What did they cost?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cnllm.config import redact
from cnllm.store.records import PrefixRecord, TurnError, bill_column, price_column
from cnllm.store.text import as_json, encodable_text
from cnllm.types import Cost, Note, Usage

if TYPE_CHECKING:
    from cnllm.store.file import DatabaseFile

__all__ = ["LoggedCall", "add_calls"]

_WHOLE_FINISHES = ("stop", "tool_calls")


class LoggedCall(Struct, frozen=True, kw_only=True):
    """One call. `began` is ISO 8601 in UTC, `key` the name of the client's key at a gateway.

    `client` says who made it: the protocol of a gateway's client, "library" or "batch". `price` is that of the model
    when the request was sent, a table of the registry.
    """

    conversation: str
    began: str
    model: str
    protocol: str
    client: str
    origin: str
    tag: str = ""
    key: str = ""
    finish: str = ""
    usage: Usage | None = None
    cost: Cost | None = None
    seconds: float = 0.0
    error: TurnError | None = None
    notes: Sequence[Note] = ()
    registry: str = ""
    reply_id: str | None = None
    reply_model: str | None = None
    prefix: PrefixRecord | None = None
    price: object = None


def add_calls(file: DatabaseFile, calls: Sequence[LoggedCall]) -> None:
    """Write calls that have ended, in one transaction."""
    rows = [_row(call) for call in calls]
    if not rows:
        return
    began = [(call.conversation, call.began) for call in calls]
    prices = {id(call.price): call.price for call in calls}
    names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
    with file.writing() as connection:
        numbers = {key: price_column(connection, price) for key, price in prices.items()}
        for row, call in zip(rows, calls, strict=True):
            row["price"] = numbers[id(call.price)]
        connection.executemany("INSERT OR IGNORE INTO conversations (id, began) VALUES (?, ?)", began)
        connection.executemany(f"INSERT INTO turns ({names}) VALUES ({marks})", [tuple(row.values()) for row in rows])


def _row(call: LoggedCall) -> dict[str, object]:
    """Return the columns of a call."""
    cost = call.cost
    error = None if call.error is None else redact.redact_data(msgspec.to_builtins(call.error), ())
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
        "key": encodable_text(call.key) or None,
        "reply_id": None if call.reply_id is None else encodable_text(call.reply_id),
        "reply_model": None if call.reply_model is None else encodable_text(call.reply_model),
        "price": None,
        "prefix": None if call.prefix is None else as_json(call.prefix),
    }


def _state(call: LoggedCall) -> str:
    """Return the state of a call that has ended."""
    if not call.finish:
        return "failed" if call.error is not None else "interrupted"
    return "done" if call.finish in _WHOLE_FINISHES and call.error is None else "partial"
