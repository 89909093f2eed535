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


class Servers(NamedTuple):
    """Origins: of a server that parses what the model writes, and of one that leaves the markup in the text."""

    parsed: str
    plain: str


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    if not MODEL.exists():
        pytest.skip(f"there is no model at {MODEL}")
    command = [sys.executable, str(SCRIPT), str(MODEL)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        # llama.cpp may print lines of its own first
        line = next((line for line in process.stdout if line.startswith(b"[")), b"[]")
        try:
            yield Servers(*json.loads(line))
        finally:
            process.kill()
