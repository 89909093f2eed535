"""What may go to a terminal: everything but what it would obey."""

from __future__ import annotations

import os
import re
from typing import TextIO

__all__ = ["cells", "dims", "escape", "escape_json", "plain"]

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 but tab and newline, DEL, C1, and what turns the direction of writing around."""


def escape(text: str) -> str:
    r"""The text with every control character spelt out (`\x1b`, `\u202e`), so that none takes effect."""
    return _OBEYED.sub(_spelt, text)


def escape_json(text: str) -> str:
    """The same JSON value, with the control characters that JSON may hold as they are spelt as escapes."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese character two, an accent none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def dims(stream: TextIO) -> bool:
    """May text on this stream be dimmed? On a terminal that knows how, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and not plain()


def plain() -> bool:
    """Does the terminal know nothing but lines?"""
    return os.environ.get("TERM") == "dumb"


def _spelt(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
