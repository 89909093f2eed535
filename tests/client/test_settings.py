"""Settings from the environment are what pydantic-settings would read, and mostly read without it."""

from __future__ import annotations

import os

import pytest
from examples import share
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from cnllm import CnllmError
from cnllm.config import settings

NAMES = [*settings.VARIABLES, "cnllm_timeout", "Cnllm_Attempts"]
ODD = [
    "",
    "0",
    "0.0",
    "00",
    "-1",
    "+1",
    "1e3",
    ".5",
    "5.",
    "1_0",
    " 1",
    "1 ",
    "inf",
    "nan",
    "soon",
    "1,5",
    "٣",
    "9" * 30,
]
VALUES = st.sampled_from([*ODD, "1", "2.5", "007", "0.001", "30", "120.0", "1.0"])


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper() in settings.VARIABLES:
            monkeypatch.delenv(name)


def outcome() -> object:
    try:
        return settings.read_settings()
    except CnllmError as error:
        return str(error), error.hint


@effort(deadline=None, max_examples=share(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
def test_the_short_way_reads_the_same(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        found = outcome()
        patch.setattr(settings, "_read_numbers", lambda: None)
        assert repr(outcome()) == repr(found)


def test_plain_numbers_need_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_TIMEOUT", "30")
    monkeypatch.setenv("CNLLM_IDLE_TIMEOUT", "2.5")
    monkeypatch.setenv("CNLLM_ATTEMPTS", "4")
    monkeypatch.setattr(settings, "_read_with_pydantic", lambda: pytest.fail("pydantic-settings was asked"))
    found = settings.read_settings()
    assert (found.timeouts.first_byte, found.timeouts.idle, found.retry.attempts) == (30.0, 2.5, 4)
