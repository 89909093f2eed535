"""Markers that stand alone, and the white space around what is taken out: what a filter asks about a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cnllm.registry.flags import Leak

__all__ = ["is_bare", "joining_space", "lone_markers"]

_TAG = re.compile(r"<[^<>]{0,256}>|<[^<>]{0,256}\Z")
_BETWEEN = " \t\r\n[]"  # brackets are what is left of a prefix
_FAR = 64  # characters of white space that count
_LEAST = 6  # characters of a closer that stands for markup wherever it is


def lone_markers(rules: Sequence[Leak]) -> tuple[str, ...]:
    """Every opener of some rules, and the closers that are markup when they stand alone."""
    return _markers(
        tuple(opener for rule in rules for opener in rule.open),
        tuple(closer for rule in rules for closer in rule.close),
    )


@lru_cache(maxsize=256)
def _markers(openers: tuple[str, ...], closers: tuple[str, ...]) -> tuple[str, ...]:
    begins = {opener[0] for opener in openers}
    alone = [one for one in closers if len(one) >= _LEAST and one[0] in begins and "`" not in one]
    return tuple(dict.fromkeys([*openers, *alone]))


def is_bare(block: str, opener: str, rule: Leak) -> bool:
    """Whether a block that was cut off holds nothing but tags, so that nothing was said in it yet."""
    if rule.strict:
        return False
    texts = [block[len(opener) :]] if "`" in opener else [block, block[len(opener) :]]
    return any(not _TAG.sub("", text).strip(_BETWEEN) for text in texts)


def joining_space(said: Sequence[str], gap: str) -> str:
    """What is left of the white space behind a block that was taken out, so that with that before it none counts twice.

    The end of a paragraph stays one, and a line that follows keeps its indentation.
    """
    before = ""
    for piece in reversed(said):
        before = piece + before
        if not piece.isspace() or len(before) > _FAR:
            break
    if not before:
        return ""
    space = before[len(before.rstrip()) :]
    if not space:
        return gap
    lines = gap.split("\n")
    breaks = space.count("\n")
    if len(lines) > 2 and breaks < 2:  # the end of a paragraph
        return "\n" * (2 - breaks) + lines[-1]
    return lines[-1] if len(lines) > 1 and breaks else ""
