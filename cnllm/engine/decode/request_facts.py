"""What a request held, in a line: for a refusal whose words do not fit it."""

from __future__ import annotations

from typing import Any

from cnllm.registry.flags import Flags
from cnllm.registry.flags import Reasoning as Rules
from cnllm.registry.reasoning_form import form, place

__all__ = ["facts"]

_SHOWN = 5  # messages that are named of each kind


def facts(body: dict[str, Any], size: int, flags: Flags) -> str:
    """Which of the assistant's turns went with their reasoning and which without, and about how many tokens it was."""
    rules = flags.reasoning or Rules()
    if "messages" not in body or form(rules) == "seal":
        return f"the request had about {size // 4} tokens"
    field = place(rules) or "reasoning"
    sent: list[int] = []
    bare: list[int] = []
    for index, message in enumerate(body.get("messages") or ()):
        if type(message) is dict and message.get("role") == "assistant":
            (sent if _carries(message, field, rules) else bare).append(index)
    return (
        f"the request had about {size // 4} tokens; reasoning went with {_listed(sent)}, "
        f"without it went {_listed(bare)}"
    )


def _carries(message: dict[str, Any], field: str, rules: Rules) -> bool:
    content = message.get("content")
    match form(rules):
        case "tags":
            return bool(rules.tags) and type(content) is str and (rules.tags or [""])[0] in content
        case "content-parts":
            return type(content) is list and any(type(p) is dict and p.get("type") == rules.part for p in content)
        case _:
            return message.get(field) is not None


def _listed(indices: list[int]) -> str:
    if not indices:
        return "no turn"
    more = f" and {len(indices) - _SHOWN} more" if len(indices) > _SHOWN else ""
    return ", ".join(f"messages[{i}]" for i in indices[:_SHOWN]) + more
