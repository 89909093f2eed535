"""What holds of every note, whatever it is about: a program can compare its code, and find its flag."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, get_args, get_origin, get_type_hints

from cnllm import Note
from cnllm.registry.flags import Flags
from cnllm.types.note_codes import NoteCode

__all__ = ["check_notes"]

_CODES = frozenset(get_args(NoteCode))
_OTHERS = frozenset(
    (
        "corrections",
        "extra_body",
        "gateway",
        "leaks",
        "models",
        "n",
        "notes",
        "recover_text_calls",
        "route",
        "simulate",
        "system",
    )
)
"""What a note may be about that is no flag: options of a call, keys of a request, and settings of a program."""


def check_notes(notes: Iterable[Note]) -> None:
    for note in notes:
        assert note.code in _CODES, note
        assert _is_known(note.flag), note
        assert note.said, note
        assert note.did, note


@functools.cache
def _is_known(flag: str) -> bool:
    """Whether a flag is one of the registry's, or what else a note may be about."""
    name, _, rest = flag.partition(".")
    if name in _OTHERS:
        return not rest
    if name == "family_aliases":
        return bool(rest)
    kinds: list[Any] = [Flags]
    while name:
        if dict in kinds:  # of names of the endpoint's own
            return True
        hints: dict[str, Any] = {}
        for kind in kinds:
            if hasattr(kind, "__struct_fields__"):
                hints |= get_type_hints(kind)
        if name not in hints:
            return False
        kinds = list(_plain_kinds(hints[name]))
        name, _, rest = rest.partition(".")
    return True


def _plain_kinds(kind: Any) -> Iterable[Any]:
    """The types of a value, without what unites them."""
    origin = get_origin(kind)
    if origin in (dict, list, tuple) or origin is None:
        return [origin or kind]
    return [plain for inner in get_args(kind) for plain in _plain_kinds(inner)]
