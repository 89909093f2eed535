"""What the two public lists of a day leave to a person."""

from __future__ import annotations

import datetime
import lzma
from pathlib import Path

import pytest

from cnllm import Registry
from cnllm.registry_files.updates.changes import find_changes
from cnllm.registry_files.updates.review import lines_by_hand, questions_of

from .support import as_list


@pytest.mark.long  # 8,300 models are compared with 11,800 entries
def test_both_lists_as_they_are_leave_under_thirty_questions() -> None:
    """With the whole registry and its catalogue; LiteLLM alone left 352 decisions, and both together 560."""
    lists = [
        as_list(lzma.decompress(path.read_bytes()), datetime.date.fromisoformat(path.name[-18:-8]))
        for path in sorted((Path(__file__).parent / "lists").glob("*.xz"))
    ]
    assert [(one.name, len(one.models) > 3000) for one in lists] == [("litellm", True), ("models.dev", True)]
    registry = Registry.load()
    assert len(registry.names(catalogue=True)) > 5000
    found = find_changes(registry, lists)
    asked = questions_of(found, lists)
    assert len(asked) < 30, [(one.kind, one.cause, len(one.changes)) for one in asked]
    assert {change.action for change in found} >= {"automatic", "ask", "kept", "disputed", "by-hand"}
    assert all(lines_by_hand(change) for change in found if change.action == "by-hand")
    first = next(change for one in asked for change in one.changes)
    assert first.kind == "price"
    assert first.model.partition("/")[0] in {name.partition("/")[0] for name in registry.default_models[:33]}
