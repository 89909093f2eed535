"""Bring the state in line with the output: after a crash, a lost state file, or an output that was changed."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path

from cnllm.batch.output import Line, Output
from cnllm.batch.rows import id_digest, line_digest
from cnllm.batch.state import DONE, FAILED, RETRYABLE, SENT, BatchState
from cnllm.estimates.money import units_of

__all__ = ["Spent", "output_facts", "recover", "state_path"]

Spent = dict[str, int]
"""Money that was spent, in units by currency."""

_CHUNK = 5000
_KNOWN = "SELECT seq, state, place, length, cost FROM rows WHERE id = ?"
_UPDATE = "UPDATE rows SET state=?, place=?, length=?, cost=?, attempts=? WHERE seq=?"
_INSERT = (
    "INSERT INTO rows (seq, id, number, key, identity, setting, state, place, length, cost, attempts) "
    "VALUES (?,?,?,NULL,?,NULL,?,?,?,?,?)"
)


def recover(output: Output, state: BatchState) -> Spent:
    """Take in the lines of the output that the state does not know. Return what was spent so far.

    A torn last line is cut off. What unanswered requests may have cost counts as spent from now on.
    """
    known = state.fact("output") or {"size": 0, "tail": output.tail(0)}
    spent: Spent = state.fact("spent") or {}
    size = int(known["size"])
    trusted = size <= output.size and output.tail(size) == known["tail"]
    if not trusted:  # another file, or one that was edited: it is the truth
        with state.writing():
            state.execute("DELETE FROM rows WHERE state != ?", SENT)
            state.execute("UPDATE rows SET place = NULL, length = NULL")
            state.execute("DELETE FROM superseded")
        size = 0
    _take_in(output, state, size, spent, trusted=trusted)
    unsure = int(state.execute("SELECT total(cost) FROM rows WHERE state = 0").fetchone()[0])  # an unknown one is 0
    if unsure and (currency := state.fact("currency")) is not None:
        spent[currency] = spent.get(currency, 0) + unsure
    with state.writing():
        state.execute("UPDATE rows SET cost = 0 WHERE state = 0 AND cost IS NOT NULL")
        state.put_facts({"spent": spent, **output_facts(output)})
    return spent


def output_facts(output: Output) -> dict[str, object]:
    """Return what tells whether the output is as the state knows it."""
    return {"output": {"size": output.size, "tail": output.tail(output.size)}}


def _take_in(output: Output, state: BatchState, start: int, spent: Spent, *, trusted: bool) -> None:
    """Store the lines from a place on."""
    entries = output.entries(start, start if trusted and start else 0)
    seq, currency = state.last_seq(), state.fact("currency")
    while chunk := list(islice(entries, _CHUNK)):
        with state.writing():
            for place, length, line in chunk:
                digest = line_digest(line.line or 0) if line.id is None else id_digest(line.id)
                row = state.execute(_KNOWN, digest).fetchone()
                was_sent = row is not None and row[1] == SENT
                cost = _line_cost(line, spent, row[4] if was_sent else None, currency)
                values = (_state_of(line), place, length, cost, line.attempts)
                if row is None:
                    seq += 1
                    identity = None if line.identity is None else bytes.fromhex(line.identity)
                    number = line.line or (line.id if isinstance(line.id, int) else 0)
                    state.execute(_INSERT, seq, digest, number, identity, *values)
                else:
                    if row[2] is not None:
                        state.execute("INSERT OR IGNORE INTO superseded VALUES (?, ?)", row[2], row[3])
                    state.execute(_UPDATE, *values, row[0])


def _state_of(line: Line) -> int:
    if line.error is None:
        return DONE
    return RETRYABLE if line.error.retryable else FAILED


def _line_cost(line: Line, spent: Spent, reserved: int | None, currency: str | None) -> int | None:
    """Return the cost of a line in units, and add it to what was spent.

    Of a line without a cost, and of one whose tokens nobody counted, the reserved amount counts, unless the endpoint
    refused the request.
    """
    if line.from_cache:
        return 0
    cost = line.reply.cost if line.reply is not None else None
    units = None
    if cost is not None:
        try:
            units = units_of(Decimal(cost.amount))
        except InvalidOperation:
            return None
    if cost is not None and units is not None and (units or not reserved):
        spent[cost.currency] = spent.get(cost.currency, 0) + units
        return units
    if line.error is not None and (line.error.status or 0) >= 400:
        return 0
    if reserved and currency is not None:
        spent[currency] = spent.get(currency, 0) + reserved
    return reserved


def state_path(output: Path) -> Path:
    """Return the path of the state beside an output."""
    return output.with_name(f"{output.name}.state")
