"""Read `--schema`: a JSON file, JSON, or fields such as "name, age int, tags [str]"."""

from __future__ import annotations

import os
from typing import Any

from cnllm.cli.option_parsing import parse_json, read_json_file
from cnllm.cli.output.errors import UsageError

__all__ = ["is_json", "is_short_form", "read_schema"]


def read_schema(value: str) -> dict[str, Any]:
    """Return the JSON Schema. Raise `UsageError` with what is wrong."""
    if is_short_form(value):
        from cnllm.schemas.short_form import parse_short_form

        try:
            return parse_short_form(value)
        except ValueError as error:
            raise UsageError(f"--schema {value!r}: {error}", "it looks like 'name, age int, tags [str]'") from None
    schema = parse_json(value.encode(), "--schema") if is_json(value) else read_json_file(value, "--schema")
    if not isinstance(schema, dict):
        raise UsageError(f"{value} holds no JSON object", 'it looks like {"name": "value"}')
    return schema


def is_short_form(value: str) -> bool:
    """Whether a value is neither JSON nor the path of a file."""
    name = value.strip()
    is_path = os.path.exists(value) or (" " not in name and ("/" in name or "." in name))
    return not is_path and not is_json(value)


def is_json(value: str) -> bool:
    """Whether a value begins as a JSON object does."""
    rest = value.lstrip()
    return rest.startswith("{") and rest[1:].lstrip()[:1] in ('"', "}")
