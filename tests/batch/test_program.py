"""`cnllm batch` as a program: exit statuses, what it prints, the plot and the live line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.support import KEY, Machine, read_terminal, terminal

from cnllm.batch.plot import PAGE_WIDTH, draw_plot
from cnllm.batch.report import Interval, Progress, Tally
from cnllm.cli.output.batch_view import duration, progress_line

from .stub import Answer, Stub, error, reply, stub
from .support import PRICE, lines, prompts, rows, run


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_done_and_again(machine: Machine, tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(5))
    with stub() as server:
        machine.overlay(server.url, PRICE)
        arguments = ("batch", str(source), "-m", "home/m", "-o", str(tmp_path / "out.jsonl"))
        done = machine.run(*arguments)
        assert done.status == 0
        assert "5 done, 0 failed" in done.out
        assert "latency: p50" in done.out
        assert "cost: 0.0003 CNY" in done.out
        assert "tokens: 50 in, 25 out" in done.out
        report = machine.run(*arguments, "--json").json()
        assert {report[name] for name in ("asked", "by_vendor", "waiting", "failed", "unsure")} == {0}
        assert len(server.log) == 5
    plot = (tmp_path / "out.jsonl.svg").read_text()
    assert ElementTree.fromstring(plot).tag.endswith("svg")
    assert KEY not in (tmp_path / "out.jsonl").read_text()
    assert (tmp_path / "out.jsonl.state").stat().st_mode & 0o077 == 0


def test_what_the_calls_of_a_batch_cost_stands_in_the_logs(machine: Machine, tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (400, error("no"), {}) if prompt == "p1" else None

    source, out = rows(tmp_path, prompts(4)), tmp_path / "out.jsonl"
    arguments = ("batch", str(source), "-m", "home/m", "-o", str(out), "--no-plot")
    with stub(rule=rule) as server:
        machine.overlay(server.url, PRICE)
        machine.run(*arguments, "--tag", "a\nb").fails(2, "--tag", "100 printable characters")
        report = machine.run(*arguments, "--tag", "nightly", "--json").json()
        log = {key: machine.run("logs", "cost", "--by", key, "--json").json() for key in ("tag", "conversation")}
        (row,) = log["tag"]["rows"]
        assert (row["label"], row["turns"], row["exact"]) == ("nightly", 4, True), "a refused request costs nothing"
        assert [Decimal(cost["amount"]) for cost in row["cost"]] == [Decimal(str(report["cost"]))]
        rows(tmp_path, prompts(6))
        assert machine.run(*arguments, "--tag", "later").status == 3, "a tag changes no request"
        assert len(server.log) == 6
        (conversation,) = machine.run("logs", "cost", "--by", "conversation", "--json").json()["rows"]
        assert conversation["turns"] == 6, "both runs are one conversation"
        rows(tmp_path, prompts(8))
        machine.run(*arguments, "--no-log")
        machine.env["CNLLM_LOG"] = "off"
        rows(tmp_path, prompts(9))
        machine.run(*arguments)
        assert len(server.log) == 9
    assert machine.run("logs", "cost", "--json").json()["total"]["turns"] == 6
    content = b"".join(file.read_bytes() for file in machine.data.iterdir())
    assert b"nightly" in content
    assert not any(word in content for word in (KEY.encode(), b"p3", b"answer to"))


def test_rows_that_failed_are_told_and_asked_again_by_the_next_run(machine: Machine, tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (400, error(f"{KEY} asked for what cannot be"), {}) if prompt == "p1" else None

    with stub(rule=rule) as server:
        machine.overlay(server.url)
        out = tmp_path / "out.jsonl"
        done = machine.run("batch", str(rows(tmp_path, prompts(3))), "-m", "home/m", "-o", str(out), "--no-plot")
        assert done.status == 3
        assert "2 done, 1 failed" in done.out
        assert "failed with BadRequest: 1; the first:" in done.out
        assert KEY not in done.out + out.read_text() + (tmp_path / "out.jsonl.errors.jsonl").read_text()
    assert not (tmp_path / "out.jsonl.svg").exists()


def test_wrong_calls_send_nothing(machine: Machine, tmp_path: Path) -> None:
    source, out = str(rows(tmp_path, prompts(2))), str(tmp_path / "out.jsonl")
    with stub() as server:
        machine.overlay(server.url)
        machine.run("batch", source, "-m", "home/m", "-o", str(tmp_path)).fails(2, "is a folder")
        machine.run("batch", source, "-m", "home/x/y", "-o", "/nowhere/out").fails(
            2, "there is no folder /nowhere for /nowhere/out"
        )
        for arguments, words in (
            (("--max-cost", "5"), "the price of home/m is not known"),
            (("--max-cost", "x", "--currency", "CNY"), "is not an amount"),
            (("--max-cost", "5", "--currency", "CNY"), "the price of home/m is not known"),
            (("--concurrency", "0"), "a number from 1, or auto"),
            (("--keep-old", "--redo"), "--keep-old and --redo exclude each other"),
            (("--redo", "--keep-old"), "give one of them"),
            (("--simulate", "--ray", "local"), "--simulate and --ray exclude each other"),
            (("--assume-price", "2/8"), "--assume-price needs a currency"),
            (("--assume-price", "2,8"), "--assume-price needs a currency"),
            (("--temperature", "hot"), "temperature"),
            (("-p", "temprature=1"), "did you mean temperature?"),
            (("-p", "temprature=1", "--dry-run"), "did you mean temperature?"),
            (("--schema", '{"type": "nope"}'), "schema is not a JSON Schema"),
        ):
            machine.run("batch", source, "-m", "home/m", "-o", out, *arguments).fails(2, words)
        machine.run("batch", source, "-m", "hom/n", "-o", out).fails(2, "hom")
        del machine.env["HOME_TEST_KEY"]
        machine.run("batch", source, "-m", "home/m", "-o", out, "--key-env", "MISSING_KEY").fails(2, "holds no key")
        assert server.log == []
    assert not Path(out).exists()


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="stdout has no name here")
def test_a_pipe_behind_a_link_is_named_as_the_user_named_it(machine: Machine, tmp_path: Path) -> None:
    command = machine.command("batch", str(rows(tmp_path, prompts(2))), "-m", "glm-4.7", "-o", "/dev/stdout")
    ended = subprocess.run([*command, "--simulate"], env=machine.env, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "/dev/stdout is a device or a pipe" in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no files, not even from root")
def test_a_folder_that_takes_no_files_is_told_with_what_to_do(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Hi\n")
    done = machine.run("batch", str(tmp_path / "in.txt"), "-m", "glm-4.7", "-o", "/proc/out.jsonl", "--simulate")
    done.fails(2, "out.jsonl.state: ", "choose another -o OUT")


def _mounts() -> bool:
    """Whether a program may mount a file system of its own here."""
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _mounts(), reason="nothing can be mounted here")
def test_a_file_system_that_is_read_only_is_told_with_what_to_do(machine: Machine, tmp_path: Path) -> None:
    place, source = tmp_path / "fixed", str(rows(tmp_path, prompts(1)))
    place.mkdir()
    command = machine.command("batch", source, "-m", "glm-4.7", "-o", str(place / "out.jsonl"), "--simulate")
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro tmpfs "$0" && exec "$@"', str(place)]
    ended = subprocess.run([*mount, *command], env=machine.env, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Read-only file system" in ended.stderr
    assert "choose another -o OUT" in ended.stderr


def test_the_estimate_of_a_simulated_run_has_the_cost_of_the_model(machine: Machine, tmp_path: Path) -> None:
    machine.overlay("http://127.0.0.1:9", PRICE)
    out = tmp_path / "out.jsonl"
    command = ("batch", str(rows(tmp_path, prompts(5))), "-m", "home/m", "-o", str(out), "--dry-run")
    estimate = machine.run(*command, "--json").json()
    assert estimate["cost"] is not None
    assert estimate["currency"] == "CNY"
    assert machine.run(*command, "--json", "--simulate").json() == estimate
    assert "cost: about " in machine.run(*command, "--simulate").out
    assert machine.run(*command[:-1], "--simulate").status == 0
    assert "0 rows to ask" in machine.run(*command, "--simulate").out


def test_the_cap_of_the_command_line(machine: Machine, tmp_path: Path) -> None:
    with stub(rule=lambda prompt, server: (200, reply(prompt, completion_tokens=1000), {})) as server:
        machine.overlay(server.url, PRICE)
        source = str(rows(tmp_path, prompts(50)))
        arguments = ("batch", source, "-m", "home/m", "-o", str(tmp_path / "out.jsonl"))
        done = machine.run(*arguments, "--max-cost", "0.1", "--currency", "CNY", "--json")
        assert done.status == 3
        assert Decimal(done.json()["cost"]) <= Decimal("0.1")
        assert done.json()["stop_kind"] == "cap"
        estimate = machine.run(*arguments, "--dry-run", "--json").json()
        assert estimate["rows"] == 50 - done.json()["done"]


@pytest.mark.parametrize(("hard", "most"), [(64, 40), (1024, 200)])
def test_no_more_requests_at_a_time_than_the_process_may_open_files(
    machine: Machine, tmp_path: Path, hard: int, most: int
) -> None:
    resource = pytest.importorskip("resource")
    source, out = rows(tmp_path, prompts(200)), tmp_path / "out.jsonl"
    with stub(0.1) as server:
        machine.overlay(server.url)
        process = machine.start(
            *("batch", str(source), "-m", "home/m", "-o", str(out), "--json", "--concurrency=200"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
        )
        answer, err = process.communicate(timeout=60)
    report = json.loads(answer)
    assert (process.returncode, report["done"], report["failed"]) == (0, 200, 0), err
    assert server.most <= most
    assert ["ulimit -n" in message for message in report["messages"]] == [True] * (hard == 64)


def test_a_schema_and_tools(machine: Machine, tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        if "p1" in str(server.bodies[-1]) or prompt == "p2":  # p2 is corrected, p1 is not
            return 200, reply("not json at all"), {}
        return 200, reply('{"name": "Li"}'), {}

    source = str(rows(tmp_path, prompts(3)))
    with stub(rule=rule) as server:
        machine.overlay(server.url)
        done = machine.run(
            "batch", source, "-m", "home/m", "-o", str(tmp_path / "out.jsonl"), "--schema", "name", "--json"
        )
        assert done.status == 3
        report = done.json()
        assert (report["done"], report["failed"], report["invalid"], report["corrected"]) == (2, 1, 1, 2)
    by_id = {line["id"]: line for line in lines(tmp_path)}
    assert by_id["r0"]["reply"]["parsed"] == {"name": "Li"}
    assert by_id["r1"]["error"]["type"] == "InvalidAnswer"
    assert by_id["r1"]["reply"]["text"] == "not json at all"
    done = machine.run(
        "batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "tools.jsonl"), "--tool", "calc", "--simulate", "--json"
    )
    assert (done.status, done.json()["done"]) == (0, 3)
    assert done.json()["requests"] == 3
    again = machine.run(
        "batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "tools.jsonl"), "--tool", "calc", "--simulate", "--json"
    )
    assert again.json()["asked"] == 0


ODD = {
    "deep": '{"a":' * 300 + "1" + "}" * 300,
    "too deep": '{"a":' * 5000 + "1" + "}" * 5000,
    "half": r'{"a": "\ud800"}',
    "huge": '{"a": 1e400}',
}


def test_no_answer_ends_a_batch(machine: Machine, tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        return 200, reply(ODD.get(prompt, '{"a": 1}')), {}

    source = str(rows(tmp_path, [{"id": name, "prompt": name} for name in [*ODD, "plain"]]))
    command = ("-m", "home/m", "--schema", '{"type": "object"}', "-p", "corrections=0")
    out = str(tmp_path / "out.jsonl")
    with stub(rule=rule) as server:
        machine.overlay(server.url)
        for count in (1, 2):
            batch = machine.run("batch", source, *command, "-o", out, "--cache", "--no-plot", "--json")
            report = batch.json()
            assert (batch.status, report["done"], report["failed"], report["invalid"]) == (
                3,
                3,
                2,
                2 if count == 1 else 0,
            )
            assert len(server.log) == len(ODD) + 1
        again = machine.run("batch", source, *command, "-o", f"{out}2", "--cache", "--no-plot", "--json").json()
        assert (again["done"], again["failed"], again["from_cache"]) == (3, 2, 3)
        assert (machine.data / "batch-cache.sqlite").exists()
        found = {line["id"]: line for line in lines(tmp_path)}
        assert found["half"]["reply"]["parsed"] == {"a": "\ud800"}
        assert found["deep"]["reply"]["parsed"] == json.loads(ODD["deep"])
        assert found["huge"]["error"]["message"].endswith("the number 1e400 is too large")
        assert {line["id"]: line["reply"]["parsed"] for line in lines(tmp_path, "out.jsonl2")} == {
            name: line["reply"]["parsed"] for name, line in found.items()
        }
        for name in ODD:
            done = machine.run("call", *command, "--json", name)
            assert done.json()["parsed"] == found[name]["reply"]["parsed"]
            assert "Infinity" not in done.out


def test_a_plot_replaces_no_picture_of_the_user(machine: Machine, tmp_path: Path) -> None:
    source, picture = str(rows(tmp_path, prompts(2))), tmp_path / "chart.svg"
    command = ("batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "chart"), "--simulate", "--json")
    for content in ("mine", '<svg xmlns="http://www.w3.org/2000/svg"><title>Mine</title></svg>'):
        picture.write_text(content)
        (tmp_path / "chart").unlink(missing_ok=True)
        done = machine.run(*command)
        report = done.json()
        assert (done.status, report["plot"]) == (0, None)
        assert report["messages"] == [f"{picture}: it exists, and no batch has written it; it stays as it is"]
        assert picture.read_text() == content
    picture.unlink()
    for _ in range(2):
        (tmp_path / "chart").unlink()
        assert machine.run(*command).json()["plot"] == str(picture)


def test_a_batch_says_once_that_answers_are_simulated(machine: Machine, tmp_path: Path) -> None:
    source = str(rows(tmp_path, prompts(3)))
    done = machine.run("batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "out.jsonl"), "--simulate")
    assert (done.status, done.err.count("simulated")) == (0, 1)
    assert all(note["code"] == "simulated" for line in lines(tmp_path) for note in line["reply"]["notes"])


def test_the_line_of_a_terminal(machine: Machine, tmp_path: Path) -> None:
    with stub(latency=0.3) as server:
        machine.overlay(server.url, PRICE)
        source = str(rows(tmp_path, prompts(12)))
        out = str(tmp_path / "out.jsonl")
        arguments = ("batch", source, "-m", "home/m", "-o", out, "--concurrency", "2")
        with terminal(machine, *arguments, columns=80) as (master, process):
            shown = read_terminal(master)
            process.wait(10)
        assert "/12 done" in shown
        assert "CNY" in shown
        assert "12 done, 0 failed" in shown


def progress(**fields: object) -> Progress:
    values: dict[str, object] = {
        "done": 1234,
        "failed": 5,
        "before": 1000,
        "seconds": 60.0,
        "rate": 20.5,
        "tokens": 4100.0,
        "in_flight": 32,
        "refused": 3,
        "cost": Decimal("12.3456"),
        "currency": "CNY",
        "waiting": None,
        "total": 100000,
        "left": 4700.0,
        "projected": Decimal("98.7"),
    }
    return Progress(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_line_fits_its_terminal(width: int) -> None:
    line = progress_line(progress(), width)
    assert len(line) <= width
    assert line.startswith("2,234/100,000 done 2%"[:width])
    if width >= 80:
        assert "5 failed · 20/s · 12.35 of ~98.70 CNY · 1 h 18 min left" in line
    if width >= 120:
        assert "4,100 tok/s · 32 at once" in line


@pytest.mark.parametrize("status", [429, 503])
def test_a_long_wait_says_until_when(tmp_path: Path, status: int) -> None:
    seen: list[str] = []

    def show(moment: Progress) -> None:
        seen.append(progress_line(moment, 120))
        if "next request in" in seen[-1]:
            raise KeyboardInterrupt

    rule = lambda prompt, server: (status, error("later"), {"retry-after": "300"})  # noqa: E731
    with stub(rule=rule) as server, pytest.raises(KeyboardInterrupt):
        run(server, tmp_path, prompts(3), on_progress=show)
    assert "next request in 5 min 00 s" in seen[-1] or "next request in 4 min 59 s" in seen[-1]


def test_a_line_says_that_the_endpoint_refuses() -> None:
    assert "refused for 5 min 00 s, waiting" in progress_line(progress(waiting=300.0))
    assert "refused" not in progress_line(progress(waiting=None))
    assert [duration(seconds) for seconds in (0.4, 59, 61, 3600, 90061)] == [
        "0 s",
        "59 s",
        "1 min 01 s",
        "1 h 00 min",
        "25 h 01 min",
    ]


def test_a_tally_does_not_grow() -> None:
    from cnllm.types import Message, Reply, Usage

    answer = Reply(
        text="x",
        reasoning="",
        tool_calls=[],
        finish="stop",
        raw_finish="stop",
        usage=Usage(input=10, output=5, cached=4),
        cost=None,
        model=None,
        id=None,
        notes=[],
        message=Message.assistant("x"),
        incomplete=[],
    )
    tally = Tally(0.0)
    for number in range(100_000):
        tally.answer(number * 0.5, 0.1 + (number % 100) / 100, answer)
    assert len(tally.intervals) <= 240
    assert sum(interval.answers for interval in tally.intervals) == 100_000
    p50, p90, p99 = tally.percentiles(0.5, 0.9, 0.99)
    assert p50 == pytest.approx(0.6, rel=0.03)
    assert p90 == pytest.approx(1.0, rel=0.03)
    assert p99 == pytest.approx(1.09, rel=0.03)
    assert (tally.cached, tally.known_cache) == (400_000, 1_000_000)
    late = Tally(0.0)
    for now in (0.0, 1.0, 1_000.0):
        late.answer(now, 0.1, answer)
    assert [interval.answers for interval in late.intervals if interval.answers] == [2, 1]


@pytest.mark.parametrize(
    ("intervals", "points"),
    [([], 0), ([Interval()], 2), ([Interval(answers=3, latency=1.0, refused=2), Interval()], 2)],
)
def test_a_plot_is_valid(intervals: list[Interval], points: int) -> None:
    root = ElementTree.fromstring(draw_plot(intervals, 0.5))
    ticks = [node.text for node in root.iter() if node.attrib.get("class") == "tick"]
    assert ticks.count("0") == 2, "both axes begin at zero"
    assert ticks[3:6] == [f"{share * max(len(intervals), 1):g} s" for share in (0.0, 0.25, 0.5)]
    anchors = {node.attrib.get("text-anchor", "start") for node in root.iter()}
    assert anchors == {"start", "middle", "end"}
    assert all(0 <= float(node.attrib["x"]) <= PAGE_WIDTH for node in root.iter() if "x" in node.attrib)
    assert draw_plot([Interval(answers=1, latency=1.0)] * 3, 20.0).count(">60 s<") == 2, "both axes of time end there"
    drawn_lines = [node for node in root.iter() if node.tag.endswith("polyline")]
    assert len(drawn_lines) == 2
    assert len(drawn_lines[0].attrib["points"].split()) == points
    drawn = [node for node in root.iter() if node.tag.rpartition("}")[2] in {"rect", "line", "polyline"}]
    light, dark = draw_plot(intervals, 0.5).split("</style>")[0].split("prefers-color-scheme: dark")
    for kind in {word for node in drawn for word in node.attrib["class"].split()} - {"line"}:
        assert f".{kind} {{" in light, "every color is in the style"
        assert f".{kind} {{" in dark, "and has another one for a dark page"


def test_the_schema_of_the_report_holds(machine: Machine, tmp_path: Path) -> None:
    import jsonschema

    source = str(rows(tmp_path, prompts(2)))
    done = machine.run("batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "o.jsonl"), "--simulate", "--json")
    folder = Path(__file__).parent.parent.parent / "schemas"
    schema = json.loads((folder / "batch.schema.json").read_text())
    jsonschema.validate(done.json(), schema)
    assert os.path.exists(tmp_path / "o.jsonl.svg")


def test_a_cap_needs_no_currency_and_gives_no_advice_that_does_not_help(machine: Machine, tmp_path: Path) -> None:
    source, out = str(rows(tmp_path, prompts(60))), str(tmp_path / "out.jsonl")
    command = ("batch", source, "-m", "home/m", "-o", out, "--max-tokens", "5", "--no-plot", "--simulate", "--max-cost")
    machine.overlay("http://127.0.0.1:1", PRICE)
    done = machine.run(*command, "0.0028")
    assert done.status == 3
    assert "run the same command again" not in done.out
    (stopped,) = [line for line in done.out.splitlines() if line.startswith("stopped: ")]
    assert " CNY is spent, and the next row may cost " in stopped
    assert machine.run(*command, "0.0028").status == 2, "nothing more fits"
    assert machine.run(*command, stopped.rpartition(" ")[2]).out.startswith(f"{int(done.out.split()[0]) + 1} done")


def test_a_simulated_batch_says_that_nothing_was_paid(machine: Machine, tmp_path: Path) -> None:
    source = str(rows(tmp_path, prompts(2)))
    done = machine.run(
        "batch", source, "-m", "glm-4.7", "-o", str(tmp_path / "o"), "--simulate", "--max-cost", "1", "--no-plot"
    )
    assert done.status == 0
    assert "USD at the model's price; nothing was paid" in done.out


@pytest.mark.parametrize("openai", [False, True])
def test_rows_of_another_model_are_named(machine: Machine, tmp_path: Path, openai: bool) -> None:
    def row(number: int, model: str) -> dict[str, object]:
        if openai:
            body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
            return {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
        return {"id": number, "prompt": "Hi", "model": model}

    run = ("batch", "IN", "-m", "glm-4.7", "-o", str(tmp_path / "o"), "--simulate", "--no-plot")
    for models, others in ((("glm-4.7", "zai/glm-4.7"), ()), (("gpt-5", "glm-4.7", "kimi-k3"), ("gpt-5", "kimi-k3"))):
        source = rows(tmp_path, [row(number, model) for number, model in enumerate(models)])
        for more in (("--dry-run",), ()):
            (tmp_path / "o").unlink(missing_ok=True)
            (tmp_path / "o.state").unlink(missing_ok=True)
            out = machine.run(run[0], str(source), *run[2:], *more).out
            line = next((line for line in out.splitlines() if "another model" in line), "")
            assert all(name in line for name in others), out
            assert bool(line) == bool(others), out
            assert "zai/glm-4.7 is asked" in line or not others
