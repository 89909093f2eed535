"""Decide who may use a gateway: keys of clients, and names under which browsers reach it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlsplit

__all__ = [
    "LOOPBACK",
    "OPEN",
    "Access",
    "digest",
    "key_fault",
    "query_keys",
    "repeated_header",
    "sent_keys",
    "url_host",
]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names of this machine."""

OPEN = "open"
"""The identity of every client where no key is needed."""

_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_SINGLE = frozenset([b"host", b"origin", b"cookie", b"authorization", *(name.encode() for name in _HEADERS)])
_LONGEST_URL = 300  # characters of an origin; a name of a host has at most 253


def digest(key: str) -> str:
    """Return the identity of a key, from which the key cannot be found again."""
    return hashlib.sha256(b"cnllm gateway\0" + key.encode("utf-8", "surrogateescape")).hexdigest()


def key_fault(key: str) -> str | None:
    """Return why no client can send a key; None for one that every client can. The key is not in the text."""
    if not key:
        return "it is empty"
    if any(sign in key for sign in "\r\n"):
        return "it has a line break"
    if any(character.isspace() for character in key):
        return "it has a blank"
    if not (key.isascii() and key.isprintable()):
        return "it has a character that is not a letter, digit or sign of ASCII"
    return None


def url_host(url: str) -> str:
    """Return the host of an address that a browser opens. Raise `ValueError` for any other text."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{url!a} is not the address of a server: https://llm.example.org is one")
    return (parts.hostname or "").lower()


class Access:
    """The keys of clients, and the names of the host.

    `keys` may be empty: then every client is let in, unless `needs_key` says that there are keys elsewhere. `limited`
    are further keys, whose limits a key book has. `hosts` are the names without a port under which the gateway may be
    reached, None for any: a web page that resolves its own name to this machine (DNS rebinding) uses another. Keys are
    compared by their digests, so that the time of a comparison says nothing about a key: `identities` are those of
    `keys`. `public_host` is the name under which browsers reach it.
    """

    def __init__(
        self,
        keys: Iterable[str],
        hosts: Iterable[str] | None = LOOPBACK,
        *,
        needs_key: bool = False,
        limited: Iterable[str] = (),
        public_host: str | None = None,
    ) -> None:
        self.limited = frozenset(map(digest, limited))
        self.identities = frozenset(map(digest, keys))
        self.is_open = not self.identities and not needs_key
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        if public_host is not None and self._hosts is not None:
            self._hosts |= {public_host}
        self._public_host = public_host

    def allows_host(self, headers: Mapping[str, str]) -> bool:
        """Whether the host that the client asked for is this one."""
        if self._hosts is None:
            return True
        return _host_name("//" + headers.get("host", "")) in self._hosts

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Whether a browser's page, if one sent this, comes from this host."""
        origin = headers.get("origin")
        if origin is None or self._hosts is None:
            return True
        return _host_name(origin) in self._hosts

    def allows_operator_origin(self, headers: Mapping[str, str]) -> bool:
        """Whether a page that a browser names may ask for the operator's pages, under whatever name it is reached.

        It must be a page of this gateway: of its public address where that is set, else of the host of the request.
        """
        if (origin := headers.get("origin")) is None:
            return True
        own = self._public_host or _host_name("//" + headers.get("host", ""))
        name = _host_name(origin)
        return bool(name) and (name == own or name in LOOPBACK)


def repeated_header(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the name of a header that decides on a request and is there twice: a proxy may have checked the other."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in _SINGLE and name in seen:
            return name.decode()
        seen.add(name)
    return None


def sent_keys(headers: Mapping[str, str], query: str) -> list[str]:
    """Return the keys that a client sent, wherever its protocol puts them."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    keys = [token.strip()] if scheme.lower() == "bearer" else []
    keys += [headers[name] for name in _HEADERS if name in headers]
    return [key for key in [*keys, *query_keys(query)] if key]


def query_keys(query: str) -> list[str]:
    """Return the keys in a query."""
    return [value for name, value in parse_qsl(query) if name == "key"] if "key=" in query else []


def _host_name(url: str) -> str:
    """Return the host of a URL in lower case, empty where it has none. No long text of a client is kept for it."""
    return _short_host_name(url) if len(url) <= _LONGEST_URL else ""


@lru_cache(maxsize=256)
def _short_host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
