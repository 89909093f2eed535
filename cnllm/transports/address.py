"""Where a request goes: a URL in the parts that a connection and a request line need."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from cnllm.transports import errors

__all__ = ["Address", "parse_address", "read_url"]

_PORTS = {"http": 80, "https": 443}
# What needs neither escapes nor encodings nor dots taken out, which is nearly every address. httpx reads the others.
_PLAIN = re.compile(
    r"(https?)://([a-z0-9]+(?:[.-][a-z0-9]+)*)(?::([0-9]{1,5}))?"
    r"(?!.*/\.)((?:/(?:[A-Za-z0-9\-._~/:@!$&()*+,;=]|%[0-9A-F]{2})*)?)(\?[A-Za-z0-9\-._~/:@!$&()*+,;=?]*)?"
)


class Address(Struct, frozen=True):
    """`key` is what makes two requests go over the same connection; `host` is for people, and for certificates."""

    encrypted: bool
    host: str
    port: int
    name: str  # the Host header
    target: str  # the request line's

    @property
    def scheme(self) -> str:
        return "https" if self.encrypted else "http"

    @property
    def key(self) -> tuple[bool, str, int]:
        return self.encrypted, self.host, self.port


def parse_address(url: str) -> Address:
    """The parts of a URL. Raises `TransportError` when it is none, or none of HTTP's."""
    found = _PLAIN.fullmatch(url)
    if found is None:
        return _odd(url)
    scheme, host, port, path, query = found.groups()
    usual = _PORTS[scheme]
    number = usual if port is None else int(port)
    if not 0 < number < 65536:
        return _odd(url)
    name = host if number == usual else f"{host}:{number}"
    return Address(scheme == "https", host, number, name, (path or "/") + (query or ""))


def read_url(httpx: Any, text: str) -> Any:
    """Return a URL as httpx reads it. Raises `TransportError` for one that HTTP cannot go to."""
    try:
        url = httpx.URL(text)
        host = url.host  # it is decoded here, which a name such as xn--a does not survive
    except (httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
        raise errors.invalid_url(text, error) from error
    if url.scheme not in _PORTS or not host or not 0 < (_PORTS[url.scheme] if url.port is None else url.port) < 65536:
        raise errors.unsupported_url(text)
    return url


def _odd(text: str) -> Address:
    """Letters of other scripts, spaces, user names, IPv6: as httpx reads them."""
    import httpx

    url = read_url(httpx, text)
    return Address(
        url.scheme == "https",
        url.raw_host.decode("ascii"),
        url.port or _PORTS[url.scheme],
        url.netloc.decode("ascii"),
        url.raw_path.decode("ascii"),
    )
