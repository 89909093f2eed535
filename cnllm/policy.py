"""How long to wait, and when to try again."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Retry", "Timeouts"]


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds; None waits for ever.

    `connect` for a connection, `first_byte` for the status line (a whole reply is thought out before it comes), `idle`
    between any two bytes of a reply (keep-alive comments count), `progress` between two pieces of what the model says
    (comments do not count).
    """

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    idle: float | None = 300.0
    progress: float | None = 600.0

    @staticmethod
    def of(given: float | Timeouts | None) -> Timeouts:
        """A number stands for all four, though connecting never waits longer than usual."""
        if given is None:
            return Timeouts()
        if isinstance(given, Timeouts):
            return given
        seconds = float(given)
        return Timeouts(connect=min(10.0, seconds), first_byte=seconds, idle=seconds, progress=seconds)


class Retry(Struct, frozen=True, kw_only=True):
    """`attempts` in all (1: never again); waits grow from `base` seconds by doubling, with jitter, up to `cap`.

    An endpoint that asks for a longer wait than `cap` is not waited for.
    """

    attempts: int = 3
    base: float = 0.5
    cap: float = 60.0
