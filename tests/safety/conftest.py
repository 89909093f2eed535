"""Nothing of the machine these tests run on may reach them."""

import os
from pathlib import Path

import pytest
from cli.support import Machine


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_PROXY")):
            monkeypatch.delenv(name)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of the test's own."""
    return Machine(tmp_path)
