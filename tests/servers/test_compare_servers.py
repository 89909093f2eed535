"""`cnllm compare` on real servers: llama.cpp with its parser of calls and without it, and the server of transformers.

All serve the same small model, which knows ten answers, so the tasks ask for six of those.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cnllm import Registry
from cnllm.comparison import ComparisonTask, TaskChoice, choose_hosts
from cnllm.comparison.hosts import NewConnections
from cnllm.comparison.report import Comparison, ask_hosts, replay
from cnllm.comparison.run import Budget, LiveExchanges
from cnllm.comparison.tasks import RightStep

from .conftest import FOLDER, Servers
from .test_llamacpp import ALPHABET, TOOLS

WEATHER: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Bern"})
STEPS: dict[str, tuple[str, RightStep]] = {
    "1": ("needle-8k", RightStep(words=("Hello there!",))),
    "2": ("needle-8k", RightStep(words=("The answer is 42.",))),
    "3": ("call", RightStep((WEATHER,))),
    "6": ("exact", RightStep(exactly=ALPHABET)),
    "7": ("needle-8k", RightStep(words=("你好，世界！🙂",))),
    "9": ("needle-8k", RightStep(words=('{"ok": true}',))),
}
"""What the model answers by the last character of a prompt. It stands under the kind whose judge reads it."""


class TinySettings(TaskChoice, frozen=True):
    """The tasks that the small model can do: each answer as often as there are turns."""

    @property
    def tasks(self) -> tuple[ComparisonTask, ...]:
        return tuple(
            ComparisonTask(
                f"{kind}-{word}-{number}", kind, "en", f"say {word}", (step,), tuple(TOOLS) if step.calls else ()
            )
            for number in range(self.turns)
            for word, (kind, step) in STEPS.items()
        )


def ask_both(tmp_path: Path, urls: dict[str, str], turns: int) -> tuple[Registry, Comparison]:
    """Compare the servers at these URLs. One that serves no other model is asked for it by its folder."""
    path = tmp_path / "overlay.toml"
    path.write_text(
        "".join(
            f'[providers.{name}]\nextends = "openai-compatible"\nbase_url = "{url}"\n'
            f'[models."{name}/tiny"]\nweights = "lab/tiny"\ntools.supported = true\n'
            f"body.set.temperature = 0\nbody.set.model = {json.dumps(str(FOLDER))}\n"
            for name, url in urls.items()
        )
    )
    registry = Registry.load(path)
    first, *_ = names = [f"{name}/tiny" for name in urls]
    assert sorted(registry.hosts(first)) == sorted(names)
    chosen, _ = choose_hosts(registry, registry.resolve(first), names, need_keys=False)
    connections = NewConnections()
    try:
        budget = Budget({})
        live = {host.name: LiveExchanges(connections, budget, None) for host in chosen}
        report = ask_hosts(registry, chosen[0].model, chosen, TinySettings(seed=0, turns=turns), budget, live)
    finally:
        connections.close()
    return registry, report


@pytest.mark.long
def test_two_servers_of_one_model_are_told_apart_by_the_calls_that_one_leaves_in_the_text(
    tmp_path: Path, servers: Servers
) -> None:
    urls = {"parsed": f"{servers.parsed}/v1", "plain": f"{servers.plain}/v1"}
    registry, report = ask_both(tmp_path, urls, turns=16)
    parsed, plain = report.figures
    assert report.problems["parsed/tiny"] == {}
    assert (parsed.lost, parsed.recovered, parsed.empty) == (0, 0, 0)
    assert (plain.lost, plain.recovered, plain.empty) == (16, 16, 0)
    assert {verdict.figure for verdict in report.verdicts if verdict.verdict == "worse"} >= {"kept", "called"}
    assert plain.shares["exact"].good == plain.shares["exact"].tasks == 16
    assert plain.first is not None
    assert replay(registry, report) == report


@pytest.mark.long
def test_a_server_that_reads_no_calls_out_of_the_text_differs_from_one_that_does_in_them_alone(
    tmp_path: Path, servers: Servers, transformers_url: str
) -> None:
    urls = {"llamacpp": f"{servers.parsed}/v1", "transformers": transformers_url}
    registry, report = ask_both(tmp_path, urls, turns=16)
    reads, other = report.figures
    assert report.problems["llamacpp/tiny"] == {}
    assert (reads.lost, reads.recovered, reads.empty) == (0, 0, 0)
    assert (other.lost, other.recovered, other.empty) == (16, 16, 0)
    worse = {verdict.figure for verdict in report.verdicts if verdict.verdict == "worse"}
    assert worse - {"first"} == {"kept", "called", "call"}
    for figure in ("answered", "exact", "needle-8k"):
        assert other.shares[figure].good == other.shares[figure].tasks == reads.shares[figure].tasks, figure
    assert replay(registry, report) == report
