"""How long to wait, how much to take, and when to try again."""

from __future__ import annotations

import sys
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from cnllm import checks

__all__ = ["Limits", "Retry", "Timeouts"]

_MIB = 1024 * 1024


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

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            force_setattr(self, name, checks.seconds(name, getattr(self, name)))

    @staticmethod
    def of(given: float | Timeouts | None) -> Timeouts:
        """A number stands for all four, though connecting never waits longer than usual."""
        if given is None:
            return Timeouts()
        if isinstance(given, Timeouts):
            return given
        seconds = checks.seconds("timeout", given)
        if seconds is None:
            return Timeouts(first_byte=None, idle=None, progress=None)
        return Timeouts(connect=min(10.0, seconds), first_byte=seconds, idle=seconds, progress=seconds)


class Limits(Struct, frozen=True, kw_only=True):
    """Bytes of a reply that are taken, uncompressed; None takes everything.

    `max_reply_bytes` for the whole body or stream, `max_event_bytes` for one event of a stream: its data, or a line
    that does not end. More than that is a `ReplyTooLarge`. What holds a picture or a sound holds it in one event: a
    picture of 4096 by 4096 points is up to 33 MB of base64, and some streams send it a second time with their end.
    """

    max_reply_bytes: int | None = 128 * _MIB
    max_event_bytes: int | None = 64 * _MIB

    def __post_init__(self) -> None:
        checks.number("max_reply_bytes", self.max_reply_bytes, 0, none=True)
        checks.number("max_event_bytes", self.max_event_bytes, 1, none=True)

    @property
    def reply(self) -> int:
        """The first as a number of bytes, which nothing reaches where there is no bound."""
        return sys.maxsize if self.max_reply_bytes is None else self.max_reply_bytes

    @property
    def event(self) -> int:
        """The second."""
        return sys.maxsize if self.max_event_bytes is None else self.max_event_bytes

    @staticmethod
    def of(given: Limits | None) -> Limits:
        """The limits given, or the usual ones. Raises `TypeError` for anything else."""
        if given is not None and not isinstance(given, Limits):
            raise checks.wrong_type("limits", given, "a cnllm.Limits(max_reply_bytes=, max_event_bytes=)")
        return given or Limits()


class Retry(Struct, frozen=True, kw_only=True):
    """`attempts` in all (1: never again); waits grow from `base` seconds by doubling, with jitter, up to `cap`.

    An endpoint that asks for a longer wait than `cap` is not waited for.
    """

    attempts: int = 3
    base: float = 0.5
    cap: float = 60.0

    def __post_init__(self) -> None:
        checks.number("attempts", self.attempts, 1)
        for name in ("base", "cap"):
            value: Any = checks.seconds(name, getattr(self, name), zero=True)
            force_setattr(self, name, float("inf") if value is None and name == "cap" else value)
            if getattr(self, name) is None:
                raise checks.wrong_value(name, float("inf"), "a finite number of seconds from 0")
