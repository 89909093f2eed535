"""Several models share the rows of a batch: each row goes to one that can take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .stub import Answer, Stub, error, stub
from .support import prompts, run

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
BLIND = 'input = ["text", "image"]\n[models."home/blind"]\ninput = ["text"]'


def mixed(count: int) -> list[dict[str, Any]]:
    """Rows of which every third one has a picture."""
    return [
        row if n % 3 else {"id": row["id"], "messages": [{"role": "user", "content": [text(row), PICTURE]}]}
        for n, row in enumerate(prompts(count))
    ]


def text(row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": row["prompt"]}


@pytest.mark.parametrize("models", [["home/m", "home/blind"], ["home/blind", "home/m"]])
def test_a_row_goes_to_a_model_that_can_take_it(tmp_path: Path, models: list[str]) -> None:
    with stub(latency=0.02) as server:
        report = run(server, tmp_path, mixed(40), flags=BLIND, model=models, concurrency=2)
        assert (report.done, report.failed) == (40, 0)
        asked = {(body["model"], type(body["messages"][-1]["content"]) is list) for body in server.bodies}
        assert asked >= {("m", True), ("blind", False)}
        assert ("blind", True) not in asked
    again = run(server, tmp_path, mixed(40), flags=BLIND, model=models)
    assert (again.asked, again.skipped) == (0, 40)


def test_a_row_that_no_model_can_take_says_what_the_first_one_lacks(tmp_path: Path) -> None:
    flags = 'input = ["text"]\n[models."home/blind"]\ninput = ["text"]'
    with stub() as server:
        report = run(server, tmp_path, mixed(4), flags=flags, model=["home/blind", "home/m"])
    assert (report.done, report.failed, report.broken) == (2, 2, 2)
    assert "home/blind" in report.examples["BadRow"]


def test_a_run_ends_where_the_only_model_that_can_take_a_row_is_closed(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (401, error("invalid api key"), {}) if server.bodies[-1]["model"] == "m" else None

    with stub(rule=rule) as server:
        report = run(server, tmp_path, mixed(20), flags=BLIND, model=["home/m", "home/blind"])
        assert (report.stop_kind, report.failed) == ("endpoint", 0)
        assert report.stopped is not None
        assert "BadKey" in report.stopped
        server.rule = None
        report = run(server, tmp_path, mixed(20), flags=BLIND, model=["home/m", "home/blind"])
        assert (report.done, report.failed, report.stopped) == (20, 0, None)
