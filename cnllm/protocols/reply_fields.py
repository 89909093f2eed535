"""Write the id and the counts of a reply in the form that the client's protocol has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from cnllm.jsonpath import merge_patch

__all__ = ["reply_id", "stream_id", "with_counts"]

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


def with_counts(counts: dict[str, Any], extra: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the counts of a protocol with lower-case keys, and the endpoint's own keys beside and inside them.

    `names` renames keys that another protocol calls differently.
    """
    out: dict[str, Any] = {}
    for key, value in extra.get("usage", {}).items():
        if key.islower():
            out[names.get(key, key)] = value
    merge_patch(out, counts)
    return out
