"""Thinking between tags: told apart the same way whatever the pieces, and nothing else touched."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from cases import each
from examples import share
from hypothesis import given
from hypothesis import strategies as st

from cnllm.engine.decode.stage import Item
from cnllm.engine.decode.think_tags import ThinkTags
from cnllm.protocols.pieces import ReasoningPiece, TextPiece
from cnllm.types import Note

from .support import Work, cuts, times

TAGS = ["<think>", "</think>"]
OPENING = re.compile(r"<\s{0,2}think\s{0,4}>", re.IGNORECASE)  # models write tags loosely
CLOSING = re.compile(r"<\s{0,2}/\s{0,2}think\s{0,4}>", re.IGNORECASE)
LONGEST = 300  # characters of a tag with its attributes, of which there are at most 256
PLACES = ("start", "start-open")

LOOSE = ["< think>", "< / Think >"]
PIECES = ["<", "<th", "think>", "</", "</think", " ", "\n", "a", "好b", "<b>", "x" * 30, " " * 6]
bits = st.sampled_from([*TAGS, *LOOSE, *PIECES])
answers = st.lists(bits | st.text(max_size=4), max_size=12).map("".join)
places = st.sampled_from(PLACES)


class Splitter:
    """A stage of its own, whose items are pieces of (is it thinking, text). `stray`: the closing tags it removed."""

    def __init__(self, tags: list[str], at: str) -> None:
        self.stage = ThinkTags(tags, at, lambda text: text)
        self.stray = ""

    def feed(self, text: str) -> list[tuple[bool, str]]:
        return self._pieces(self.stage.feed(TextPiece(text))) if text else []

    def close(self) -> list[tuple[bool, str]]:
        return self._pieces(self.stage.end(proven=True))

    def _pieces(self, items: list[Item]) -> list[tuple[bool, str]]:
        self.stray += "".join(item.said for item in items if isinstance(item, Note))
        return [
            (type(item) is ReasoningPiece, item.text) for item in items if isinstance(item, TextPiece | ReasoningPiece)
        ]


def split(parts: list[str], at: str, tags: list[str] = TAGS) -> tuple[str, str]:
    """(thinking, answer)."""
    splitter = Splitter(tags, at)
    found = [piece for part in parts for piece in splitter.feed(part)]
    found += splitter.close()
    assert all(text for _, text in found)
    return "".join(t for inside, t in found if inside), "".join(t for inside, t in found if not inside)


def reference(text: str, at: str) -> tuple[str, str]:
    """The same, with the whole text in hand. Up to eight closing tags that close nothing are left out."""
    thought = said = ""
    inside, spare = at == "start-open", 8
    rest = text.lstrip()
    if len(text) - len(rest) > len(TAGS[0]):  # so much white space is not waited for
        if at == "start":
            return "", text
    elif inside:
        text = rest[tag.end() :] if (tag := OPENING.match(rest)) else text
    elif OPENING.match(rest) or CLOSING.match(rest):
        while spare and (tag := CLOSING.match(rest)):
            spare -= 1
            rest = rest[tag.end() :].lstrip()
        tag = OPENING.match(rest)
        inside = tag is not None
        text = rest[tag.end() :] if tag else rest
        if at == "start" and not inside:
            return "", text
    elif at == "start":
        return "", text
    while text:
        if inside:
            tag = CLOSING.search(text)
            thought += text[: tag.start()] if tag else text
            text = text[tag.end() :].lstrip() if tag else ""
            while spare and (tag := CLOSING.match(text)):
                spare -= 1
                text = text[tag.end() :].lstrip()
            if at != "anywhere":
                return thought, text
        else:
            tag = OPENING.search(text)
            said += text[: tag.start()] if tag else text
            text = text[tag.end() :] if tag else ""
        inside = not inside
    return thought, said


def solid(text: str) -> int:
    """How many characters are no white space, which is dropped behind a closing tag that is left out."""
    return len("".join(text.split()))


def cut(text: str, where: list[int]) -> list[str]:
    at = [0, *sorted(w % (len(text) + 1) for w in where), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


@times(250)
@given(answers, cuts, places)
def test_any_pieces_give_what_the_whole_text_gives(text: str, where: list[int], at: str) -> None:
    assert split(cut(text, where), at) == split([text], at) == split(list(text), at) == reference(text, at)


@each("tag", ["< think>", "<think >", "< THINK >", "<\nthink>"])
def test_a_tag_that_is_written_loosely_is_one_also_where_nothing_follows(tag: str) -> None:
    assert split(list(tag), "start") == reference(tag, "start") == ("", "")
    assert split([f"{tag}a</ think >b"], "start") == reference(f"{tag}a</ think >b", "start") == ("a", "b")


@times(100)
@given(st.text(), cuts, st.sampled_from(["start"]))
def test_a_text_without_tags_comes_out_as_it_went_in(text: str, where: list[int], at: str) -> None:
    if not OPENING.search(text):
        assert split(cut(text, where), at) == ("", text)


@times(100)
@given(answers, cuts, places)
def test_text_before_the_first_thinking_rules_it_out_unless_it_may_stand_anywhere(
    text: str, where: list[int], at: str
) -> None:
    said = "x" + text
    if at == "start":
        assert split(cut(said, where), at) == ("", said)


@times(150)
@given(answers.map(str.lstrip), places)
def test_no_more_is_held_back_than_a_tag(text: str, at: str) -> None:
    splitter = Splitter(TAGS, at)
    said = ""
    for count, char in enumerate(text, 1):
        said += "".join(piece for inside, piece in splitter.feed(char) if not inside)
        size = solid if splitter.stray else len
        held = size(text[:count]) - size(said) - size("".join(splitter.stage.raw)) - size(splitter.stray)
        has_space = re.match(
            r"</?(?:think)?\s", splitter.stage.pending.lstrip(), re.IGNORECASE
        )  # attributes may follow
        assert 0 <= held < (LONGEST if has_space else len(TAGS[1]))


@each("at", ["start"])
@each("length", lambda: range(1, len("<think>")))
def test_a_partial_tag_at_the_end_is_text(at: str, length: int) -> None:
    assert split(list(" <think>"[: length + 1]), at) == ("", " <think>"[: length + 1])


@each("at", PLACES)
@each("length", lambda: range(1, len("</think>")))
def test_a_partial_closing_tag_at_the_end_is_thinking(at: str, length: int) -> None:
    assert split(list("<think>hm" + "</think>"[:length]), at) == ("hm" + "</think>"[:length], "")


@each("at", PLACES)
def test_an_unclosed_block_is_thinking_to_the_end(at: str) -> None:
    splitter = Splitter(TAGS, at)
    assert splitter.feed("<think>a < b") == [(True, "a < b")]
    assert splitter.feed(" c") == [(True, " c")]


def test_the_template_may_have_opened_the_block() -> None:
    assert split(["hm</think>\n\nyes"], "start-open") == ("hm", "yes")
    assert split(["<think>hm</think>\n\nyes"], "start-open") == ("hm", "yes")
    assert split(["</think>yes"], "start-open") == ("", "yes")


@times(100)
@given(answers, cuts)
def test_without_an_opening_tag_the_text_up_to_the_closing_one_is_thinking(text: str, where: list[int]) -> None:
    thought, tag, said = text.partition("|answer|")
    for at in PLACES:
        assert split(cut(text, where), at, ["", "|answer|"]) == (thought, said.lstrip())
    found = split(cut(f"{text}|answer|yes", where), "start", ["", "|answer|"])
    assert found == (thought, f"{said}|answer|yes".lstrip() if tag else "yes")


def test_tags_in_the_answer_stay_in_it_where_thinking_comes_first() -> None:
    assert split(["<think>a</think>use <think>b</think>"], "start") == ("a", "use <think>b</think>")


@times(100)
@given(answers, cuts, places)
def test_what_the_blocks_were_is_kept_as_written(text: str, where: list[int], at: str) -> None:
    splitter = Splitter(TAGS, at)
    found = [piece for part in cut(text, where) for piece in splitter.feed(part)]
    found += splitter.close()
    said = "".join(t for inside, t in found if not inside)
    if splitter.stray:
        assert solid("".join(splitter.stage.raw)) + solid(said) + solid(splitter.stray) == solid(text)
        return
    assert len("".join(splitter.stage.raw)) + len(said) == len(text)
    if at != "anywhere":
        assert "".join(splitter.stage.raw) + said == text


def work(text: str, at: str) -> int:
    splitter = Splitter(TAGS, at)
    with Work() as counted:
        for char in text:
            splitter.feed(char)
        splitter.close()
    return counted.done


@pytest.mark.share(3)
@pytest.mark.sampled
@each("at", PLACES)
@each("unit", ["x", "<", "</think", "<think>", "</think>", "<think>a</think>", " x"])
@each("head", ["", "<think>", "<think>a</think>"])
def test_four_times_the_text_is_about_four_times_the_work(head: str, unit: str, at: str) -> None:
    count = share(100)
    assert work(head + unit * 4 * count, at) < 6 * work(head + unit * count, at)


@each("at", PLACES)
def test_leading_white_space_takes_linear_time_too(at: str) -> None:
    assert work(" " * 400, at) < 6 * work(" " * 100, at)
