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
    """One part being gathered: `at` is the piece of its kind that it begins with, `seal` what it goes back with."""

    __slots__ = ("at", "data", "kind", "seal")

    def __init__(self, kind: BlockKind, at: int, data: Any) -> None:
        self.kind: BlockKind = kind
        self.at = at
        self.data = data
        self.seal: Any = None


class Blocks:
    """The parts of one reply in the order in which they began; `told` counts those that events have told of."""

    def __init__(self, texts: list[str], thoughts: list[str]) -> None:
        self._pieces = {"text": texts, "thought": thoughts}
        self._all: list[Block] = []
        self._parts: list[Part] = []  # of the blocks before `_open`
        self._open = 0
        self._called = False
        self.kind: BlockKind | None = None
        self.told = 0

    @property
    def begun(self) -> int:
        """How many parts have begun."""
        return len(self._all)

    def block(self, place: int | None = None) -> Block | None:
        """The part that began last, or the one of this number, to be changed: if it was made, it is made anew."""
        place = len(self._all) - 1 if place is None else place
        if not 0 <= place < len(self._all):
            return None
        if place < self._open:
            self._parts, self._open = [], 0
        return self._all[place]

    def begin(self, kind: BlockKind, data: Any = None) -> None:
        """A new part; its first piece is the next one of its kind."""
        self._all.append(Block(kind, len(self._pieces.get(kind, ())), data))
        self._called = self._called or kind == "call"
        self.kind = kind

    def again(self) -> None:
        """All pieces are about to come anew: where parts began in them is lost, their order is kept."""
        for block in self._all:
            block.at = 0
        self._parts, self._open, self.told = [], 0, 0

    def settled(self, made: Made) -> list[tuple[int, Part]]:
        """The parts that are over by now and not yet told of, each with its place.

        None from the first call on: one that turns out to be cut off is no part, and would move those after it.
        """
        self.kind = None
        if self._called:
            return []
        self._parts += self._new(made)
        self._open = len(self._all)
        new = list(enumerate(self._parts[self.told :], self.told))
        self.told = len(self._parts)
        return new

    def parts(self, made: Made) -> list[Part]:
        """All parts, in order."""
        return [*self._parts, *self._new(made)]

    def _new(self, made: Made) -> list[Part]:
        ends = {kind: len(pieces) for kind, pieces in self._pieces.items()}
        parts: list[Part] = []
        for block in reversed(self._all[self._open :]):
            said = ""
            if block.kind in ends:
                said = "".join(self._pieces[block.kind][block.at : ends[block.kind]])
                ends[block.kind] = block.at
            part = made(block.kind, said, block.data, block.seal)
            if part is not None:
                parts.append(part)
        parts.reverse()
        return parts
