"""The log of a gateway's requests: one JSON line each, without a key and without a word of what was said."""

from __future__ import annotations

import logging
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import msgspec

from cnllm.config.redact import redact
from cnllm.gateway.failures import Failure, RequestFailed
from cnllm.gateway.monitoring.entry import Entry

__all__ = ["AccessLog", "Entry", "entry_fields"]

_LOGGER = logging.getLogger("cnllm.gateway")
_KEPT = 2000  # the newest requests, whose notes a client may ask for


class AccessLog:
    """Writes the log, and keeps the newest entries of this process."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def write(self, entry: Entry, *, is_kept: bool = True) -> None:
        """Write an entry. That of a client without a valid key is not kept."""
        if is_kept:
            self._entries[entry.id] = entry
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        if _LOGGER.isEnabledFor(logging.INFO):
            _LOGGER.info("%s", msgspec.json.encode(_fields(entry, [note.code for note in entry.notes])).decode())

    def crash(self, id: str, error: Exception) -> None:
        """Write an error of the gateway itself, with its traceback."""
        _LOGGER.error("%s failed: %s: %s", id, type(error).__name__, redact(str(error), ()), exc_info=error)

    def request(self, id: str) -> dict[str, Any]:
        """Return an entry with its notes in full. Raises `RequestFailed` for one that is not kept."""
        entry = self._entries.get(id)
        if entry is None:
            raise RequestFailed(Failure(404, f"no request {id!a} is kept in this process", "not_found"))
        return entry_fields(entry)


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Return an entry with its notes in full."""
    return _fields(entry, [msgspec.to_builtins(note) for note in entry.notes])


def _fields(entry: Entry, notes: list[Any]) -> dict[str, Any]:
    """Return the known fields of an entry."""
    data: dict[str, Any] = msgspec.to_builtins(entry, builtin_types=(Decimal,))
    data["seconds"] = round(entry.seconds, 4)
    if entry.first is not None:
        data["first"] = round(entry.first, 4)
    data = {name: value for name, value in data.items() if value not in ("", None)}
    if entry.cost is not None:
        data["cost"] = {"amount": str(entry.cost.amount), "currency": entry.cost.currency}
    return {**data, "notes": notes}
