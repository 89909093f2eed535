"""Each test has folders of its own, no keys, and no overlay but those it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .support import Files


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It only saves time; the tests of the cache have their own."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _bare_machine(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, shared_cache: Path
) -> None:
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_KEY", "_PROXY")) or name.startswith("CNLLM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(shared_cache))
    for kind in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"CNLLM_{kind}_DIR", str(home / kind.lower()))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
