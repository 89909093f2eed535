"""Use a type of Python as the schema of an answer: a dataclass, a TypedDict, an enum, `list[str]`, a union.

pydantic reads the type and builds its values. It is imported with the first such schema, not before. Before Python 3.12
it demands the TypedDict of `typing_extensions`, which replaces that of `typing` here.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, Required

from typing_extensions import TypedDict

__all__ = ["PythonType", "is_python_type", "python_type", "readable_type"]


class PythonType:
    """A type with the two methods of a pydantic model that an answer needs."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(readable_type(kind))
        self.__name__ = str(kind.__name__) if isinstance(kind, type) else "answer"
        self.schema: dict[str, Any] = self._adapter.json_schema()

    def model_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type."""
        return self.schema

    def model_validate_json(self, text: str) -> Any:
        """Return the value of a JSON text. Raise pydantic's `ValidationError`, which is a `ValueError`."""
        return self._adapter.validate_json(text)


def is_python_type(value: Any) -> bool:
    """Whether a value is a type: a class, or a form such as `list[str]`, `int | None` or `Literal["a"]`."""
    return isinstance(value, type | types.UnionType) or typing.get_origin(value) is not None


def python_type(kind: Any) -> PythonType:
    """Return a type as a schema. Raise any error of pydantic's for one without a JSON Schema."""
    try:
        hash(kind)
    except TypeError:  # `Annotated` with a list, for example
        return PythonType(kind)
    return _cached(kind)


_cached = functools.lru_cache(maxsize=256)(PythonType)


def readable_type(kind: Any) -> Any:
    """Return a type that pydantic can read: the same one, or one with other TypedDicts in it."""
    return kind if sys.version_info >= (3, 12) or not _holds_typed_dict(kind) else _replace(kind)


def _holds_typed_dict(kind: Any) -> bool:
    return _is_old(kind) or any(_holds_typed_dict(inner) for inner in typing.get_args(kind))


def _is_old(kind: Any) -> bool:
    return typing.is_typeddict(kind) and type(kind).__module__ == "typing"


def _replace(kind: Any, seen: tuple[Any, ...] = ()) -> Any:
    """Return a type with each TypedDict in it replaced; one that holds itself stays as it is."""
    if kind in seen:
        return kind
    if _is_old(kind):
        make: Any = TypedDict
        new_type = make(kind.__name__, dict(_fields(kind, (*seen, kind))))
        new_type.__doc__, new_type.__module__ = kind.__doc__, kind.__module__
        return new_type
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is None or origin is typing.Literal or not arguments:
        return kind
    if origin is Annotated:
        annotated: Any = Annotated  # mypy would take a call between the brackets for a type
        return annotated[_replace(arguments[0], seen), *arguments[1:]]
    inner = tuple(_replace(argument, seen) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, inner)
    return origin[inner]


def _fields(kind: Any, seen: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a TypedDict, with their types."""
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        marker = typing.get_origin(hint)
        inner = _replace(typing.get_args(hint)[0] if marker in (Required, NotRequired) else hint, seen)
        required = marker is Required or (marker is not NotRequired and name in kind.__required_keys__)
        yield name, inner if required else NotRequired[inner]
