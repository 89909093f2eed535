"""Tools that a prompt describes in words, for a model that takes none: read from it, and called in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.registry.flags import Flags
from cnllm.simulator.request import ParsedCall, ParsedRequest, ParsedTool

__all__ = ["described_results", "described_tools", "write_calls", "writes_calls_as_text"]

_RESULT = re.compile(r'<tool_result(?: name="([^"]*)")?[^>]*>\n(.*?)\n</tool_result>', re.DOTALL)


def writes_calls_as_text(flags: Flags) -> bool:
    """Does this model write its calls into the text?"""
    return flags.tools is not None and flags.tools.supported is False and flags.tools.otherwise == "prompt"


def described_tools(asked: ParsedRequest) -> ParsedRequest:
    """The request with the tools that its prompt describes: one JSON object on a line for each."""
    offers: list[ParsedTool] = []
    for turn in asked.turns:
        if turn.role != "assistant" and "<tool_call>" in turn.text:
            offers += [offer for line in turn.text.splitlines() if (offer := _offer(line)) is not None]
    return replace(asked, tools=tuple(offers)) if offers else asked


def _offer(line: str) -> ParsedTool | None:
    try:
        said = json.loads(line) if line.startswith('{"name"') else None
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    return ParsedTool("function", said["name"], said.get("parameters"))


def described_results(asked: ParsedRequest) -> list[tuple[str, str]]:
    """(tool, text) of the results that the last message holds."""
    last = asked.last
    return _RESULT.findall(last.text) if last is not None and last.role == "user" else []


def write_calls(calls: Sequence[ParsedCall]) -> str:
    """Calls as the blocks that the prompt asks for."""
    return "\n".join(
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>' for call in calls
    )
