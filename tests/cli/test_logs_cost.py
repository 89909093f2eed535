"""`cnllm logs cost` and `logs delete`: sums that never claim more than is known, and bytes that are gone."""

from __future__ import annotations

import csv
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pytest

from cnllm.cli.output.cost_plot import draw_costs
from cnllm.store.costs import CostReport, CostRow
from cnllm.system import files
from cnllm.types import Cost

from .support import ANSWER, DONE, HEAD, Machine, Server, chunk, http, texts, whole

PRICE = 'price = { currency = "USD", input = 1.0, output = 10.0 }'
EACH = Decimal("0.000352")  # 12 in, 34 out
CALL = ("call", "--model", "home/m")
UNUSED = [HEAD, texts("Hello"), chunk("stop"), b"data: [DONE]\n\n"]


def report(machine: Machine, *args: str) -> dict[str, Any]:
    done = machine.run("logs", "cost", *args, "--json")
    assert done.status == 0, done.err
    result: dict[str, Any] = done.json()
    return result


def in_csv(machine: Machine) -> dict[str, str]:
    """Return the counts of the only line of the CSV."""
    (row,) = csv.DictReader(io.StringIO(machine.run("logs", "cost", "--csv").out))
    return {name: row[name] for name in ("input", "cached", "output", "uncounted", "uncounted_cached")}


def test_sums_by_model_day_and_conversation(machine: Machine) -> None:
    assert "no call of an endpoint is logged" in machine.run("logs", "cost").err
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, PRICE)
        machine.run(*CALL, "one")
        machine.run(*CALL, "two")
        machine.run("call", "-c", "three")
        machine.run(*CALL, "--simulate", "free")
    for by, turns in (("model", [3]), ("day", [3]), ("conversation", [1, 2])):
        found = report(machine, "--by", by)
        rows = found["rows"]
        assert isinstance(rows, list)
        assert [row["turns"] for row in rows] == turns
        assert found["free"] == 1
        for row in [*rows, found["total"]]:
            assert row["exact"] is True
            assert Decimal(row["cost"][0]["amount"]) == EACH * row["turns"]
            assert (row["input"], row["output"]) == (12 * row["turns"], 34 * row["turns"])
    text = machine.run("logs", "cost")
    assert text.out.splitlines()[1].split() == ["home/m", "3", "36", "unknown", "102", "0.001056", "USD"]
    assert "simulated and replayed turns, for which nothing was paid: 1" in text.err
    (id_,) = [row["label"] for row in report(machine, "--by", "conversation")["rows"] if row["turns"] == 1]
    assert report(machine, id_[:6])["total"]["turns"] == 1
    assert report(machine, "--since", "2")["total"]["turns"] == 3
    assert report(machine, "--since", "2999-01-01")["total"]["turns"] == 0
    machine.run("logs", "cost", "--since", "tomorrow").fails(2, "--since tomorrow", "2026-01-31")


def test_an_unknown_part_is_never_left_out_silently(machine: Machine) -> None:
    refused = [http(400, json.dumps({"error": {"message": "no"}}).encode())]
    broken = [http(500, b"{}")]
    cut = [HEAD, texts("Hel")]
    for script, exact, words in (
        (refused, True, " 0.000352 USD"),  # nothing was done, so nothing is paid
        (broken, False, "≥ 0.000352 USD (unknown for 1 turn)"),
        (cut, False, "≥ 0.000352 USD (unknown for 1 turn)"),
        (UNUSED, False, "≥ 0.000352 USD (unknown for 1 turn)"),
    ):
        machine.env["CNLLM_DATA_DIR"] = str(machine.home / f"data{len(words)}{script is cut}{script is UNUSED}")
        machine.env["CNLLM_ATTEMPTS"] = "1"
        with Server(ANSWER, script) as peer:
            machine.overlay(peer.url, PRICE)
            machine.run(*CALL, "one")
            machine.run(*CALL, "two")
        total = report(machine)["total"]
        assert isinstance(total, dict)
        assert (total["turns"], total["exact"], total["unknown"]) == (2, exact, 0 if exact else 1), script
        out = machine.run("logs", "cost").out
        assert words in out
        assert ("≥12" in out) is (script in (broken, cut, UNUSED))


def test_without_a_price_nothing_is_claimed(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "one")
    assert machine.run("logs", "cost").out.splitlines()[1].endswith("unknown for 1 turn")
    assert report(machine)["total"]["cost"] == []


def test_a_request_that_was_made_again_is_no_exact_cost(machine: Machine) -> None:
    with Server([HEAD, texts("Hel")], [http(200, whole(content="Hello"))]) as peer:
        machine.overlay(peer.url, PRICE)
        assert machine.run(*CALL, "one", "-p", "if_cut=again-whole").status == 0
    assert len(peer.received) == 2
    total = report(machine)["total"]
    assert isinstance(total, dict)
    assert (total["exact"], total["unknown"], total["uncounted"], total["uncounted_cached"]) == (False, 1, 1, 1)
    assert "≥ 0.000352 USD (unknown for 1 turn)" in machine.run("logs", "cost").out
    assert "≥ 0.000352 USD" in machine.run("logs", "show").out


def test_a_refused_step_does_not_hide_the_step_before_it(machine: Machine) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "calc", "arguments": '{"expression": "1+1"}'}}
    step = (HEAD, chunk(role="assistant", tool_calls=[call]), chunk("tool_calls"), DONE)
    with Server(step, [http(400, b'{"error": {"message": "no"}}')]) as peer:
        machine.overlay(peer.url)  # without a price
        assert machine.run(*CALL, "--tool", "calc", "1+1?").status == 1
    assert len(peer.received) == 2
    assert report(machine)["total"]["exact"] is False


def test_unknown_tokens_of_the_cache_are_not_zero(machine: Machine) -> None:
    cached = whole(content="Hello").replace(b'"usage": {', b'"usage": {"prompt_tokens_details": {"cached_tokens": 5}, ')
    with Server(ANSWER, [http(200, cached)]) as peer:
        machine.overlay(peer.url, PRICE)
        machine.run(*CALL, "one")
        assert machine.run("logs", "cost").out.splitlines()[1].split()[3] == "unknown"
        assert in_csv(machine) == {
            "input": "12",
            "cached": "",
            "output": "34",
            "uncounted": "0",
            "uncounted_cached": "1",
        }
        machine.run(*CALL, "two", "--no-stream")
    assert machine.run("logs", "cost").out.splitlines()[1].split()[3] == "≥5"
    assert (in_csv(machine)["cached"], in_csv(machine)["uncounted_cached"]) == ("5", "1")


def test_a_prompt_of_zero_tokens_was_not_counted(machine: Machine) -> None:
    zeros = whole(content="Hello").replace(b'"prompt_tokens": 12', b'"prompt_tokens": 0')
    assert b'"prompt_tokens": 0' in zeros
    with Server([http(200, zeros)]) as peer:
        machine.overlay(peer.url, PRICE)
        machine.run(*CALL, "one", "--no-stream")
    assert report(machine)["total"]["uncounted"] == 1
    assert machine.run("logs", "cost").out.splitlines()[1].split()[2] == "≥0"


def test_the_lines_are_drawn(machine: Machine) -> None:
    plot = machine.home / "cost.svg"
    assert machine.run("logs", "cost", "--plot", str(plot)).status == 0
    assert not plot.exists(), "there is nothing to draw"
    with Server(ANSWER, [HEAD, texts("Hel")]) as peer:
        machine.overlay(peer.url, PRICE)
        machine.env["CNLLM_ATTEMPTS"] = "1"
        machine.run(*CALL, "--tag", "<b> & c", "one")
        machine.run(*CALL, "--tag", "cut", "two")
        machine.run(*CALL, "--tag", "cut", "two")
    done = machine.run("logs", "cost", "--by", "tag", "--plot", str(plot), "--csv")
    assert done.out.startswith("tag,turns,"), "the lines are printed, too"
    root = ElementTree.fromstring(plot.read_text())
    drawn = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {"<b> & c", "0.000352", "USD by tag"} <= set(drawn)
    assert any("turns of unknown cost" in str(text) and "2" in str(text) for text in drawn)
    machine.run("logs", "cost", "--plot", str(machine.home / "no" / "cost.svg")).fails(2, "--plot", "another file")
    machine.run("logs", "cost", "--plot", str(plot), "--against", "x.csv").fails(2, "--plot")
    machine.run("logs", "cost", "--plot", str(machine.home / "cost.png")).fails(2, "the picture is an SVG", ".svg")


def test_lines_are_drawn_beside_a_command_that_changes_a_file(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, PRICE)
        machine.run(*CALL, "one")
    ends = threading.Event()

    def change() -> None:
        while not ends.is_set():
            files.change_file(machine.home / "other", lambda old: b"1" if old == b"0" else b"0")

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(change)
        try:
            for _ in range(30):
                done = machine.run("logs", "cost", "--plot", str(machine.home / "cost.svg"))
                assert done.status == 0, done.err
        finally:
            ends.set()
        other.result()


def test_many_lines_are_drawn_as_one() -> None:
    whole, part = Cost(Decimal("0.5"), "USD"), Cost(Decimal(2), "CNY", missing=("output",), at_most=Decimal(8))
    counts = {"turns": 1, "input": 1, "cached": 0, "output": 1, "uncounted": 0, "uncounted_cached": 0}
    rows = [CostRow(label=f"d{n}\x00", cost=[whole], unknown=0, exact=True, **counts) for n in range(100)]
    rows.append(CostRow(label="x" * 99, cost=[part], unknown=1, exact=False, **counts))
    text = draw_costs(CostReport(by="day", rows=rows, total=rows[0], free=0))
    root = ElementTree.fromstring(text)
    drawn = [str(element.text) for element in root.iter() if element.tag.endswith("}text")]
    assert {"CNY by day", "USD by day", "≥ 2", "40 more lines: 20"} <= set(drawn)
    bars = [float(e.get("width", 0)) for e in root.iter() if e.get("class") == "most-key" and e.get("height") == "14"]
    amounts = [
        float(e.get("width", 0)) for e in root.iter() if e.get("class") == "rate-key" and e.get("height") == "14"
    ]
    assert len(bars) == 1
    assert bars[0] == pytest.approx(4 * amounts[0], rel=0.01), "the most that it can be, beside the amount"


# ── deleting ─────────────────────────────────────────────────────────────────
def test_deleted_conversations_leave_no_byte(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        for text in ("aardvark", "badger", "civet"):
            machine.run(*CALL, text)
    machine.run("logs", "search", "badger")  # makes an index
    ids = {row["prompt"]: row["id"] for row in machine.run("logs", "list", "--json").json()}
    done = machine.run("logs", "delete", ids["badger"][:6], ids["aardvark"])
    assert (done.status, done.out, done.err) == (0, "", "deleted: 2 conversations, 2 turns\n")
    assert [row["prompt"] for row in machine.run("logs", "list", "--json").json()] == ["civet"]
    folder = machine.data
    content = b"".join(file.read_bytes() for file in folder.iterdir())
    assert b"civet" in content
    assert b"badger" not in content
    assert b"aardvark" not in content
    assert "civet" in machine.run("logs", "search", "civet").out


def test_many_are_deleted_only_on_purpose(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "one")
    machine.run("logs", "delete").fails(2, "--before or --all")
    machine.run("logs", "delete", "last", "--all").fails(2, "--before or --all")
    machine.run("logs", "delete", "--all").fails(2, "1 conversation would be deleted", "--yes")
    machine.run("logs", "delete", "zzz").fails(2, "zzz", "cnllm logs list")
    assert "there is no such conversation" in machine.run("logs", "delete", "--before", "1", "--yes").err
    assert "deleted: 1 conversation" in machine.run("logs", "delete", "--before", "2999-01-01", "--yes").err
    assert "there is no such conversation" in machine.run("logs", "delete", "--all", "--yes").err


def test_calls_have_a_tag(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, PRICE)
        machine.run(*CALL, "--tag", "夜间 1", "one")
        machine.run(*CALL, "two")
        machine.run("chat", "--model", "home/m", "--tag", "talk", stdin="three\nfour\n")
        for wrong in ("", "a\tb", "x" * 101):
            machine.run(*CALL, "--tag", wrong, "five").fails(2, "--tag", "1 to 100 printable characters")
        assert len(peer.received) == 4
        assert all("tag" not in str(request.json()) for request in peer.received)
    rows = report(machine, "--by", "tag")["rows"]
    assert isinstance(rows, list)
    assert {row["label"]: row["turns"] for row in rows} == {"夜间 1": 1, "(no tag)": 1, "talk": 2}
