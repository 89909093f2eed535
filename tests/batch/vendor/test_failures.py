"""What a vendor's batch interface gets wrong, and what becomes of the rows: no answer is lost, no job is paid twice."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.support import KEY, Done, Machine

import cnllm
from cnllm import Registry
from cnllm.batch.report import Progress
from cnllm.cli.output.batch_view import progress_line

from .support import ROWS, SHAPES, Vendor, answers, arguments, configure, inputs, vendor

FILE, INLINE = "openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"


def run(folder: Path, server: Vendor, name: str, fault: str, *more: str, delay: float = 0.0) -> Done:
    """Run a batch. Its job is over when it is first asked for, unless the fault says otherwise: a poll waits."""
    machine = Machine(folder)
    faults = fault if "polls=" in fault else ";".join(filter(None, (fault, "polls=0")))
    configure(machine, server, name, faults, delay=delay)
    return machine.run(*arguments(name, folder), *more)


def complete(folder: Path) -> None:
    """Every row has an answer, once."""
    found = answers(folder)
    assert set(found) == {f"r{n}" for n in range(ROWS)}
    assert all(line["error"] is None and line["reply"]["text"] for line in found.values())


def returning() -> Iterator[Any]:
    """Yield each vendor with each way in which rows come back.

    Results that lack rows are fetched again for four seconds, by the same code for all vendors whose results are lines:
    .ci/long tries the others.
    """
    for fault, calls, words in (
        ("expired=2", 2, "2 rows were not served in time by the vendor"),
        ("failed-rows=1", 1, "1 rows failed at the vendor with"),
        ("missing-rows=1", 1, "1 rows were missing in the vendor's results"),
        ("duplicate-rows=2", 0, ""),
        ("shuffled", 0, ""),
        ("polls=2", 0, ""),
    ):
        for name in SHAPES:
            is_slow = fault == "missing-rows=1" and name not in (FILE, "google/gemini-2.5-flash")
            yield pytest.param(name, fault, calls, words, marks=[pytest.mark.long] if is_slow else [])


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "fault", "calls", "words"), list(returning()))
def test_rows_that_come_back_without_an_answer_are_asked_one_by_one(
    tmp_path: Path, name: str, fault: str, calls: int, words: str
) -> None:
    inputs(tmp_path)
    if (name, fault) == ("google/gemini-2.5-flash", "expired=2"):  # such a job has no results at all
        calls, words = ROWS, words.replace("2", str(ROWS))
    with vendor() as server:
        done = run(tmp_path, server, name, fault)
        assert (done.status, server.count("submit"), server.count("call")) == (0, 1, calls), done
    assert words in done.out
    complete(tmp_path)


def failing_once() -> Iterator[Any]:
    """Yield each step at each vendor with each fault. All pairs of two are in a usual run, all of three in .ci/long."""
    faults = ["status=500;times=1", "status=429;retry-after=0;times=1", "reset-headers;times=1", "reset;times=1"]
    for i, name in enumerate(SHAPES):
        for j, step in enumerate(("submit", "poll", "results", "upload")):
            for k, fault in enumerate(faults):
                yield pytest.param(
                    name, step, fault, marks=[] if (i + j + k) % len(faults) == 0 else [pytest.mark.long]
                )


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "step", "fault"), list(failing_once()))
def test_a_step_that_fails_once_is_done_again(tmp_path: Path, name: str, step: str, fault: str) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, name, f"{fault};step={step}")
        assert (done.status, server.count("call")) == (0, 0), done
        assert done.status == 0, done
        jobs = json.loads(run(tmp_path, server, name, "", "--json").out)["done"]
        assert jobs == ROWS
    complete(tmp_path)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("fault", ["status=500;after-effect;times=1", "reset;times=1"])
def test_a_submission_without_an_answer_is_looked_for_and_not_repeated(tmp_path: Path, name: str, fault: str) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, name, f"{fault};step=submit")
        assert (done.status, server.count("submit", "received"), server.count("call")) == (0, 1, 0), done
        assert server.count("list") >= 1
    complete(tmp_path)


@pytest.mark.parametrize("step", ["upload", "submit", "poll", "results"])
def test_a_line_says_what_a_run_waits_for(tmp_path: Path, step: str) -> None:
    machine, seen = Machine(tmp_path), list[str]()

    def show(moment: Progress) -> None:
        seen.append(progress_line(moment, 200))
        if "next request in" in seen[-1]:
            raise KeyboardInterrupt

    with vendor() as server:
        configure(machine, server, FILE, f"status=503;retry-after=300;step={step}")
        registry = Registry.load(machine.config / "providers.toml")
        out = tmp_path / "out.jsonl"
        with pytest.raises(KeyboardInterrupt):
            cnllm.batch.run(
                ["Say 1"], FILE, out=out, vendor_batch=True, registry=registry, api_keys=(KEY,), on_progress=show
            )
    jobs = "1 job at the vendor: 0/1" if step == "poll" else "1 job at the vendor: 1/1" if step == "results" else ""
    assert jobs in seen[-1]
    assert re.search("the vendor answered HTTP 503 · next request in (5 min 00|4 min [0-5][0-9]) s", seen[-1])


def test_a_results_file_that_breaks_off_is_fetched_again(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, FILE, "cut;step=results;times=1")
        assert (done.status, server.count("call")) == (0, 0), done
        assert server.count("results") >= 2
    complete(tmp_path)


def test_a_job_that_is_not_listed_yet_is_looked_for_again(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        fault = "status=500;after-effect;times=1;step=submit;unlisted=1"
        done = run(tmp_path, server, FILE, fault, delay=2.0)
        assert (done.status, server.count("submit", "received"), server.count("call")) == (0, 1, 0), done
        assert server.count("list") == 2
    complete(tmp_path)


@pytest.mark.parametrize("name", [FILE, "google/gemini-2.5-flash"])
def test_a_job_that_is_refused_as_a_whole_names_its_line(tmp_path: Path, name: str) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, name, "invalid=3")
        assert done.status == 3, done
        assert "the vendor refused job" in done.out
        assert server.count("call") == 0
        if name == FILE:
            assert "line 3 of the job, which is row 3 of the input: This failure was asked for. (invalid_" in done.out
        assert answers(tmp_path) == {}
        assert run(tmp_path, server, name, "").status == 0
        assert server.count("submit") == 2
    complete(tmp_path)


def test_a_refused_upload_ends_the_run_with_the_vendors_words(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, FILE, "status=400;step=upload")
        assert done.status == 3, done
        assert "the vendor took no job: " in done.out
        assert "This failure was asked for." in done.out
        assert (server.count("submit"), server.count("call")) == (0, 0)
        assert run(tmp_path, server, FILE, "").status == 0
    complete(tmp_path)


def test_a_submission_that_is_put_off_is_tried_six_times(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, INLINE, "status=429;retry-after=0;step=submit")
        assert done.status == 3, done
        assert "the vendor took no job: " in done.out
        assert (server.count("submit", "received"), server.count("call")) == (6, 0)


def test_a_job_that_the_account_does_not_have_ends_the_run(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, FILE, "status=404;step=poll")
        done.fails(1, f"holds {ROWS} rows; is it the key of the same account?")
        assert run(tmp_path, server, FILE, "").status == 0
        assert (server.count("submit"), server.count("call")) == (1, 0)
    complete(tmp_path)


@pytest.mark.parametrize("spelling", [KEY, b64encode(f"x:{KEY}:".encode()).decode(), KEY.replace("-", "%2D")])
@pytest.mark.parametrize("name", SHAPES)
def test_no_result_brings_a_key_into_the_output(tmp_path: Path, name: str, spelling: str) -> None:
    """The simulator repeats the prompt, as an endpoint may repeat a header."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "r0", "prompt": f"Say {spelling}", "max_tokens": 400}) + "\n")
    with vendor() as server:
        assert run(tmp_path, server, name, "").status == 0
    text = (tmp_path / "out.jsonl").read_text()
    assert "[redacted]" in text
    assert spelling not in text


def test_missing_rows_stay_unanswered_where_the_user_says_so(tmp_path: Path) -> None:
    inputs(tmp_path)
    with vendor() as server:
        done = run(tmp_path, server, FILE, "missing-rows=1", "--unsure", "skip")
        assert server.count("call") == 0
        assert "1 rows were missing in the vendor's results, and were not asked again" in done.out
        assert len(answers(tmp_path)) == ROWS - 1
