"""The text encoding of a server's pipes: UTF-8 whose decoder returns whole lines, and bounds each line.

The package `mcp` adds each piece of a line to the text before it, and copies the whole every time: a picture of some
megabytes took seconds of this process. It gets no piece of a line from this decoder.
"""

from __future__ import annotations

import codecs
import functools
import json
import re

from cnllm.mcp_client.http_client import MAX_MESSAGE

__all__ = ["line_encoding", "reply_id"]

_NAME = "cnllm_utf8_lines"
_KEPT = 1000  # bytes at each end of a line that is too long
_REPLY = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*(\d+)\s*,\s*"(?:result|error)"'
    rb'|"(?:result|error)".*,\s*"id"\s*:\s*(\d+)\s*\}\s*$)',
    re.DOTALL,
)
"""A reply, from its head and its end: its number stands before the result or behind it."""
_PARSE_ERROR = -32700


def reply_id(line: bytes) -> int | None:
    """Return the id of a reply that is not decoded; None where no usual form of one shows it."""
    found = _REPLY.match(line)
    return None if found is None else int(found[1] or found[2])


@functools.cache
def line_encoding() -> str:
    """Return the name of the encoding, which Python knows from now on."""
    codecs.register(_find)
    return _NAME


def _find(name: str) -> codecs.CodecInfo | None:
    if name != _NAME:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf8.encode, utf8.decode, name=_NAME, incrementaldecoder=_LineDecoder)


class _LineDecoder(codecs.IncrementalDecoder):
    """Keep the bytes of a line until its end. In place of a line that is too long, return an error for its request."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._pieces: list[bytes] = []
        self._size = 0

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        """Return the lines that end in these bytes."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(data)
            return ""
        first = data.find(b"\n") + 1
        self._hold(data[:first])
        lines = self._take() + data[first:end]
        self._hold(data[end:])
        return lines.decode("utf-8", self.errors)

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of a line. Of one that is too long, keep only both ends."""
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > MAX_MESSAGE:
            line = b"".join(self._pieces)
            self._pieces = [line[:_KEPT], line[_KEPT:][-_KEPT:]]

    def _take(self) -> bytes:
        """Return the line that has ended: an error in place of a reply that is too long, nothing for another line."""
        line, size = b"".join(self._pieces), self._size
        self._pieces, self._size = [], 0
        if size <= MAX_MESSAGE:
            return line
        if (id := reply_id(line)) is None:
            return b""
        error = {"code": _PARSE_ERROR, "message": f"its answer has more than {MAX_MESSAGE:,} bytes"}
        return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n"
