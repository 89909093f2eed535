"""What the tests of vendors' batch interfaces share: the simulator as a vendor, and a client that may be killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.support import KEY, Machine

from cnllm import Registry
from cnllm.simulator.server import running

SHAPES = {
    "openai/gpt-4.1-mini": (),
    "anthropic/claude-haiku-4-5": (),
    "google/gemini-2.5-flash": ("--protocol", "gemini"),
    "mistral/mistral-small-latest": (),
}
"""A model of each shape: a file with metadata, rows without a mark, a job with a name, jobs on numbered pages."""
OTHERS = {
    "openai/gpt-4.1": ("--protocol", "openai-responses"),
    "moonshotai/kimi-k2.5": (),
    "zhipuai/glm-4-plus": (),
    "alibaba-cn/qwen-plus": (),
    "siliconflow/deepseek-ai/DeepSeek-V3.2": (),
    "groq/openai/gpt-oss-120b": (),
    "baidu/ernie-4.5-turbo-128k": (),
}
"""The other vendors, whose interfaces differ from these by words."""
ROWS = 5


@dataclass
class Vendor:
    """The simulator, and what it was asked: steps with their phases, in their order. `hook` gets each as it comes."""

    url: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)
    hook: Callable[[str, str], object] | None = None

    def observe(self, step: str, path: str, phase: str) -> None:
        self.seen.append((step, phase))
        if self.hook is not None:
            self.hook(step, phase)

    def count(self, step: str, phase: str = "handled") -> int:
        return self.seen.count((step, phase))


@contextmanager
def vendor() -> Iterator[Vendor]:
    found = Vendor()
    with running(Registry.load(), on_request=found.observe) as server:
        found.url = server.url
        yield found


def configure(
    machine: Machine, vendor: Vendor, name: str, fault: str = "", flags: str = "", delay: float | None = 0.0
) -> None:
    """Let the endpoint of a model be the simulator. `fault` are words of its fault header."""
    provider = name.partition("/")[0]
    wait = "" if delay is None else f"batch.list.delay = {delay}\n"
    wire = SHAPES | OTHERS
    protocol = wire.get(name, ())[1:]
    table = f"[providers.{provider}]\n"
    url = f'base_url = "{vendor.url}/{provider}"\n'
    header = f'headers."x-cnllm-fault" = "{fault}"\n' if fault else ""
    text = f'{table}keys = ["HOME_TEST_KEY"]\n{url}{header}{wait}{flags}\n'
    if protocol:
        text += f'[providers.{provider}.on."{protocol[0]}"]\n{url}{wait}'
    machine.config.mkdir(parents=True, exist_ok=True)
    (machine.config / "providers.toml").write_text(text)
    machine.env["HOME_TEST_KEY"] = KEY


def inputs(folder: Path, count: int = ROWS) -> Path:
    path = folder / "in.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"r{n}", "prompt": f"Say {n}", "max_tokens": 40}) + "\n" for n in range(count))
    )
    return path


def arguments(name: str, folder: Path) -> tuple[str, ...]:
    wire = (SHAPES | OTHERS).get(name, ())
    return (
        "batch",
        str(folder / "in.jsonl"),
        "-m",
        name,
        *wire,
        "-o",
        str(folder / "out.jsonl"),
        "--vendor-batch",
        "--no-plot",
    )


def answers(folder: Path) -> dict[str, Any]:
    """The lines of the output by id; every row must be there once."""
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines)
    return {line["id"]: line for line in lines}
