"""JSON with halves of characters, and an answer to a schema of whatever type it was built as."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cnllm.types.checks import kind_of

__all__ = ["encode_json", "json_form", "mend_halves", "plain_value"]

_ESCAPE = rb"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
"""An escape of a JSON text, and whether it is half of a pair that has no other half."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # the start of an escape that `_ESCAPE` may replace
_MOST_ESCAPES = 500_000  # of a text in which halves of characters are looked for: many take long

_PLAIN = frozenset({str, int, float, bool, type(None)})


def encode_json(value: Any) -> bytes:
    """Return a value as JSON, which can hold half of a surrogate pair only as an escape."""
    try:
        return msgspec.json.encode(value, enc_hook=plain_value)
    except UnicodeEncodeError:
        return json.dumps(value, default=lambda item: msgspec.to_builtins(item, enc_hook=plain_value)).encode()


def mend_halves(text: bytes) -> bytes:
    """Return a JSON text with U+FFFD for each half of a character. One with very many escapes stays as it is."""
    if not _SURROGATE.search(text) or text.count(b"\\") > _MOST_ESCAPES:
        return text
    return re.sub(_ESCAPE, lambda escape: escape[0] if escape[1] is None else b"\\ufffd", text)


def plain_value(value: Any) -> Any:
    """Return a caller's subclass or look-alike of a JSON type as that type. Raises `TypeError` for anything else."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"JSON cannot hold {kind_of(value)}")


def json_form(value: Any) -> Any:
    """Return a value in a form that JSON can hold; the value itself where it is in that form."""
    if _is_plain(value):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True)


def _is_plain(value: Any) -> bool:
    """Whether a value is in the form of JSON already, however deep it is."""
    rest = [value]
    while rest:
        part = rest.pop()
        if type(part) is dict:
            if any(type(name) is not str for name in part):
                return False
            rest += part.values()
        elif type(part) is list:
            rest += part
        elif type(part) not in _PLAIN:
            return False
    return True
