"""Registries of a test's own, with the built-in file below."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cnllm import Registry

HOME = """
[providers.home]
title    = "A server at home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys     = ["HOME_TEST_KEY"]
"""

Load = Callable[[str], Registry]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """The built-in file with a provider `home` and this text on it."""

    def made(text: str) -> Registry:
        path = tmp_path / "overlay.toml"
        path.write_text(HOME + text)
        return Registry.load(path)

    return made
