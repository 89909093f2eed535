"""Each test has a machine of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import ANSWER, Machine, Server


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def server(machine: Machine) -> Iterator[Server]:
    """An endpoint that answers "Hello", called `home/m`."""
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        yield peer
