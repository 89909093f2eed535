"""Decode the JSON of an endpoint, and of its calls: strictly and fast, leniently where that fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = [
    "JsonNesting",
    "JsonPieces",
    "NotJson",
    "arguments_text",
    "break_off",
    "decode_arguments",
    "decode_lenient",
    "join_halves",
    "json_text",
    "may_be_encoded",
    "replace_surrogates",
    "split_half",
]


_decode = msgspec.json.Decoder().decode
_MARKS = re.compile(r'["\\{}\[\]]')


def may_be_encoded(value: Any) -> bool:
    """Whether a value may be an array or an object that was encoded as JSON once more."""
    return type(value) is str and value.lstrip()[:1] in ("[", "{")


class NotJson(ValueError):
    """The text is not JSON, not even approximately."""


def decode_lenient(text: bytes) -> Any:
    """Decode JSON as endpoints write it, with NaN, raw control characters, bad UTF-8 and halves of surrogate pairs.

    Raises `NotJson`.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return _clean(json.loads(text.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def _clean(data: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None.

    Lone surrogates stay: the other half of a pair may come with the next chunk.
    """
    if type(data) is list:
        return [_clean(item) for item in data]
    if type(data) is dict:
        return {_clean(key): _clean(value) for key, value in data.items()}
    if type(data) is float and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data


def replace_surrogates(data: Any) -> Any:
    """Return data without halves of surrogate pairs, which cannot be encoded again."""
    if data is None or (type(data) is str and data.isascii()):
        return data
    try:
        msgspec.json.encode(data)
    except UnicodeEncodeError:
        return _replace_in(data)
    except (TypeError, RecursionError, ValueError):
        return "[nested too deeply]"
    return data


def split_half(text: str) -> tuple[str, str]:
    """Return a text without half of a character at its end, and that half, which is empty where there is none."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return text[: len(text) - len(half)], half


def join_halves(half: str, piece: str) -> tuple[str, str]:
    """Return a piece behind half of a character, in whole characters, and the half at its end.

    That one may go on with the next piece.
    """
    text, rest = split_half(half + piece)
    return replace_surrogates(text), rest


def _replace_in(data: Any) -> Any:
    """Return data with each half of a surrogate pair replaced by U+FFFD."""
    if type(data) is str:
        return data if data.isascii() else data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(data) is list:
        return [_replace_in(item) for item in data]
    if type(data) is dict:
        return {_replace_in(key): _replace_in(value) for key, value in data.items()}
    return data


class JsonNesting:
    """Follows the nesting of JSON that comes in pieces. `last` is the last character that is no white space."""

    __slots__ = ("_escaped", "depth", "in_string", "last")

    def __init__(self) -> None:
        self.depth = 0
        self.last = ""
        self.in_string = self._escaped = False

    def brackets(self, piece: str) -> Iterator[re.Match[str]]:
        """Yield each bracket of a piece outside of texts; `depth` is then that behind the bracket."""
        position = 0
        if stripped := piece.rstrip():
            self.last = stripped[-1]
        if self._escaped and piece:
            position, self._escaped = 1, False
        while mark := _MARKS.search(piece, position):
            position, char = mark.end(), mark[0]
            if char == '"':
                self.in_string = not self.in_string
            elif char == "\\":
                if self.in_string:
                    self._escaped = position == len(piece)
                    position += 1
            elif not self.in_string:
                self.depth += 1 if char in "{[" else -1
                yield mark

    def read(self, piece: str) -> None:
        """Read a piece whose brackets do not matter."""
        for _ in self.brackets(piece):
            pass

    def has_ended(self, brackets: str = "}]") -> bool:
        """Whether everything that began has ended, with one of these brackets."""
        return not self.depth and not self.in_string and self.last != "" and self.last in brackets


class JsonPieces:
    """The pieces of a JSON text. To look whether it has ended costs what is new since the last look."""

    __slots__ = ("_nesting", "_seen", "pieces")

    def __init__(self, *pieces: str) -> None:
        self.pieces = [*pieces]
        self._nesting = JsonNesting()
        self._seen = 0

    def has_ended(self) -> bool:
        """Whether an object or a list is there from its first bracket to its last."""
        self._nesting.read("".join(self.pieces[self._seen :]))
        self._seen = len(self.pieces)
        return self._nesting.has_ended()


# ── arguments of a call ──────────────────────────────────────────────────────


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call, or a piece of them, as text; some endpoints send the decoded object."""
    if type(arguments) is str:
        return arguments
    return "" if arguments is None else json_text(arguments)


def json_text(value: Any) -> str:
    """Return decoded JSON as text. Halves of characters are escapes in it."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def decode_arguments(raw: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return (arguments, problem): the decoded object, or why the raw text is not usable.

    An empty text and null are no arguments.
    """
    text = raw.strip()
    if text in ("", "null"):
        return {}, None
    try:
        value = _decode(text)
    except UnicodeEncodeError:
        return None, "the arguments are not JSON: they hold half of a character"
    except (msgspec.DecodeError, RecursionError) as error:
        return None, f"the arguments are not JSON: {error}"
    if type(value) is dict:
        return value, None
    return None, "the arguments are not a JSON object"


def break_off(raw: str) -> bool:
    """Whether arguments that are not JSON end inside of a text, an object or a list."""
    nesting = JsonNesting()
    nesting.read(raw)
    return nesting.in_string or nesting.depth > 0
