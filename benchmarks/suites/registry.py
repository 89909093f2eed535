"""Loading the registry and resolving a name in it, in a process of its own."""

import json
from functools import partial
from pathlib import Path

from benchmarks import processes
from benchmarks.bench import Bench, Rounds, turned
from benchmarks.cases import BUILT_IN, FIRST, OVERLAY, UNDESCRIBED
from benchmarks.peers import ENGINE
from benchmarks.processes import Command
from benchmarks.results import Row, Sample
from benchmarks.venvs import binary

_LOAD = """import json, sys, time
from cnllm import Registry
name, base_url, *paths = sys.argv[1:]
wall, cpu = time.perf_counter(), time.process_time()
Registry.load(*paths).resolve(name, base_url=base_url or None)
print(json.dumps({"n": 1, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))
"""
_PROVIDER = """[providers.bench{p}]
title = "Bench {p}"
protocol = "openai-chat"
base_url = "http://127.0.0.1:90{p:02}/v1"
keys = ["BENCH{p}_API_KEY"]
reasoning.fields = ["reasoning_content"]
tool_choice.allowed = ["auto", "none"]
[providers.bench{p}.sources.docs]
url = "https://example.com/docs"
seen = 2026-11-20
how = "docs"
backs = ["reasoning", "tool_choice"]
"""
_MODEL = """[models."bench{p}/model-{m}"]
limits = {{ context = 131072, output = 8192 }}
[models."bench{p}/model-{m}".reasoning]
mode = "toggle"
on = {{ set = {{ thinking = {{ type = "enabled" }} }} }}
off = {{ set = {{ thinking = {{ type = "disabled" }} }} }}
[models."bench{p}/model-{m}".sources.card]
url = "https://example.com/model-{m}"
seen = 2026-11-20
how = "docs"
backs = ["limits", "reasoning"]
"""
OVERLAY_FILE = "".join(_PROVIDER.format(p=p) + "".join(_MODEL.format(p=p, m=m) for m in range(8)) for p in range(20))
"""The text of a registry file of 2,000 lines."""


def registry(bench: Bench) -> list[Row]:
    """Measure one load in a process, with a cache that is there; the first run, which fills it, counts apart."""
    home = bench.home / "registry"  # of its own: the other suites have filled their cache
    home.mkdir()
    path = home / "overlay.toml"
    path.write_text(OVERLAY_FILE)
    start: list[str | Path] = [binary(), "-c", _LOAD]
    commands: dict[str, Command] = {
        BUILT_IN: [*start, "glm-4.7", ""],
        OVERLAY: [*start, "bench7/model-5", "", path],
        UNDESCRIBED: [*start, "openai-compatible/x", "http://127.0.0.1:9/v1"],
    }

    def load(command: Command) -> Sample:
        return Sample(**json.loads(processes.output(command, home)))

    filling = (BUILT_IN, OVERLAY)
    first = Rounds({case: Row("registry", FIRST.format(case=case), ENGINE) for case in filling})
    warm = Rounds({case: Row("registry", case, ENGINE) for case in commands})
    for case in filling:
        first.round(case, partial(load, commands[case]))
    for turn in range(bench.effort.cold):
        for case, command in turned(list(commands.items()), turn):
            warm.round(case, partial(load, command))
    return [*warm.done(), *first.done()]
