"""Match the patterns of JSON Schemas in linear time, and patterns against a whole text, such as those of call ids.

JSON Schema writes patterns as ECMA-262 does. pydantic's engine is Rust's `regex`: it never backtracks, and it bounds
the memory of a compiled pattern. A pattern that this engine spells in another way is translated here. A pattern that
it does not support (look-around, back-references), or that engines read in different ways, is not judged.

`\\d` is 0 to 9. `\\w`, `\\b` and `\\s` are those of Unicode, as jsonschema and pydantic read them: patterns for
Chinese text are written so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = [
    "Pattern",
    "compile_pattern",
    "ignore_case",
    "matches_whole",
    "whole_matcher",
    "whole_problem",
]


_MAX_LENGTH = 10_000  # characters of a pattern
_MAX_SIZE = 100_000  # the size of a pattern
_QUANTIFIER = re.compile(r"\{([0-9]{1,6})(?:(,)([0-9]{0,6}))?\}")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>|[ims]{1,3}(?:-[ims]{1,3})?[:)])")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|U([0-9A-Fa-f]{8})")
_LOW = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_PROPERTY = re.compile(r"[pP](?:\{[A-Za-z0-9_=]{1,64}\}|[A-Z])")
_CONTROL = re.compile(r"c([A-Za-z])")
_SAME_ESCAPES = frozenset("wWsSnrtfv")
_UNICODE_CLASS_SIZE = 150  # the size of a class of Unicode such as \w
_CLASS_SIZE = 8  # the size of any other class

_ATOM = r"(?:\[\^?(?:[^\]\[\\^&~|]|\\[sSdDwW.-])+\]|[A-Za-z0-9_-])"
_SIMPLE = re.compile(rf"(?:{_ATOM}(?:\{{[0-9]{{1,3}}\}})?)*{_ATOM}(?:\{{[0-9]{{1,3}}(?:,[0-9]{{0,3}})?\}}|[+*?])?")
"""Characters and classes. Only the last one may have a range of counts, so that nothing is ever tried twice."""


class _Unsupported(Exception):
    """The engine does not support this, or engines do not agree on it."""


class Pattern:
    """A pattern: `matches` searches a text for it. `problem` is the reason why it is not judged.

    `is_broken`: it is no valid pattern. `size` is the number of characters, classes and positions once its counts
    are written out: a search takes at most as many steps for each character of a text.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.size = 1
        self.problem: str | None = None
        self.is_broken = False
        self._match: Any = None
        try:
            text, self.size = _Translator(source).translate()
            self._match = _compile(text)
        except (_Unsupported, RecursionError) as error:
            self.problem = str(error) or "it is nested too deeply"
            self.is_broken = _is_broken(source)

    def matches(self, text: str) -> bool | None:
        """Whether the pattern matches somewhere in a text; None if it is not judged."""
        if self._match is None:
            return None
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "replace").decode()
        matches: bool = self._match.isinstance_python(text)
        return matches


@lru_cache(maxsize=64)
def compile_pattern(source: str) -> Pattern:
    """Return the pattern of a schema, compiled."""
    return Pattern(source)


def ignore_case(source: str) -> Pattern:
    """Return a pattern that matches in any case."""
    return Pattern(f"(?i){source}")


def _compile(text: str) -> Any:
    """Return the engine's validator of a pattern. Raises `_Unsupported`."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=text, strict=True, regex_engine="rust-regex"))
    except SchemaError as error:
        raise _Unsupported(str(error).strip().splitlines()[-1].removeprefix("error:").strip()) from None


def _is_broken(source: str) -> bool:
    """Whether a pattern that is not judged is invalid: Python, which supports look-around, cannot read it either."""
    if len(source) > _MAX_LENGTH or "(?<" in source or "\\c" in source:
        return False
    try:
        re.compile(source)
    except re.error as error:
        return not str(error).startswith(("bad escape", "bad character range"))
    except (RecursionError, OverflowError):
        return False
    return False


class _Translator:
    """One walk over a pattern that writes it for the engine and adds up its size."""

    def __init__(self, source: str) -> None:
        if len(source) > _MAX_LENGTH:
            raise _Unsupported(f"it is longer than {_MAX_LENGTH} characters")
        self._source = source
        self._at = 0
        self._out: list[str] = []
        self._sizes = [0]  # of the open groups
        self._last: int | None = None  # the size of the item that a quantifier would repeat

    def translate(self) -> tuple[str, int]:
        """Return the pattern for the engine, and its size. Raises `_Unsupported`."""
        while self._at < len(self._source):
            self._next()
        if len(self._sizes) > 1:
            raise _Unsupported("a bracket is not closed")
        return "".join(self._out), max(1, self._sizes[0])

    def _put(self, text: str, size: int | None) -> None:
        """Write an item of a size; None if it cannot be repeated."""
        self._out.append(text)
        self._last = size
        self._add(size or 0)

    def _add(self, size: int) -> None:
        """Add to the size of the open group."""
        self._sizes[-1] += size
        if self._sizes[-1] > _MAX_SIZE:
            raise _Unsupported("it is too large once its counts are written out")

    def _next(self) -> None:
        """Translate the next item."""
        source, start = self._source, self._at
        char = source[start]
        self._at += 1
        if char == "\\":
            self._put(*self._escape(in_class=False))
        elif char == "[":
            self._class()
        elif char == "(":
            self._open()
        elif char == ")":
            if len(self._sizes) == 1:
                raise _Unsupported("a closing bracket has no opening bracket")
            size = self._sizes.pop()
            self._put(")", max(1, size))
        elif char in "*+?":
            self._repeat(char, 1)
        elif char == "{":
            if source.startswith("{,", start):
                raise _Unsupported("engines do not agree on {,")
            if match := _QUANTIFIER.match(source, start):
                self._at = match.end()
                self._repeat(match[0], int(match[3] or match[1]))
            else:
                self._put(r"\{", 1)
        elif char in "^$|":
            self._put(char, None if char == "|" else 1)
        elif char in "}]":
            self._put(f"\\{char}", 1)
        else:
            self._put(char, _CLASS_SIZE if char == "." else 1)

    def _open(self) -> None:
        """Translate the opening bracket of a group."""
        text = "("
        if self._source.startswith("?", self._at):
            match = _GROUP.match(self._source, self._at - 1)
            if match is None:
                raise _Unsupported("look-around and other extensions are not supported")
            text = match[0]
            self._at = match.end()
            if text.endswith(")"):  # flags for the rest of the group
                self._put(text, None)
                return
        self._out.append(text)
        self._sizes.append(0)
        self._last = None

    def _repeat(self, text: str, count: int) -> None:
        """Translate a quantifier."""
        if self._last is None:
            raise _Unsupported("a count has nothing before it, or another count")
        if self._source.startswith("?", self._at):
            self._at += 1
            text += "?"
        self._add(self._last * (max(1, count) - 1))
        self._out.append(text)
        self._last = None

    def _escape(self, *, in_class: bool) -> tuple[str, int]:
        """Return (text, size) of an escape. The backslash has been read."""
        source = self._source
        if self._at >= len(source):
            raise _Unsupported("it ends with a backslash")
        char = source[self._at]
        self._at += 1
        if char in "dD":
            digits = "0-9" if char == "d" else "^0-9"
            return ("0-9" if in_class and char == "d" else f"[{digits}]"), _CLASS_SIZE
        if char in _SAME_ESCAPES:
            return f"\\{char}", _UNICODE_CLASS_SIZE if char in "wWsS" else 1
        if match := _HEX.match(source, self._at - 1):
            self._at = match.end()
            return self._character(int(match[match.lastindex or 0], 16)), 1
        if match := _CONTROL.match(source, self._at - 1):
            self._at = match.end()
            return self._character(ord(match[1]) % 32), 1
        if match := _PROPERTY.match(source, self._at - 1):
            self._at = match.end()
            return f"\\{match[0]}", _UNICODE_CLASS_SIZE
        if char == "0" and not source[self._at : self._at + 1].isdigit():
            return r"\x00", 1
        if in_class and char == "b":
            return r"\x08", 1
        if not in_class and char in "bBAZ":
            if source.startswith("{", self._at):
                raise _Unsupported("a position cannot be counted")
            return r"\z" if char == "Z" else f"\\{char}", 1
        if char.isascii() and char.isalnum():
            raise _Unsupported(f"\\{char} is not supported")
        return re.escape(char) if char.isascii() and char not in "<>\n " else char, 1

    def _character(self, code: int) -> str:
        """Return a character as an escape; two halves of a surrogate pair are one character."""
        if 0xD800 <= code < 0xDC00 and (low := _LOW.match(self._source, self._at)):
            self._at = low.end()
            code = 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise _Unsupported("half of a character cannot be matched")
        return f"\\x{{{code:x}}}"

    def _class(self) -> None:
        """Translate a class. The opening bracket has been read."""
        source = self._source
        is_negated = source.startswith("^", self._at)
        self._at += is_negated
        out = ["[^" if is_negated else "["]
        size = _CLASS_SIZE
        if source.startswith("]", self._at):
            raise _Unsupported("engines do not agree on a class that begins with ]")
        after_class = False  # a class such as \d: a hyphen behind it is literal
        while not source.startswith("]", self._at):
            if self._at >= len(source):
                raise _Unsupported("a class is not closed")
            char = source[self._at]
            self._at += 1
            if char == "\\":
                is_class = source[self._at : self._at + 1] in tuple("dDwWsSpP")
                text, item_size = self._escape(in_class=True)
                if is_class and out[-1] == "-" and len(out) > 2:
                    out[-1] = r"\-"
                after_class = is_class
                out.append(text)
                size += item_size
                continue
            if char == "-":
                if source.startswith("-", self._at):
                    raise _Unsupported("engines do not agree on -- in a class")
                is_first, is_last = len(out) == 1, source.startswith("]", self._at)
                char = r"\-" if after_class or is_first or is_last else char
            elif char in "[&~":
                char = f"\\{char}"
            after_class = False
            out.append(char)
            size += 1
        self._at += 1
        self._put("".join(out) + "]", size)


# ── a whole text ─────────────────────────────────────────────────────────────


@lru_cache(maxsize=64)
def whole_matcher(source: str) -> Callable[[str], bool] | None:
    """Return a function that tells whether a text matches a pattern as a whole; None if the pattern is unusable."""
    if _SIMPLE.fullmatch(source):
        try:
            fullmatch = re.compile(source).fullmatch
        except re.error:
            return None
        return lambda text: fullmatch(text) is not None
    pattern = _anchor(source)
    return None if pattern.problem is not None else lambda text: pattern.matches(text) is True


def matches_whole(source: str, text: str) -> bool:
    """Whether a text matches a pattern as a whole, as far as the pattern can be read."""
    matches = whole_matcher(source)
    return matches is None or matches(text)


def whole_problem(source: str) -> tuple[str, bool] | None:
    """Return the reason why a pattern cannot be matched, and whether it is invalid; None if it can."""
    if whole_matcher(source) is not None:
        return None
    pattern = _anchor(source)
    return pattern.problem or "it cannot be read", pattern.is_broken or pattern.problem is None


def _anchor(source: str) -> Pattern:
    """Return a pattern with anchors around it."""

    alone = Pattern(source)  # alone, so that a bracket in it cannot close the group around it
    return alone if alone.problem is not None else Pattern(rf"\A(?:{source})\Z")
