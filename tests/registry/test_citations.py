"""Sources that a file names once, and what its tables cite of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cnllm import Fact, Registry
from cnllm.errors import RegistryError
from cnllm.registry.read import builtin_path, load_documents
from cnllm.registry_files.check import check
from cnllm.registry_files.sources import unsourced_paths

from .support import HOME

NAMED = """[sources]
list = { url = "https://example.org/list", seen = 2026-11-01, how = "code", path = "list.json" }
page = { url = "https://example.org/page", seen = 2026-11-02, how = "docs" }
"""
MODEL = '[models."home/m"]\nlimits = { context = 1000, output = 100 }\ntools.supported = true\n'


def facts(tmp_path: Path, cited: str, named: str = NAMED) -> dict[str, Fact]:
    file = tmp_path / "providers.toml"
    file.write_text(f'{HOME}{MODEL}[models."home/m".sources]\n{cited}\n{named}')
    return {fact.flag: fact for fact in Registry.load(file).resolve("home/m").explain()}


def test_a_list_of_flags_takes_all_from_the_named_source(tmp_path: Path) -> None:
    found = facts(tmp_path, 'list = ["limits", "tools"]')
    for flag in ("limits.context", "limits.output", "tools.supported"):
        fact = found[flag]
        assert (fact.source, str(fact.seen), fact.how) == ("https://example.org/list", "2026-11-01", "code")


def test_what_a_citation_says_wins_over_the_named_source(tmp_path: Path) -> None:
    found = facts(tmp_path, 'list = { backs = ["limits"], how = "inferred", seen = 2026-11-09 }')
    fact = found["limits.context"]
    assert (fact.source, str(fact.seen), fact.how) == ("https://example.org/list", "2026-11-09", "inferred")


def test_a_list_may_hold_both(tmp_path: Path) -> None:
    found = facts(tmp_path, 'list = ["limits.context", { backs = ["limits.output"], how = "inferred" }, "tools"]')
    how = {flag: found[flag].how for flag in ("limits.context", "limits.output", "tools.supported")}
    assert how == {"limits.context": "code", "limits.output": "inferred", "tools.supported": "code"}


def test_a_source_may_be_one_text_and_a_mark_means_inferred(tmp_path: Path) -> None:
    named = '[sources]\nlist = "code 2026-11-01 https://example.org/list"\n'
    found = facts(tmp_path, 'list = ["limits.context", "limits.output?", { backs = ["tools?"], quote = "q" }]', named)
    for flag, how in (("limits.context", "code"), ("limits.output", "inferred"), ("tools.supported", "inferred")):
        assert (found[flag].source, str(found[flag].seen), found[flag].how) == (
            "https://example.org/list",
            "2026-11-01",
            how,
        )
    assert found["tools.supported"].quote == "q"
    assert facts(tmp_path, 'list = "limits?"', named)["limits.output"].how == "inferred"


def test_a_text_that_is_no_source_is_a_fault(tmp_path: Path) -> None:
    named = '[sources]\nlist = "https://example.org/list"\n'
    with pytest.raises(RegistryError, match="HOW DAY URL") as caught:
        facts(tmp_path, 'list = ["limits"]', named)
    assert caught.value.line == 13


def test_a_citation_with_a_url_stands_for_itself(tmp_path: Path) -> None:
    own = 'page = { url = "https://example.org/own", seen = 2026-11-03, how = "probe", backs = ["limits"] }'
    fact = facts(tmp_path, own)["limits.context"]
    assert (fact.source, str(fact.seen), fact.how) == ("https://example.org/own", "2026-11-03", "probe")


def test_an_unknown_name_is_no_source(tmp_path: Path) -> None:
    assert facts(tmp_path, 'lists = ["limits"]')["limits.context"].source is None


@pytest.mark.parametrize(
    ("cited", "message", "corrected"),
    [
        ('lists = ["limits"]', "no source is called 'lists'. Did you mean 'list'?", 'list = ["limits"]'),
        ('list = ["limts"]', "list backs 'limts', which is not there", ""),
        ('list = ["limits", { backs = ["price"] }]', "list backs 'price', which is not there", ""),
        ('list = { path = "a" }', "lacks 'backs'", ""),
        (
            'list = { backs = ["limits"], hw = "docs" }',
            "Did you mean 'how'?",
            'list = { backs = ["limits"], how = "docs" }',
        ),
        (
            'list = ["limits", { backs = ["tools"], how = "doc" }]',
            "Did you mean 'docs'?",
            'list = ["limits", { backs = ["tools"], how = "docs" }]',
        ),
        ('list = ["limits", 1]', "a text or a table is expected, not a number", ""),
        ('own = { url = "u", seen = 2026-11-20, backs = ["limits"] }', "lacks 'how'", ""),
    ],
)
def test_faults_of_citations(tmp_path: Path, cited: str, message: str, corrected: str) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(f'{HOME}{MODEL}[models."home/m".sources]\n{cited}\n{NAMED}')
    line = f"{HOME}{MODEL}".count("\n") + 2
    faults = [p for p in check([str(file)]) if p.severity == "error"]
    assert [(p.line, message in p.message) for p in faults] == [(line, True)], faults
    assert faults[0].corrected == corrected


def test_a_source_that_backs_nothing_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(f'{NAMED}{HOME}{MODEL}[models."home/m".sources]\nlist = ["limits", "tools"]\n')
    (problem,) = check([str(file)])
    assert (problem.severity, problem.line, problem.message) == ("warning", 3, "sources.page backs nothing")


# ── said once for many models ────────────────────────────────────────────────
SHARED = """[defaults.sources]
list = ["models.limits.output"]
[providers.home.sources]
page = ["models.limits"]
"""


def shared(tmp_path: Path, cited: str = "", text: str = SHARED) -> dict[str, tuple[str | None, str | None]]:
    file = tmp_path / "providers.toml"
    file.write_text(f"{HOME}{MODEL}{cited}{text}{NAMED}")
    facts = Registry.load(file).resolve("home/m").explain()
    return {fact.flag: (fact.source, fact.how) for fact in facts if fact.layer == "models.home/m"}


def test_a_provider_and_a_file_state_a_source_once_for_their_models(tmp_path: Path) -> None:
    """The most precise citation counts, and of equally precise ones the nearest."""
    page, listed = ("https://example.org/page", "docs"), ("https://example.org/list", "code")
    nothing = (None, None)
    assert shared(tmp_path) == {"limits.context": page, "limits.output": listed, "tools.supported": nothing}
    own = 'sources = { list = { backs = ["limits", "tools"], how = "issue" } }\n'
    issue = ("https://example.org/list", "issue")
    assert shared(tmp_path, own) == {"limits.context": issue, "limits.output": listed, "tools.supported": issue}


def test_what_is_shared_counts_as_a_source_in_the_checks(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(f"{HOME}{MODEL}{SHARED}{NAMED}")
    (document,) = [one for one in load_documents([str(file)]) if one.label == str(file)]
    unsourced = [path for path in unsourced_paths(document) if path[0] == "models"]
    assert unsourced == [["models", "home/m", "tools", "supported"]]
    assert check([str(file)]) == []


def test_a_shared_source_that_no_model_needs_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(f'{HOME}{MODEL}sources = {{ page = ["limits"] }}\n{SHARED}{NAMED}')
    faults = [(problem.line, problem.message) for problem in check([str(file)])]
    line = file.read_text().split("\n").index('page = ["models.limits"]') + 1
    assert faults == [(line, "providers.home.sources.page backs 'models.limits', which no model takes from it")]


def test_the_sources_of_the_built_in_file_are_stated_once() -> None:
    """Citations are under three tenths of the file; most facts take theirs from their provider or the whole file."""
    text = builtin_path().read_text(encoding="utf-8")
    size, inside = 0, False
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            inside = line.startswith("[sources]") or line.rstrip().endswith(".sources]")
        size += len(line.encode()) if inside or line.startswith("sources") else 0
    assert size < 0.3 * len(text.encode())
