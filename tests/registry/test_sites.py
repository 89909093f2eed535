"""Sites of one vendor: who they are, and which variable means which of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from cnllm import CnllmError, Model, Registry
from cnllm.config.paths import config_dir
from cnllm.registry.sites import choose_site, keep_site
from cnllm.registry_files.check import check

TWO = """
[providers.one]
title = 'One'
protocol = 'openai-chat'
base_url = 'https://one.example/v1'
keys = ['ONE_KEY', 'BOTH_KEY', 'NAMED_KEY']
site = { vendor = 'ab', region = 'global' }
[providers.two]
extends = 'one'
title = 'Two'
base_url = 'https://two.example/v1'
keys = ['BOTH_KEY', 'NAMED_KEY']
site = { vendor = 'ab', region = 'cn', keys = ['NAMED_KEY'] }
[providers.plan]
extends = 'two'
title = 'A plan'
base_url = 'https://two.example/plan/v1'
"""


def of(folder: Path, text: str) -> Registry:
    file = folder / "sites.toml"
    file.write_text(text)
    return Registry.load(file)


def test_a_variable_means_the_only_site_that_reads_it_or_the_one_that_names_it(tmp_path: Path) -> None:
    sites = of(tmp_path, TWO).sites("two")
    assert {name: site["keys"] for name, site in sites.items()} == {"one": ["ONE_KEY"], "two": ["NAMED_KEY"]}
    assert {name: site["region"] for name, site in sites.items()} == {"one": "global", "two": "cn"}


def test_a_plan_that_extends_a_site_is_none(tmp_path: Path) -> None:
    registry = of(tmp_path, TWO)
    assert registry.sites("plan") == {}
    assert registry.resolve("plan/x").flags.site is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "vendor = 'ab', region = 'cn'",
            "vendor = 'other', region = 'cn'",
            "site.vendor: no other provider has 'other'",
        ),
        ("keys = ['NAMED_KEY'] }", "keys = ['ELSE_KEY'] }", "site.keys: 'ELSE_KEY' is not a variable of its `keys`"),
    ],
)
def test_a_site_without_another_or_with_a_foreign_variable_is_a_fault(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "sites.toml"
    file.write_text(TWO.replace(old, new))
    assert any(message in problem.message for problem in check([str(file)]))


def test_sites_that_share_a_variable_are_described() -> None:
    """Providers that one variable fits are sites of one vendor, plans of it, or stand here with the reason."""
    registry = Registry.load()
    vendors = {name: registry.resolve(f"{name}/any").flags.site for name in registry.providers}
    described = {name for name, site in vendors.items() if site is not None}
    assert {"zai", "zhipuai", "moonshotai-cn", "alibaba-us", "siliconflow-cn", "stepfun-ai", "byteplus"} <= described
    readers: dict[str, set[str]] = {}
    for name in registry.providers:
        for key in registry.resolve(f"{name}/any").flags.keys or ():
            readers.setdefault(key, set()).add(name)
    alone = {
        # several services at one site, each with models of its own
        *("amazon-bedrock", "bedrock-mantle", "opencode", "opencode-go", "spark", "spark-x", "spark-x2", "spark-x25"),
        # a plan at one site
        *("sensenova", "sensenova-token-plan", "kwai-coding-plan", "volcengine-agent-plan", "xiaomi"),
        *("cloudflare-ai-gateway", "cloudflare-workers-ai"),  # two services of one account
    }
    shared = {name for names in readers.values() if len(names) > 1 for name in names}
    assert shared - described == alone & shared
    assert registry.sites("zai")["zhipuai"]["keys"] == ["ZHIPU_API_KEY", "ZHIPUAI_API_KEY"]


# ── the choice ───────────────────────────────────────────────────────────────

BUILTIN = Registry.load()
GROUPS = {
    str(BUILTIN.sites(name)[name]["vendor"]): BUILTIN.sites(name) for name in BUILTIN.providers if BUILTIN.sites(name)
}


def variables(site: str) -> list[str]:
    return BUILTIN.resolve(f"{site}/any").flags.keys or []


def bare_names(sites: dict[str, Any]) -> list[str]:
    """Names without a provider that mean a model which each of these sites has; at most three."""
    ids = [{name.partition("/")[2] for name in BUILTIN.names() if name.partition("/")[0] == site} for site in sites]
    names = [id for id in sorted(set.intersection(*ids)) if BUILTIN.aliases.get(id, "").partition("/")[0] in sites]
    return names[:3]


def choose(name: str, *, is_bare: bool = False, registry: Registry = BUILTIN, **more: Any) -> tuple[str, list[str]]:
    """The provider that is chosen, and the notes about it."""
    model = choose_site(registry, name, is_bare=is_bare, **more)
    return model.provider, [str(note) for note in model.notes if note.code == "site"]


def cases() -> list[tuple[str, str, bool]]:
    """A vendor, and a name that means a model of it: bare ones, and for vendors without any a full one."""
    found = []
    for vendor, sites in GROUPS.items():
        names = bare_names(sites)
        found += [(vendor, name, False) for name in names] or [(vendor, f"{next(iter(sites))}/x", True)]
    return found


@pytest.mark.parametrize(("vendor", "name", "is_bare"), cases())
def test_a_bare_name_goes_to_the_site_whose_variable_is_set(
    vendor: str, name: str, is_bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = GROUPS[vendor]
    default, silent = choose(name, is_bare=is_bare)
    assert (default, silent) == (BUILTIN.resolve(name).provider, [])  # no key at all
    shared = {key for site in sites for key in variables(site)} - {key for s in sites.values() for key in s["keys"]}
    for site, table in sites.items():
        for key in table["keys"]:
            with monkeypatch.context() as env:
                env.setenv(key, "k")
                chosen, notes = choose(name, is_bare=is_bare)
                assert chosen == site
                assert len(notes) == 1
                assert site in notes[0]
                assert f"{key} is set" in notes[0]
                for other in set(sites) - {site}:
                    for second in (*sites[other]["keys"], *(shared & {*variables(other)} - {*variables(site)})):
                        with monkeypatch.context() as both:
                            both.setenv(second, "k2")
                            chosen, notes = choose(name, is_bare=is_bare)
                            if default in (site, other):  # keys for both: as without a key
                                assert (chosen, notes) == (default, [])
                            else:
                                assert chosen in (site, other)
    for key in shared:
        readers = [site for site in sites if key in variables(site)]
        if len(readers) < 2:
            continue
        with monkeypatch.context() as env:
            env.setenv(key, "k")
            chosen, notes = choose(name, is_bare=is_bare)
            assert len(notes) == 1
            assert chosen in readers
            if default in readers and len(readers) == len(sites) and bare_names(sites):
                assert chosen == default
                assert f"cnllm keys test {key}" in notes[0]
            for site in readers:
                keep_site(vendor, key, site)
                assert choose(name, is_bare=is_bare) == (site, [note_of(name, site, f"you chose it for {key}")])
                assert choose(name, is_bare=is_bare, api_key="k")[0] == site  # the key of that variable
            (config_dir() / "sites.json").unlink()


def note_of(name: str, site: str, reason: str) -> str:
    return f"site: {name} → {site} ({BUILTIN.resolve(f'{site}/any').flags.base_url}): {reason}"


OWN = """
prefer = ['zai']
[aliases]
mine = 'moonshotai/kimi-k2.6'
"""


def test_a_full_name_a_preferred_provider_and_an_alias_of_the_user_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZHIPU_API_KEY", "k")
    keep_site("moonshot", "MOONSHOT_API_KEY", "moonshotai-cn")
    monkeypatch.setenv("MOONSHOT_API_KEY", "k")
    assert choose("zai/glm-4.7") == ("zai", [])
    assert choose("ZAI/glm-4.7") == ("zai", [])
    registry = of(tmp_path, OWN)
    assert choose("glm-4.7", registry=registry) == ("zai", [])
    assert choose("glm", registry=registry) == ("zai", [])
    assert choose("mine", registry=registry) == ("moonshotai", [])
    assert choose("kimi-k2.6", registry=registry)[0] == "moonshotai-cn"
    assert registry.resolve("kimi-k2.6").provider == "moonshotai"  # reads no key and no choice
    monkeypatch.setenv("MOONSHOTAI_API_KEY", "k")
    own = choose_site(registry, "kimi-k2.6", base_url="http://127.0.0.1:1/v1")
    assert (own.provider, own.flags.base_url) == ("moonshotai", "http://127.0.0.1:1/v1")


def test_a_plan_is_chosen_by_its_own_variable_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name, provider in (
        ("ZAI_CODING_CN_API_KEY", "glm-4.7", "zhipuai-coding-plan"),
        ("ARK_API_KEY", "doubao-seed-2-0-lite-260215", "volcengine"),
        ("XIAOMI_API_KEY", "mimo-v2.6-pro", "xiaomi"),
        ("XIAOMI_TOKEN_PLAN_API_KEY", "mimo-v2.6-pro", "xiaomi-token-plan-cn"),
        ("ZHIPU_API_KEY", "glm-4.7", "zhipuai"),
        ("OPENAI_API_KEY", "glm-4.7", "zai"),
    ):
        with monkeypatch.context() as env:
            env.setenv(variable, "k")
            assert choose(name)[0] == provider, (variable, name)


def test_the_model_of_another_wire_has_the_note_and_stays_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZHIPU_API_KEY", "k")
    model = choose_site(BUILTIN, "glm-4.7")
    assert choose_site(BUILTIN, "glm-4.7") is model
    assert model.over is not None
    other = model.over("anthropic-messages")
    assert other is model.over("anthropic-messages")
    assert [note.code for note in other.notes] == ["site"]
    assert "bigmodel.cn" in str(choose_site(BUILTIN, "glm-4.7", protocol="anthropic-messages").flags.base_url)


def test_the_user_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHSCOPE_API_KEY", "k")
    questions: list[tuple[str, list[str]]] = []

    def ask(variable: str, models: Sequence[Model]) -> str:
        questions.append((variable, [model.provider for model in models]))
        return models[1].provider

    sites = [site for site in GROUPS["alibaba"] if f"{site}/qwen3.7-max" in BUILTIN.names()]
    for _ in range(2):
        assert choose("qwen3.7-max", ask=ask)[0] == sites[1]
    assert questions == [("DASHSCOPE_API_KEY", sites)]
    assert choose("qwen3.8-max")[0] == sites[1]  # the choice is of the key, not of the model


WRITER = """
import sys
from cnllm.registry.sites import keep_site
for number in range(int(sys.argv[2])):
    keep_site(sys.argv[1], f"KEY_{number}", f"site-{number}")
    print(number, flush=True)
"""


def test_processes_lose_no_choice_and_a_killed_one_leaves_the_file_whole() -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name, "12"], stdout=subprocess.DEVNULL) for name in "ab"]
    victim = subprocess.Popen([sys.executable, "-c", WRITER, "c", "100000"], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"0\n"
    assert [writer.wait(60) for writer in writers] == [0, 0]
    victim.kill()
    victim.wait()
    victim.stdout.close()
    choices = json.loads((config_dir() / "sites.json").read_text())
    assert [len(choices[name]) for name in "ab"] == [12, 12]
    assert choices["c"]["KEY_0"] == "site-0"
    keep_site("d", "KEY", "site")
    assert list(config_dir().glob(".cnllm-*")) == []  # what the killed one left


def test_a_broken_file_of_choices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config_dir().mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("MOONSHOT_API_KEY", "k")
    for content in ("{", "[]", '{"moonshot": "moonshotai"}', '{"moonshot": {"MOONSHOT_API_KEY": 1}}'):
        (config_dir() / "sites.json").write_text(content)
        with pytest.raises(CnllmError, match=r"sites\.json"):
            choose("kimi-k2.6")
    (config_dir() / "sites.json").write_text('{"moonshot": {"MOONSHOT_API_KEY": "gone"}}')
    assert choose("kimi-k2.6")[0] == "moonshotai"


WIRE = (
    "error",
    "errors",
    "finish",
    "leaks",
    "messages",
    "params",
    "reasoning",
    "schema",
    "stream",
    "tool_choice",
    "tools",
)


def test_sites_of_one_vendor_differ_on_the_wire_only_where_a_table_of_their_own_says_so() -> None:
    by_vendor: dict[str, dict[str, list[Model]]] = {}
    for model in map(BUILTIN.resolve, BUILTIN.names()):
        if (site := model.flags.site) is not None and site.vendor is not None:
            by_vendor.setdefault(site.vendor, {}).setdefault(model.id, []).append(model)
    twins = [pair for ids in by_vendor.values() for one in ids.values() for pair in combinations(one, 2)]
    assert len(twins) > 100
    values = {
        model.name: {fact.flag: repr(fact.value) for fact in model.explain() if fact.flag.startswith(WIRE)}
        for model in {model.name: model for pair in twins for model in pair}.values()
    }
    unsaid = []
    for one, other in twins:
        first, second = values[one.name], values[other.name]
        different = sorted(flag for flag in {*first, *second} if first.get(flag) != second.get(flag))
        own = [find_table(BUILTIN.documents, m.name) for m in (one, other)]
        unsaid += [(one.name, other.name, f) for f in different if not any(says(table, f) for table in own)]
    assert unsaid == []


def find_table(documents: Sequence[Any], name: str) -> dict[str, Any]:
    """The table of a model in the built-in file, {} where it has none."""
    return next((d.data["models"][name] for d in documents if name in d.data.get("models", {})), {})


def says(table: dict[str, Any], flag: str) -> bool:
    """Whether a table sets or unsets a flag, or all that it belongs to."""
    cleared = any(flag == one or flag.startswith(f"{one}.") for one in table.get("unset", ()))
    return cleared or flag.partition(".")[0] in table
