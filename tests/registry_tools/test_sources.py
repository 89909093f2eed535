"""Old sources, and flags without one."""

from __future__ import annotations

import datetime
from pathlib import Path

from cnllm.registry.read import load_documents, read
from cnllm.registry_files.sources import stale_sources, unsourced_flags

TEXT = """[providers.home]
base_url = "http://127.0.0.1:9/v1"
protocol = "openai-chat"
[providers.home.sources]
new = { url = "https://example.org/new", seen = 2026-11-01, how = "docs", backs = ["base_url"] }
old = { url = "https://example.org/old", seen = 2026-08-01, how = "issue", backs = ["protocol"] }
[models."home/m.1"]
limits.context = 1000
when."stream+tools".body.set.x = 1
[models."home/m.1".sources]
older = { url = "https://example.org/older", seen = 2026-01-01, how = "code", backs = ["limits"] }
"""
TODAY = datetime.date(2026, 11, 20)


def test_sources_older_than_some_days_the_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    path.write_text(TEXT)
    found = stale_sources([read(path)], 30, TODAY)
    assert [(c.source, c.days, c.how, c.backs) for c in found] == [
        ("https://example.org/older", 323, "code", ("limits",)),
        ("https://example.org/old", 111, "issue", ("protocol",)),
    ]
    assert [c.where for c in found] == [f"{path}:11", f"{path}:6"]
    assert found[0].table == 'models."home/m.1"'
    assert [c.source[-3:] for c in stale_sources([read(path)], 19, TODAY)] == ["der", "old"]
    assert stale_sources([read(path)], 400, TODAY) == []


def test_a_source_is_old_only_after_so_many_days(tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    path.write_text(TEXT)
    assert len(stale_sources([read(path)], 110, TODAY)) == 2
    assert len(stale_sources([read(path)], 111, TODAY)) == 1


def test_flags_without_a_source_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    path.write_text(TEXT)
    found = unsourced_flags([read(path)])
    assert [(u.flag, u.where) for u in found] == [('models."home/m.1".when."stream+tools".body.set.x', f"{path}:9")]


def test_no_flag_of_the_built_in_file_is_without_a_source() -> None:
    assert unsourced_flags(load_documents([])) == []
