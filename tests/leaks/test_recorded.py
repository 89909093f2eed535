"""Model outputs that were recorded elsewhere: each block among them comes to the calls it stands for.

The recordings are not part of the project. They are looked for in `../shared/sanitizer` beside the repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

from cnllm.leaks import grammars
from cnllm.leaks.markers import Markers
from cnllm.leaks.rules import Markup

from . import rules

SANITIZER = Path(__file__).resolve().parents[3] / "shared" / "sanitizer"
CASES = sorted(SANITIZER.glob("*.json"))

FAMILIES: dict[str, Markup] = {
    "deepseek-dsml": rules.BARRED,
    "deepseek-tokens": rules.TOKENS,
    "ernie-hermes": rules.HERMES,
    "glm-xml": rules.HERMES,
    "hunyuan-json": rules.LIST,
    "hunyuan-xml": rules.LIST,
    "kimi-tokens": rules.PIPES,
    "longcat-json": rules.WORDED,
    "minimax-m3": rules.PREFIXED,
    "minimax-xml": rules.SPACED,
    "qwen-hermes": rules.HERMES,
    "qwen-xml": rules.HERMES,
    "step-xml": rules.TOKENS,
}
ORDER = {
    "user_id": {"type": "integer"},
    "urgent": {"type": "boolean"},
    "shipping": {"properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
    "items": {"type": "array", "items": {"properties": {"sku": {"type": "string"}, "qty": {"type": "integer"}}}},
}
TOOLS: dict[str, Any] = {"create_order": {"type": "object", "properties": ORDER}}
"""The tool of two recordings, which leave it out."""


def blocks(rule: Markup, text: str) -> list[tuple[str, str]]:
    """(opener, block) of each block, as a filter would cut them out."""
    openers, closers = Markers.copy(tuple(rule.open)), Markers.copy(tuple(rule.close))
    out: list[tuple[str, str]] = []
    at = 0
    while opening := openers.find(text, at):
        closing = closers.find(text, opening[1])
        while closing and grammars.ends_inside_value(rule, text[opening[0] : closing[0]]):
            closing = closers.find(text, closing[1])
        assert closing, "the block is not closed"
        out.append((text[opening[0] : opening[1]], text[opening[0] : closing[1]]))
        at = closing[1]
    return out


def calls(rule: Markup, text: str, tools: dict[str, Any]) -> list[grammars.ParsedCall]:
    found: list[grammars.ParsedCall] = []
    for opener, block in blocks(rule, text):
        assert grammars.may_begin(rule, opener, block[len(opener) :]) is not False
        found += grammars.read(rule, opener, block, tools)[0]
    return found


@pytest.mark.skipif(not CASES, reason="The recorded outputs (../shared/sanitizer) are not here.")
@each("path", CASES, ids=lambda path: path.stem)
def test_a_recorded_block_comes_to_its_calls(path: Path) -> None:
    case = json.loads(path.read_text())
    expected = case["expected"]["tool_calls"]
    offered = [tool["function"] for tool in case.get("tools") or []]
    tools = {tool["name"]: tool.get("parameters") for tool in offered} or (TOOLS if "m3" in path.stem else {})
    found = calls(FAMILIES[case["family"]], case["raw"], tools)
    assert [call.name for call in found] == [call["name"] for call in expected]
    if "arguments" in case["asserted"]:
        assert [call.arguments for call in found] == [call["arguments"] for call in expected]
