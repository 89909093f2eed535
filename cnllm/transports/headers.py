"""Constants, headers and limits that all adapters share."""

from __future__ import annotations

import os
import sys
import time

from cnllm.engine.encode.plan import Plan

__all__ = [
    "DRAIN_SECONDS",
    "FRAMING",
    "MAX_DRAIN_PIECES",
    "MAX_IDLE_CONNECTIONS",
    "MAX_URLS",
    "end_to_end_headers",
    "idle_timeout",
    "proxy_for",
    "remaining_time",
]

DRAIN_SECONDS = 0.05  # seconds that a complete reply waits for the end of its body
MAX_DRAIN_PIECES = 8  # number of body pieces read after the end of a reply
MAX_URLS = 256  # size of the cache of parsed addresses
MAX_IDLE_CONNECTIONS = 100  # number of idle connections
FRAMING = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "trailer", "te"}
"""Headers that change how a message is framed."""
_AGENT = "cnllm/0.1"


def end_to_end_headers(plan: Plan) -> dict[str, str]:
    """Return the headers to send, except those of the connection itself."""
    # Server-sent events gain nothing from compression, and some servers delay them for it.
    coding = "identity" if plan.stream else "gzip, deflate"
    return {"user-agent": _AGENT, "accept-encoding": coding, **plan.headers}


def idle_timeout(plan: Plan) -> float | None:
    """Return the seconds that a body may be silent. For a stream the progress timeout is a second limit."""
    idle, progress = plan.timeouts.idle, plan.timeouts.progress if plan.stream else None
    return progress if idle is None else idle if progress is None else min(idle, progress)


def remaining_time(seconds: float | None, start: float) -> float | None:
    """Return the remaining seconds of a wait. Raise `TimeoutError` when it is over."""
    if seconds is None:
        return None
    remaining = start + seconds - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def proxy_for(scheme: str, host: str, cache: dict[str, str | None], port: int | None = None) -> str | None:
    """Return the proxy of the environment or the system for an address. Each address is looked up once."""
    address = f"{scheme}://{host}:{port}"
    if address not in cache:
        if len(cache) >= MAX_URLS:
            cache.clear()
        cache[address] = _proxy(scheme, host, port) if _may_have_proxy() else None
    return cache[address]


def _proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Look up the proxy. Entries of NO_PROXY may have a port."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    number = port or (443 if scheme == "https" else 80)
    if not proxies or proxy_bypass(host) or proxy_bypass(f"{host}:{number}"):
        return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _may_have_proxy() -> bool:
    """Whether `urllib` may know a proxy. It imports http.client and email, which most programs do not need."""
    return sys.platform in ("darwin", "win32") or any(name.lower().endswith("_proxy") for name in os.environ)
