"""A worker is killed in the middle: nothing is lost, and what was finished is not asked again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from batch.stub import Stub, stub
from pyarrow import parquet

from .support import answers_held, driver, overlay, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.long

ROWS = 20_000


def again(server: Stub) -> int:
    """The number of requests beyond one for each row."""
    return len(server.log) - len(server.received)


def options(server: Stub, folder: Path, **more: object) -> dict[str, object]:
    return {"registry": overlay(server, folder), "key_env": "HOME_TEST_KEY", **more}


@pytest.mark.parametrize("ids", [True, False])
def test_worker(tmp_path: Path, ids: bool) -> None:
    with stub(latency=0.1) as server:
        spec = {"rows": ROWS, "blocks": 8, "ids": ids, "options": options(server, tmp_path)}
        with driver(spec) as run:
            wait_until(lambda: len(server.log) > ROWS // 3)
            with answers_held(server) as before:
                position, on_their_way = len(server.log), server.now
                run.kill("ray::MapWorker")
            result = run.result()
        assert result["rows"] == result["right"] == result["prompts"] == ROWS
        assert result["errors"] == {}
        assert not set(server.log[position:]) & before, "a finished row was asked again"
        assert 0 < again(server) <= on_their_way


def test_allowance(tmp_path: Path) -> None:
    """The actor that holds the limits and the cap is killed: another one goes on, and the cap holds."""
    with stub(latency=0.05) as server:
        price = Decimal("0.00006")
        cap = price * 3000
        more = {"max_cost": str(cap), "currency": "CNY", "max_tokens": 20}
        spec = {"rows": 6000, "blocks": 8, "options": options(server, tmp_path, **more)}
        with driver(spec) as run:
            wait_until(lambda: len(server.log) > 1000)
            run.kill("ray::AllowanceActor")
            result = run.result()
        assert result["rows"] == 6000
        assert set(result["errors"]) == {"CostCap"}
        assert server.answered.total() * price <= cap
        assert server.answered.total() * price >= cap * Decimal("0.6"), "the cap was used"


def test_cluster_with_a_state(tmp_path: Path) -> None:
    """The whole cluster is killed: with `state` and Ray's checkpoints the next run goes on."""
    source = tmp_path / "in"
    source.mkdir()
    for part in range(16):
        names = range(part * 250, (part + 1) * 250)
        table = pyarrow.table({"id": [f"r{n}" for n in names], "prompt": [f"p{n}" for n in names]})
        parquet.write_table(table, source / f"{part}.parquet")
    with stub(latency=0.05) as server:
        spec = {
            "rows": 4000,
            "parquet": str(source),
            "blocks": 16,
            "out": str(tmp_path / "out"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "options": options(server, tmp_path, state=str(tmp_path / "run.state")),
        }
        with driver(spec) as run:
            wait_until(lambda: len(server.log) > 2000)
            with answers_held(server) as before:
                run.process.kill()
                run.process.communicate()
            wait_until(lambda: not run.pids("ray::MapWorker") and not run.pids("ray::AllowanceActor"))
        position = len(server.log)
        with driver(spec) as run:
            result = run.result()
        assert result["rows"] == result["right"] == result["prompts"] == 4000
        assert not set(server.log[position:]) & before
