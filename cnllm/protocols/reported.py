"""Recognise an error object in a body or a chunk, whatever the wire and the sender."""

from __future__ import annotations

from typing import Any

__all__ = ["NUMBERS", "find_error", "has_error_status", "key_name"]

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
