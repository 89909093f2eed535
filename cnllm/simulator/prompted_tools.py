"""Tools that a prompt describes in words, for a model that takes none: read from it, and called in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from cnllm.registry.flags import Flags
from cnllm.simulator.request import Asked, Call, Offer

__all__ = ["calls_in_words", "results_in_words", "tools_in_words", "written"]

_RESULT = re.compile(r'<tool_result(?: name="([^"]*)")?[^>]*>\n(.*?)\n</tool_result>', re.DOTALL)


def calls_in_words(flags: Flags) -> bool:
    """Does this model write its calls into the text?"""
    return flags.tools is not None and flags.tools.supported is False and flags.tools.otherwise == "prompt"


def tools_in_words(asked: Asked) -> Asked:
    """The request with the tools that its prompt describes: one JSON object on a line for each."""
    offers: list[Offer] = []
    for turn in asked.turns:
        if turn.role != "assistant" and "<tool_call>" in turn.text:
            offers += [offer for line in turn.text.splitlines() if (offer := _offer(line)) is not None]
    return replace(asked, tools=tuple(offers)) if offers else asked


def _offer(line: str) -> Offer | None:
    try:
        said = json.loads(line) if line.startswith('{"name"') else None
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    return Offer("function", said["name"], said.get("parameters"))


def results_in_words(asked: Asked) -> list[tuple[str, str]]:
    """(tool, text) of the results that the last message holds."""
    last = asked.last
    return _RESULT.findall(last.text) if last is not None and last.role == "user" else []


def written(calls: Sequence[Call]) -> str:
    """Calls as the blocks that the prompt asks for."""
    return "\n".join(
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>' for call in calls
    )
