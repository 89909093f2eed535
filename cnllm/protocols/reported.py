"""Read what an endpoint reports about a reply, whatever the wire and the sender: finish reasons and errors."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.protocols.pieces import FinishWord
from cnllm.registry.flags import Flags

__all__ = [
    "NUMBERS",
    "find_error",
    "finish_kind",
    "finish_word",
    "has_error_status",
    "is_error",
    "key_name",
    "read_finish",
]

NUMBERS = ("code", "status", "statuscode", "httpcode", "httpstatus", "errorcode", "errcode")
"""Names (see `key_name`) of fields that may hold the status of an error, as a number."""
_SENTENCES = ("message", "msg", "error", "errormsg", "errormessage", "detail", "title", "statusmsg", "description")
_ERRORS = ("error", "errors", "errormsg", "errormessage", "errmsg", "exception", "fault", "detail")
"""Names of fields that stand only in errors, or are empty elsewhere."""


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
    """Return an object that is no part of a reply if it is an error: it names one, has a status, or says it failed."""
    if data.get("object") == "error" or data.get("success") is False:
        return data
    for key, value in data.items():
        name = key_name(key)
        if name in _ERRORS and is_error(value):
            return data
        if name in ("type", "status") and type(value) is str and value.lower() in ("error", "failed"):
            return data
    has_sentence = any(value and key_name(key) in _SENTENCES for key, value in data.items())
    return data if has_sentence and has_error_status(data) else None


def is_error(value: Any) -> bool:
    """Whether the value of a field for errors reports one. 0 as the code of an object reports success."""
    if type(value) is not dict:
        return bool(value)
    said = {
        key_name(key): inner for key, inner in value.items() if inner not in (None, "", False, [], {}) or inner == 0
    }
    codes = [code for name, code in said.items() if name in NUMBERS]
    return any(code not in (0, "0") for code in codes or said.values())


def finish_word(value: Any) -> str:
    """Return a finish reason as text, a number as its digits; "" where there is none."""
    if type(value) is str:
        return value if value.strip() else ""
    return msgspec.json.encode(value).decode() if type(value) in (int, float, bool) else ""


def read_finish(value: Any, flags: Flags) -> FinishWord | None:
    """Return a finish reason with its meaning; None where there is none."""
    word = finish_word(value)
    return FinishWord(word, finish_kind(word, flags)) if word else None


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
