"""Record every change to a request, and decide by the caller's policy whether a change may be made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from cnllm.errors import CannotSend
from cnllm.registry.model import Model
from cnllm.types import Note, Part
from cnllm.types.lenient_json import replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["Ledger"]


class _Cause:
    """Counts the messages to which one change was made, beyond the first: the place of its note, and the last one."""

    __slots__ = ("last", "more", "place")

    def __init__(self, place: int, last: str) -> None:
        self.place = place
        self.last = last
        self.more = 0


class Ledger:
    """The notes on one request. `policy` is the option `on_unsupported`, None where nobody set it.

    `mode` selects the `when` tables that may be the origin of a flag.

    `notes` are those to begin with; without them they are the model's. Notes of one cause on several messages are one
    note with their number: a long history may have hundreds.
    """

    def __init__(
        self, model: Model, policy: str | None, defaults: Collection[str] = (), notes: Sequence[Note] | None = None
    ) -> None:
        self.model = model
        self.policy = policy
        self.defaults = defaults
        self.mode: frozenset[str] = frozenset()
        self._notes: list[Note] = list(model.notes if notes is None else notes)
        self._note_set: set[Note] = set(self._notes)
        self._causes: dict[tuple[str, str, str], _Cause] = {}  # of notes on messages

    @property
    def notes(self) -> list[Note]:
        """Return the notes so far."""
        notes = self._notes.copy()
        for cause in self._causes.values():
            if cause.more:
                more = f"; {cause.more} more, the last in {cause.last}"
                notes[cause.place] = replace(notes[cause.place], said=notes[cause.place].said + more)
        return notes

    def for_option(self, option: str) -> Ledger:
        """Return the ledger for changes that one option causes.

        The policy is about options that the caller set. An option from the model's defaults is adjusted whatever the
        policy: an error would make a call fail for an option that the caller never set, and `send` would send a value
        that is known to be refused.
        """
        if option not in self.defaults:
            return self
        lenient = copy(self)  # with the same notes
        lenient.policy = "default"
        return lenient

    def note(self, code: NoteCode, flag: str, subject: object, did: str) -> None:
        """Record a change that the endpoint's format requires: nothing that the caller asked for is lost."""
        text = str(subject)
        if not text.startswith("messages["):
            self._append(self._build_note(code, flag, text, did))
            return
        message = text[: text.find("]") + 1]
        cause = self._causes.get((code, flag, did))
        if cause is None:
            note = self._build_note(code, flag, text, did)
            self._append(note)
            self._causes[code, flag, did] = _Cause(self._notes.index(note), message)
        elif message != cause.last:
            cause.more += 1
            cause.last = message

    def may_change(self, code: NoteCode, flag: str, subject: object, did: str) -> bool:
        """Return whether an unsupported option may be changed, with a note: False means to send it unchanged.

        Raises `CannotSend` where the policy is "error".
        """
        if self.policy == "send":
            return False
        if self.policy == "error":
            self.refuse(code, flag, subject, did)
        self.note(code, flag, subject, did)
        return True

    def cannot(self, code: NoteCode, flag: str, subject: object, reason: str) -> bool:
        """Leave out a default that the endpoint refuses and that has no substitute: return True, with a note.

        For an option that the caller set, return False (send it unchanged) where the policy is "send". Otherwise raise
        `CannotSend`.
        """
        if self.policy == "default":
            self.note(code, flag, subject, f"left out: {reason}")
            return True
        if self.policy != "send":
            self.refuse(code, flag, subject, reason)
        return False

    def refuse(
        self,
        code: NoteCode,
        flag: str,
        subject: object,
        reason: str,
        *,
        part: Part | None = None,
        hint: str = "change the option, or allow adjustments (on_unsupported='adjust')",
    ) -> NoReturn:
        """Raise `CannotSend`: an option, or a part of a message, cannot be sent in any form."""
        note = self._build_note(code, flag, subject, reason)
        origin = f" ({note.where})" if note.where else ""
        raise CannotSend(
            f"{self.model.name}: {note.flag}: {note.said}: {note.did}{origin}", note=note, part=part, hint=hint
        )

    def extend(self, notes: Sequence[Note]) -> None:
        """Record changes that were made before."""
        for note in notes:
            self._append(note)

    def _append(self, note: Note) -> None:
        """Append a note once."""
        if note not in self._note_set:
            self._note_set.add(note)
            self._notes.append(note)

    def _build_note(self, code: NoteCode, flag: str, subject: object, did: str) -> Note:
        """Build a note with the origin of its flag."""
        text = f"{subject} (a default)" if self.policy == "default" else str(subject)
        if not (text.isascii() and did.isascii()):  # quoted text may hold half a character
            text, did = str(replace_surrogates(text)), str(replace_surrogates(did))
        return Note(code, flag, text, did, self.model.where(flag, self.mode))
