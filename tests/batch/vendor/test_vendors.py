"""Each vendor's batch interface: every row is answered in one job, at the price of the batch."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from cli.support import KEY, Machine

from cnllm import Registry

from .support import OTHERS, ROWS, SHAPES, Vendor, answers, arguments, configure, inputs, vendor


@pytest.mark.parametrize("name", [*SHAPES, *OTHERS])
def test_all_rows_in_one_job(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path)
    inputs(tmp_path)
    with vendor() as server:
        configure(machine, server, name)
        done = machine.run(*arguments(name, tmp_path), "--json")
        assert done.status == 0, done
        assert server.count("submit") == 1
        assert server.count("call") == 0
        assert machine.run(*arguments(name, tmp_path)).status == 0
        assert server.count("submit") == 1, "nothing is submitted twice"
        found = answers(tmp_path)
        assert set(found) == {f"r{n}" for n in range(ROWS)}
        report = done.json()
        assert (report["done"], report["by_vendor"], report["waiting"]) == (ROWS, ROWS, 0)
        assert KEY not in (tmp_path / "out.jsonl").read_text()
        single = machine.run(
            *arguments(name, tmp_path)[:-2], "--no-plot", "-o", str(tmp_path / "single.jsonl"), "--json"
        )
        assert single.status == 0, single
    wire = (SHAPES | OTHERS)[name][1:]
    batch = Registry.load().resolve(name, protocol=wire[0] if wire else None).flags.batch
    assert batch is not None
    assert batch.price_factor is not None
    if report["cost"] is not None:
        assert Decimal(report["cost"]) == Decimal(single.json()["cost"]) * Decimal(str(batch.price_factor))


def test_the_overlays_of_all_vendors_pass_the_check(tmp_path: Path) -> None:
    """Those that the test above runs with, in one file: a check of the whole registry takes a second."""
    machine = Machine(tmp_path)
    tables: dict[str, str] = {}
    for name in [*SHAPES, *OTHERS]:
        configure(machine, Vendor("http://127.0.0.1:1"), name)
        text = (machine.config / "providers.toml").read_text()
        tables[text.partition("\n")[0]] = text
    (machine.config / "providers.toml").write_text("\n".join(tables.values()))
    done = machine.run("registry", "check")
    assert done.status == 0, done
