"""Constants, headers and limits that all adapters share."""

from __future__ import annotations

import time

from cnllm.engine.encode.plan import Plan

__all__ = [
    "DRAIN_SECONDS",
    "FRAMING",
    "MAX_DRAIN_PIECES",
    "MAX_HEAD_BYTES",
    "MAX_IDLE_CONNECTIONS",
    "MAX_URLS",
    "end_to_end_headers",
    "idle_timeout",
    "remaining_time",
]

DRAIN_SECONDS = 0.05  # seconds that a complete reply waits for the end of its body
MAX_DRAIN_PIECES = 8  # number of body pieces read after the end of a reply
MAX_HEAD_BYTES = 102_400  # of a status line and headers with interim responses before them; httpx has it too
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
