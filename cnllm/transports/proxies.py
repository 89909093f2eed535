"""Find the proxy of an address: of the environment, or of the system. NO_PROXY counts as in curl."""

from __future__ import annotations

import ipaddress
import os
import re
import sys

__all__ = ["MAX_URLS", "proxy_for"]

MAX_URLS = 256  # addresses in a cache of them
_SYSTEM_HAS_PROXIES = sys.platform in ("darwin", "win32")
_MAPPED_BITS = 96  # before the IPv4 address in one of IPv6 that stands for it
_BRACKETS = re.compile(r"\[([^\]]*)\](/[0-9]+)?(?::([0-9]+))?")
_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_for(scheme: str, host: str, cache: dict[str, str | None], port: int | None = None) -> str | None:
    """Return the proxy of the environment or the system for an address. Each address is looked up once."""
    address = f"{scheme}://{host}:{port}"
    if address not in cache:
        if len(cache) >= MAX_URLS:
            cache.clear()
        cache[address] = _proxy(scheme, host, port) if _may_have_proxy() else None
    return cache[address]


def _proxy(scheme: str, host: str, port: int | None) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    number = port or (443 if scheme == "https" else 80)
    if not proxies or _is_excluded(host, number, proxies.get("no", "")) or (_SYSTEM_HAS_PROXIES and proxy_bypass(host)):
        return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


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
        if entry_port and int(entry_port) != port:
            continue
        if pattern == "*" or (address is None and _is_below(name, pattern)):
            return True
        if address is not None and _is_within(address, pattern, bits):
            return True
    return False


def _split(entry: str) -> tuple[str, str, str]:
    """Return the name or address of an entry, the bits of its range, and its port."""
    if match := _BRACKETS.fullmatch(entry):
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
