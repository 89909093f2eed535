"""Collect the notes on one reply: each once, and a limited number of each code."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from cnllm.types import Note

__all__ = ["NOTES_LEFT_OUT", "ReplyNotes"]

NOTES_LEFT_OUT: Final = "notes-left-out"
"""The code of the last note where notes were left out."""

_MAX_PER_CODE = 100  # the codes are the engine's own, so there are few


class ReplyNotes:
    """The notes in the order in which they came. Adding a note takes constant time."""

    __slots__ = ("_counts", "_hashes", "_notes", "_omitted")

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._hashes: set[int] = set()  # a note that is left out may be long, so only its hash is stored
        self._counts: dict[str, int] = {}
        self._omitted: dict[str, int] = {}

    def add(self, note: Note) -> bool:
        """Add a note; return whether it is new and is stored."""
        key = hash(note)
        if key in self._hashes:
            return False
        self._hashes.add(key)
        count = self._counts[note.code] = self._counts.get(note.code, 0) + 1
        if count > _MAX_PER_CODE:
            self._omitted[note.code] = self._omitted.get(note.code, 0) + 1
            return False
        self._notes.append(note)
        return True

    def forget(self, codes: Container[str]) -> None:
        """Remove the notes with these codes."""
        for note in self._notes:
            if note.code in codes:
                self._hashes.discard(hash(note))
        self._notes = [note for note in self._notes if note.code not in codes]
        for code in [code for code in self._counts if code in codes]:
            del self._counts[code]
            self._omitted.pop(code, None)

    @property
    def omitted(self) -> list[Note]:
        """Return a note that counts the notes left out, if there are any."""
        if not self._omitted:
            return []
        subject = f"{sum(self._omitted.values()):,} more notes"
        counts = ", ".join(f"{count:,} {code}" for code, count in self._omitted.items())
        return [Note(NOTES_LEFT_OUT, "notes", subject, f"left out: {counts}")]

    @property
    def all(self) -> list[Note]:
        """Return the notes, and last the one that counts the notes left out."""
        return [*self._notes, *self.omitted]
