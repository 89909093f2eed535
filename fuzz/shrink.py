"""Makes an input that fails shorter, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable

from .given import HEAD
from .search import failure

__all__ = ["shrunk"]


def shrunk(check: Callable[[bytes], None], data: bytes, seconds: float) -> bytes:
    """Return the shortest input that was found in this time."""
    wanted, end = _failing(check, data), time.monotonic() + seconds
    if wanted is None:
        return data
    size = (len(data) - HEAD) // 2
    while size and time.monotonic() < end:
        at, shorter = HEAD, False
        while at < len(data) and time.monotonic() < end:
            without = data[:at] + data[at + size :]
            if _failing(check, without) == wanted:
                data, shorter = without, True
            else:
                at += size
        if not shorter or size > 1:
            size //= 2
    for at in range(HEAD):
        plain = data[:at] + b"\0" + data[at + 1 :]
        if _failing(check, plain) == wanted:
            data = plain
    return data


def _failing(check: Callable[[bytes], None], data: bytes) -> str | None:
    try:
        check(data)
    except Exception as error:  # noqa: BLE001 - which one it is, is the answer
        return failure(error)
    return None
