"""`cnllm compare`: what faithful and unfaithful hosts are told apart by, what is spent, and the report."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from client.peer import Close, Peer, answer, whole
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from program import completed

from cnllm import CnllmError, Registry
from cnllm.comparison import (
    FIGURES,
    Comparison,
    ComparisonResult,
    ComparisonTask,
    choose_hosts,
    compare,
    make_tasks,
    read_report,
)
from cnllm.comparison.figures import find_verdicts
from cnllm.comparison.hosts import NewConnections, right_replies
from cnllm.comparison.run import Budget, Host, LiveExchanges, TaskExchange, first_request, run_task
from cnllm.comparison.tasks import RightStep
from cnllm.simulator import SimTransport
from cnllm.simulator.server import running
from cnllm.simulator.unfaithful import UnfaithfulHost, read_host_faults

OVERLAY = "".join(
    f"""[providers.{name}]
extends  = "openai-compatible"
protocol = "openai-chat"
base_url = "https://{name}.test/v1"
keys     = ["{name.upper()}_KEY"]
[models."{name}/m"]
weights = "lab/M"
limits  = {{ context = 9000, output = 8000 }}
price   = {{ currency = "USD", input = 1, output = 2, cached = 0.1 }}
tools.supported = true
schema.methods = ["json_schema"]
reasoning = {{ mode = "always", fields = ["reasoning_content"], replay = "tool-turns" }}
"""
    for name in ("home", "away")
)
NAMES = ["home/m", "away/m"]
SECRET = "sk-very-secret-key"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("comparison") / "overlay.toml"
    path.write_text(OVERLAY)
    return Registry.load(path)


class Counted:
    """A transport that writes down who is asked."""

    def __init__(self, inner: Any, name: str, log: list[str]) -> None:
        self.inner, self.name, self.log = inner, name, log

    def send(self, plan: Any) -> Any:
        self.log.append(self.name)
        return self.inner.send(plan)


def run(registry: Registry, faults: str = "", *, turns: int = 20, seed: int = 3, **options: Any) -> Comparison:
    """Compare a faithful host with one that has these faults."""
    tasks = make_tasks(seed, turns, most_tokens=9000)
    host = UnfaithfulHost(read_host_faults(faults))
    right = right_replies(tasks)
    transports = {
        "home/m": SimTransport(registry, change=right),
        "away/m": SimTransport(registry, change=lambda request, reply: host.change(request, right(request, reply))),
    }
    transports |= options.pop("transports", {})
    return compare("home/m", NAMES, tasks=turns, seed=seed, registry=registry, transports=transports, **options)


def worse(report: Comparison) -> set[str]:
    return {verdict.figure for verdict in report.verdicts if verdict.verdict == "worse"}


def test_the_right_end_of_every_task_is_judged_to_be_right(registry: Registry) -> None:
    for seed in range(2):
        report = run(registry, seed=seed)
        assert report.problems == {name: {} for name in NAMES}
        for figures in report.figures:
            assert {share.good for share in figures.shares.values()} == {
                share.tasks for share in figures.shares.values()
            }
        assert worse(report) == set()


def test_the_tasks_of_a_seed_are_the_same_and_those_of_another_are_not() -> None:
    one, two = (make_tasks(seed, 40, most_tokens=9000) for seed in (1, 2))
    assert make_tasks(1, 40, most_tokens=9000) == one
    assert [task.name for task in one] == [task.name for task in two]
    assert [task.prompt for task in one] != [task.prompt for task in two]
    turns = [task.turns for task in make_tasks(5, 200, most_tokens=9000) if task.tools and task.thought is None]
    assert sum(turns) == 200


def test_a_parser_that_loses_calls_is_named(registry: Registry) -> None:
    report = run(registry, "lost-calls=4", turns=60)
    assert "kept" in worse(report)
    assert report.figures[1].empty > 0
    assert report.figures[0].empty == 0


@pytest.mark.long
def test_a_parser_that_loses_every_twentieth_call_is_named(registry: Registry) -> None:
    report = run(registry, "lost-calls=20", turns=200)
    assert "kept" in worse(report)
    (verdict,) = [verdict for verdict in report.verdicts if verdict.figure == "kept"]
    assert (verdict.worse, verdict.better) == (12, 0)
    assert verdict.detectable is not None
    assert verdict.detectable < 0.1


@pytest.mark.long
@pytest.mark.parametrize(
    ("faults", "figures"),
    [
        ("leaked-calls=20", {"kept"}),
        ("ignored-schemas", {"valid", "schema"}),
        ("repetition", {"exact"}),
        ("truncation=40", {"exact", "cut"}),
        ("forgotten-thoughts", {"reasoning"}),
    ],
)
def test_each_fault_is_named(registry: Registry, faults: str, figures: set[str]) -> None:
    assert figures <= worse(run(registry, faults, turns=200))


def test_a_number_that_stands_only_in_earlier_reasoning_is_what_a_host_without_it_gets_wrong(
    registry: Registry, tmp_path: Path
) -> None:
    report = run(registry, "forgotten-thoughts", turns=40)
    shares = [figures.shares for figures in report.figures]
    assert (shares[0]["reasoning"].good, shares[1]["reasoning"].good) == (shares[0]["reasoning"].tasks, 0)
    assert {task.partition("-")[0] for task in report.problems["away/m"]} == {"reasoning"}
    for task in report.settings.tasks:
        if task.thought is not None:
            assert task.fact in task.thought
            assert task.fact not in task.prompt
    # cnllm sends no reasoning to a host that is not known to want it: then there is nothing to judge
    path = tmp_path / "overlay.toml"
    path.write_text(OVERLAY.replace('replay = "tool-turns"', 'replay = "unknown"'))
    unknown = Registry.load(path)
    report = run(unknown, turns=40)
    for figures, host in zip(report.figures, report.hosts, strict=True):
        assert "reasoning" not in figures.shares
        assert figures.changed["reasoning-replay"] > 0
        assert figures.cost is not None
        assert not any(exchange.task.startswith("reasoning") for exchange in host.exchanges)
    assert compare(replay=report.to_json(), registry=unknown).to_json() == report.to_json()


class Uncounted:
    """A transport that leaves the counts of the output out of what it reads."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def send(self, plan: Any) -> Any:
        status, headers, body = self.inner.send(plan)
        data = b"".join(body).replace(b'"completion_tokens"', b'"other_tokens"')
        return status, headers, iter([data])


def test_a_host_that_does_not_count_its_output_has_no_cost(registry: Registry) -> None:
    transport = Uncounted(SimTransport(registry, change=right_replies(make_tasks(3, 4, most_tokens=9000))))
    report = run(registry, turns=4, transports={"away/m": transport})
    home, away = report.figures
    assert home.cost is not None
    assert away.cost is None


def test_a_call_that_was_left_in_the_text_is_counted_apart(registry: Registry) -> None:
    report = run(registry, "lost-calls=7; leaked-calls=5")
    home, away = report.figures
    assert (home.lost, home.recovered) == (0, 0)
    assert 0 < away.recovered < away.lost
    report = run(registry, "leaked-calls=5")
    away = report.figures[1]
    assert 0 < away.recovered == away.lost
    assert away.shares["kept"].good < away.shares["kept"].tasks
    assert set(report.problems["away/m"].values()) == {"a call stands in the text"}


def test_a_slow_host_is_named(registry: Registry) -> None:
    results = {}
    for host, seconds in (("home/m", 0.2), ("away/m", 0.5)):
        rng = random.Random(host)
        results[host] = [
            ComparisonResult(f"t{n}", "call", {"answered": True}, None, first=seconds + rng.random() * 0.1)
            for n in range(40)
        ]
    assert [v.figure for v in find_verdicts(results, 0.01) if v.verdict == "worse"] == ["first"]


def test_a_faithful_host_is_hardly_ever_accused() -> None:
    """Both hosts spoil the same share of tasks, by chance: at most one run of a hundred names a fault."""
    rng = random.Random(45)
    accused = 0
    for _ in range(500):
        results = {
            host: [
                ComparisonResult(
                    f"t{n}", "call", {figure: rng.random() > 0.04 for figure in figures}, None, first=rng.random()
                )
                for n, figures in enumerate(_figures())
            ]
            for host in NAMES
        }
        accused += any(verdict.verdict == "worse" for verdict in find_verdicts(results, 0.01))
    assert accused <= 5


def _figures() -> list[tuple[str, ...]]:
    """The figures of 120 tasks: some belong to all, and the others to a part."""
    rest = [figure for figure in FIGURES if figure not in ("answered", "called", "kept", "valid")]
    return [("answered", "called", "kept", "valid", rest[n % len(rest)]) for n in range(120)]


def test_there_is_no_verdict_without_enough_tasks(registry: Registry) -> None:
    report = run(registry, "ignored-schemas", turns=3)
    assert worse(report) == set()
    assert "not enough data" in {verdict.verdict for verdict in report.verdicts}


def test_hosts_are_asked_in_turns_and_a_request_that_cnllm_changed_is_in_no_pair(registry: Registry) -> None:
    log: list[str] = []
    tasks = make_tasks(3, 20, most_tokens=9000)
    counted = {name: Counted(SimTransport(registry, change=right_replies(tasks)), name, log) for name in NAMES}
    run(registry, transports=counted)
    assert {log.count(name) for name in NAMES} == {len(log) // 2}
    assert max(abs(log[:n].count("home/m") - log[:n].count("away/m")) for n in range(len(log))) <= 3
    results = {
        name: [ComparisonResult("t", "call", {"call": name == "home/m"}, None, notes=notes)]
        for name, notes in (("home/m", ()), ("away/m", ("schema-adapted",)))
    }
    assert [verdict for verdict in find_verdicts(results, 0.01) if verdict.pairs] == []


def test_a_look_that_shows_a_fault_ends_the_host_early(registry: Registry) -> None:
    report = run(registry, "ignored-schemas", turns=80, stop_early=True)
    assert report.hosts[1].stopped is not None
    assert len(report.hosts[1].exchanges) < len(report.hosts[0].exchanges)
    assert "valid" in worse(report)
    assert compare(replay=report, registry=registry) == report


def test_the_cap_is_never_passed(registry: Registry) -> None:
    report = run(registry, max_cost={"USD": "0.02"})
    assert all(host.stopped is not None for host in report.hosts)
    assert 0 < float(report.spent["USD"]) <= 0.02
    assert compare(replay=report, registry=registry) == report


class Interrupted(Counted):
    """A transport during whose tenth request the user presses Ctrl-C."""

    def send(self, plan: Any) -> Any:
        if len(self.log) == 9:
            raise KeyboardInterrupt
        return super().send(plan)


def test_an_interrupted_run_ends_with_a_report_on_what_came(registry: Registry) -> None:
    inner = SimTransport(registry, change=right_replies(make_tasks(3, 20, most_tokens=9000)))
    report = run(registry, transports={"home/m": Interrupted(inner, "home/m", [])})
    assert {host.stopped for host in report.hosts} == {"stopped by Ctrl-C"}
    assert len(report.hosts[0].exchanges) >= 8
    assert compare(replay=report.to_json(), registry=registry).to_json() == report.to_json()


def test_a_replay_computes_every_figure_again_byte_for_byte_and_without_keys(registry: Registry) -> None:
    content = run(registry, "lost-calls=7; truncation=40").to_json()
    assert compare(replay=content, registry=registry).to_json() == content


def test_a_report_that_was_changed_does_not_replay_to_the_same(registry: Registry) -> None:
    data = json.loads(run(registry, "lost-calls=7").to_json())
    figures = json.loads(json.dumps(data))
    figures["figures"][1]["shares"]["kept"]["good"] += 1
    changed = read_report(json.dumps(figures).encode())
    assert compare(replay=changed, registry=registry) != changed
    data["settings"]["seed"] = 4
    with pytest.raises(CnllmError, match="not the one that was sent"):
        compare(replay=json.dumps(data).encode(), registry=registry)
    record = data["hosts"][0]["exchanges"][0]["recorded"]
    damaged: list[tuple[Any, Any, Any]] = [
        (record, "response", 1),
        (record["response"], "status", "x"),
        (record["response"], "times", []),
    ]
    damaged += [(record["response"]["chunks"], 0, value) for value in (5, {"base64": "?"}, "\ud800")]
    contents = [b"{}", b'{"x":' * 100_000]
    for place, key, value in damaged:
        before, place[key] = place[key], value
        contents.append(json.dumps(data).encode())
        place[key] = before
    for content in contents:
        with pytest.raises(CnllmError, match="not a report"):
            read_report(content)


def test_hosts_are_asked_over_sockets_each_with_its_key_and_a_report_holds_none(
    tmp_path: Path,
) -> None:
    with running(Registry.load()) as home, running(Registry.load(), unfaithful="lost-calls=1") as away:
        text = OVERLAY.replace("https://home.test/v1", f"{home.url}/zai").replace('/m"]', '/glm-4.7"]')
        (tmp_path / "providers.toml").write_text(text.replace("https://away.test/v1", f"{away.url}/zai"))
        env = {"CNLLM_CONFIG_DIR": str(tmp_path), "HOME_KEY": SECRET, "AWAY_KEY": f"{SECRET}-2"}
        path = tmp_path / "report.json"
        args = ["compare", "home/glm-4.7", "-n", "4", "--max-cost", "1USD", "-o", str(path)]
        done = completed(args, env)
        assert done.returncode == 0, done.stderr
    report = read_report(path.read_bytes())
    assert [host.name for host in report.hosts] == ["home/glm-4.7", "away/glm-4.7"]
    assert report.figures[0].shares["called"].good > 0
    assert report.figures[1].shares["called"].good == 0
    assert report.figures[1].empty == report.figures[1].shares["called"].tasks
    assert SECRET not in path.read_text() + done.stdout + done.stderr
    again = completed(["compare", "--replay", str(path)], {"CNLLM_CONFIG_DIR": str(tmp_path)})
    assert again.returncode == 0, again.stderr


def host_at(folder: Path, url: str) -> Host:
    path = folder / "overlay.toml"
    path.write_text(OVERLAY.replace("https://home.test/v1", url))
    registry = Registry.load(path)
    (host,), _ = choose_hosts(registry, registry.resolve("home/m"), ["home/m"], need_keys=False)
    return host


@pytest.mark.parametrize(("arguments", "is_valid"), [("{}", True), ("", False), ("[]", False)])
def test_arguments_are_judged_as_they_arrived(tmp_path: Path, arguments: str, is_valid: bool) -> None:
    """cnllm reads empty arguments as an empty object; a program that decodes them as JSON does not."""
    function = {"name": "look", "arguments": arguments}
    calls = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    task = ComparisonTask("call-1", "call", "en", "Look.", (RightStep((("look", {}),)),), (tool,))
    connections = NewConnections()
    with Peer([answer(200, whole(None, "tool_calls", tool_calls=calls))]) as peer:
        live = LiveExchanges(connections, Budget({}), None)
        result, _ = run_task(host_at(tmp_path, peer.url), task, live.ask)
        connections.close()
    assert (result.marks["called"], result.marks["valid"]) == (True, is_valid)


@pytest.mark.parametrize(
    ("text", "finish", "marks", "lost"),
    [
        ("I will look.", "stop", {"called": False}, 0),  # the model's choice, as far as anybody sees
        (None, "stop", {"called": False, "kept": False}, 1),
        ("I will look.", "tool_calls", {"called": False, "kept": False}, 1),
    ],
)
def test_a_plain_answer_is_no_lost_call(
    tmp_path: Path, text: str | None, finish: str, marks: dict[str, bool], lost: int
) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    task = ComparisonTask("call-1", "call", "en", "Look.", (RightStep((("look", {}),)),), (tool,))
    connections = NewConnections()
    with Peer([answer(200, whole(text, finish))]) as peer:
        live = LiveExchanges(connections, Budget({}), None)
        result, _ = run_task(host_at(tmp_path, peer.url), task, live.ask)
        connections.close()
    assert {name: result.marks.get(name) for name in ("called", "kept")} == {"kept": None, **marks}
    assert result.lost == lost


def exchanges(folder: Path, url: str, count: int) -> list[TaskExchange]:
    """The exchanges of a host with so many requests, one after the other."""
    host = host_at(folder, url)
    connections = NewConnections()
    live = LiveExchanges(connections, Budget({}), None)
    tasks = [task for task in make_tasks(3, 20, most_tokens=9000) if task.kind == "restraint"]
    try:
        return [live.ask(tasks[0], 0, first_request(host, tasks[0])) for _ in range(count)]
    finally:
        connections.close()


def test_a_server_that_closes_a_connection_after_each_answer_spoils_no_task(tmp_path: Path) -> None:
    with Peer([answer(200, whole("42")), Close()]) as peer:
        ended = [exchange.recorded["ended"] for exchange in exchanges(tmp_path, peer.url, 40)]
        assert ended == ["whole"] * 40
        assert [received.connection for received in peer.received] == [*range(40)]


def test_a_request_that_a_server_may_have_processed_is_not_sent_again(tmp_path: Path) -> None:
    with Peer([Close()]) as peer:
        recorded = [exchange.recorded for exchange in exchanges(tmp_path, peer.url, 3)]
        assert [record["error"]["type"] for record in recorded] == ["TransportError"] * 3
        assert len(peer.received) == 3


@pytest.mark.parametrize(("status", "is_free"), [(401, True), (429, True), (500, True), (None, False)])
def test_a_refusal_costs_nothing(tmp_path: Path, status: int | None, is_free: bool) -> None:
    """A connection that broke off may have cost all that was reserved."""
    budget = Budget({"USD": Decimal(1)})
    task = make_tasks(3, 20, most_tokens=9000)[0]
    with Peer([Close() if status is None else answer(status, b"{}")]) as peer:
        host = host_at(tmp_path, peer.url)
        connections = NewConnections()
        try:
            LiveExchanges(connections, budget, None).ask(task, 0, first_request(host, task))
        finally:
            connections.close()
    assert (budget.spent["USD"] == 0) is is_free


def test_the_page_shows_each_failed_task_and_loads_nothing(registry: Registry) -> None:
    report = run(registry, "lost-calls=5")
    page = report.to_html()
    for task in report.problems["away/m"]:
        assert f"<summary>{task}: " in page
    assert page.count("<details>") == len(report.problems["away/m"])
    named = worse(report) & {*FIGURES}
    assert page.count('<span class="bad">') == len(named)  # a task that the model spoiled is no fault of its host
    assert "home/m is the reference." in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "src=" not in page
    assert "不如" in page or "没有发现" in page


# ── the command ──────────────────────────────────────────────────────────────
@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "providers.toml").write_text(OVERLAY)
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_without_a_cap_the_plan_and_its_price_are_shown_and_nothing_is_asked(overlay: Path) -> None:
    done = completed(["compare", "home/m", "-n", "20"], {"HOME_KEY": "a"})
    assert done.returncode == 0, done.stderr
    assert "home/m" in done.stdout
    assert "USD" in done.stdout
    assert "left out: away/m: no key: AWAY_KEY" in done.stderr
    assert "nothing was asked: a comparison needs two hosts" in done.stderr
    assert "20 tool turns show a host that loses 50 % of its calls, in nine runs of ten" in done.stderr
    both = completed(["compare", "home/m", "-n", "20"], {"HOME_KEY": "a", "AWAY_KEY": "b"})
    prices = [float(line.split()[-2]) for line in both.stdout.splitlines()[1:]]
    cap = re.search(r"nothing was asked: --max-cost (\d+)USD asks them", both.stderr)
    assert cap is not None, both.stderr
    assert sum(prices) <= int(cap[1]) < sum(prices) + 1.02, "the least whole amount that the plan fits below"


def test_no_host_with_a_key_says_how_to_set_one(overlay: Path) -> None:
    done = completed(["compare", "home/m", "-n", "20"])
    assert done.returncode == 2
    assert "left out: home/m: no key: HOME_KEY" in done.stderr
    assert "cnllm keys set PROVIDER" in done.stderr


def test_a_report_is_written_read_and_replayed(overlay: Path) -> None:
    path = overlay / "report.json"
    done = completed(["compare", "home/m", "-n", "10", "--simulate", "-o", str(path), "--json"])
    assert done.returncode == 0, done.stderr
    assert {figures["host"] for figures in json.loads(done.stdout)["figures"]} == {*NAMES}
    page = overlay / "report.html"
    again = completed(["compare", "--replay", str(path), "-o", str(page)])
    assert again.returncode == 0, again.stderr
    assert "every figure is as in the report" in again.stderr
    assert page.read_text().startswith("<!doctype html>")
    path.write_text(path.read_text().replace('"empty": 0', '"empty": 1', 1))
    assert completed(["compare", "--replay", str(path)]).returncode == 3


def test_a_full_disk_leaves_the_report_that_is_there(overlay: Path) -> None:
    path = overlay / "report.json"
    args = ["compare", "home/m", "-n", "4", "--simulate", "-o", str(path)]
    assert completed(args).returncode == 0
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-B", "-m", "cnllm", *args],  # Python would write halves of its own files, too
        env={**os.environ, "CNLLM_CONFIG_DIR": str(overlay)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        check=False,
    )
    assert done.returncode != 0
    assert "File too large" in done.stderr
    assert path.read_bytes() == before


def test_a_signed_report_is_checked_when_it_is_replayed(overlay: Path) -> None:
    key, path, drawing = overlay / "key.pem", overlay / "report.json", overlay / "report.svg"
    pkcs8, pem = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, serialization.NoEncryption()))
    done = completed(["compare", "home/m", "-n", "4", "--simulate", "-o", str(path), "--sign", str(key)])
    assert done.returncode == 0, done.stderr
    report = read_report(path.read_bytes())
    assert report.signature is not None
    again = completed(["compare", "--replay", str(path), "-o", str(drawing)])
    assert again.returncode == 0, again.stderr
    assert f"signed with the key {report.signature.key}" in again.stderr
    text = drawing.read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text) < 8192
    for words in ("home/m", "away/m", "prefers-color-scheme:dark", 'width="700"'):
        assert words in text
    path.write_text(path.read_text().replace(f'"started": "{report.started}"', '"started": "2026-01-01"'))
    changed = completed(["compare", "--replay", str(path)])
    assert changed.returncode == 2, changed.stdout
    assert f"the report is not what the key {report.signature.key} signed" in changed.stderr
    key.write_text("no key")
    for args, words in (
        (["-o", str(path)], "holds no key"),
        (["-o", str(drawing)], "--sign needs the report as JSON"),
    ):
        wrong = completed(["compare", "home/m", "--simulate", "--sign", str(key), *args])
        assert wrong.returncode != 0
        assert words in wrong.stderr


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "no model is named"),
        (["home/m", "--max-cost", "5"], "--max-cost 5: an amount and a currency"),
        (["home/m", "--hosts", "home,nowhere", "--max-cost", "5USD"], "nowhere is not a host of these weights"),
        (["home/m", "--hosts", "home", "--max-cost", "5USD"], "a comparison needs two hosts"),
        (["home/m", "--hosts", "home,away", "--max-cost", "5CNY"], "for which there is no cap"),
        (["home/m", "-o", "report.txt"], "a report is .json, .html or .svg"),
        (["--replay", "no-such-file"], "cannot read no-such-file"),
        (["--replay", "/dev/zero"], "cannot read /dev/zero: it has more than"),
        (["home/m", "--replay", "no-such-file"], "home/m beside --replay"),
        (["-n", "5", "--replay", "no-such-file"], "-n beside --replay"),
        (["home/m", "--simulate", "-n", "2", "--hosts", "home,away,home/m"], "the host home/m is named twice"),
        (["home/m", "--max-cost", "5USD", "--max-cost", "9USD"], "--max-cost is there twice for USD"),
        (["home/m", "--simulate", "-n", "2", "-o", "no-folder/report.json"], "there is no such folder"),
    ],
)
def test_wrong_calls_name_what_is_wrong(overlay: Path, args: list[str], text: str) -> None:
    done = completed(["compare", *args], {"HOME_KEY": "a", "AWAY_KEY": "b"})
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert text in done.stderr


@pytest.mark.parametrize("cap", ["nan", "inf", "-1", "five"])
def test_a_cap_that_would_hold_nothing_is_refused(overlay: Path, cap: str) -> None:
    with pytest.raises(ValueError, match=f"max_cost='{cap}'"):
        compare("home/m", ["home", "away"], tasks=1, max_cost={"USD": cap})
