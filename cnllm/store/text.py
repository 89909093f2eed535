"""Values in the form of the file: JSON, UTF-8, times."""

from __future__ import annotations

import datetime
import json
from typing import Any

import msgspec

from cnllm.types.json_form import encode_json

__all__ = ["as_json", "as_text", "encodable_text", "from_json", "utc_now"]


def as_json(value: Any) -> str:
    """Return any value as JSON."""
    return encode_json(value).decode()


def from_json(text: str | bytes, kind: Any = Any) -> Any:
    """Return the value of JSON, the inverse of `as_json`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:  # half a surrogate pair again
        return msgspec.convert(json.loads(text), kind)


def as_text(value: Any) -> str:
    """Return a value of the file as text, whatever its type."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def encodable_text(text: str) -> str:
    """Return the text with characters that UTF-8 can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def utc_now() -> str:
    """Return the current time: ISO 8601, UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
