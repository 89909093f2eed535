"""Encode the head of a request."""

from __future__ import annotations

import re
from functools import lru_cache

from cnllm.engine.encode.plan import Plan
from cnllm.transports import errors
from cnllm.transports.address import Address
from cnllm.transports.headers import FRAMING, end_to_end_headers

__all__ = ["encode_head"]

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?").fullmatch


def encode_head(plan: Plan, address: Address) -> bytes | None:
    """Return the head of a request as bytes. Raise `TransportError` for an invalid header, without showing it.

    Return None when a header of the caller changes the message's framing: httpx sends such a request.
    """
    lines = _header_lines(tuple(end_to_end_headers(plan).items()))
    if lines is None:
        raise errors.invalid_header(plan)
    if not lines:
        return None
    start = f"{plan.method} {address.target} HTTP/1.1\r\nhost: {address.name}\r\n"
    return f"{start}{lines}content-length: {len(plan.content)}\r\n\r\n".encode("ascii")


@lru_cache(maxsize=64)
def _header_lines(headers: tuple[tuple[str, str], ...]) -> str | None:
    """Return the lines of headers, which are the same for most requests: None where one is invalid, "" for framing."""
    lines: list[str] = []
    for name, value in headers:
        if not (_NAME(name) and _VALUE(value)):
            return None
        if name.lower() in FRAMING:
            return ""
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)
