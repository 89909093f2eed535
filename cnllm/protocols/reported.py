"""Read what an endpoint reports about a reply, whatever the wire and the sender: finish reasons and errors."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.registry.flags import Flags

__all__ = ["NUMBERS", "find_error", "finish_kind", "finish_word", "has_error_status", "key_name"]

NUMBERS = ("code", "status", "statuscode", "httpcode", "httpstatus", "errorcode", "errcode")
"""Names (see `key_name`) of fields that may hold the status of an error, as a number."""
_SENTENCES = ("message", "msg", "error", "errormsg", "errormessage", "detail", "title", "statusmsg", "description")


def key_name(key: str) -> str:
    """Return a key in lower case, without the characters between its words: endpoints write keys in every way."""
    return key.replace("_", "").replace("-", "").lower()


def has_error_status(data: dict[str, Any]) -> bool:
    """Whether an object names the status of an HTTP error, as a number or as text."""
    for key, value in data.items():
        if key_name(key) not in NUMBERS:
            continue
        if type(value) is str and len(value) == 3 and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int | float) and 400 <= value <= 599:
            return True
    return False


def find_error(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object itself if it is an error: it has a status or says that it failed, and has a message."""
    if data.get("object") != "error" and data.get("success") is not False and not has_error_status(data):
        return None
    has_message = any(value and key_name(key) in _SENTENCES for key, value in data.items())
    return data if has_message or data.get("errors") else None


def finish_word(value: Any) -> str:
    """Return a finish reason as text, a number as its digits; "" where there is none."""
    if type(value) is str:
        return value if value.strip() else ""
    return msgspec.json.encode(value).decode() if type(value) in (int, float, bool) else ""


def finish_kind(word: str, flags: Flags) -> str | None:
    """Return what a finish reason means by the registry; None for an unknown word.

    Case, outer white space and the character between the parts of a word do not matter where no word fits exactly.
    """
    words = flags.finish or {}
    if (kind := words.get(word)) is not None:
        return kind
    plain = _plain_word(word)
    return next((kind for known, kind in words.items() if _plain_word(known) == plain), None)


def _plain_word(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")
