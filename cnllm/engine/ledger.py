"""Keeps account of every change to a request, and decides by the caller's policy whether one may be made."""

from __future__ import annotations

from typing import NoReturn

from cnllm.errors import CannotSend
from cnllm.model import Model
from cnllm.types import Note

__all__ = ["Ledger"]


class Ledger:
    """Notes of one request. `mode` is what `when` tables are looked up by, for the line behind a note."""

    def __init__(self, model: Model, policy: str) -> None:
        self.model = model
        self.policy = policy
        self.mode: frozenset[str] = frozenset()
        self.notes: list[Note] = list(model.notes)

    def note(self, code: str, flag: str, said: object, did: str) -> None:
        """Record a change that the endpoint's shape makes necessary: nothing asked for is lost by it."""
        note = self._made(code, flag, said, did)
        if note not in self.notes:
            self.notes.append(note)

    def may_change(self, code: str, flag: str, said: object, did: str) -> bool:
        """What the caller asked for is not supported: True (and a note) to adjust it, False to send it all the same.

        Raises `CannotSend` where the caller wants that.
        """
        if self.policy == "send":
            return False
        note = self._made(code, flag, said, did)
        if self.policy == "error":
            self._refuse(note)
        if note not in self.notes:
            self.notes.append(note)
        return True

    def cannot(self, code: str, flag: str, said: object, why: str) -> None:
        """The endpoint is known to refuse this: raises `CannotSend`, unless the caller wants it sent all the same."""
        if self.policy != "send":
            self.refuse(code, flag, said, why)

    def refuse(self, code: str, flag: str, said: object, why: str) -> NoReturn:
        """There is no way to send this: raises `CannotSend`."""
        self._refuse(self._made(code, flag, said, why))

    def _refuse(self, note: Note) -> NoReturn:
        origin = f" ({note.where})" if note.where else ""
        raise CannotSend(
            f"{self.model.name}: {note.flag}: {note.said}: {note.did}{origin}",
            note=note,
            hint="ask for something else, or let it be adjusted (on_unsupported='adjust')",
        )

    def _made(self, code: str, flag: str, said: object, did: str) -> Note:
        return Note(code, flag, str(said), did, self.model.where(flag, self.mode))
