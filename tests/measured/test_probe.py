"""The judge of `python -m benchmarks probe` tells right facts from wrong ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builtin import modes

from benchmarks.probe import variants
from benchmarks.probe.invented import invent
from benchmarks.probe.judge import Verdict, hidden, judge
from benchmarks.probe.models import draw
from benchmarks.probe.shown import Endpoint
from benchmarks.probe.table import LIMIT, Run, passes, report
from cnllm import Registry, engine
from cnllm.registry.model import Model
from cnllm.simulator.respond import Endpoints


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


@pytest.fixture(scope="module")
def endpoint(registry: Registry) -> Endpoint:
    return Endpoint(registry, registry.resolve("zai/glm-4.7"))


def fact(flag: str, value: Any, answer: str = "works") -> SimpleNamespace:
    return SimpleNamespace(flag=flag, value=value, answer=answer)


@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [
        ("reasoning.default", "on", "recovered"),
        ("reasoning.default", "off", "wrong"),
        ("params.temperature.max", 1, "recovered"),
        ("params.temperature.max", 2, "wrong"),
        ("params.temperature", "temperature", "recovered"),  # the same flag, as a path and as a table
        ("auth.header", "authorization", "recovered"),
        ("auth.header", "x-api-key", "wrong"),
        ("reasoning.fields", ["reasoning_content"], "recovered"),
        ("reasoning.fields", ["thoughts"], "wrong"),
        ("tool_choice.allowed", ["auto", "none"], "wrong"),
        ("stream.required", True, "wrong"),  # the registry does not have it
    ],
)
def test_each_fact_gets_its_verdict(endpoint: Endpoint, flag: str, value: Any, word: str) -> None:
    verdicts = judge(endpoint, [flag, f"{flag}.as"], [fact(flag, value)])
    assert [v.word for v in verdicts if v.word not in ("missed", "default")] == [word]


def test_another_switch_that_does_the_same(registry: Registry) -> None:
    endpoint = Endpoint(registry, registry.resolve("alibaba/qwen3.8-max"))
    reasoning = endpoint.model.flags.reasoning
    assert reasoning.effort is not None
    for word, expected in (("none", "another"), ("high", "wrong")):
        said = fact(f"reasoning.off.set.{reasoning.effort.at}", word)
        assert [v.word for v in judge(endpoint, [], [said])] == [expected]


def test_what_is_not_said_is_missed_unless_it_is_what_cnllm_assumes(endpoint: Endpoint) -> None:
    shown = ["reasoning.default", "messages.system", "params.seed"]
    words = {v.flag: v.word for v in judge(endpoint, shown, [fact("params.seed", None, "unknown")])}
    assert words == {"reasoning.default": "missed", "messages.system": "default", "params.seed": "missed"}


def test_a_fact_that_changes_nothing_does_not_count(endpoint: Endpoint) -> None:
    assert judge(endpoint, [], [fact("tools.supported", True)]) == []


def test_the_tree_of_a_model_makes_the_model(registry: Registry) -> None:
    for name in ("zai/glm-4.7", "openai/o3", "minimax/MiniMax-M2", "anthropic/claude-sonnet-4-5"):
        model = registry.resolve(name)
        again = variants.make(model, variants.tree(model))
        assert all(again.flags_for(mode) == model.flags_for(mode) for mode in modes())


@pytest.mark.long
def test_models_are_drawn_from_25_providers_and_all_wires(registry: Registry) -> None:
    models = draw(registry, 7)
    assert len(models) == len({model.name for model in models}) == 40
    assert len({model.provider for model in models}) >= 25
    assert len({model.protocol for model in models}) == 4
    assert [m.name for m in draw(registry, 8)] != [m.name for m in models]


# ── invented endpoints ───────────────────────────────────────────────────────
def invented(tmp_path: Path, seed: int, count: int) -> list[Model]:
    text, names = invent(seed, count)
    file = tmp_path / "invented.toml"
    file.write_text(text, encoding="utf-8")
    served = Registry.load(file)
    return [served.resolve(name, protocol=protocol) for name, protocol in names]


def test_60_endpoints_are_made_up_with_a_seed_on_all_wires(tmp_path: Path) -> None:
    models = invented(tmp_path, 1, 60)
    assert len({model.name for model in models}) == 60
    assert len({model.protocol for model in models}) == 4
    assert invent(1, 60) == invent(1, 60) != invent(2, 60)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4, 5))])
def test_an_invented_endpoint_takes_a_plain_request(tmp_path: Path, seed: int) -> None:
    for model in invented(tmp_path, seed, 60):
        stream = model.flags.stream.required is True
        plan = engine.build_request(model, "Hi", stream=stream, max_tokens=500)
        headers = {name: value.replace("{key}", "k") for name, value in plan.headers.items()}
        path = plan.url.removeprefix("http://127.0.0.1:9/v1").partition("?")[0]
        answer = Endpoints(strict=True).respond(model, headers, plan.content, path, public_name="m")
        assert answer.status == 200, b"".join(answer.pieces)


@pytest.mark.long
def test_what_differs_is_told_from_what_is_assumed(registry: Registry, endpoint: Endpoint) -> None:
    differing = endpoint.differing()
    assert "reasoning.on.set.thinking.type" not in differing  # it reasons anyway
    assert {"params.temperature.max", "tool_choice.allowed"} <= set(differing)
    assert set(differing) <= set(endpoint.names)
    assert hidden(endpoint, registry, differing) == set()


def test_a_name_that_stands_nowhere_is_counted_apart(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(
        '[providers.odd]\nextends = "openai-compatible"\ntitle = "Odd"\nbase_url = "http://127.0.0.1:9"\n'
        '[models."odd/m"]\nmessages.consecutive_roles = "join"\n'
        'reasoning = {mode = "toggle", default = "off", fields = ["mind"], on = {set = {ponder = 1}}}\n',
        encoding="utf-8",
    )
    odd = Endpoint(registry, Registry.load(file).resolve("odd/m"))
    assert hidden(odd, registry, odd.differing()) == {"reasoning.on.set.ponder", "reasoning.fields"}


def test_a_header_that_takes_the_key_is_right_where_no_plain_request_is_taken(
    registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(
        '[providers.odd]\ntitle = "Odd"\nprotocol = "anthropic-messages"\nbase_url = "http://127.0.0.1:9"\n'
        'keys = ["ODD_API_KEY"]\n[models."odd/m"]\nauth = {header = "api-key", value = "{key}"}\n'
        "stream.required = true\nlimits.output = 1000\ntools = {supported = false}\n"
        'reasoning = {mode = "always", default = "on"}\n',
        encoding="utf-8",
    )
    odd = Endpoint(registry, Registry.load(file).resolve("odd/m"))
    for header, value, word in (("Authorization", "Bearer {key}", "another"), ("x-nothing", "{key}", "wrong")):
        said = [fact("auth.header", header), fact("auth.value", value)]
        assert {v.flag: v.word for v in judge(odd, [], said)}["auth.header"] == word


# ── what a run is to reach ───────────────────────────────────────────────────
def run_of(budget: int, found: int, *words: str) -> Run:
    """A run over 100 flags that differ: so many found, the next ones with these words, the others missed."""
    every = [*["recovered"] * found, *words, *["missed"] * 100][:100]
    verdicts = tuple(Verdict(f"flag-{n}", word) for n, word in enumerate(every))
    return Run("m", "openai-chat", budget, 59, 1.0, verdicts, differing=frozenset(v.flag for v in verdicts))


@pytest.mark.parametrize(
    ("few", "many", "minutes", "is_good"),
    [
        (run_of(60, 70), run_of(200, 95), LIMIT, True),
        (run_of(60, 70), run_of(200, 95), LIMIT + 0.1, False),
        (run_of(60, 69), run_of(200, 95), 1, False),
        (run_of(60, 70), run_of(200, 94), 1, False),
        (run_of(60, 70, "wrong"), run_of(200, 95), 1, False),
    ],
)
def test_a_run_ends_in_time_says_nothing_wrong_and_finds_enough(
    few: Run, many: Run, minutes: float, is_good: bool
) -> None:
    assert passes([few, many], minutes) is is_good
    assert f"within {LIMIT} minutes" in " ".join(report([few, many], 1, command="c").split())
