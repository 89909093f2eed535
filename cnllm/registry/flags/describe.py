"""How a flag is declared: what it does, why it exists, and what else is to be known of it."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from msgspec import Meta, Struct

__all__ = ["ANY", "Base", "about", "flag", "inner_table"]

ANY = "*"
"""Stands for every value in the reasons of a flag."""


class Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the registry: every key is optional, unknown keys are refused."""


def flag(
    does: str,
    why: str = "",
    *,
    formerly: str | None = None,
    every_wire: bool = False,
    reasons: Mapping[str, str] | None = None,
) -> Meta:
    """Describe a flag.

    `does`: what it says or does. `why`: the behaviour of endpoints that makes it necessary. `formerly`: the name that
    it had, for the hint about a file that still says it. `every_wire`: it is true of the endpoint and its model
    whichever wire protocol is spoken. `reasons`: why there is a value that fewer than two tables of the built-in file
    set.
    """
    extra = {"does": does, "why": why, "formerly": formerly, "every_wire": every_wire, "reasons": dict(reasons or {})}
    return Meta(description=f"{does} {why}".rstrip(), extra=extra)


def about(kind: Any) -> Mapping[str, Any]:
    """Return what was declared of a flag of this type; empty for what is no flag."""
    if typing.get_origin(kind) is not typing.Annotated:
        return {}
    return getattr(kind.__metadata__[-1], "extra", None) or {}


def inner_table(kind: Any) -> type[Struct] | None:
    """Return the table that a flag of this type is, or None."""
    for one in typing.get_args(typing.get_args(kind)[0]) if typing.get_origin(kind) is typing.Annotated else ():
        if isinstance(one, type) and issubclass(one, Struct):
            return one
    return None
