"""The reference pages are what the program says, and what they are made of is complete.

`pytest --update` writes them.
"""

from __future__ import annotations

import inspect
import pydoc
import re
import runpy
import sys
from pathlib import Path
from typing import get_args

import pytest

import cnllm
import docs.generate as generate
from cnllm import Registry, errors
from cnllm.cli.app import COMMANDS
from cnllm.client.runs import LoopSettings
from cnllm.engine import options
from cnllm.registry import flags
from cnllm.types.call_options import CallOptions, LoopOptions, RunOptions
from cnllm.types.note_codes import NoteCode
from docs.generate import option_docs
from docs.generate.builtin import registry
from docs.generate.flags import all_flags, setters
from docs.generate.note_codes import NOTE_CODES
from docs.generate.notes import flags_of
from docs.generate.source import texts

from .pages import pages

CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def page(name: str) -> str:
    return (generate.FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_the_pages_are_what_the_program_says(update: bool) -> None:
    if update:
        generate.write()
    assert generate.outdated() == [], "pytest --update -n 0 tests/manual writes them"
    generated = {path.stem for path in generate.FOLDER.glob("*.md") if path not in pages()}
    assert generated == {*generate.PAGES}
    assert {path.stem for path in generate.FOLDER.glob("providers/*.md")} == {*registry().providers}


def test_the_check_names_an_old_page_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(generate, "PAGES", {"events": generate.PAGES["events"]})
    monkeypatch.setattr(generate.provider_pages, "pages", lambda: [("zai", "# Z.AI\n")])
    monkeypatch.setattr(generate.vendors_zh, "pages", list)
    monkeypatch.setattr(generate, "PAGES_ZH", {})
    assert generate.outdated() == ["events", "zai"]
    assert generate.write() == ["events", "zai"]
    assert (generate.outdated(), generate.write()) == ([], [])
    (tmp_path / "providers" / "gone.md").write_text("of a provider that the registry no longer has")
    assert generate.outdated() == ["gone"]
    assert generate.write() == ["gone"]
    assert generate.outdated() == []
    monkeypatch.setattr(sys, "argv", ["docs.generate", "--wrong"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("docs.generate", run_name="__main__")
    assert ended.value.code == 2


def test_a_page_says_the_same_each_time() -> None:
    """No address of this process, no order of a set, no folder of this machine."""
    for name in generate.PAGES:
        assert not re.search(r"\bat 0x[0-9a-f]+|<function|<class|/work/|/home/", page(name)), name


def test_the_page_of_a_provider_has_its_key_models_issues_and_sources() -> None:
    text = page("providers/zai")
    for wanted in ("# Z.AI\n", "cnllm keys set zai\n", "`ZAI_API_KEY`", "\n| `glm-4.7` | `glm-4.7` | 204,800 |"):
        assert wanted in text
    issues = text.partition("## Known issues")[2].partition("## Sources")[0]
    assert issues.count("\n- It ") > 5
    assert "docs.z.ai" in text.partition("## Sources")[2]


def test_a_signature_shows_which_arguments_are_keywords() -> None:
    text = page("python")
    assert "Retry(*, attempts: int = 3" in text
    assert "Timeouts(\n    *,\n    connect:" in text
    assert "Text(text: str, seal:" in text
    with pytest.raises(TypeError):
        cnllm.Retry(3)  # type: ignore[call-arg]


def test_every_option_of_a_call_is_described() -> None:
    known = (options.OPTION_NAMES - {"stream"}) | Registry.load().parameters()
    assert {*CallOptions.__annotations__} == known
    settings = {*inspect.signature(LoopSettings).parameters} - {"by", "on_event"}
    assert {*LoopOptions.__annotations__} == settings
    assert {*RunOptions.__annotations__} == known | settings
    for name in (*known, *settings):
        assert f"| `{name}` |" in page("options"), name


def test_help_lists_the_options_of_every_verb_with_what_each_means() -> None:
    verbs = [cnllm.call, cnllm.stream, cnllm.run, cnllm.fit]
    for client in (cnllm.Client, cnllm.AsyncClient):
        verbs += [client.call, client.stream, client.plan, client.run, client.run_stream]
    for verb in verbs:
        text = pydoc.plain(pydoc.render_doc(verb))
        wanted = RunOptions if verb.__name__.startswith("run") else CallOptions
        assert [name for name in wanted.__annotations__ if f"\n      {name}: " not in text] == [], verb.__qualname__
        assert "temperature: how freely the model samples" in text
    assert all(option_docs.descriptions("RunOptions").values())


def test_every_flag_is_described_and_has_somebody_who_needs_it() -> None:
    rows = all_flags()
    assert [row.names for row in rows if not row.meaning] == []
    unset = {row.names[0] for row in rows if not any(setters()[name] for name in row.names)}
    # Two that a user's own gateway may need, and one of a wire where streams have another address.
    # The limits of an account, which its owner knows; the header of gateways that count a repeated request once; and
    # how far a list of jobs lags behind, which no vendor tells.
    own = {"rates.requests", "rates.tokens", "idempotency", "batch.list.delay"}
    # Servers that nobody has seen yet: tests/engine/test_quirks.py draws them.
    own |= {"messages.answer_field", "body.rename", "reasoning.part_form", "stream.framing"}
    own |= {f"reply.{name}" for name in ("choices", "message", "delta", "finish")}
    own |= {f"tools.call_paths.{name}" for name in ("id", "name", "arguments")}
    own |= {f"tools.{name}" for name in ("calls_field", "arguments", "result_role", "result_id", "result_field")}
    assert unset <= {"stream_path", "headers", "body.drop"} | own
    # A budget, so that nobody adds one lightly: 89 before files, prefill, recovery and the form of strict tools came,
    # 99 before the tags of an answer, the weights of a model and the end of a promotion did, 102 before the rates, and
    # 113 before the batch interfaces: places in five requests and their answers, each named once, in place of code.
    # 161 before the paths of what a wire has at one place: each is a quirk that could not be described.
    # 175 before citations, custom tools, a search of tools, blocks of content, and the wires on which an endpoint
    # answers for a model.
    # 185 before web searches: the forms of a dozen vendors, in place of code.
    # 203 before bills: service tiers, factors, paid calls and the endpoint's own figure, each with its place.
    # 213 before the sites of a vendor, and the longest input.
    # 218 before the name of open weights, and the endpoint that a router is told to use.
    # 222 before the requests that an endpoint makes itself for one reply, and leaves out of its totals.
    # 226 before the pattern of names of tools, and models that refuse to go on from a turn of their own.
    # 227 before what bounds the tokens of reasoning: a budget was overshot without it.
    # 228 before calls that an endpoint has answered itself: a client was asked to answer them.
    # 230 before the two prices of one endpoint for tokens from a cache: a cost was half of what was charged.
    # 231 before addresses that one vendor alone can fetch: files went to others, who refuse such a request.
    # 232 before the subset of JSON Schema for answers: Claude refused every schema with an open object or a bound.
    # 234 before the limits of strict functions in one request: Claude refused a request with more of them.
    # 238 before a search beside functions: Gemini 3 refused the two together.
    assert len(rows) < 239
    for name in ("reasoning.replay", "params.NAME", "tools.schema"):
        assert f"| `{name}` |" in page("flags")
    for value in ("tool-turns", "since-user"):
        assert f"`{value}`" in page("flags")
    assert [field for field in flags.Leak.__struct_fields__ if f"| `{field}` |" not in page("flags")] == []


def test_every_code_of_a_note_is_described_and_used() -> None:
    """A code in a call that makes a note is one of the table, and each of the table stands somewhere in the package."""
    described = [code for group in NOTE_CODES.values() for code in group]
    assert sorted(described) == sorted(get_args(NoteCode))
    written = {code for code in flags_of() if CODE.fullmatch(code)}
    assert written - {*described} == set(), "describe them in docs/generate/note_codes.py"
    others = "".join(text for module, text in texts().items() if module != "types/note_codes.py")
    assert [code for code in described if f'"{code}"' not in others] == [], "nobody writes these any more"


def test_every_error_and_command_has_its_place() -> None:
    for name in errors.__all__:
        assert f"| `{name}` |" in page("errors"), name
    for name in COMMANDS:
        assert f"## cnllm {name}\n" in page("commands"), name
    for name in cnllm.__all__:
        where = [p for p in ("python", "errors", "events") if f"`{name}`" in page(p) or f"### {name}\n" in page(p)]
        assert where or name in ("batch", "daft", "engine", "gateway", "probe", "ray", "sdk"), name
