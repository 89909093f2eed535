"""Bytes → the data of server-sent events.

Follows the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html): CR, LF or CRLF ends a line,
`data` lines of one event are joined, comments are skipped, a BOM is dropped. Works on bytes, so a character may be cut
anywhere and U+2028 in a line is no line end. Two liberties: a missing last blank line is forgiven at the end, and the
data of an event named `error` that is not JSON is wrapped as an error.
"""

from __future__ import annotations

import re
import sys

import msgspec

__all__ = ["TOO_LONG", "SseParser"]

TOO_LONG = b"\0 too long"
"""Stands, as this very object, for an event that has more bytes than it may have."""

_CLOSING = 64  # bytes that a line with the closing word has at most
_BOM = b"\xef\xbb\xbf"
_LINES = re.compile(rb"[^\r\n]*[\r\n]?")


class SseParser:
    """`feed` bytes in any pieces, get the data of every event that became complete. Linear in the bytes fed.

    An event has `most` bytes at most, the line that it is in the middle of included; instead of a longer one comes
    `TOO_LONG`, and nothing after it.
    """

    __slots__ = ("_count", "_data", "_event", "_kept", "_line", "_most", "_size", "_start", "_was_cr")

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        self._size = 0  # bytes held of an unfinished event
        self._kept = self._count = 0  # of these, bytes of its finished lines, and how many of them were counted
        self._line: list[bytes] = []  # the pieces of an unfinished line
        self._data: list[bytes] | None = None  # the data lines of an unfinished event
        self._event = b""
        self._was_cr = False
        self._start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that these bytes complete."""
        if self._size + len(chunk) > self._most:
            return self._measured(chunk)
        if self._start:
            chunk = self._strip_bom(chunk)
            if self._start:
                return []
        if b"\r" in chunk or self._was_cr:
            chunk = self._unify(chunk)
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            if chunk:
                self._line.append(chunk)
                self._size += len(chunk)
            return []
        if self._line:
            self._line.append(lines[0])
            lines[0] = b"".join(self._line)
            self._line = []
        rest = lines.pop()
        if rest:
            self._line.append(rest)
        data = before = self._data
        event = self._event
        if data is None and not event and len(lines) != 3 and (short := _alike(lines)) is not None:
            self._size = len(rest)
            return short
        out: list[bytes] = []
        for line in lines:
            if not line:
                if data is not None:
                    out.append(data[0] if len(data) == 1 and not event else _event_data(data, event))
                    data = None
                event = b""
            elif line.startswith(b"data:"):
                # Leading white space means nothing to JSON, so the one space after the colon may stay.
                if data is None:
                    data = [line[5:]]
                else:
                    data.append(line[5:])
            elif line.startswith(b"event:"):
                event = line[6:].strip() if b"error" in line else b""  # no other name says more than the data
            elif line == b"data":
                data = data if data is not None else []
                data.append(b"")
        self._data, self._event = data, event
        if data is not None:
            if data is not before:
                self._kept = self._count = 0
            self._kept += sum(map(len, data[self._count :])) + len(data) - self._count
            self._count = len(data)
            self._size = self._kept + len(rest)
        else:
            self._size = len(rest)
        return out

    def _measured(self, chunk: bytes) -> list[bytes]:
        """Line by line: one of them may be too much, and what was complete before it counts."""
        out: list[bytes] = []
        most, self._most = self._most, sys.maxsize
        for line in _LINES.findall(chunk) if most >= 0 else ():
            if self._size + len(line.rstrip(b"\r\n")) > most:
                most = -1
                out.append(TOO_LONG)
                break
            out += self.feed(line)
        self._most = most
        return out

    def end(self) -> list[bytes]:
        """The data of an event that lacked its last line end or blank line."""
        last = self.feed(b"\n\n")
        self._line = []
        return last

    def closing_event(self) -> list[bytes]:
        """The data of an unfinished event that ends with `[DONE]`: nothing more need come. Else nothing."""
        data = self._data or []
        if self._line:
            if len(self._line) > _CLOSING or sum(map(len, self._line)) > _CLOSING:
                return []
            line = b"".join(self._line)
            if not line.startswith(b"data:"):
                return []
            data = [*data, line[5:]]
        return [b"\n".join(data)] if data and data[-1].strip() == b"[DONE]" else []

    def _strip_bom(self, chunk: bytes) -> bytes:
        self._line.append(chunk)
        head = b"".join(self._line)
        if len(head) < 3 and _BOM.startswith(head):
            self._line = [head]
            return b""
        self._start = False
        self._line = []
        return head[3:] if head.startswith(_BOM) else head

    def _unify(self, chunk: bytes) -> bytes:
        """CR and CRLF to LF, also when a CRLF is cut in two."""
        if self._was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._was_cr = False
        if chunk:
            self._was_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _alike(lines: list[bytes]) -> list[bytes] | None:
    """The data of events that are all alike, one line of data each and maybe a name before it, as nearly always."""
    if len(lines) == 2:  # one event a piece, as most servers send them
        return [lines[0][5:]] if not lines[1] and lines[0].startswith(b"data:") else None
    if not len(lines) % 2 and not any(lines[1::2]):
        found = [line[5:] for line in lines[::2] if line.startswith(b"data:")]
        if len(found) * 2 == len(lines):
            return found
    if not len(lines) % 3 and not any(lines[2::3]):
        found = [line[5:] for line in lines[1::3] if line.startswith(b"data:")]
        names = [line for line in lines[::3] if line.startswith(b"event:") and b"error" not in line]
        if len(found) == len(names) == len(lines) // 3:
            return found
    return None


def _event_data(data: list[bytes], event: bytes) -> bytes:
    joined = data[0] if len(data) == 1 else b"\n".join(data)
    if event == b"error" and joined.lstrip()[:1] not in (b"{", b"["):
        return msgspec.json.encode({"error": {"message": joined.strip().decode("utf-8", "replace")}})
    return joined
