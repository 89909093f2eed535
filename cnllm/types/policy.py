"""How long to wait, how much to take, and when to try again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from cnllm.types import checks

__all__ = ["Limits", "Recovery", "Retry", "Timeouts"]

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
            return _TIMEOUTS
        if isinstance(given, Timeouts):
            return given
        seconds = checks.seconds("timeout", given)
        if seconds is None:
            return Timeouts(first_byte=None, idle=None, progress=None)
        return Timeouts(connect=min(10.0, seconds), first_byte=seconds, idle=seconds, progress=seconds)


_TIMEOUTS = Timeouts()


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
        if given is None:
            return _LIMITS
        if not isinstance(given, Limits):
            raise checks.wrong_type("limits", given, "a cnllm.Limits(max_reply_bytes=, max_event_bytes=)")
        return given


_LIMITS = Limits()


class Recovery(Struct, frozen=True, kw_only=True):
    """What is tried where a reply breaks off, or comes empty; None leaves it to the registry.

    `steps`: how often a tool loop takes a step again that came empty, announced calls and brought none, or whose whole
    reply broke off. `streams`: how often a cut stream is asked for again without streaming. `resume`: whether a tool
    loop asks the model, at last, to go on; a text is asked in place of the registry's. `cycle`: how many steps a circle
    of the same calls and results may have. With `if_cut` "error" or "keep" nothing is asked for again.
    """

    steps: int | None = None
    streams: int | None = None
    resume: bool | str | None = None
    cycle: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("streams", 0), ("cycle", 1)):
            checks.number(f"recovery.{name}", getattr(self, name), least, none=True)
        if self.resume is not None and not isinstance(self.resume, bool | str):
            raise checks.wrong_type("recovery.resume", self.resume, "True, False or a text")

    def with_defaults(self, given: Recovery) -> Recovery:
        """These settings, and the given ones where this leaves something open."""
        pairs = {name: (getattr(self, name), getattr(given, name)) for name in self.__struct_fields__}
        return Recovery(**{name: other if own is None else own for name, (own, other) in pairs.items()})

    @staticmethod
    def of(recovery: Any) -> Recovery:
        """Return the settings, also those in a dict. Raises `TypeError` or `ValueError` for anything else."""
        if isinstance(recovery, Recovery):
            return recovery
        expected = f"a cnllm.Recovery, or a dict of {', '.join(Recovery.__struct_fields__)}"
        if not isinstance(recovery, Mapping):
            raise checks.wrong_type("recovery", recovery, expected)
        table = checks.as_dict("recovery", recovery)
        if unknown := [name for name in table if name not in Recovery.__struct_fields__]:
            raise checks.wrong_value("recovery", unknown[0], expected)
        return Recovery(**table)


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
