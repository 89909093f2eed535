"""Declare flags: what the type of a flag says of it, and the text under it in its class."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields

__all__ = [
    "EVERY_WIRE",
    "READ_PATH",
    "WRITE_PATH",
    "Base",
    "FlagText",
    "about",
    "flag_texts",
    "formerly",
    "inner_table",
    "table_text",
    "walk_flags",
]

EVERY_WIRE = Meta(extra={"every_wire": True})
"""Marks a flag that holds on every wire protocol of the endpoint."""

READ_PATH = Meta(extra={"path": "read"})
"""Marks a flag whose texts are paths in JSON, at which values are only read."""

WRITE_PATH = Meta(extra={"path": "write"})
"""Marks a flag whose texts are paths in JSON, at which values are written or removed, too."""

_REASON = re.compile(r"\s+Why: ")


def formerly(name: str) -> Meta:
    """Mark a flag that had another name, for the hint about a file that still uses it."""
    return Meta(extra={"formerly": name})


class Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the registry: every key is optional, unknown keys are refused."""


class FlagText(NamedTuple):
    """The meaning of a flag, and the behaviour of endpoints that makes it necessary; "" where nothing says it."""

    does: str
    why: str


@cache
def flag_texts(table: type[Struct]) -> dict[str, FlagText]:
    """Return the texts of a table's flags, by their names in a file.

    A text stands under the field in the class, or under the last of several fields. Behind "Why:" follows the reason;
    that in the text of the class is the reason for each of its flags that gives none.
    """
    texts: dict[str, FlagText] = {}
    for owner in [one for one in reversed(table.__mro__) if issubclass(one, Base) and one is not Base]:
        names: list[str] = []
        shared = table_text(owner).why
        for node in _classes(owner.__module__)[owner.__name__].body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names.append(name)
                case ast.Expr(value=ast.Constant(value=str(text))):
                    does, why = _describe(" ".join(text.split()))
                    texts |= dict.fromkeys(names, FlagText(does, why or shared))
                    names = []
    return {field.encode_name: texts[field.name] for field in fields(table) if field.name in texts}


def table_text(table: type[Struct]) -> FlagText:
    """Return the text of a table, and the reason for those of its flags that give none."""
    return _describe(inspect.cleandoc(table.__doc__ or ""))


def _describe(text: str) -> FlagText:
    """Return the two halves of a text."""
    does, *reason = _REASON.split(text, maxsplit=1)
    return FlagText(does, " ".join(" ".join(reason).split()))


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module's source."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def walk_flags(table: type[Struct], prefix: str = "") -> Iterator[tuple[str, type[Struct], FieldInfo]]:
    """Yield (dotted name, table, field) of every flag in a table and in the tables inside of it, in their order."""
    for field in fields(table):
        name = f"{prefix}{field.encode_name}"
        yield name, table, field
        if (inner := inner_table(field.type)) is not None:
            yield from walk_flags(inner, f"{name}.")


def about(kind: Any) -> Mapping[str, Any]:
    """Return what the marks of a flag's type say; empty for a type without one."""
    metas = kind.__metadata__ if typing.get_origin(kind) is typing.Annotated else ()
    return {key: value for meta in metas for key, value in (meta.extra or {}).items()}


def inner_table(kind: Any) -> type[Struct] | None:
    """Return the class of the table in a flag's type; None where the flag is no table."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    members = (one for one in typing.get_args(kind) or (kind,) if isinstance(one, type) and issubclass(one, Struct))
    return next(members, None)
