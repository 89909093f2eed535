"""A function's signature as a JSON Schema, and as what makes Python values of JSON.

pydantic does both: it knows every annotation that people write (dataclasses, TypedDicts, enums, unions, dates, its own
models), and what it describes it also builds. It is imported with the first function, not before.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, get_args, get_origin

import msgspec
from msgspec import Struct

from cnllm.schemas.simplify import inline_references, make_strict, remove_nulls, remove_titles
from cnllm.tools import docstring
from cnllm.types import checks

__all__ = ["Signature", "docstring_summary", "function_name", "signature"]

Function = Callable[..., Any]


class Signature(Struct, frozen=True):
    """What a function takes. `schema` says it to a model, `strict` in the words of strict mode."""

    schema: dict[str, Any]
    strict: dict[str, Any]
    convert: Callable[[dict[str, Any]], dict[str, Any]]

    def bind(self, arguments: dict[str, Any], strict: bool) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ValueError where they do not fit."""
        return self.convert(remove_nulls(arguments, self.schema) if strict else arguments)


def function_name(function: Function) -> str:
    """A function's name, as a tool's. Raises `TypeError` where it has none."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__name__", None) or type(inner).__name__
    if not name.replace("_", "a").isalnum():
        raise TypeError(f"{name} is no name for a tool: give one, tool(function, name=…)")
    return str(name)


def docstring_summary(function: Function) -> str | None:
    """What a docstring says before it comes to the parameters."""
    return docstring.parse_docstring(_doc(function)).text or None


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
    said = docstring.parse_docstring(_doc(function)).parameters
    fields: dict[str, Any] = {}
    for name, parameter in taken.items():
        try:
            fields[name] = _field(parameter, said.get(name))
        except Exception as error:  # what an annotation raises that is no type
            what = checks.kind_of(parameter.annotation)
            raise TypeError(f"{_of(function)}: the parameter {name!r} is annotated with {what}, no type") from error
    make: Any = TypedDict
    kind = make("Arguments", fields)
    kind.__module__ = getattr(function, "__module__", __name__)  # where forward references are looked up
    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter(kind)
        schema = adapter.json_schema()
    except Exception as error:
        raise _unsupported(function, fields, error) from error
    schema = inline_references(remove_titles(schema))
    # as JSON: a date is a string there, also for a model that is strict
    return Signature(schema, make_strict(schema), lambda given: adapter.validate_json(_written(given)))


def _written(given: dict[str, Any]) -> str:
    """The arguments as JSON text. Raises `TypeError` or `ValueError` for what JSON cannot hold."""
    try:
        return json.dumps(given)
    except (TypeError, ValueError, RecursionError):
        checks.check_json_value("arguments", given)
        return msgspec.json.encode(given).decode()


_cached = functools.lru_cache(maxsize=256)(_read)


def _taken(function: Function) -> dict[str, inspect.Parameter]:
    """The parameters that a model may name."""
    try:
        found = inspect.signature(function)
    except ValueError as error:
        raise TypeError(f"{_of(function)}: its parameters cannot be read; give a Tool with parameters") from error
    from pydantic.fields import FieldInfo

    filled = function.keywords if isinstance(function, functools.partial) else {}
    taken = {name: one for name, one in found.parameters.items() if name not in filled}
    known = _namespace(function)
    for number, (name, one) in enumerate(list(taken.items())):
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            shown = str(one.replace(annotation=one.empty, default=one.empty))
            raise TypeError(f"{_of(function)}: the parameter {shown!r} cannot be offered: a model names its arguments")
        if isinstance(one.default, FieldInfo):
            raise TypeError(f"{_of(function)}: the parameter {name!r} has a Field as its default; use Annotated for it")
        if number == 0 and name in ("self", "cls") and one.annotation is one.empty:
            raise TypeError(f"{_of(function)}: the parameter {name!r} is the method's own; use the bound method")
        if isinstance(one.annotation, str):
            taken[name] = one.replace(annotation=_evaluated(function, name, one.annotation, known))
    return taken


def _namespace(function: Function) -> dict[str, Any]:
    """Where a function's annotations, written as text, are looked up."""
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    own = getattr(inner, "__globals__", None) or getattr(type(inner).__call__, "__globals__", None)
    return own or vars(sys.modules.get(getattr(inner, "__module__", ""), sys))


def _evaluated(function: Function, name: str, annotation: str, known: dict[str, Any]) -> Any:
    """An annotation that is text. Those of parameters alone are read: what a function returns is no one's business."""
    try:
        return eval(annotation, known)
    except NameError as error:
        where = f"{_of(function)}: the parameter {name!r}"
        raise TypeError(f"{where} speaks of {error.name}, which is not known in its module") from error
    except Exception as error:
        raise TypeError(
            f"{_of(function)}: the parameter {name!r} has an annotation that means nothing: {error}"
        ) from error


def _field(one: inspect.Parameter, said: str | None) -> Any:
    """A parameter as a field of a TypedDict, with its description and its default."""
    from pydantic import Field

    kind: Any = Any if one.annotation is one.empty else one.annotation
    beside = getattr(kind, "__metadata__", ())
    texts = [text for text in beside if isinstance(text, str)]
    own = any(getattr(each, "description", None) for each in beside)  # of a pydantic Field
    default = {} if one.default is one.empty else _default(one.default)
    extra: dict[str, Any] = {"json_schema_extra": default} if default else {}
    field = Field(**extra) if own and not texts else Field(description=texts[-1] if texts else said, **extra)
    inner: Any = Annotated.__class_getitem__((kind, field))  # type: ignore[attr-defined]
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
            TypeAdapter(get_args(kind)[0] if get_origin(kind) is NotRequired else kind).json_schema()
        except Exception as own:  # noqa: BLE001  what an annotation raises is its own business
            return TypeError(f"{_of(function)}: the parameter {name!r} has no JSON Schema: {_first_line(own)}")
    return TypeError(f"{_of(function)}: it has no JSON Schema: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _of(function: Function) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
