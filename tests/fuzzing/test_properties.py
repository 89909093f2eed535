"""The properties of `fuzz`, without its search: earlier findings again, every seed, and inputs made from the seeds.

`findings/TARGET/` holds the shortest input of each way in which a target once failed. Which model an input chooses
changes with the registry, so each is read with every model.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from cases import each
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.given import HEAD
from fuzz.models import covering
from fuzz.mutate import mutated, rechosen
from fuzz.targets import TARGETS

FINDINGS = Path(__file__).parent / "findings"
# How many inputs are made: what one costs differs.
TRIED = {"sse": 30, "stream": 60, "whole": 120, "leaks": 100, "overlay": 25, "history": 120}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of a hostile file is to be kept."""
    monkeypatch.setenv("CNLLM_CACHE_DIR", str(tmp_path))


@cache
def seeds(name: str) -> list[bytes]:
    return TARGETS[name].seeds()


@each("file", lambda: sorted(FINDINGS.glob("*/*.bin")), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_was_found_once_is_found_no_more(file: Path) -> None:
    data = file.read_bytes()
    check = TARGETS[file.parent.name].check
    check(data)
    for which in range(len(covering())):
        check(bytes([which]) + data[1:])


@each("name", TARGETS)
def test_the_seeds_of_each_target_break_nothing(name: str) -> None:
    few = random.Random(name).sample(seeds(name), k=min(20, len(seeds(name))))
    for data in few:
        TARGETS[name].check(data)


@pytest.mark.sampled
@each("name", TARGETS)
def test_changed_seeds_hold(name: str) -> None:
    target = TARGETS[name]
    payloads = [data[HEAD:] for data in seeds(name)]

    @settings(max_examples=share(TRIED[name]))
    @given(st.sampled_from(seeds(name)), st.integers(0, 2**32))
    def check(data: bytes, chance: int) -> None:
        dice = random.Random(chance)
        head, payload = rechosen(data[:HEAD], dice), mutated(data[HEAD:], target.kind, dice, payloads)
        target.check((head + payload)[: target.longest])

    check()


@pytest.mark.sampled
@each("name", TARGETS)
def test_any_bytes_hold(name: str) -> None:
    @settings(max_examples=share(30))
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        TARGETS[name].check(data)

    check()
