"""A registry file is TOML 1.0 on every Python: what only TOML 1.1 has is refused, with its line."""

from __future__ import annotations

import itertools
import sys
import tomllib

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm import CnllmError
from cnllm.config.templates import read_template
from cnllm.config.toml_text import find_newer_syntax

from .support import HOME, ROOT, Files

NEWER = [
    "a = {\n b = 1 }\n",
    "a = { b = 1\n}\n",
    "a = { b = 1,\n c = 2 }\n",
    "a = { b = 1, # one\n c = 2 }\n",
    "a = { b = [1, 2], c = {\n d = 1 } }\n",
    "a = [1, { b = 1,\n c = 2 }]\n",
    "a = { b = 1, }\n",
    "a = [{ b = '}', }]\n",
    "a = { b = { c = 1 ,\t} }\n",
    'a = "\\e[0m"\n',
    'a = "\\x41"\n',
    'a = """one\n\\\\ two \\x41"""\n',
    '"\\x41" = 1\n',
    '["\\e"]\na = 1\n',
    'a = { "\\e" = 1 }\n',
    "a = 07:32\n",
    "a = [07:32:00, 07:33]\n",
    "a = 1979-05-27T07:32Z\n",
    "a = 1979-05-27 07:32\n",
    "a = { b = 1979-05-27t07:32-07:00 }\n",
]
OLDER = [  # what looks alike, and is TOML 1.0
    "a = { b = [\n1, # one {\n2,\n], c = 3 }\n",
    'a = { b = """\n,}\n""", c = 1 }\n',
    "a = { b = '''\n{ 07:32 }''', c = '\\e' }\n",
    "a = [\n1,\n]\n",
    "a = [{ b = 1 },\n { c = 2 },\n]\n",
    'a = "\\\\e \\\\x41 { 07:32 ,}"\n',
    'a = """"quoted\\" 07:32"""" # {\nb = """"""\n',
    "a = ''''quoted'''' # {\n",
    "a = 07:32:00 # 07:32\n",
    "a = 1979-05-27T00:32:00-07:00\nb = 1979-05-27 00:32:00.999999+07:30\n",
    '"07:32" = { } # \\e\n',
]


def line_of(text: str) -> int | None:
    found = find_newer_syntax(text)
    return None if found is None else text.count("\n", 0, found[1]) + 1


@each("text", NEWER)
def test_what_only_toml_1_1_has_is_refused_with_its_line(text: str, files: Files) -> None:
    for before in ("", "# first { \\e\n[x]\n", "[[y]]\nz = { a = '{' }\n"):
        line = line_of(before + text)
        if sys.version_info < (3, 15):
            with pytest.raises(tomllib.TOMLDecodeError, match=f"at line {line},"):
                tomllib.loads(before + text)
    assert files.refused(f"{HOME}[x]\n{text}").line == HOME.count("\n") + 1 + (line_of(text) or 0)
    with pytest.raises(CnllmError, match="not TOML"):
        read_template(str(files.write(text)))


@each("text", OLDER)
def test_what_toml_1_0_has_is_not_refused(text: str) -> None:
    tomllib.loads(text)
    assert line_of(text) is None


def test_the_files_of_the_package_are_toml_1_0() -> None:
    for path in itertools.chain(ROOT.glob("*.toml"), (ROOT / "cnllm").rglob("*.toml")):
        assert line_of(path.read_text(encoding="utf-8")) is None, path


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    " ",
    "a",
    " = ",
    "1",
    '"',
    "'",
    '"""',
    "'''",
    "\\",
    "\\e",
    "#",
    "07:32",
    ":00",
    "x",
]


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="tomllib reads TOML 1.1 there")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_text_of_toml_1_0_is_refused(text: str) -> None:
    source = f"a = {text}\n"
    try:
        tomllib.loads(source)
    except tomllib.TOMLDecodeError:
        return
    assert line_of(source) is None
