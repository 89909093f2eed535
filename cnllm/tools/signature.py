"""Turn a function's signature into a JSON Schema, and JSON into the function's Python values.

pydantic does both: it knows all common annotations (dataclasses, TypedDicts, enums, unions, dates, its own models), and
builds the values that it describes. It is imported with the first function, not before.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, get_args, get_origin

import msgspec
from msgspec import Struct
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from cnllm.schemas.adapt import make_strict, remove_nulls
from cnllm.schemas.python_types import inline_references, is_json, readable_type, remove_odd_defaults, remove_titles
from cnllm.types import checks

__all__ = ["Signature", "docstring_summary", "function_name", "parse_docstring", "signature"]

Function = Callable[..., Any]


class Signature(Struct, frozen=True):
    """The parameters of a function. `schema` describes them to a model, `strict` does so for strict mode."""

    schema: dict[str, Any]
    strict: dict[str, Any]
    convert: Callable[[dict[str, Any]], dict[str, Any]]

    def bind(self, arguments: dict[str, Any], *, strict: bool) -> dict[str, Any]:
        """Build the arguments of the function. Raise `ValueError` where they do not fit."""
        return self.convert(remove_nulls(arguments, self.schema) if strict else arguments)


def function_name(function: Function) -> str:
    """Return a function's name as a tool name. Raise `TypeError` where it has none."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__name__", None) or type(inner).__name__
    if not name.replace("_", "a").isalnum():
        raise TypeError(f"{name} is not a valid tool name; set one with tool(function, name=…)")
    return str(name)


def docstring_summary(function: Function) -> str | None:
    """Return the text of a docstring before its parameters."""
    return parse_docstring(_doc(function)).text or None


def _doc(function: Function) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    is_function = hasattr(inner, "__name__")  # for a callable instance, read the docstring of `__call__`
    return inspect.getdoc(inner if is_function else type(inner).__call__) or ""


def signature(function: Function) -> Signature:
    """Return the signature of a function. Raise `TypeError`, naming the parameter, where no JSON Schema exists."""
    try:
        return _cached(function)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _read(function)


def _read(function: Function) -> Signature:
    parameters = _parameters(function)
    descriptions = parse_docstring(_doc(function)).parameters
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        try:
            fields[name] = _field(parameter, descriptions.get(name))
        except Exception as error:  # any error of an annotation that is not a type
            kind_name = checks.kind_of(parameter.annotation)
            raise TypeError(
                f"{_label(function)}: the parameter {name!r} is annotated with {kind_name}, which is not a type"
            ) from error
    make: Any = TypedDict
    kind = make("Arguments", fields)
    kind.__module__ = getattr(function, "__module__", __name__)  # pydantic looks up forward references there
    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter(kind)
        schema = adapter.json_schema()
    except Exception as error:
        raise _unsupported_error(function, fields, error) from error
    schema = inline_references(remove_odd_defaults(remove_titles(schema)))
    # validate JSON text: there a date is a string, also in a strict model
    return Signature(schema, make_strict(schema), lambda arguments: adapter.validate_json(_encode_arguments(arguments)))


def _encode_arguments(arguments: dict[str, Any]) -> str:
    """Return the arguments as JSON text. Raise `TypeError` or `ValueError` for a value that JSON cannot hold."""
    try:
        return json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):
        checks.check_json_value("arguments", arguments)
        return msgspec.json.encode(arguments).decode()


_cached = functools.lru_cache(maxsize=256)(_read)


def _parameters(function: Function) -> dict[str, inspect.Parameter]:
    """Return the parameters that a model may set."""
    try:
        function_signature = _signature_of(function)
    except ValueError as error:
        raise TypeError(f"{_label(function)}: its parameters cannot be read; pass a Tool with parameters") from error
    preset = function.keywords if isinstance(function, functools.partial) else {}
    parameters = {name: parameter for name, parameter in function_signature.parameters.items() if name not in preset}
    namespace = _namespace(function)
    for number, (name, parameter) in enumerate(list(parameters.items())):
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
            raise TypeError(
                f"{_label(function)}: the parameter {text!r} cannot be offered: a model names its arguments"
            )
        if isinstance(parameter.default, FieldInfo):
            raise TypeError(
                f"{_label(function)}: the parameter {name!r} has a Field as its default; use Annotated for it"
            )
        if number == 0 and name in ("self", "cls") and parameter.annotation is parameter.empty:
            raise TypeError(f"{_label(function)}: the parameter {name!r} is the method's own; use the bound method")
        text = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
        if isinstance(text, str):
            parameters[name] = parameter.replace(annotation=_evaluate(function, name, text, namespace))
    return parameters


def _signature_of(function: Function) -> inspect.Signature:
    """Return the signature of a function.

    From Python 3.14 on, annotations are evaluated when they are read. What they do not find is then left as text, as
    with `from __future__ import annotations`: the one of the return value need not exist.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _namespace(function: Function) -> dict[str, Any]:
    """Return the namespace of a function's annotations that are text."""
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    namespace = getattr(inner, "__globals__", None) or getattr(type(inner).__call__, "__globals__", None)
    return namespace or vars(sys.modules.get(getattr(inner, "__module__", ""), sys))


def _evaluate(function: Function, name: str, annotation: str, namespace: dict[str, Any]) -> Any:
    """Evaluate an annotation that is text. Return annotations are not evaluated."""
    try:
        return eval(annotation, namespace)
    except NameError as error:
        label = f"{_label(function)}: the parameter {name!r}"
        raise TypeError(f"{label} refers to {error.name}, which its module does not define") from error
    except Exception as error:
        raise TypeError(f"{_label(function)}: the parameter {name!r} has an invalid annotation: {error}") from error


def _field(parameter: inspect.Parameter, description: str | None) -> Any:
    """Return a parameter as a field of a TypedDict, with its description and its default."""
    kind: Any = Any if parameter.annotation is parameter.empty else readable_type(parameter.annotation)
    metadata = getattr(kind, "__metadata__", ())
    texts = [text for text in metadata if isinstance(text, str)]
    has_description = any(getattr(item, "description", None) for item in metadata)  # of a pydantic Field
    default = {} if parameter.default is parameter.empty else _default(parameter.default)
    extra: dict[str, Any] = {"json_schema_extra": default} if default else {}
    if texts or not has_description:
        extra["description"] = texts[-1] if texts else description
    annotated: Any = Annotated  # mypy would take a variable between the brackets for a type
    inner = annotated[kind, Field(**extra)]
    return inner if parameter.default is parameter.empty else NotRequired[inner]


def _default(value: Any) -> dict[str, Any]:
    """Return the schema's default keyword, where JSON can hold the value."""
    from pydantic_core import to_jsonable_python

    try:
        plain = to_jsonable_python(value)
    except Exception:  # noqa: BLE001  bytes that are no text, or any error of a caller's class
        return {}
    return {"default": plain} if is_json(plain) else {}


def _unsupported_error(function: Function, fields: dict[str, Any], error: Exception) -> TypeError:
    """Return the error that names the parameter without a JSON Schema."""
    for name, kind in fields.items():
        try:
            TypeAdapter(get_args(kind)[0] if get_origin(kind) is NotRequired else kind).json_schema()
        except Exception as parameter_error:  # noqa: BLE001  an annotation may raise any error
            return TypeError(
                f"{_label(function)}: the parameter {name!r} has no JSON Schema: {_first_line(parameter_error)}"
            )
    return TypeError(f"{_label(function)}: it has no JSON Schema: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _label(function: Function) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


# ── docstrings, in the styles of Google, NumPy and Sphinx ────────────────────


_HEAD = re.compile(
    r"^(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Returns?|Yields?|Raises?|"
    r"Examples?|Notes?|Warns|Warnings?|Attributes|References|See Also)\s*(:?)\s*$"
)
_OF_PARAMETERS = re.compile("Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?!:)\s*(.*)$")
_NUMPY = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:")


class Docstring(Struct, frozen=True):
    """`text`: the text before the first section. `parameters`: name → description."""

    text: str
    parameters: dict[str, str]


def parse_docstring(doc: str) -> Docstring:
    """Parse a docstring with clean indentation (`inspect.getdoc`)."""
    lines = doc.splitlines()
    first_section = next(
        (index for index in range(len(lines)) if _head(lines, index) or _FIELD.match(lines[index])), len(lines)
    )
    parameters: dict[str, str] = {}
    index = first_section
    while index < len(lines):
        head = _head(lines, index)
        end = next((n for n in range(index + 1, len(lines)) if _head(lines, n) or _FIELD.match(lines[n])), len(lines))
        if head and _OF_PARAMETERS.fullmatch(head[1]):
            numpy = not head[2]
            parameters |= _entries(lines[index + (2 if numpy else 1) : end], _NUMPY if numpy else _GOOGLE)
        elif match := _SPHINX.match(lines[index]):
            parameters[match[1]] = _join_lines([match[2], *lines[index + 1 : end]])
        index = end
    return Docstring(
        "\n".join(lines[:first_section]).strip(), {name: text for name, text in parameters.items() if text}
    )


def _head(lines: list[str], index: int) -> re.Match[str] | None:
    """Match a section's heading: with a colon, or underlined."""
    match = _HEAD.match(lines[index])
    if match is None or match[2]:
        return match
    next_line = lines[index + 1].strip() if index + 1 < len(lines) else ""
    return match if len(next_line) > 2 and set(next_line) == {"-"} else None


def _entries(lines: list[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Return a section's parameters. Each begins at the left margin, and indented lines continue it."""
    descriptions: dict[str, list[str]] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        match = None if line[:1].isspace() else entry.match(line)
        if match:
            names = [name.strip(" *") for name in match[1].split(",")]
            descriptions |= {name: [match[2] if entry is _GOOGLE else ""] for name in names}
        elif line.strip() or names:
            for name in names:
                descriptions[name].append(line)
    return {name: _join_lines(description) for name, description in descriptions.items()}


def _join_lines(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
