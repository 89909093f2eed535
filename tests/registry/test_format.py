"""`registry fmt`: white space and the order of keys change, values and comments never."""

from __future__ import annotations

import re
import time
import tomllib
from collections import Counter
from typing import Any

import pytest
import tomli_w
from builtin import written
from hypothesis import given
from hypothesis import strategies as st

from cnllm.registry.documents import read_sources
from cnllm.registry.read import catalogue_path
from cnllm.registry_files.toml_format import changed_lines, format_toml

from .support import BUILTIN

MADE = re.compile(r"#   .*|# ── .* ─+")  # lines of the contents and rules, which are made from the rest


def comments(text: str) -> Counter[str]:
    """The lines and ends of lines that are comments, by a rule of their own: no string of the texts here has a #."""
    found = (line[line.index("#") :].rstrip() for line in text.splitlines() if "#" in line)
    return Counter(comment for comment in found if not MADE.fullmatch(comment))


def kept(text: str) -> str:
    """The text in its form, after a check that it says the same and that a second run changes nothing."""
    out = format_toml(text, "x.toml")
    assert read_sources(tomllib.loads(out)) == read_sources(tomllib.loads(text))
    assert comments(out) == comments(text)
    assert format_toml(out, "x.toml") == out
    return out


def test_the_built_in_file_has_its_form() -> None:
    text = BUILTIN.read_text()
    assert list(changed_lines(text, format_toml(text, "providers.toml"))) == []
    kept(text)


@pytest.mark.long
def test_the_catalogue_keeps_what_it_says() -> None:
    text = catalogue_path().read_text()
    assert "#" in text
    kept(text)


def test_the_order_of_the_built_in_file_alone_makes_no_difference() -> None:
    """The tables of the built-in file, written by a library without comments, come out with the same values."""
    data = written()
    kept(tomli_w.dumps({key: data[key] for key in ("families", "providers", "sources")}))


KEYS = st.sampled_from(["title", "keys", "limits", "input", "reasoning", "unset", "call", "match", "base_url", "price"])
NAMES = st.sampled_from(["a", "home", "x.y", "it's", "a b", "a = b", "zai/glm", 'say "hi"'])
SCALARS = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_characters="#", exclude_categories=["Cs", "Cc"]), max_size=8),
    st.sampled_from(["two\nlines", '"""', "'''", "= [", "{ x"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=5)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.integers(),
        "providers": st.dictionaries(NAMES, TABLES, max_size=3),
        "models": st.dictionaries(NAMES, TABLES, max_size=3),
        "sources": TABLES,
        "aliases": st.dictionaries(NAMES, SCALARS, max_size=3),
    },
)
COMMENTS = st.sampled_from(["", "", "", "# a comment", "   # one further in", "\t", "# ── a rule ───", "# Contents:"])


@given(FILES, st.booleans(), st.lists(COMMENTS, max_size=30), st.sampled_from(["\n", "\r\n"]))
def test_a_made_file_keeps_what_it_says(data: dict[str, Any], multiline: bool, notes: list[str], newline: str) -> None:
    lines = tomli_w.dumps(data, multiline_strings=multiline).split("\n")
    if not any(quote in line for quote in ('"""', "'''") for line in lines):  # a comment in a string would be text
        places = [n for n, line in enumerate(lines) if line[:1] not in (" ", "]", "}", "\t")]
        for note, place in zip(notes, places, strict=False):
            lines[place] = f"{note}\n{lines[place]}" if note else lines[place]
    kept(newline.join("\n".join(lines).split("\n")))


def test_what_it_does() -> None:
    text = """schema   = 1
# Contents:
#   an old title


# ── one ──
# about home
[providers.home]
unset = ["price"]
keys = []
title = "Home"  # the house
tools.parallel=false
on.openai-chat.input = [
    "text",   # as it stands
]
[models."home/m"]
# what follows must not move
price = { input = 1 }
limits = { context = 1 }
# ── two ─────────────────────────────────────────────────────────────────────────────────────────────────
[sources]
b = { url = "b" }
a-longer-name = { url = "a" }
"""
    assert (
        kept(text)
        == """schema = 1
# Contents:
#   one
#   two

# ── one ──────────────────────────────────────────────────────────────────────
# about home
[providers.home]
title = "Home"  # the house
keys  = []
tools.parallel = false
unset = ["price"]
on.openai-chat.input = [
    "text",   # as it stands
]

[models."home/m"]
# what follows must not move
price  = { input = 1 }
limits = { context = 1 }

# ── two ──────────────────────────────────────────────────────────────────────
[sources]
a-longer-name = { url = "a" }
b = { url = "b" }
"""
    )


def test_very_long_lines_are_broken() -> None:
    """An inline table becomes a table, lists get lines; patterns and refusals stay, for nothing can break them."""
    codes = ", ".join(f'"code_of_an_error_{n}"' for n in range(20))
    rule = f'  {{ kind = "quota", code = [{codes}] }},'
    pattern = f"""  {{ kind = "rate", pattern = ['{"too many requests|" * 20}$'] }},"""
    tiers = ", ".join(f"{{ above = {n}00_000, input = {n}, output = {n} }}" for n in range(1, 9))
    price = f'price = {{ currency = "USD", input = 0.30, tiers = [{tiers}] }}  # in force'
    out = kept(f"""[providers.home]
errors = [
{rule}
{pattern}
]
[models."home/m"]
{price}
limits = {{ context = 1 }}
# of another
[models."home/n"]
""")
    assert {len(line) > 300 for line in out.splitlines() if line != pattern} == {False}
    assert pattern in out
    assert '[models."home/m"]\nlimits = { context = 1 }\n[models."home/m".price]  # in force\n' in out
    assert 'currency = "USD"\ninput    = 0.30\ntiers = [' in out
    assert '\n# of another\n[models."home/n"]\n' in out


def test_sources_stand_on_the_line_of_their_layer_where_it_is_short() -> None:
    cited = "".join(f'a-source-{n} = ["limits.context"]\n' for n in range(9))
    out = kept(f"""[models."home/m"]
limits = {{ context = 1 }}
[models."home/m".reasoning]
mode = "never"
[models."home/m".sources]
page = ["limits"]
list = {{ backs = ["reasoning"], how = "inferred" }}

[models."home/n"]
[models."home/n".sources]
{cited}
[models."home/o"]
[models."home/o".sources]
# a comment keeps its place
page = ["limits"]
""")
    line = 'sources = { page = ["limits"], list = { backs = ["reasoning"], how = "inferred" } }'
    assert f'limits  = {{ context = 1 }}\n{line}\n[models."home/m".reasoning]' in out
    assert f'[models."home/n".sources]\n{cited}' in out
    assert '[models."home/o".sources]\n# a comment keeps its place\n' in out


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("", ""),
        ("\n\n", ""),
        ("# only a comment", "# only a comment\n"),
        ("\ufeffa=1\r\n", "\ufeffa = 1\r\n"),
        ("x = nan\n", "x = nan\n"),
        ('a = """\n  # text \n\n\n"""  # said\n', 'a = """\n  # text \n\n\n"""  # said\n'),
    ],
)
def test_odd_texts_of_toml_are_formatted(text: str, formatted: str) -> None:
    assert format_toml(text, "x.toml") == formatted


def test_changed_lines_have_their_numbers() -> None:
    text = "a = 1\nlonger = 2\n\n\n\nb = 3\n"
    assert list(changed_lines(text, format_toml(text, "x"))) == [(1, "a      = 1"), (4, None), (5, None)]


def test_what_changes_in_a_long_file_is_found_in_linear_time() -> None:
    model = '[models."home/m{}"]  \nlimits = {{ context = 9 }}\n\nprice = {{ input = 2 }}\n\n'
    text = "".join(map(model.format, range(1500)))
    formatted = format_toml(text, "x")
    start = time.process_time()
    changes = list(changed_lines(text, formatted))
    format_toml(text.replace("\n", "\r\n", 1), "x")
    assert time.process_time() - start < 4
    assert changes[:2] == [(1, '[models."home/m0"]'), (6, '[models."home/m1"]')]


def test_a_blank_line_between_citations_is_no_form_that_cannot_be_kept() -> None:
    text = '[providers.a]\nextends = "b"\n[providers.a.sources]\n\nx = ["keys"]\n\ny = ["limits"]\n\n# below\n'
    out = format_toml(text, "x.toml")
    assert out == '[providers.a]\nextends = "b"\nsources = { x = ["keys"], y = ["limits"] }\n\n# below\n'


def test_a_long_line_whose_list_goes_on_behind_it_stays_as_it_is() -> None:
    long = ", ".join(f'"a long text number {number}"' for number in range(20))
    text = f"[providers.a]\nkeys = [{long}, [\n  1,\n]]\n"
    assert kept(text) == text
