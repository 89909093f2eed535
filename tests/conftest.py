"""What all tests share: the machine's own settings stay outside, and `--update` writes what is generated.

Properties are tried on the same examples every time, so that a change fails for what it changes. To look for new
examples: `HYPOTHESIS_PROFILE=explore pytest -k NAME`.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No test measures time: how long an example takes says how busy the machine is.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNHURRIED, derandomize=True, database=None)
settings.register_profile("explore", UNHURRIED, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the files anew that tests compare with")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Are generated files to be written?"""
    return bool(request.config.getoption("--update"))


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A configuration and data folder of the test's own; the cache is shared, as it may be."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(home / "config"))
    monkeypatch.setenv("CNLLM_DATA_DIR", str(home / "data"))
    monkeypatch.delenv("CNLLM_PROVIDERS", raising=False)
