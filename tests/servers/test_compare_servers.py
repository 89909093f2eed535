"""`cnllm compare` on real servers: llama.cpp with its parser of calls, and llama.cpp that leaves calls in the text.

Both serve the same small model, which knows ten answers, so the tasks ask for six of those.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Registry
from cnllm.comparison import Host, Settings, Task
from cnllm.comparison.report import Comparison, ask_hosts, replay
from cnllm.comparison.tasks import Step
from cnllm.transports import default_transport

from .conftest import Servers
from .test_llamacpp import ALPHABET, TOOLS

WEATHER: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Bern"})
STEPS: dict[str, tuple[str, Step]] = {
    "1": ("needle-8k", Step(words=("Hello there!",))),
    "2": ("needle-8k", Step(words=("The answer is 42.",))),
    "3": ("call", Step((WEATHER,))),
    "6": ("exact", Step(exactly=ALPHABET)),
    "7": ("needle-8k", Step(words=("你好，世界！🙂",))),
    "9": ("needle-8k", Step(words=('{"ok": true}',))),
}
"""What the model answers by the last character of a prompt. It stands under the kind whose judge reads it."""


class TinySettings(Settings, frozen=True):
    """The tasks that the small model can do: each answer as often as there are turns."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(
            Task(f"{kind}-{word}-{number}", kind, "en", f"say {word}", (step,), tuple(TOOLS) if step.calls else ())
            for number in range(self.turns)
            for word, (kind, step) in STEPS.items()
        )


class NewConnections:
    """A connection for each request: the server closes those that wait."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def send(self, plan: cnllm.Plan) -> Any:
        transport: Any = default_transport()
        self._stack.callback(transport.close)
        return transport.send(plan)


def hosts(tmp_path: Path, servers: Servers) -> tuple[Registry, list[Host]]:
    path = tmp_path / "overlay.toml"
    path.write_text(
        "".join(
            f'[providers.{name}]\nextends = "openai-compatible"\nbase_url = "{origin}/v1"\n'
            f'[models."{name}/tiny"]\nweights = "lab/tiny"\ntools.supported = true\n'
            "body.set.temperature = 0\n"
            for name, origin in (("parsed", servers.parsed), ("plain", servers.plain))
        )
    )
    registry = Registry.load(path)
    names = registry.hosts("parsed/tiny")
    assert sorted(names) == ["parsed/tiny", "plain/tiny"]
    return registry, [Host(name, registry.resolve(name), name, same_weights=True) for name in sorted(names)]


@pytest.mark.long
def test_two_servers_of_one_model_are_told_apart_by_the_calls_that_one_leaves_in_the_text(
    tmp_path: Path, servers: Servers
) -> None:
    registry, chosen = hosts(tmp_path, servers)
    with ExitStack() as stack:
        report: Comparison = ask_hosts(
            registry,
            chosen[0].model,
            chosen,
            TinySettings(seed=0, turns=16),
            transports={host.name: NewConnections(stack) for host in chosen},
            keys={host.name: None for host in chosen},
        )
    parsed, plain = report.figures
    assert report.problems["parsed/tiny"] == {}
    assert (parsed.lost, parsed.recovered, parsed.empty) == (0, 0, 0)
    assert (plain.lost, plain.recovered, plain.empty) == (16, 16, 0)
    assert {verdict.figure for verdict in report.verdicts if verdict.verdict == "worse"} >= {"kept", "called"}
    assert plain.shares["exact"].good == plain.shares["exact"].tasks == 16
    assert plain.first is not None
    assert replay(registry, report) == report
