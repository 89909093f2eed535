"""Rewrite an irregular but unambiguous response head, so that a strict parser reads it.

Other clients read these heads: a header over two lines (obs-fold), a repeated Content-Length with one value, a
Content-Length together with chunks (RFC 9112 6.3: the chunks count), control characters in a value, and an unknown
version of HTTP in the form of HTTP/1.1.
"""

from __future__ import annotations

import re

__all__ = ["is_head", "rewrite"]

_END = re.compile(rb"\n\r?\n")
_START = re.compile(rb"HTTP/[0-9]\.[0-9]")
_INTERIM = re.compile(rb"HTTP/[0-9]\.[0-9] 1(?!01)[0-9]{2}(?![0-9])")  # 101 is final
_LATER = re.compile(rb"HTTP/(?!0\.9|1\.[01])[0-9]\.[0-9]")
_CONTROL = bytes.maketrans(bytes([*range(1, 9), *range(14, 32), 127]), b"?" * 27)


def is_head(data: bytes) -> bool:
    """Whether the data starts like a status line."""
    return _START.match(data) is not None


def rewrite(data: bytearray, start: int) -> bytes | None:
    """Return the data with its head rewritten; None while the head is incomplete.

    Complete interim responses are removed from the data. `start` is where the search for the end of the head begins.
    """
    begin = 0
    while (end := _END.search(data, max(start, begin))) is not None:
        if _INTERIM.match(data, begin) is None:
            return _rewrite_head(bytes(data[begin : end.start()])) + bytes(data[end.end() :])
        begin = end.end()
    del data[:begin]
    return None


def _rewrite_head(head: bytes) -> bytes:
    head = _LATER.sub(b"HTTP/1.1", head, count=1) if _LATER.match(head) else head
    lines = _unfold([line.removesuffix(b"\r") for line in head.split(b"\n")])
    fields = [line.translate(_CONTROL) for line in lines[1:]]
    names = [line.partition(b":")[0].lower() for line in fields]
    lengths = [index for index, name in enumerate(names) if name == b"content-length"]
    values = {part.strip(b" \t") for index in lengths for part in fields[index].partition(b":")[2].split(b",")}
    if len(values) == 1:  # different values stay unchanged, and the parser refuses them
        chunked = b"transfer-encoding" in names
        unwanted = lengths if chunked else lengths[1:]
        if not chunked:
            fields[lengths[0]] = b"content-length: " + values.pop()
        fields = [line for index, line in enumerate(fields) if index not in unwanted]
    return b"\r\n".join([lines[0], *fields]) + b"\r\n\r\n"


def _unfold(lines: list[bytes]) -> list[bytes]:
    """Join each continuation line with the line before it, except with the status line."""
    joined = lines[:1]
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t") and len(joined) > 1:
            joined[-1] += b" " + line.strip(b" \t")
        else:
            joined.append(line)
    return joined
