"""Escape text for a terminal, and tell what the terminal supports."""

from __future__ import annotations

import os
import re
from typing import TextIO

__all__ = ["columns", "display_width", "escape", "escape_json", "is_dumb", "one_line", "supports_dim"]

_CONTROL = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
    r"|\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,7}\U000e007f|[\U000e0000-\U000e00ff]"
)
"""C0 except tab and newline, DEL, C1; characters that reverse the direction of writing; and invisible characters.

Joiners and variation selectors stay: emoji, Persian and Indic scripts, and variants of Chinese characters need them.
Tags behind a black flag stay too: they make the flag of a region.
"""

_PRINTABLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""The characters of these that count as printable."""

_MAX_DIGITS = 9  # of COLUMNS


def escape(text: str) -> str:
    r"""Return the text with every control character escaped (`\x1b`, `\u202e`), so that none takes effect."""
    if text.replace("\n", "").isprintable() and (text.isascii() or _PRINTABLE.isdisjoint(text)):
        return text  # a tenth of the search
    return re.sub(_CONTROL, _escape_match, text)


def escape_json(text: str) -> str:
    """Return the same JSON value, with the control characters that JSON may hold unescaped written as escapes."""
    return re.sub(_CONTROL, _escape_match_json, text)


def one_line(text: str, most: int) -> str:
    """Return a text on one line; of a longer one so many characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def display_width(text: str) -> int:
    """Return the columns of a terminal that a text takes: a Chinese character two, an accent none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def columns(stream: TextIO) -> int | None:
    """Return the width of the terminal of a stream: that of COLUMNS, else its own; None where it is unknown."""
    setting = os.environ.get("COLUMNS", "")
    if setting.isdecimal() and len(setting) <= _MAX_DIGITS and int(setting):
        return int(setting)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def supports_dim(stream: TextIO) -> bool:
    """Whether text on this stream may be dimmed: on a capable terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and not is_dumb()


def is_dumb() -> bool:
    """Whether the terminal supports no control sequences."""
    return os.environ.get("TERM") == "dumb"


def _escape_match(match: re.Match[str]) -> str:
    if len(match[0]) > 1:
        return match[0]  # the flag of a region
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_match_json(match: re.Match[str]) -> str:
    if len(match[0]) > 1:
        return match[0]
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
