"""Generate the JSON Schema of a registry file.

Editors (`#:schema` in the first line of a file) and `cnllm registry schema` use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec

from cnllm.registry.flags import CallFlags, Flags, RegistryFile, Table
from cnllm.registry.flags.describe import Base, flag_texts, table_text
from cnllm.registry.model import ATOMS

__all__ = ["describe_flags", "json_schema", "tidy"]


def json_schema() -> dict[str, Any]:
    """Return the schema, generated from the classes in `cnllm.registry.flags`."""
    (top,), parts = msgspec.json.schema_components([RegistryFile], ref_template="#/$defs/{name}")
    parts |= msgspec.json.schema_components([CallFlags, Flags, Table], ref_template="#/$defs/{name}")[1]
    describe_flags(parts)
    table: dict[str, Any] = parts["Table"]["properties"]
    for key, name in (("on", "Table"), ("when", "Flags"), ("families", "Table")):
        table[key] = {
            "description": table[key].get("description", ""),
            "type": "object",
            "additionalProperties": {"$ref": f"#/$defs/{name}"},
        }
    for name in ("Flags", "Table"):
        call = parts[name]["properties"]["call"]
        parts[name]["properties"]["call"] = {"description": call["description"], "$ref": "#/$defs/CallFlags"}
    parts["RegistryFile"]["properties"]["sources"]["anyOf"][0]["additionalProperties"] = {
        "anyOf": [{"$ref": "#/$defs/Source"}, {"type": "string", "pattern": r"^[a-z]+ \d{4}-\d\d-\d\d \S+( \S+)?$"}]
    }
    parts["SourceFacts"]["dependentRequired"] = {"url": ["seen", "how"]}  # it stands for itself
    atom = f"(no-)?({'|'.join(ATOMS)})"
    table["when"]["propertyNames"] = {"pattern": rf"^ *{atom} *(\+ *{atom} *)*$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cnllm registry",
        **top,
        "$defs": {name: tidy(part) for name, part in sorted(parts.items())},
    }


def describe_flags(parts: dict[str, Any]) -> None:
    """Put the texts of flags into the parts of a schema that are tables of the registry, by their names."""
    for cls in _tables(Base):
        if cls.__name__ not in parts:
            continue
        parts[cls.__name__]["description"] = table_text(cls).does
        properties = parts[cls.__name__]["properties"]
        for name, text in flag_texts(cls).items():
            properties[name] = {"description": f"{text.does} {text.why}".rstrip(), **properties[name]}


def _tables(cls: type[Base]) -> Iterator[type[Base]]:
    """Yield the classes of tables that a class is the base of."""
    for table in cls.__subclasses__():
        yield table
        yield from _tables(table)


def tidy(part: Any) -> Any:
    """Return a schema without null and defaults that say nothing. Descriptions lose their indentation."""
    if isinstance(part, list):
        return [tidy(p) for p in part]
    if not isinstance(part, dict):
        return part
    out = {k: tidy(v) for k, v in part.items() if not (k == "default" and v in (None, {}))}
    if isinstance(text := out.get("description"), str):
        out["description"] = inspect.cleandoc(text)  # Python 3.13 and later do it when they compile
    if "anyOf" in out:
        rest = [a for a in out["anyOf"] if a != {"type": "null"}]
        if len(rest) == 1:
            del out["anyOf"]
            out = {**rest[0], **out}
        else:
            out["anyOf"] = rest
    return out
