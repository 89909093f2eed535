"""The suites that time whole processes: cold start and one call, and loading the registry."""

import json
from functools import partial
from pathlib import Path

from benchmarks import processes, venvs
from benchmarks.bench import Bench, Measured, turned
from benchmarks.payloads import texts
from benchmarks.processes import Command, Sample
from benchmarks.stats import Goal, Section, beyond, ratio, spread

_CLICK = "import click\n@click.command()\ndef main():\n    click.echo('hello')\nmain()\n"
_HAND = """import json, os, httpx
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
headers = {"authorization": "Bearer " + os.environ["BENCH_KEY"]}
with httpx.stream("POST", "BASE/chat/completions", json=body, headers=headers) as answer:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
"""
_STDLIB = """import http.client, json, os, urllib.parse
url = urllib.parse.urlsplit("BASE/chat/completions")
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
headers = {"authorization": "Bearer " + os.environ["BENCH_KEY"], "content-type": "application/json"}
connection = http.client.HTTPConnection(url.netloc)
connection.request("POST", url.path, json.dumps(body), headers)
for line in connection.getresponse():
    if line.startswith(b"data: {"):
        for choice in json.loads(line[6:])["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
"""
_SDK = """import os, openai
client = openai.OpenAI(api_key=os.environ["BENCH_KEY"], base_url="BASE")
body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "stream": True}
for chunk in client.chat.completions.create(**body):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
"""
_TAB = ("_CNLLM_COMPLETE=bash_complete", "COMP_CWORD=3", "COMP_WORDS=cnllm call --model glm")
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
base_url = "http://127.0.0.1:{p}/v1"
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
_OVERLAY = "".join(_PROVIDER.format(p=p) + "".join(_MODEL.format(p=p, m=m) for m in range(8)) for p in range(20))


def _milliseconds(section: Section, measured: Measured) -> dict[str, list[float]]:
    """A row for each process, or a remark why there is none; the wall times."""
    wall = {label: [1e3 * s.wall for s in samples] for label, samples in measured.samples.items()}
    for label, samples in measured.samples.items():
        against = ratio(wall[label], next(iter(wall.values())))
        section.rows.append([f"`{label}`", spread(wall[label]), spread(1e3 * s.cpu for s in samples), against])
    section.remarks += [f"`{label}`: not measured: {why}" for label, why in measured.broken.items()]
    return wall


def cold(bench: Bench) -> Section:
    """Target 5: import, --help, one whole call from the shell, the list of all models, and a name completed."""
    python, cnllm = venvs.binary(), venvs.binary("cnllm")
    base, text = f"http://127.0.0.1:{bench.port}/m200t/v1", "".join(texts(200)[1]).strip()
    scripts = {"bare_click.py": _CLICK, "hand.py": _HAND, "stdlib.py": _STDLIB, "sdk.py": _SDK}
    for name, script in scripts.items():
        (bench.home / name).write_text(script.replace("BASE", base))
    options = ["--model", "openai-compatible/x", "--base-url", base, "--key-env", "BENCH_KEY"]
    commands: dict[str, Command] = {
        "python -c pass": [python, "-c", "pass"],
        "import cnllm": [python, "-c", "import cnllm"],
        "bare click --help": [python, "bare_click.py", "--help"],
        "cnllm --help": [cnllm, "--help"],
        "httpx script, one streamed call": [python, "hand.py"],
        "http.client script, the same": [python, "stdlib.py"],
        "cnllm call, the same": [cnllm, "call", *options, "hi"],
        "openai SDK script, the same": [python, "sdk.py"],
        "cnllm models list": [cnllm, "models", "list"],
        "cnllm call --model glm<Tab>": ["env", *_TAB, cnllm],
        "cnllm call --simulate --no-log": [cnllm, "call", "--model", "glm-4.7", "--simulate", "--no-log", "hi"],
        "cnllm call --simulate": [cnllm, "call", "--model", "glm-4.7", "--simulate", "hi"],
    }
    bare, imported, click, helped, hand, stdlib, called, sdk, listed, completed, unkept, kept = commands
    checks = {click: "Usage", helped: "Usage", listed: "glm-4.7", completed: "plain,glm-4.7\n"}
    checks |= dict.fromkeys((hand, stdlib, called, sdk), text)
    section = Section("cold: whole processes", f"process | wall ms | CPU ms | wall, x {bare}")
    wall = _milliseconds(section, bench.processes(commands, checks))
    section.goals = [
        Goal("import cnllm: wall beyond `python -c pass`", beyond(wall[imported], wall[bare]), 15, "ms"),
        Goal("cnllm --help: wall against a bare click program", ratio(wall[helped], wall[click]), 1.2),
        Goal("cnllm call, whole process: wall against an httpx script", ratio(wall[called], wall[hand]), 1.15),
        Goal("cnllm call, whole process: wall against an http.client script", ratio(wall[called], wall[stdlib]), 2),
        Goal("cnllm models list: wall against cnllm --help", ratio(wall[listed], wall[helped]), 1.5),
        Goal("a model's name completed: wall of the whole process", spread(wall[completed]), 60, "ms"),
        Goal("a call kept on disk: wall beyond one with --no-log", beyond(wall[kept], wall[unkept]), 15, "ms"),
    ]
    return section


def registry(bench: Bench) -> Section:
    """Target 6: load and resolve once in a process, the cache there since an earlier one."""
    path = bench.home / "overlay.toml"
    path.write_text(_OVERLAY)
    start: list[str | Path] = [venvs.binary(), "-c", _LOAD]
    cases = {
        "the built-in file": [*start, "glm-4.7", ""],
        "an endpoint no one described": [*start, "openai-compatible/x", "http://127.0.0.1:9/v1"],
        f"an overlay of {_OVERLAY.count(chr(10)):,} lines": [*start, "bench7/model-5", "", path],
    }
    measured = Measured(1, {what: [] for what in cases})
    section = Section("registry: load and resolve", "what | wall ms | CPU ms | wall, x the built-in file")

    def load(command: Command) -> Sample:
        return Sample(**json.loads(processes.output(command, bench.home)))

    for turn in range(bench.effort.cold + 1):
        for what, command in turned(list(cases.items()), turn):
            measured.round(what, partial(load, command))
    for what, samples in measured.samples.items():
        if samples:  # the first run fills the cache, and does not count
            section.remarks.append(f"{what}, the first run: {1e3 * samples.pop(0).wall:.1f} ms")
    for what, wall in _milliseconds(section, measured).items():
        section.goals.append(Goal(f"registry, {what}: load and resolve, warm (wall)", spread(wall), 10, "ms"))
    return section
