"""The log of a gateway's requests: one JSON line each, without a key and without a word of what was said."""

from __future__ import annotations

import logging
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.config.redact import redact
from cnllm.errors import CnllmError
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.monitoring.entry import Entry

__all__ = ["AccessLog", "Entry", "entry_fields"]

_LOGGER = logging.getLogger("cnllm.gateway")
_KEPT_BYTES = 8 * 1024 * 1024  # of the newest requests, whose notes a client may ask for
_ENTRY_BYTES = 1024  # of an entry without its notes, about
_NOTES_BYTES = 32 * 1024  # of the notes of one of them
_LONGEST_TEXT = 1000  # characters of a text in an entry: clients choose some of its words


class AccessLog:
    """Writes the log, and keeps the newest entries of this process: so many bytes, by the identity of their client."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, tuple[str, Entry, int]] = OrderedDict()
        self._size = 0

    def write(self, entry: Entry, identity: str = "") -> None:
        """Write an entry. It is kept for its client; that of a client without a valid key is not kept."""
        size = _shorten(entry)
        if identity:
            self._entries[entry.id] = identity, entry, size
            self._size += size
            while self._size > _KEPT_BYTES:
                self._size -= self._entries.popitem(last=False)[1][2]
        if _LOGGER.isEnabledFor(logging.INFO):
            codes = list(dict.fromkeys(note.code for note in entry.notes))
            _LOGGER.info("%s", msgspec.json.encode(_fields(entry, codes)).decode())

    def warn(self, id: str, error: CnllmError) -> None:
        """Write an error that only the operator can end."""
        hint = f"; {error.hint}" if error.hint else ""
        _LOGGER.warning("%s: %s%s", id, error.message, hint)

    def crash(self, id: str, error: Exception) -> None:
        """Write an error of the gateway itself, with its traceback."""
        _LOGGER.error("%s failed: %s: %s", id, type(error).__name__, redact(str(error), ()), exc_info=error)

    def request(self, identity: str, id: str) -> dict[str, Any]:
        """Return an entry of a client with its notes in full. Raises `RequestFailed` for any other."""
        kept = self._entries.get(id)
        if kept is None or kept[0] != identity:
            raise RequestFailed(Failure(404, f"no request {id!a} of this key is kept in this process", "not_found"))
        return entry_fields(kept[1])


def _shorten(entry: Entry) -> int:
    """Shorten the texts of an entry and of its notes, which a client may have chosen, and return about how long it is.

    Of very many notes the first ones stay.
    """
    entry.outcome = _short(entry.outcome)
    size, notes = 0, []
    for note in entry.notes:
        if len(note.said) > _LONGEST_TEXT or len(note.did) > _LONGEST_TEXT:
            note = replace(note, said=_short(note.said), did=_short(note.did))
        if (size := size + len(note.said) + len(note.did)) > _NOTES_BYTES:
            break
        notes.append(note)
    entry.notes = notes
    return _ENTRY_BYTES + size


def _short(text: str) -> str:
    """Return a text; of a long one the beginning."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text):,} characters)"


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Return an entry with its notes."""
    _shorten(entry)
    return _fields(entry, [msgspec.to_builtins(note) for note in entry.notes])


def _fields(entry: Entry, notes: list[Any]) -> dict[str, Any]:
    """Return the known fields of an entry."""
    data: dict[str, Any] = msgspec.to_builtins(entry, builtin_types=(Decimal,))
    del data["soft_budgets"]  # `soft_budget` says it in words
    data["seconds"] = round(entry.seconds, 4)
    if entry.first is not None:
        data["first"] = round(entry.first, 4)
    data = {name: value for name, value in data.items() if value not in ("", None)}
    if entry.cost is not None:
        data["cost"] = {"amount": str(entry.cost.amount), "currency": entry.cost.currency}
    return {**data, "notes": notes}
