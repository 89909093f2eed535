"""Write the package for npm: the document, its schema, a resolver in JavaScript, and types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from cnllm.registry_export.document import ExportDocument, document_schema, encode_document

__all__ = ["package_files"]

_FILES = ("index.js", "index.d.ts", "data.js", "data.d.ts", "README.md")
_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def package_files(document: ExportDocument) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file."""
    folder = resources.files(__package__).joinpath("npm")
    for name in _FILES:
        yield name, folder.joinpath(name).read_bytes()
    for name, text in document.licenses.items():
        yield name, text.encode()
    yield "values.d.ts", _values(document).encode()
    yield "registry.json", encode_document(document)
    yield "registry.schema.json", _json(document_schema())
    yield "package.json", _json(_manifest(document))


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _manifest(document: ExportDocument) -> dict[str, Any]:
    entry = {"types": "./index.d.ts", "default": "./index.js"}
    return {
        "name": "cnllm-registry",
        "version": document.version,
        "description": "What each endpoint of a language model does on the wire, each fact with its source.",
        "keywords": ["llm", "models", "prices", "limits", "openai-compatible"],
        "license": "Apache-2.0",
        "type": "module",
        "sideEffects": False,
        "exports": {
            ".": entry,
            "./data": {"types": "./data.d.ts", "default": "./data.js"},
            "./registry.json": "./registry.json",
            "./registry.schema.json": "./registry.schema.json",
        },
    }


def _values(document: ExportDocument) -> str:
    """Return the type of each flag's known value, with its meaning."""
    lines = ["/** The type of each flag's value, where it is known. */", "export interface Values {"]
    for flag, info in sorted(document.flags.items()):
        lines += [f"  /** {info.meaning.replace('*/', '* /')} */", f"  {json.dumps(flag)}: {_type(info.schema)};"]
    return "\n".join([*lines, "}", ""])


def _type(schema: dict[str, Any]) -> str:
    """Return a JSON Schema as a type of TypeScript."""
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array":
        return f"({_type(schema.get('items', {}))})[]"
    if kind == "object":
        return f"Record<string, {_type(schema.get('additionalProperties') or {})}>"
    return _TYPES.get(str(kind), "unknown")
