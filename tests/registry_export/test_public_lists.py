"""What is offered to two public lists is read there as what the registry says, and nothing unknown is in it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import program
import pytest
from home_folders import SHARED_CACHE
from small import small_file

from cnllm import Registry
from cnllm.registry.read import read
from cnllm.registry_export.public_lists import litellm_entries, models_dev_files
from cnllm.registry_files.compare import compare, entries_for
from cnllm.registry_files.public_lists import PublishedModel, published_models

OWN = """
[providers.home]
title    = "A server at home"
protocol = "openai-chat"
base_url = "http://user:secret-word@127.0.0.1:9/v1"
keys     = ["HOME_KEY"]

[models."home/new"]
limits.context = 4096

[models."zai/glm-4.7"]
status.shutdown = 2027-03-01

[models."home/yuan"]
input = ["text", "image", "file"]
price = { input = 7, output = 9, currency = "CNY" }
status = { is = "retired", since = 2026-01-01 }
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    own = tmp_path_factory.mktemp("own") / "own.toml"
    own.write_text(OWN)
    return Registry([read(small_file(Path(os.environ[SHARED_CACHE]) / "small"), builtin=True), read(own)])


@pytest.fixture(scope="module")
def nested(registry: Registry) -> dict[str, Any]:
    """The files of models.dev as its site serves them: providers that hold their models."""
    out: dict[str, Any] = {}
    for path, content in models_dev_files(registry):
        _, provider, *rest = path.removesuffix(".toml").split("/")
        table = tomllib.loads(content.decode())
        if rest == ["provider"]:
            out.setdefault(provider, {"models": {}}).update(table)
        else:
            out.setdefault(provider, {"models": {}})["models"]["/".join(rest[1:])] = table
    return out


def require_no_difference(registry: Registry, name: str, content: bytes, least: int) -> None:
    """Check that the reader of the list finds the registry's own values in it."""
    found, published = published_models(content, name)
    assert found == name
    result = compare(registry, published)
    assert [d for d in result.disagreements if d.cause != "input-less"] == []
    assert result.values > least


def test_models_dev_would_say_what_the_registry_says(registry: Registry, nested: dict[str, Any]) -> None:
    require_no_difference(registry, "models.dev", json.dumps(nested).encode(), 300)


def test_litellm_would_say_what_the_registry_says(registry: Registry) -> None:
    require_no_difference(registry, "litellm", json.dumps(litellm_entries(registry)).encode(), 200)


def test_what_is_unknown_or_has_no_place_is_left_out(registry: Registry, nested: dict[str, Any]) -> None:
    new, yuan = nested["home"]["models"]["new"], nested["home"]["models"]["yuan"]
    assert new == {"limit": {"context": 4096}}
    assert "cost" not in yuan, "prices there are in dollars"
    assert (yuan["attachment"], yuan["modalities"]["input"], yuan["status"]) == (
        True,
        ["text", "image", "pdf"],
        "deprecated",
    )
    text = dict(models_dev_files(registry))["providers/home/models/new.toml"].decode()
    needed = text.splitlines()[0]
    assert needed.startswith("# ")
    assert all(word in needed for word in ("name", "reasoning", "limit.output", "modalities.output"))
    assert "secret-word" not in json.dumps(nested)
    assert not any(name.startswith("home/") for name in litellm_entries(registry)), "litellm has no such endpoint"


def test_each_value_names_its_source(registry: Registry) -> None:
    text = dict(models_dev_files(registry))["providers/zai/models/glm-4.7.toml"].decode()
    model = registry.resolve("zai/glm-4.7")
    fact = next(fact for fact in model.explain() if fact.flag == "price.input")
    assert f"input = {fact.value} # {fact.source} ({fact.how}, {fact.seen})" in text


def test_an_announced_shutdown_is_the_date_of_litellm(registry: Registry) -> None:
    assert litellm_entries(registry)["zai/glm-4.7"]["deprecation_date"] == "2027-03-01"


def test_a_reasoning_model_has_its_options_or_says_nothing(nested: dict[str, Any]) -> None:
    """The schema of models.dev wants them together."""
    for provider in nested.values():
        for id, model in provider["models"].items():
            assert (model.get("reasoning") is True) == bool(model.get("reasoning_options")), id


def test_prices_of_tokens_are_exact(registry: Registry) -> None:
    entries = litellm_entries(registry)
    assert entries["zai/glm-4.7"]["output_cost_per_token"] == 2.2e-06
    price = registry.resolve("deepseek/deepseek-flash").flags.price
    assert price is not None
    assert price.cached is not None
    assert entries["deepseek/deepseek-flash"]["cache_read_input_token_cost"] == float(f"{price.cached}e-6")


@pytest.mark.long
def test_the_names_of_endpoints_in_litellm_lead_to_the_same_endpoint() -> None:
    """Two sites of a vendor are not mixed up: an entry is found again at the provider it came from."""
    registry = Registry.load()
    published = published_models(json.dumps(litellm_entries(registry)).encode(), "litellm")[1]
    by_id: dict[str, list[PublishedModel]] = {}
    for entry in published:
        by_id.setdefault(entry.id.casefold(), []).append(entry)
    lost = [
        name
        for name in registry.names()
        if (model := registry.resolve(name)).provider in {"google", "zai", "alibaba", "togetherai"}
        and model.id.casefold() in by_id
        and not entries_for(model, by_id[model.id.casefold()])
    ]
    assert lost == []


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.parametrize(
    ("form", "file"),
    [("models.dev", "providers/zai/provider.toml"), ("litellm", "model_prices_and_context_window.json")],
)
def test_the_command_writes_the_folder_with_its_licence(tmp_path: Path, form: str, file: str) -> None:
    done = program.completed(["registry", "export", "--format", form, "-o", str(tmp_path / "out")])
    assert done.returncode == 0, done.stderr
    for name in (file, "LICENSE", "DATA_SOURCES.md"):
        assert (tmp_path / "out" / name).stat().st_size > 100, name
