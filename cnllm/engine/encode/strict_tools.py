"""Strict tools: their parameters in the form that strict mode demands, and arguments back in the caller's."""

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
_OPEN = ("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")


def apply_strict(asked: RequestOptions, flags: Flags, ledger: Ledger) -> tuple[RequestOptions, dict[str, Schema]]:
    """Return the call with its strict tools in strict form, and what the caller had written of those that changed.

    A tool whose parameters have no such form goes without `strict`. Where the endpoint takes all tools strict or none,
    the others follow, or none is.
    """
    rules = flags.tools or Tools()
    if rules.strict is False:
        said = ", ".join(tool.name for tool in asked.tools if tool.strict)
        if not ledger.may_change("strict-dropped", "tools.strict", said, "sent without strict"):
            return asked, {}
        return replace(asked, tools=tuple(map(_loose, asked.tools))), {}
    if rules.strict is None or ledger.policy == "send":  # what an endpoint wants that nobody described is not known
        return asked, {}
    refused = {t.name: why for t in asked.tools if _concerns(t, rules) and (why := _unfit(t.parameters)) is not None}
    if refused:
        said = "; ".join(f"{name}: {why}" for name, why in refused.items())
        did = "no tool is strict: the endpoint takes all or none" if rules.strict_all else "sent without strict"
        ledger.may_change("strict-dropped", "tools.strict_all" if rules.strict_all else "tools.strict", said, did)
    if refused and rules.strict_all:
        return replace(asked, tools=tuple(map(_loose, asked.tools))), {}
    tools: list[Function] = []
    forms: dict[str, Schema] = {}
    for tool in asked.tools:
        if not _concerns(tool, rules):
            tools.append(tool)
        elif tool.name in refused:
            tools.append(_loose(tool))
        else:
            tools.append(_formed(tool, forms, ledger))
    return replace(asked, tools=tuple(tools)), forms


def _concerns(tool: Function, rules: Tools) -> bool:
    return tool.definition is None and bool(tool.strict or rules.strict_all)


def _loose(tool: Function) -> Function:
    return replace(tool, strict=None) if tool.strict else tool


def _formed(tool: Function, forms: dict[str, Schema], ledger: Ledger) -> Function:
    if not tool.strict:
        ledger.may_change("strict-added", "tools.strict_all", tool.name, "strict: the endpoint takes all tools or none")
    given = tool.parameters or {}
    form: Schema = make_strict({**given, "type": "object", "properties": given.get("properties") or {}})
    if form == tool.parameters:
        return tool if tool.strict else replace(tool, strict=True)
    if tool.parameters:  # of none there is nothing to tell
        did = "closed, every property required, optional ones nullable"
        ledger.may_change("strict-form", "tools.strict", f"the parameters of {tool.name}", did)
        forms[tool.name] = tool.parameters
    return replace(tool, strict=True, parameters=form)


# ── what has no strict form ──────────────────────────────────────────────────


def _unfit(schema: Schema | None) -> str | None:
    """Return why parameters have no strict form; None where they have one."""
    if not schema:
        return None
    if schema.get("type", "object") != "object" or any(key in schema for key in _LISTS) or "$ref" in schema:
        return "its parameters are no plain object"
    if not schema.get("properties") and schema.get("additionalProperties") in (None, False):
        return None  # it takes nothing
    return next(_faults(schema), None)


def _faults(node: Any) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if isinstance(node.get("additionalProperties"), dict) or any(key in node for key in _OPEN):
        yield "an object in it has names that the schema does not list"
    elif is_object and not node.get("properties") and node.get("additionalProperties") is not False:
        yield "an object in it has no list of properties"
    for key in _MAPS:
        if isinstance(node.get(key), dict):
            for child in node[key].values():
                yield from _faults(child)
    for key in _LISTS:
        if isinstance(node.get(key), list):
            for child in node[key]:
                yield from _faults(child)
    yield from _faults(node.get("items"))
