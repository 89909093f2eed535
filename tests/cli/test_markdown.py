"""Markdown on a terminal: blocks are formatted once, nothing is lost, pipes get the text as it came."""

from __future__ import annotations

import re
import sys

import pexpect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm.cli.output.markdown import MarkdownBlocks

from .support import DONE, HEAD, Machine, Server, chunk, texts

_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([a-zA-Z])")
BLOCKS = [
    "# Title\n",
    "Some **bold** text with `code` and a [link](https://example.com/a_b) that is long enough for a second line.\n\n",
    "- one\n- two **x**\n  - inner\n\n",
    "3. third\n4. fourth\n\n",
    "1. same\n1. same\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
    "> a quote **here**\n\n",
    "```python\ndef f(x):\n    return x  # **not bold**\n\n    # after a blank line\n```\n",
    "~~~\n```\n~~~\n",
    "HTML <b>stays</b>, so does **this**.\n\n",
    "<think>hidden?</think>\n\n",
    "Formula \\(a_b\\) and $x^2$ **too**\n\n",
    "![picture](https://example.com/p.png)\n\n",
    "[name]: https://example.com/hidden\n\n",
    "中文 **粗体** 文字，“引号”很长很长很长很长很长很长很长很长很长很长很长很长很长很长很长。\n\n",
    "emoji 🎉 **party** and a\ttab\n\n",
    "plain\ntext\n\n",
    "text\n```\nopen at the end\n",
    "* a\n\n  second paragraph of **a**\n",
    "Title\n=====\n",
    "&amp; &lt;b&gt; **x**\n\n",
    "w" * 90 + " **wide**\n\n",
]


class Screen:
    """As much of a terminal as the program uses: text that wraps, new lines, up, erase below."""

    def __init__(self, columns: int, height: int) -> None:
        self.columns, self.height = columns, height
        self.rows: list[list[str]] = [[]]
        self.row = 0
        self.lowest = 0

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            if match := _SEQUENCE.match(text, at):
                self._control(match[1], match[2])
                at = match.end()
                continue
            self._put(text[at])
            at += 1

    def _control(self, number: str, kind: str) -> None:
        if kind == "F":
            top = max(0, len(self.rows) - self.height)
            assert self.row - int(number) >= top, "it goes up further than the screen is high"
            self.row -= int(number)
            self.rows[self.row] = self.rows[self.row][:]
            self.column = 0
        elif kind == "J":
            self.rows = [*self.rows[: self.row], []]
        else:
            assert kind == "m", kind

    def _put(self, char: str) -> None:
        from cnllm.cli.output.terminal import display_width

        if char == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
            return
        width = display_width(char)
        line = self.rows[self.row]
        if sum(map(display_width, line)) + width > self.columns:
            self.row += 1
            self.rows.append([])
            line = self.rows[self.row]
        line.append(char)

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.rows)


def render(pieces: list[str], columns: int = 60, height: int = 40) -> str:
    screen = Screen(columns, height)
    blocks = MarkdownBlocks(screen.write, lambda: (columns, height))
    for piece in pieces:
        blocks.write(piece)
    blocks.end()
    return screen.text


def letters(text: str) -> list[str]:
    return sorted(char for char in text if char.isalnum())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6),
    st.lists(st.integers(1, 400), max_size=8),
    st.sampled_from([20, 60, 80]),
    st.sampled_from([4, 12, 40]),
)
def test_no_letter_is_lost_however_the_text_is_cut(
    blocks: list[str], cuts: list[int], columns: int, height: int
) -> None:
    text = "".join(blocks)
    whole = render([text], columns, height)
    info = re.sub(r"(?m)^(\s*(?:```|~~~))\w+$", r"\1", text)
    assert letters(re.sub(r"(?m)^(\s*(?:```|~~~))\w+$", r"\1", whole)) == letters(info)
    at, pieces = 0, []
    for cut in sorted(cuts):
        pieces.append(text[at:cut])
        at = max(at, cut)
    assert render([*pieces, text[at:]], columns, height) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title\n", "Title"),
        ("Some **bold** and `code`\n", "Some bold and code"),
        ("A [link](https://example.com/a)\n", "A link (https://example.com/a)"),
        ("Stays <b>**as it is**</b>\n", "Stays <b>**as it is**</b>"),
        ("2. two\n3. three\n", " 2 two\n 3 three"),
        ("1. one\n1. one again\n", "1. one\n1. one again"),
        ("`a`\n```sh\nls -l  # x\n```\n", "a\n```sh\nls -l  # x\n```"),
        ("no markup at all\n", "no markup at all"),
    ],
)
def test_a_block_is_shown_so(text: str, expected: str) -> None:
    assert render([text]).strip("\n") == expected


def test_what_has_scrolled_away_is_left_alone() -> None:
    long = "".join(f"line {number} **x**\n" for number in range(30))
    assert "**x**" in render([long], height=10)


def test_a_terminal_gets_it_formatted_and_a_pipe_does_not(machine: Machine) -> None:
    answer = [HEAD, texts("**bo", "ld** word\n\n", "done"), chunk("stop"), DONE]
    with Server(answer, answer, answer, answer) as peer:
        machine.overlay(peer.url)
        piped = machine.run("call", "-m", "home/m", "hi")
        assert piped.out == "**bold** word\n\ndone\n"
        shown = {}
        for option in ((), ("--plain",)):
            child = pexpect.spawn(
                sys.executable,
                ["-m", "cnllm", "call", "-m", "home/m", *option, "hi"],
                env={**machine.env, "TERM": "xterm-256color"},
                encoding="utf-8",
                dimensions=(24, 80),
                timeout=30,
            )
            screen = Screen(80, 24)
            screen.write(child.read().replace("\r", ""))
            child.close()
            assert child.exitstatus == 0
            shown[option] = screen.text
    assert shown[()].startswith("bold word\n\ndone\n")
    assert shown[("--plain",)].startswith("**bold** word\n\ndone\n")
    assert re.search(r"\d s to the first token", shown[()])
