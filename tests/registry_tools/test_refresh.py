"""The weekly comparison writes what both lists say, and reports the rest for a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from freshness.support import NAME, as_list, cost, flat, nested

from cnllm import Registry
from cnllm.registry_files.updates.changes import find_changes
from maintenance.refresh import apply, report


@pytest.mark.long  # it compares every model
def test_agreement_is_written_with_its_source_and_the_rest_is_reported(tmp_path: Path) -> None:
    facts = {fact.flag: fact.value for fact in Registry.load().resolve(NAME).explain()}
    price, moved = float(str(facts["price.input"])) * 1.25, "https://elsewhere.example/v4"
    entry = {"id": "glm-4.7", "cost": {"input": price}, "status": "deprecated"}
    lists = [
        as_list(nested("zai", moved, **{"glm-4.7": entry})),
        as_list(flat("zai", **{"glm-4.7": cost(input=price)})),
    ]
    changes = find_changes(Registry.load(), lists)
    text, written, failed = apply(f'[models."{NAME}"]\nprice.input = 99.0\n', changes, lists)
    assert [(each.model, each.flag) for each in written] == [(NAME, "price.input")]
    assert failed == []
    file = tmp_path / "providers.toml"
    file.write_text(text, encoding="utf-8")
    fact = next(fact for fact in Registry.load(str(file)).resolve(NAME).explain() if fact.flag == "price.input")
    assert (fact.value, fact.source) == (price, "https://example.org/list.json")
    _, done, addresses, stuck, questions, _ = report(written, failed, changes).split("\n## ")
    assert f"| `{NAME}` | `price.input` |" in done
    assert moved in addresses
    assert "status" in questions
    assert "status" not in done + addresses + stuck
