"""Bytes of one JSON array → its objects, each as soon as it is whole: a stream that comes without event framing."""

from __future__ import annotations

import re
import sys

from cnllm.engine.decode.sse import TOO_LONG

__all__ = ["JsonArrayElements"]

_MARKS = re.compile(rb'["\\{}\[\]]')


class JsonArrayElements:
    """`feed` bytes in any pieces, get the text of every object of the array that became complete.

    An object has `most` bytes at most; instead of a longer one comes `TOO_LONG`, and nothing after it.
    """

    __slots__ = ("_depth", "_escaped", "_held", "_most", "_over", "_quoted", "_size")

    def __init__(self, most: int = sys.maxsize) -> None:
        self._over = False
        self._most = most
        self._size = 0  # bytes held
        self._held: list[bytes] = []  # of an object that is not whole yet
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The text of each object that these bytes complete."""
        if self._over:
            return []
        out: list[bytes] = []
        begin = 0 if self._depth > 1 else -1
        at = 0
        if self._escaped and chunk:
            at, self._escaped = 1, False
        while mark := _MARKS.search(chunk, at):
            at = mark.end()
            char = mark[0]
            if self._quoted:
                if char == b"\\":
                    self._escaped = at == len(chunk)
                    at += 1
                elif char == b'"':
                    self._quoted = False
            elif char == b'"':
                self._quoted = True
            elif char in b"{[":
                self._depth += 1
                if self._depth == 2:
                    begin = mark.start()
            elif char in b"}]":
                self._depth -= 1
                if self._depth == 1:
                    self._size += at - begin
                    if self._size > self._most:
                        break
                    out.append(b"".join(self._held) + chunk[begin:at])
                    self._held, begin, self._size = [], -1, 0
        else:
            if begin >= 0:
                self._held.append(chunk[begin:])
                self._size += len(chunk) - begin
        if self._size > self._most:
            self._over = True
            out.append(TOO_LONG)
        return out

    def closing_event(self) -> list[bytes]:
        """Nothing: an array has no closing word."""
        return []

    def end(self) -> list[bytes]:
        """Nothing: what is still open was cut."""
        self._held = []
        return []
