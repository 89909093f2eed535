"""Remember the targets that failed, for a while, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

__all__ = ["Cooldowns"]

_LONGEST = 3600.0
_MOST_TARGETS = 4096


class Cooldowns:
    """The targets that failed, and until when they are passed over. Safe to share between threads.

    After its pause a target gets one request. The others still pass it over until that request succeeds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST_TARGETS) -> None:
        self._clock = clock
        self._most = most
        self._until: dict[str, tuple[float, float]] = {}  # target → end of the pause, and its length
        self._lock = Lock()

    def acquire(self, target: str) -> bool:
        """Whether a target may be tried now. The first caller after a pause may; the others wait for its outcome."""
        if not self._until:
            return True
        with self._lock:
            entry = self._until.get(target)
            if entry is None:
                return True
            until, seconds = entry
            now = self._clock()
            if now < until:
                return False
            self._until[target] = (now + seconds, seconds)
            return True

    def fail(self, target: str, seconds: float) -> None:
        """Pass over a target for some seconds."""
        if seconds <= 0:
            return
        seconds = min(seconds, _LONGEST)
        with self._lock:
            self._until.pop(target, None)
            if len(self._until) >= self._most:
                del self._until[next(iter(self._until))]  # the oldest
            self._until[target] = (self._clock() + seconds, seconds)

    def succeed(self, target: str) -> None:
        """Forget the failures of a target."""
        if self._until:
            with self._lock:
                self._until.pop(target, None)
