"""generateContent: how a recorded request is taken apart, and when two are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cnllm import engine

if TYPE_CHECKING:
    from .corpus import Exchange

FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "MALFORMED_FUNCTION_CALL": "error",
}
"""The wire's words that occur in the corpus, or may."""


def asked(exchange: Exchange, model: Any) -> tuple[list[Any], dict[str, Any]]:
    """The messages and options of a request, the model's turns signed by it."""
    assert exchange.request is not None
    path = exchange.request["url"].partition("?")[0]
    request = engine.decode_request("gemini", exchange.request["body"], path=path, origin=model)
    assert request.stream == exchange.stream
    assert request.model == exchange.model
    return list(request.messages), dict(request.options)


def differences(exchange: Exchange, body: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs, as (where, recorded, rebuilt)."""
    recorded, rebuilt = normal(exchange.sent or {}), normal(body)
    mine, theirs = (b.get("generationConfig", {}).get("thinkingConfig", {}) for b in (rebuilt, recorded))
    if "thinkingBudget" in theirs and "thinkingLevel" in mine:  # where levels are what a model takes now
        for config in (mine, theirs):
            config.pop("thinkingBudget", None)
            config.pop("thinkingLevel", None)
    keys = sorted(recorded.keys() | rebuilt.keys())
    return [(k, recorded.get(k), rebuilt.get(k)) for k in keys if recorded.get(k) != rebuilt.get(k)]


def normal(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body without differences that are none.

    Keys may be in snake case; null, `thought: false`, `includeThoughts: false`, an empty config and the role of the
    system text say nothing; a declaration may come in either kind of schema, and tools in one table or several.
    """
    out = _camel({key: value for key, value in body.items() if value is not None})
    out["contents"] = [_content(content) for content in out["contents"]]
    if "systemInstruction" in out:
        out["systemInstruction"] = _content(out["systemInstruction"])["parts"]
    if "tools" in out:
        tables = [_camel(table) for table in out["tools"]]
        functions = [_function(f) for table in tables for f in table.pop("functionDeclarations", ())]
        out["tools"] = [functions, *(table for table in tables if table)]
    config = _camel(out.pop("generationConfig", {}))
    thinking = _camel(config.pop("thinkingConfig", {}))
    if thinking.get("includeThoughts") is False:
        del thinking["includeThoughts"]
    if "responseSchema" in config:
        config["responseJsonSchema"] = _schema(config.pop("responseSchema"))
    config |= {"thinkingConfig": thinking} if thinking else {}
    return out | ({"generationConfig": config} if config else {})


def _camel(table: Mapping[str, Any]) -> dict[str, Any]:
    def name(key: str) -> str:
        head, *rest = key.split("_")
        return head + "".join(word.capitalize() for word in rest)

    return {name(key): value for key, value in table.items() if value is not None}


def _content(content: Mapping[str, Any]) -> dict[str, Any]:
    parts = [{k: v for k, v in part.items() if (k, v) != ("thought", False)} for part in content["parts"]]
    return {"role": content.get("role", "user"), "parts": parts}


def _function(function: Mapping[str, Any]) -> dict[str, Any]:
    out = _camel(function)
    if "parameters" in out:
        out["parametersJsonSchema"] = _schema(out.pop("parameters"))
    return out


def _schema(node: Any) -> Any:
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {"propertyOrdering" if k == "property_ordering" else k: _schema(v) for k, v in node.items() if v is not None}
    return out | ({"type": out["type"].lower()} if isinstance(out.get("type"), str) else {})
