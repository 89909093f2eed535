"""Generate a string that matches a simple regular expression, the same one for the same seed."""

from __future__ import annotations

import random
import re
import string

__all__ = ["sample_match"]

_CLASSES = {"d": string.digits, "w": string.ascii_letters + string.digits + "_", "s": " "}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = string.ascii_letters + string.digits + "_-.:/ "
_COUNT = re.compile(r"\{([0-9]{1,6})(,([0-9]{0,6}))?\}")
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
    for repetitions in (12, 1):
        generator = _Generator(pattern, random.Random(seed), repetitions)
        try:
            text = generator.generate()
        except (_UnsupportedPattern, RecursionError):
            return None, steps + generator.steps
        steps += generator.steps
        source = generator.source()
        if compile_pattern(f"^(?:{source})$" if full_match else source).matches(text):
            return text, steps
    return None, steps


class _Generator:
    """One walk over a pattern. Every method reads from `position` and returns the text for what it reads."""

    def __init__(self, pattern: str, source: random.Random, repetitions: int) -> None:
        self.pattern, self.random, self.repetitions, self.position = pattern, source, repetitions, 0
        self.steps = 0
        self.brackets: set[int] = set()  # positions of a bracket that is first in its class, and so does not close it

    def generate(self) -> str:
        out = self.branches()
        if self.position < len(self.pattern):
            raise _UnsupportedPattern
        return out

    def source(self) -> str:
        """Return the pattern in a form that every engine accepts."""
        return "".join(f"\\{c}" if i in self.brackets else c for i, c in enumerate(self.pattern))

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise _UnsupportedPattern
        self.position += 1
        return char

    def branches(self) -> str:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.position += 1
            branches.append(self.sequence())
        return branches[0]

    def sequence(self) -> str:
        out = ""
        while self.peek() not in ("", "|", ")"):
            start = self.position
            text = self.atom()
            count, end = self.count(self.position)
            for _ in range(count - 1):  # each repetition reads the atom again, for a new random choice
                self.position = start
                text += self.atom()
            self.position = end
            out += text if count else ""
        return out

    def count(self, position: int) -> tuple[int, int]:
        """Return how often the atom before `position` is repeated, and where the pattern continues."""
        char = self.pattern[position : position + 1]
        if match := _COUNT.match(self.pattern, position):
            minimum = int(match[1])
            maximum = minimum if match[2] is None else int(match[3]) if match[3] else None
            end = match.end()
        elif char in ("*", "+", "?"):
            minimum, maximum, end = int(char == "+"), 1 if char == "?" else None, position + 1
        else:
            return 1, position
        if self.pattern[end : end + 1] in ("?", "+"):
            end += 1
        repetitions = max(minimum, self.repetitions)
        return (repetitions if maximum is None else min(maximum, repetitions)), end

    def atom(self) -> str:
        self.steps += 1
        if self.steps > _MAX_PIECES:
            raise _UnsupportedPattern
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.random.choice(self.members())
        if char == "\\":
            return self.random.choice(self.escaped())
        if char in "^$":
            return ""
        return self.random.choice(string.ascii_lowercase) if char == "." else char

    def group(self) -> str:
        if self.peek() == "?":
            self.position += 1
            kind = self.take()
            if kind == "P" and self.take() == "<":
                self.position = self.pattern.index(">", self.position) + 1
            elif kind != ":":
                raise _UnsupportedPattern
        out = self.branches()
        if self.take() != ")":
            raise _UnsupportedPattern
        return out

    def escaped(self) -> str:
        """Return the characters of an escape. The backslash has been read."""
        char = self.take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isalnum():
            raise _UnsupportedPattern
        return char

    def members(self) -> str:
        """Return the characters of a class. The opening bracket has been read."""
        negated = self.peek() == "^"
        self.position += negated
        out = ""
        if self.peek() == "]":
            self.brackets.add(self.position)
        while self.peek() != "]" or not out:
            self.steps += 1
            char = self.take()
            low = self.escaped() if char == "\\" else char
            if (
                len(low) == 1
                and self.peek() == "-"
                and self.pattern[self.position + 1 : self.position + 2] not in ("]", "")
            ):
                self.position += 1
                high = self.take()
                high = self.escaped() if high == "\\" else high
                if negated:
                    out += "".join(c for c in _PRINTABLE if low <= c <= high[0]) or low
                else:
                    out += "".join(map(chr, range(ord(low), min(ord(high[0]), ord(low) + _MAX_RANGE) + 1)))
            else:
                out += low
        self.position += 1
        if negated:
            out = "".join(c for c in _PRINTABLE if c not in out)
        if not out:
            raise _UnsupportedPattern
        return out
