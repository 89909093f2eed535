"""Generate a string that matches a simple regular expression, the same one for the same seed."""

from __future__ import annotations

import random
import re
import string
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

__all__ = ["sample_match"]

_PARSER: Any = import_module("re._parser")  # Python's parser of patterns, which has no public name
_LEADING_BRACKET = re.compile(r"(?<!\\)\[(\^?)\]")
_CLASSES = {"DIGIT": string.digits, "WORD": string.ascii_letters + string.digits + "_", "SPACE": " "}
_PRINTABLE = string.ascii_letters + string.digits + "_-.:/ "
_MAX_PIECES = 20_000  # pieces of a pattern that are generated, repetitions included
_MAX_RANGE = 256  # characters of a range to choose from


class _UnsupportedPattern(Exception):
    """A construct that this generator does not support."""


def sample_match(pattern: str, seed: str, *, full_match: bool = True) -> tuple[str | None, int]:
    """Return a match of the pattern (of the whole string, or as a search finds it), or None if it is too hard.

    The second value is how many pieces of the pattern were generated. Supports literals, classes, groups, alternatives
    and counts. It checks the string before it returns it, so that lookaheads and the like give None and never a wrong
    string.
    """
    from cnllm.schemas.patterns import compile_pattern

    steps = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of classes that later versions may read in another way
            items = _PARSER.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None, steps
    for repetitions in (12, 1):
        generator = _Generator(random.Random(seed), repetitions)
        try:
            text = generator.sequence(items)
        except (_UnsupportedPattern, RecursionError):
            return None, steps + generator.steps
        steps += generator.steps
        source = _LEADING_BRACKET.sub(r"[\1\]", pattern)  # a form that every engine reads in the same way
        if compile_pattern(f"^(?:{source})$" if full_match else source).matches(text):
            return text, steps
    return None, steps


class _Generator:
    """One walk over a parsed pattern. Every method returns the text for what it gets."""

    def __init__(self, source: random.Random, repetitions: int) -> None:
        self.random, self.repetitions, self.steps = source, repetitions, 0

    def sequence(self, items: Iterable[tuple[Any, Any]]) -> str:
        return "".join(self.item(str(kind), value) for kind, value in items)

    def item(self, kind: str, value: Any) -> str:
        self.steps += 1
        if self.steps > _MAX_PIECES:
            raise _UnsupportedPattern
        match kind:
            case "LITERAL":
                return chr(value)
            case "NOT_LITERAL":
                return self.random.choice(_PRINTABLE.replace(chr(value), ""))
            case "ANY":
                return self.random.choice(string.ascii_lowercase)
            case "AT":
                return ""
            case "IN":
                return self.random.choice(self.members(value))
            case "BRANCH":
                return self.sequence(value[1][0])
            case "SUBPATTERN":
                return self.sequence(value[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                minimum, maximum, items = value
                count = min(maximum, max(minimum, self.repetitions))
                return "".join(self.sequence(items) for _ in range(count))
            case _:
                raise _UnsupportedPattern

    def members(self, entries: Iterable[tuple[Any, Any]]) -> str:
        """Return the characters of a class."""
        out, is_negated = "", False
        for kind, value in entries:
            self.steps += 1
            match str(kind):
                case "NEGATE":
                    is_negated = True
                case "LITERAL":
                    out += chr(value)
                case "RANGE":
                    low, high = value
                    out += "".join(map(chr, range(low, high + 1 if is_negated else min(high, low + _MAX_RANGE) + 1)))
                case "CATEGORY":
                    name = str(value).removeprefix("CATEGORY_")
                    known = _CLASSES[name.removeprefix("NOT_")]
                    out += "".join(c for c in _PRINTABLE if c not in known) if name.startswith("NOT_") else known
        if is_negated:
            out = "".join(c for c in _PRINTABLE if c not in out)
        if not out:
            raise _UnsupportedPattern
        return out
