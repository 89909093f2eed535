"""What a function gave, as text for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import Any

import msgspec

from cnllm.types.checks import kind_of

__all__ = ["shown"]


def shown(value: Any) -> str:
    """A result as text: a string as it is, everything else as JSON.

    None is `null`. Dataclasses, pydantic models, msgspec structs, enums, dates and what is inside of them are written
    as JSON has it; sequences and iterators are lists, sets too, in order. Bytes are text where they are UTF-8, base64
    otherwise. What has no JSON is its `str()`.
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
        plain = _plain(inner)
        if inner is value and isinstance(plain, str):
            raise TypeError("there is no JSON for it")
        return plain

    try:
        return msgspec.json.encode(value, enc_hook=hook).decode()
    except Exception:  # noqa: BLE001  what JSON cannot hold, and what an object of the caller's raises
        return _text(value)


def _text(value: Any) -> str:
    """`str(value)`. Raises `ValueError` for what has no text either."""
    try:
        return str(value)
    except Exception as error:
        raise ValueError(
            f"value is {kind_of(value)}, which has neither JSON nor text ({type(error).__name__})"
        ) from error


def _plain(value: Any) -> Any:
    """What msgspec does not know, as something it does."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    # not whatever iterates: of a table with named columns that would be the names alone
    return list(value) if isinstance(value, (Iterator, Sequence, Set, ValuesView)) else str(value)
