"""The registry file of the benchmarks is one that cnllm reads."""

from __future__ import annotations

from pathlib import Path

from benchmarks.suites.registry import OVERLAY_FILE
from cnllm import Registry


def test_the_file_of_the_benchmarks_has_no_faults(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text(OVERLAY_FILE, encoding="utf-8")
    assert Registry.load(path).resolve("bench19/model-7").flags.limits
    assert len(OVERLAY_FILE.splitlines()) == 2000
