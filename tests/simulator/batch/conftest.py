from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from builtin import BUILTIN

from cnllm.registry.registry import Registry
from cnllm.simulator.server import Server, running


@pytest.fixture(scope="session")
def registry() -> Registry:
    return BUILTIN


@pytest.fixture(scope="session")
def server(registry: Registry) -> Iterator[Server]:
    with running(registry) as listening:
        yield listening


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=20) as client:
        yield client
