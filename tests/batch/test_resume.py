"""A batch goes on: what is finished is not asked again, what failed may be, and what changed is named."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli.support import Machine

from cnllm import Registry
from cnllm.batch import database, estimate_session, identity, run_files
from cnllm.batch.settings import make_settings
from cnllm.errors import CnllmError
from cnllm.system import files

from .stub import Answer, Stub, error, reply, stub
from .support import KEY, PRICE, lines, prompts, registry, rows, run, texts


def test_a_second_run_asks_only_what_is_new(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(30))
    with stub() as server:
        assert run(server, tmp_path, source).done == 30
        rows(tmp_path, prompts(40))
        report = run(server, tmp_path, source)
        assert (report.done, report.asked, report.skipped) == (40, 10, 30)
        assert all(count == 1 for count in server.received.values())
    assert texts(tmp_path) == {f"r{n}": f"re: p{n}" for n in range(40)}


def test_rows_that_moved_are_the_same_rows(tmp_path: Path) -> None:
    values = prompts(300)
    source = rows(tmp_path, values)
    with stub() as server:
        run(server, tmp_path, source)
        rows(tmp_path, [*prompts(5, 1000), *values[::-1], *prompts(3, 2000)])
        report = run(server, tmp_path, source, order=True)
        assert (report.done, report.asked) == (308, 8)
    assert [line["id"] for line in lines(tmp_path)][:7] == [*(f"r{n}" for n in range(1000, 1005)), "r299", "r298"]


def test_rows_that_moved_are_still_those_of_their_setting(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(4))
    with stub() as server:
        run(server, tmp_path, source)
        rows(tmp_path, prompts(4)[::-1])
        for _ in range(2):
            with pytest.raises(CnllmError, match="asked differently"):
                run(server, tmp_path, source, max_tokens=7)
        assert run(server, tmp_path, source).done == 4


def test_only_failures_that_may_succeed_are_tried_again(tmp_path: Path) -> None:
    broken = True

    def rule(prompt: str, server: Stub) -> Answer | None:
        if prompt == "p1" and broken:
            return 503, error("overloaded"), {}
        return (400, error("no such thing"), {}) if prompt == "p2" else None

    source = rows(tmp_path, prompts(4))
    with stub(rule=rule) as server:
        report = run(server, tmp_path, source, attempts=2)
        assert (report.done, report.failed) == (2, 2)
        assert server.received["p1"] == 2
        by_id = {line["id"]: line for line in lines(tmp_path)}
        assert by_id["r1"]["error"] | {"message": ""} == {
            "type": "Overloaded",
            "message": "",
            "status": 503,
            "retryable": True,
        }
        assert by_id["r1"]["attempts"] == 2
        assert by_id["r2"]["error"]["retryable"] is False
        assert {line["id"] for line in lines(tmp_path, "out.jsonl.errors.jsonl")} == {"r1", "r2"}
        broken = False
        report = run(server, tmp_path, source, attempts=2)
        assert (report.done, report.failed, report.asked) == (3, 1, 1)
        assert server.received["p2"] == 1
    assert texts(tmp_path)["r1"] == "re: p1"
    assert [line["id"] for line in lines(tmp_path, "out.jsonl.errors.jsonl")] == ["r2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.5}, "the option temperature: not set → 0.5"),
        ({"prompt": "Say {prompt}"}, "the prompt: none → 'Say {prompt}'"),
        ({"flags": 'body = { set = { x = 1 } }\nprice = { currency = "CNY", input = 2.0, output = 8.0 }'}, "registry"),
    ],
)
def test_what_would_be_asked_differently_is_named_and_nothing_is_sent(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    source = rows(tmp_path, prompts(5))
    with stub() as server:
        run(server, tmp_path, source, flags=PRICE)
        settings = {"flags": PRICE} | change
        with pytest.raises(CnllmError) as raised:
            run(server, tmp_path, source, **settings)
        assert words in str(raised.value)
        assert "5 finished rows" in str(raised.value)
        assert "0.0003 CNY" in str(raised.value)  # 5 rows of 10 tokens in and 5 out
        assert raised.value.hint is not None
        assert "--redo" in raised.value.hint
        assert len(server.log) == 5
        kept = run(server, tmp_path, source, changed="keep", **settings)
        assert (kept.done, kept.asked, len(server.log)) == (5, 0, 5)
        redone = run(server, tmp_path, source, changed="redo", **settings)
        assert (redone.done, redone.asked, len(server.log)) == (5, 5, 10)
    assert len(lines(tmp_path)) == 5


def test_a_changed_row_is_named(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(5))
    with stub() as server:
        run(server, tmp_path, source)
        values = prompts(5)
        values[3]["prompt"] = "another"
        rows(tmp_path, values)
        with pytest.raises(CnllmError, match=r"1 finished rows \(r3, …\).*1 row of the input"):
            run(server, tmp_path, source)
        run(server, tmp_path, source, changed="redo")
        assert server.log[5:] == ["another"]
    assert texts(tmp_path)["r3"] == "re: another"


def test_other_white_space_is_no_change(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(5))
    with stub() as server:
        run(server, tmp_path, source)
        source.write_text(
            "".join(json.dumps(value, indent=None, separators=(",", " :  ")) + "\n" for value in prompts(5))
        )
        assert run(server, tmp_path, source).asked == 0


def test_a_name_means_what_it_meant_at_first(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(3))
    with stub() as server:
        run(server, tmp_path, source, flags='[models."home/n"]\n[aliases]\nmine = "home/m"', model="mine")
        rows(tmp_path, prompts(5))
        report = run(server, tmp_path, source, flags='[models."home/n"]\n[aliases]\nmine = "home/n"', model="mine")
        assert (report.done, report.asked) == (5, 2)
        assert {body["model"] for body in server.bodies} == {"m"}


def test_a_key_of_another_site_asks_no_row_of_the_first_one(tmp_path: Path) -> None:
    machine, sites = Machine(tmp_path), {"one": "region = 'global'", "two": "region = 'cn'"}
    command = ("batch", str(rows(tmp_path, prompts(1))), "-m", "n", "-o", str(tmp_path / "out.jsonl"), "--json")
    machine.config.mkdir(parents=True)
    with stub() as server:
        (machine.config / "providers.toml").write_text(
            "".join(
                f"[providers.{name}]\ntitle = '{name}'\nprotocol = 'openai-chat'\nbase_url = '{server.url}'\n"
                f"keys = ['{name.upper()}_TEST_KEY']\nsite = {{ vendor = 'ab', {region} }}\n[models.'{name}/n']\n"
                for name, region in sites.items()
            )
        )
        machine.env["ONE_TEST_KEY"] = KEY
        assert machine.run(*command).json()["done"] == 1
        rows(tmp_path, prompts(2))
        machine.env["TWO_TEST_KEY"] = machine.env.pop("ONE_TEST_KEY")
        refused = machine.run(*command)
        assert (refused.status, refused.out) == (2, "")
        assert "asked at one/n, and the key that is set is one of two, another site" in refused.err
        machine.env["ONE_TEST_KEY"] = KEY
        assert machine.run(*command).json()["asked"] == 1


def test_a_torn_last_line_is_redone(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(6))
    out = tmp_path / "out.jsonl"
    with stub() as server:
        run(server, tmp_path, source)
        whole = out.read_bytes()
        last = json.loads(whole.splitlines()[-1])["id"]
        out.write_bytes(whole[:-20])
        report = run(server, tmp_path, source)
        assert (report.done, report.asked) == (6, 1)
        assert server.log[6:] == [f"p{last[1:]}"]
    assert len(texts(tmp_path)) == 6


@pytest.mark.parametrize("how", ["sorted", "crash", "full disk"])
def test_an_output_that_was_reordered_is_read_again(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device") if how == "full disk" else KeyboardInterrupt

    long, short, last = ({"id": key, "prompt": key * count} for key, count in (("b", 90), ("a", 1), ("z", 400)))
    out = tmp_path / "out.jsonl"
    with stub() as server:
        first = run(server, tmp_path, rows(tmp_path, [long, short, last]), flags=PRICE, concurrency=1)
        good = sorted(out.read_bytes().splitlines())
        source = rows(tmp_path, [short, long, last])
        if how == "sorted":
            one, two, three = out.read_bytes().splitlines(keepends=True)
            out.write_bytes(two + one + three)
        else:
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr("cnllm.batch.final.sync_folder", fail)
                report = run(server, tmp_path, source, flags=PRICE, order=True)
                assert "No space left on device" in report.messages[0]
        assert [line["id"] for line in lines(tmp_path)] == ["a", "b", "z"]
        for order in (True, False):
            again = run(server, tmp_path, source, flags=PRICE, order=order)
            assert (again.done, again.asked, again.cost) == (3, 0, first.cost)
            assert sorted(out.read_bytes().splitlines()) == good
        assert len(server.log) == 3


def test_what_was_paid_counts_once_where_lines_are_gone_or_changed(tmp_path: Path) -> None:
    source, out = rows(tmp_path, prompts(5)), tmp_path / "out.jsonl"
    with stub() as server:
        first = run(server, tmp_path, source, flags=PRICE)
        assert first.cost is not None
        for count in (1, 2):
            out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:-1]))
            again = run(server, tmp_path, source, flags=PRICE)
            assert (again.asked, again.cost) == (1, first.cost / 5 * (5 + count))
        out.write_text(out.read_text().replace("re: p", "said: p"))
        again = run(server, tmp_path, source, flags=PRICE)
        assert (again.done, again.asked, again.cost) == (5, 0, first.cost / 5 * 7)
        other = tmp_path / "other"
        other.mkdir()
        run(server, other, source, flags=PRICE, temperature=0.5)
        out.write_bytes((other / "out.jsonl").read_bytes())
        with pytest.raises(CnllmError, match="5 finished rows"):
            run(server, tmp_path, source, flags=PRICE)
        assert len(server.log) == 12


def test_without_its_state_the_output_is_the_truth(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (503, error("busy"), {}) if prompt == "p2" and len(server.log) < 8 else None

    source = rows(tmp_path, prompts(6))
    with stub(rule=rule) as server:
        first = run(server, tmp_path, source, attempts=1, flags=PRICE)
        (tmp_path / "out.jsonl.state").unlink()
        count = len(server.log)
        report = run(server, tmp_path, source, attempts=1, flags=PRICE)
        assert set(server.log[count:]) == {"p2"}
        assert report.cost == first.cost == 5 * Decimal(10 * 2 + 5 * 8) / 1_000_000, "a refused request costs nothing"
        again = run(server, tmp_path, source, attempts=1, flags=PRICE)
        assert (again.done, again.failed, again.cost) == (6, 0, 6 * Decimal(10 * 2 + 5 * 8) / 1_000_000)
    assert set(texts(tmp_path)) == {f"r{n}" for n in range(6)}


def test_without_its_state_ids_may_be_any_whole_numbers(tmp_path: Path) -> None:
    ids = [-1, 0, 2**63, 10**30]
    source = rows(tmp_path, [{"id": id, "prompt": f"p{id}"} for id in ids])
    with stub() as server:
        run(server, tmp_path, source)
        (tmp_path / "out.jsonl.state").unlink()
        report = run(server, tmp_path, source)
        assert (report.done, report.asked) == (4, 0)
    assert sorted(line["id"] for line in lines(tmp_path)) == ids


def test_each_line_of_a_row_was_paid(tmp_path: Path) -> None:
    source, out = rows(tmp_path, prompts(5)), tmp_path / "out.jsonl"
    with stub() as server:
        first = run(server, tmp_path, source, flags=PRICE)
        assert first.cost is not None
        out.write_bytes(out.read_bytes() + out.read_bytes().splitlines(keepends=True)[-1])
        (tmp_path / "out.jsonl.state").unlink()
        again = run(server, tmp_path, source, flags=PRICE)
        assert (again.done, again.asked, again.cost) == (5, 0, first.cost * 6 / 5)
    assert len(lines(tmp_path)) == 5


@pytest.mark.parametrize(("content", "asked"), [([], 1), ([{"type": "text", "text": ""}], 1), (None, 3)])
def test_a_turn_that_ends_without_a_word_is_not_asked_again(
    tmp_path: Path, content: list[dict[str, Any]] | None, asked: int
) -> None:
    """The model has said that it is done, and the same request gets the same. Any other empty reply is a failure."""
    reason = "pause_turn" if content is None else "end_turn"
    usage = {"input_tokens": 5, "output_tokens": 1}
    body = {"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": reason, "usage": usage}
    source = rows(tmp_path, prompts(1))
    overlay = tmp_path / "messages.toml"
    with stub(rule=lambda prompt, server: (200, {**body, "content": content or []}, {})) as server:
        overlay.write_text(
            f'[providers.home]\nprotocol = "anthropic-messages"\nbase_url = "{server.url}"\nkeys = ["HOME_TEST_KEY"]\n'
            f'[models."home/m"]\nlimits = {{ output = 1000 }}\n'
        )
        registry = Registry.load(overlay)
        first = run(server, tmp_path, source, registry=registry, attempts=3)
        assert (first.done, first.failed, len(server.log)) == (0, 1, asked)
        (line,) = lines(tmp_path)
        assert line["error"]["retryable"] is (asked > 1)
        again = run(server, tmp_path, source, registry=registry, attempts=1)
        assert (again.failed, len(server.log)) == (1, asked if asked == 1 else asked + 1)


def test_a_line_with_a_number_that_no_batch_writes_is_no_answer(tmp_path: Path) -> None:
    source, out = rows(tmp_path, prompts(2)), tmp_path / "out.jsonl"
    with stub() as server:
        run(server, tmp_path, source, concurrency=10**400)
        text = out.read_text()
        assert '"attempts":1' in text
        out.write_text(text.replace('"attempts":1', f'"attempts":{10**30}', 1))
        (tmp_path / "out.jsonl.state").unlink()
        with pytest.raises(CnllmError, match=r"out\.jsonl"):
            run(server, tmp_path, source)


def test_a_line_that_the_state_does_not_know_yet_costs_what_it_says_or_what_was_reserved(tmp_path: Path) -> None:
    """A crash came between the line and the state. A refused request costs nothing."""
    uncounted = reply("re: p1")
    del uncounted["usage"]

    def rule(prompt: str, server: Stub) -> Answer | None:
        return {"p0": (400, error("no"), {}), "p1": (200, uncounted, {})}.get(prompt)

    source, out = rows(tmp_path, prompts(3)), tmp_path / "out.jsonl"
    with stub(rule=rule) as server:
        first = run(server, tmp_path, source, flags=PRICE)
        assert first.cost is not None
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state")) as db:
            db.execute("UPDATE rows SET state = 0, cost = 1000000, attempts = 0, place = NULL, length = NULL")
            db.commit()
        out.write_bytes(out.read_bytes() + b"\n")
        again = run(server, tmp_path, source, flags=PRICE)
        answer = Decimal(10 * 2 + 5 * 8) / 1_000_000
        assert (again.done, again.failed, again.cost) == (2, 1, first.cost + Decimal("0.001") + answer)


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_line_with_a_lower_bound_counts_for_the_most_that_it_can_cost(tmp_path: Path, is_bounded: bool) -> None:
    """A crash came between the line and the state."""
    half = reply("re: p0", prompt_tokens_details={"cached_tokens": 4})  # type: ignore[arg-type]
    if not is_bounded:
        del half["usage"]["prompt_tokens"], half["usage"]["total_tokens"]
    source, out = rows(tmp_path, prompts(1)), tmp_path / "out.jsonl"
    with stub(rule=lambda prompt, server: (200, half, {})) as server:
        first = run(server, tmp_path, source, flags=PRICE)
        cost = lines(tmp_path)[0]["reply"]["cost"]
        assert first.cost is not None
        assert (cost["complete"], cost["at_most"] is None) == (False, not is_bounded)
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state")) as db:
            db.execute("UPDATE rows SET state = 0, cost = 1000000, attempts = 0, place = NULL, length = NULL")
            db.commit()
        out.write_bytes(out.read_bytes() + b"\n")
        again = run(server, tmp_path, source, flags=PRICE)
        assert (again.asked, again.cost) == (0, first.cost + (first.cost if is_bounded else Decimal("0.001")))


def test_the_copy_of_the_failures_goes_with_the_last_of_them_and_the_mode_of_the_output_stays(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (503, error("busy"), {}) if prompt == "p1" and len(server.log) < 4 else None

    source, out = rows(tmp_path, prompts(3)), tmp_path / "out.jsonl"
    with stub(rule=rule) as server:
        run(server, tmp_path, source, attempts=1)
        copy = tmp_path / "out.jsonl.errors.jsonl"
        assert len(copy.read_bytes().splitlines()) == 1
        out.chmod(0o640)
        run(server, tmp_path, source, attempts=1, order=True)
        assert run(server, tmp_path, source, attempts=1, order=True).failed == 0
    assert not copy.exists()
    assert [line["id"] for line in lines(tmp_path)] == ["r0", "r1", "r2"]
    assert sys.platform == "win32" or stat.S_IMODE(out.stat().st_mode) == 0o640


def test_failures_are_not_copied_from_places_of_another_file(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        if prompt in {"p3", "p7"}:
            return 400, error("no " * 9), {}
        return None

    with stub(rule=rule) as server:
        assert run(server, tmp_path, prompts(10)).failed == 2
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state", isolation_level=None)) as state:
            state.execute(
                "CREATE TRIGGER full BEFORE INSERT ON facts WHEN new.name = 'output' "
                "AND NOT EXISTS (SELECT 1 FROM superseded) BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
            state.execute("INSERT INTO superseded VALUES (0, 1)")  # until the output is written anew
        report = run(server, tmp_path, prompts(10)[::-1], order=True)
        assert [line["id"] for line in lines(tmp_path)] == [f"r{n}" for n in range(9, -1, -1)]
        assert {line["id"] for line in lines(tmp_path, "out.jsonl.errors.jsonl")} == {"r3", "r7"}, "as before"
        assert [message for message in report.messages if "does not know it yet (" in message]
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state", isolation_level=None)) as state:
            state.execute("DROP TRIGGER full")
        assert run(server, tmp_path, prompts(10)[::-1], order=True).messages == ()
    assert {line["id"] for line in lines(tmp_path, "out.jsonl.errors.jsonl")} == {"r3", "r7"}


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    source, out = rows(tmp_path, prompts(2)), tmp_path / "out.jsonl"
    for content in (
        "my notes",
        "my notes\n",
        '{"a": 1}\n',
        '{"id": 1, "x": 2}\n',
        '{"id":1,"note":"mine"}',
        '{"id":1',
        '{"id":1,"identity":"Ada","attempts":1}\n',
    ):
        out.write_text(content)
        with stub() as server:
            with pytest.raises(CnllmError, match="is not an output of a batch"):
                run(server, tmp_path, source)
            assert server.log == []
        assert out.read_text() == content


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.errors.jsonl", "link.jsonl", "-"])
def test_an_input_is_never_written(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path)
    content = '{"id":1,"prompt":"Hi"}'
    out = tmp_path / "out.jsonl"
    source = tmp_path / (name if name.startswith("out") else "out.jsonl")
    source.write_text(content)
    (tmp_path / "link.jsonl").symlink_to(out)
    given = name if name == "-" else str(tmp_path / name)
    with source.open("rb") as stdin:
        process = machine.start("batch", given, "-m", "glm-4.7", "-o", str(out), "--simulate", stdin=stdin)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, b"is the input of this batch" in err) == (2, True)
    assert source.read_text() == content
    assert not (tmp_path / "out.jsonl.state").exists()


def test_failures_are_copied_over_no_file_of_another_program(tmp_path: Path) -> None:
    copy = tmp_path / "out.jsonl.errors.jsonl"
    with stub() as server:
        for content in ('{"id":1,"note":"mine"}\n', '{"id":'):
            copy.write_text(content)
            report = run(server, tmp_path, [{"id": "x"}, "p1"])
            assert "no batch has written it" in report.messages[0]
            assert copy.read_text() == content


def test_the_output_of_another_input_is_left_alone(tmp_path: Path) -> None:
    with stub() as server:
        run(server, tmp_path, rows(tmp_path, prompts(3)))
        before = (tmp_path / "out.jsonl").read_bytes()
        with pytest.raises(CnllmError, match="the answers of another input: none of its 3 rows"):
            run(server, tmp_path, rows(tmp_path, prompts(3, 100)))
        with pytest.raises(CnllmError, match=r"none of its 3 rows is in requests\n"):
            run(server, tmp_path, [f"another {number}" for number in range(4)])
        assert len(server.log) == 3
        assert (tmp_path / "out.jsonl").read_bytes() == before


def test_one_process_writes_an_output(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    source = rows(tmp_path, prompts(3))
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url)
        arguments = ("batch", str(source), "-m", "home/m", "-o", str(tmp_path / "out.jsonl"))
        process = machine.start(*arguments)
        while not server.log:
            assert process.poll() is None
        machine.run(*arguments).fails(2, f"another process is writing {tmp_path / 'out.jsonl'}\n")
        server.hold.set()
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert machine.run(*arguments).status == 0
        assert len(server.log) == 3


def test_a_run_that_begins_while_an_estimate_removes_its_files_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "_LOCK_SECONDS", 0.0)
    unlink, begun = Path.unlink, threading.Event()

    def begin(path: Path, missing_ok: bool = False) -> None:
        if path == tmp_path / "out.jsonl" and not begun.is_set():
            begun.set()
            with suppress(CnllmError):  # the estimate has it
                run(server, tmp_path, prompts(5), registry=models)
        unlink(path, missing_ok)

    with stub() as server:
        models = registry(server, tmp_path)
        monkeypatch.setattr(Path, "unlink", begin)
        estimate_session(make_settings(prompts(5), "home/m", out=tmp_path / "out.jsonl", registry=models))
        assert begun.is_set()
        assert run(server, tmp_path, prompts(5), registry=models).done == len(lines(tmp_path)) == 5
        assert len(server.log) == 5


@pytest.mark.long
def test_an_estimate_removes_no_file_that_a_run_has_opened(tmp_path: Path) -> None:
    def estimate(folder: Path, models: Registry, both: threading.Barrier) -> None:
        settings = make_settings(prompts(5), "home/m", out=folder / "out.jsonl", registry=models)
        both.wait()
        for _ in range(10):  # without an end, the run would seldom find the folder without a lock
            with suppress(CnllmError):  # the run has it
                estimate_session(settings)

    with stub() as server, ThreadPoolExecutor(1) as pool:
        models = registry(server, tmp_path)
        for number in range(8):
            (folder := tmp_path / str(number)).mkdir()
            both = threading.Barrier(2)
            other = pool.submit(estimate, folder, models, both)
            both.wait()
            while True:
                with suppress(CnllmError):  # the estimate has it
                    report = run(server, folder, prompts(5), registry=models)
                    break
            other.result()
            assert report.done == len(lines(folder)) == 5


def test_a_folder_that_another_program_has_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "_LOCK_SECONDS", 0.1)
    with stub() as server:
        with (
            files.lock_folder(tmp_path),
            pytest.raises(CnllmError, match="cannot be locked: another program has locked it"),
        ):
            run(server, tmp_path, prompts(2))
        assert run(server, tmp_path, prompts(2)).done == 2


def test_a_link_is_another_name_of_the_same_output(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    source, link = rows(tmp_path, prompts(3)), tmp_path / "link.jsonl"
    link.symlink_to("out.jsonl")
    command = ("batch", str(source), "-m", "home/m", "-o")
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url)
        process = machine.start(*command, str(link), "--input-order")
        while not server.log:
            assert process.poll() is None
        machine.run(*command, str(tmp_path / "out.jsonl")).fails(2, "another process is writing", "out.jsonl")
        server.hold.set()
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert link.is_symlink()
        for out in (link, tmp_path / "out.jsonl"):
            assert machine.run(*command, str(out), "--json").json()["asked"] == 0
        assert len(server.log) == len(lines(tmp_path)) == 3
    assert not list(tmp_path.glob("link.jsonl.*"))


@pytest.mark.parametrize("unsure", ["ask", "skip"])
def test_what_was_sent_and_not_answered_is_counted_and_charged(tmp_path: Path, unsure: str) -> None:
    machine = Machine(tmp_path)
    source = rows(tmp_path, prompts(8))
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url, PRICE)
        arguments = ("batch", str(source), "-m", "home/m", "-o", str(tmp_path / "out.jsonl"), "--concurrency", "3")
        process = machine.start(*arguments)
        while len(server.log) < 3:
            assert process.poll() is None
        process.kill()
        process.communicate()
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state")) as db:
            unanswered, reserved = db.execute("SELECT count(*), sum(cost) FROM rows WHERE state = 0").fetchone()
        assert unanswered >= 3
        server.hold.set()
        machine.run(*arguments, "--max-cost", "0.000001").fails(2, "leaves no room")
        done = machine.run(*arguments, "--unsure", unsure, "--json")
        report = done.json()
        assert report["unsure"] == unanswered
        asked = 8 if unsure == "ask" else 8 - unanswered
        assert report["done"] == asked
        answers = asked * (10 * 2 + 5 * 8) / 1_000_000
        assert float(report["cost"]) == pytest.approx(reserved / 1e9 + answers, rel=1e-6)


def test_a_row_that_was_killed_when_it_was_asked_again_has_one_line_in_the_end(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (503, error("overloaded"), {}) if server.received[prompt] == 1 else None

    machine, out = Machine(tmp_path), tmp_path / "out.jsonl"
    with stub(rule=rule) as server:
        machine.overlay(server.url, PRICE)
        arguments = ("batch", str(rows(tmp_path, prompts(2))), "-m", "home/m", "-o", str(out), "--attempts", "1")
        assert machine.run(*arguments).status == 3
        server.hold.clear()
        process = machine.start(*arguments)
        while len(server.log) < 4:
            assert process.poll() is None
        process.kill()
        process.communicate()
        server.hold.set()
        out.write_bytes(b"".join(reversed(out.read_bytes().splitlines(keepends=True))))  # it is read again
        assert machine.run(*arguments).status == 0
    assert texts(tmp_path) == {"r0": "re: p0", "r1": "re: p1"}


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX's")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    import resource

    machine = Machine(tmp_path)
    source = rows(tmp_path, prompts(2000))

    def limit() -> None:  # writes behind this fail, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    with stub() as server:
        machine.overlay(server.url)
        arguments = ("batch", str(source), "-m", "home/m", "-o", str(tmp_path / "out.jsonl"), "--no-plot")
        process = machine.start(*arguments, preexec_fn=limit)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        assert b"run the same command again" in err
        finished = {line["id"] for line in lines(tmp_path)}
        assert 0 < len(finished) < 2000
        count = len(server.log)
        assert machine.run(*arguments).status == 0
        assert not {f"r{prompt[1:]}" for prompt in server.log[count:]} & finished
    assert len(texts(tmp_path)) == 2000


def test_an_input_that_ends_with_an_error_loses_no_answer(tmp_path: Path) -> None:
    def values() -> Iterator[dict[str, Any]]:
        yield from prompts(1000)
        raise ValueError("the input is broken")

    with stub() as server:
        with pytest.raises(ValueError, match="the input is broken"):
            run(server, tmp_path, values())
        assert len(lines(tmp_path)) == sum(server.received.values()) > 0
        report = run(server, tmp_path, prompts(1000))
        assert (report.done, report.unsure) == (1000, 0)
        assert sum(server.received.values()) == 1000


def test_a_cache_that_cannot_be_written_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
    cache = tmp_path / "cache.sqlite"
    identity.AnswerCache(cache).close()
    with closing(sqlite3.connect(cache, isolation_level=None)) as other, stub() as server:
        other.execute("BEGIN IMMEDIATE")
        report = run(server, tmp_path, prompts(1200), cache=cache)
        assert report.done == len(lines(tmp_path)) == 1200
    assert [message for message in report.messages if "are not in the cache" in message]


def test_what_a_second_ctrl_c_left_is_in_the_report_and_not_whole(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url, PRICE)
        out = str(tmp_path / "out.jsonl")
        arguments = ("batch", str(rows(tmp_path, prompts(3))), "-m", "home/m", "-o", out, "--json", "--no-plot")
        process = machine.start(*arguments, "--max-tokens", "1000")
        while len(server.log) < 3:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        report = json.loads(process.communicate(timeout=30)[0])
        assert (process.returncode, report["requests"], report["unanswered"]) == (130, 3, 3)
        assert 3 * 0.008 < float(report["cost"]) == float(report["run_cost"])
        server.hold.set()
        skip = machine.run(*arguments, "--max-tokens", "1000", "--unsure", "skip")
        assert skip.status == 3
        again = skip.json()
        assert (again["done"], again["unsure"], again["unanswered"]) == (0, 3, 3)
        assert again["cost"] == report["cost"]
        texts = (word for word in arguments if word != "--json")
        skipped = machine.run(*texts, "--max-tokens", "1000", "--unsure", "skip")
        assert "perhaps sent, and not answered: 3" in skipped.out, "a few rows are marked ahead"
        shown = machine.run(*(word for word in arguments if word != "--json"), "--max-tokens", "1000")
        assert (shown.status, "not answered" in shown.out) == (0, False)


def test_ctrl_c_once_waits_and_twice_does_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    source = rows(tmp_path, prompts(50))
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url)
        arguments = ("batch", str(source), "-m", "home/m", "-o", str(tmp_path / "out.jsonl"), "--concurrency", "4")
        process = machine.start(*arguments)
        while len(server.log) < 4:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.3)  # it waits for what is on its way
        server.hold.set()
        process.communicate(timeout=30)
        assert process.returncode == 130
        assert (len(server.log), len(lines(tmp_path))) == (4, 4)
        with closing(sqlite3.connect(tmp_path / "out.jsonl.state")) as db:
            assert db.execute("SELECT count(*) FROM rows WHERE state = 0").fetchone() == (0,)
        server.hold.clear()
        process = machine.start(*arguments)
        while len(server.log) < 8:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        server.hold.set()
        assert machine.run(*arguments).status == 0
    assert len(texts(tmp_path)) == 50


@pytest.mark.parametrize("what", ["removed", "renamed", "replaced", "cut off"])
def test_an_output_that_is_taken_away_loses_no_answer_in_silence(tmp_path: Path, what: str) -> None:
    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"

    def rule(prompt: str, server: Stub) -> Answer | None:
        if prompt == "p5" and server.received["p5"] == 1 and "p6" not in server.received:
            if what in ("renamed", "replaced"):
                out.rename(other)
            if what == "removed":
                out.unlink()
            elif what == "replaced":
                out.write_text("notes\n")
            elif what == "cut off":
                out.write_bytes(b"")
        return None

    source = rows(tmp_path, prompts(10))
    with stub(rule=rule) as server:
        if what in ("removed", "renamed"):
            report = run(server, tmp_path, source, concurrency=1)
            assert (report.done, report.messages) == (
                10,
                (f"{out} was removed or renamed while the batch ran; it was written anew",),
            )
        else:
            with pytest.raises(CnllmError, match=f"another program has {what} {out}"):
                run(server, tmp_path, source, concurrency=1)
        if what == "replaced":
            assert out.read_text() == "notes\n"
            assert "\n" in other.read_text()
            other.replace(out)
        report = run(server, tmp_path, source)
        assert (report.done, report.failed) == (10, 0)
        assert len(server.log) == 10 or what in ("replaced", "cut off")
    assert sorted(texts(tmp_path)) == sorted(f"r{n}" for n in range(10))


def test_a_hard_link_is_another_name_of_the_same_output(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    source, out, link = rows(tmp_path, prompts(3)), tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    out.touch()
    link.hardlink_to(out)
    command = ("batch", str(source), "-m", "home/m", "-o")
    with stub() as server:
        server.hold.clear()
        machine.overlay(server.url)
        process = machine.start(*command, str(out), "--input-order")
        while not server.log:
            assert process.poll() is None
        other = machine.start(*command, str(link))
        _, err = other.communicate(timeout=30)
        assert (other.returncode, f"another process is writing {link} as {out}".encode() in err) == (2, True)
        assert not (tmp_path / "link.jsonl.state").exists()
        server.hold.set()
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert len(server.log) == 3
        assert machine.run(*command, str(link)).status == 0
    assert [line["id"] for line in lines(tmp_path)] == ["r0", "r1", "r2"]


def test_without_its_state_an_id_may_hold_half_of_a_character(tmp_path: Path) -> None:
    """The name of a file that is no UTF-8 does."""
    requests = [{"id": "caf\udce9", "prompt": "p"}, {"id": "b", "prompt": "q"}]
    with stub() as server:
        run(server, tmp_path, requests)
        (tmp_path / "out.jsonl.state").unlink()
        report = run(server, tmp_path, requests)
        assert (report.asked, report.done, len(server.log)) == (0, 2, 2)
