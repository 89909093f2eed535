"""Call ids: of the endpoint's pattern, and each once in a conversation, in what goes out and in what comes in."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.history.repair import Turn
from cnllm.protocols.call_ids import UniqueIds
from cnllm.types import ToolCall, ToolResult

__all__ = ["rename_ids"]


def rename_ids(turns: Sequence[Turn], pattern: str | None, ledger: Ledger) -> list[Turn]:
    """The turns with ids that fit; each turn with calls is followed by a message for each result, in order.

    A new id is made from the old one and from what came before it, so that it is the same each time, and stays the
    same when the conversation goes on.
    """
    out: list[Turn] = []
    fresh = _Ids(pattern)
    due: list[str] = []
    for index, message in turns:
        if message.role == "assistant":
            old = [p.id for p in message.parts if type(p) is ToolCall]
            if old:
                due = [fresh.id(id, index, n) for n, id in enumerate(old)]
                if due != old:
                    ids = iter(due)
                    parts = tuple(replace(p, id=next(ids)) if type(p) is ToolCall else p for p in message.parts)
                    message = replace(message, parts=parts)
                due.reverse()
        elif message.role == "tool" and due:
            id = due.pop()
            result = message.parts[0]
            if type(result) is ToolResult and result.id != id:
                message = replace(message, parts=(replace(result, id=id),))
        out.append((index, message))
    fresh.tell(ledger)
    return out


class _Ids:
    """The ids given so far, and what was wrong with those of the history."""

    def __init__(self, pattern: str | None) -> None:
        self._unique = UniqueIds(pattern)
        self._odd: list[int] = []
        self._repeats: list[int] = []
        self._absent: list[int] = []

    def id(self, old: str, index: int, order: int) -> str:
        """Return the id for the call with this one."""
        unique = self._unique
        fits = bool(old) and unique.matches(old)
        if fits and unique.claim(old):
            return old
        (self._absent if not old else self._repeats if fits else self._odd).append(index)
        made = unique.derive(old or f"call_{index}_{order}", fits)
        return old if made is None else made  # no such pattern is known

    def tell(self, ledger: Ledger) -> None:
        """The notes: one for each thing that was wrong, however often."""
        if self._odd:
            said = f"{len(self._odd)} call ids, the first in messages[{self._odd[0]}]"
            ledger.note("ids-renamed", "tools.call_id_pattern", said, "made to match the endpoint's pattern")
        if self._repeats:
            said = f"{len(self._repeats)} call ids that came before, the first in messages[{self._repeats[0]}]"
            ledger.note("ids-repeated", "messages", said, "made unique")
        if self._absent:
            said = f"{len(self._absent)} calls without an id, the first in messages[{self._absent[0]}]"
            ledger.note("ids-absent", "messages", said, "given one")
