"""Markers in any number take work in proportion to the text."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from cases import each
from examples import SHARE, some

import cnllm

from .support import REGISTRY, tool

TOOLS = [tool("f", a="string")]
LENGTH = 1500 if SHARE == 1 else 1000
UNITS = [
    "</tool_call>",
    "a </tool_call> b ",
    "<tool_call></invoke>",
    "</think><tool_call>",
    '<tool_call id="3">',
    "<minimax:tool_call>",
    "✿FUNCTION✿:",
    "`<think>",
    "<function=f></function>",
    "</tool_call>" + "\n" * 40,
]


def work(model: str, text: str, tools: object, size: int) -> int:
    """The number of calls that reading a text in pieces of a size takes."""
    filter_ = cnllm.Sanitizer(REGISTRY.resolve(model), tools)  # type: ignore[arg-type]
    count = 0

    def saw(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(saw)
    try:
        for start in range(0, len(text), size):
            filter_.feed(text[start : start + size])
        filter_.close()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.sampled
@each("model, tools", [("openai/gpt-4.1", None), ("minimax/MiniMax-M2.1", TOOLS)])
@each("unit", some(UNITS))
def test_four_times_the_markers_are_about_four_times_the_work(model: str, tools: object, unit: str) -> None:
    text = unit * (LENGTH // len(unit))
    for size in (7, len(text) * 4):
        work(model, unit * 20, tools, size)
        one, four = (work(model, text * times, tools, size) for times in (1, 4))
        assert four < 6 * one
        if size > len(text):
            assert one < 400 * (text.count("<") + text.count("✿") + text.count("\n") + 20)


@pytest.mark.parametrize("model", ["deepseek/deepseek-v4-flash", "zhipuai/glm-4.7", "moonshot/kimi-k2.5"])
@pytest.mark.parametrize("unit", ["<div class='a'><b>one</b></div>\n", "for (i = 0; i < n; i++) f<T>(a[i]);\n"])
def test_html_and_code_take_at_most_five_times_the_work_of_prose(model: str, unit: str) -> None:
    prose = "a sentence about nothing much. "
    counts = []
    for text in (prose, unit):
        work(model, text * 2, TOOLS, len(text))  # compiles the patterns
        counts.append(work(model, text * 40, TOOLS, len(text)))
    assert counts[1] < 5 * counts[0]
