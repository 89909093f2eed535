"""Bytes → the data of server-sent events.

Follows the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html): CR, LF or CRLF ends a line,
`data` lines of one event are joined, comments are skipped, a BOM is dropped. Works on bytes, so a character may be cut
anywhere and U+2028 in a line is no line end. Two liberties: a missing last blank line is forgiven at the end, and the
data of an event named `error` that is not JSON is wrapped as an error.
"""

from __future__ import annotations

import msgspec

__all__ = ["Frames"]

_BOM = b"\xef\xbb\xbf"


class Frames:
    """`feed` bytes in any pieces, get the data of every event that became complete. Linear in the bytes fed.

    `heard` tells whether anything at all came, comments too; `comments` counts them.
    """

    __slots__ = ("_data", "_event", "_line", "_start", "_was_cr")

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of an unfinished line
        self._data: list[bytes] | None = None  # the data lines of an unfinished event
        self._event = b""
        self._was_cr = False
        self._start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that these bytes complete."""
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
            return []
        if self._line:
            self._line.append(lines[0])
            lines[0] = b"".join(self._line)
            self._line = []
        rest = lines.pop()
        if rest:
            self._line.append(rest)
        data, event = self._data, self._event
        if data is None and not event and len(lines) != 3 and (short := _alike(lines)) is not None:
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
        return out

    def end(self) -> list[bytes]:
        """The data of an event that lacked its last line end or blank line."""
        last = self.feed(b"\n\n")
        self._line = []
        return last

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
