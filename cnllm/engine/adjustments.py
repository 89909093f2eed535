"""Keeps account of every change to a request, and decides by the caller's policy whether one may be made."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import NoReturn

from cnllm.errors import CannotSend
from cnllm.registry.model import Model
from cnllm.types import Note
from cnllm.types.lenient_json import replace_surrogates

__all__ = ["Ledger"]


class Ledger:
    """Notes of one request. `mode` is what `when` tables are looked up by, for the line behind a note."""

    def __init__(self, model: Model, policy: str, defaults: Collection[str] = ()) -> None:
        self.model = model
        self.policy = policy
        self.defaults = defaults
        self.mode: frozenset[str] = frozenset()
        self.notes: list[Note] = list(model.notes)
        self._told: set[Note] = set(self.notes)
        self._places: dict[tuple[str, frozenset[str]], str] = {}

    def for_option(self, option: str) -> Ledger:
        """The ledger for what comes of one option.

        One that the model's defaults gave is adjusted, whatever the policy: that is about what the caller asked for,
        and nobody asked for this. An error would make a call fail for what it did not say, and `send` would send
        what is known to be refused.
        """
        if option not in self.defaults:
            return self
        lenient = copy(self)  # with the same notes
        lenient.policy = "default"
        return lenient

    def note(self, code: str, flag: str, said: object, did: str) -> None:
        """Record a change that the endpoint's shape makes necessary: nothing asked for is lost by it."""
        self._tell(self._made(code, flag, said, did))

    def may_change(self, code: str, flag: str, said: object, did: str) -> bool:
        """What the caller asked for is not supported: True (and a note) to adjust it, False to send it all the same.

        Raises `CannotSend` where the caller wants that.
        """
        if self.policy == "send":
            return False
        note = self._made(code, flag, said, did)
        if self.policy == "error":
            self._refuse(note)
        self._tell(note)
        return True

    def cannot(self, code: str, flag: str, said: object, why: str) -> bool:
        """The endpoint is known to refuse this, and nothing comes near it: True (and a note) to leave a default out.

        What a caller asked for is sent all the same (False) where that is wanted, else raises `CannotSend`.
        """
        if self.policy == "default":
            self.note(code, flag, said, f"left out: {why}")
            return True
        if self.policy != "send":
            self.refuse(code, flag, said, why)
        return False

    def refuse(self, code: str, flag: str, said: object, why: str) -> NoReturn:
        """There is no way to send this: raises `CannotSend`."""
        self._refuse(self._made(code, flag, said, why))

    def _tell(self, note: Note) -> None:
        if note not in self._told:
            self._told.add(note)
            self.notes.append(note)

    def _refuse(self, note: Note) -> NoReturn:
        origin = f" ({note.where})" if note.where else ""
        raise CannotSend(
            f"{self.model.name}: {note.flag}: {note.said}: {note.did}{origin}",
            note=note,
            hint="ask for something else, or let it be adjusted (on_unsupported='adjust')",
        )

    def _made(self, code: str, flag: str, said: object, did: str) -> Note:
        shown = f"{said} (a default)" if self.policy == "default" else str(said)
        place = self._places.get((flag, self.mode))
        if place is None:  # a long history may have hundreds of notes on one flag
            place = self._places[flag, self.mode] = self.model.where(flag, self.mode)
        return Note(
            code, flag, str(replace_surrogates(shown)), str(replace_surrogates(did)), place
        )  # what is quoted may hold half a character
