"""Offer only the tools that a tool choice allows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["allow_tools"]


def allow_tools(options: dict[str, Any], mode: Any, names: Collection[str], kinds: Collection[Any] = ()) -> None:
    """Keep the functions with these names, and other tools of these kinds; the choice becomes the mode."""
    options["tools"] = [tool for tool in options.get("tools", ()) if _is_allowed(tool, names, kinds)]
    options["tool_choice"] = "required" if mode == "required" else "auto"
    if not options["tools"]:
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            options.pop(key, None)


def _is_allowed(tool: dict[str, Any], names: Collection[str], kinds: Collection[Any]) -> bool:
    """Whether a tool is among the allowed ones."""
    function = tool.get("function")
    return function.get("name") in names if isinstance(function, dict) else tool.get("type") in kinds
