"""Replace `typing.TypedDict` by the one of `typing_extensions`, which pydantic demands before Python 3.12."""

from __future__ import annotations

import functools
import operator
import sys
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, Required

__all__ = ["readable_type"]


def readable_type(kind: Any) -> Any:
    """Return a type that pydantic can read: the same one, or one with other TypedDicts in it."""
    return kind if sys.version_info >= (3, 12) or not _holds_typed_dict(kind) else _replaced(kind)


def _holds_typed_dict(kind: Any) -> bool:
    return _is_old(kind) or any(_holds_typed_dict(inner) for inner in typing.get_args(kind))


def _is_old(kind: Any) -> bool:
    return typing.is_typeddict(kind) and type(kind).__module__ == "typing"


def _replaced(kind: Any, seen: tuple[Any, ...] = ()) -> Any:
    """Return a type with each TypedDict in it replaced; one that holds itself stays as it is."""
    if kind in seen:
        return kind
    if _is_old(kind):
        from typing_extensions import TypedDict

        make: Any = TypedDict
        made = make(kind.__name__, dict(_fields(kind, (*seen, kind))))
        made.__doc__, made.__module__ = kind.__doc__, kind.__module__
        return made
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is None or origin is typing.Literal or not arguments:
        return kind
    if origin is Annotated:
        annotated: Any = Annotated  # mypy would take a call between the brackets for a type
        return annotated[_replaced(arguments[0], seen), *arguments[1:]]
    inner = tuple(_replaced(argument, seen) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, inner)
    return origin[inner]


def _fields(kind: Any, seen: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a TypedDict, with their types."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        marker = typing.get_origin(hint)
        inner = _replaced(typing.get_args(hint)[0] if marker in (Required, NotRequired) else hint, seen)
        required = marker is Required or (marker is not NotRequired and name in kind.__required_keys__)
        yield name, inner if required else NotRequired[inner]
