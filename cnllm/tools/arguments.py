"""A call's arguments: checked against the schema, and made into what the function takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.schemas import validate
from cnllm.schemas.validate import Undecided, check_schema, validation_errors
from cnllm.tools.encoded import decode_values, unwrap_object
from cnllm.tools.values import Tool
from cnllm.types import ToolCall, checks

__all__ = ["bound", "check_parameters", "decode_encoded_arguments", "problem_with", "undecided_parameters"]

_MOST = 5  # errors that are told at once
_LONG = 400  # characters of a value or a schema that are told


def problem_with(tool: Tool, call: ToolCall, *, built: bool = True) -> str | None:
    """What is wrong with a call, in words for the model that made it: None where it can be executed.

    It names each place, what is wrong there and what the schema says of it, so that the model can do better. Raises
    `ValueError` for a tool whose parameters are no JSON Schema. With `built=False` the schema alone is asked: a class
    of the caller's may look at the disk while it is built, and a call that nobody approved yet must not cause that.
    """
    _demand(tool)
    _demand_call(call)
    head = f"The call of {tool.name} was not executed:"
    if call.arguments is None:
        said = f" The schema: {_words(tool.parameters)}" if tool.parameters else ""
        return f"{head} {call.problem or 'it has no arguments'}. Its arguments must be one JSON object.{said}"
    arguments = decode_values(call.arguments, tool.parameters)
    wrong = _faults(tool, arguments) or (_unbuilt(tool, arguments) if built else [])
    if not wrong:
        return None
    told = [f"- {fault}" for fault in wrong[:_MOST]]
    if len(wrong) > _MOST:
        told.append(f"- and {len(wrong) - _MOST} more")
    return "\n".join([f"{head} its arguments do not fit.", *told, "Correct them and call it again."])


def decode_encoded_arguments(tool: Tool, call: ToolCall) -> ToolCall:
    """The call with what its model encoded twice decoded, where the schema has room for nothing else; `raw` stays."""
    _demand(tool)
    _demand_call(call)
    arguments = unwrap_object(call.raw) if call.arguments is None else call.arguments
    if arguments is None:
        return call
    arguments = decode_values(arguments, tool.parameters)
    return call if arguments is call.arguments else replace(call, arguments=arguments, problem=None)


def bound(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool's function takes them; what was left out is left to its defaults.

    Dataclasses, enums, dates, pydantic models and the like are built from their JSON. A function whose annotations
    cannot be read gets them as they came, and so does one that was paired with a schema of its own making. Raises
    `ValueError` where a value cannot be built (problem_with says so before).
    """
    _demand(tool)
    if type(arguments) is not dict:
        arguments = checks.as_dict("arguments", arguments)
    arguments = decode_values(arguments, tool.parameters)
    if tool.function is None:
        return dict(arguments)
    from cnllm.tools.signature import signature

    try:
        taken = signature(tool.function)
    except TypeError:
        return dict(arguments)
    return taken.bind(arguments, bool(tool.strict))


def check_parameters(tool: Tool) -> None:
    """Raises `ValueError` for a tool whose parameters are no JSON Schema, before a model is asked to fill them in."""
    _demand(tool)
    if tool.parameters is None or _says_itself(tool):
        return
    try:
        check_schema(tool.parameters)
    except Exception as error:
        raise _unusable(tool, error) from error


def undecided_parameters(tool: Tool) -> tuple[str, ...]:
    """Return what of a tool's schema no call is checked for: patterns that the engine cannot judge, and why."""
    _demand(tool)
    if tool.parameters is None or _says_itself(tool):
        return ()
    try:
        return validate.undecided_patterns(tool.parameters)
    except Exception as error:
        raise _unusable(tool, error) from error


def _demand(tool: Tool) -> None:
    """Raise `TypeError` for what is no tool."""
    if type(tool) is not Tool:
        raise checks.wrong_type("tool", tool, "a cnllm.Tool")
    if tool.parameters is not None and type(tool.parameters) is not dict:
        raise checks.wrong_type("tool.parameters", tool.parameters, "a JSON Schema (dict) or None")
    if tool.function is not None and not callable(tool.function):
        raise checks.wrong_type("tool.function", tool.function, "a function or None")


def _demand_call(call: ToolCall) -> None:
    """Raise `TypeError` for what is no call."""
    if type(call) is not ToolCall:
        raise checks.wrong_type("call", call, "a cnllm.ToolCall")
    if call.arguments is not None and type(call.arguments) is not dict:
        raise checks.wrong_type("call.arguments", call.arguments, "a dict or None")
    if type(call.raw) is not str:
        raise checks.wrong_type("call.raw", call.raw, "a string")


def _says_itself(tool: Tool) -> bool:
    """Does the schema come from the function's own signature?"""
    if tool.function is None:
        return False
    from cnllm.tools.signature import signature

    try:
        own = signature(tool.function)
    except TypeError:
        return False
    return tool.parameters is own.schema or tool.parameters is own.strict


def _unusable(tool: Tool, error: Exception) -> ValueError:
    return ValueError(f"the parameters of {tool.name} are no JSON Schema that can be checked: {error}")


def _faults(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """What jsonschema finds, in the order of the places."""
    if tool.parameters is None:
        return []
    try:
        found = validation_errors(arguments, tool.parameters)
    except Undecided as error:  # what nobody checked is not executed
        return [f"arguments: they cannot be checked: {error}. Send fewer or simpler values."]
    except Exception as error:
        raise _unusable(tool, error) from error
    return [_fault(error) for error in sorted(found, key=lambda error: [str(p) for p in error.absolute_path])]


def _fault(error: Any) -> str:
    """One error of jsonschema: where, what, and the schema's words of that place."""
    schema = error.schema
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    if error.validator == "additionalProperties":
        words = f"It takes {', '.join(properties) or 'nothing'}."
    elif error.validator == "required":
        missing = {name: properties.get(name, {}) for name in error.validator_value if name not in error.instance}
        words = f"The schema says: {_words({n: s for n, s in missing.items() if error.message.startswith(repr(n))})}"
    else:
        words = f"The schema says: {_words(schema)}"
    return f"{_place(error.absolute_path)}: {_short(error.message)}. {words}"


def _unbuilt(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    """What fits the schema and yet is nothing that the function can be called with: the 31st of February."""
    try:
        bound(tool, arguments)
    except Exception as error:  # noqa: BLE001  what a class of the caller's raises for its values
        told = getattr(error, "errors", None)  # pydantic's: one for each place
        if callable(told):
            return [f"{_place(one['loc'])}: {_short(one['msg'])}" for one in told(include_url=False)]
        return [f"arguments: {_short(str(error))}"]
    return []


def _place(path: Iterable[Any]) -> str:
    return "arguments" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _words(schema: Any) -> str:
    return _short(msgspec.json.encode(schema).decode())


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
