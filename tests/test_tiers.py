"""Tiers and reloading: what a registry file says about choosing, and an edit of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cnllm
from cnllm import Client, Registry

TIERS = '[tiers]\nfast = ["deepseek/deepseek-v4-pro", "zai/glm-4.7", "deepseek/deepseek-flash"]\n'
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TIERS)
    return path


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEPSEEK_API_KEY", "ZAI_API_KEY", "ZHIPU_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_tier_is_the_first_model_with_a_key(overlay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", "sk-0123456789")
    plan = Client(Registry.load(overlay)).plan("tier:fast", "hi")
    assert plan.model.name == "zai/glm-4.7"
    assert plan.notes[0].flag == "tiers"
    assert plan.notes[0].did == "zai/glm-4.7 (deepseek/deepseek-v4-pro: DEEPSEEK_API_KEY is not set)"


def test_a_model_that_cannot_do_what_is_asked_is_passed_over(overlay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-0123456789")
    client = Client(Registry.load(overlay))
    plan = client.plan("tier:fast", [{"role": "user", "content": [IMAGE]}])
    assert plan.model.name == "deepseek/deepseek-flash"
    assert "it takes no images" in plan.notes[0].did


def test_messages_that_can_be_read_once_are_read_once(overlay: Path) -> None:
    plan = Client(Registry.load(overlay), simulate=True).plan("tier:fast", iter(["hi"]))
    assert plan.body["messages"][-1]["content"] == "hi"


def test_a_tier_without_any_key_says_what_each_lacks(overlay: Path) -> None:
    with pytest.raises(cnllm.UnknownModel, match=r"DEEPSEEK_API_KEY is not set.*ZAI_API_KEY is not set"):
        Client(Registry.load(overlay)).plan("tier:fast", "hi")


def test_a_server_on_this_machine_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    path = tmp_path / "mine.toml"
    path.write_text('[tiers]\nnear = ["deepseek/deepseek-flash", "vllm/my-model"]\n')
    plan = Client(Registry.load(path)).plan("tier:near", "hi")
    assert plan.model.name == "vllm/my-model"


def test_an_unknown_tier_names_the_known_ones(overlay: Path) -> None:
    with pytest.raises(cnllm.UnknownModel) as caught:
        Client(Registry.load(overlay)).plan("tier:slow", "hi")
    assert caught.value.hint == "tiers: fast"


def test_the_simulator_needs_no_key_for_a_tier(overlay: Path) -> None:
    with Client(Registry.load(overlay), simulate=True) as client:
        assert client.call("tier:fast", "hi").message.by == "deepseek/deepseek-v4-pro"


def test_an_edit_is_taken_up_when_asked(overlay: Path) -> None:
    registry = Registry.load(overlay)
    client = Client(registry, simulate=True)
    overlay.write_text(TIERS + '[models."zai/glm-4.7"]\nlimits.output = 7\n')
    assert client.plan("zai/glm-4.7", "hi", max_tokens=100).body["max_tokens"] == 100
    registry.reload()
    assert client.plan("zai/glm-4.7", "hi", max_tokens=100).body["max_tokens"] == 7


def test_an_edit_is_noticed_by_a_registry_that_watches(overlay: Path) -> None:
    registry = Registry.load(overlay, watch=True)
    assert registry.resolve("zai/glm-4.7").flags.limits != cnllm.Registry.load().resolve("zai/none").flags.limits
    overlay.write_text('[models."zai/glm-4.7"]\nlimits.output = 7\n')
    os.utime(overlay, ns=(1, 1))
    limits = registry.resolve("zai/glm-4.7").flags.limits
    assert limits.output == 7


def test_a_broken_edit_leaves_all_as_it_was(overlay: Path) -> None:
    registry = Registry.load(overlay)
    overlay.write_text("[tiers\n")
    with pytest.raises(cnllm.RegistryError) as caught:
        registry.reload()
    assert caught.value.line == 1
    assert list(registry.tiers) == ["fast"]
    assert registry.resolve("glm-4.7").name == "zai/glm-4.7"


def test_a_file_and_an_alias_that_come_later_are_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("CNLLM_PROVIDERS", raising=False)
    registry = Registry.load()
    assert registry.resolve("GLM-4.7").name == "zai/glm-4.7"  # and remembers how aliases are spelled
    (tmp_path / "providers.toml").write_text('[aliases]\nMine = "zai/glm-4.7"\n')
    registry.reload()
    assert registry.resolve("mine").name == "zai/glm-4.7"
