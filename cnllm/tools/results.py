"""Turn a function's result into text for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import Any

import msgspec

from cnllm.types.checks import kind_of

__all__ = ["shown"]


def shown(value: Any) -> str:
    """Return a result as text: a string unchanged, everything else as JSON.

    None is `null`. Dataclasses, pydantic models, msgspec structs, enums, dates and their contents become JSON;
    sequences and iterators become lists, and sets sorted lists. Bytes are text where they are UTF-8, base64 otherwise.
    A value without JSON becomes its `str()`.
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

    def hook(inner: Any) -> Any:
        plain = _convert(inner)
        if inner is value and isinstance(plain, str):
            raise TypeError("there is no JSON for it")
        return plain

    try:
        return msgspec.json.encode(value, enc_hook=hook).decode()
    except Exception:  # noqa: BLE001  a value that JSON cannot hold, or any error of a caller's object
        return _text(value)


def _text(value: Any) -> str:
    """Return `str(value)`. Raise `ValueError` for a value that has no text either."""
    try:
        return str(value)
    except Exception as error:
        raise ValueError(
            f"value is {kind_of(value)}, which has neither JSON nor text ({type(error).__name__})"
        ) from error


def _convert(value: Any) -> Any:
    """Convert a value that msgspec does not know into one that it does."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    # not every iterable: iterating a table with named columns would yield only the names
    return list(value) if isinstance(value, (Iterator, Sequence, Set, ValuesView)) else str(value)
