"""What holds of every note, whatever it is about: a program can compare its code, and find its flag."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

from cnllm import Note
from cnllm.types.note_codes import NoteCode

__all__ = ["check_notes"]

_CODES = frozenset(get_args(NoteCode))
_FLAG = re.compile(r"[a-z_]+(\.[a-zA-Z_]+)*|(params|family_aliases)\..+")


def check_notes(notes: Iterable[Note]) -> None:
    for note in notes:
        assert note.code in _CODES, note
        assert _FLAG.fullmatch(note.flag), note
        assert note.said, note
        assert note.did, note
