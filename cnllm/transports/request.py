"""A request as bytes."""

from __future__ import annotations

import re

from cnllm.engine.plan import Plan
from cnllm.transports import words
from cnllm.transports.address import Address
from cnllm.transports.common import headers_of

__all__ = ["written"]

_FIELDS = re.compile(
    r"(?:[!#$%&'*+\-.^_`|~0-9a-zA-Z]+\0(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?\n)*"  # names and values
).fullmatch
_FRAMING = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "trailer", "te"}


def written(plan: Plan, to: Address) -> bytes | None:
    """The head of the request. Raises `TransportError` for a header that cannot be one, without showing it.

    None when the caller sets a header that changes how the message is framed, which is left to httpx.
    """
    headers = headers_of(plan)
    fields = "".join([f"{name}\0{value}\n" for name, value in headers.items()])
    if not _FIELDS(fields):
        raise words.unsendable(plan)
    if not _FRAMING.isdisjoint(map(str.lower, headers)):
        return None
    fields = fields.replace("\0", ": ").replace("\n", "\r\n")
    head = (
        f"{plan.method} {to.target} HTTP/1.1\r\nhost: {to.name}\r\n{fields}content-length: {len(plan.content)}\r\n\r\n"
    )
    return head.encode("ascii")
