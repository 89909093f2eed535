"""Parse a URL into the parts that a connection and a request line need."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from cnllm.transports import errors

__all__ = ["Address", "parse_address", "read_url"]

_PORTS = {"http": 80, "https": 443}
# Addresses without escapes, encodings or dot segments, which is nearly all of them. httpx parses the others.
_PLAIN = re.compile(
    r"(https?)://([a-z0-9]+(?:[.-][a-z0-9]+)*)(?::([0-9]{1,5}))?"
    r"(?!.*/\.)((?:/(?:[A-Za-z0-9\-._~/:@!$&()*+,;=]|%[0-9A-F]{2})*)?)(\?[A-Za-z0-9\-._~/:@!$&()*+,;=?]*)?"
)


class Address(Struct, frozen=True):
    """The address of a request. `host` is for people and for certificates."""

    encrypted: bool
    host: str
    port: int
    name: str  # the Host header
    target: str  # the request line's

    @property
    def scheme(self) -> str:
        """Return "https" or "http"."""
        return "https" if self.encrypted else "http"

    @property
    def key(self) -> tuple[bool, str, int]:
        """Return the key of the connection pool. Requests with the same key share connections."""
        return self.encrypted, self.host, self.port


def parse_address(url: str) -> Address:
    """Return the parts of a URL. Raise `TransportError` for one that is not an HTTP URL."""
    match = _PLAIN.fullmatch(url)
    if match is None:
        return _parse_with_httpx(url)
    scheme, host, port, path, query = match.groups()
    default_port = _PORTS[scheme]
    number = default_port if port is None else int(port)
    if not 0 < number < 65536:
        return _parse_with_httpx(url)
    name = host if number == default_port else f"{host}:{number}"
    return Address(scheme == "https", host, number, name, (path or "/") + (query or ""))


def read_url(httpx: Any, text: str) -> Any:
    """Parse a URL with httpx. Raise `TransportError` for one that HTTP cannot use."""
    try:
        url = httpx.URL(text)
        host = url.host  # this decodes it, and fails for a name such as xn--a
    except (httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
        raise errors.invalid_url(text, error) from error
    if url.scheme not in _PORTS or not host or not 0 < (_PORTS[url.scheme] if url.port is None else url.port) < 65536:
        raise errors.unsupported_url(text)
    return url


def _parse_with_httpx(text: str) -> Address:
    """Parse with httpx an address with other scripts, spaces, a user name or IPv6."""
    import httpx

    url = read_url(httpx, text)
    return Address(
        url.scheme == "https",
        url.raw_host.decode("ascii"),
        url.port or _PORTS[url.scheme],
        url.netloc.decode("ascii"),
        url.raw_path.decode("ascii"),
    )
