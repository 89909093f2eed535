"""Encode the head of a request."""

from __future__ import annotations

import re

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
    lines = [f"{plan.method} {address.target} HTTP/1.1\r\nhost: {address.name}\r\n"]
    for name, value in end_to_end_headers(plan).items():
        if not (_NAME(name) and _VALUE(value)):
            raise errors.invalid_header(plan)
        if name.lower() in FRAMING:
            return None
        lines.append(f"{name}: {value}\r\n")
    lines.append(f"content-length: {len(plan.content)}\r\n\r\n")
    return "".join(lines).encode("ascii")
