"""Is a kept connection still good?"""

from __future__ import annotations

import select
import time

__all__ = ["KEPT", "spent"]

KEPT = 20.0  # seconds that an unused connection is kept; many servers close theirs soon after


def spent(number: int, since: float) -> bool:
    """Unused for long, or with something to read, which can only be the peer's goodbye."""
    if time.monotonic() - since > KEPT or number < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([number], [], [], 0)[0])
