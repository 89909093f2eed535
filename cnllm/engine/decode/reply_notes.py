"""The notes on one reply: each once, and not without end."""

from __future__ import annotations

from collections.abc import Container

from cnllm.types import Note

__all__ = ["LEFT_OUT", "ReplyNotes"]

LEFT_OUT = "notes-left-out"
"""The code of the last note where there were more than are kept."""

_MOST = 100  # notes of one code that are kept; codes are the engine's own, so there are few


class ReplyNotes:
    """Notes in the order in which they came. Adding one takes the same time however many there are."""

    __slots__ = ("_kept", "_left", "_numbers", "_seen")

    def __init__(self) -> None:
        self._kept: list[Note] = []
        self._seen: set[int] = set()  # hashes: a note that is not kept may be long
        self._numbers: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def add(self, note: Note) -> bool:
        """Whether the note is new and kept."""
        key = hash(note)
        if key in self._seen:
            return False
        self._seen.add(key)
        number = self._numbers[note.code] = self._numbers.get(note.code, 0) + 1
        if number > _MOST:
            self._left[note.code] = self._left.get(note.code, 0) + 1
            return False
        self._kept.append(note)
        return True

    def forget(self, codes: Container[str]) -> None:
        """Drop the notes of these codes."""
        for note in self._kept:
            if note.code in codes:
                self._seen.discard(hash(note))
        self._kept = [note for note in self._kept if note.code not in codes]
        for code in [code for code in self._numbers if code in codes]:
            del self._numbers[code]
            self._left.pop(code, None)

    @property
    def omitted(self) -> list[Note]:
        """One note that says how many were left out, if any were."""
        if not self._left:
            return []
        said = f"{sum(self._left.values()):,} more notes"
        which = ", ".join(f"{number:,} {code}" for code, number in self._left.items())
        return [Note(LEFT_OUT, "notes", said, f"left out: {which}")]

    @property
    def all(self) -> list[Note]:
        """The notes that are kept, and last how many were left out."""
        return [*self._kept, *self.omitted]
