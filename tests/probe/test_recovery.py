"""Of a strict simulator that hides its models, a probe learns what the registry says, and nothing else."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from cnllm import Registry, engine, probe
from cnllm.probe.claims import judge_facts
from cnllm.registry_files.check import check
from cnllm.simulator.server import running

from .endpoint import KEY

REGISTRY = Registry.load()
MODELS = [
    ("zai/glm-4.7", "openai-chat", 20),
    pytest.param("mistral/mistral-large-4", "openai-chat", 16, marks=pytest.mark.long),
    ("zhipuai/glm-5.3", "anthropic-messages", 14),
    ("google/gemini-4-argon", "gemini", 14),
    pytest.param("openai/gpt-6.1-terra", "openai-responses", 14, marks=pytest.mark.long),
]


@cache
def report(name: str, protocol: str, max_requests: int = 200) -> probe.Report:
    with running(REGISTRY, strict=True, neutral=True, models=[REGISTRY.resolve(name).name]) as server:
        return probe.run(
            server.url,
            model="model-1",
            protocol=protocol,
            api_key=KEY,
            max_requests=max_requests,
            registry=REGISTRY,
        )


@pytest.mark.parametrize(("name", "protocol", "least"), MODELS)
def test_what_it_learns_is_what_the_registry_says(name: str, protocol: str, least: int, tmp_path: Path) -> None:
    model = REGISTRY.resolve(name, protocol=protocol)
    found = report(name, protocol)
    verdicts = judge_facts(model, found.facts)
    assert verdicts["contradicted"] == []
    assert len(verdicts["agreed"]) >= least
    check_overlay(found, protocol, tmp_path / "probed.toml")


def check_overlay(found: probe.Report, protocol: str, file: Path) -> None:
    """The overlay is a registry file without faults, and says what was found."""
    file.write_text(found.overlay, encoding="utf-8")
    assert [p.message for p in check([str(file)]) if p.severity == "error"] == []
    model = Registry.load(file).resolve(found.name)
    assert (model.protocol, model.id) == (protocol, "model-1")
    by_flag = {fact.flag: fact for fact in model.explain()}
    for fact in found.facts:
        if fact.answer != "unknown" and not fact.flag.startswith(("auth.", "usage.", "finish.")):
            names = {fact.flag, f"{fact.flag}.as", fact.flag.removesuffix(".as")}
            assert names & by_flag.keys() or fact.value == {}, fact
    assert {f.how for f in model.explain() if f.layer.startswith("models.") and f.source} == {"probe"}


def test_a_request_by_the_overlay_is_taken_as_the_endpoint_wants_it(tmp_path: Path) -> None:
    found = report("zai/glm-4.7", "openai-chat")
    file = tmp_path / "probed.toml"
    file.write_text(found.overlay, encoding="utf-8")
    model = Registry.load(file).resolve(found.name)
    plan = engine.build_request(model, "Hi", reasoning="off", seed=3, temperature=2)
    assert plan.body["thinking"] == {"type": "disabled"}
    assert "seed" not in plan.body
    assert {note.flag for note in plan.notes} >= {"params.seed"}


BUDGET = "generationConfig.thinkingConfig.thinkingBudget"
INVENTED: list[Any] = [
    pytest.param("gemini", {"params": {"seed": "ignored"}}, {"params.seed": "ignored"}, id="ignored"),
    pytest.param("gemini", {}, {"params.seed": None}, id="not ignored", marks=pytest.mark.long),
    pytest.param(
        "openai-responses",
        {"unset": ["reasoning.effort", "reasoning.off"], "reasoning": {"mode": "never"}},
        {"reasoning.mode": "never"},
        id="it refuses what is there for models that reason",
        marks=pytest.mark.long,
    ),
    pytest.param(
        "openai-responses",
        {
            "unset": ["reasoning.effort"],
            "reasoning": {"mode": "toggle", "default": "on", "off": {"set": {"enable_thinking": False}}},
        },
        {"reasoning.mode": "toggle", "reasoning.off.set.enable_thinking": False},
        id="a switch of another wire",
        marks=pytest.mark.long,
    ),
    pytest.param(
        "gemini",
        {
            "reasoning": {
                "mode": "toggle",
                "default": "off",
                "off": {"set": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}},
                "budget": {"at": BUDGET, "min": 1024, "max": 24576},
            }
        },
        {"reasoning.budget.min": 1024, f"reasoning.off.set.{BUDGET}": 0},
        id="no tokens turn it off, a few are refused",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize(("protocol", "flags", "wanted"), INVENTED)
def test_an_endpoint_that_nobody_has_described(protocol: str, flags: Any, wanted: Any, tmp_path: Path) -> None:
    file = tmp_path / "invented.toml"
    provider = {"title": "X", "protocol": protocol, "base_url": "http://127.0.0.1:9/v1", "keys": ["X_API_KEY"]}
    file.write_text(tomli_w.dumps({"providers": {"invented": provider}, "models": {"invented/m": flags}}))
    with running(Registry.load(file), strict=True, neutral=True, models=["invented/m"]) as server:
        found = probe.run(
            server.url, model="model-1", protocol=protocol, api_key=KEY, max_requests=200, registry=REGISTRY
        )
    seen = {fact.flag: fact.value for fact in found.facts if fact.answer != "unknown"}
    assert {flag: seen.get(flag) for flag in wanted} == wanted


@pytest.mark.parametrize("budget", [1, 5, 17, 40])
def test_the_budget_counts_everything(budget: int) -> None:
    with running(REGISTRY, strict=True, neutral=True, models=["zai/glm-4.7"]) as server:
        found = probe.run(server.url, model="model-1", api_key=KEY, max_requests=budget, registry=REGISTRY)
    assert found.requests <= budget
    assert found.stopped


def test_every_value_has_exchanges_that_prove_it() -> None:
    found = report("zai/glm-4.7", "openai-chat")
    by_number = {exchange.number: exchange for exchange in found.exchanges}
    for fact in found.facts:
        if fact.answer == "unknown" or fact.flag.startswith("auth."):
            continue
        proof = [by_number[number] for number in fact.exchanges]
        assert len(proof) > 1, fact
        if fact.answer == "refused":
            refusals = [e for e in proof if e.answer.refused]
            assert len(refusals) > 1, fact


def test_the_key_is_nowhere() -> None:
    found = report("zai/glm-4.7", "openai-chat")
    assert KEY not in found.overlay + found.text() + repr(found.exchanges)


def test_the_report_shows_what_differs_with_request_and_answer() -> None:
    text = report("zai/glm-4.7", "openai-chat").text()
    assert "things differ from the protocol's documentation" in text
    section = text.split("### messages.developer = false")[1].split("###")[0]
    assert '"role": "developer"' in section
    assert "Answer: 400" in section


def test_the_provider_is_named_after_the_address_that_the_user_gave() -> None:
    data = tomllib.loads(report("zai/glm-4.7", "openai-chat").overlay)
    (name,) = data["providers"]
    assert name.startswith("127-0-0-1-")
    assert data["providers"][name]["base_url"].startswith("http://127.0.0.1:")
