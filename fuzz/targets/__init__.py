"""The targets, each a module: `check(data)`, `seeds()`, and the `KIND` of what its inputs hold (see `fuzz.mutate`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import history, leaks, overlay, sse, stream, whole

__all__ = ["TARGETS", "Target"]


class Target(NamedTuple):
    """One thing that reads hostile input. `longest` is the size of an input in bytes up to which it is looked for."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    kind: str
    longest: int


TARGETS = {
    "sse": Target(sse.check, sse.seeds, "frames", 4096),
    "stream": Target(stream.check, stream.seeds, "frames", 12000),
    "whole": Target(whole.check, whole.seeds, "json", 8000),
    "leaks": Target(leaks.check, leaks.seeds, "text", 3000),
    "overlay": Target(overlay.check, overlay.seeds, "toml", 4096),
    "history": Target(history.check, history.seeds, "json", 8000),
}
