"""Write the headers of a request."""

from __future__ import annotations

import re
from functools import lru_cache

from cnllm.engine.encode.plan import Plan
from cnllm.transports import errors
from cnllm.transports.address import Address

__all__ = [
    "FRAMING",
    "MAX_HEAD_BYTES",
    "encode_head",
    "end_to_end_headers",
    "header_lines",
]

MAX_HEAD_BYTES = 102_400  # of a status line and headers with interim responses before them; httpx has it too
FRAMING = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "trailer", "te"}
"""Headers that change how a message is framed."""
_AGENT = "cnllm/0.1"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?").fullmatch


def end_to_end_headers(plan: Plan) -> dict[str, str]:
    """Return the headers to send, except those of the connection itself."""
    # Server-sent events gain nothing from compression, and some servers delay them for it.
    coding = "identity" if plan.stream else "gzip, deflate"
    return {"user-agent": _AGENT, "accept-encoding": coding, **plan.headers}


def encode_head(plan: Plan, address: Address) -> bytes | None:
    """Return the head of a request as bytes. Raise `TransportError` for an invalid header, without showing it.

    Return None when a header of the caller changes the message's framing: httpx sends such a request.
    """
    lines = header_lines(tuple(end_to_end_headers(plan).items()))
    if lines is None:
        raise errors.invalid_header(plan)
    if not lines:
        return None
    start = f"{plan.method} {address.target} HTTP/1.1\r\nhost: {address.name}\r\n"
    return f"{start}{lines}content-length: {len(plan.content)}\r\n\r\n".encode("ascii")


@lru_cache(maxsize=64)
def header_lines(headers: tuple[tuple[str, str], ...]) -> str | None:
    """Return the lines of headers, which are the same for most requests: None where one is invalid, "" for framing."""
    lines: list[str] = []
    is_framed = False
    for name, value in headers:
        if not (_NAME(name) and _VALUE(value)):
            return None
        is_framed = is_framed or name.lower() in FRAMING
        lines.append(f"{name}: {value}\r\n")
    return "" if is_framed else "".join(lines)
