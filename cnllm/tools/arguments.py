"""A call's arguments: checked against the schema, and made into what the function takes."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from cnllm.tools.values import Tool
from cnllm.types import ToolCall

__all__ = ["bound", "problem_with"]

_MOST = 5  # errors that are told at once
_LONG = 400  # characters of a value or a schema that are told


def problem_with(tool: Tool, call: ToolCall) -> str | None:
    """What is wrong with a call, in words for the model that made it: None where it can be executed.

    It names each place, what is wrong there and what the schema says of it, so that the model can do better. Raises
    `ValueError` for a tool whose parameters are no JSON Schema.
    """
    if call.arguments is None:
        why = call.problem or "they are not a JSON object"
        return f"The call of {tool.name} was not executed: {why}. Its arguments must be one JSON object." + _schema(tool)
    faults = _faults(tool, call.arguments)
    if not faults and tool.function is not None:
        try:
            bound(tool, call.arguments)
        except (ValueError, TypeError) as error:
            faults = [_short(str(error))]
    if not faults:
        return None
    told = "\n".join(f"- {fault}" for fault in faults[:_MOST])
    more = f"\n- and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    return f"The call of {tool.name} was not executed: its arguments do not fit.\n{told}{more}\nCorrect them and call it again."


def bound(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool's function takes them; what was left out is left to its defaults.

    Dataclasses, enums, dates, pydantic models and the like are built from their JSON. A function whose annotations
    cannot be read gets them as they came, and so does one that was paired with a schema of its own making. Raises
    `ValueError` where a value cannot be built (problem_with says so before).
    """
    if tool.function is None:
        return dict(arguments)
    from cnllm.tools.signature import signature

    try:
        taken = signature(tool.function)
    except TypeError:
        return dict(arguments)
    return taken.bound(arguments, bool(tool.strict))


def _faults(tool: Tool, arguments: dict[str, Any]) -> list[str]:
    if tool.parameters is None:
        return []
    from jsonschema.exceptions import best_match

    try:
        validator = _validator(msgspec.json.encode(tool.parameters))
        found = sorted(validator.iter_errors(arguments), key=lambda e: [str(p) for p in e.absolute_path])
    except Exception as error:
        raise ValueError(f"the parameters of {tool.name} are no JSON Schema that can be checked: {error}") from error
    return [_fault(best_match(iter([error]))) for error in found]


def _fault(error: Any) -> str:
    """One error of jsonschema: where, what, and the schema's words."""
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    said = msgspec.json.encode(error.schema).decode()
    return f"arguments{place}: {_short(error.message)}. The schema says: {_short(said)}"


def _schema(tool: Tool) -> str:
    return f" The schema says: {_short(msgspec.json.encode(tool.parameters).decode())}" if tool.parameters else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    """Compiled once for each schema. References that lead out of it are not followed: nothing is fetched."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    decoded = msgspec.json.decode(schema)
    kind = validator_for(decoded, default=Draft202012Validator)
    kind.check_schema(decoded)
    return kind(decoded, registry=Registry())
