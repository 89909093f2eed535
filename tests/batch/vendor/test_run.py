"""`cnllm batch --vendor-batch` as its user sees it: stopped and gone on with, caps, limits, errors, estimates."""

from __future__ import annotations

import json
import signal
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from cli.support import KEY, Machine

import cnllm
from cnllm import Registry
from cnllm.batch.report import Progress
from cnllm.errors import CnllmError

from .support import ROWS, SHAPES, answers, arguments, configure, inputs, vendor

FILE = "openai/gpt-4.1-mini"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    inputs(tmp_path)
    return Machine(tmp_path)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SHAPES)
def test_stopped_while_the_vendor_works(machine: Machine, tmp_path: Path, name: str) -> None:
    with vendor() as server:
        configure(machine, server, name, "seconds=3")
        process = machine.start(*arguments(name, tmp_path))

        def interrupt(step: str, phase: str) -> None:
            if (step, phase) == ("poll", "handled"):
                server.hook = None
                process.send_signal(signal.SIGINT)

        server.hook = interrupt
        out, err = (data.decode() for data in process.communicate())
        assert process.returncode == 130, (out, err)
        assert f"stopped: it was interrupted; 1 job with {ROWS} rows go on at the vendor; run the same command" in out
        assert f"still at the vendor: {ROWS} rows" in out
        assert "not answered" not in out
        assert answers(tmp_path) == {}
        single = machine.run(*[a for a in arguments(name, tmp_path) if a != "--vendor-batch"])
        single.fails(2, f"{ROWS} rows of ", "are in 1 jobs at a vendor", "--vendor-batch goes on with them")
        second = "openai/gpt-4.1"
        configure(machine, server, second)
        other = machine.run(*arguments(second, tmp_path))
        other.fails(2, f"{ROWS} rows are in job ", name, "goes on with it")
        configure(machine, server, name)
        assert machine.run(*arguments(name, tmp_path)).status == 0
        assert (server.count("submit"), server.count("call")) == (1, 0)
    assert [line["attempts"] for line in answers(tmp_path).values()] == [1] * ROWS


def test_what_a_job_at_a_vendor_cost_stands_in_the_logs(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        report = machine.run(*arguments(FILE, tmp_path), "--tag", "nightly", "--json").json()
    (row,) = machine.run("logs", "cost", "--by", "tag", "--json").json()["rows"]
    assert (row["label"], row["turns"], row["exact"]) == ("nightly", ROWS, True)
    (cost,) = row["cost"]
    rounding = Decimal(ROWS) / 1_000_000_000
    assert Decimal(cost["amount"]) <= Decimal(str(report["cost"])) <= Decimal(cost["amount"]) + rounding


def test_options_that_changed_while_the_vendor_worked(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        process = machine.start(*arguments(FILE, tmp_path))
        server.hook = lambda step, phase: process.kill() if (step, phase) == ("poll", "received") else None
        process.communicate()
        server.hook = None
        done = machine.run(*arguments(FILE, tmp_path), "-p", "temperature=0.5")
        assert done.status == 0, done
        assert f"{ROWS} answers are to requests that were submitted with other options" in done.out
        machine.run(*arguments(FILE, tmp_path), "-p", "temperature=0.5").fails(
            2, "What changed: the option temperature"
        )
        assert machine.run(*arguments(FILE, tmp_path)).status == 0
        assert (server.count("submit"), server.count("call")) == (1, 0)
        again = machine.run(*arguments(FILE, tmp_path), "-p", "temperature=0.5", "--redo")
        assert again.status == 0, again
        assert (server.count("submit"), server.count("call")) == (2, 0)
    assert len(answers(tmp_path)) == ROWS


def test_parts_keep_the_limits_of_the_vendor(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE, flags="batch.max_rows = 2")
        assert machine.run(*arguments(FILE, tmp_path)).status == 0
        assert (server.count("submit"), server.count("call")) == (3, 0)
    assert len(answers(tmp_path)) == ROWS


def test_a_row_that_is_too_long_is_asked_by_itself(machine: Machine, tmp_path: Path) -> None:
    long = {"id": "long", "prompt": "x" * 4000, "max_tokens": 40}
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write(json.dumps(long) + "\n")
    with vendor() as server:
        configure(machine, server, FILE, flags="batch.max_row_bytes = 2000")
        assert machine.run(*arguments(FILE, tmp_path)).status == 0
        assert (server.count("submit"), server.count("call")) == (1, 1)
    assert len(answers(tmp_path)) == ROWS + 1


def test_lines_that_are_no_requests_and_ids_that_stand_twice(machine: Machine, tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write('{"id": "bad"}\n{"id": "r1", "prompt": "again"}\n')
    with vendor() as server:
        configure(machine, server, FILE)
        done = machine.run(*arguments(FILE, tmp_path))
        assert done.status == 3
        assert f"{ROWS} done, 2 failed" in done.out
        assert (server.count("submit"), server.count("call")) == (1, 0)
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert sorted(str(line["id"]) for line in lines if line["error"] is None) == [f"r{n}" for n in range(ROWS)]
        assert {line["line"] for line in lines if line["error"]} == {ROWS + 1, ROWS + 2}
        assert machine.run(*arguments(FILE, tmp_path)).status == 3
        assert (server.count("submit"), server.count("call")) == (1, 0)


def test_a_part_whose_only_row_stands_twice_leaves_nothing_at_the_vendor(machine: Machine, tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write('{"id": "r1", "prompt": "again"}\n')
    with vendor() as server:
        configure(machine, server, FILE, flags="batch.max_rows = 1")
        done = machine.run(*arguments(FILE, tmp_path))
        assert done.status == 3
        assert f"{ROWS} done, 1 failed" in done.out
        assert (server.count("submit"), server.count("call")) == (ROWS, 0)
        single = machine.run(*[a for a in arguments(FILE, tmp_path) if a != "--vendor-batch"])
        assert single.status == 3, single  # it is not told to go on with a job
        assert server.count("call") == 0


def test_an_id_that_stands_twice_before_the_rows_of_an_earlier_run(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        assert machine.run(*arguments(FILE, tmp_path)).status == 0
        path = tmp_path / "in.jsonl"
        path.write_text('{"id": "new", "prompt": "first"}\n{"id": "new", "prompt": "again"}\n' + path.read_text())
        for _ in range(2):
            done = machine.run(*arguments(FILE, tmp_path))
            assert done.status == 3, done
            assert f"{ROWS + 1} done, 1 failed" in done.out, done
            assert (server.count("submit"), server.count("call")) == (2, 0)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["id"] for line in lines if line["error"] is None) == ["new", *(f"r{n}" for n in range(ROWS))]
    assert [line["line"] for line in lines if line["error"]] == [2]


def test_the_cap_counts_the_discounted_worst_case(machine: Machine, tmp_path: Path) -> None:
    command = (*arguments(FILE, tmp_path), "-p", "max_tokens=40")
    with vendor() as server:
        configure(machine, server, FILE)
        dry = machine.run(*command, "--dry-run", "--json").json()
        full = machine.run(*(a for a in command if a != "--vendor-batch"), "--dry-run", "--json").json()
        assert Decimal(dry["worst_cost"]) * 2 == Decimal(full["worst_cost"])
        assert Decimal(dry["cost"]) * 2 == Decimal(full["cost"])
        assert "time: up to 24 h, the window of the vendor's batches" in machine.run(*command, "--dry-run").out
        assert server.seen == []
        low = Decimal(dry["worst_cost"]) / ROWS / 2
        machine.run(*command, "--max-cost", str(low), "--currency", "USD").fails(2, "leaves no room for a request")
        cap = Decimal(dry["worst_cost"]) * Decimal("0.7")
        done = machine.run(*command, "--max-cost", str(cap), "--currency", "USD", "--json")
        report = done.json()
        assert Decimal(report["cost"]) <= cap
        assert server.count("submit") > 1, "what a job leaves of the cap goes into the next one"
        assert server.count("call") == 0
        assert (report["stopped"] is None) is (report["done"] == ROWS)


def test_a_model_without_an_interface_names_those_that_have_one(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        done = machine.run(*arguments("google/gemini-2.5-flash", tmp_path)[:4], "-o", str(tmp_path / "out.jsonl"),
                           "--vendor-batch", "--dry-run")  # fmt: skip
        done.fails(2, "google/gemini-2.5-flash with --protocol gemini")
        nothing = machine.run("batch", str(tmp_path / "in.jsonl"), "-m", "deepseek/deepseek-flash", "-o",
                              str(tmp_path / "out.jsonl"), "--vendor-batch", "--dry-run")  # fmt: skip
        nothing.fails(2, "a batch interface of deepseek/deepseek-flash over openai-chat is not known")
    assert not (tmp_path / "out.jsonl").exists()


def test_what_a_job_cannot_do_is_refused_before_anything_is_sent(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        tools = machine.run(*arguments(FILE, tmp_path), "--max-steps", "3")
        tools.fails(2, "cannot run tools")
        two = machine.run(*arguments(FILE, tmp_path), "-m", "openai/gpt-4.1")
        two.fails(2, "--vendor-batch takes one model")
        assert server.seen == []


def test_calls_to_another_path(machine: Machine, tmp_path: Path) -> None:
    """An interface without jobs: the rows go one by one to a path of its own, at its price."""
    name = "volcengine/doubao-seed-2-1-pro-260915"
    with vendor() as server:
        configure(machine, server, name)
        command = ("batch", str(tmp_path / "in.jsonl"), "-m", name, "--no-plot", "--json")
        done = machine.run(*command, "-o", str(tmp_path / "out.jsonl"), "--vendor-batch")
        assert done.status == 0, done
        assert (server.count("submit"), server.count("call")) == (0, ROWS)
        single = machine.run(*command, "-o", str(tmp_path / "single.jsonl"))
        assert Decimal(done.json()["cost"]) * 2 == Decimal(single.json()["cost"])
    assert len(answers(tmp_path)) == ROWS


@pytest.mark.parametrize("name", SHAPES)
def test_simulated_in_memory(machine: Machine, tmp_path: Path, name: str) -> None:
    done = machine.run(*arguments(name, tmp_path), "--simulate", "--json")
    assert done.status == 0, done
    assert (done.json()["by_vendor"], done.json()["cost"]) == (ROWS, None)
    assert "these answers are made up" in done.err
    assert all("simulated" in {note["code"] for note in line["reply"]["notes"]} for line in answers(tmp_path).values())


def test_from_a_program(tmp_path: Path) -> None:
    inputs(tmp_path)
    overlay = tmp_path / "o.toml"
    with vendor() as server:
        overlay.write_text(f'[providers.openai]\nbase_url = "{server.url}/openai"\nbatch.list.delay = 0\n')
        registry = Registry.load(overlay)
        moments: list[Progress] = []
        report = cnllm.batch.run(
            (json.loads(line) for line in (tmp_path / "in.jsonl").read_text().splitlines()),
            FILE,
            out=tmp_path / "out.jsonl",
            registry=registry,
            api_keys=(KEY,),
            vendor_batch=True,
            on_progress=moments.append,
            transport=httpx.AsyncHTTPTransport(),
        )
        assert (report.done, report.by_vendor, report.waiting) == (ROWS, ROWS, 0)
        assert any(moment.vendor is not None and moment.vendor.rows == ROWS for moment in moments)
        with pytest.raises(CnllmError, match="batch interface") as caught:
            cnllm.batch.run(["x"], "deepseek/deepseek-flash", out=tmp_path / "y.jsonl", vendor_batch=True,
                            registry=registry, api_keys=(KEY,))  # fmt: skip
        assert caught.value.hint


@pytest.mark.parametrize("place", [0, ROWS - 1])
def test_an_answer_to_a_row_that_the_input_no_longer_has_is_that_of_no_other_row(
    machine: Machine, tmp_path: Path, place: int
) -> None:
    """Another row stands on its line."""
    with vendor() as server:
        configure(machine, server, FILE)
        process = machine.start(*arguments(FILE, tmp_path))
        server.hook = lambda step, phase: process.kill() if (step, phase) == ("poll", "received") else None
        process.communicate()
        server.hook = None
        path = tmp_path / "in.jsonl"
        rows = path.read_text().splitlines()
        rows[place] = '{"id": "new", "prompt": "Say what is new", "max_tokens": 40}'
        path.write_text("\n".join(rows) + "\n")
        done = machine.run(*arguments(FILE, tmp_path), "--json")
        assert server.count("submit") == 2
    found = answers(tmp_path)
    assert "what is new" in found["new"]["reply"]["text"], done
    assert {f"r{number}" for number in range(ROWS) if number != place} < set(found)
    for number in range(ROWS):
        if number != place:
            assert f"Say {number}" in found[f"r{number}"]["reply"]["text"]


def test_an_answer_of_a_vendor_counts_where_the_cache_has_one_by_now(machine: Machine, tmp_path: Path) -> None:
    with vendor() as server:
        configure(machine, server, FILE)
        process = machine.start(*arguments(FILE, tmp_path), "--cache")
        server.hook = lambda step, phase: process.kill() if (step, phase) == ("poll", "received") else None
        process.communicate()
        server.hook = None
        other = [str(tmp_path / "other.jsonl") if a.endswith("out.jsonl") else a for a in arguments(FILE, tmp_path)]
        assert machine.run(*[a for a in other if a != "--vendor-batch"], "--cache").status == 0
        done = machine.run(*arguments(FILE, tmp_path), "--cache", "--json")
        report = done.json()
    assert (done.status, report["by_vendor"], report["unanswered"], report["done"]) == (0, ROWS, 0, ROWS)
    assert not any(line.get("from_cache") for line in answers(tmp_path).values())
