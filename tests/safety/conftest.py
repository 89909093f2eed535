"""A machine of the test's own."""

from pathlib import Path

import pytest
from cli.support import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of the test's own."""
    return Machine(tmp_path)
