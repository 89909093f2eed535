"""Nothing of the machine these tests run on may reach them."""

import os

import pytest


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_PROXY")):
            monkeypatch.delenv(name)
