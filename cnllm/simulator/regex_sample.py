"""A string that matches a simple regular expression, the same one for the same seed."""

from __future__ import annotations

import random
import re
import string

__all__ = ["sample_match", "sample_with_size"]

_CLASSES = {"d": string.digits, "w": string.ascii_letters + string.digits + "_", "s": " "}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = string.ascii_letters + string.digits + "_-.:/ "
_COUNT = re.compile(r"\{([0-9]{1,6})(,([0-9]{0,6}))?\}")
_MOST = 20_000  # pieces of a pattern that are written, repetitions included
_RANGE = 256  # characters of a range that are picked from


class _TooHard(Exception):
    """A construct this generator does not know."""


def sample_match(pattern: str, seed: str, *, whole: bool = True) -> str | None:
    """A match of the pattern (as a whole, or as a search would find it), None where it is too hard.

    Knows literals, classes, groups, alternatives and counts; what it makes is checked before it is returned, so that
    lookaheads and the like give None and never a wrong string.
    """
    return sample_with_size(pattern, seed, whole=whole)[0]


def sample_with_size(pattern: str, seed: str, *, whole: bool = True) -> tuple[str | None, int]:
    """Return what `matching` returns, and how many pieces of the pattern were written for it."""
    from cnllm.schemas import compile_pattern

    steps = 1
    for wide in (12, 1):
        maker = _Maker(pattern, random.Random(seed), wide)
        try:
            text = maker.made()
        except (_TooHard, RecursionError):
            return None, steps + maker.steps
        steps += maker.steps
        source = maker.source()
        if compile_pattern(f"^(?:{source})$" if whole else source).matches(text):
            return text, steps
    return None, steps


class _Maker:
    """One walk over a pattern; every method reads on from `at` and returns what it makes of it."""

    def __init__(self, pattern: str, dice: random.Random, wide: int) -> None:
        self.pattern, self.dice, self.wide, self.at = pattern, dice, wide, 0
        self.steps = 0
        self.brackets: set[int] = set()  # where a bracket stands first in its class, and so does not close it

    def made(self) -> str:
        out = self.branches()
        if self.at < len(self.pattern):
            raise _TooHard
        return out

    def source(self) -> str:
        """The pattern as every engine reads it."""
        return "".join(f"\\{c}" if i in self.brackets else c for i, c in enumerate(self.pattern))

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise _TooHard
        self.at += 1
        return char

    def branches(self) -> str:
        made = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            made.append(self.sequence())
        return made[0]

    def sequence(self) -> str:
        out = ""
        while self.peek() not in ("", "|", ")"):
            start = self.at
            once = self.atom()
            count, end = self.count(self.at)
            for _ in range(count - 1):  # each repetition walks the atom again, so that the dice fall anew
                self.at = start
                once += self.atom()
            self.at = end
            out += once if count else ""
        return out

    def count(self, at: int) -> tuple[int, int]:
        """How often the atom before `at` stands, and where the pattern goes on."""
        char = self.pattern[at : at + 1]
        if found := _COUNT.match(self.pattern, at):
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            end = found.end()
        elif char in ("*", "+", "?"):
            least, most, end = int(char == "+"), 1 if char == "?" else None, at + 1
        else:
            return 1, at
        if self.pattern[end : end + 1] in ("?", "+"):
            end += 1
        wanted = max(least, self.wide)
        return (wanted if most is None else min(most, wanted)), end

    def atom(self) -> str:
        self.steps += 1
        if self.steps > _MOST:
            raise _TooHard
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.dice.choice(self.members())
        if char == "\\":
            return self.dice.choice(self.escaped())
        if char in "^$":
            return ""
        return self.dice.choice(string.ascii_lowercase) if char == "." else char

    def group(self) -> str:
        if self.peek() == "?":
            self.at += 1
            kind = self.take()
            if kind == "P" and self.take() == "<":
                self.at = self.pattern.index(">", self.at) + 1
            elif kind != ":":
                raise _TooHard
        out = self.branches()
        if self.take() != ")":
            raise _TooHard
        return out

    def escaped(self) -> str:
        """The characters an escape stands for; the backslash has been read."""
        char = self.take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isalnum():
            raise _TooHard
        return char

    def members(self) -> str:
        """The characters of a class; the opening bracket has been read."""
        negated = self.peek() == "^"
        self.at += negated
        out = ""
        if self.peek() == "]":
            self.brackets.add(self.at)
        while self.peek() != "]" or not out:
            self.steps += 1
            char = self.take()
            low = self.escaped() if char == "\\" else char
            if len(low) == 1 and self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.take()
                high = self.escaped() if high == "\\" else high
                if negated:
                    out += "".join(c for c in _PRINTABLE if low <= c <= high[0]) or low
                else:
                    out += "".join(map(chr, range(ord(low), min(ord(high[0]), ord(low) + _RANGE) + 1)))
            else:
                out += low
        self.at += 1
        if negated:
            out = "".join(c for c in _PRINTABLE if c not in out)
        if not out:
            raise _TooHard
        return out
