"""What all tests share: the machine's own settings stay outside, and `--update` writes what is generated.

Properties are tried on the same examples every time, so that a change fails for what it changes; on all of them with
`HYPOTHESIS_PROFILE=full`, as .ci/long does. To look for new examples: `HYPOTHESIS_PROFILE=explore pytest -k NAME`.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import certifi
import home_folders
import pytest
import small
from cases import CASE
from examples import TURN, has_turn  # it loads the profile, too
from home_folders import SHARED_CACHE

ROOTS, END = "one-root.pem", "-----END CERTIFICATE-----"
MACHINES_ROOTS = "TEST_ROOTS_OF_THE_MACHINE"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the files anew that tests compare with")
    parser.addoption("--case", default="", metavar="WORD", help="of tests with many cases, run those with the word")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Are generated files to be written?"""
    return bool(request.config.getoption("--update"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what .ci/long tries on all examples, on all cases and with all drivers."""
    shared: dict[Any, list[pytest.Function]] = {}
    driven: dict[Any, list[pytest.Function]] = {}
    for item in items:
        if hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker("sampled")
        if isinstance(item, pytest.Function) and item.get_closest_marker("share"):
            shared.setdefault(item.obj, []).append(item)
        elif isinstance(item, pytest.Function) and hasattr(item, "callspec") and DRIVERS & item.callspec.params.keys():
            driven.setdefault(item.obj, []).append(item)
    for test, cases in shared.items():
        _share_cases(cases, has_own_cases=hasattr(test, "_each"))
    for number, (test, cases) in enumerate(driven.items()):
        _share_drivers(cases, has_own_cases=hasattr(test, "_each"), start=number)


DRIVERS = {"adapter", "backend"}
"""The parameters that say how a test does the same in another way."""


def _share_cases(items: list[pytest.Function], *, has_own_cases: bool) -> None:
    """Leave all cases of a test but one of several to .ci/long: `each` does so with its own."""
    for number, item in enumerate(items):
        marker = item.get_closest_marker("share")
        assert marker is not None
        if has_own_cases:
            item.stash[TURN] = 0, marker.args[0]
            item.add_marker("sampled")
        elif not has_turn((0, marker.args[0]), number, len(items)):
            item.add_marker("long")


def _share_drivers(items: list[pytest.Function], *, has_own_cases: bool, start: int) -> None:
    """Let each case of a test run with one driver, or its only case with each adapter; .ci/long runs the others."""
    drivers: dict[Any, int] = {}
    cases: dict[Any, int] = {}
    places = []
    for item in items:
        indices = item.callspec.indices
        driver = drivers.setdefault(_part(indices, own=True), len(drivers))
        places.append((item, driver, cases.setdefault(_part(indices, own=False), len(cases))))
    few = _one_for_each_adapter(items, start) if len(cases) == 1 and not has_own_cases else items
    for item, driver, case in places:
        if has_own_cases and len(drivers) > 1:
            item.stash[TURN] = driver, len(drivers)
            item.add_marker("sampled")
        elif item not in few or (len(cases) > 1 and not has_turn((driver, len(drivers)), case, len(cases))):
            item.add_marker("long")


def _one_for_each_adapter(items: list[pytest.Function], start: int) -> list[pytest.Function]:
    """Choose one backend for each adapter; where there is one adapter only, all backends."""
    adapters: dict[Any, list[pytest.Function]] = {}
    for item in items:
        adapters.setdefault(item.callspec.params.get("adapter"), []).append(item)
    if len(adapters) == 1:
        return items
    first = start % max(map(len, adapters.values()))
    return [
        ways[(first + place) % len(ways) if first < len(ways) else 0] for place, ways in enumerate(adapters.values())
    ]


def _part(indices: Mapping[str, int], *, own: bool) -> tuple[tuple[str, int], ...]:
    return tuple((name, index) for name, index in indices.items() if (name in DRIVERS) == own)


def pytest_configure(config: pytest.Config) -> None:
    """Share one cache of parsed registries: a load without one takes eighty times as long. So with compiled modules."""
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):  # workers inherit the variables
        os.environ[CASE] = config.getoption("--case")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each program that a test starts would compile all modules
        folder = tempfile.mkdtemp(prefix="cnllm-test-cache-")
        os.environ[SHARED_CACHE] = folder
        roots = Path(certifi.where()).read_text(encoding="ascii")
        root = Path(folder) / ROOTS
        root.write_text(roots[: roots.index(END) + len(END)] + "\n", encoding="ascii")
        # A client that trusts one root is made in a hundredth of the time of one that reads all of them.
        if machines := os.environ.get("SSL_CERT_FILE"):
            os.environ[MACHINES_ROOTS] = machines
        os.environ["SSL_CERT_FILE"] = str(root)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nearly nothing of what is made there is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the collected tests out of each later collection of garbage: they live as long as the process.

    What many models are made of lives long, too: to look through all of it as often as usual takes a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers: one more than there are cores, because tests also wait for sockets and programs.

    Each worker imports the package and collects all tests, which takes as long as a thousand of them do.
    """
    return (os.cpu_count() or 2) + 1


@pytest.fixture
def small_builtin(_bare_machine: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the built-in registry hold a few providers only. Returns its path."""
    path = small.small_file(Path(os.environ[SHARED_CACHE]) / "small")
    small.use(monkeypatch, path)
    return path


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return new home folders. `mktemp` would look through all earlier ones each time."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _bare_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]) -> None:
    """Give the test a home of its own, without keys, proxies and overlays; only the cache is shared.

    Tests of live endpoints keep the keys, and trust the roots that the machine trusts.
    """
    home = next(_homes)
    home.mkdir()
    live = request.node.get_closest_marker("live") is not None
    for name in list(os.environ):
        if name.startswith("CNLLM_") or (name.upper().endswith(("_KEY", "_PROXY")) and not live):
            monkeypatch.delenv(name)
    if live and os.environ.get("SSL_CERT_FILE", "").endswith(ROOTS):
        monkeypatch.delenv("SSL_CERT_FILE")
        if machines := os.environ.get(MACHINES_ROOTS):
            monkeypatch.setenv("SSL_CERT_FILE", machines)
    if not live:
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, str(home))
    for name, folder in home_folders.variables(home).items():
        monkeypatch.setenv(name, folder)
