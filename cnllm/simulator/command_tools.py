"""Choose calls that change nothing, for clients whose tools act on the user's machine.

A coding agent offers a tool that runs commands, beside many others. A call of the first tool with made-up arguments
would start another agent, or run the user's words as a command.
"""

from __future__ import annotations

import re
from typing import Any

from cnllm.simulator.request import ParsedTool

__all__ = ["command_tool", "own_words", "with_harmless_command"]

_NAMES = ("command", "cmd", "commands", "script")
"""The names of parameters that hold a command."""

_COMMANDS = ("ls", "pwd")
_CONTEXT = re.compile(r"\s*<([A-Za-z][\w-]*)>.*?</\1>\s*", re.DOTALL)


def command_tool(tools: list[ParsedTool]) -> ParsedTool | None:
    """Return the first tool that requires a command, or None."""
    return next((tool for tool in tools if _command_name(tool) is not None), None)


def with_harmless_command(tool: ParsedTool, arguments: Any, number: int) -> Any:
    """Return the arguments of a call with a command that lists files, where the tool runs commands."""
    name = _command_name(tool)
    if name is None or not isinstance(arguments, dict):
        return arguments
    command = _COMMANDS[number % len(_COMMANDS)]
    value = arguments.get(name)
    return {**arguments, name: [command] if isinstance(value, list) else command}


def own_words(prompt: str) -> str:
    """Return a prompt without the blocks in tags with which a client begins it, unless there is nothing else."""
    end = 0
    while (match := _CONTEXT.match(prompt, end)) is not None:
        end = match.end()
    return prompt[end:] or prompt


def _command_name(tool: ParsedTool) -> str | None:
    """Return the name of the required parameter that holds a command: a text, or a list of texts."""
    schema = tool.parameters
    if not isinstance(schema, dict):
        return None
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    return next((name for name in _NAMES if name in required and _holds_text(properties.get(name))), None)


def _holds_text(schema: Any) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema or "pattern" in schema:
        return False
    if schema.get("type") == "array":
        items = schema.get("items")
        return isinstance(items, dict) and items.get("type") == "string" and "enum" not in items
    return schema.get("type") == "string"
