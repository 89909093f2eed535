"""A request as bytes."""

from __future__ import annotations

import re

from cnllm.engine.encode.plan import Plan
from cnllm.transports import errors
from cnllm.transports.address import Address
from cnllm.transports.headers import FRAMING, end_to_end_headers

__all__ = ["encode_head"]

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?").fullmatch


def encode_head(plan: Plan, to: Address) -> bytes | None:
    """The head of the request. Raises `TransportError` for a header that cannot be one, without showing it.

    None when the caller sets a header that changes how the message is framed, which is left to httpx.
    """
    lines = [f"{plan.method} {to.target} HTTP/1.1\r\nhost: {to.name}\r\n"]
    for name, value in end_to_end_headers(plan).items():
        if not (_NAME(name) and _VALUE(value)):
            raise errors.invalid_header(plan)
        if name.lower() in FRAMING:
            return None
        lines.append(f"{name}: {value}\r\n")
    lines.append(f"content-length: {len(plan.content)}\r\n\r\n")
    return "".join(lines).encode("ascii")
