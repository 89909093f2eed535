"""Search: words in any script, of any length, in text and reasoning."""

from __future__ import annotations

from pathlib import Path

import pytest

from cnllm.store import Store

from .support import ask, reply


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path / "a.db")
    ask(found.conversation(), "Why is the sky blue?", reply("Rayleigh scattering, 100%.", "short waves"))
    ask(found.conversation(), "为什么天空是蓝色的？", reply("因为瑞利散射。", "波长短的光"))
    return found


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        (["sky"], ["user"]),
        (["RAYLEIGH"], ["assistant"]),
        (["leigh", "scat"], ["assistant"]),
        (["sky", "scattering"], []),
        (["short waves"], ["assistant"]),
        (["waves short"], []),
        (["scattering", "waves"], ["assistant"]),  # one in the text, one in the reasoning
        (["天空"], ["user"]),
        (["天"], ["user"]),
        (["为什么天空"], ["user"]),
        (["蓝色的", "天"], ["user"]),
        (["瑞利散射"], ["assistant"]),
        (["波长短"], ["assistant"]),
        (["天空", "散射"], []),
        (["0%"], ["assistant"]),
        (["%"], ["assistant"]),
        (["_"], []),
        (["\\"], []),
        (['"'], []),
        (['say "sky"'], []),
        (["sky*"], []),
        (["NOT", "sky"], []),
        ([""], []),
        ([], []),
    ],
)
def test_messages_with_all_the_words_are_found(store: Store, words: list[str], roles: list[str]) -> None:
    with store:
        assert [one.role for one in store.search(words)] == roles


def test_a_search_says_where_and_shows_what_is_around(store: Store) -> None:
    with store:
        (found,) = store.search(["波长"])
        assert (found.where, found.excerpt, found.model) == ("reasoning", "波长短的光", "zai/glm-4.7")
        ask(store.conversation(), "x " * 500 + "needle" + " y" * 500)
        (found,) = store.search(["needle"])
        assert found.excerpt.startswith("…x x")
        assert found.excerpt.endswith("y y…")
        assert len(found.excerpt) < 150


def test_what_came_since_the_last_search_is_found_newest_first(store: Store) -> None:
    with store:
        assert len(store.search(["sky"])) == 1
        for _ in range(3):
            ask(store.conversation(), "the sky again")
        found = store.search(["sky"])
        assert [one.turn for one in found] == sorted((one.turn for one in found), reverse=True)
        assert len(found) == 4
        assert store.search(["sky"], 2) == found[:2]


def test_a_forgotten_turn_is_found_no_more(store: Store) -> None:
    from .support import user

    with store:
        turn = store.conversation().turn([user("a secret plan")], model="zai/glm-4.7")
        assert len(store.search(["secret"])) == 1
        turn.forget()
        assert store.search(["secret"]) == []
        ask(store.conversation(), "another secret")
        assert len(store.search(["secret"])) == 1


def test_nothing_of_a_forgotten_turn_is_left_in_the_file(tmp_path: Path) -> None:
    from .support import user

    path = tmp_path / "a.db"
    with Store.open(path) as store:
        ask(store.conversation(), "the sky")
        turn = store.conversation().turn([user("xylophone quartz " * 5)], model="zai/glm-4.7")
        assert len(store.search(["xylophone"])) == 1
        turn.forget()
        assert [found.excerpt for found in store.search(["sky"])] == ["the sky"]
    left = path.read_bytes()
    assert b"xylophone" not in left
    assert b"xyl" not in left  # a word of the index
