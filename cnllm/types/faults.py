"""Find the fault in a message that cannot be written."""

from __future__ import annotations

from typing import Any

import msgspec

from cnllm.types import checks
from cnllm.types.parts import Fields, Media, Opaque, Reasoning, Text, ToolCall, ToolResult

__all__ = ["message_fault", "struct_fault"]


_PART_TYPES = frozenset([Text, Reasoning, Media, ToolCall, ToolResult, Opaque])


def message_fault(place: str, fields: Fields) -> Exception | None:
    """Return the error for the fields of a message that cannot be written; None for valid ones.

    `place` ends with a dot.
    """
    role, parts, by, name, extra = fields
    for key, value in (("role", role), ("by", by), ("name", name)):
        if not isinstance(value, str) and (value is not None or key == "role"):
            return checks.wrong_type(f"{place}{key}", value, "a string")
    for index, part in enumerate(parts):
        if type(part) not in _PART_TYPES:
            return checks.wrong_type(
                f"{place}parts[{index}]", part, "a Text, Media, ToolCall or another part of cnllm's"
            )
        if (fault := struct_fault(f"{place}parts[{index}]", part)) is not None:
            return fault
    return _json_fault(f"{place}extra", extra)


def struct_fault(place: str, value: msgspec.Struct) -> Exception | None:
    """Return the error for a field of another type, or one that JSON cannot hold; None where all are valid."""
    config = value.__struct_config__
    tag: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    try:
        msgspec.convert({**fields, **tag}, type(value))
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        return TypeError(f"{place}{path.rstrip('`')}: {problem[:1].lower()}{problem[1:]}")
    except Exception as error:  # noqa: BLE001  a caller's object that raises while it is read
        return checks.unreadable(place, error)
    for name, inner in fields.items():
        if isinstance(inner, msgspec.Struct):
            fault = struct_fault(f"{place}.{name}", inner)
        elif name == "media":
            faults = (struct_fault(f"{place}.media[{index}]", medium) for index, medium in enumerate(inner))
            fault = next(filter(None, faults), None)
        else:
            fault = _json_fault(f"{place}.{name}", inner)
        if fault is not None:
            return fault
    return None


def _json_fault(place: str, value: Any) -> Exception | None:
    """Return the error for a value that JSON cannot hold; None for one that it can."""
    try:
        checks.check_json_value(place, value)
    except (TypeError, ValueError) as error:
        return error
    return None
