"""Settings for timeouts, limits of size, recovery, retries, and the models that may answer one request."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from cnllm.types import checks

__all__ = ["Fallback", "IfCut", "Limits", "OnUnsupported", "Recovery", "Retry", "TextCalls", "Timeouts"]

OnUnsupported = Literal["adjust", "error", "send"]
"""The words of the option `on_unsupported`."""
TextCalls = Literal["recover", "strip", "keep"]
"""The words of the option `recover_text_calls`."""
IfCut = Literal["error", "again-whole", "keep"]
"""The words of the option `if_cut`."""

_MIB = 1024 * 1024


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; None means no timeout.

    `connect` is for a connection: all addresses of a name, and the handshakes with a proxy and of TLS. `first_byte` is
    for the headers: a whole reply is generated before them. `idle` is between any two bytes of a reply (keep-alive
    comments count; bytes of HTTP and of a compression that hold no content do not). `progress` is between two pieces of
    the model's output (comments do not count).
    """

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    idle: float | None = 300.0
    progress: float | None = 600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            force_setattr(self, name, checks.seconds(name, getattr(self, name)))

    @staticmethod
    def of(timeouts: float | Timeouts | None) -> Timeouts:
        """Return the settings, also for a number of seconds, which stands for all four; `connect` is 10 at most.

        Raises `TypeError` or `ValueError` for anything else.
        """
        if timeouts is None:
            return _TIMEOUTS
        if isinstance(timeouts, Timeouts):
            return timeouts
        seconds = checks.seconds("timeout", timeouts)
        if seconds is None:
            return Timeouts(first_byte=None, idle=None, progress=None)
        return Timeouts(connect=min(10.0, seconds), first_byte=seconds, idle=seconds, progress=seconds)


_TIMEOUTS = Timeouts()


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a reply in uncompressed bytes; None means no limit.

    `max_reply_bytes` is for the whole body or stream, `max_event_bytes` for one event of a stream: its data, or a line
    that does not end. More raises `ReplyTooLarge`. An image or a sound arrives in one event: an image of 4096 by 4096
    pixels is up to 33 MB of base64, and some streams send it a second time at their end. Bytes without content, such as
    trailers and empty blocks of a compression, have a fixed limit of 256 KiB at a time.
    """

    max_reply_bytes: int | None = 128 * _MIB
    max_event_bytes: int | None = 64 * _MIB

    def __post_init__(self) -> None:
        checks.number("max_reply_bytes", self.max_reply_bytes, 0, none=True)
        checks.number("max_event_bytes", self.max_event_bytes, 1, none=True)

    @property
    def reply(self) -> int:
        """Return the first limit as a number, which no reply reaches where there is no limit."""
        return sys.maxsize if self.max_reply_bytes is None else self.max_reply_bytes

    @property
    def event(self) -> int:
        """Return the second limit as a number."""
        return sys.maxsize if self.max_event_bytes is None else self.max_event_bytes

    @staticmethod
    def of(limits: Limits | None) -> Limits:
        """Return the limits, or the default ones. Raises `TypeError` for anything else."""
        if limits is None:
            return _LIMITS
        if not isinstance(limits, Limits):
            raise checks.wrong_type("limits", limits, "a cnllm.Limits(max_reply_bytes=, max_event_bytes=)")
        return limits


_LIMITS = Limits()


class Recovery(Struct, frozen=True, kw_only=True):
    """Settings for a reply that breaks off or is empty; None uses the registry's setting.

    `steps`: how often a tool loop repeats a step that was empty, announced calls without any, or whose whole reply
    broke off. `streams`: how often a cut stream is repeated without streaming. `resume`: whether a tool loop finally
    asks the model to continue; a text replaces the registry's prompt. `cycle`: the number of steps that a cycle of
    equal calls and results may have. With `if_cut` "error" or "keep" nothing is repeated.
    """

    steps: int | None = None
    streams: int | None = None
    resume: bool | str | None = None
    cycle: int | None = None

    def __post_init__(self) -> None:
        for name, minimum in (("steps", 0), ("streams", 0), ("cycle", 1)):
            checks.number(f"recovery.{name}", getattr(self, name), minimum, none=True)
        if self.resume is not None and not isinstance(self.resume, bool | str):
            raise checks.wrong_type("recovery.resume", self.resume, "True, False or a text")

    def with_defaults(self, defaults: Recovery) -> Recovery:
        """Return these settings, with the default where one is None."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(defaults, **own)

    @staticmethod
    def of(recovery: Any) -> Recovery:
        """Return the settings, also from a dict. Raises `TypeError` or `ValueError` for anything else."""
        if isinstance(recovery, Recovery):
            return recovery
        expected = f"a cnllm.Recovery, or a dict of {', '.join(Recovery.__struct_fields__)}"
        if not isinstance(recovery, Mapping):
            raise checks.wrong_type("recovery", recovery, expected)
        table = checks.as_dict("recovery", recovery)
        checks.require_keys("recovery", table, Recovery.__struct_fields__)
        return Recovery(**table)


class Retry(Struct, frozen=True, kw_only=True):
    """Settings for retries.

    `attempts` is the number of tries in all (1: no retry). Delays double from `base` seconds, with jitter, up to `cap`.
    Where an endpoint asks for a longer delay than `cap`, there is no retry.
    """

    attempts: int = 3
    base: float = 0.5
    cap: float = 60.0

    def __post_init__(self) -> None:
        checks.number("attempts", self.attempts, 1)
        force_setattr(self, "base", checks.seconds("base", self.base, zero=True, none=False))
        cap = checks.seconds("cap", self.cap, zero=True)
        force_setattr(self, "cap", float("inf") if cap is None else cap)


# ── routes ───────────────────────────────────────────────────────────────────

_MOST_TARGETS = 32


class Fallback(Struct, frozen=True, kw_only=True):
    """The models that take over, in order, and the rules for it. A target is a name, or a `cnllm.Model`.

    `first_token`: seconds in which the first piece of a stream must arrive; None means no limit. `cooldown`: seconds in
    which a target that failed is passed over. With `weights`, one for each target with the first model included, each
    request draws its order. With `order="measured"` the models are ordered by what was seen of them in the last hour;
    `report` is the path of a report of `cnllm compare`, which counts until enough was seen. For one request at most
    `most` models are asked.
    """

    targets: tuple[Any, ...]
    first_token: float | None = None
    cooldown: float = 30.0
    weights: tuple[float, ...] | None = None
    order: str | None = None
    report: str | os.PathLike[str] | None = None
    most: int = _MOST_TARGETS + 1

    def __post_init__(self) -> None:
        targets = _names("targets", self.targets, 'a list of names such as ["provider/model"]')
        if len(targets) > _MOST_TARGETS:
            raise checks.wrong_value("targets", len(targets), f"at most {_MOST_TARGETS} names")
        force_setattr(self, "targets", targets)
        force_setattr(self, "first_token", checks.seconds("first_token", self.first_token))
        force_setattr(self, "cooldown", checks.seconds("cooldown", self.cooldown, zero=True, none=False))
        if self.weights is not None:
            force_setattr(self, "weights", _weights(self.weights, len(targets) + 1))
        if type(self.most) is not int or self.most < 1:
            raise checks.wrong_value("most", self.most, "a number from 1")
        if self.order not in (None, "measured"):
            raise checks.wrong_value("order", self.order, '"measured", or None for the order of the list')
        if self.order is not None and self.weights is not None:
            raise ValueError('order="measured" and weights exclude each other: leave one of them out')
        if self.report is not None:
            if not isinstance(self.report, str | os.PathLike) or not os.fspath(self.report):
                raise checks.wrong_value("report", self.report, "the path of a report of cnllm compare")
            if self.order is None:
                raise ValueError('a report orders nothing without order="measured"')
            force_setattr(self, "report", os.fspath(self.report))

    @staticmethod
    def of(fallback: Any) -> Fallback:
        """Return the rules, also from a list of names or a dict. Raises `TypeError` or `ValueError` for others."""
        if isinstance(fallback, Fallback):
            return fallback
        if isinstance(fallback, Mapping):
            table = checks.as_dict("fallback", fallback)
            checks.require_keys("fallback", table, Fallback.__struct_fields__)
            if "targets" not in table:
                raise ValueError("fallback has no targets; a list of names is expected there")
            return Fallback(**table)
        return Fallback(targets=_names("fallback", fallback, "a list of names, or a cnllm.Fallback"))


def _names(argument: str, names: Any, expected: str) -> tuple[Any, ...]:
    """Return the names of models, or models. Raises `TypeError` with the argument's name for anything else."""
    found = checks.as_list(argument, names, expected)
    for name in found:
        if not hasattr(name, "flags_for"):  # a cnllm.Model
            checks.require_text(argument, name)
    return tuple(found)


def _weights(weights: Any, count: int) -> tuple[float, ...]:
    """Return the weights. Raises `ValueError` unless there is one for each target, and one above 0."""
    expected = f"a list of {count} numbers from 0, one for each target and not all 0,"
    found = checks.as_list("weights", weights, expected)
    if len(found) != count:
        raise checks.wrong_value("weights", weights, expected)
    for weight in found:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            raise checks.wrong_value("weights", weight, expected)
    if not any(found):
        raise checks.wrong_value("weights", weights, expected)
    return tuple(map(float, found))
