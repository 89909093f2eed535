"""Read and write the field of a part that clients of a protocol send back unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from cnllm.types import Part, Seal

__all__ = ["token_reader", "token_writer"]


def token_reader(protocol: str, kinds: Iterable[type], *fields: str) -> Callable[[Part], str | None]:
    """Return a function that reads the token of a part of these kinds, from the first of the fields that has one."""
    carriers = frozenset(kinds)

    def read_token(part: Part) -> str | None:
        """Return the token of a part, or None."""
        seal = part.seal
        if type(part) not in carriers or seal is None or seal.protocol != protocol or not isinstance(seal.data, dict):
            return None
        return next((value for field in fields if isinstance(value := seal.data.get(field), str) and value), None)

    return read_token


def token_writer(
    protocol: str, kinds: Iterable[type], field: str, base: Callable[[Any], Mapping[str, Any]] | None = None
) -> Callable[[Part, str], Part]:
    """Return a function that writes a token into a field of a part of these kinds.

    The part loses its own seal, which belongs to somebody else. `base` returns the other data of the new seal.
    """
    carriers = frozenset(kinds)

    def write_token(part: Part, token: str) -> Part:
        """Return the part with the token; the part itself if it has no field for one."""
        if type(part) not in carriers:
            return part
        data = {**(base(part) if base is not None else {}), field: token}
        return replace(part, seal=Seal(protocol, "", "", data))

    return write_token
