"""Put strict tools into the form that strict mode requires, and arguments back into the caller's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from cnllm.engine.adjustments import Ledger
from cnllm.engine.options import Function, RequestOptions
from cnllm.registry.flags import Flags, Tools
from cnllm.schemas.simplify import make_strict

__all__ = ["apply_strict"]

Schema = dict[str, Any]
_OPEN_KEYS = ("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties")
_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAP_KEYS = ("properties", "$defs", "definitions")


def apply_strict(options: RequestOptions, flags: Flags, ledger: Ledger) -> tuple[RequestOptions, dict[str, Schema]]:
    """Return the options with strict tools in strict form, and the caller's schemas of the tools that changed.

    A tool whose parameters have no such form is sent without `strict`. Where the endpoint takes all tools strict or
    none, the other tools follow.
    """
    rules = flags.tools or Tools()
    if rules.strict is False:
        subject = ", ".join(tool.name for tool in options.tools if tool.strict)
        if not ledger.may_change("strict-dropped", "tools.strict", subject, "sent without strict"):
            return options, {}
        return replace(options, tools=tuple(map(_without_strict, options.tools))), {}
    if rules.strict is None or ledger.policy == "send":  # the endpoint's requirements are unknown
        return options, {}
    obstacles = {
        t.name: reason
        for t in options.tools
        if _is_affected(t, rules) and (reason := _strict_obstacle(t.parameters)) is not None
    }
    if obstacles:
        subject = "; ".join(f"{name}: {reason}" for name, reason in obstacles.items())
        did = "no tool is strict: the endpoint takes all or none" if rules.strict_all else "sent without strict"
        ledger.may_change("strict-dropped", "tools.strict_all" if rules.strict_all else "tools.strict", subject, did)
    if obstacles and rules.strict_all:
        return replace(options, tools=tuple(map(_without_strict, options.tools))), {}
    tools: list[Function] = []
    forms: dict[str, Schema] = {}
    for tool in options.tools:
        if not _is_affected(tool, rules):
            tools.append(tool)
        elif tool.name in obstacles:
            tools.append(_without_strict(tool))
        else:
            tools.append(_to_strict(tool, forms, ledger))
    return replace(options, tools=tuple(tools)), forms


def _is_affected(tool: Function, rules: Tools) -> bool:
    """Whether a tool must be strict."""
    return tool.definition is None and bool(tool.strict or rules.strict_all)


def _without_strict(tool: Function) -> Function:
    """Return a tool without `strict`."""
    return replace(tool, strict=None) if tool.strict else tool


def _to_strict(tool: Function, forms: dict[str, Schema], ledger: Ledger) -> Function:
    """Return a tool in strict form, with a note on each change."""
    if not tool.strict:
        ledger.may_change("strict-added", "tools.strict_all", tool.name, "strict: the endpoint takes all tools or none")
    parameters = tool.parameters or {}
    form: Schema = make_strict({**parameters, "type": "object", "properties": parameters.get("properties") or {}})
    if form == tool.parameters:
        return tool if tool.strict else replace(tool, strict=True)
    if tool.parameters:  # an empty schema needs no note
        did = "closed, every property required, optional ones nullable"
        ledger.may_change("strict-form", "tools.strict", f"the parameters of {tool.name}", did)
        forms[tool.name] = tool.parameters
    return replace(tool, strict=True, parameters=form)


# ── schemas without a strict form ────────────────────────────────────────────


def _strict_obstacle(schema: Schema | None) -> str | None:
    """Return why parameters have no strict form; None where they have one."""
    if not schema:
        return None
    if schema.get("type", "object") != "object" or any(key in schema for key in _LIST_KEYS) or "$ref" in schema:
        return "its parameters are no plain object"
    if not schema.get("properties") and schema.get("additionalProperties") in (None, False):
        return None  # it takes no arguments
    return next(_faults(schema), None)


def _faults(node: Any) -> Iterator[str]:
    """Yield the reasons why a schema has no strict form."""
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if isinstance(node.get("additionalProperties"), dict) or any(key in node for key in _OPEN_KEYS):
        yield "an object in it has names that the schema does not list"
    elif is_object and not node.get("properties") and node.get("additionalProperties") is not False:
        yield "an object in it has no list of properties"
    for key in _MAP_KEYS:
        if isinstance(node.get(key), dict):
            for child in node[key].values():
                yield from _faults(child)
    for key in _LIST_KEYS:
        if isinstance(node.get(key), list):
            for child in node[key]:
                yield from _faults(child)
    yield from _faults(node.get("items"))
