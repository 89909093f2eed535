"""Faults that people make in registry files: each has its line, its cause in words, and the corrected line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cnllm import Registry
from cnllm.errors import RegistryError
from cnllm.registry_files.check import check

pytestmark = pytest.mark.usefixtures("small_builtin")

LINES = [
    "[providers.home]",
    'extends = "openai-compatible"',
    'base_url = "http://127.0.0.1:9/v1"',
    'keys = ["HOME_KEY"]',
    "",
    '[models."home/m"]',
    "limits = { context = 65536 }",
    'price = { currency = "CNY", input = 2, output = 8 }',
    "tools = { supported = true }",
]

# (line, what stands there, what is said of it, the corrected line; "" where none can be known)
TYPOS = [
    (3, "base_url = “http://127.0.0.1:9/v1”", "quotes must be straight", LINES[2]),
    (3, "base_url ＝ “http://127.0.0.1:9/v1”", "half-width", LINES[2]),
    (4, 'keys = ["HOME_KEY"，"B"]', "half-width", 'keys = ["HOME_KEY","B"]'),
    (6, '【models."home/m"】', "half-width", LINES[5]),
    (3, 'base_url: "http://127.0.0.1:9/v1"', "not a colon", LINES[2]),
    (3, 'base_url => "http://127.0.0.1:9/v1"', "single =", 'base_url = "http://127.0.0.1:9/v1"'),
    (3, 'base_url "http://127.0.0.1:9/v1"', "a value follows =", LINES[2]),
    (3, 'base url = "http://127.0.0.1:9/v1"', "no spaces", LINES[2]),
    (3, 'base_url = "http://127.0.0.1:9/v1', "a quote is missing", LINES[2]),
    (3, 'base_url = http://127.0.0.1:9/v1"', "a quote is missing", LINES[2]),
    (3, "base_url = http://127.0.0.1:9/v1", "quotes", LINES[2]),
    (2, "extends = openai-compatible", "a text stands in quotes", LINES[1]),
    (2, 'extends = "openai-compatibl"', "openai-compatible", ""),
    (2, 'extends = "home"', "extends itself", ""),
    (4, 'keys = ["HOME_KEY"', "a list ends with ]", LINES[3]),
    (4, 'keys = ["A" "B"]', "commas", 'keys = ["A", "B"]'),
    (4, 'keys = "HOME_KEY"', "a list is expected, not a text", LINES[3]),
    (4, 'keys = ["sk-0123456789abcdefghij"]', "a key itself does not belong here", ""),
    (4, "// the key", "a comment begins with #", "# the key"),
    (1, "[providers.home", "the head of a table ends with ]", LINES[0]),
    (1, "[provider.home]", "providers", LINES[0]),
    (6, "[models.home/m]", "a name with a slash stands in quotes", LINES[5]),
    (6, "[models.home.m]", "in quotes", LINES[5]),
    (6, "[models.m]", "in quotes", '[models."PROVIDER/m"]'),
    (6, '[models."home/"]', 'a model is named "provider/id"', ""),
    (6, '[models."/m"]', 'a model is named "provider/id"', ""),
    (6, '[model."home/m"]', "models", LINES[5]),
    (6, '[[models."home/m"]]', "must be a table, not a list", ""),
    (6, '[models."hom/m"]', "Did you mean 'home'?", ""),
    (7, "limits = { context = 64k }", "a number has no letters", "limits = { context = 64_000 }"),
    (7, "limits = { context = 65,536 }", "a number has no commas", "limits = { context = 65_536 }"),
    (7, "limits = { context = 065536 }", "does not begin with 0", LINES[6]),
    (7, 'limits = { context = "65536" }', "a whole number is expected, not a text", LINES[6]),
    (7, 'limits = { context = "64K" }', "a whole number is expected, not a text", "limits = { context = 64000 }"),
    (7, "limits = { context = -1 }", "cannot be negative", "limits = { context = 1 }"),
    (8, "price = { input = nan, output = 8 }", "a finite number is expected", ""),
    (8, "price = { input = 2, tiers = [{ above = 9, input = inf }] }", "a finite number is expected", ""),
    (8, "price = { input = 2, tiers = [{ above = 9, input = -1 }] }", "cannot be negative", ""),
    (
        8,
        "price = { service = { fast = { input = -1 } } }",
        "cannot be negative",
        "price = { service = { fast = { input = 1 } } }",
    ),
    (3, 'base_url = "http://127.0.0.1:9/v1",', "no comma at its end", LINES[2]),
    (7, "limits = { context = 65536, }", "no comma before its end", LINES[6]),
    (7, "limits = {\n  context = 65536,\n}", "stands on one line", LINES[6]),
    (7, "limit = { context = 65536 }", "Did you mean 'limits'?", LINES[6]),
    (7, 'reasoning = { levels = ["low"] }', "has no flag 'levels'", ""),
    (7, "limits = { contxt = 65536 }", "Did you mean 'context'?", LINES[6]),
    (8, 'price = { currency = "CNY", input = "2", output = 8 }', "a number is expected, not a text", LINES[7]),
    (9, "tools = { supported = True }", "small letters", LINES[8]),
    (9, "tools = { supported = yes }", "small letters", LINES[8]),
    (9, 'tools = { supported = "true" }', "true or false is expected, not a text", LINES[8]),
    (9, "tools = None", "no empty value", "# tools = None"),
    (3, 'base_url = "127.0.0.1:9/v1"', "does not begin with http:// or https://", LINES[2]),
    (3, 'base_url = "api.home.cn/v1"', "does not begin with", 'base_url = "https://api.home.cn/v1"'),
    (3, 'base_url = "http://127.0.0.1:9/v1/chat/completions"', "which cnllm adds", LINES[2]),
    (3, 'base_url = "http://[::1"', "not an address that a call can use: its host cannot be read", ""),
    (3, 'base_url = "http://127.0.0.1:99999/v1"', "its port is not a number from 1 to 65535", ""),
    (3, 'base_url = "http://127.0.0.1:x/v1"', "its port is not a number", ""),
    (3, 'base_url = "https:///v1"', "it names no host", ""),
    (3, 'base_url = "http://xn--/v1"', "its host is not a valid name or IP address", ""),
    (3, 'base_url = "http://a\\\\b/v1"', "it holds a backslash or a control character", ""),
    (3, 'base_url = ["http://127.0.0.1:9/v1"]', "a text is expected, not a list", LINES[2]),
    (4, 'keys = ["A"]\nkeys = ["B"]', "stands twice", ""),
    (5, "[providers.home]", "stands twice", ""),
    (4, 'docs = "C:\\Users\\me"', "use single quotes", "docs = 'C:\\Users\\me'"),
    (9, 'tools = { supported = true }\nprefer = ["home"]', "at the top of the file", ""),
    (5, '[providers.home.tools]\nsupported = true\ntitle = "Home"', "it belongs to [providers.home]", ""),
    (9, 'tools = { supported = true }\n[aliases]\nhut = "home/n"', "names no model: 'home/n'", 'hut = "home/m"'),
    (9, 'tools = { supported = true }\n[tiers]\nfast = "home/m"', "a list is expected", 'fast = ["home/m"]'),
    (1, "schema = 2\n[providers.home]", "this program reads schema 1", "schema = 1"),
]


@pytest.mark.parametrize(("line", "typo", "cause", "corrected"), TYPOS, ids=[typo[:40] for _, typo, _, _ in TYPOS])
def test_a_typo_is_an_error_with_place_cause_and_correction(
    line: int, typo: str, cause: str, corrected: str, tmp_path: Path
) -> None:
    file = tmp_path / "providers.toml"
    file.write_text("\n".join([*LINES[: line - 1], typo, *LINES[line:]]) + "\n", encoding="utf-8")
    problems = check([str(file)])
    assert problems, "it is not noticed"
    problem = next((p for p in problems if cause in p.message), None)
    assert problem is not None, problems
    assert problem.line is not None
    assert line <= problem.line <= line + typo.count("\n")
    assert problem.corrected == corrected
    assert "sk-0123456789" not in str(problems)
    if corrected and "stands on one line" not in cause and "PROVIDER" not in corrected:
        lines = file.read_text(encoding="utf-8").split("\n")
        lines[problem.line - 1] = corrected
        file.write_text("\n".join(lines), encoding="utf-8")
        left = [p.message for p in check([str(file)])]
        assert not any(cause in message for message in left), "the corrected line has the same fault"


def test_a_call_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    for line, typo, cause, corrected in TYPOS:
        file.write_text("\n".join([*LINES[: line - 1], typo, *LINES[line:]]) + "\n", encoding="utf-8")
        error = _error(file)
        if corrected and cause in str(error):
            assert error is not None
            assert error.hint == f"write: {corrected}", typo


def test_the_mark_that_windows_puts_first_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    assert check([str(file)]) == []
    assert Registry.load(file).resolve("home/m").where("limits.context", frozenset()).endswith(":7")


def _error(file: Path) -> RegistryError | None:
    """Return what a call with this file fails with."""
    try:
        Registry.load(file).resolve("home/m")
    except RegistryError as error:
        return error
    return None
