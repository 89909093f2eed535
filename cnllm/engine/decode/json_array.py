"""Read JSON from the bytes of a stream without event framing: the objects of one array, or one value a line."""

from __future__ import annotations

import re
import sys

from cnllm.engine.decode.body_form import BOM
from cnllm.engine.decode.sse import TOO_LONG

__all__ = ["JsonArrayElements", "JsonLines"]

_MAX_END_MARKER = 64  # bytes of a line with the end marker
_MARKS = re.compile(rb'["\\{}\[\]]')


class JsonArrayElements:
    """The parser of an array: `feed` returns the text of every object that became complete.

    The bytes may come in pieces of any size. An object has at most `most` bytes. In place of a longer one comes
    `TOO_LONG`, and nothing after it.
    """

    __slots__ = ("_depth", "_escaped", "_has_ended", "_in_string", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._has_ended = False
        self._limit = limit
        self._size = 0  # bytes of the unfinished object
        self._pieces: list[bytes] = []  # of the unfinished object
        self._depth = 0
        self._in_string = self._escaped = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the text of each object that these bytes complete."""
        if self._has_ended:
            return []
        out: list[bytes] = []
        begin = 0 if self._depth > 1 else -1
        position = 0
        if self._escaped and chunk:
            position, self._escaped = 1, False
        while mark := _MARKS.search(chunk, position):
            position = mark.end()
            char = mark[0]
            if self._in_string:
                if char == b"\\":
                    self._escaped = position == len(chunk)
                    position += 1
                elif char == b'"':
                    self._in_string = False
            elif char == b'"':
                self._in_string = True
            elif char in b"{[":
                self._depth += 1
                if self._depth == 2:
                    begin = mark.start()
            elif char in b"}]":
                self._depth -= 1
                if self._depth == 1:
                    self._size += position - begin
                    if self._size > self._limit:
                        break
                    out.append(b"".join(self._pieces) + chunk[begin:position])
                    self._pieces, begin, self._size = [], -1, 0
        else:
            if begin >= 0:
                self._pieces.append(chunk[begin:])
                self._size += len(chunk) - begin
        if self._size > self._limit:
            self._has_ended = True
            out.append(TOO_LONG)
        return out

    @property
    def is_torn(self) -> bool:
        """Whether the array is not complete."""
        return self._depth > 0

    def closing_event(self) -> list[bytes]:
        """Return nothing: an array has no end marker."""
        return []

    def end(self) -> list[bytes]:
        """Return nothing: an unfinished object was cut."""
        self._pieces = []
        return []


class JsonLines:
    """The parser of newline-delimited JSON: `feed` returns the text of every line that became complete.

    A line has at most `limit` bytes; in place of a longer one comes `TOO_LONG`, and nothing after it. A body whose
    first line is only an opening brace is one value over many lines: it comes whole, at the end.
    """

    __slots__ = ("_has_ended", "_is_first", "_is_one_value", "_limit", "_pieces", "_size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._size = 0  # bytes of the unfinished line
        self._pieces: list[bytes] = []  # of the unfinished line
        self._is_first = True
        self._is_one_value = self._has_ended = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the text of each line that these bytes complete."""
        if self._has_ended:
            return []
        *lines, rest = (chunk,) if self._is_one_value else chunk.split(b"\n")
        out: list[bytes] = []
        for line in lines:
            self._add(line)
            if self._size > self._limit:
                break
            text = self._take()
            if self._is_first and text.strip():
                self._is_first = False
                if text.strip() == b"{":
                    self._is_one_value = True
                    self._add(text)
                    continue
            if self._is_one_value:
                self._add(text)
            elif text.strip():
                out.append(text)
        else:
            self._add(rest)
        if self._size > self._limit:
            self._has_ended = True
            out.append(TOO_LONG)
        return out

    @property
    def is_torn(self) -> bool:
        """Whether a line is unfinished."""
        return self._size > 0

    def closing_event(self) -> list[bytes]:
        """Return an unfinished line that is `[DONE]`, which ends the stream. Otherwise nothing."""
        if self._size > _MAX_END_MARKER or b"".join(self._pieces).strip() != b"[DONE]":
            return []
        return [self._take()]

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its newline."""
        text = self._take()
        return [text] if text.strip() else []

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def _take(self) -> bytes:
        """Return the unfinished line, which ends here."""
        text = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return text.removeprefix(BOM) if self._is_first else text
