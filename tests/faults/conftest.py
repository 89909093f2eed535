"""As for the tests of the client: a bare machine, both adapters; each case with `Client` and with `AsyncClient`."""

import pytest
from client.conftest import Make, adapter, client, make, pytest_generate_tests
from client.support import Backend

__all__ = ["Make", "adapter", "backend", "client", "make", "pytest_generate_tests"]


@pytest.fixture(params=["sync", "asyncio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """trio goes the same way as asyncio, and is tried in the tests of the client."""
    chosen: Backend = request.param
    return chosen
