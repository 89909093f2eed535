"""Download a file of limited size by cnllm's own transport: no redirect, no key, no cookie."""

from __future__ import annotations

import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from msgspec import Struct

from cnllm.cli.output.errors import UsageError
from cnllm.errors import TransportError
from cnllm.types.policy import Timeouts

__all__ = ["download", "is_url"]

_SECONDS = 120.0
_TIMEOUTS = Timeouts(connect=10.0, first_byte=30.0, idle=30.0, progress=30.0)


class _FileRequest(Struct, frozen=True):
    """A request that a transport can send."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    content: bytes = b""
    stream: bool = False
    timeouts: Timeouts = _TIMEOUTS


def is_url(name: str) -> bool:
    """Whether a name is a URL and not a file."""
    return "://" in name


def download(url: str, most: int) -> bytes:
    """Return the body at a URL: https, or http on this machine. Raises `TransportError`, or `UsageError` for others.

    The body has at most so many bytes, uncompressed, and comes within two minutes.
    """
    _require_safe(url)
    from cnllm.transports import default_transport

    deadline = time.monotonic() + _SECONDS
    with ExitStack() as stack:
        transport = default_transport()
        stack.callback(getattr(transport, "close", lambda: None))
        status, _, pieces = transport.send(_FileRequest(url, headers={"accept": "*/*"}))  # type: ignore[arg-type]
        stack.callback(getattr(pieces, "close", lambda: None))
        if 300 <= status < 400:
            raise TransportError(
                f"{url} answers with a redirect, which is not followed", hint="name the address it leads to"
            )
        if status != 200:
            raise TransportError(f"{url} answers with status {status}", hint="check the address, or name a file")
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > most:
                raise TransportError(f"{url} sends more than {most} bytes", hint="it is not the file that is meant")
            if time.monotonic() > deadline:
                raise TransportError(f"{url} sends too slowly", hint="try again, or name a file")
        return bytes(body)


def _require_safe(url: str) -> None:
    """Raise `UsageError` for a URL that is neither https nor http on this machine, or that holds a password."""
    from cnllm.client.credentials import is_local

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise UsageError("this is not a URL", "name a file, or an address that begins with https://") from None
    if "@" in parts.netloc:
        raise UsageError("this address holds a name or a password", "name an address without one")
    if not host or parts.scheme.lower() not in ("https", "http"):
        raise UsageError(f"{url} is not an https address", "name a file, or an address that begins with https://")
    if parts.scheme.lower() == "http" and not is_local(url):
        raise UsageError(f"{url} is not encrypted", "name an address that begins with https://")
