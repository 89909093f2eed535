"""The program that reads the sources again, over tiny packages that the tests build. Nothing is downloaded."""

from __future__ import annotations

import io
import json
import socket
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import small
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from maintenance.sources import archive, javascript, parse
from maintenance.sources.__main__ import main
from maintenance.sources.location import Location, locate

Built = Callable[[str], None]

MODEL = """
[providers.deepseek-test]
title    = "A provider of this test"
protocol = "openai-chat"
base_url = "https://api.example.org/v1"
keys     = []
"""


def tarball(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as out:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            out.addfile(member)
    return path


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


# ── addresses ────────────────────────────────────────────────────────────────
@each(
    "url, expected",
    [
        ("https://www.npmjs.com/package/@a/b/v/1.2.3", Location("npm", "@a/b", "1.2.3")),
        ("https://www.npmjs.com/package/@a/b", Location("npm", "@a/b")),
        ("https://pypi.org/project/some-thing/1.0", Location("pypi", "some-thing", "1.0")),
        ("owner/name:a/b.json@abc123", Location("repository", "owner/name", "abc123", "a/b.json")),
        ("owner/name@abc123", Location("repository", "owner/name", "abc123")),
        ("owner/name#12", Location("thread", "owner/name", "12")),
        ("https://example.org/docs?a=1", Location("page", "https://example.org/docs?a=1")),
        ("what the others do", Location("note", "what the others do")),
    ],
)
def test_an_address_is_read(url: str, expected: Location) -> None:
    assert locate(url) == expected


# ── archives ─────────────────────────────────────────────────────────────────
def test_nothing_leads_out_of_an_archive(tmp_path: Path) -> None:
    bad = {"package/../../evil": b"x", "/etc/passwd": b"x", "package/good/a.json": b"{}", "C:/evil": b"x"}
    links = {"package/link": "../../../../etc/hostname", "package/inside": "good/a.json"}
    before = sorted(tmp_path.rglob("*"))
    files = archive.open_archive(tarball(tmp_path / "a.tgz", bad, links), root=1)
    assert set(files) == {"good/a.json", "link", "inside"}
    assert files["inside"] == b"{}", "a link to a file of the archive"
    with pytest.raises(KeyError):
        files["link"]
    assert sorted(tmp_path.rglob("*")) == [*before, tmp_path / "a.tgz"], "nothing is unpacked"
    zipped = archive.open_archive(wheel(tmp_path / "a.whl", {"../evil": b"x", "/evil": b"x", "good.json": b"{}"}))
    assert dict(zipped) == {"good.json": b"{}"}


def test_a_file_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_FILE", 10)
    for path in (
        tarball(tmp_path / "a.tgz", {"p/large": b"x" * 11, "p/small": b"x" * 10}),
        wheel(tmp_path / "a.whl", {"p/large": b"x" * 11, "p/small": b"x" * 10}),
    ):
        assert dict(archive.open_archive(path, root=1)) == {"small": b"x" * 10}


def test_what_is_no_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(b"<html>not here</html>")
    with pytest.raises(ValueError, match="no wheel and no tarball"):
        archive.open_archive(path)


# ── literals ─────────────────────────────────────────────────────────────────
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), JSON, min_size=1, max_size=4))
def test_json_is_read_as_javascript(value: dict[str, Any]) -> None:
    text = f"// before\nexport const MODELS = {json.dumps(value, indent=1)} as const;\nconst last = {{ a: 1 }};"
    assert list(javascript.literals(text)) == [value, {"a": 1}]


@each(
    "text, expected",
    [
        ("{a:1,'b':\"x\",`c`:!0,d:!1}", {"a": 1, "b": "x", "c": True, "d": False}),
        ("{ n: 1_000_000, m: 128 * 1024, x: 0x10, e: 1e6, }", {"n": 1_000_000, "m": 131_072, "x": 16, "e": 1e6}),
        ("{ a: f(x), b: y + 1, c: () => ({ d: 1 }), e: 2 }", {"a": None, "b": None, "c": None, "e": 2}),
        ("{ list: build([{ id: 'a' }, ...more]), e: 2 }", {"list": [{"id": "a"}, None], "e": 2}),
        ("{ /* note } */ a: 1, // b: 2\n method(x) { return { z: 1 } }, ...rest, c: 3 }", {"a": 1, "c": 3}),
        ("[1, 2 as number, 'x' satisfies Kind]", [1, 2, "x"]),
        ('{ "\\u4f60\\x41\\n": null, u: undefined }', {"你A\n": None, "u": None}),
    ],
)
def test_a_literal_of_javascript_is_read(text: str, expected: Any) -> None:
    assert javascript.literal(text) == expected


@given(st.text(alphabet="{}[]()\"'`,:;.=*+a1\\/ \n", max_size=60))
def test_any_text_is_read_to_its_end(text: str) -> None:
    for value in javascript.literals(text):
        assert isinstance(value, dict | list)


@each(
    "name, content, expected",
    [
        ("a.json", b'{"a": 1}', [{"a": 1}]),
        ("a.toml", b"a = 1", [{"a": 1}]),
        ("a.yaml", b"a: 1\n---\nb: '2'", [{"a": 1}, {"b": "2"}]),
        (
            "a.py",
            b"K = 1024\nraise SystemExit('ran')\nMODELS = {'m': Model(context=128 * K, cost=(1, -2.5))}\n",
            [{"m": {"context": 131_072, "cost": [1, -2.5]}}],
        ),
        ("a.ts", b"export default [{ id: 'm' }];", [[{"id": "m"}]]),
    ],
)
def test_the_data_of_a_file_is_read(name: str, content: bytes, expected: list[Any]) -> None:
    assert parse.data(name, content) == expected


def test_a_database_is_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)) as connection:
        connection.execute("create table models (id text, n integer)")
        connection.execute("insert into models values ('m', 7)")
    connection.close()
    assert parse.data("a.sqlite", (tmp_path / "a.sqlite").read_bytes()) == [{"models": [{"id": "m", "n": 7}]}]
    with pytest.raises(ValueError, match="no database"):
        parse.data("a.sqlite", b"nothing of the kind" * 100)


def test_a_program_with_a_list_among_its_bytes_is_read() -> None:
    program = b"\x00\xff{noise" * 9 + b'x={home:{id:"home",env:["K"],models:{m:{id:"m"}}}}' + b"\x00"
    start = r'[\w$]{1,60}:(?=\{id:"[^"]{1,60}",env:\[)'
    assert parse.data("program", program, start) == [{"id": "home", "env": ["K"], "models": {"m": {"id": "m"}}}]


# ── the whole program ────────────────────────────────────────────────────────
ENTRY = {"id": "m", "provider": "deepseek-test", "input": ["text"], "reasoning": True, "contextWindow": 1_000_000}
ENTRY |= {"maxTokens": 8000, "cost": {"input": 1, "output": 2, "cacheRead": 0}}
NPM = "https://www.npmjs.com/package/@earendil-works/pi-ai/v/9.9.9"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one package of each kind."""
    packages = tmp_path / "cache" / "packages"
    other = ENTRY | {"provider": "elsewhere", "contextWindow": 5}
    files = {
        "deepseek-test": {"chat": {"m": ENTRY}},
        "elsewhere": {"chat": {"m": other, "only": other | {"id": "only"}}},
    }
    tarball(
        packages / "earendil-works-pi-ai-9.9.9.tgz",
        {f"package/dist/providers/data/{name}.json": json.dumps(data).encode() for name, data in files.items()},
    )
    prices = {"deepseek-test/m": {"litellm_provider": "deepseek-test", "mode": "chat", "input_cost_per_token": 3e-6}}
    prices["deepseek-test/m"]["max_input_tokens"] = 900_000
    name = "litellm/model_prices_and_context_window_backup.json"
    wheel(packages / "litellm-9.9.9-py3-none-any.whl", {name: json.dumps(prices).encode()})
    tree = tmp_path / "cache" / "files" / "anomalyco" / "models.dev@abc1234"
    for path, text in {
        "models/base/m.toml": "tool_call = true\nlimit = { context = 1_000_000, output = 8000 }\ncost.input = 9",
        "providers/deepseek-test/models/m.toml": 'base_model = "base/m"\nlimit.output = 4000\ncost.output = 2',
    }.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    prose = tmp_path / "cache" / "files" / "owner" / "prose@abc1234"
    prose.mkdir(parents=True)
    (prose / "README.md").write_text("It is <b>never</b>\n  refused &amp; never slow.")
    return tmp_path / "cache"


@pytest.fixture
def builtin(small_builtin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    """Let the built-in file have this text at its end."""

    def write(text: str) -> None:
        path = tmp_path / "providers.toml"
        path.write_text(small_builtin.read_text(encoding="utf-8") + MODEL + text, encoding="utf-8")
        small.use(monkeypatch, path)

    return write


def model(flags: str, url: str, backs: str, more: str = "", id: str = "m") -> str:
    table = f'models."deepseek-test/{id}"'
    source = f'url = "{url}", seen = 2026-11-20, how = "catalogue", backs = {backs}{more}'
    return f"[{table}]\n{flags}\n[{table}.sources]\ntested = {{ {source} }}\n"


def run(cache: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    status = main(["--cache", str(cache), "--offline", "--only", "tested", "--json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


LITELLM, MODELS = "https://pypi.org/project/litellm/9.9.9", "anomalyco/models.dev@abc1234"


@pytest.mark.share(3)
@each(
    "text, state, explained, theirs",
    [
        (model("limits.context = 1_000_000", NPM, '["limits"]'), "agrees", False, 1_000_000),
        (model("limits.context = 1_048_576", NPM, '["limits"]'), "differs", False, 1_000_000),
        (model("limits.context = 1_048_576", NPM, '["limits"]', ", rounded = true"), "differs", True, 1_000_000),
        (model("limits.context = 2_000_000", NPM, '["limits"]', ", rounded = true"), "differs", False, 1_000_000),
        (model('input = ["text"]', NPM, '["input"]'), "agrees", False, ["text"]),
        (model('input = ["text", "image"]', NPM, '["input"]'), "differs", False, ["text"]),
        (model('reasoning = { mode = "never" }', NPM, '["reasoning"]'), "differs", False, True),
        (model('price = { currency = "USD", cached = 1 }', NPM, '["price.cached"]'), "not-found", False, None),
        (model("limits.context = 5", NPM, '["limits"]', id="only"), "not-found", False, None),
        (
            model("limits.context = 5", NPM, '["limits"]', ', path = "dist/providers/data/elsewhere.json"', id="only"),
            "agrees",
            False,
            5,
        ),
        (model("limits.context = 5", NPM, '["limits"]', ', path = "dist/none.json"'), "not-found", False, None),
        (model("limits.context = 900_000", LITELLM, '["limits"]'), "agrees", False, 900_000),
        (model('price = { currency = "USD", input = 3 }', LITELLM, '["price.input"]'), "agrees", False, 3),
        (model('price = { currency = "CNY", input = 3 }', LITELLM, '["price.input"]'), "differs", False, "3 USD"),
        (model("limits.output = 4000", MODELS, '["limits"]'), "agrees", False, 4000),
        (model("limits.context = 1_000_000", MODELS, '["limits"]'), "agrees", False, 1_000_000),
        (model("tools.supported = false", MODELS, '["tools"]'), "differs", False, True),
        (model('price = { currency = "USD", input = 9 }', MODELS, '["price.input"]'), "not-found", False, None),
        (model("limits.output = 1", "https://pypi.org/project/none/1", '["limits"]'), "not-reachable", False, None),
        (model("limits.output = 1", "https://example.org/docs", '["limits"]'), "not-reachable", False, None),
        (
            model("limits.output = 1", "owner/prose@abc1234", '["limits"]', ', quote = "never refused & never"'),
            "agrees",
            False,
            "never refused & never",
        ),
        (
            model("limits.output = 1", "owner/prose@abc1234", '["limits"]', ', quote = "often"'),
            "not-found",
            False,
            None,
        ),
    ],
)
def test_a_citation_is_judged(
    builtin: Built,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    state: str,
    explained: bool,
    theirs: Any,
) -> None:
    builtin(text)
    status, rows = run(cache, capsys)
    assert [(row["state"], row["explained"], row["theirs"]) for row in rows] == [(state, explained, theirs)]
    assert status == (state in ("differs", "not-found") and not explained)


def test_a_name_that_means_another_provider_in_a_list_is_not_ours(
    builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"chat": {"g": ENTRY | {"id": "g", "provider": "zai", "contextWindow": 7}}}
    files = {"package/dist/providers/data/zai.json": json.dumps(plan).encode()}
    tarball(cache / "packages" / "earendil-works-pi-ai-9.9.9.tgz", files)
    told = []
    for name in ("zai", "zai-coding-plan"):
        plan_site = MODEL.replace("deepseek-test", name).replace("example", name) if name != "zai" else ""
        builtin(plan_site + model("limits.context = 7", NPM, '["limits"]', id="g").replace("deepseek-test", name))
        told += [(row["model"], row["state"]) for row in run(cache, capsys)[1]]
    assert told == [("zai/g", "not-found"), ("zai-coding-plan/g", "agrees")]


def test_a_quotation_is_found_among_the_bytes_of_a_program(
    builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maintenance.sources.judge._LARGEST_TEXT", 100)
    program = cache / "files" / "owner" / "prose@abc1234" / "program.so"
    program.write_bytes(b"\x00\xff" * 99 + b"top_logprobs requires logprobs" + b"\x00")
    builtin(model("limits.output = 1", "owner/prose@abc1234", '["limits"]', ', quote = "requires logprobs"'))
    _, (row,) = run(cache, capsys)
    assert (row["state"], row["there"]) == ("agrees", "program.so")


def test_what_is_inferred_is_explained(builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builtin(model("limits.context = 7", NPM, '["limits"]').replace('how = "catalogue"', 'how = "inferred"'))
    status, (row,) = run(cache, capsys)
    assert (status, row["state"], row["explained"], row["ratio"]) == (0, "differs", True, pytest.approx(1_000_000 / 7))


def test_a_value_from_another_model_is_held_against_the_own_entry(
    builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heir = '[models."deepseek-test/m"]\nextends = "deepseek-test/base"\nsame_weights = true\n'
    other = '[models."deepseek-test/new"]\nextends = "deepseek-test/base"\nsame_weights = true\n'
    text = model("limits.context = 5", NPM, '["limits"]', ', path = "dist/providers/data/elsewhere.json"', id="base")
    builtin(text + heir + other)
    status, rows = run(cache, capsys)
    found = {row["model"]: (row["state"], row["inherited"], row["explained"]) for row in rows}
    assert found == {
        "deepseek-test/base": ("not-found", False, False),
        "deepseek-test/m": ("differs", True, False),
        "deepseek-test/new": ("not-found", True, True),
    }
    assert status == 1


def test_people_read_what_is_to_be_settled(builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builtin(model('limits.context = 2_000_000\ninput = ["text"]', NPM, '["limits", "input"]'))
    assert main(["--cache", str(cache), "--offline", "--only", "tested"]) == 1
    figures, line, gap, total, last = capsys.readouterr().out.splitlines()
    assert (figures, gap) == (f"tested: 1 agrees, 1 differs  {NPM}", "")
    assert "another value: " in line
    assert "deepseek-test/m  limits.context  ours 2000000  theirs 1000000 (x0.5)" in line
    assert "dist/providers/data/deepseek-test.json" in line
    assert (total, last) == ("2 values, 1 sources, 1 read: 1 agrees, 1 differs", "1 to settle")


FAR = "https://docs.example.org/a"


@pytest.fixture
def three(builtin: Built) -> tuple[str, ...]:
    """The options that judge a package with three values, one with one value, and a page that is not there."""
    more = [model("limits.output = 1", url, '["limits"]', id=f"n{n}") for n, url in enumerate((LITELLM, FAR))]
    text = model('limits = { context = 1_000_000, output = 8000 }\ninput = ["text"]', NPM, '["limits", "input"]')
    builtin("".join([text, *more]))
    return "--offline", "--only", "tested"


@each(
    "options, first, last",
    [
        ([], "3 sources, 2 read", "not read (not in the cache): tested"),
        (["--limit", "1"], "3 sources, 1 read", "not read (left out by --limit or --timeout): tested"),
        (["--timeout", "0"], "3 sources, 0 read", "not read (left out by --limit or --timeout): tested"),
    ],
)
def test_what_was_not_read_is_counted(
    three: tuple[str, ...], cache: Path, capsys: pytest.CaptureFixture[str], options: list[str], first: str, last: str
) -> None:
    status = main(["--cache", str(cache), *three, *options])
    lines = capsys.readouterr().out.splitlines()
    assert first in lines[-3]
    assert lines[-2] == last
    assert status == ("1 to settle" in lines[-1])


def test_the_source_with_the_most_values_is_printed_before_the_next_is_read(
    three: tuple[str, ...], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[list[str]] = []
    read = io.StringIO()
    monkeypatch.setattr("sys.stdout", read)
    real = archive.open_archive

    def opened(path: Path, root: int = 0) -> Any:
        printed.append(read.getvalue().splitlines())
        return real(path, root)

    monkeypatch.setattr("maintenance.sources.fetch.open_archive", opened)
    main(["--cache", str(cache), *three])
    assert printed == [[], [f"tested: 3 agrees  {NPM}"]]


def test_a_host_that_cannot_be_reached_is_tried_once(
    builtin: Built, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pages = [f"http://127.0.0.1:{port}/{name}" for name in "abc"]
    builtin("".join(model("limits.output = 1", url, '["limits"]', id=f"n{n}") for n, url in enumerate(pages)))
    tries: list[str] = []
    stream = httpx.stream

    def counted(method: str, url: str, **more: Any) -> Any:
        tries.append(url)
        return stream(method, url, **more)

    monkeypatch.setattr(httpx, "stream", counted)
    assert main(["--cache", str(cache), "--only", "tested"]) == 0
    assert tries == pages[:1]
    *_, absent, last = capsys.readouterr().out.splitlines()
    assert "no connection: " in absent
    assert last == "0 to settle"
