"""Nothing of the machine these tests run on may reach them; each case runs with both clients."""

from collections.abc import Iterator

import pytest

from .support import ONCE, Backend, Loops

# httpx leaves its own generators to the garbage collector where a body is not read to its end; trio remarks on it.
_QUIET = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


@pytest.fixture(params=["sync", "asyncio", pytest.param("trio", marks=_QUIET)])
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def client(backend: Backend) -> Iterator[Loops]:
    with Loops(backend, retry=ONCE) as made:
        yield made


@pytest.fixture(params=["run", "run_stream"])
def verb(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen
