"""Where the parts of a reply begin, for wires that send them one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from cnllm.types import Part

__all__ = ["BlockKind", "Blocks", "Made"]

BlockKind = Literal["text", "thought", "opaque", "media", "call"]
Made = Callable[[BlockKind, str, Any, Any], Part | None]
"""(kind, what was said, data, seal) → the part, or None where there is none."""


class Block:
    """One part being gathered: `at` is the piece of its kind that it begins with, `seal` what it goes back with.

    `end` is the piece behind its last, once another part of its kind has begun. `part` is what was made of it, `known`
    whether that still holds.
    """

    __slots__ = ("at", "data", "end", "kind", "known", "part", "seal")

    def __init__(self, kind: BlockKind, at: int, data: Any) -> None:
        self.kind: BlockKind = kind
        self.at = at
        self.end: int | None = None
        self.data = data
        self.seal: Any = None
        self.part: Part | None = None
        self.known = False


class Blocks:
    """The parts of one reply in the order in which they began; `told` counts those that events have told of."""

    def __init__(self, texts: list[str], thoughts: list[str]) -> None:
        self._pieces = {"text": texts, "thought": thoughts}
        self._all: list[Block] = []
        self._last: dict[str, Block] = {}  # of each kind
        self._open = 0  # the blocks before it were over when events last told of parts
        self._called = False
        self.kind: BlockKind | None = None
        self.told = 0

    @property
    def count(self) -> int:
        """How many parts have begun."""
        return len(self._all)

    def block(self, place: int | None = None) -> Block | None:
        """The part that began last, or the one of this number, to be changed: if it was made, it is made anew."""
        place = len(self._all) - 1 if place is None else place
        if not 0 <= place < len(self._all):
            return None
        block = self._all[place]
        block.known = False
        return block

    def begin(self, kind: BlockKind, data: Any = None) -> None:
        """A new part; its first piece is the next one of its kind."""
        block = Block(kind, len(self._pieces.get(kind, ())), data)
        if (before := self._last.get(kind)) is not None:
            before.end = block.at
        self._last[kind] = block
        self._all.append(block)
        self._called = self._called or kind == "call"
        self.kind = kind

    def restart(self) -> None:
        """All pieces are about to come anew: where parts began in them is lost, their order is kept."""
        for block in self._all:
            block.at = 0
            block.known = False
            block.end = None if block is self._last.get(block.kind) else 0
        self._open = self.told = 0

    def finished_parts(self, made: Made) -> list[tuple[int, Part]]:
        """The parts that are over by now and not yet told of, each with its place.

        None from the first call on: one that turns out to be cut off is no part, and would move those after it.
        """
        self.kind = None
        if self._called:
            return []
        parts = self._made(self._open, made)
        self._open = len(self._all)
        new = list(enumerate(parts, self.told))
        self.told += len(new)
        return new

    def parts(self, made: Made) -> list[Part]:
        """All parts, in order."""
        return self._made(0, made)

    def _made(self, start: int, made: Made) -> list[Part]:
        """The parts of the blocks from `start` on. Only those are made that are new or have changed."""
        parts: list[Part] = []
        for block in self._all[start:]:
            if not block.known:
                pieces = self._pieces.get(block.kind)
                said = "" if pieces is None else "".join(pieces[block.at : block.end])
                block.part = made(block.kind, said, block.data, block.seal)
                block.known = block.kind != "call"
            if block.part is not None:
                parts.append(block.part)
        return parts
