"""Which lines of a Markdown text are code: what stands there is quoted, and no call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm.leaks.structure import MarkdownStructure

Lines = list[tuple[str, str]]


def kinds(lines: Sequence[str]) -> list[str]:
    structure = MarkdownStructure()
    return [structure.read(line)[0] for line in lines]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["text", "    not code, because a paragraph goes on"], []),
        (["", "    code"], [1]),
        (["- item", "", "      code of the item"], [2]),
        (["- item", "", "    text of the item"], []),
        (["1. 2. ```", "    - text", "2.   ```"], [0, 2]),
        (["2.", "-", "2. 1. 2. text", ">   `x`", "2. 2. ```"], [4]),
        (["> ```", "code in the quote is over here"], [0]),
        (["> ```", "> code"], [0, 1]),
        (["```", "- x", "~~~", "``", "```", "text"], [0, 1, 2, 3, 4]),
        (["~~~~", "~~~", "~~~~~", "text"], [0, 1, 2]),
        (["- ```", "text"], [0]),
        (["- ```", "  code", "", "  code"], [0, 1, 2, 3]),
        (["text", "2. text of the paragraph", "", "     code"], [3]),
        (["text", "1. item", "", "   text"], []),
        (["text", "- item", "", "    text of the item"], []),
        (["text", "*", "      text of the paragraph"], []),
    ],
)
def test_the_lines_that_are_code(lines: list[str], code: list[int]) -> None:
    assert [number for number, kind in enumerate(kinds(lines)) if kind == "code"] == code


def test_raw_html_begins_a_paragraph_with_its_first_line() -> None:
    structure = MarkdownStructure()
    lines = ["<pre>", "- x", "</pre>", "text", "more", "", "text"]
    read = [structure.read(line) for line in lines]
    assert [kind for kind, _, _ in read] == ["raw", "raw", "raw", "prose", "prose", "blank", "prose"]
    assert [begins for _, _, begins in read] == [True, False, False, True, False, False, True]


PARAGRAPH: st.SearchStrategy[Lines] = st.sampled_from([[("text", "prose")], [("a `b`", "prose"), ("c", "prose")]])
FENCE: st.SearchStrategy[Lines] = st.sampled_from(
    [
        [("```", "code"), ("- x", "code"), ("> x", "code"), ("```", "code")],
        [("~~~ py", "code"), ("```", "code"), ("    x", "code"), ("~~~", "code")],
    ]
)


def container(blocks: st.SearchStrategy[list[Lines]]) -> st.SearchStrategy[Lines]:
    """A list item or a quote with blocks in it, and a blank line behind each of them."""

    def written(blocks: list[Lines], mark: str) -> Lines:
        inner = [line for block in blocks for line in [*block, ("", "blank")]][:-1]
        rest = "> " if mark == "> " else " " * len(mark)
        out = [((mark if at == 0 else rest) + text, kind) for at, (text, kind) in enumerate(inner)]
        return [(text.rstrip(), kind) for text, kind in out]

    return st.builds(written, blocks, st.sampled_from(["- ", "1. ", "10) ", "> "]))


BLOCKS = st.recursive(PARAGRAPH | FENCE, lambda inner: container(st.lists(inner, min_size=1, max_size=3)), max_leaves=8)


@examples(200)
@given(BLOCKS)
def test_blocks_within_blocks_are_read_as_they_were_written(block: Lines) -> None:
    expected = ["code" if kind == "code" else "other" for _, kind in block]
    assert ["code" if kind == "code" else "other" for kind in kinds([text for text, _ in block])] == expected


def test_no_more_containers_are_opened_than_a_text_can_need() -> None:
    for mark in ("> ", "- ", "> - "):
        structure = MarkdownStructure()
        for line in (mark * 1000 + "x", mark * 1000 + "x"):
            assert len(structure.read(line)[1]) > 100
