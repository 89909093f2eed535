"""Check whether an idle connection can still be used."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

__all__ = ["MAX_IDLE", "has_only_tls_data", "is_unusable"]

MAX_IDLE = 20.0  # seconds that an idle connection is kept; many servers close theirs soon after


def is_unusable(fd: int, idle_since: float) -> bool:
    """Whether a connection was idle for too long, or has bytes to read, mostly the peer's close."""
    return fd < 0 or time.monotonic() - idle_since > MAX_IDLE or _readable(fd)


def has_only_tls_data(sock: socket.socket) -> bool:
    """Whether the unread bytes belong to TLS only, such as session tickets. Afterwards the timeout is 0."""
    from ssl import SSLWantReadError

    sock.settimeout(0)
    try:
        sock.recv(1)
    except SSLWantReadError:
        return True
    except OSError:
        pass
    return False


def _readable(fd: int) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([fd], [], [], 0)[0])
