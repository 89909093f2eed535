"""Fill the columns of a row into a prompt: `Translate: {text}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cnllm.batch.rows import RowFault

__all__ = ["Template"]

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}")


class Template:
    """A prompt with places for columns. `{{` and `}}` stand for braces. Braces around other text stay as they are.

    `columns` are the names of the places. A place is a name of letters, digits, `_`, `-`, `.` or spaces, so that the
    braces of JSON in a prompt need not be doubled.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        pieces: list[tuple[bool, str]] = []
        position = 0
        for match in _FIELD.finditer(text):
            name = match[1]
            if name is not None and not re.fullmatch(r"[\w][\w .-]*", name):
                continue
            pieces.append((False, text[position : match.start()]))
            pieces.append((False, match[0][0]) if name is None else (True, name.strip()))
            position = match.end()
        pieces.append((False, text[position:]))
        self._pieces = [(is_column, piece) for is_column, piece in pieces if piece]
        self.columns = tuple(dict.fromkeys(piece for is_column, piece in self._pieces if is_column))

    def fill(self, columns: Mapping[str, Any]) -> str:
        """Return the prompt for a row. Raises `RowFault` for a column that the row does not have."""
        out = []
        for is_column, piece in self._pieces:
            if not is_column:
                out.append(piece)
                continue
            value = columns.get(piece)
            if value is None:
                have = ", ".join(str(name) for name in columns) or "none"
                raise RowFault(f"there is no column {piece!r} for the prompt; the row has: {have}")
            out.append(value if type(value) is str else msgspec.json.encode(value, enc_hook=str).decode())
        return "".join(out)
