"""Nothing of the machine these tests run on may reach them: no home, no overlay, no key, no proxy."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Path = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_PROXY")) or name.startswith("CNLLM_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home))
