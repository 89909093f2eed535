"""What a function gave, as text for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

__all__ = ["shown"]


def shown(value: Any) -> str:
    """A result as text: a string as it is, everything else as JSON.

    None is `null`. Dataclasses, pydantic models, msgspec structs, enums, dates and what is inside of them are written
    as JSON has it; what iterates is a list, sets in order. Bytes are text where they are UTF-8, base64 otherwise. What
    has no JSON is its `str()`.
    """
    if isinstance(value, Enum):
        return shown(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=shown)
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _plain(value: Any) -> Any:
    """What msgspec does not know, as something it does."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Iterator) else str(value)
