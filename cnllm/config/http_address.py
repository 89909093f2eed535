"""Tell whether an address is one that a call can use: the registry's check and each call ask the same function."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

__all__ = ["address_fault"]

_INVALID_CHARACTER = re.compile(r"[\x00-\x1f\x7f\\]")  # a path may hold spaces, which are sent encoded
_PLAIN_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")


@lru_cache(maxsize=256)
def address_fault(address: str) -> str | None:
    """Return why an address is no HTTP URL with a host that can be looked up or connected to; None where it is."""
    if _INVALID_CHARACTER.search(address):
        return "it holds a backslash or a control character"
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:  # a bracket left open
        return "its host cannot be read"
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return "its port is not a number from 1 to 65535"
    if not host:
        return "it names no host"
    return None if _is_valid_host(host) else "its host is not a valid name or IP address"


def _is_valid_host(host: str) -> bool:
    """Whether a host is a valid name or IP address."""
    if _PLAIN_HOST.fullmatch(host) and "xn--" not in host:
        return True
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    import idna

    try:
        labels = idna.encode(host).decode()
        idna.decode(labels)
    except UnicodeError:
        return False
    return True
