"""Give calls ids that match the endpoint's pattern and are unique in the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.protocols.call_ids import UniqueIds
from cnllm.types import ToolCall, ToolResult

__all__ = ["rename_ids"]


def rename_ids(turns: Sequence[Turn], pattern: str | None, ledger: Ledger) -> list[Turn]:
    """Return the turns with valid ids. In them each turn with calls is followed by a message for each result, in order.

    A new id depends on the old one and on the messages before it. So it is the same each time, and stays the same when
    the conversation goes on.
    """
    out: list[Turn] = []
    assigner = _IdAssigner(pattern)
    new_ids: list[str] = []
    for index, message in turns:
        if message.role == "assistant":
            old = [p.id for p in message.parts if type(p) is ToolCall]
            if old:
                new_ids = [assigner.id(id, index, n) for n, id in enumerate(old)]
                if new_ids != old:
                    ids = iter(new_ids)
                    parts = tuple(replace(p, id=next(ids)) if type(p) is ToolCall else p for p in message.parts)
                    message = replace(message, parts=parts)
                new_ids.reverse()
        elif message.role == "tool" and new_ids:
            id = new_ids.pop()
            result = message.parts[0]
            if type(result) is ToolResult and result.id != id:
                message = replace(message, parts=(replace(result, id=id),))
        out.append((index, message))
    assigner.add_notes(ledger)
    return out


class _IdAssigner:
    """The ids so far, and the faults of those in the history."""

    def __init__(self, pattern: str | None) -> None:
        self._unique = UniqueIds(pattern)
        self._invalid: list[int] = []
        self._repeats: list[int] = []
        self._missing: list[int] = []

    def id(self, old: str, index: int, order: int) -> str:
        """Return the id for a call of the history."""
        unique = self._unique
        fits = bool(old) and unique.matches(old)
        if fits and unique.claim(old):
            return old
        (self._missing if not old else self._repeats if fits else self._invalid).append(index)
        new = unique.derive(old or f"call_{index}_{order}", fits)
        return old if new is None else new  # no id is known to match the pattern

    def add_notes(self, ledger: Ledger) -> None:
        """Add a note for each kind of fault, however often it occurs."""
        if self._invalid:
            subject = f"{len(self._invalid)} call ids, the first in messages[{self._invalid[0]}]"
            ledger.note("ids-renamed", "tools.call_id_pattern", subject, "changed to match the endpoint's pattern")
        if self._repeats:
            subject = f"{len(self._repeats)} call ids that came before, the first in messages[{self._repeats[0]}]"
            ledger.note("ids-repeated", "messages", subject, "made unique")
        if self._missing:
            subject = f"{len(self._missing)} calls without an id, the first in messages[{self._missing[0]}]"
            ledger.note("ids-absent", "messages", subject, "given one")
