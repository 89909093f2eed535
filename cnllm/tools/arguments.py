"""Check the arguments of a call against the schema, build the function's arguments, and turn its result into text."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from cnllm.schemas.coerce import named_types
from cnllm.schemas.validate import Undecided, undecided_patterns, validation_errors
from cnllm.tools.values import Tool
from cnllm.types import ToolCall, checks
from cnllm.types.checks import kind_of
from cnllm.types.lenient_json import may_be_encoded

if TYPE_CHECKING:
    from cnllm.tools.signature import Signature

__all__ = [
    "bound",
    "decode_encoded_arguments",
    "decode_values",
    "problem_with",
    "shown",
    "undecided_parameters",
    "unwrap_object",
]


_MAX_FAULTS = 5  # number of errors in one message
_MAX_CHARS = 400  # characters of a value or a schema in a message

_BAD = (msgspec.DecodeError, RecursionError)


def problem_with(tool: Tool, call: ToolCall, *, built: bool = True) -> str | None:
    """Describe the error of a call for the model that made it. Return None where the call can be executed.

    The text names each place, its error and its schema, so that the model can correct it. Raise `ValueError` for a tool
    whose parameters are not a JSON Schema. With `built=False` only the schema is checked: to build a caller's class may
    read the disk, which must not happen for a call without approval.
    """
    _require_tool(tool)
    _require_call(call)
    head = f"The call of {tool.name} was not executed:"
    if call.arguments is None:
        schema = f" The schema: {_schema_text(tool.parameters)}" if tool.parameters else ""
        return f"{head} {call.problem or 'it has no arguments'}. Its arguments must be one JSON object.{schema}"
    arguments = decode_values(call.arguments, tool.parameters)
    faults = _schema_faults(tool, arguments) or (_build_faults(tool, arguments) if built else [])
    if not faults:
        return None
    lines = [f"- {fault}" for fault in faults[:_MAX_FAULTS]]
    if len(faults) > _MAX_FAULTS:
        lines.append(f"- and {len(faults) - _MAX_FAULTS} more")
    return "\n".join([f"{head} its arguments do not fit.", *lines, "Correct them and call it again."])


def decode_encoded_arguments(tool: Tool, call: ToolCall) -> ToolCall:
    """Return the call with doubly encoded arguments decoded, where the schema allows nothing else. `raw` stays."""
    _require_tool(tool)
    _require_call(call)
    arguments = unwrap_object(call.raw) if call.arguments is None else call.arguments
    if arguments is None:
        return call
    arguments = decode_values(arguments, tool.parameters)
    return call if arguments is call.arguments else replace(call, arguments=arguments, problem=None)


def bound(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Build the arguments of the tool's function. Arguments that are absent stay with their defaults.

    Dataclasses, enums, dates, pydantic models and the like are built from their JSON. A function whose annotations
    cannot be read gets the JSON values unchanged. Raise `ValueError` where a value cannot be built (`problem_with`
    reports that before).
    """
    _require_tool(tool)
    if type(arguments) is not dict:
        arguments = checks.as_dict("arguments", arguments)
    arguments = decode_values(arguments, tool.parameters)
    parameters = _signature(tool)
    if parameters is None:
        return copy.deepcopy(arguments)  # the function may change them, and the call is a part of the history
    return parameters.bind(arguments, strict=bool(tool.strict))


def undecided_parameters(tool: Tool) -> tuple[str, ...]:
    """Return the patterns of a tool's schema that no call is checked for, each with the reason.

    Raise `ValueError` for a tool whose parameters are not a JSON Schema, before a model sees it.
    """
    _require_tool(tool)
    parameters = tool.parameters
    own = None if parameters is None else _signature(tool)
    if parameters is None or (own is not None and (parameters is own.schema or parameters is own.strict)):
        return ()
    try:
        return undecided_patterns(parameters)
    except Exception as error:
        raise _schema_error(tool, error) from error


def _require_tool(tool: Tool) -> None:
    """Raise `TypeError` for a value that is not a valid tool."""
    if type(tool) is not Tool:
        raise checks.wrong_type("tool", tool, "a cnllm.Tool")
    if tool.parameters is not None and type(tool.parameters) is not dict:
        raise checks.wrong_type("tool.parameters", tool.parameters, "a JSON Schema (dict) or None")
    if tool.function is not None and not callable(tool.function):
        raise checks.wrong_type("tool.function", tool.function, "a function or None")


def _require_call(call: ToolCall) -> None:
    """Raise `TypeError` for a value that is not a valid call."""
    if type(call) is not ToolCall:
        raise checks.wrong_type("call", call, "a cnllm.ToolCall")
    if call.arguments is not None and type(call.arguments) is not dict:
        raise checks.wrong_type("call.arguments", call.arguments, "a dict or None")
    if type(call.raw) is not str:
        raise checks.wrong_type("call.raw", call.raw, "a string")


def _signature(tool: Tool) -> Signature | None:
    """Return the signature of a tool's function; None without a function whose annotations can be read."""
    if tool.function is None:
        return None
    from cnllm.tools.signature import signature

    try:
        return signature(tool.function)
    except TypeError:
        return None


def _schema_error(tool: Tool, error: Exception) -> ValueError:
    return ValueError(f"the parameters of {tool.name} are not a JSON Schema that can be checked: {error}")


def _schema_faults(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """Return the errors of the schema check, in the order of their places."""
    if tool.parameters is None:
        return []
    try:
        errors = validation_errors(arguments, tool.parameters)
    except Undecided as error:  # an unchecked call is not executed
        return [f"arguments: they cannot be checked: {error}. Send fewer or simpler values."]
    except Exception as error:
        raise _schema_error(tool, error) from error
    return [_fault_text(error) for error in sorted(errors, key=lambda error: [str(p) for p in error.absolute_path])]


def _fault_text(error: Any) -> str:
    """Describe one schema error: its place, its message, and the schema there."""
    schema = error.schema
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        schema = {name: properties.get(name, {}) for name in missing if error.message.startswith(repr(name))}
    explanation = f"The schema says: {_schema_text(schema)}"
    if error.validator == "additionalProperties":
        explanation = f"It takes {', '.join(properties) or 'nothing'}."
    return f"{_place(error.absolute_path)}: {_short(error.message)}. {explanation}"


def _build_faults(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """Return the errors of arguments that fit the schema but cannot be built, such as the 31st of February."""
    try:
        bound(tool, arguments)
    except Exception as error:  # noqa: BLE001  a caller's class may raise any error
        details = getattr(error, "errors", None)  # pydantic has one for each place
        if callable(details):
            return [f"{_place(item['loc'])}: {_short(item['msg'])}" for item in details(include_url=False)]
        return [f"arguments: {_short(str(error))}"]
    return []


def _place(path: Iterable[Any]) -> str:
    return "arguments" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _schema_text(schema: Any) -> str:
    return _short(msgspec.json.encode(schema).decode())


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


# ── results ──────────────────────────────────────────────────────────────────


def shown(value: Any) -> str:
    """Return a result as text: a string unchanged, everything else as JSON.

    None is `null`. Dataclasses, pydantic models, msgspec structs, enums, dates and their contents become JSON;
    sequences and iterators become lists, and sets sorted lists. Bytes are text where they are UTF-8, base64 otherwise.
    A value without JSON becomes its `str()`.
    """
    if isinstance(value, Enum):
        return shown(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=shown)

    def hook(inner: Any) -> Any:
        plain = _convert(inner)
        if inner is value and isinstance(plain, str):
            raise TypeError("there is no JSON for it")
        return plain

    try:
        return msgspec.json.encode(value, enc_hook=hook).decode()
    except Exception:  # noqa: BLE001  a value that JSON cannot hold, or any error of a caller's object
        return _text(value)


def _text(value: Any) -> str:
    """Return `str(value)`. Raise `ValueError` for a value that has no text either."""
    try:
        return str(value)
    except Exception as error:
        raise ValueError(
            f"value is {kind_of(value)}, which has neither JSON nor text ({type(error).__name__})"
        ) from error


def _convert(value: Any) -> Any:
    """Convert a value that msgspec does not know into one that it does."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    # not every iterable: iterating a table with named columns would yield only the names
    return list(value) if isinstance(value, (Iterator, Sequence, Set, ValuesView)) else str(value)


# ── arguments that were encoded twice ────────────────────────────────────────


def unwrap_object(raw: str) -> dict[str, Any] | None:
    """Return the object in a JSON string, for arguments that were encoded twice as a whole."""
    try:
        text = msgspec.json.decode(raw)
        value = msgspec.json.decode(text) if type(text) is str else None
    except _BAD:
        return None
    return value if type(value) is dict else None


def decode_values(arguments: dict[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments with text decoded where the schema allows no text; the same object where none was."""
    if schema is None or not any(map(may_be_encoded, arguments.values())):
        return arguments
    decoded = {name: _decode(value, name, schema) for name, value in arguments.items()}
    return arguments if all(decoded[name] is arguments[name] for name in decoded) else decoded


def _decode(value: Any, name: str, schema: Mapping[str, Any]) -> Any:
    """Return a value, decoded if it is text where the schema allows only an array or an object."""
    if not may_be_encoded(value):
        return value
    properties = schema.get("properties")
    types = named_types(properties.get(name), schema) if isinstance(properties, Mapping) else frozenset()
    if "string" in types or not types & {"array", "object"}:
        return value
    try:
        inner = msgspec.json.decode(value)
    except _BAD:
        return value
    return inner if ("array" if type(inner) is list else "object") in types else value
