"""Markers are compiled when a text holds something with which one begins, and not for every short call."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cnllm.leaks.markers import Markers, spelling_pattern
from cnllm.leaks.rules import Markup, unite_rules

SPELT = ("<tool_call>", "[TOOL_CALLS]", "<|tool_calls_section_begin|>", "<｜DSML｜function_calls>")
TEXT = st.lists(st.sampled_from([*SPELT, "<", "[", "|", "｜", "tool", "_", " ", "word"])).map("".join)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that are compiled from now on."""
    seen: list[str] = []
    real = re.compile

    def compile_(pattern: str, *more: Any) -> re.Pattern[str]:
        seen.append(pattern)
        return real(pattern, *more)

    monkeypatch.setattr(f"{Markers.__module__}.re.compile", compile_)
    return seen


def test_a_reply_without_a_first_character_compiles_no_marker(compiled: list[str]) -> None:
    found = Markers(SPELT)
    ready = len(compiled)
    for text in ("", "It is blue.", "It is blue because of how air scatters light. " * 20):
        assert (found.find(text), found.pending_length(text)) == (None, 0)
    assert len(compiled) == ready <= 1
    assert found.find("so: <tool_call>{") == (4, 15, 0)
    assert len(compiled) > ready


@given(TEXT, st.integers(0, 20))
def test_what_is_found_does_not_depend_on_what_was_asked_before(text: str, start: int) -> None:
    fresh, used = Markers(SPELT), Markers(SPELT)
    used.find("<tool_call>")
    used.pending_length("<tool_c")
    assert fresh.find(text, start) == used.find(text, start)
    assert fresh.pending_length(text) == used.pending_length(text)


@given(st.sampled_from([SPELT, ("Action:", "<call>", "</call>"), ("✿A✿:", " x", "｜a｜")]), st.data())
def test_the_hint_overlooks_no_marker_and_no_beginning_of_one(markers: tuple[str, ...], data: st.DataObject) -> None:
    found = Markers(markers)
    words = [*markers, *SPELT, *(marker[:4] for marker in markers), "<", "</", "[", "｜", "|", "_", " ", "a", "x", "✿"]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=6)))
    text = data.draw(st.sampled_from(["", "a < b " * 60])) + text[: data.draw(st.integers(0, len(text)))]
    assert found.may_begin(text) or (found.find(text) is None and found.pending_length(text) == 0)


@pytest.mark.parametrize("text", ["<div><p>a</p></div>", "if (a < b && c > d) f<T>(a[i])", "`x` [y](z)", "a <", "<to"])
def test_html_and_code_begin_no_marker_but_where_they_break_off(text: str) -> None:
    assert Markers(SPELT).may_begin(text) is (text in ("a <", "<to"))


@pytest.mark.parametrize("written", ["Action:", "action:", "ACTION:", "aCTION:"])
def test_the_case_of_a_first_letter_does_not_matter(written: str) -> None:
    markers = Markers(("Action:", "<call>"))
    assert markers.find(f"Well. {written} x") == (6, 13, 0)
    assert markers.may_begin(written)
    for length in range(1, len(written)):
        assert markers.pending_length(f"I 1 {written[:length]}") == length


@pytest.mark.parametrize("marker", SPELT)
def test_a_marker_of_a_long_text_is_found_behind_its_own_words(marker: str) -> None:
    for word in re.findall(r"[^\W_]+", marker):
        assert Markers(SPELT).find(f"{word} {marker} " + "a < b [c] ｜ " * 60) == (
            len(word) + 1,
            len(f"{word} {marker}"),
            SPELT.index(marker),
        )


LOOSE = ("<", "</", "/", ">", " ", "\n", "|", "‖", "｜", "_", "▁", "[", "]", "Tool", "tool", "calls", "think", "ſ", "K")


@given(st.lists(st.sampled_from([*SPELT, "</think>", "<|tool|>", *LOOSE]), max_size=12).map("".join), st.integers(0, 9))
def test_the_search_stops_at_the_first_place_where_a_marker_begins(text: str, start: int) -> None:
    markers = (*SPELT, "<tool>", "</tool>", "<think>", "</think>", "<|tool|>", "</｜tool｜>", "<|tool_calls|>", "<k>")
    patterns = [re.compile(spelling_pattern(marker), re.IGNORECASE) for marker in markers]
    places = [at for at in range(start, len(text)) if any(pattern.match(text, at) for pattern in patterns)]
    found = Markers(markers).find(text, start)
    assert (found and found[0]) == (places[0] if places else None)
    assert Markers(markers).may_begin(text) or not places


@pytest.mark.parametrize("marker", SPELT)
@pytest.mark.parametrize("before", [65_530, 65_536, 140_000])
def test_a_marker_is_found_between_two_spans_of_a_long_text(marker: str, before: int) -> None:
    text = ("a < b [c] " * (before // 10 + 1))[:before]
    for shift in range(0, 12, 3):
        found = Markers(SPELT).find(f"{text}{'.' * shift}{marker}.")
        assert found
        assert found[:2] == (before + shift, before + shift + len(marker))


def test_only_a_repeated_first_character_is_sought_everywhere() -> None:
    markers = Markers(("<call>", "✿A✿:", "[x]"))
    assert markers.pending_length("<p> ✿A✿") == 3
    assert markers.pending_length("✿A✿ <ca") == 3
    assert markers.pending_length("[x <cal") == 4


def test_rules_with_one_opener_are_one_where_their_parts_have_the_same_words() -> None:
    first = Markup(["<a>"], ["</a>"], ["json"], parts=["x"])
    same = Markup(["<a>", "<b>"], ["</a>"], ["pythonic", "json"], parts=["x"])
    other = Markup(["<a>"], ["</a>"], ["pythonic"], parts=["y"])
    without = Markup(["<a>"], ["</a>"], ["json"])
    assert unite_rules([first, same]) == [replace(first, format=["json", "pythonic"]), replace(same, open=["<b>"])]
    assert unite_rules([first, other]) == [first]
    assert unite_rules([without, other]) == [replace(without, format=["json", "pythonic"], parts={"pythonic": ["y"]})]
    assert unite_rules([first, Markup(["<a>"], ["</c>"], ["pythonic"], parts=["x"])]) == [first]
