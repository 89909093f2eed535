"""Bring the state in line with the output: after a crash, a lost state file, or an output that was changed."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path

from cnllm.batch.output import Line, Output
from cnllm.batch.rows import id_digest, line_digest
from cnllm.batch.state import DONE, FAILED, RESULT, RETRYABLE, SENT, BatchState
from cnllm.estimates.money import units_of

__all__ = ["Spent", "output_facts", "recover", "state_path"]

Spent = dict[str, int]
"""Money that was spent, in units by currency."""

_LARGEST_NUMBER = 2**63 - 1  # of SQLite
_FOREIGN = "UPDATE rows SET key=NULL, setting=NULL, identity=?, cost=? WHERE seq=?"
_INSERT = (
    "INSERT INTO rows (seq, id, number, key, identity, setting, state, place, length, cost, attempts) "
    "VALUES (?,?,?,NULL,?,NULL,?,?,?,?,?)"
)


def recover(output: Output, state: BatchState) -> Spent:
    """Take in the lines of the output that the state does not know. Return what was spent so far.

    An output that is not exactly as the state left it is read as a whole: it is the truth. A torn last line is cut off.
    What unanswered requests may have cost counts as spent from now on.
    """
    known = state.fact("output") or {}
    spent: Spent = state.fact("spent") or {}
    size, stamp = int(known.get("size", 0)), output.stamp()
    is_as_known = size == output.size and known.get("stamp") == stamp and known["tail"] == output.tail(size)
    with state.writing():
        if not is_as_known:
            begins_alike = size <= output.size and known.get("tail") == output.tail(size)
            is_same_file = known.get("stamp", ())[:1] == stamp[:1]
            _read_again(output, state, spent, size if begins_alike and (size or is_same_file) else None)
        unsure = int(state.execute("SELECT total(cost) FROM rows WHERE state = 0")[0][0])  # an unknown one is 0
        if unsure and (currency := state.fact("currency")) is not None:
            spent[currency] = spent.get(currency, 0) + unsure
        state.execute("UPDATE rows SET cost = 0 WHERE state = 0 AND cost IS NOT NULL")
        state.put_facts({"spent": spent, **output_facts(output)})
    return spent


def output_facts(output: Output) -> dict[str, object]:
    """Return what tells whether the output is as the state knows it."""
    return {"output": {"size": output.size, "tail": output.tail(output.size), "stamp": output.stamp()}}


def _read_again(output: Output, state: BatchState, spent: Spent, written: int | None) -> None:
    """Find the line of each row in the output. Rows without one are forgotten, unless they are unanswered.

    What the state knows of a row stays where its line is of the same request: its cost is counted already. Behind the
    `written` bytes damaged lines are those of a crash. Call it in `writing`.
    """
    state.execute("UPDATE rows SET place = NULL, length = NULL")
    state.execute("DELETE FROM superseded")
    last_known, currency = state.last_seq(), state.fact("currency")
    seq, strangers = last_known, dict[int, tuple[bytes | None, Line]]()  # lines of another request than the known one
    for place, length, line in output.entries(written):
        is_request = line.line is None
        digest = id_digest(line.id) if is_request and line.id is not None else line_digest(line.line or 0)
        identity = None if line.identity is None else bytes.fromhex(line.identity)
        known = state.find(digest)
        if known is None:
            seq += 1
            is_number = isinstance(line.id, int) and 0 <= line.id <= _LARGEST_NUMBER
            number = line.line or (line.id if is_number else 0)  # a row without an id is named by its line
            cost = _line_cost(line, spent, None, currency)
            state.execute(_INSERT, seq, digest, number, identity, _state_of(line), place, length, cost, line.attempts)
            continue
        if known.place is not None:
            state.execute("INSERT OR IGNORE INTO superseded VALUES (?, ?)", known.place, known.length)
        if known.state == SENT and (identity != known.identity or 0 < line.attempts <= known.attempts):
            # an answer from before the row was sent again
            state.update_rows(("place", "length"), [(place, length, known.seq)])
            continue
        cost = known.cost
        if known.state == SENT or known.seq > last_known:
            cost = _line_cost(line, spent, known.cost if known.state == SENT else None, currency)
        elif identity != known.identity:
            strangers[known.seq] = identity, line
        else:
            strangers.pop(known.seq, None)
        state.update_rows(RESULT, [(_state_of(line), place, length, cost, line.attempts, known.seq)])
    state.execute("DELETE FROM rows WHERE place IS NULL AND state != ?", SENT)
    for known_seq, (identity, line) in strangers.items():
        state.execute(_FOREIGN, identity, _line_cost(line, spent, None, currency), known_seq)


def _state_of(line: Line) -> int:
    if line.error is None:
        return DONE
    return RETRYABLE if line.error.retryable else FAILED


def _line_cost(line: Line, spent: Spent, reserved: int | None, currency: str | None) -> int | None:
    """Return the cost of a line in units, and add it to what was spent.

    Of a line without a cost, and of one whose tokens nobody counted or whose cost nothing bounds, the reserved amount
    counts, unless it is less than what is certain, or the endpoint refused the request.
    """
    if line.from_cache:
        return 0
    cost = line.reply.cost if line.reply is not None else None
    if cost is not None:
        is_bounded = cost.complete or cost.at_most is not None
        try:
            units = units_of(Decimal(cost.at_most or cost.amount))
        except InvalidOperation:
            return None
        if units >= (reserved or 0) or (is_bounded and units):
            spent[cost.currency] = spent.get(cost.currency, 0) + units
            return units if is_bounded or reserved else None
    if line.error is not None and (line.error.status or 0) >= 400:
        return 0
    if reserved and currency is not None:
        spent[currency] = spent.get(currency, 0) + reserved
    return reserved


def state_path(output: Path) -> Path:
    """Return the path of the state beside an output."""
    return output.with_name(f"{output.name}.state")
