"""Name the functions for a client's tools, and read the input of a custom tool inside the arguments of its function."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["InputReader", "unique_name"]

_MAX_NAME = 64
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def unique_name(name: str, used: Mapping[str, Any], key: str) -> str:
    """Return a name for a function: letters, digits, - and _, at most 64 characters, and unused.

    `key` identifies the tool, so that it gets the same name in each request.
    """
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if cleaned == name and len(name) <= _MAX_NAME and name not in used:
        return name
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    for length in range(8, len(digest)):
        candidate = f"{cleaned[: _MAX_NAME - length - 1]}_{digest[:length]}"
        if candidate not in used:
            return candidate
    return candidate


class InputReader:
    """A reader of the input inside a call's arguments, which come in pieces of JSON."""

    def __init__(self) -> None:
        self._pending = ""
        self._state = "head"
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Return the input that was read so far."""
        return "".join(self._parts)

    def feed(self, piece: str) -> str:
        """Return the new part of the input."""
        if self._state == "other":
            return ""
        self._pending += piece
        if self._state == "head":
            match = _HEAD.match(self._pending)
            if match is None:
                return ""
            self._pending = self._pending[match.end() :]
            self._state = "text"
        out, self._pending = self._unescape(self._pending)
        self._parts.append(out)
        return out

    def _unescape(self, text: str) -> tuple[str, str]:
        """Return the characters of a JSON string up to its end, and the rest that is not complete."""
        out: list[str] = []
        position = 0
        while position < len(text):
            character = text[position]
            if character == '"':
                self._state = "other"  # nothing after the input counts
                return "".join(out), ""
            if character != "\\":
                end = min((i for i in (text.find('"', position), text.find("\\", position)) if i >= 0), default=-1)
                end = len(text) if end < 0 else end
                out.append(text[position:end])
                position = end
                continue
            size = _escape_size(text, position)
            if size is None:
                break
            out.append(_decode_escape(text[position : position + size]))
            position += size
        return "".join(out), text[position:]


def _escape_size(text: str, position: int) -> int | None:
    """Return the length of an escape, two escapes for one character together; None if it is not complete."""
    if len(text) < position + 2:
        return None
    if text[position + 1] != "u":
        return 2
    if len(text) < position + 6:
        return None
    if text[position + 2 : position + 4].lower() not in ("d8", "d9", "da", "db"):
        return 6
    following = text[position + 6 : position + 8]
    if not "\\u".startswith(following) or (following == "\\u" and len(text) < position + 12):
        return 6 if not "\\u".startswith(following) else None
    return None if following != "\\u" else 12


def _decode_escape(escape: str) -> str:
    """Return the character of an escape."""
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        units = [int(escape[i + 2 : i + 6], 16) for i in range(0, len(escape), 6)]
    except ValueError:
        return escape
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be", "replace")
