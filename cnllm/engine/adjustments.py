"""Record every change to a request, and decide by the caller's policy whether a change may be made."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import ADJUST, CannotSend
from cnllm.registry.model import Model
from cnllm.types import Note, Part
from cnllm.types.client_data import count_text
from cnllm.types.lenient_json import replace_surrogates

if TYPE_CHECKING:
    from cnllm.types.note_codes import NoteCode

__all__ = ["Cause", "Count", "Ledger", "MessageNote"]

Cause = tuple[str, str, str]
"""The cause of a note on messages: its code, its flag and what was done."""
Count = tuple["NoteCode", str, str, str]
"""The code, the flag, the subject and what was done of a note that is counted."""

_MESSAGE = re.compile(r"messages\[(\d+)\](?: holds (.+))?")
"""The beginning of a note on a message: its index, and what it holds."""


class MessageNote(Struct):
    """A note on several messages: what was done to the first one, how many more there are, and the last one.

    `note` is that on the message `first`, in words that begin with its place.
    """

    note: Note
    first: int
    last: int
    more: int = 0

    def move(self, by: int) -> Note:
        """Return the note on the first message, where the conversation stands further behind."""
        text = self.note.said
        return replace(self.note, said=f"messages[{self.first + by}{text[text.find(']') :]}")


class Ledger:
    """The notes on one request. `policy` is the option `on_unsupported`, None where nobody set it.

    `mode` selects the `when` tables that may be the origin of a flag.

    `notes` are those to begin with; without them they are the model's. Notes of one cause on several messages are one
    note with their number: a long history may have hundreds. They are in `on_messages`, by their cause, and `counts`
    has how often a thing occurs in all messages.
    """

    def __init__(
        self,
        model: Model,
        policy: str | None,
        defaults: Collection[str] = (),
        notes: Sequence[Note] | None = None,
        mode: frozenset[str] = frozenset(),
    ) -> None:
        self.model = model
        self.policy = policy
        self.defaults = defaults
        self.mode = mode
        self.plain: list[Note] = list(model.notes if notes is None else notes)
        self._plain_set: set[Note] = set(self.plain)
        self.on_messages: dict[Cause, MessageNote] = {}
        self.counts: dict[Count, int] = {}

    @property
    def notes(self) -> list[Note]:
        """Return the notes so far: on the request, on its messages in their order, and on what was counted."""
        notes = self.plain.copy()
        for cause in sorted(self.on_messages.values(), key=attrgetter("first")):
            note = cause.note
            if cause.more:
                last = f"messages[{cause.last}]"
                more = f"; {cause.more} more, the last in {last}"
                note = replace(note, said=note.said + more)
            notes.append(note)
        for (code, flag, subject, did), count in sorted(self.counts.items()):
            notes.append(self._build_note(code, flag, count_text(subject, count), did))
        return notes

    def empty(self) -> Ledger:
        """Return a ledger of the same request without notes."""
        return Ledger(self.model, self.policy, self.defaults, (), self.mode)

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
        place = _MESSAGE.match(text)
        if place is None:
            self._append(self._build_note(code, flag, text, did))
            return
        index = int(place[1])
        key = (code, flag, did if place[2] is None else f"{place[2]}: {did}")
        cause = self.on_messages.get(key)
        if cause is None:
            self.on_messages[key] = MessageNote(self._build_note(code, flag, text, did), index, index)
        elif index != cause.last:
            cause.more += 1
            cause.last = index

    def count(self, code: NoteCode, flag: str, subject: str, did: str, number: int = 1) -> None:
        """Record a change that was made so many times, in any messages: one note has the sum."""
        key = (code, flag, subject, did)
        self.counts[key] = self.counts.get(key, 0) + number

    def add_messages(self, on_messages: Mapping[Cause, MessageNote], counts: Mapping[Count, int], shift: int) -> None:
        """Record what was noted on messages that follow those so far; `shift` is the index of the first."""
        for key, cause in on_messages.items():
            known = self.on_messages.get(key)
            if known is None:
                self.on_messages[key] = known = MessageNote(cause.move(shift), cause.first + shift, 0)
            else:
                known.more += 1
            known.more += cause.more
            known.last = cause.last + shift
        for (code, flag, subject, did), number in counts.items():
            self.count(code, flag, subject, did, number)

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
        hint: str | None = None,
    ) -> NoReturn:
        """Raise `CannotSend`: an option, or a part of a message, cannot be sent in any form.

        Without a `hint` it is to change the option, or to allow adjustments where the caller does not.
        """
        if hint is None:
            hint = "change the option"
            if self.policy == "error":
                hint = f"change the option, or allow adjustments: {ADJUST}"
        note = self._build_note(code, flag, subject, reason)
        origin = f" ({note.where})" if note.where else ""
        message = f"{self.model.name}: {note.flag}: {note.said}: {note.did}{origin}"
        raise CannotSend(message, note=note, part=part, hint=hint)

    def extend(self, notes: Sequence[Note]) -> None:
        """Record changes that were made before."""
        for note in notes:
            self._append(note)

    def _append(self, note: Note) -> None:
        """Append a note once."""
        if note not in self._plain_set:
            self._plain_set.add(note)
            self.plain.append(note)

    def _build_note(self, code: NoteCode, flag: str, subject: object, did: str) -> Note:
        """Build a note with the origin of its flag."""
        text = f"{subject} (a default)" if self.policy == "default" else str(subject)
        if not (text.isascii() and did.isascii()):  # quoted text may hold half a character
            text, did = str(replace_surrogates(text)), str(replace_surrogates(did))
        return Note(code, flag, text, did, self.model.where(flag, self.mode))
