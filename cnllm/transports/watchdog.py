"""Does something later unless told otherwise: one thread for all that wait, gone when nobody has for a while."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from cnllm.config import process

__all__ = ["Alarm", "Watchdog"]

_LINGER = 5.0  # seconds; a thread started for every stream would cost more than the stream's last reads


class Alarm:
    """One thing to do. After `cancel` returns, it is not going to happen and is not happening."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what: Callable[[], None] | None = what
        self._lock = threading.Lock()
        self._generation = process.generation()

    def cancel(self) -> None:
        """Not needed any more."""
        if self._generation != process.generation():
            return  # in a forked child the thread that would ring is not there, and it may have held the lock
        with self._lock:
            self._what = None

    def ring(self) -> None:
        """Do it now, unless it was cancelled."""
        with self._lock:
            if self._what is not None:
                self._what()


class Watchdog:
    """`after(seconds, what)` calls `what` in a thread of its own; what it does must be quick."""

    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._running = False

    def schedule(self, seconds: float, what: Callable[[], None]) -> Alarm:
        """Ring after so many seconds."""
        alarm = Alarm(what)
        with self._changed:
            entry = (time.monotonic() + seconds, next(self._count), alarm)
            heapq.heappush(self._alarms, entry)
            if not self._running:
                self._running = True
                threading.Thread(target=self._watch, name="cnllm-watchdog", daemon=True).start()
            elif self._alarms[0] is entry:
                self._changed.notify()
        return alarm

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._alarms and not self._changed.wait(_LINGER) and not self._alarms:
                    self._running = False
                    return
                if not self._alarms:
                    continue
                left = self._alarms[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                alarm = heapq.heappop(self._alarms)[2]
            alarm.ring()
