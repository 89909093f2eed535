"""Keep the order of a reply's parts, for wires that send them one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from cnllm.types import Part

__all__ = ["BlockKind", "Blocks", "PartFactory"]

BlockKind = Literal["text", "thought", "opaque", "media", "call"]
PartFactory = Callable[[BlockKind, str, Any, Any], Part | None]
"""(kind, text, data, seal) → the part, or None where there is none."""


class Block:
    """One part that is being read.

    `at` is the index of its first piece among those of its kind, `end` the index behind its last one, once another part
    of its kind has begun. `seal` is the endpoint's signature. `part` is the part as built, `known` whether it still
    holds. `offset` counts the characters of its kind before it.
    """

    __slots__ = ("at", "data", "end", "is_current", "kind", "offset", "part", "seal")

    def __init__(self, kind: BlockKind, at: int, data: Any) -> None:
        self.kind: BlockKind = kind
        self.at = at
        self.end: int | None = None
        self.data = data
        self.seal: Any = None
        self.part: Part | None = None
        self.is_current = False
        self.offset = 0


class Blocks:
    """The parts of one reply in the order in which they began; `told` counts those that events have reported."""

    def __init__(self, texts: list[str], thoughts: list[str]) -> None:
        self._pieces = {"text": texts, "thought": thoughts}
        self._all: list[Block] = []
        self._last: dict[str, Block] = {}  # of each kind
        self._open = 0  # the first block that events may still report
        self._has_call = False
        self.kind: BlockKind | None = None
        self.reported = 0

    @property
    def count(self) -> int:
        """Count the parts that have begun."""
        return len(self._all)

    def block(self, index: int | None = None) -> Block | None:
        """Return the last part, or the one with this number, for a change; None where there is none.

        The part is built again afterwards.
        """
        index = len(self._all) - 1 if index is None else index
        if not 0 <= index < len(self._all):
            return None
        block = self._all[index]
        block.is_current = False
        return block

    @property
    def text_length(self) -> int:
        """Count the characters of the answer so far."""
        last = self._last.get("text")
        return 0 if last is None else last.offset + sum(map(len, self._pieces["text"][last.at :]))

    def begin(self, kind: BlockKind, data: Any = None) -> None:
        """Begin a part; its first piece is the next one of its kind."""
        block = Block(kind, len(self._pieces.get(kind, ())), data)
        if (previous := self._last.get(kind)) is not None:
            previous.end = block.at
            block.offset = previous.offset + sum(map(len, self._pieces.get(kind, ())[previous.at : block.at]))
        self._last[kind] = block
        self._all.append(block)
        self._has_call = self._has_call or kind == "call"
        self.kind = kind

    def restart(self) -> None:
        """Forget the pieces, because all of them arrive again. The order of the parts stays."""
        for block in self._all:
            block.at = block.offset = 0
            block.is_current = False
            block.end = None if block is self._last.get(block.kind) else 0
        self._open = self.reported = 0

    def finished_parts(self, factory: PartFactory) -> list[tuple[int, Part]]:
        """Return the finished parts that were not reported yet, each with its index.

        None from the first call on: a call that is cut off is no part, and would move the parts after it.
        """
        self.kind = None
        if self._has_call:
            return []
        parts = self._build_parts(self._open, factory)
        self._open = len(self._all)
        new = list(enumerate(parts, self.reported))
        self.reported += len(new)
        return new

    def parts(self, factory: PartFactory) -> list[Part]:
        """Return all parts, in order."""
        return self._build_parts(0, factory)

    def _build_parts(self, start: int, factory: PartFactory) -> list[Part]:
        """Return the parts of the blocks from `start` on. Only new and changed ones are built."""
        parts: list[Part] = []
        for block in self._all[start:]:
            if not block.is_current:
                pieces = self._pieces.get(block.kind)
                text = "" if pieces is None else "".join(pieces[block.at : block.end])
                block.part = factory(block.kind, text, block.data, block.seal)
                block.is_current = block.kind != "call"
            if block.part is not None:
                parts.append(block.part)
        return parts
