"""Whole processes, from their start to their end."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import scripts
from benchmarks.bench import HURRIED, Bench, Whole, left_out
from benchmarks.cases import HELP, IMPORT, KEPT, LIST, LIST_MANY, NOTHING, ONE_CALL, TAB, TAB_MANY, UNKEPT
from benchmarks.peers import (
    ANTHROPIC,
    ANY_LLM,
    CNLLM,
    ENGINE,
    FAST,
    GENAI,
    HAND,
    LITELLM,
    OPENAI,
    PEERS,
    PYDANTIC_AI,
    STDLIB,
)
from benchmarks.processes import Command
from benchmarks.results import Row
from benchmarks.tokens import texts
from benchmarks.venvs import binary

_SLOW = (ANTHROPIC, GENAI, PYDANTIC_AI, ANY_LLM, LITELLM)
_TAB = ("_CNLLM_COMPLETE=bash_complete", "COMP_CWORD=3", "COMP_WORDS=cnllm call --model glm")
_MODULES = {
    "click": ("click", "base"),
    "httpx": ("httpx", "base"),
    **{
        peer: (module, PEERS[peer].env)
        for peer, module in {
            ENGINE: "cnllm",
            OPENAI: "openai",
            ANTHROPIC: "anthropic",
            GENAI: "google.genai",
            PYDANTIC_AI: "pydantic_ai",
            ANY_LLM: "any_llm",
            LITELLM: "litellm",
        }.items()
    },
}


def cold(bench: Bench) -> list[Row]:
    """Measure imports, help texts, one streamed call by every peer, and the time that a shell user waits."""
    cnllm, python = binary("cnllm"), binary()
    click = bench.home / "bare_click.py"
    click.write_text(scripts.CLICK)
    many = f"XDG_CONFIG_HOME={_many_models(bench.home / 'many')}"
    simulated: Command = [cnllm, "call", "--model", "glm-4.7", "--simulate", "hi"]
    late = _SLOW if bench.effort.quick else ()
    rows = bench.processes(
        "cold",
        {
            NOTHING: [Whole("python -c pass", [python, "-c", "pass"])],
            IMPORT: [
                Whole(who, [binary(env=env), "-c", f"import {what}"])
                for who, (what, env) in _MODULES.items()
                if who not in late
            ],
            HELP: [
                Whole("a bare click program", [python, click, "--help"], "Usage"),
                Whole(ENGINE, [cnllm, "--help"], "Usage"),
            ],
            ONE_CALL: _calls(bench),
            LIST: [Whole(ENGINE, [cnllm, "models", "list"], "glm-4.7")],
            LIST_MANY: [Whole(ENGINE, ["env", many, cnllm, "models", "list"], "bench/model-3999")],
            TAB: [Whole(ENGINE, ["env", *_TAB, cnllm], "plain,glm-4.7\n")],
            TAB_MANY: [Whole(ENGINE, ["env", many, *_TAB, cnllm], "plain,glm-4.7\n")],
            UNKEPT: [Whole(ENGINE, [*simulated, "--no-log"])],
            KEPT: [Whole(ENGINE, simulated)],
        },
    )
    return rows + left_out("cold", IMPORT, late, HURRIED)


def _many_models(folder: Path) -> Path:
    """Write an overlay with which the registry describes 5,000 models, and return its folder."""
    (folder / "cnllm").mkdir(parents=True, exist_ok=True)
    overlay = folder / "cnllm" / "providers.toml"
    overlay.write_text(scripts.PROVIDER + "".join(scripts.MODEL.format(number=number) for number in range(4_000)))
    overlay.chmod(0o600)
    return folder


def _calls(bench: Bench) -> Sequence[Whole]:
    """Measure the same call, by a script of each peer and by the command line."""
    base, text = f"http://127.0.0.1:{bench.port}/m200t/v1", "".join(texts(200)[1]).strip()
    found: list[Whole] = []
    for peer, script, env in (
        (STDLIB, scripts.BY_STDLIB, "base"),
        (HAND, scripts.BY_HAND, "base"),
        (OPENAI, scripts.BY_OPENAI, "openai"),
        (PYDANTIC_AI, scripts.BY_PYDANTIC_AI, "pydantic-ai"),
        (ANY_LLM, scripts.BY_ANY_LLM, "any-llm"),
        (LITELLM, scripts.BY_LITELLM, "litellm"),
    ):
        path = bench.home / f"call_{env}_{len(found)}.py"
        path.write_text(script.replace("BASE", base))
        found.append(Whole(peer, [binary(env=env), path], text))
    options = ["--model", "openai-compatible/x", "--base-url", base, "--key-env", "BENCH_KEY"]
    command: Command = [binary("cnllm"), "call", *options, "hi"]
    return [*found, Whole(CNLLM, command, text), Whole(FAST, command, text, "fast")]
