"""JSON text from an endpoint → data: strictly and fast, leniently where that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

__all__ = ["Halves", "Unreadable", "lenient", "quick", "whole"]

_decode = msgspec.json.Decoder().decode


class Unreadable(ValueError):
    """It is not JSON, not even nearly."""


def lenient(text: bytes) -> Any:
    """JSON as endpoints write it: NaN, raw control characters, bad UTF-8 and halves of surrogate pairs do not stop it.

    Raises `Unreadable`.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return _clean(json.loads(text.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _clean(data: Any) -> Any:
    """NaN and infinity are in no JSON. Lone surrogates stay: the other half of a pair may come with the next chunk."""
    if type(data) is list:
        return [_clean(item) for item in data]
    if type(data) is dict:
        return {_clean(key): _clean(value) for key, value in data.items()}
    if type(data) is float and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data


def whole(data: Any) -> Any:
    """Data without halves of surrogate pairs, which cannot be written anywhere again."""
    if data is None or (type(data) is str and data.isascii()):
        return data
    try:
        msgspec.json.encode(data)
    except UnicodeEncodeError:
        return _whole(data)
    except (TypeError, RecursionError, ValueError):
        return "[nested too deeply]"
    return data


def _whole(data: Any) -> Any:
    if type(data) is str:
        return data if data.isascii() else data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(data) is list:
        return [_whole(item) for item in data]
    if type(data) is dict:
        return {_whole(key): _whole(value) for key, value in data.items()}
    return data


def _sound(text: str) -> bool:
    """Is there no half of a surrogate pair in a text?"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Halves:
    """Puts characters together whose two halves came in two pieces of text."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def mend(self, text: str) -> str:
        """The text with what was held of the last; a first half at its end is held."""
        if not self.held and (text.isascii() or _sound(text)):
            return text
        text, self.held = self.held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        return str(whole(text))

    def rest(self) -> str:
        """What is still held: a half that nothing followed."""
        held, self.held = self.held, ""
        return str(whole(held))


_FIELDS = 3  # more fields for thinking than any endpoint has used


@lru_cache(maxsize=64)
def quick(
    thoughts: tuple[str, ...],
    rare_delta: tuple[str, ...],
    rare_choice: tuple[str, ...],
    rare_top: tuple[str, ...],
) -> Callable[[bytes], tuple[str, str | None] | None]:
    """A decoder for the chunk that makes up nearly all of a chat stream: one choice, one piece of text or thinking.

    It gives (text, field it came in; None for the answer), or None for a chunk that anything else is in, which the full
    reader takes then. The rare names are those that a full reading would heed: they may be there only as null, which
    the decoder itself checks while it skips everything undeclared.
    """
    thoughts = tuple(dict.fromkeys(thoughts))
    fields = (*thoughts[:_FIELDS], *[f"(none {i})" for i in range(_FIELDS - len(thoughts))])
    first, second, third = fields
    delta = _struct(
        [("content", str | None), *[(f"f{i}", str | None) for i in range(_FIELDS)]],
        {f"f{i}": name for i, name in enumerate(fields)},
        (*rare_delta, *thoughts[_FIELDS:]),
    )
    choice = _struct([("delta", delta | None), ("index", Literal[0] | None)], {}, rare_choice)
    chunk = _struct([("choices", list[choice])], {}, rare_top)  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(chunk).decode

    def read(text: bytes) -> tuple[str, str | None] | None:
        try:
            choices = decode(text).choices
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if len(choices) != 1 or (said := choices[0].delta) is None:
            return None
        if said.content:
            if said.f0 or said.f1 or said.f2:
                return None
            return said.content, None
        if said.f0:
            return None if said.f1 or said.f2 else (said.f0, first)
        if said.f1:
            return None if said.f2 else (said.f1, second)
        return (said.f2, third) if said.f2 else None

    return read


def _struct(fields: list[tuple[str, Any]], rename: dict[str, str], rare: tuple[str, ...]) -> Any:
    """A Struct with these optional fields, and with rare ones that may only be null."""
    declared = {*rename.values(), *(name for name, _ in fields if name not in rename)}
    names = {f"r{i}": name for i, name in enumerate(dict.fromkeys(rare)) if name not in declared}
    return msgspec.defstruct(
        "Quick",
        [*[(n, t, [] if n == "choices" else None) for n, t in fields], *[(n, None, None) for n in names]],
        rename={**rename, **names},
        gc=False,
    )
