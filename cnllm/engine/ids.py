"""Call ids as an endpoint takes them: of its pattern, and each once in a conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from cnllm.engine.ledger import Ledger
from cnllm.engine.repair import Turn
from cnllm.types import ToolCall, ToolResult

__all__ = ["renamed"]

_TRIES = 100  # a pattern that leaves room for no more ids than this cannot be met


def renamed(turns: Sequence[Turn], pattern: str | None, ledger: Ledger) -> list[Turn]:
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
    """The ids given so far, and what was wrong with those that were asked for."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = _compiled(pattern) if pattern else None
        self._given: set[str] = set()
        self._tries: dict[str, int] = {}
        self._odd: list[int] = []
        self._repeats: list[int] = []
        self._absent: list[int] = []

    def id(self, old: str, index: int, order: int) -> str:
        """The id for the call with this one."""
        fits = bool(old) and self._fits(old)
        if fits and old not in self._given:
            self._given.add(old)
            return old
        (self._absent if not old else self._repeats if fits else self._odd).append(index)
        name = old or f"call_{index}_{order}"
        for attempt in range(self._tries.get(name, 0), self._tries.get(name, 0) + _TRIES):
            made = self._made(name, attempt, fits)
            if made is not None and made not in self._given:
                self._tries[name] = attempt + 1
                self._given.add(made)
                return made
        return old  # no such pattern is known

    def _made(self, name: str, attempt: int, fits: bool) -> str | None:
        """The candidate of an attempt: near to the old id where the pattern lets it be."""
        near = f"{name}_{attempt + 2}" if fits or attempt else name
        if self._fits(near):
            return near
        assert self._pattern is not None
        return _id_for(name if not (attempt or fits) else near, self._pattern)

    def _fits(self, id: str) -> bool:
        return self._pattern is None or self._pattern.fullmatch(id) is not None

    def tell(self, ledger: Ledger) -> None:
        """The notes: one for each thing that was wrong, however often."""
        if self._odd:
            said = f"{len(self._odd)} call ids, the first in messages[{self._odd[0]}]"
            ledger.note("ids-renamed", "tools.ids", said, "made to match the endpoint's pattern")
        if self._repeats:
            said = f"{len(self._repeats)} call ids that came before, the first in messages[{self._repeats[0]}]"
            ledger.note("ids-repeated", "messages", said, "made unique")
        if self._absent:
            said = f"{len(self._absent)} calls without an id, the first in messages[{self._absent[0]}]"
            ledger.note("ids-absent", "messages", said, "given one")


def _id_for(old: str, pattern: re.Pattern[str]) -> str | None:
    """Characters made from the old id, as many and of such a kind as the pattern asks for."""
    import hashlib  # it brings OpenSSL along

    digest = int.from_bytes(hashlib.sha256(old.encode("utf-8", "replace")).digest(), "big")
    lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
    for alphabet in (digits + lower.upper() + lower, lower + digits, lower, digits, lower.upper(), digits + "abcdef"):
        number, text = digest, ""
        while number:
            number, place = divmod(number, len(alphabet))
            text += alphabet[place]
        for length in (9, 12, 16, 24, 32, 40):
            for candidate in (text[:length], f"call_{text[:length]}"):
                if pattern.fullmatch(candidate):
                    return candidate
    return None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
