"""A small run of `python -m fuzz.killed`: writers are killed, and nothing that was said to be kept is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz.killed import killed


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_no_finished_turn_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    told = killed(tmp_path, writers=4, seconds=0, kills=5)
    assert told.wrong == []
    assert told.kills == 5
    assert told.said
