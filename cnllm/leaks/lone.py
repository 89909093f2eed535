"""Recognise lone markers, and join the white space around a removed block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cnllm.registry.flags import Leak

__all__ = ["is_bare", "joining_space", "lone_markers"]

_TAG = re.compile(r"<[^<>]{0,256}>|<[^<>]{0,256}\Z")
_BETWEEN = " \t\r\n[]"  # brackets are the rest of a prefix
_FAR = 64  # characters of white space that count
_LEAST = 6  # characters of a closer that is markup wherever it stands


def lone_markers(rules: Sequence[Leak]) -> tuple[str, ...]:
    """Return all openers of the rules, and the closers that are markup when they stand alone."""
    return _markers(
        tuple(opener for rule in rules for opener in rule.open),
        tuple(closer for rule in rules for closer in rule.close),
    )


@lru_cache(maxsize=256)
def _markers(openers: tuple[str, ...], closers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the markers for `lone_markers`."""
    begins = {opener[0] for opener in openers}
    alone = [closer for closer in closers if len(closer) >= _LEAST and closer[0] in begins and "`" not in closer]
    return tuple(dict.fromkeys([*openers, *alone]))


def is_bare(block: str, opener: str, rule: Leak) -> bool:
    """Whether an incomplete block holds nothing but tags, so that it has no content yet."""
    if rule.strict:
        return False
    texts = [block[len(opener) :]] if "`" in opener else [block, block[len(opener) :]]
    return any(not _TAG.sub("", text).strip(_BETWEEN) for text in texts)


def joining_space(pieces: Sequence[str], gap: str) -> str:
    """Return the white space to write in place of a removed block.

    `pieces` is the text before the block, `gap` the white space behind it. White space on both sides counts once,
    the end of a paragraph stays one, and a line that follows keeps its indentation.
    """
    before = ""
    for piece in reversed(pieces):
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
