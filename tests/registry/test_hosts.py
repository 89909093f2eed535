"""Models with the same open weights, and routers that are told to use one endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from program import completed

from cnllm import Client, Message, Registry, UnknownModel

from .support import Files

HOME = "".join(
    f'[providers.{name}]\nprotocol = "openai-chat"\nbase_url = "https://{name}.test"\n' for name in ("home", "away")
)


def body(model: Any) -> dict[str, Any]:
    with Client(simulate=True) as client:
        plan = client.plan(model, [Message.user("Hi")])
    fields: dict[str, Any] = json.loads(plan.content)
    return fields


def test_the_hosts_of_a_model_are_found_by_the_name_of_its_weights_whatever_their_ids() -> None:
    hosts = Registry.load().hosts("kimi-k3")
    assert hosts[0] == "moonshotai/kimi-k3"
    assert len(hosts) >= 20
    assert {"cerebras/kimi-k3", "fireworks-ai/accounts/fireworks/models/kimi-k3", "nebius/moonshotai/Kimi-K3"} < {
        *hosts
    }
    assert not [name for name in hosts if "3.1" in name or "k3p1" in name or "fast" in name]
    assert Registry.load().hosts("kimi-k3.1-pro") == []  # no source names its weights


def test_weights_pass_to_a_model_that_extends_only_with_the_same_weights(files: Files) -> None:
    registry = files.load(
        HOME + '[models."home/a"]\nweights = "lab/A"\n[models."home/b"]\nextends = "home/a"\n'
        '[models."away/c"]\nextends = "home/a"\nsame_weights = true\n[models."away/d"]\nweights = "lab/A"\n'
    )
    assert registry.hosts("away/c") == ["away/c", "away/d", "home/a"]
    assert registry.hosts("home/b") == []
    assert registry.resolve("away/c").flags.weights == "lab/A"
    assert registry.resolve("home/b").flags.weights is None


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("openrouter/moonshotai/kimi-k3", "provider", {"only": ["deepinfra"]}),
        ("vercel/moonshotai/kimi-k3", "providerOptions", {"gateway": {"only": ["deepinfra"]}}),
        ("huggingface/moonshotai/Kimi-K3", "model", "moonshotai/Kimi-K3:deepinfra"),
    ],
)
def test_a_router_is_told_to_use_one_endpoint_in_its_own_words(name: str, key: str, value: object) -> None:
    model = Registry.load().resolve(name)
    assert body(model.pin("deepinfra"))[key] == value
    assert body(model).get(key) != value


def test_a_provider_that_is_no_router_cannot_be_pinned() -> None:
    with pytest.raises(UnknownModel, match="not a router"):
        Registry.load().resolve("moonshotai/kimi-k3").pin("deepinfra")


def test_the_list_of_models_shows_the_hosts_of_a_model() -> None:
    listed = completed(["models", "list", "--hosts", "kimi-k3", "--json"])
    assert "cerebras/kimi-k3" in {row["name"] for row in json.loads(listed.stdout)}
    unknown = completed(["models", "list", "--hosts", "kimi-k3.1-pro"])
    assert unknown.returncode == 2
    assert "weights" in unknown.stderr
