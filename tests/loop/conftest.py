"""Nothing of the machine these tests run on may reach them; each case runs with both clients."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import ONCE, Backend, Loops


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Path = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_PROXY")) or name.startswith("CNLLM_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home))


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
