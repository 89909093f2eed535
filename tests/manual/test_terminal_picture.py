"""The picture of a terminal shows a real run. `tests/manual/test_reference.py` checks that it is current."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from docs.generate import PICTURES, terminal
from docs.generate.terminal_screen import PLAIN, Run, Style, lines

from .pages import ROOT

TEXT = "{http://www.w3.org/2000/svg}text"
TEXTS = {file.stem: file.read_text(encoding="utf-8") for file in PICTURES}


@pytest.mark.parametrize("name", ["terminal-light", "terminal-dark"])
def test_the_picture_shows_reasoning_in_grey_a_tool_and_the_line_of_a_note(name: str) -> None:
    picture = ElementTree.fromstring(TEXTS[name])
    shown = [(text.get("class"), text.text or "") for text in picture.iter(TEXT)]
    assert any(kind == "dim" and "I call it first" in text for kind, text in shown)
    assert (None, "tool result: calc 391") in shown
    note = next(text for _, text in shown if text.startswith("note: params.temperature"))
    line = int(re.findall(r"providers\.toml:(\d+)", note)[0])
    assert "temperature" in (ROOT / "providers.toml").read_text(encoding="utf-8").splitlines()[line - 1]
    assert {text for kind, text in shown if kind == "bold"} == set(terminal.COMMANDS)


def test_pictures_are_the_same_but_for_the_seconds() -> None:
    one = "<text>9 in · 0.0 s to the first token</text>"
    assert terminal.same(one, one.replace("0.0", "12.3"))
    assert not terminal.same(one, one.replace("9 in", "8 in"))


def test_a_window_wraps_colors_and_erases_as_a_terminal_does() -> None:
    dim, red = Style(dim=True), Style(bold=True, color=1)
    assert lines("ab\x1b[2mcd\x1b[0me\r\nx", 4) == [
        [Run(0, 2, "ab", PLAIN), Run(2, 2, "cd", dim)],
        [Run(0, 1, "e", PLAIN)],
        [Run(0, 1, "x", PLAIN)],
    ]
    assert lines("你好吗", 5) == [[Run(0, 4, "你好", PLAIN)], [Run(0, 2, "吗", PLAIN)]]
    assert lines("one\r\ntwo\r\n\x1b[2F\x1b[J\x1b[1;31mnew\x1b[m\r\n", 80) == [[Run(0, 3, "new", red)], []]
    assert lines("one\r\n\x1b[?25ltwo\r\x1b[1A\x1b[2Knew\x1b[?25h", 80) == [
        [Run(0, 3, "new", PLAIN)],
        [Run(0, 3, "two", PLAIN)],
    ]
    assert lines("long\rsh", 80) == [[Run(0, 4, "shng", PLAIN)]]


@pytest.mark.parametrize("output", ["\x1b[3B", "\x1b[K", "\x1b[7mx", "\x1b]8;;u\x07", "\x1b[2J"])
def test_a_sequence_that_the_window_does_not_know_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="terminal_screen"):
        lines(output, 80)
