"""Start llama.cpp's own server with a model of 2 MB, where both are there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

MODEL = Path(__file__).resolve().parents[3] / "shared" / "servers" / "tiny.gguf"
SCRIPT = Path(__file__).with_name("serve_llamacpp.py")

# what the model writes
_CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
WEATHER, TIME = _CALL % ("get_weather", '{"city": "Bern"}'), _CALL % ("get_time", '{"zone": "UTC"}')
# … where a grammar makes it do so: it is too small for these two answers
FORCED = {
    "5": f"<think>\nNeed weather.\n</think>\n\n{WEATHER}",
    "8": _CALL % ("get_weather", '{"city": '),
}


class Pair(NamedTuple):
    """Origins: of a server that parses what the model writes, and of one that leaves the markup in the text."""

    parsed: str
    plain: str


class Servers(NamedTuple):
    """The origins of the servers: of free answers, and of the answers that a grammar forces, by their key."""

    parsed: str
    plain: str
    forced: dict[str, Pair]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    if not MODEL.exists():
        pytest.skip(f"there is no model at {MODEL}")
    command = [sys.executable, str(SCRIPT), str(MODEL), *FORCED.values()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        # llama.cpp may print lines of its own first
        line = next((line for line in process.stdout if line.startswith(b"[[")), b"[[]]")
        try:
            free, *forced = (Pair(*pair) for pair in json.loads(line))
            yield Servers(*free, dict(zip(FORCED, forced, strict=True)))
        finally:
            process.kill()
