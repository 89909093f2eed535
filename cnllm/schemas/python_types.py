"""Use a type of Python as a schema: a dataclass, a TypedDict, an enum, `list[str]`, a union.

pydantic reads the type and builds its values. It is imported with the first such schema, not before. Before Python 3.12
it demands the TypedDict of `typing_extensions`, which replaces that of `typing` here. The schemas that pydantic writes
are shortened, for a model to read.
"""

from __future__ import annotations

import functools
import json
import operator
import sys
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, Required

from typing_extensions import TypedDict

from cnllm.schemas.subschemas import map_children, schemas_in

__all__ = [
    "PythonType",
    "inline_references",
    "is_json",
    "is_python_type",
    "python_type",
    "readable_type",
    "remove_odd_defaults",
    "remove_titles",
]

Schema = dict[str, Any]
_PREFIX = "#/$defs/"
_MAX_EXPANSIONS = 200  # references replaced in full; further ones stay references
_MAX_NODES = 20_000  # schemas in the replaced references


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


# ── the schemas that pydantic writes ──────────────────────────────────────────


def remove_titles(node: Any) -> Any:
    """Return a schema without titles, which repeat the names, and without `discriminator`.

    `discriminator` is no keyword of JSON Schema, and it names definitions.
    """
    if not isinstance(node, dict):
        return node
    return {
        key: value for key, value in map_children(node, remove_titles).items() if key not in ("title", "discriminator")
    }


def remove_odd_defaults(node: Any) -> Any:
    """Return a schema without the defaults of Python that JSON cannot hold, such as NaN."""
    if not isinstance(node, dict):
        return node
    inner = map_children(node, remove_odd_defaults)
    return {key: value for key, value in inner.items() if key != "default" or is_json(value)}


def is_json(value: Any) -> bool:
    """Whether JSON can hold a value exactly."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def inline_references(schema: Schema) -> Schema:
    """Return a schema with its references replaced by their targets.

    Recursive references stay, and so do those beyond the limits. Many endpoints do not support `$defs`, and models
    read a schema without jumps better.
    """
    defs: Schema = schema.get("$defs", {})
    expansions_left, nodes_left = _MAX_EXPANSIONS, _MAX_NODES
    contents = {name: list(schemas_in(node)) for name, node in defs.items()}
    references = {name: {_definition(one) for one in nodes} & defs.keys() for name, nodes in contents.items()}
    remaining: set[str] = set()

    def walk(node: Any, inside: frozenset[str]) -> Any:
        """Return a node with its references replaced."""
        nonlocal expansions_left, nodes_left
        if not isinstance(node, dict):
            return node
        name = _definition(node)
        if name not in defs:
            return map_children(node, lambda child: walk(child, inside))
        if name in inside or name in self_referring or expansions_left <= 0 or nodes_left < len(contents[name]):
            remaining.add(name)
            return node
        expansions_left -= 1
        nodes_left -= len(contents[name])
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return {**walk(defs[name], inside | {name}), **siblings}

    self_referring = {name for name in defs if name in _reachable(references, name)}
    out: Schema = walk({key: value for key, value in schema.items() if key != "$defs"}, frozenset())
    definitions: Schema = {}
    while missing := sorted(remaining - definitions.keys()):
        for name in missing:
            definitions[name] = map_children(defs[name], lambda child: walk(child, frozenset()))
    return {**out, "$defs": {name: definitions[name] for name in sorted(definitions)}} if definitions else out


def _definition(node: Schema) -> str:
    """Return the name of the definition that a schema refers to."""
    return str(node.get("$ref", "")).removeprefix(_PREFIX)


def _reachable(references: dict[str, set[str]], start: str) -> set[str]:
    """Return the definitions that one refers to, directly or through others."""
    names: set[str] = set()
    queue = [start]
    while queue:
        new_names = references[queue.pop()] - names
        names |= new_names
        queue += new_names
    return names
