"""Edits of single values keep every other byte of a registry file."""

from __future__ import annotations

import tomllib

from cnllm.registry_files.edit import remove_alias, set_alias, set_preference

FULL = """#:schema ./providers.schema.json
# mine

# the server at home
[providers.home]   # beside the desk
protocol = "openai-chat"

[aliases]
# short ones
fast = "deepseek/deepseek-flash" # quick = "yes"
"a.b" = 'zai/glm-4.7'   # dotted
[models."home/m"]
"""

FILES = [
    "",
    "\n",
    "# only a comment",
    FULL,
    FULL.replace("\n", "\r\n"),
    '[aliases]\nfast = "a/b"',
    'aliases.fast = "a/b"\n',
]


def data(text: str) -> dict[str, object]:
    return tomllib.loads(text.replace("\r\n", "\n"))


def comments(text: str) -> list[str]:
    return [part.strip() for line in text.splitlines() if "#" in line for part in [line[line.index("#") :]]]


def test_set_and_remove_keep_the_rest() -> None:
    for text in FILES:
        before = data(text)
        aliases = before.get("aliases", {})
        assert isinstance(aliases, dict)
        for name in ("fast", "FAST", "new", "ä b", 'q"q', "a.b"):
            out = set_alias(text, name, "zai/glm-4.7", "f")
            key = next((a for a in aliases if a.casefold() == name.casefold()), name)
            assert data(out) == {**before, "aliases": {**aliases, key: "zai/glm-4.7"}}
            assert comments(out) == comments(text)
            assert ("\r\n" in out) == ("\r\n" in text)
            gone = remove_alias(out, name.upper(), "f")
            left = {k: v for k, v in aliases.items() if k.casefold() != name.casefold()}
            assert (data(gone).get("aliases") or {}) == left
            if name == "new" and text.endswith("\n") and aliases:
                assert gone == text


def test_a_line_keeps_its_comment() -> None:
    out = set_alias(FULL, "fast", "zai/glm-4.7", "f")
    assert 'fast = "zai/glm-4.7" # quick = "yes"' in out
    assert len(out.splitlines()) == len(FULL.splitlines())


def test_an_inline_table_and_a_text_of_several_lines_are_edited() -> None:
    for text in ('aliases = { fast = "a/b" }\n', '[aliases]\nfast = """\na/b"""\n'):
        out = set_alias(text, "fast", "zai/glm-4.7", "f")
        assert data(out) == {"aliases": {"fast": "zai/glm-4.7"}}
        assert not data(remove_alias(out, "fast", "f")).get("aliases")


LISTS = [
    'prefer = ["a", "b", "c"]  # by price\n[x]\n',
    "prefer = [\n  'a', # the first\n  \"b\",\n  # China\n  'c'\n]\n",
    'prefer = [ "a","b" , "c", ] # ] "d"\n',
]


def test_dates_and_sources_do_not_stand_in_the_way() -> None:
    text = '[sources]\na = "read 2026-01-02 https://a.example/models"\n\n[models."p/m"]\nlaunched = 2026-01-02\n'
    out = set_alias(text, "fast", "p/m", "f")
    assert data(out) == {**data(text), "aliases": {"fast": "p/m"}}
    assert remove_alias(out, "fast", "f").startswith(text)
    assert data(set_preference(text, ["a", "b"], "f")) == {**data(text), "prefer": ["a", "b"]}


def test_every_order_of_preferences() -> None:
    from itertools import permutations

    wanted = [list(p) for size in range(5) for p in permutations("abcd", size)]
    for text in [*FILES, *LISTS]:
        before = data(text)
        for names in wanted:
            out = set_preference(text, names, "f")
            assert data(out) == {**before, "prefer": names}, (text, names, out)
            assert comments(out) == comments(text), (text, names, out)


def test_preferences_stand_before_the_first_table_and_its_comment() -> None:
    lines = set_preference(FULL, ["zai"], "f").splitlines()
    assert lines[:5] == ["#:schema ./providers.schema.json", "# mine", "", 'prefer = ["zai"]', ""]
    assert lines[5:7] == ["# the server at home", "[providers.home]   # beside the desk"]
