"""Recognise lone markers, and join the white space around a removed block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cnllm.leaks import grammars
from cnllm.leaks.markers import Markers
from cnllm.leaks.quoting import QuoteTracker
from cnllm.registry.flags import Leak

__all__ = ["LOOKAHEAD", "is_bare", "joining_space", "lone_end", "lone_markers"]

LOOKAHEAD = 256  # characters behind an opener that decide whether a block begins

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


def lone_end(
    text: str, end: int, careful: bool, tracker: QuoteTracker, markers: Markers, rules: Mapping[str, Leak]
) -> int | None:
    """Return the end of the lone markers from the one that ends at `end`; 0 if it is not alone, None if unknown.

    A marker is alone if nothing else stands on its lines. With `careful` no text may follow it, either.
    `tracker` has read the text before the marker; `rules` are by opener.
    """
    if tracker.follows_tick:
        return 0
    while True:
        next_start = end
        while next_start < len(text) and text[next_start] in " \t":
            next_start += 1
        if next_start - end >= LOOKAHEAD:
            return 0
        match = markers.find(text, next_start) if next_start < len(text) else None
        if match is None or match[0] != next_start:
            break
        if (leak := rules.get(markers.markers[match[2]])) is not None:
            begins = grammars.may_begin(leak, text[next_start : match[1]], text[match[1] : match[1] + LOOKAHEAD])
            if begins is None and len(text) - match[1] < LOOKAHEAD:
                return None
            if begins:
                return 0 if tracker.line.prose else end
        end = match[1]
    rest = text[next_start:]
    if markers.pending_length(rest) == len(rest):  # nothing, or text that may become a marker
        return None
    if not tracker.line.prose and not careful:
        return end if rest[0] == "\n" else 0
    return None if rest.isspace() and len(rest) < LOOKAHEAD else 0


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
