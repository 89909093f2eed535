"""Repair results that the package `mcp` would refuse as a whole, because one tool or one block in them is damaged.

A damaged tool is not offered, and the others are. What cnllm does not read of a tool (its icons, for example) may have
any form. Of a damaged block of content its text stays.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["repair_result", "tool_damage"]

_DAMAGE = "cnllm/damage"
_FORM = "another form than the protocol's"
_READ = ("name", "description", "inputSchema")
"""The fields of a tool that cnllm reads."""


def repair_result(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of a request in a form that can be read; the same object where nothing is damaged."""
    if isinstance(tools := result.get("tools"), list) and _fault("tools/list", "tools", tools) is not None:
        return {**result, "tools": [_repair_tool(tool) for tool in tools]}
    content = result.get("content", [])
    if isinstance(content, list) and ("content" in result or "structuredContent" in result):
        return _repair_answer(result, content)
    return result


def tool_damage(tool: Any) -> str | None:
    """Return what is damaged in a tool of a server's list; None where it is whole."""
    damage = (tool.meta or {}).get(_DAMAGE)
    return damage if isinstance(damage, str) else None


def _repair_tool(tool: Any) -> Any:
    """Return a tool that can be read. One that cannot be repaired has a mark, and no arguments."""
    if _fault("tools/list", "tools", [tool]) is None:
        return tool
    fields = tool if isinstance(tool, dict) else {}
    plain = {key: fields[key] for key in _READ if key in fields}
    if isinstance(schema := plain.get("inputSchema"), dict) and "type" not in schema:
        plain["inputSchema"] = {"type": "object", **schema}
    if (fault := _fault("tools/list", "tools", [plain])) is None:
        return plain
    name = fields.get("name")
    return {
        "name": name if isinstance(name, str) else "?",
        "inputSchema": {"type": "object"},
        "_meta": {_DAMAGE: f"its definition has {_FORM} ({fault})"},
    }


def _repair_answer(result: Mapping[str, Any], content: list[Any]) -> Mapping[str, Any]:
    """Return the result of a call of a tool whose blocks can be read, and whose structured content is an object."""
    structured = result.get("structuredContent")
    if _fault("tools/call", "content", content) is not None:
        content = [_repair_block(block) for block in content]
    elif "content" in result and (structured is None or isinstance(structured, dict)):
        return result
    if structured is not None and not isinstance(structured, dict):
        content = content or [_text(json.dumps(structured, ensure_ascii=False))]
        structured = None
    return {**result, "content": content, "structuredContent": structured}


def _repair_block(block: Any) -> dict[str, Any]:
    """Return a block of content that can be read: the damaged one's own text or data, or a text in its place."""
    if _fault("tools/call", "content", [block]) is None:
        return dict(block)
    fields = block if isinstance(block, dict) else {}
    plain = {key: fields[key] for key in ("type", "text", "data", "mimeType") if key in fields}
    return plain if _fault("tools/call", "content", [plain]) is None else _text(f"[content left out: it has {_FORM}]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _fault(method: str, field: str, items: list[Any]) -> str | None:
    """Return the first place in a list that some version of the protocol does not know; None where all is right."""
    from pydantic import ValidationError

    for adapter in _adapters(method, field):
        try:
            adapter.validate_python(items)
        except ValidationError as error:
            place = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"][1:]
            return ".".join(map(str, place)) or "it is no object"
    return None


@functools.cache
def _adapters(method: str, field: str) -> tuple[Any, ...]:
    """Return what checks a field of a method's result, for each form that it has in the versions of the protocol."""
    from mcp_types.methods import SERVER_RESULTS
    from pydantic import BaseModel, TypeAdapter

    rows = {row for (name, _), row in SERVER_RESULTS.items() if name == method}
    models = sorted((row for row in rows if isinstance(row, type)), key=lambda row: row.__module__)
    kinds: list[Any] = [row.model_fields[field].annotation for row in models if issubclass(row, BaseModel)]
    return tuple(map(TypeAdapter, kinds))
