"""What the tests of the registry share."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cnllm import Plan, Registry, RegistryError
from cnllm.registry import read as reading
from cnllm.registry.documents import Document
from cnllm.registry.read import builtin_path, read

ROOT = Path(__file__).parents[2]
BUILTIN = ROOT / "providers.toml"

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the code."""

HOME = """
[providers.home]
title    = "A server at home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = []
"""
"""A provider that says little, for models and flags of a test's own."""


ANSWER = b'{"id":"1","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello"}}]}'


class Files:
    """Registry files of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)

    def write(self, text: str | bytes, name: str | None = None) -> Path:
        path = self.folder / (name or f"overlay{next(self._numbers)}.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, *texts: str) -> Registry:
        """The built-in file with these texts on it, one file each."""
        return Registry.load(*(self.write(text) for text in texts))

    def refused(self, *texts: str | bytes) -> RegistryError:
        """The error that loading the last of these texts, on the others, gives."""
        paths = [self.write(text) for text in texts]
        with pytest.raises(RegistryError) as caught:
            Registry.load(*paths)
        assert caught.value.file == str(paths[-1])
        return told(caught.value)


def told(error: RegistryError) -> RegistryError:
    """The error, if its message begins with the place it names."""
    place = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
    assert str(error).startswith(place)
    assert "\n" not in str(error)
    return error


def builtin() -> Document:
    """The file that comes with the package."""
    return read(builtin_path(), builtin=True)


def forget_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each read of a built-in file be the first one of its process."""
    monkeypatch.setattr(reading, "_builtin_data", reading._builtin_data.__wrapped__)


def at(where: str) -> tuple[str, str]:
    """("file", the text of the line) of a "file:line"."""
    file, _, number = where.rpartition(":")
    lines = _builtin_lines() if file == "providers.toml" else Path(file).read_text().splitlines()
    return file, lines[int(number) - 1]


@functools.cache
def _builtin_lines() -> list[str]:
    return BUILTIN.read_text().splitlines()


class Peer:
    """A transport that keeps what was sent and answers "Hello"."""

    def __init__(self) -> None:
        self.sent: list[Plan] = []

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Any]:
        self.sent.append(plan)
        return 200, {"content-type": "application/json"}, iter([ANSWER])


class Nowhere:
    """A transport through which nothing may go."""

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Any]:
        raise AssertionError(f"sent to {plan.url}")
