"""Each vendor's batch interface: every row is answered in one job, at the price of the batch."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from cli.support import KEY, Machine

from cnllm import Registry, engine
from cnllm.batch.vendor.codec import fetch_plan

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


def test_a_key_goes_to_no_other_host_for_a_file_of_results() -> None:
    model = Registry.load().resolve("openai/gpt-4.1-mini")
    batch, probe = model.flags.batch, engine.build_request(model, "Hi")
    assert batch is not None
    assert "authorization" in probe.headers
    origin = "https://api.openai.com"
    for url, is_own in (
        (f"{origin}/files/results.jsonl?a=b", True),
        ("https://files.example.com/results.jsonl", False),
        ("http://api.openai.com/results.jsonl", False),
        ("https://api.openai.com.example.com/results.jsonl", False),
        ("https://api.openai.com:8443/results.jsonl", False),
        ("https://[api.openai.com/results.jsonl", False),
    ):
        plan = fetch_plan(batch, probe, "job", url)
        assert (plan.method, plan.url, plan.content) == ("GET", url, b"")
        assert ("authorization" in plan.headers) is is_own, url
    plan = fetch_plan(batch, probe, "job", "file-1")
    assert plan.url.startswith(f"{origin}/")
    assert "authorization" in plan.headers
