"""The catalogue: models of which a public list knows limits and prices, and nobody how they behave."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from examples import SHARE
from program import completed

from cnllm import Client, Registry, UnknownModel
from cnllm.client.credentials import untrusted_models
from cnllm.registry import registry as module
from cnllm.registry.documents import CATALOGUE, Document
from cnllm.registry.files import data_folder
from cnllm.registry.read import catalogue_path, read
from cnllm.registry.sites import unsure_sites
from cnllm.registry_files import sources

NAME = "kilo/openai/gpt-4o"


@pytest.fixture(scope="module")
def catalogue() -> Document:
    return read(catalogue_path(), builtin=True)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def test_the_catalogue_is_broad(registry: Registry) -> None:
    assert len(registry.providers) + len(registry.catalogue_providers()) >= 200
    assert len(registry.names(catalogue=True)) >= 5000
    assert set(registry.names()) < set(registry.names(catalogue=True))


@pytest.mark.sampled
def test_every_model_resolves_with_a_note(registry: Registry, catalogue: Document) -> None:
    for name in list(catalogue.data["models"])[::SHARE]:
        model = registry.resolve(name)
        assert model.name == name
        assert "catalogue-model" in [note.code for note in model.notes], name


def test_its_keys_go_nowhere_else(registry: Registry, catalogue: Document) -> None:
    hosts: dict[str, set[str | None]] = {}
    for name in registry.providers:
        flags = registry.resolve(f"{name}/any").flags
        for key in flags.keys or ():
            hosts.setdefault(key, set()).add(urlsplit(flags.base_url or "").hostname)
    for name, table in catalogue.data["providers"].items():
        if "base_url" not in table:
            continue
        url = urlsplit(table["base_url"])
        assert url.scheme == "https"
        assert "." in (url.hostname or "")
        for key in table["keys"]:
            assert url.hostname in hosts.get(key, {url.hostname}), (name, key)
            assert key.endswith(("KEY", "TOKEN", "PAT", "SECRET")), (name, key)
            assert not key.startswith(("GITHUB", "AWS", "AZURE", "GOOGLE", "SSH")), (name, key)


def test_every_value_has_a_source(registry: Registry, catalogue: Document) -> None:
    assert sources.unsourced_flags([catalogue]) == []
    facts = {fact.flag: fact for fact in registry.resolve(NAME).explain()}
    assert facts["limits.context"].where.startswith(f"{CATALOGUE}:")
    assert facts["limits.context"].source == "https://models.dev/api.json#kilo"
    assert facts["limits.context"].seen == "2026-09-30"


# ── rank ─────────────────────────────────────────────────────────────────────
def test_what_is_described_by_hand_is_found_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "catalogue_path", lambda: tmp_path / "missing.toml")
    registry = Registry.load()
    for name in ("glm-4.7", "deepseek", "zai/glm-4.7", "claude"):
        assert registry.resolve(name).flags.base_url


def test_the_endpoints_of_all_providers_are_found_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[providers.mine]\nbase_url = "https://mine.example/v1"\nkeys = ["MINE_KEY"]\nprotocol = "openai-chat"\n'
    )
    monkeypatch.setenv("CNLLM_PROVIDERS", str(own))
    monkeypatch.setenv("MINE_KEY", "k")
    monkeypatch.setenv("MOONSHOT_API_KEY", "k")  # fits two sites
    monkeypatch.setattr(module, "catalogue_path", lambda: tmp_path / "no catalogue")
    registry = Registry.load()
    for name in registry.providers:
        assert registry.endpoint(name).provider == name
    assert list(untrusted_models(registry)) == ["mine"]
    assert [note.did.partition(" ")[0] for note in unsure_sites(registry)] == ["moonshotai"]


def test_an_endpoint_of_a_provider_that_only_it_has(registry: Registry) -> None:
    assert registry.endpoint("kilo").flags.base_url
    with pytest.raises(UnknownModel, match="no provider is called nobody") as caught:
        registry.endpoint("nobody")
    assert caught.value.hint


def test_the_order_of_look_ups_changes_nothing() -> None:
    late, early = Registry.load(), Registry.load()
    early.resolve(NAME)
    for name in ("glm-4.7", "kimi-k2.6", "qwen3-max", "gpt-oss-120b", "deepseek-v3.2"):
        assert outcome(early, name) == outcome(late, name), name


def outcome(registry: Registry, name: str) -> str:
    try:
        return registry.resolve(name).name
    except UnknownModel as error:
        return str(error)


def test_a_name_that_only_it_has(registry: Registry, catalogue: Document) -> None:
    ids: dict[str, list[str]] = {}
    for name in registry.names(catalogue=True):
        if "/" not in (id := name.partition("/")[2]):  # else the id itself names a provider
            ids.setdefault(id.casefold(), []).append(name)
    alone = next(
        names[0] for id, names in sorted(ids.items()) if len(names) == 1 and names[0] in catalogue.data["models"]
    )
    assert registry.resolve(alone.partition("/")[2]).name == alone
    shared = next(
        names for id, names in sorted(ids.items()) if len(names) > 3 and set(names) <= catalogue.data["models"].keys()
    )
    with pytest.raises(UnknownModel, match="served by several providers"):
        registry.resolve(shared[0].partition("/")[2])


def test_a_file_of_the_user_may_add_to_it(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(
        '[providers.kilo]\nreasoning.mode = "never"\n'
        '[models."kilo/openai/gpt-4o"]\nlimits.output = 7\n'
        '[models."kilo/new"]\nextends = "kilo/openai/gpt-4o"\nsame_weights = true\n'
        '[aliases]\nquick = "kilo/openai/gpt-4o"\n'
    )
    registry = Registry.load(file)
    model = registry.resolve("quick")
    assert model.name == NAME
    assert model.flags.base_url == "https://api.kilo.ai/api/gateway"
    assert (model.flags.limits.output, model.flags.limits.context) == (7, 128000)
    assert model.flags.reasoning.mode == "never"
    new = registry.resolve("kilo/new")
    assert new.flags.limits.context == 128000


def test_a_provider_and_a_model_by_hand_still_have_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(
        '[providers.kilo]\nextends = "openai-compatible"\ntitle = "V"\nprotocol = "openai-chat"\n'
        'base_url = "https://api.kilo.ai/api/gateway"\nkeys = []\n'
        '[models."kilo/openai/gpt-4o"]\nreasoning.mode = "never"\n'
    )
    registry = Registry.load(file)
    for name, mode in ((NAME, "never"), ("kilo/openai/gpt-4o-mini", "unknown")):
        model = registry.resolve(name)
        assert model.flags.title == "V"
        assert model.flags.limits.context == 128000
        assert model.flags.reasoning.mode == mode
        assert "unknown-model" not in [note.code for note in model.notes]


def test_a_fault_of_the_user_is_reported_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text('[models."home/x"]\nlimits.context = 5\n[models."zai/x"]\nextends = "zai/nothing"\n')
    registry = Registry.load(file)
    with pytest.raises(Exception, match="nothing"):
        registry.resolve("zai/x")


def test_an_unknown_id_of_its_providers_is_accepted(registry: Registry) -> None:
    model = registry.resolve("kilo/some/thing-new")
    assert model.id == "some/thing-new"
    assert "unknown-model" in [note.code for note in model.notes]


# ── age ──────────────────────────────────────────────────────────────────────
def write_updates(days: int) -> None:
    """Write a file of updates whose list was read so many days ago."""
    seen = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days)
    path = Path(data_folder()) / "updates.toml"
    path.parent.mkdir(parents=True)
    cited = f'sources.list = {{ url = "https://example.org", seen = {seen}, how = "code", backs = ["limits.context"] }}'
    path.write_text(f'schema = 1\n[models."zai/glm-99"]\nlimits.context = 5000\n{cited}\n')


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.parametrize(("days", "is_old"), [(30, False), (31, True)])
def test_old_data_of_a_list_are_a_warning_once(days: int, is_old: bool) -> None:
    """The age is that of the fact's own source; it is said beside the reply and never in it."""
    write_updates(days)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        with Client(simulate=True) as client:
            for _ in range(3):
                reply = client.call("zai/glm-99", "hi")
    messages = [str(one.message) for one in found]
    said = f"were read {days} days ago"
    assert [said in message and "cnllm registry update" in message for message in messages] == [True] * is_old
    assert not any("days ago" in note.did + note.said for note in reply.notes)
    shown = completed(["models", "show", "zai/glm-99"])
    assert (said in shown.stderr, "days ago" in shown.stdout) == (is_old, False)
    assert shown.stderr.count("days ago") == is_old
