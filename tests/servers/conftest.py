"""Start llama.cpp's own server and that of transformers with a model of 2 MB, where they are there."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

MODEL = Path(__file__).resolve().parents[3] / "shared" / "servers" / "tiny.gguf"
FOLDER = MODEL.with_name("tiny-hf")
"""The same model in the form of transformers."""
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


@pytest.fixture(scope="session")
def transformers_url() -> Iterator[str]:
    """The URL of the server of transformers, which is found on the path: its parts are too large to install them."""
    command = shutil.which("transformers")
    if command is None:
        pytest.skip("transformers is not installed")
    if not FOLDER.exists():
        pytest.skip(f"there is no model at {FOLDER}")
    options = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--log-level", "info"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [command, "serve", str(FOLDER), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            found = (re.search(rb"running on (http://[\d.:]+)", line) for line in process.stdout)
            match = next((match for match in found if match is not None), None)
            assert match is not None, "it has ended"
            with open(os.devnull, "wb") as nowhere:
                reader = Thread(target=shutil.copyfileobj, args=(process.stdout, nowhere), daemon=True)
                reader.start()
                yield f"{match[1].decode()}/v1"
                process.kill()
                reader.join()
        finally:
            process.kill()
