"""Read and write the field of a part that clients of a protocol send back unchanged."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.types import Part, Seal

__all__ = ["token_reader", "token_writer"]


def token_reader(
    protocol: str, kinds: Iterable[type], *fields: str, is_bytes: bool = False
) -> Callable[[Part], str | None]:
    """Return a function that reads the token of a part of these kinds, from the first of the fields that has one.

    `is_bytes`: the fields hold bytes in base64, which clients decode and encode again.
    """
    carriers = frozenset(kinds)

    def read_token(part: Part) -> str | None:
        """Return the token of a part, or None."""
        seal = part.seal
        if type(part) not in carriers or seal is None or seal.protocol != protocol or not isinstance(seal.data, dict):
            return None
        token = next((value for field in fields if isinstance(value := seal.data.get(field), str) and value), None)
        return _decode(token) if is_bytes and token is not None else token

    return read_token


def _decode(text: str) -> str:
    """Return the token in a field of bytes; the text itself if the bytes are no text."""
    try:
        return base64.b64decode(text.translate(_STANDARD), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return text


_STANDARD = str.maketrans("-_", "+/")
"""Clients may encode the bytes with the other alphabet of base64."""


def token_writer(
    protocol: str,
    kinds: Iterable[type],
    field: str,
    base: Callable[[Any], Mapping[str, Any]] | None = None,
    *,
    is_bytes: bool = False,
) -> Callable[[Part, str], Part]:
    """Return a function that writes a token into a field of a part of these kinds.

    The part loses its own seal, which belongs to somebody else. `base` returns the other data of the new seal.
    `is_bytes`: the field holds bytes in base64.
    """
    carriers = frozenset(kinds)

    def write_token(part: Part, token: str) -> Part:
        """Return the part with the token; the part itself if it has no field for one."""
        if type(part) not in carriers:
            return part
        value = base64.b64encode(token.encode()).decode() if is_bytes else token
        data = {**(base(part) if base is not None else {}), field: value}
        return replace(part, seal=Seal(protocol, "", "", data))

    return write_token
