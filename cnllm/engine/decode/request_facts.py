"""Describe a request in a line, for a refusal whose reason is missing reasoning."""

from __future__ import annotations

from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags import Flags, ReasoningFlags
from cnllm.registry.reasoning_form import form, text_place

__all__ = ["request_facts"]

_MAX_INDEXES = 5  # messages of each kind that are listed


def request_facts(body: dict[str, Any], size: int, flags: Flags) -> str:
    """Return which assistant turns were sent with reasoning and which without, and the approximate tokens."""
    rules = flags.reasoning or ReasoningFlags()
    if "messages" not in body or form(rules) == "seal":
        return f"the request had about {size // 4} tokens"
    field = text_place(rules) or "reasoning"
    with_reasoning: list[int] = []
    without: list[int] = []
    for index, message in enumerate(body.get("messages") or ()):
        if type(message) is dict and message.get("role") == "assistant":
            content = get(message, (flags.messages and flags.messages.answer_field) or "content")
            (with_reasoning if _has_reasoning(message, content, field, rules) else without).append(index)
    return (
        f"the request had about {size // 4} tokens; sent with reasoning: {_list_messages(with_reasoning)}; "
        f"without it: {_list_messages(without)}"
    )


def _has_reasoning(message: dict[str, Any], content: Any, field: str, rules: ReasoningFlags) -> bool:
    """Whether a message with this content holds its reasoning."""
    match form(rules):
        case "tags":
            return bool(rules.tags) and type(content) is str and (rules.tags or ["", ""])[1] in content
        case "content-parts":
            return type(content) is list and any(type(p) is dict and p.get("type") == rules.part for p in content)
        case _:
            return get(message, field) is not None


def _list_messages(indices: list[int]) -> str:
    """Return messages as a list of at most `_MAX_INDEXES` indexes."""
    if not indices:
        return "no turn"
    more = f" and {len(indices) - _MAX_INDEXES} more" if len(indices) > _MAX_INDEXES else ""
    return ", ".join(f"messages[{i}]" for i in indices[:_MAX_INDEXES]) + more
