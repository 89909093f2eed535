"""Count uses in the last minute: a sliding window of short slots, as a flat list of slot and count, oldest first.

A count is added when a worker leases it, and a lease is used within `LEASE_SECONDS`. So a slot counts for a minute
and for the time of a lease: whenever a minute begins, no more than the limit is used in it.
"""

from __future__ import annotations

__all__ = ["LEASE_SECONDS", "LIFE", "SLOT", "add", "seconds_until", "set_back", "slot_of", "total", "trim"]

SLOT = 250_000
"""The microseconds of a slot."""
LEASE_SECONDS = 0.5
"""The seconds for which a worker may use what it leased."""
LIFE = 243
"""The slots after which one no longer counts: a minute, the time of a lease, and the slot itself."""


def slot_of(now: int) -> int:
    """Return the slot of a time in microseconds."""
    return now // SLOT


def trim(window: list[int], now: int) -> None:
    """Remove the slots that no longer count, and those in the future: the clock was set back since."""
    newest = slot_of(now)
    first, last = 0, len(window)
    while first < last and window[first] <= newest - LIFE:
        first += 2
    while last > first and window[last - 2] > newest:
        last -= 2
    window[:] = window[first:last]


def set_back(window: list[int], last: int, now: int) -> None:
    """Move the slots along with a clock that was set back by less than a minute since `last`: they count as before.

    After a longer jump, such as a restart of the machine, nobody knows how old they are, and `trim` removes them.
    """
    slots = slot_of(last) - slot_of(now)
    if slots < LIFE:
        window[::2] = [slot - slots for slot in window[::2]]


def total(window: list[int]) -> int:
    """Return the sum of the counts."""
    return sum(window[1::2])


def add(window: list[int], slot: int, count: int) -> None:
    """Add a count to a slot that is there, or to a new one at the end. A count never falls below 0."""
    for index in range(len(window) - 2, -1, -2):
        if window[index] == slot:
            window[index + 1] = max(0, window[index + 1] + count)
            return
        if window[index] < slot:
            break
    if count > 0 and (not window or window[-2] < slot):
        window += [slot, count]


def seconds_until(window: list[int], need: int, limit: int, now: int) -> float | None:
    """Return the seconds until a need fits below the limit; None where it never does. `trim` was called at `now`."""
    if need > limit:
        return None
    excess = total(window) + need - limit
    for index in range(0, len(window), 2):
        if excess <= 0:
            break
        excess -= window[index + 1]
        if excess <= 0:
            return ((window[index] + LIFE) * SLOT - now) / 1_000_000
    return 0.0
