"""`cnllm verify --tools` over real sockets: what is right, what is wrong, what is spent, and the exit status."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import program
import pytest
from listings import LISTINGS

from cnllm.tool_trial import TASKS

from .endpoint import SOLUTIONS, Turn, serving

OVERLAY = """
[providers.local]
extends = "openai-compatible"
title = "Local"
protocol = "openai-chat"
base_url = "{url}"
keys = []

[models."local/m"]
{price}
"""
PRICE = 'price = { currency = "USD", input = 1.0, output = 2.0 }'


def verify(
    tmp_path: Path, url: str, *args: str, price: str = "", models: tuple[str, ...] = ("local/m",)
) -> subprocess.CompletedProcess[str]:
    """Run the command with one described endpoint."""
    (tmp_path / "providers.toml").write_text(OVERLAY.format(url=url, price=price))
    env = {"CNLLM_CONFIG_DIR": str(tmp_path), "COLUMNS": "80", "NO_COLOR": "1"}
    return program.completed(["verify", "--tools", *models, *args], env)


def test_a_model_that_solves_everything(tmp_path: Path) -> None:
    with serving() as (url, bodies):
        done = verify(tmp_path, url, "--json")
    assert done.returncode == 0, done.stderr
    assert len(msgspec.json.decode(done.stdout, type=LISTINGS["verify-tools"])) == 1
    (report,) = json.loads(done.stdout)
    assert (report["model"], report["stopped"], report["failed"]) == ("local/m", None, None)
    assert report["requests"] == len(bodies) == 2 * sum(map(len, SOLUTIONS.values()))
    for mode, kind in zip(report["modes"], ("native", "prompt"), strict=True):
        assert mode["tools"] == kind
        assert [(r["task"], r["problem"]) for r in mode["results"]] == [(task.name, None) for task in TASKS]
        shares = [mode[name] for name in ("success", "precision", "recall", "f1", "schema_accuracy")]
        assert shares == [1, 1, 1, 1, 1]
        for result in mode["results"]:
            for reply in result["replies"]:
                assert 0 <= reply["first"] <= reply["seconds"] <= result["seconds"]
    natives = [body for body in bodies if "tools" in body]
    assert len(natives) == len(bodies) // 2
    assert {body["max_tokens"] for body in bodies} == {4096}


def spoiled(task: str, turn: Turn) -> Turn:
    """Four mistakes, one in each of four tasks."""
    if task == "no-tool":
        return [("get_weather", '{"city": "Bern"}')] if turn == "12" else turn
    if task == "weather" and not isinstance(turn, str):
        return "It is 17 degrees, I guess."
    if task == "enum" and not isinstance(turn, str):
        return [("set_light", '{"room": "kitchen", "level": "low"}')]
    if task == "nested" and not isinstance(turn, str):
        return [(name, arguments[:-1]) for name, arguments in turn]
    return turn


def test_each_mistake_is_counted_where_it_belongs(tmp_path: Path) -> None:
    with serving(spoiled) as (url, _):
        done = verify(tmp_path, url, "--json")
    assert done.returncode == 3
    (report,) = json.loads(done.stdout)
    native = report["modes"][0]
    wrong = {result["task"]: result["problem"] for result in native["results"] if result["problem"]}
    assert set(wrong) == {"weather", "no-tool", "enum", "nested"}
    assert wrong["no-tool"] != wrong["weather"]
    by_task = {result["task"]: result["replies"] for result in native["results"]}
    assert [(r["expected"], r["called"]) for r in by_task["weather"]] == [(True, False)]
    assert (by_task["no-tool"][0]["expected"], by_task["no-tool"][0]["called"]) == (False, True)
    assert not any(reply["valid"] for task in ("enum", "nested") for reply in by_task[task])
    assert native["precision"] < 1
    assert native["recall"] < 1
    assert native["schema_accuracy"] < 1


def test_the_table_fits_80_columns(tmp_path: Path) -> None:
    with serving(spoiled) as (url, _):
        done = verify(tmp_path, url)
    lines = done.stdout.splitlines()
    assert lines[0] == "local/m over openai-chat"
    assert lines[1].split("  ")[-1].strip() == "tools in the prompt"
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("tasks that end right") and "9 of 13 (69 %)" in line for line in lines)
    assert any("native tools · weather: a tool" in line or "weather: no tool got" in line for line in lines)


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_max_requests_holds(tmp_path: Path, limit: int) -> None:
    with serving() as (url, bodies):
        done = verify(tmp_path, url, "--max-requests", str(limit))
    assert len(bodies) == limit
    assert done.returncode == 3
    assert f"--max-requests {limit} is reached" in done.stdout


def test_max_cost_holds(tmp_path: Path) -> None:
    with serving() as (url, bodies):
        done = verify(tmp_path, url, "--max-cost", "0.02", price=PRICE)
    assert done.returncode == 3
    spent = len(bodies) * (100 * 1.0 + 10 * 2.0) / 1e6
    assert bodies
    assert spent <= 0.02
    assert "--max-cost 0.02" in done.stdout


def test_a_reply_whose_tokens_nobody_counts_costs_the_most_that_it_can(tmp_path: Path) -> None:
    with serving(counts=False) as (url, bodies):
        done = verify(tmp_path, url, "--max-cost", "0.05", price=PRICE)
    assert done.returncode == 3
    assert bodies
    assert len(bodies) * 4096 * 2.0 / 1e6 <= 0.05
    assert "--max-cost 0.05" in done.stdout


def test_max_cost_holds_where_reasoning_costs_more_than_an_answer(tmp_path: Path) -> None:
    price = PRICE.replace("output = 2.0", "output = 2.0, output_thinking = 8.0")
    with serving(counts=False) as (url, bodies):
        done = verify(tmp_path, url, "--max-cost", "0.2", price=price)
    assert done.returncode == 3
    assert bodies
    assert len(bodies) * 4096 * 8.0 / 1e6 <= 0.2


def test_a_refused_request_costs_nothing(tmp_path: Path) -> None:
    """Each first turn of a task is refused once."""
    seen: set[str] = set()

    def refuse(task: str, turn: Turn) -> Turn | int:
        if task in seen or task not in ("no-tool", "enum", "nested", "chinese"):
            return turn
        seen.add(task)
        return 400

    with serving(refuse) as (url, bodies):
        done = verify(tmp_path, url, "--max-cost", "0.03", price=PRICE)
    spent = (len(bodies) - len(seen)) * (100 * 1.0 + 10 * 2.0) / 1e6
    assert len(seen) == 4
    assert spent <= 0.03
    assert "--max-cost" not in done.stdout


def test_max_cost_needs_prices_of_one_currency(tmp_path: Path) -> None:
    with serving() as (url, bodies):
        unknown = verify(tmp_path, url, "--max-cost", "1")
        mixed = verify(tmp_path, url, "--max-cost", "1", price=PRICE, models=("local/m", "alibaba-cn/qwen3.7-max"))
    assert (unknown.returncode, mixed.returncode) == (2, 2)
    assert "the price of local/m is unknown" in unknown.stderr
    assert "CNY and USD" in mixed.stderr
    assert not bodies


@pytest.mark.parametrize("status", [401, 404])
def test_an_endpoint_that_refuses_is_asked_once(tmp_path: Path, status: int) -> None:
    with serving(lambda task, turn: status) as (url, bodies):
        done = verify(tmp_path, url)
    assert done.returncode == 1
    assert len(bodies) == 1
    assert f"local/m did not answer: refused with {status}" in done.stderr
    assert not done.stdout


def test_a_model_without_a_key_is_a_wrong_call_and_the_others_are_tried(tmp_path: Path) -> None:
    with serving() as (url, bodies):
        done = verify(tmp_path, url, models=("zai/glm-4.7", "local/m"))
    assert (done.returncode, bool(bodies)) == (2, True)
    assert "zai/glm-4.7: no key for zai" in done.stderr
    assert "keys set ZAI_API_KEY" in done.stderr
    assert "local/m over" in done.stdout


def test_a_request_that_fails_later_is_that_task_s_problem(tmp_path: Path) -> None:
    with serving(lambda task, turn: 400 if task == "enum" else turn) as (url, _):
        done = verify(tmp_path, url, "--json")
    (report,) = json.loads(done.stdout)
    wrong: dict[str, Any] = {r["task"]: r["problem"] for r in report["modes"][0]["results"] if r["problem"]}
    assert wrong == {"enum": "refused with 400"}
    assert done.returncode == 3  # 12 of 13 are less than 95 %


def test_without_names_nothing_is_asked(tmp_path: Path) -> None:
    with serving() as (url, bodies):
        done = verify(tmp_path, url, models=())
    assert (done.returncode, bodies) == (0, [])
    assert "13 tasks" in done.stderr


def test_a_trial_on_the_simulator_says_what_it_cannot_tell(tmp_path: Path) -> None:
    done = verify(tmp_path, "http://127.0.0.1:9/v1", "--simulate", models=("zai/glm-4.7",))
    assert done.returncode == 3
    assert done.stderr.count("the simulator makes arguments up") == 1
    assert "calls valid by their schema" in done.stdout
