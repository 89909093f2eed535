"""Is a kept connection still good?"""

from __future__ import annotations

import select
import ssl
import time

__all__ = ["KEPT", "has_only_tls_data", "is_unusable"]

KEPT = 20.0  # seconds that an unused connection is kept; many servers close theirs soon after


def is_unusable(number: int, since: float) -> bool:
    """Unused for long, or with something to read, which is mostly the peer's goodbye."""
    return number < 0 or time.monotonic() - since > KEPT or _readable(number)


def has_only_tls_data(plug: ssl.SSLSocket) -> bool:
    """Is what there is to read only TLS's own, tickets for the next time? The timeout is 0 afterwards."""
    plug.settimeout(0)
    try:
        plug.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        pass
    return False


def _readable(number: int) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])
