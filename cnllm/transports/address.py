"""Find out where a request goes: the parts of its URL, the proxy of an address, and the trusted certificates.

The proxy is that of the environment, or of the system; NO_PROXY counts as in curl. Certificates are loaded as httpx
does: from SSL_CERT_FILE, SSL_CERT_DIR, or certifi.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from cnllm.errors import TransportError
from cnllm.system.files import open_private
from cnllm.system.processes import fork_safe
from cnllm.transports import errors

if TYPE_CHECKING:
    import ssl

__all__ = ["MAX_URLS", "Address", "Destinations", "client_context", "proxy_for", "read_url", "through_proxy"]


_PORTS = {"http": 80, "https": 443}
# Addresses without escapes, encodings or dot segments, which is nearly all of them. httpx parses the others.
_PLAIN = re.compile(
    r"(https?)://([a-z0-9]+(?:[.-][a-z0-9]+)*)(?::([0-9]{1,5}))?"
    r"(?!.*/\.)((?:/(?:[A-Za-z0-9\-._~/:@!$&()*+,;=]|%[0-9A-F]{2})*)?)(\?[A-Za-z0-9\-._~/:@!$&()*+,;=?]*)?"
)

MAX_URLS = 256  # addresses in a cache of them
_SYSTEM_HAS_PROXIES = sys.platform in ("darwin", "win32")
_MAPPED_BITS = 96  # before the IPv4 address in one of IPv6 that stands for it
_BRACKETS = r"\[([^\]]*)\](/[0-9]+)?(?::([0-9]+))?"
Made = TypeVar("Made")
_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # the first one counts


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

    def connect_error(self, error: OSError | UnicodeError, seconds: float | None) -> TransportError:
        """Return the error for a connection that could not be opened in this time."""
        if isinstance(error, TimeoutError):
            return errors.connect_timeout(self.host, seconds)
        if isinstance(error, UnicodeError):  # a label of the host's name is empty or too long
            return errors.unsupported_url(f"{self.scheme}://{self.name}")
        return errors.connect_failed(self.name, str(error) or type(error).__name__)


class Destination(Struct, frozen=True):
    """The address of a URL, and the proxy on the way to it."""

    address: Address
    proxy: str | None


class Destinations:
    """Finds where the URLs of requests lead, and holds the trusted certificates, for the fast adapters."""

    def __init__(self) -> None:
        self.known: dict[str, Destination] = {}
        self._tls_context: ssl.SSLContext | None = None
        self._lock = fork_safe(threading.Lock())

    def find(self, url: str) -> Destination:
        """Return where a URL leads. Raise `TransportError` for one that is not an HTTP URL."""
        if (destination := self.known.get(url)) is None:
            if len(self.known) >= MAX_URLS:
                self.known.clear()
            address = parse_address(url)
            proxy = proxy_for(address.scheme, address.host, address.port)
            destination = self.known[url] = Destination(address, proxy)
        return destination

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context of all connections."""
        with self._lock:
            if self._tls_context is None:
                self._tls_context = client_context()
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


# ── the proxy ────────────────────────────────────────────────────────────────


def proxy_for(scheme: str, host: str, port: int | None) -> str | None:
    """Return the proxy of the environment or the system for an address."""
    if not _may_have_proxy():
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    number = port or (443 if scheme == "https" else 80)
    if not proxies or _is_excluded(host, number, proxies.get("no", "")) or (_SYSTEM_HAS_PROXIES and proxy_bypass(host)):
        return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def through_proxy(httpx: Any, proxy: str | None, make: Callable[[], Made]) -> Made:
    """Return what `make` makes of httpx. Raise `TransportError` for a proxy that it cannot use."""
    missing = False
    try:
        return make()
    except ImportError:
        missing = True
    except (ValueError, httpx.InvalidURL):
        pass
    raise errors.invalid_proxy(proxy, missing=missing)  # outside of `except`: httpx's error shows a password


def _may_have_proxy() -> bool:
    """Whether `urllib` may know a proxy. It imports http.client and email, which most programs do not need."""
    return _SYSTEM_HAS_PROXIES or any(name.lower().endswith("_proxy") for name in os.environ)


def _is_excluded(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY names a host.

    An entry is a name, which stands for all names below it too, an address, a range of addresses (10.0.0.0/8), or `*`.
    It may have a port. Addresses of IPv6 may stand in brackets.
    """
    name = host.strip("[]").rstrip(".").lower()
    address = _ip_address(name)
    for entry in no_proxy.replace(",", " ").lower().split():
        pattern, bits, entry_port = _split(entry)
        if entry_port and entry_port.lstrip("0") != str(port):
            continue
        if pattern == "*" or (address is None and _is_below(name, pattern)):
            return True
        if address is not None and _is_within(address, pattern, bits):
            return True
    return False


def _split(entry: str) -> tuple[str, str, str]:
    """Return the name or address of an entry, the bits of its range, and its port."""
    if match := re.fullmatch(_BRACKETS, entry):
        return match[1], (match[2] or "")[1:], match[3] or ""
    before, colon, port = entry.rpartition(":")
    if not (colon and port.isdecimal() and ":" not in before):  # more colons: IPv6
        before, port = entry, ""
    pattern, _, bits = before.partition("/")
    return pattern, bits, port


def _is_below(name: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("*").strip(".")
    return bool(pattern) and (name == pattern or name.endswith(f".{pattern}"))


def _is_within(address: _IPAddress, pattern: str, bits: str) -> bool:
    try:
        network = ipaddress.ip_network(f"{pattern.partition('%')[0]}{bits and '/'}{bits}", strict=False)
    except ValueError:
        return False
    first = network.network_address
    if type(first) is ipaddress.IPv6Address and network.prefixlen >= _MAPPED_BITS and first.ipv4_mapped is not None:
        network = ipaddress.ip_network((first.ipv4_mapped, network.prefixlen - _MAPPED_BITS))
    return address in network


def _ip_address(name: str) -> _IPAddress | None:
    """Return the address that a host is; one of IPv4 also where it is written as one of IPv6."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# ── certificates ─────────────────────────────────────────────────────────────


def client_context() -> ssl.SSLContext:
    """Return a TLS context for clients. Raise `TransportError`. Reading the certificates takes 20 ms: reuse it."""
    import ssl  # takes 17 ms, which a program that never connects should not pay

    name, path = next(((n, p) for n in _VARIABLES if (p := os.environ.get(n))), ("", ""))
    keylog = os.environ.get("SSLKEYLOGFILE")
    try:
        if keylog:
            os.close(open_private(keylog, os.O_WRONLY | os.O_APPEND | os.O_CREAT))  # else OpenSSL makes it for all
    except OSError as error:
        raise _unusable("SSLKEYLOGFILE", keylog or "", error.strerror) from error
    try:
        if name == "SSL_CERT_DIR":
            os.listdir(path)  # only reads
            context = ssl.create_default_context(capath=path)
        elif name:
            context = ssl.create_default_context(cafile=path)
        else:
            import certifi

            context = ssl.create_default_context(cafile=certifi.where())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError: the file holds no certificate
        reason = getattr(error, "strerror", None) or str(error)
        if not name:
            raise TransportError(
                f"certifi's certificates cannot be read: {reason}", hint="reinstall certifi"
            ) from error
        raise _unusable(name, path, reason) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unusable(name: str, path: str, reason: str | None) -> TransportError:
    return TransportError(f"{name}={path} cannot be used: {reason}", hint=f"correct {name}, or unset it")
