"""The rows of an input: one request each, as it stands there."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from msgspec import Struct

__all__ = ["Content", "Row", "RowFault", "check_id", "id_digest", "json_kind", "line_digest", "row_key"]

Id = str | int


class RowFault(Exception):
    """A row that cannot be a request: what is wrong with it, without its line number."""


class Content(Struct, frozen=True):
    """The request of a row: its messages and its own options."""

    id: Id | None
    messages: Any
    options: dict[str, Any]


class Row(Struct, frozen=True):
    """A row as it was read. `number` is its line, `key` a digest of its own bytes; `data` is decoded when needed."""

    number: int
    key: bytes
    data: Any


def row_key(data: bytes) -> bytes:
    """Return a digest of a row's own bytes. It is compared with that of one row, so that eight bytes are enough."""
    return blake2b(data, digest_size=8).digest()


def id_digest(id: Id) -> bytes:
    """Return the digest of an id. 7 and "7" are the same id."""
    return blake2b(str(id).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def line_digest(number: int) -> bytes:
    """Return what stands for the id of a line that has none, because it cannot be read."""
    return blake2b(b"\0line %d" % number, digest_size=16).digest()


def check_id(value: Any) -> None:
    """Raise `RowFault` for an id that is neither a text nor a whole number."""
    if value is not None and type(value) not in (str, int):
        raise RowFault(f"id is {json_kind(value)}; a text or a whole number is expected")
    if value == "":
        raise RowFault("id is empty")


def json_kind(value: Any) -> str:
    """Return the kind of a JSON value in words."""
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")
