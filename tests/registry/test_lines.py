"""The line of every key: what tomllib reads, this scanner finds, and where it stands."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.registry.documents import Document
from cnllm.registry.toml_lines import Lines, key_lines, line_of

from .support import BUILTIN, UNHURRIED

Keys = tuple[str, ...]


def paths(data: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every key of a document with its value, numbers standing for places in lists."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        here = (*path, str(key))
        yield here, value
        yield from paths(value, here)


def nearest(lines: Lines, path: Keys) -> int | None:
    """The line of a key, or of the nearest table around it."""
    return next((lines[k] for n in range(len(path), 0, -1) if (k := "\0".join(path[:n])) in lines), None)


# ── documents made by hand: every statement says in a comment which key it sets ──
HAND = {
    "plain": 'a = 1\n\n# b = 2\nc = "d"\n',
    "dotted": 'a.b.c = 1\na.b.d = 2\n"x.y".z = 3\n\'q"r\'."s\\u0074" . u = 4\n',
    "tables": "[a]\nx = 1\n[a.b]\nx = 2\n[ c . d ]\nx = 3\n\t[e]  # [f]\nx = 4\n",
    "quoted tables": "['a/b.c']\nx = 1\n[\"a]b\"]\nx = 2\n['#'.\"[[\"]\nx = 3\n[\"\"]\n'' = 4\n",
    "array of tables": "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 1\n[[a.c]]\nz = 1\n[[a.c]]\n[[a]]\n[a.b]\ny = 2\n",
    "brackets in comments": "a = 1 # [b]\n# [c]\nd = [ # ]\n  1, # [[\n  2,\n] # {\ne = 1\n",
    "quotes in comments": "a = 1 # \"\"\"\nb = 2 # '''\nc = [1, # '\n 2] # \"\nd = 4\n",
    "multi-line array": 'a = [\n  "x = 1",\n  "[b]", # ]\n  [1, 2], [\n    3 ],\n]\nb = 2\n',
    "multi-line string": 'a = """\n[b]\nc = 1\n\\"""\n"" \' \\\\""" # """\nd = 2\n',
    "literal string": "a = '''\n[b]\n\\'''\nb = 2\nc = ''' \"\"\" '''\nd = 4\n",
    "quotes at the end": 'a = ["""x"""", "y#"]\nb = ["""x""""", \'\'\'y\'\'\'\', \'#[\']\nc = """"""\nd = """""""\n',
    "string full of quotes": 'a = "#[{\\""\nb = \'#[{\\\'\nc = "\'"\nd = \'"""\'\ne = "\'\'\'"\nf = 1\n',
    "inline tables": "a = { b = 1, c = { d = [ { e = 1 } ] } }\nf.g = { h = '}' }\ni = {}\nj = []\n",
    "escaped backslash": 'a = "\\\\"\nb = """\\\\"""\nc = """\n\\\\\\""""\nd = 1\n',
    "values": "a = 1979-05-27T07:32:00Z\nb = 07:32:00\nc = +1_000.5e-3\nd = 0xAF\ne = -inf\nf = true\n",
    "no last line end": "a = 1\n[b]\nc = 2",
    "sub-table first": "[a.b.c]\nx = 1\n[a]\nx = 2\n[a.b]\nx = 3\n",
    "bare numbers": "1 = 1\n-a_ = 2\n2026-01-01 = 3\n",
}


@each("name", lambda: list(HAND))
@each("ends", ["\n", "\r\n"])
def test_every_key_stands_on_a_line_that_holds_it(name: str, ends: str) -> None:
    text = HAND[name]
    data = tomllib.loads(text)
    document = Document(Path("x"), "x", text.replace("\n", ends).encode(), data, builtin=False)
    lines = text.split("\n")
    for path, _ in paths(data):
        number = document.line(list(path))
        assert number is not None
        key = next(key for key in reversed(path) if not key.isdigit() or key in data)
        assert bare(key) in bare(lines[number - 1])
    assert {tuple(key.split("\0")) for key in key_lines(text)} <= {path for path, _ in paths(data)}


def bare(text: str) -> str:
    return text.replace("\\u0074", "t").replace("\\", "")


def test_a_table_that_only_its_sub_tables_name_stands_at_the_first() -> None:
    text = "\n[a.b.c]\nx = 1\n[[d.e]]\n[d.e.f]\n[a]\n"
    meant = {"a": 6, "a.b": 2, "a.b.c": 2, "a.b.c.x": 3, "d": 4, "d.e": 4, "d.e.0": 4, "d.e.0.f": 5}
    assert key_lines(text) == {key.replace(".", "\0"): number for key, number in meant.items()}
    for key, number in meant.items():
        assert line_of(text.encode(), key.split(".")) == number


def test_what_is_not_there_stands_at_the_nearest_table_or_nowhere() -> None:
    text = "[a]\nx = { y = 1 }\n[a.b]\nz = 1\n"
    assert [
        line_of(text.encode(), path)
        for path in (["a", "b", "q"], ["a", "x", "y"], ["a", "q"], ["q"], ["a", "b", "z", "q"])
    ] == [
        3,
        2,
        1,
        None,
        4,
    ]


def test_a_header_inside_a_string_or_an_array_is_none() -> None:
    for opened, closed in (('"""', '"""'), ("'''", "'''"), ("[", "]")):
        inside = '["a"],\n[\n"a"\n],' if opened == "[" else "[a]\nx = 1"
        text = f"b = {opened}\n{inside}\n{closed}\n[a]\nx = 2\n"
        number = text.split("\n").index("x = 2") + 1
        assert tomllib.loads(text)["a"] == {"x": 2}
        assert line_of(text.encode(), ["a", "x"]) == key_lines(text)["a\0x"] == number


# ── documents made by chance ─────────────────────────────────────────────────
KEYS = st.sampled_from(["a", "b", "c-d", "1", "a.b", "a b", 'q"', "'", "[a]", "#", "é", "x/y", "", "\\", "="])
PIECES = [
    "[a]",
    "[[a]]",
    "a = 1",
    '"',
    "'",
    "#",
    "\\",
    "]",
    "[",
    "{",
    "}",
    '""',
    "''",
    "=",
    "\n",
    "\n",
    "é",
    "[a.b]\nb = 2",
]
TEXT = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
SCALARS = st.one_of(TEXT, st.integers(-9, 9), st.booleans(), st.sampled_from([0.5, 1e20]))
VALUES = st.recursive(
    SCALARS, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(KEYS, v, max_size=3)), max_leaves=8
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


@UNHURRIED
@given(DOCUMENTS)
def test_the_keys_found_are_those_of_tomllib(data: dict[str, Any]) -> None:
    text = tomli_w.dumps(data)
    every = dict(paths(tomllib.loads(text)))
    lines = key_lines(text)
    assert {tuple(key.split("\0")) for key in lines} <= set(every)
    statements = {path for path in every if nearest(lines, path) == lines.get("\0".join(path))}
    # what has no line of its own is inside of an inline value, which has one
    for path in set(every) - statements:
        outer = next(path[:n] for n in range(len(path), 0, -1) if "\0".join(path[:n]) in lines)
        written = text.split("\n")[lines["\0".join(outer)] - 1].partition(" = ")[2]
        assert written[:1] in ("[", "{")


@UNHURRIED
@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_every_key_of_any_layout_is_on_its_line(data: dict[str, Any], chance: random.Random) -> None:
    writer = Writer(chance)
    writer.table(data, ())
    text = "\n".join(writer.out)
    assert tomllib.loads(text) == data
    assert key_lines(text) == {"\0".join(path): line for path, line in {**writer.implied, **writer.said}.items()}
    for path, _ in paths(data):
        assert line_of(text.encode(), list(path)) == nearest(key_lines(text), path)


class Writer:
    """TOML in every manner of writing, with a record of what each line says."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.out: list[str] = []
        self.said: dict[Keys, int] = {}
        self.implied: dict[Keys, int] = {}

    def table(self, data: dict[str, Any], path: Keys, header: Keys = ()) -> None:
        """What stands in a table: its own statements first, then the tables with headers of their own."""
        below: list[tuple[str, Any]] = []
        for key in self.chance.sample(list(data), len(data)):
            value = data[key]
            tables = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
            if (isinstance(value, dict) or tables) and self.chance.random() < 0.6:
                below.append((key, value))
            else:
                self.statement((key,), value, path)
        for key, value in below:
            here, named = (*path, key), (*header, key)
            if isinstance(value, dict):
                if self.chance.random() < 0.7 or not any(isinstance(v, dict) and v for v in value.values()):
                    self.header(named, here, "[", "]")
                    self.table(value, here, named)
                else:
                    self.without(value, here, named)
            else:
                for number, item in enumerate(value):
                    self.header(named, (*here, str(number)), "[[", "]]")
                    self.table(item, (*here, str(number)), named)

    def without(self, data: dict[str, Any], path: Keys, header: Keys) -> None:
        """A table that no header names: each table in it has one, and so it is last to have its own."""
        tables = {key: value for key, value in data.items() if isinstance(value, dict)}
        for key, value in tables.items():
            self.header((*header, key), (*path, key), "[", "]")
            self.table(value, (*path, key), (*header, key))
        rest = {key: value for key, value in data.items() if key not in tables}
        if rest:
            self.header(header, path, "[", "]")
            for key, value in rest.items():
                self.statement((key,), value, path)

    def header(self, named: Keys, path: Keys, opening: str, closing: str) -> None:
        self.noise()
        space = self.chance.choice(["", " ", "\t"])
        dotted = f"{space}.{space}".join(self.key(key) for key in named)
        self.out.append(f"{space}{opening}{space}{dotted}{space}{closing}{self.comment()}")
        for length in range(1, len(path)):
            self.implied.setdefault(path[:length], len(self.out))
        self.said.setdefault(path, len(self.out))

    def statement(self, keys: Keys, value: Any, path: Keys) -> None:
        if isinstance(value, dict) and value and self.chance.random() < 0.5:
            for key, item in value.items():
                self.statement((*keys, key), item, path)
            return
        self.noise()
        for length in range(1, len(keys) + 1):
            self.said.setdefault((*path, *keys[:length]), len(self.out) + 1)
        space = self.chance.choice(["", " ", "\t"])
        dotted = f"{space}.{space}".join(self.key(key) for key in keys)
        self.out += f"{space}{dotted}{space}={space}{self.value(value, lines=True)}{self.comment()}".split("\n")

    def noise(self) -> None:
        if self.chance.random() < 0.2:
            self.out.append(self.chance.choice(["", "  ", "# [a]", "\t# a = 1 '''", "#"]))

    def comment(self) -> str:
        return self.chance.choice(["", "", "", " # [a]", '# """', "#'''", " # ]}"])

    def key(self, key: str) -> str:
        if key.isascii() and key.replace("-", "").isalnum() and self.chance.random() < 0.7:
            return key
        if "'" not in key and self.chance.random() < 0.5:
            return f"'{key}'"
        return self.basic(key)

    def basic(self, text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    def value(self, value: Any, *, lines: bool) -> str:
        """A value; within an inline table it has to stay on one line."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return self.text(value, lines=lines)
        if isinstance(value, dict):
            items = ", ".join(f"{self.key(key)} = {self.value(item, lines=False)}" for key, item in value.items())
            return f"{{ {items} }}"
        if isinstance(value, list):
            inside = [self.value(item, lines=lines) for item in value]
            if not lines or self.chance.random() < 0.5:
                return f"[{', '.join(inside)}]"
            return "[" + self.comment() + "\n" + "".join(f"  {item},{self.comment()}\n" for item in inside) + "]"
        return repr(value)

    def text(self, text: str, *, lines: bool) -> str:
        literal = "'" not in text
        forms = [self.basic(text)]
        if literal and "\n" not in text:
            forms.append(f"'{text}'")
        if lines:
            first = "\n" if text.startswith("\n") or self.chance.random() < 0.5 else ""
            if "'''" not in text and not text.endswith("'''"):
                forms.append(f"'''{first}{text}'''")
            forms.append(f'"""{first}' + text.replace("\\", "\\\\").replace('"""', '""\\"') + '"""')
        return self.chance.choice(forms)


# ── the built-in file ────────────────────────────────────────────────────────
def test_every_key_of_the_built_in_file_stands_on_a_line_that_holds_it() -> None:
    text = BUILTIN.read_text()
    data, lines, written = tomllib.loads(text), key_lines(text), text.split("\n")
    checked = 0
    for path, _ in paths(data):
        number = next(
            (lines[key] for n in range(len(path), 0, -1) if (key := "\0".join(map(str, path[:n]))) in lines), None
        )
        assert number is not None
        within = next(place for place, key in enumerate((*path, "0")) if key.isdigit())
        end = next((n for n in range(number, len(written)) if written[n][:1] not in (" ", "]")), len(written))
        assert path[:within][-1] in "\n".join(written[number - 1 : end])  # a long inline table has several lines
        checked += 1
    assert checked > 5_000
