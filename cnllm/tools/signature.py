"""A function's signature as a JSON Schema, and as what makes Python values of JSON.

pydantic does both: it knows every annotation that people write (dataclasses, TypedDicts, enums, unions, dates, its own
models), and what it describes it also builds. It is imported with the first function, not before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_origin

from msgspec import Struct

from cnllm.tools import docstring
from cnllm.tools.schema import inlined, strictened, untitled, without_nulls

__all__ = ["Signature", "described", "named", "signature"]

Function = Callable[..., Any]


class Signature(Struct, frozen=True):
    """What a function takes. `schema` says it to a model, `strict` in the words of strict mode."""

    schema: dict[str, Any]
    strict: dict[str, Any]
    convert: Callable[[dict[str, Any]], dict[str, Any]]

    def bound(self, arguments: dict[str, Any], strict: bool) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ValueError where they do not fit."""
        return self.convert(without_nulls(arguments, self.schema) if strict else arguments)


def named(function: Function) -> str:
    """A function's name, as a tool's. Raises `TypeError` where it has none."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__name__", None) or type(inner).__name__
    if not name.replace("_", "a").isalnum():
        raise TypeError(f"{name} is no name for a tool: give one, tool(function, name=…)")
    return str(name)


def described(function: Function) -> str | None:
    """What a docstring says before it comes to the parameters."""
    return docstring.parsed(_doc(function)).text or None


def _doc(function: Function) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    own = hasattr(inner, "__name__")  # of an instance that can be called, the method says what it does
    return inspect.getdoc(inner if own else type(inner).__call__) or ""


def signature(function: Function) -> Signature:
    """What a function takes. Raises `TypeError`, naming the parameter, for what no JSON Schema can say."""
    try:
        return _cached(function)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _read(function)


def _read(function: Function) -> Signature:
    from pydantic import ConfigDict, TypeAdapter
    from typing_extensions import TypedDict

    taken = _taken(function)
    said = docstring.parsed(_doc(function)).parameters
    fields = {name: _field(parameter, said.get(name)) for name, parameter in taken.items()}
    make: Any = TypedDict
    kind = make("Arguments", fields)
    kind.__module__ = getattr(function, "__module__", __name__)  # where forward references are looked up
    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter(kind)
        schema = adapter.json_schema()
    except Exception as error:
        raise _unsupported(function, fields, error) from error
    schema = inlined(untitled(schema))
    return Signature(schema, strictened(schema), adapter.validate_python)


_cached = functools.lru_cache(maxsize=256)(_read)


def _taken(function: Function) -> dict[str, inspect.Parameter]:
    """The parameters that a model may name."""
    try:
        found = inspect.signature(function, eval_str=True)
    except NameError as error:
        written = inspect.signature(function).parameters.values()
        names = [p.name for p in written if str(error.name) in str(p.annotation)]
        where = f"the parameter {names[0]!r}" if names else "an annotation"
        raise TypeError(f"{_of(function)}: {where} speaks of {error.name}, which is not known in its module") from error
    except ValueError as error:
        raise TypeError(f"{_of(function)}: its parameters cannot be read; give a Tool with parameters") from error
    filled = function.keywords if isinstance(function, functools.partial) else {}
    taken = {name: one for name, one in found.parameters.items() if name not in filled}
    for number, (name, one) in enumerate(taken.items()):
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
            raise TypeError(
                f"{_of(function)}: the parameter '{stars}{name}' cannot be offered: a model gives arguments by name"
            )
        if number == 0 and name in ("self", "cls") and one.annotation is one.empty:
            raise TypeError(f"{_of(function)}: the parameter {name!r} is the method's own; make the tool of the bound one")
    return taken


def _field(one: inspect.Parameter, said: str | None) -> Any:
    """A parameter as a field of a TypedDict, with its description and its default."""
    from pydantic import Field
    from typing_extensions import NotRequired

    kind = Any if one.annotation is one.empty else one.annotation
    given = [text for text in getattr(kind, "__metadata__", ()) if isinstance(text, str)]
    beside: dict[str, Any] = {}
    if one.default is not one.empty:
        beside |= _default(one.default)
    field = Field(description=given[-1] if given else said, json_schema_extra=beside or None)
    inner = Annotated[kind, field]
    return inner if one.default is one.empty else NotRequired[inner]


def _default(value: Any) -> dict[str, Any]:
    """A default as the schema says it, where JSON can."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return {"default": to_jsonable_python(value)}
    except PydanticSerializationError:
        return {}


def _unsupported(function: Function, fields: dict[str, Any], error: Exception) -> TypeError:
    """Which parameter it is that cannot be said."""
    from pydantic import TypeAdapter

    for name, kind in fields.items():
        try:
            TypeAdapter(getattr(kind, "__args__", (kind,))[0] if _optional(kind) else kind).json_schema()
        except Exception as own:
            return TypeError(f"{_of(function)}: the parameter {name!r} has no JSON Schema: {_first_line(own)}")
    return TypeError(f"{_of(function)}: it has no JSON Schema: {_first_line(error)}")


def _optional(kind: Any) -> bool:
    from typing_extensions import NotRequired

    return get_origin(kind) is NotRequired


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _of(function: Function) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
