"""Build the response object of OpenAI Responses, with every field that the specification requires.

Most of its fields repeat the request. If the request has no value, or none of the right type, the field has the
default of the specification (openresponses/openresponses, public/openapi/openapi.json, version 2026-04-24). `user`
is not in that version; clients for an earlier one read it. `service_tier` is the tier that served the request, which
an endpoint reports; the one that the request wants may have been left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cnllm.protocols.reply_fields import with_counts
from cnllm.types import Usage

__all__ = ["ending", "failure_code", "response_resource", "usage_counts"]

_REPEATED: dict[type | tuple[type, ...], dict[str, Any]] = {
    (int, float): {"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    int: {"top_logprobs": 0, "max_output_tokens": None, "max_tool_calls": None},
    bool: {"parallel_tool_calls": True, "store": False, "background": False},
    str: dict.fromkeys(("instructions", "previous_response_id", "prompt_cache_key", "safety_identifier", "user")),
}
"""The defaults of fields that repeat one of the request, by the type of the field."""
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a reply is incomplete."""
_TOOL_FIELDS = ("description", "parameters", "strict")


def response_resource(id: str, model: str, created: int, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the response object before anything was generated. `request` is the body that it answers."""
    request_body = request or {}
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
        "metadata": _object(request_body.get("metadata")),
        "reasoning": {"effort": None, "summary": None, **_object(request_body.get("reasoning"))},
        "service_tier": "default",
        "text": _text(request_body.get("text")),
        "tool_choice": _tool_choice(request_body.get("tool_choice")),
        "tools": _tools(request_body.get("tools")),
        "truncation": "auto" if request_body.get("truncation") == "auto" else "disabled",
    }
    for kind, defaults in _REPEATED.items():
        for name, default in defaults.items():
            value = request_body.get(name)
            resource[name] = value if type(value) in (kind if isinstance(kind, tuple) else (kind,)) else default
    return resource


def _object(value: Any) -> dict[str, Any]:
    """Return an object, empty for anything else."""
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> dict[str, Any]:
    """Return the settings of the text, with a complete format."""
    settings = {key: item for key, item in _object(value).items() if item is not None}
    format = _object(settings.get("format"))
    if format.get("type") == "json_schema":
        format = {"name": "answer", "description": None, "schema": None, "strict": False, **format}
    return {**settings, "format": format if isinstance(format.get("type"), str) else {"type": "text"}}


def _tool_choice(value: Any) -> Any:
    """Return the tool choice, `auto` for an invalid one."""
    fits = isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("type"), str))
    return value if fits else "auto"


def _tools(value: Any) -> list[Any]:
    """Return the tools; missing keys of a function are null."""
    tools = [tool for tool in value if isinstance(tool, dict)] if isinstance(value, list) else []
    empty = dict.fromkeys(_TOOL_FIELDS)
    return [{**empty, **tool} if tool.get("type") == "function" else tool for tool in tools]


# ── the end ───────────────────────────────────────────────────────────────────


def ending(finish: str, raw: str | None, now: int) -> dict[str, Any]:
    """Return the fields about the end of a reply, with the time if it is complete."""
    refuses = finish == "content_filter" and raw in ("completed", "stop")  # the model itself: such a reply is complete
    reason = None if refuses else _REASONS.get(finish)
    status = "failed" if finish == "error" else "incomplete" if reason or finish == "cut" else "completed"
    return {
        "status": status,
        "completed_at": now if status == "completed" else None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "error": {"code": "server_error", "message": "the model failed"} if status == "failed" else None,
    }


def usage_counts(usage: Usage, extra: dict[str, Any]) -> dict[str, Any] | None:
    """Return the known counts and the endpoint's own keys beside them; None if there are no counts."""
    if usage == Usage():
        return None
    input_details: dict[str, Any] = {"cached_tokens": usage.cached or 0}
    if usage.cache_write is not None:
        input_details["cache_write_tokens"] = usage.cache_write
    counts = {
        "input_tokens": usage.input or 0,
        "input_tokens_details": input_details,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.total if usage.total is not None else (usage.input or 0) + (usage.output or 0),
    }
    return with_counts(counts, extra, _DETAILS)


_DETAILS = {"prompt_tokens_details": "input_tokens_details", "completion_tokens_details": "output_tokens_details"}
"""The objects inside the counts, as chat completions and as this protocol call them."""


def failure_code(status: int) -> str:
    """Return the code of a failed response."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= status < 500 else "server_error"
