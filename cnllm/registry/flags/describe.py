"""Declare flags: the description of a flag, the reason for it, and its metadata."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Meta, Struct

__all__ = ["Base", "about", "flag", "inner_table"]


class Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the registry: every key is optional, unknown keys are refused."""


def flag(
    does: str,
    why: str = "",
    *,
    formerly: str | None = None,
    every_wire: bool = False,
    path: Literal["read", "write"] | None = None,
) -> Meta:
    """Describe a flag.

    `does`: its meaning. `why`: the behaviour of endpoints that makes it necessary. `formerly`: its old name, for the
    hint about a file that still uses it. `every_wire`: whether it holds on every wire protocol of the endpoint.
    `path`: its texts are paths in JSON, at which values are only read, or written or removed, too.
    """
    extra = {"does": does, "why": why, "formerly": formerly, "every_wire": every_wire, "path": path}
    return Meta(description=f"{does} {why}".rstrip(), extra=extra)


def about(kind: Any) -> Mapping[str, Any]:
    """Return the metadata of a flag's type; empty for a type that is not a flag's."""
    if typing.get_origin(kind) is not typing.Annotated:
        return {}
    return getattr(kind.__metadata__[-1], "extra", None) or {}


def inner_table(kind: Any) -> type[Struct] | None:
    """Return the class of the table in a flag's type; None where the flag is no table."""
    for member in typing.get_args(typing.get_args(kind)[0]) if typing.get_origin(kind) is typing.Annotated else ():
        if isinstance(member, type) and issubclass(member, Struct):
            return member
    return None
