"""Read the objects of one JSON array from bytes, each as soon as it is complete: a stream without event framing."""

from __future__ import annotations

import re
import sys

from cnllm.engine.decode.sse import TOO_LONG

__all__ = ["JsonArrayElements"]

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

    def closing_event(self) -> list[bytes]:
        """Return nothing: an array has no end marker."""
        return []

    def end(self) -> list[bytes]:
        """Return nothing: an unfinished object was cut."""
        self._pieces = []
        return []
