"""OpenAI Responses, as a server speaks it: the response object, with every field that the specification requires.

Most of its fields repeat the request. Where the request says nothing, or nothing of the right type, the field has the
default of the specification (openresponses/openresponses, public/openapi/openapi.json, version 2026-04-24). `user` is
not in that version; clients that were written for an earlier one look for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["response_resource"]

_NUMBERS: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_COUNTS: dict[str, int | None] = {"top_logprobs": 0, "max_output_tokens": None, "max_tool_calls": None}
_SWITCHES = {"parallel_tool_calls": True, "store": False, "background": False}
_TEXTS = ("instructions", "previous_response_id", "prompt_cache_key", "safety_identifier", "user")
_TOOL_FIELDS = ("description", "parameters", "strict")


def response_resource(id: str, model: str, created: int, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the response object as it is before anything was generated. `request` is the body that it answers."""
    given = request or {}
    resource: dict[str, Any] = {
        "id": id,
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
        "metadata": _object(given.get("metadata")),
        "reasoning": {"effort": None, "summary": None, **_object(given.get("reasoning"))},
        "service_tier": _service_tier(given.get("service_tier")),
        "text": _text(given.get("text")),
        "tool_choice": _tool_choice(given.get("tool_choice")),
        "tools": _tools(given.get("tools")),
        "truncation": "auto" if given.get("truncation") == "auto" else "disabled",
    }
    for name, number in _NUMBERS.items():
        resource[name] = given[name] if type(given.get(name)) in (int, float) else number
    for name, count in _COUNTS.items():
        resource[name] = given[name] if type(given.get(name)) is int else count
    for name, switch in _SWITCHES.items():
        resource[name] = given[name] if type(given.get(name)) is bool else switch
    for name in _TEXTS:
        resource[name] = given[name] if type(given.get(name)) is str else None
    return resource


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _service_tier(value: Any) -> str:
    """Return the tier; `auto` asks the server to choose, and it chooses the default one."""
    return value if isinstance(value, str) and value != "auto" else "default"


def _text(value: Any) -> dict[str, Any]:
    """Return the settings of the text, with a format in full."""
    settings = {key: item for key, item in _object(value).items() if item is not None}
    form = _object(settings.get("format"))
    if form.get("type") == "json_schema":
        form = {"name": "answer", "description": None, "schema": None, "strict": False, **form}
    return {**settings, "format": form if isinstance(form.get("type"), str) else {"type": "text"}}


def _tool_choice(value: Any) -> Any:
    fits = isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("type"), str))
    return value if fits else "auto"


def _tools(value: Any) -> list[Any]:
    """Return the tools; what a function leaves out stands there as null."""
    tools = [tool for tool in value if isinstance(tool, dict)] if isinstance(value, list) else []
    empty = dict.fromkeys(_TOOL_FIELDS)
    return [{**empty, **tool} if tool.get("type") == "function" else tool for tool in tools]
