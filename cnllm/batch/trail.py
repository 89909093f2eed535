"""Count what was sent in the last minute and not refused. Pure; time is an argument."""

from __future__ import annotations

from collections import deque

__all__ = ["MINUTE", "Trail"]

MINUTE = 60.0
_SLOT = 0.25


class Trail:
    """The requests of the last minute, in slots. Those on their way count: nothing has refused them."""

    def __init__(self) -> None:
        self._slots: deque[list[float]] = deque()
        self._total = 0

    def add(self, now: float, count: int = 1) -> None:
        """Count a request at the time when it is sent; with -1, take it back at that same time."""
        slot = now // _SLOT
        for entry in reversed(self._slots):
            if entry[0] == slot:
                entry[1] += count
                self._total += count
                return
            if entry[0] < slot:
                break
        if count > 0:
            self._slots.append([slot, count])
            self._total += count

    def total(self, now: float, seconds: float = MINUTE) -> int:
        """Return the number of the last seconds, a minute at most."""
        oldest = (now - MINUTE) // _SLOT
        while self._slots and self._slots[0][0] < oldest:
            self._total -= int(self._slots.popleft()[1])
        if seconds >= MINUTE:
            return self._total
        start, total = (now - seconds) // _SLOT, 0
        for slot, count in reversed(self._slots):
            if slot < start:
                break
            total += int(count)
        return total
