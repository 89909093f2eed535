"""What models really wrote, as public parsers' tests have recorded it: whole, and cut at every place.

The texts are not part of the project; they are looked for beside the repository, and without them this skips.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each
from examples import SHARE

from .support import answers, called, read, told, tool, wire

TEXTS = Path(__file__).resolve().parents[3] / "shared" / "sanitizer"
ABSENT = "The recorded texts (../shared/sanitizer) are not here."

MODELS = {
    "deepseek-dsml": "deepseek/deepseek-flash",
    "deepseek-tokens": "deepseek/deepseek-chat",
    "ernie-hermes": "baidu/ernie-4.5-21b-a3b",
    "glm-xml": "zai/glm-4.7",
    "hunyuan-json": "tencent/hunyuan-a13b",
    "hunyuan-xml": "tencent/hy3",
    "kimi-tokens": "moonshotai/kimi-k2.5",
    "longcat-json": "longcat/longcat-flash-chat",
    "minimax-m3": "minimax/MiniMax-M3",
    "minimax-xml": "minimax/MiniMax-M2.5",
    "qwen-hermes": "alibaba/qwen3-32b",
    "qwen-xml": "alibaba/qwen3-coder-plus",
    "step-xml": "stepfun/step-3",
}
"""A model that writes each family's calls."""

KEEPS_MORE = {"deepseek-tokens/vllm-v31-two", "hunyuan-json/vllm-a13b-4", "minimax-xml/smg-m2-complete"}
"""The origin throws away what was said after the block; nothing is lost here."""

TAGGED = {"ernie-hermes/vllm-ernie45-tool-call-with-content-before"}
"""The origin keeps a closing tag of reasoning in the text."""

BROKEN = {"kimi-tokens/vllm-invalid-json-kept": ["bad"]}
"""Calls with arguments that are no JSON: they have a problem, as on the wire, and are not for running."""


def cases() -> list[Any]:
    files = sorted(TEXTS.glob("*.json"))
    if not files:
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))]
    return [pytest.param(case := json.loads(file.read_text()), id=case["id"]) for file in files]


def schema(value: Any) -> dict[str, Any]:
    """A schema of which this is an example, where the origin's tools are not given."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case list():
            return {"type": "array", "items": schema(value[0])} if value else {"type": "array"}
        case dict():
            return {"type": "object", "properties": {k: schema(v) for k, v in value.items()}}
        case None:
            return {"type": "null"}
        case _:
            return {"type": "string"}


def offered(case: dict[str, Any]) -> list[dict[str, Any]]:
    if "tools" in case:
        return list(case["tools"])
    calls = case["expected"].get("tool_calls") or [{"name": "nothing_else"}]
    return [tool(c["name"], **{k: schema(v) for k, v in c.get("arguments", {}).items()}) for c in calls]


def agree(case: dict[str, Any], found: Any) -> None:
    """What the case asserts holds."""
    expected, asserted = case["expected"], case["asserted"]
    calls = expected.get("tool_calls") or []
    if "names" in asserted:
        assert [c.name for c in found.tool_calls] == [c["name"] for c in calls]
    if "arguments" in asserted:
        assert [c.arguments for c in found.tool_calls] == [c.get("arguments", {}) for c in calls]
    if "no_calls" in asserted:
        assert found.tool_calls == []
    if "text" in asserted:
        text = (expected["text"] or "").strip()
        text = text.removesuffix("</think>").strip() if case["id"] in TAGGED else text
        assert found.text.startswith(text) if case["id"] in KEEPS_MORE else found.text.strip() == text
    assert all(c.via == "text" for c in found.tool_calls)
    assert [c.name for c in found.tool_calls if c.problem] == BROKEN.get(case["id"], [])
    assert all((c.arguments is None) == bool(c.problem) for c in found.tool_calls)
    markers = ("<tool_call", "<minimax", "invoke", "｜", "<|", "function=", "_begin")
    assert not [m for m in markers if m in found.text]


@each("case", lambda: cases())
def test_a_recorded_text_is_read_whole(case: dict[str, Any]) -> None:
    agree(case, read(MODELS[case["family"]], case["raw"], offered(case)))


@pytest.mark.sampled
@each("case", lambda: cases())
def test_a_recorded_text_is_read_as_it_was_streamed_and_cut_anywhere(case: dict[str, Any]) -> None:
    model, raw, tools = MODELS[case["family"]], case["raw"], offered(case)
    whole = read(model, raw, tools)
    splits = [[raw[:at], raw[at:]] for at in range(1 + len(case["id"]) % SHARE, len(raw), SHARE)]
    for pieces in [*splits, case.get("streamed_splits", [raw]), list(raw)]:
        events, reply = answers(model, wire(pieces), tools)
        agree(case, reply)
        assert (reply.text, called(reply)) == (whole.text, called(whole)), pieces
        assert told(events) == (reply.text, reply.reasoning, called(reply))
        assert reply.finish == ("tool_calls" if reply.tool_calls else "stop")
