"""Give a reply an id in the form that the client's protocol has."""

from __future__ import annotations

import re
from uuid import uuid4

__all__ = ["reply_id", "stream_id"]

_FOREIGN_PREFIX = re.compile(r"^(?:chatcmpl|resp|msg|cmpl)[-_]")


def reply_id(id: str | None, prefix: str, *, is_own: bool = False) -> str:
    """Return an id in the form of the client's protocol; a new one for a reply without an id.

    `is_own`: the id comes from an endpoint of the same protocol, and stays as it is.
    """
    if not id:
        return f"{prefix}{uuid4().hex}"
    if is_own or id.startswith(prefix):
        return id
    rest = re.sub(r"[^A-Za-z0-9_-]", "_", _FOREIGN_PREFIX.sub("", id, count=1))
    return f"{prefix}{rest or uuid4().hex}"


def stream_id(id: str, prefix: str) -> str:
    """Return the id of a stream: the caller's own, unless it has the form of another protocol."""
    return reply_id(id, prefix, is_own=_FOREIGN_PREFIX.match(id) is None)
