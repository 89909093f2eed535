"""Nothing of the machine these tests run on may reach them; each case runs with both clients."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .support import Backend, Driver


@pytest.fixture(autouse=True)
def adapter(request: pytest.FixtureRequest, _bare_machine: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """What sends, where a test does not say: each test over sockets runs with both adapters."""
    chosen: str = getattr(request, "param", "httpx")
    if chosen == "fast":
        pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")
    monkeypatch.setenv("CNLLM_TRANSPORT", chosen)
    return chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that speak to somebody over a socket have `Peer` or `Server` among their names."""
    names = vars(metafunc.module)
    if "Peer" in names or "Server" in names:
        metafunc.parametrize("adapter", names.get("ADAPTERS", ["httpx", "fast"]), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under trio the fast adapter is httpx's: once is enough. `test_fast.py` sees that it is so."""
    twice = [item for item in items if item.path.parent == Path(__file__).parent and _is_twice(item)]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in set(twice)]


def _is_twice(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return params.get("adapter") == "fast" and params.get("backend") == "trio"


# httpx leaves its own generators to the garbage collector where a body is not read to its end; trio remarks on it.
_QUIET = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


@pytest.fixture(params=["sync", "asyncio", pytest.param("trio", marks=_QUIET)])
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def client(backend: Backend) -> Iterator[Driver]:
    with Driver(backend) as made:
        yield made


Make = Callable[..., Driver]


@pytest.fixture
def make(backend: Backend) -> Iterator[Make]:
    """Makes clients with options of the test's, and closes them."""
    made: list[Driver] = []

    def one(**options: Any) -> Driver:
        made.append(Driver(backend, **options))
        return made[-1]

    yield one
    for driver in made:
        with driver:
            pass
