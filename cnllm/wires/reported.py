"""Recognise an error that stands bare in a body or a chunk, whatever the wire and whoever sends it."""

from __future__ import annotations

from typing import Any

__all__ = ["names_status", "reported"]

_NUMBERS = ("code", "status", "status_code", "statusCode", "http_code", "error_code", "errorCode")
_SENTENCES = ("message", "msg", "error", "error_msg", "errorMessage", "detail", "title", "status_msg", "description")


def names_status(data: dict[str, Any]) -> bool:
    """Whether an object names the status of an HTTP error, as a number or as text."""
    for key in _NUMBERS:
        value = data.get(key)
        if type(value) is str and len(value) == 3 and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int | float) and 400 <= value <= 599:
            return True
    return False


def reported(data: dict[str, Any]) -> dict[str, Any] | None:
    """The object itself where it is an error: it names a status or says that it failed, and has a sentence."""
    if data.get("object") != "error" and data.get("success") is not False and not names_status(data):
        return None
    said = next((data[key] for key in _SENTENCES if data.get(key)), data.get("errors"))
    return data if said else None
