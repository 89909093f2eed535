"""Edit a text in a plain form, and give it back in its own: with its byte order mark and the ends of its lines."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

__all__ = ["edit_plain"]

_MARK = "\ufeff"


def edit_plain(text: str, change: Callable[[str], str]) -> str:
    """Return a text changed by `change`, which gets it without a byte order mark and with lines that end with "\\n".

    A line that stays keeps its end, also where the file has ends of both kinds.
    """
    mark = text[: text.startswith(_MARK)]
    own = text.removeprefix(_MARK)
    plain = own.replace("\r\n", "\n")
    new = change(plain)
    if plain == own:
        return mark + new
    if own.count("\r\n") == own.count("\n"):
        return mark + new.replace("\n", "\r\n")
    own_lines, new_lines = own.split("\n"), new.split("\n")
    matcher = SequenceMatcher(None, plain.split("\n"), new_lines, autojunk=False)
    lines = [
        line
        for kind, start, end, first, last in matcher.get_opcodes()
        for line in (own_lines[start:end] if kind == "equal" else new_lines[first:last])
    ]
    return mark + "\n".join(lines)
