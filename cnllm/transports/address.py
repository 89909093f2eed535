"""Parse a URL into the parts that a connection and a request line need."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cnllm.transports import errors, tls
from cnllm.transports.proxies import MAX_URLS, proxy_for

if TYPE_CHECKING:
    import ssl

__all__ = ["Address", "Destinations", "read_url"]

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
    key: tuple[bool, str, int]  # requests with the same key share connections

    @property
    def scheme(self) -> str:
        """Return "https" or "http"."""
        return "https" if self.encrypted else "http"


class Destination(Struct, frozen=True):
    """The address of a URL, and the proxy on the way to it."""

    address: Address
    proxy: str | None


class Destinations:
    """Finds where the URLs of requests lead, and holds the trusted certificates, for the fast adapters."""

    def __init__(self) -> None:
        self.known: dict[str, Destination] = {}
        self._proxies: dict[str, str | None] = {}
        self._tls_context: ssl.SSLContext | None = None
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock, which in a child process belongs to the parent."""
        self._lock = threading.Lock()

    def find(self, url: str) -> Destination:
        """Return where a URL leads. Raise `TransportError` for one that is not an HTTP URL."""
        if (destination := self.known.get(url)) is None:
            if len(self.known) >= MAX_URLS:
                self.known.clear()
            address = parse_address(url)
            proxy = proxy_for(address.scheme, address.host, self._proxies, address.port)
            destination = self.known[url] = Destination(address, proxy)
        return destination

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context of all connections."""
        with self._lock:
            if self._tls_context is None:
                self._tls_context = tls.client_context()
            return self._tls_context


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
    return _address(host, number, name, (path or "/") + (query or ""), encrypted=scheme == "https")


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
    return _address(
        url.raw_host.decode("ascii"),
        url.port or _PORTS[url.scheme],
        url.netloc.decode("ascii"),
        url.raw_path.decode("ascii"),
        encrypted=url.scheme == "https",
    )


def _address(host: str, port: int, name: str, target: str, *, encrypted: bool) -> Address:
    return Address(encrypted, host, port, name, target, (encrypted, host, port))
