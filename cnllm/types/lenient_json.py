"""JSON text from an endpoint → data: strictly and fast, leniently where that fails."""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["NotJson", "SurrogateBuffer", "decode_lenient", "replace_surrogates"]

_decode = msgspec.json.Decoder().decode


class NotJson(ValueError):
    """It is not JSON, not even nearly."""


def decode_lenient(text: bytes) -> Any:
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
        raise NotJson(str(error)) from error


def _clean(data: Any) -> Any:
    """NaN and infinity are in no JSON. Lone surrogates stay: the other half of a pair may come with the next chunk."""
    if type(data) is list:
        return [_clean(item) for item in data]
    if type(data) is dict:
        return {_clean(key): _clean(value) for key, value in data.items()}
    if type(data) is float and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data


def replace_surrogates(data: Any) -> Any:
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


class SurrogateBuffer:
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
        return str(replace_surrogates(text))

    def rest(self) -> str:
        """What is still held: a half that nothing followed."""
        held, self.held = self.held, ""
        return str(replace_surrogates(held))
