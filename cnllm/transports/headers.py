"""What the adapters agree on."""

from __future__ import annotations

import os
import sys
import time

from cnllm.engine.encode.plan import Plan

__all__ = [
    "DRAIN",
    "FRAMING",
    "IDLE",
    "LEFTOVERS",
    "URLS",
    "end_to_end_headers",
    "idle_timeout",
    "proxy_for",
    "time_left",
]

DRAIN = 0.05  # seconds that a complete reply waits for the end of its body
LEFTOVERS = 8  # pieces of a body after its end
URLS = 256  # parsed addresses kept
IDLE = 100  # connections kept for later
FRAMING = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "trailer", "te"}
"""Headers that change how a message is framed."""
_AGENT = "cnllm/0.1"


def end_to_end_headers(plan: Plan) -> dict[str, str]:
    """The headers that go out, but for those that the connection itself needs."""
    # Server-sent events gain nothing from compression, and some servers hold them back for it.
    coding = "identity" if plan.stream else "gzip, deflate"
    return {"user-agent": _AGENT, "accept-encoding": coding, **plan.headers}


def idle_timeout(plan: Plan) -> float | None:
    """How long a body may be silent: a stream no longer than it may be without progress."""
    idle, progress = plan.timeouts.idle, plan.timeouts.progress if plan.stream else None
    return progress if idle is None else idle if progress is None else min(idle, progress)


def time_left(patience: float | None, began: float) -> float | None:
    """Seconds that are left of a wait. Raises `TimeoutError` when none are."""
    if patience is None:
        return None
    left = began + patience - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def proxy_for(scheme: str, host: str, known: dict[str, str | None], port: int | None = None) -> str | None:
    """The proxy that the environment (or the system) names for an address; looked up once for each place."""
    place = f"{scheme}://{host}:{port}"
    if place not in known:
        if len(known) >= URLS:
            known.clear()
        known[place] = _proxy(scheme, host, port) if _may_be_named() else None
    return known[place]


def _proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Entries of NO_PROXY may name a port."""
    from urllib.request import getproxies, proxy_bypass

    named = getproxies()
    number = port or (443 if scheme == "https" else 80)
    if not named or proxy_bypass(host) or proxy_bypass(f"{host}:{number}"):
        return None
    found = named.get(scheme) or named.get("all")
    return found if found is None or "://" in found else f"http://{found}"


def _may_be_named() -> bool:
    """Could `urllib` find one? It brings http.client and e-mail along, which most programs do without."""
    return sys.platform in ("darwin", "win32") or any(name.lower().endswith("_proxy") for name in os.environ)
