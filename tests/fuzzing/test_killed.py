"""A small run of `python -m fuzz.killed`: writers are killed, and nothing that was said to be kept is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from examples import SHARE

from fuzz.killed import killed


@pytest.mark.sampled
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_no_finished_turn_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    kills = 5 if SHARE == 1 else 2
    told = killed(tmp_path, writers=4, seconds=0, kills=kills)
    assert told.wrong == []
    assert told.kills == kills
    assert told.said
