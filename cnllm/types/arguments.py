"""Decode the arguments of a call."""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["break_off", "decode_arguments"]

_decode_text = msgspec.json.Decoder().decode


def decode_arguments(raw: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return (arguments, problem): the decoded object, or why the raw text is not usable.

    An empty text and null are no arguments.
    """
    text = raw.strip()
    if text in ("", "null"):
        return {}, None
    try:
        value = _decode_text(text)
    except UnicodeEncodeError:
        return None, "the arguments are not JSON: they hold half of a character"
    except (msgspec.DecodeError, RecursionError) as error:
        return None, f"the arguments are not JSON: {error}"
    if type(value) is dict:
        return value, None
    return None, "the arguments are not a JSON object"


_OPENERS = re.compile(r""""(?:[^"\\]|\\.)*+"|["{}\[\]]""", re.DOTALL)


def break_off(raw: str) -> bool:
    """Whether arguments that are not JSON end inside of a text, an object or a list."""
    depth = 0
    for mark in _OPENERS.finditer(raw):
        if mark[0] == '"':
            return True
        depth += (mark[0] in "{[") - (mark[0] in "}]")
    return depth > 0
