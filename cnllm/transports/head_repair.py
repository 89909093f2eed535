"""Rewrite the head of a response that is odd, and yet has one meaning, so that a strict parser reads it.

These are heads that other clients read: a header over two lines (obs-fold), a Content-Length that stands there twice
with one value, a Content-Length beside chunks (RFC 9112 6.3: the chunks count), control characters in a value,
a version of HTTP that does not exist, in words of HTTP/1.1.
"""

from __future__ import annotations

import re

__all__ = ["is_head", "rewrite"]

_END = re.compile(rb"\n\r?\n")
_START = re.compile(rb"HTTP/[0-9]\.[0-9]")
_INTERIM = re.compile(rb"HTTP/[0-9]\.[0-9] 1(?!01)[0-9]{2}(?![0-9])")  # 101 is the last one
_LATER = re.compile(rb"HTTP/(?!0\.9|1\.[01])[0-9]\.[0-9]")
_CONTROL = bytes.maketrans(bytes([*range(1, 9), *range(14, 32), 127]), b"?" * 27)


def is_head(data: bytes) -> bool:
    """Whether data begins as a status line does."""
    return _START.match(data) is not None


def rewrite(data: bytes) -> bytes | None:
    """Return data with its head rewritten and without interim responses. None while the head is incomplete."""
    while True:
        end = _END.search(data)
        if end is None:
            return None
        head, rest = data[: end.start()], data[end.end() :]
        if _INTERIM.match(head) is None:
            return _strict(head) + rest
        data = rest


def _strict(head: bytes) -> bytes:
    head = _LATER.sub(b"HTTP/1.1", head, count=1) if _LATER.match(head) else head
    lines = _unfold([line.removesuffix(b"\r") for line in head.split(b"\n")])
    fields = [line.translate(_CONTROL) for line in lines[1:]]
    names = [line.partition(b":")[0].lower() for line in fields]
    lengths = [at for at, name in enumerate(names) if name == b"content-length"]
    values = {part.strip(b" \t") for at in lengths for part in fields[at].partition(b":")[2].split(b",")}
    if len(values) == 1:  # several that differ are left as they are, for the parser to refuse
        chunked = b"transfer-encoding" in names
        unwanted = lengths if chunked else lengths[1:]
        if not chunked:
            fields[lengths[0]] = b"content-length: " + values.pop()
        fields = [line for at, line in enumerate(fields) if at not in unwanted]
    return b"\r\n".join([lines[0], *fields]) + b"\r\n\r\n"


def _unfold(lines: list[bytes]) -> list[bytes]:
    """Join each line that goes on with the one before it. None may go on from the status line."""
    whole = lines[:1]
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t") and len(whole) > 1:
            whole[-1] += b" " + line.strip(b" \t")
        else:
            whole.append(line)
    return whole
