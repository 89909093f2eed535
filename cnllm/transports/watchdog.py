"""Run callbacks later, unless cancelled. One thread serves all of them and ends when it is idle for a while."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from cnllm.fork import generation

__all__ = ["Alarm", "Watchdog"]

_LINGER = 5.0  # seconds; a thread for every stream would cost more than the stream's last reads


class Alarm:
    """One callback. After `cancel` returns, the callback will not run and is not running."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self._lock = threading.Lock()
        self._generation = generation()

    def cancel(self) -> None:
        """Cancel the callback."""
        if self._generation != generation():
            return  # a forked child lacks the thread, which may have held the lock
        with self._lock:
            self._callback = None

    def ring(self) -> None:
        """Run the callback now, unless it was cancelled."""
        with self._lock:
            if self._callback is not None:
                self._callback()


class Watchdog:
    """Runs callbacks in its own thread. A callback must be quick."""

    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._count = itertools.count()
        self._condition = threading.Condition()
        self._running = False

    def schedule(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Run `callback` after this many seconds."""
        alarm = Alarm(callback)
        with self._condition:
            entry = (time.monotonic() + seconds, next(self._count), alarm)
            heapq.heappush(self._alarms, entry)
            if not self._running:
                self._running = True
                threading.Thread(target=self._watch, name="cnllm-watchdog", daemon=True).start()
            elif self._alarms[0] is entry:
                self._condition.notify()
        return alarm

    def _watch(self) -> None:
        while True:
            with self._condition:
                if not self._alarms and not self._condition.wait(_LINGER) and not self._alarms:
                    self._running = False
                    return
                if not self._alarms:
                    continue
                remaining = self._alarms[0][0] - time.monotonic()
                if remaining > 0:
                    self._condition.wait(remaining)
                    continue
                alarm = heapq.heappop(self._alarms)[2]
            alarm.ring()
