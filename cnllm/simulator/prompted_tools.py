"""Handle tools that a prompt describes in words: parse them from the prompt, and write calls as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.registry.flags import Flags
from cnllm.simulator.request import ParsedRequest, ParsedTool, RequestCall

__all__ = ["described_results", "described_tools", "write_calls", "writes_calls_as_text"]

_RESULT = re.compile(r'<tool_result(?: name="([^"]*)")?[^>]*>\n(.*?)\n</tool_result>', re.DOTALL)


def writes_calls_as_text(flags: Flags) -> bool:
    """Whether this model writes its calls as text."""
    return flags.tools is not None and flags.tools.supported is False and flags.tools.otherwise == "prompt"


def described_tools(request: ParsedRequest) -> ParsedRequest:
    """Return the request with the tools of its prompt. Each tool is one JSON object on a line."""
    tools: list[ParsedTool] = []
    for turn in request.turns:
        if turn.role != "assistant" and "<tool_call>" in turn.text:
            tools += [tool for line in turn.text.splitlines() if (tool := _parse_tool(line)) is not None]
    return replace(request, tools=tuple(tools)) if tools else request


def _parse_tool(line: str) -> ParsedTool | None:
    try:
        tool = json.loads(line) if line.startswith('{"name"') else None
    except ValueError:
        return None
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return None
    return ParsedTool("function", tool["name"], tool.get("parameters"))


def described_results(request: ParsedRequest) -> list[tuple[str, str]]:
    """Return (tool, text) for each result in the last message."""
    last = request.last
    return _RESULT.findall(last.text) if last is not None and last.role == "user" else []


def write_calls(calls: Sequence[RequestCall]) -> str:
    """Write calls as the blocks that the prompt requests."""
    return "\n".join(
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>' for call in calls
    )
