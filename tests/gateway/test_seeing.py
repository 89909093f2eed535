"""What an operator sees of a gateway: metrics, the live table, the access log and the page of the last requests."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
import yaml

from cnllm import AsyncClient, Message
from cnllm.estimates import host_order
from cnllm.estimates.host_order import HostRecord, HostTurn, RouteState, order_hosts
from cnllm.gateway import monitoring
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.limits.key_use import KeyUse, use_data
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.gateway.monitoring.monitor import Round, last_round
from cnllm.gateway.monitoring.recent import Recent, RequestRecord, hide_secrets
from cnllm.gateway.monitoring.table import Scrape, parse_scrape, rows
from cnllm.gateway.monitoring.updates import METRICS
from cnllm.gateway.server import running

from .store_support import program
from .support import KEY, USAGE, Answer, Upstream, call, error, gateway_for, registry_for, say
from .test_http import serving
from .test_keys_http import COST, MODELS, setting
from .test_reload import until

MODEL = "here/priced"
AGAIN = f'\n[models."{MODEL}".call]\nif_cut = "again-whole"\n'
ADMIN = "the-key-of-the-operator"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
OPERATOR = {"authorization": f"Bearer {ADMIN}"}


def body(*messages: dict[str, Any], model: str = MODEL, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}, *messages], "tools": TOOLS, **more}


def called(*ids: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function} for id in ids],
    }


def result(id: str, text: str = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


@contextmanager
def gateway(folder: Path, *script: Answer, **options: Any) -> Iterator[tuple[httpx.Client, Upstream]]:
    upstream = Upstream(*script)
    options = {"admin_key": ADMIN, **options}
    with gateway_for(upstream, folder, "zai", more=MODELS.replace("URL", upstream.url), **options) as http:
        yield http, upstream
    upstream.shutdown()
    upstream.server_close()


def nested(inner: Any, depth: int) -> Any:
    """Data that stands so deep in objects and arrays by turns."""
    for level in reversed(range(depth)):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


def scrape(http: httpx.Client, calls: int, **headers: str) -> Scrape:
    """The metrics once so many requests are counted: a request is counted after its last byte has gone out."""
    last = time.monotonic() + 10
    while True:
        response = http.get("/metrics", headers={**OPERATOR, **headers})
        assert response.status_code == 200, response.text
        found = parse_scrape(response.text, time.monotonic())
        if found.sum("cnllm_requests_total", None, verb="generate") >= calls or time.monotonic() > last:
            return found
        time.sleep(0.02)


# ── metrics ───────────────────────────────────────────────────────────────────
def test_metrics_after_known_requests(tmp_path: Path) -> None:
    script = [
        say("Good day"),
        call("a", "b", ids=["call_1", "call_2"]),
        say("Both"),
        error(500, "down"),
        Answer([{"content": "half"}], cut=True),
        say("x"),
    ]
    path = "/v1/chat/completions"
    with gateway(tmp_path, *script) as (http, _):
        assert http.post(path, json=body()).status_code == 200
        assert http.post(path, json=body(stream=True)).status_code == 200
        turns = [called("call_1", "call_2"), result("call_1"), result("call_2")]
        assert http.post(path, json=body(*turns, temperature=9)).status_code == 200
        assert http.post(path, json=body(*turns)).status_code >= 500
        http.post(path, json=body(stream=True))  # cut
        assert http.post(path, json=body(called("call_7"), {"role": "user", "content": "And?"})).status_code == 200
        assert http.post(path, json=body(model="no-such-model")).status_code == 404
        assert http.get("/nothing/here").status_code == 404
        found = scrape(http, 7)
    total = "cnllm_requests_total"
    assert found.sum(total, MODEL, verb="generate", protocol="openai-chat", status="200", outcome="ok") == 4
    assert found.sum(total, "", verb="generate", status="404", outcome="failed") == 1
    assert found.sum(total, "", verb="", status="404") == 1
    assert (found.sum(total, MODEL, outcome="failed"), found.sum(total, MODEL, outcome="cut")) == (1, 1)
    assert found.sum("cnllm_cuts_total", MODEL) == 1
    assert found.sum("cnllm_recoveries_total", MODEL) == 0
    assert found.sum("cnllm_errors_total", MODEL) == 2
    assert found.sum("cnllm_tool_calls_total", MODEL) == 2
    assert found.sum("cnllm_tool_results_total", MODEL) == 4  # the third and the fourth request
    assert found.sum("cnllm_broken_chains_total", MODEL, reason="no-reply-to-results") == 1
    assert found.sum("cnllm_broken_chains_total", MODEL, reason="call-without-result") == 1
    assert found.sum("cnllm_broken_chains_total", None) == 2
    assert found.sum("cnllm_notes_total", MODEL, code="call-unanswered") == 1
    assert found.sum("cnllm_first_token_seconds_count", MODEL) == 2
    assert found.sum("cnllm_output_tokens_per_second_count", MODEL) == 4
    assert found.sum("cnllm_tokens_total", MODEL, kind="input") == 4 * USAGE["prompt_tokens"]
    assert found.sum("cnllm_tokens_total", MODEL, kind="output") == 4 * USAGE["completion_tokens"]
    assert found.sum("cnllm_cost_total", MODEL, currency="CNY") == pytest.approx(4 * COST / 1e9)
    assert found.sum("cnllm_cost_unknown_total", MODEL) in (0, 1)  # the cut reply
    assert {name.removesuffix("_created") for name in found.samples} - {
        f"{name}{end}" for name in METRICS for end in ("", "_bucket", "_count", "_sum")
    } <= {name.removesuffix("_total") for name in METRICS}


def test_a_reply_that_is_cut_and_asked_for_again_is_a_cut_and_a_recovery(tmp_path: Path) -> None:
    thought = {"reasoning_content": "so"}
    upstream = Upstream(Answer([thought], cut=True), Answer([thought, {"content": "whole"}]))
    registry = registry_for(upstream, tmp_path, "zai", more=MODELS.replace("URL", upstream.url) + AGAIN)
    client = AsyncClient(registry, api_key="the-key-of-the-provider")
    with (
        running(Gateway(registry, client=client, keys=[KEY], admin_key=ADMIN)) as url,
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}) as http,
    ):
        response = http.post("/v1/chat/completions", json=body(stream=True))
        assert "whole" in response.text, response.text
        found = scrape(http, 1)
    assert found.sum("cnllm_requests_total", MODEL, outcome="ok") == 1
    assert found.sum("cnllm_cuts_total", MODEL) == 1
    assert found.sum("cnllm_recoveries_total", MODEL) == 1


def test_a_client_that_goes_is_an_outcome_and_no_failure_of_a_model(tmp_path: Path) -> None:
    go_on = threading.Event()
    with gateway(tmp_path, say("Hello.", wait=go_on)) as (http, _):
        with http.stream("POST", "/v1/chat/completions", json=body(stream=True)) as response:
            next(response.iter_raw())
        go_on.set()  # the endpoint writes on
        found = scrape(http, 1)
    assert found.sum("cnllm_cost_unknown_total", MODEL) == 1
    assert found.sum("cnllm_requests_total", MODEL, status="200", outcome="client-has-gone") == 1
    assert found.sum("cnllm_requests_total", None, verb="generate") == 1
    assert found.sum("cnllm_errors_total", None) == 0


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [
        (say("Hello."), 0),
        (error(429, "slow down"), 0),
        (Answer(lost=True), 1),
        (Answer([{"content": "half"}], cut=True), 1),
    ],
    ids=["whole", "refused", "lost", "cut"],
)
def test_what_may_be_charged_and_is_not_known_is_counted(tmp_path: Path, answer: Answer, unknown: int) -> None:
    with gateway(tmp_path, answer) as (http, _):
        http.post("/v1/chat/completions", json=body(stream=True))
        found = scrape(http, 1)
    assert found.sum("cnllm_cost_unknown_total", MODEL) == unknown


def test_a_cost_that_is_known_in_part_is_an_amount_and_unknown(tmp_path: Path) -> None:
    with gateway(tmp_path, Answer(lost=True), say("Hello."), attempts=2) as (http, _):
        assert http.post("/v1/chat/completions", json=body()).status_code == 200
        found = scrape(http, 1)
    assert found.sum("cnllm_cost_total", MODEL, currency="CNY") == pytest.approx(COST / 1e9)
    assert found.sum("cnllm_cost_unknown_total", MODEL) == 1


def test_an_unpriced_reply_has_no_cost_and_that_is_counted(tmp_path: Path) -> None:
    with gateway(tmp_path, say("Good day")) as (http, _):
        assert http.post("/v1/chat/completions", json=body(model="here/unpriced")).status_code == 200
        found = scrape(http, 1)
    assert found.sum("cnllm_cost_unknown_total", "here/unpriced") == 1
    assert "cnllm_cost_total" not in found.samples


def test_no_text_of_a_client_is_in_a_label(tmp_path: Path) -> None:
    secret = "sk-secret-of-the-client-1234567890"
    with gateway(tmp_path, say(f"Good day {secret}")) as (http, _):
        for index in range(5):
            request = body(model=f"here/made-up-{index}", user=secret, metadata={"x": secret}, **{secret: 1})
            assert http.post(f"/v1/chat/completions?key={secret}", json=request).status_code == 200
        http.post(f"/v1beta/models/{secret}:generateContent", json={"contents": []})
        http.get(f"/{secret}", headers={"x-api-key": secret})
        found = scrape(http, 5)
        text = http.get("/metrics", headers=OPERATOR).text
    for word in (secret, "made-up", KEY, ADMIN, "the-key-of-the-provider", "Good day"):
        assert word not in text
    assert found.sum("cnllm_requests_total", "here/other") == 5


def test_metrics_need_the_key_of_the_operator(tmp_path: Path) -> None:
    path = "/metrics"
    with gateway(tmp_path, say("x")) as (http, _):
        assert http.get(path).status_code == 401  # the client's key, where there is another
        assert httpx.get(f"{http.base_url}/metrics").status_code == 401
        assert http.get(path, headers=OPERATOR).status_code == 200
        assert http.post(path, headers=OPERATOR).status_code == 405
        assert http.post("/v1/chat/completions", json=body(), headers=OPERATOR).status_code == 401
        assert http.get("/ui", headers=OPERATOR).status_code == 401  # there is no such page: as any unknown path
        assert http.get("/ui").status_code == 404
    with gateway(tmp_path, say("x"), admin_key=None) as (http, _):
        assert http.get(path).status_code == 200
        assert http.get(path, headers={"authorization": "Bearer other"}).status_code == 401
    with gateway(tmp_path, say("x"), admin_key=None, keys=()) as (http, _):
        answer = http.get(path)
        assert answer.status_code == 401
        assert "CNLLM_ADMIN_KEY" in answer.text


def test_a_key_with_limits_opens_no_metrics_and_is_counted_by_its_name(tmp_path: Path) -> None:
    with setting(tmp_path, say("Good day"), recent=Recent()) as site:
        key = site.key("team-a", budgets={"CNY": 10**12})
        answer = site.send(key, ("/v1/chat/completions", body(max_tokens=100)))
        assert answer.status_code == 200, answer.text
        headers = {"authorization": f"Bearer {key}"}
        assert site.http.get("/metrics", headers=headers).status_code == 401
        assert site.http.get("/ui/requests", headers=headers).status_code == 401
        found = scrape(site.http, 1, authorization=f"Bearer {KEY}")
        assert found.sum("cnllm_key_requests_total", None, key="team-a", status="200") == 1
        assert found.sum("cnllm_key_cost_total", None, key="team-a", currency="CNY") == pytest.approx(COST / 1e9)
        assert key not in site.http.get("/metrics").text


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.long), True])
def test_workers_are_summed_and_a_killed_one_keeps_its_counts(tmp_path: Path, kill: bool) -> None:
    (folder := tmp_path / "temporary").mkdir()
    variables = {**os.environ, "CNLLM_SERVE_KEY": KEY, "TMPDIR": str(folder)}
    store = ["--store", f"sqlite:{tmp_path / 'state.db'}"]
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--workers", "2", *store, "--ui"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, env=variables) as process, ExitStack() as ends:
        ends.callback(process.kill)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        for shared in folder.iterdir():
            (shared / "counter_1.db").touch()  # as a process leaves it that is killed when it has just made it
        headers = {"authorization": f"Bearer {KEY}"}
        calls = 24
        for _ in range(calls):  # each on a new connection, so that both workers get some
            answer = httpx.post(
                f"{ready['url']}/v1/chat/completions",
                json={"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}]},
                headers=headers,
            )
            assert answer.status_code == 200
        with httpx.Client(base_url=ready["url"]) as http:
            until(lambda: scrape(http, calls, **headers).sum("cnllm_workers", None) == 2)  # one may be late
            found = scrape(http, calls, **headers)
            # a request is counted first, and shown then
            until(lambda: len(http.get("/ui/requests", headers=headers).json()) >= calls)
            shown = http.get("/ui/requests", headers=headers).json()
        assert found.sum("cnllm_requests_total", "zai/glm-4.7", outcome="ok") == calls
        assert found.sum("cnllm_workers", None) == 2
        assert len(shown) == calls
        if kill:
            children = subprocess.run(["pgrep", "-P", str(ready["pid"])], capture_output=True, text=True).stdout.split()
            os.kill(int(children[0]), signal.SIGKILL)
            last = time.monotonic() + 20
            gauge = 0.0
            while time.monotonic() < last:
                with httpx.Client(base_url=ready["url"]) as http:
                    try:
                        found = scrape(http, calls, **headers)
                    except httpx.TransportError:  # the connection was the killed worker's
                        continue
                gauge = found.sum("cnllm_workers", None)
                pids = subprocess.run(["pgrep", "-P", str(ready["pid"])], capture_output=True, text=True).stdout.split()
                if gauge == 2 and len(pids) == 2 and children[0] not in pids:
                    break
                time.sleep(0.05)
            assert gauge == 2
            assert found.sum("cnllm_requests_total", "zai/glm-4.7", outcome="ok") == calls
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert list(folder.iterdir()) == []


FULL_DISK = """
import json, logging, os, resource, sys
os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder = sys.argv[1]
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.prometheus import Metrics
lines = []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("cnllm.gateway").addHandler(Lines())
def count(first, last):
    for number in range(first, last):
        entry = Entry("req_1", "POST", "/", status=200, verb="generate", protocol="openai-chat", finish="stop")
        entry.first = entry.tokens_per_second = 1.0
        metrics.count(entry, "here/" + "模" * 80 + str(number))
def sizes():
    return {name: os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder)}
metrics = Metrics()
count(0, 40)
before = sizes()
ends = {name: os.lseek(os.open(os.path.join(folder, name), os.O_RDONLY), 0, os.SEEK_HOLE) for name in before}
resource.setrlimit(resource.RLIMIT_FSIZE, (max(before.values()), max(before.values())))
count(40, 400)
content, _ = metrics.exposition("")
print(json.dumps([before, ends, max(sizes().values()), lines, content.decode()]))
"""


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="this system does not tell holes of files")
def test_a_disk_that_is_full_costs_counts_and_no_process(tmp_path: Path) -> None:
    """The files of the metrics are in memory, and the system ends a process that writes where the disk has no place."""
    process = program(FULL_DISK, str(tmp_path))
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    sizes, ends, largest, lines, content = json.loads(out)
    assert sizes == ends, "the files have holes"
    assert max(sizes.values()) == largest > 64 * 1024
    assert len(lines) == 1, lines
    assert "the metrics lack some requests" in lines[0]
    assert parse_scrape(content, 0.0).sum("cnllm_requests_total", None) > 40


# ── rounds ────────────────────────────────────────────────────────────────────
def test_only_the_last_round_of_a_conversation_counts() -> None:
    user = {"role": "user", "content": "Hi"}
    said = {"role": "assistant", "content": "So"}
    table: list[tuple[list[dict[str, Any]], Round]] = [
        ([user], Round()),
        ([user, called("a"), result("a")], Round(1)),
        ([user, called("a", "b"), result("b"), result("a")], Round(2)),
        ([user, called("a", "b"), result("b")], Round(1, unanswered=1)),
        ([user, called("a"), user], Round(0, unanswered=1)),
        ([user, called("a"), result("a"), said, user], Round()),
        ([user, called("a"), result("a"), called("b"), result("b")], Round(1)),
        ([user, called("a"), result("z")], Round(1, unanswered=1, orphans=1)),
        ([user, said, result("z")], Round(1, orphans=1)),
        ([user, called("a"), result("a"), user], Round(1)),
    ]
    for messages, wanted in table:
        assert last_round([Message.from_dict(message) for message in messages]) == wanted, messages


def test_a_call_with_unusable_arguments_and_a_result_with_an_error_are_two_errors(tmp_path: Path) -> None:
    head = {"index": 0, "id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "[1"}}
    failed = {"type": "tool_result", "tool_use_id": "call_1", "content": "no", "is_error": True}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [failed]},
    ]
    tool = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
    with gateway(tmp_path, Answer([{"tool_calls": [head]}], "tool_calls")) as (http, _):
        http.post("/v1/messages", json={"model": MODEL, "max_tokens": 9, "messages": turns, "tools": [tool]})
        samples = scrape(http, 1).samples["cnllm_tool_errors_total"]
    assert [value for _, value in samples] == [2.0]


# ── alerts and the table ──────────────────────────────────────────────────────
def test_the_alert_rules_name_metrics_that_exist_with_their_labels() -> None:
    file = Path(__file__).parents[2] / "docs" / "how-to" / "alerts.yml"
    rules = [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
    assert "CnllmBrokenChains" in {rule["alert"] for rule in rules}
    for rule in rules:
        names = re.findall(r"cnllm_\w+", rule["expr"])
        assert names, rule["alert"]
        for name in names:
            metric = METRICS[re.sub("_(bucket|sum|count)$", "", name)]
            grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
            labels = {label.strip() for group in grouped for label in group.split(",")} - {"le"}
            assert labels <= set(metric.labels), rule["alert"]
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
            assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"]), rule["alert"]
    manual = (file.parent / "gateway-seeing.md").read_text()
    for name in METRICS:
        assert f"`{name}`" in manual


def test_top_prints_a_row_for_each_model(tmp_path: Path) -> None:
    with gateway(tmp_path, say("Good day")) as (http, _):
        for _ in range(3):
            assert http.post("/v1/chat/completions", json=body()).status_code == 200
        now = scrape(http, 3)
        command = [sys.executable, "-m", "cnllm", "serve", "top", "--once", "--url"]
        done, refused, nobody = (
            subprocess.run([*command, url, "--key", key], capture_output=True, text=True)
            for url, key in ((str(http.base_url), ADMIN), (str(http.base_url), KEY), ("http://127.0.0.1:9", KEY))
        )
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^{MODEL} +3 .* 0\.0*[1-9]\d* CNY$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^all +3 ", done.stdout, re.MULTILINE)
    assert refused.returncode == 2
    assert nobody.returncode == 1
    before = Scrape(now.time - 2)
    assert rows(now, before)[0][2] == "1.5"


def test_every_column_of_top_is_a_metric_that_the_gateway_has(tmp_path: Path) -> None:
    counters = {
        "cnllm_cuts_total": 2,
        "cnllm_recoveries_total": 3,
        "cnllm_tool_calls_total": 4,
        "cnllm_tool_results_total": 5,
        "cnllm_tool_errors_total": 6,
        "cnllm_broken_chains_total": 7,
    }
    of_model: Mapping[str, str] = {"model": MODEL}
    buckets: list[tuple[Mapping[str, str], float]] = [
        ({"le": "1.0", **of_model}, 0.0),
        ({"le": "2.0", **of_model}, 1.0),
        ({"le": "+Inf", **of_model}, 1.0),
    ]
    made = Scrape(1.0)
    made.samples = {name: [(of_model, float(count))] for name, count in counters.items()}
    requests: list[tuple[Mapping[str, str], float]] = [
        ({"verb": "generate", **of_model}, 9.0),
        ({"verb": "generate", "outcome": "failed", **of_model}, 1.0),
    ]
    made.samples["cnllm_requests_total"] = requests
    for name in ("cnllm_first_token_seconds", "cnllm_output_tokens_per_second"):
        made.samples[f"{name}_bucket"] = buckets
    made.samples["cnllm_cost_total"] = [({"currency": "CNY", **of_model}, 0.5)]
    made.samples["cnllm_cost_unknown_total"] = [(of_model, 1.0)]
    row = rows(made)[0]
    assert row[:6] == (MODEL, "10", "", "1", "2", "3")
    assert row[6:] == ("1.50 s", "1.95 s", "2", "4 → 5", "6", "7", "0.5000 CNY + ?")
    with gateway(tmp_path, call("Hangzhou", ids=["call_1"])) as (http, _):
        http.post("/v1/chat/completions", json=body(stream=True))
        text = http.get("/metrics", headers={"authorization": f"Bearer {ADMIN}"}).text
    families = {name.removesuffix("_bucket").removesuffix("_total") for name in made.samples}
    assert [name for name in families if f"# TYPE {name}" not in text] == []


# ── the access log and the page ───────────────────────────────────────────────
def test_the_access_log_has_times_and_calls_and_no_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "cnllm.gateway"),
        gateway(tmp_path, call("Hangzhou", ids=["call_1"])) as (http, _),
    ):
        http.post("/v1/chat/completions", json=body(stream=True))
        scrape(http, 1)
    (line,) = [json.loads(r.getMessage()) for r in caplog.records if '"generate"' in r.getMessage()]
    assert (line["protocol"], line["model"], line["stream"], line["tool_calls"]) == ("openai-chat", MODEL, True, 1)
    assert 0 < line["first"] <= line["seconds"]
    assert line["tokens_per_second"] > 0
    assert "Hangzhou" not in json.dumps(line)


def test_no_path_moves_a_cursor_or_begins_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = "/v1/\x9b2J\x7f\x85\u2028\u202e\U000e0041\n杭州"
    with caplog.at_level(logging.INFO, "cnllm.gateway"), gateway(tmp_path, call("Hangzhou")) as (http, _):
        assert http.get(quote(path)).status_code == 404
    (line,) = [r.getMessage() for r in caplog.records if '"GET"' in r.getMessage()]
    assert line.isprintable()
    assert "杭州" in line
    assert json.loads(line)["path"] == path


def test_the_page_shows_both_bodies_without_secrets(tmp_path: Path) -> None:
    shaped = "sk-abcdefgh1234567890abcdef"
    secrets = (KEY, ADMIN, shaped, "s3cr3t", "the-key-of-the-provider")
    with (
        gateway(tmp_path, say(f"Good day {shaped}"), recent=Recent()) as (http, upstream),
        httpx.Client(base_url=http.base_url) as browser,
    ):
        text = f"<script>alert(1)</script> {KEY} {shaped} Bearer abcdefgh12345678"
        metadata = {"api_key": "s3cr3t", "deep": nested("end", 200)}
        request = body({"role": "user", "content": text}, metadata=metadata, max_tokens=10**9)
        assert http.post("/v1/chat/completions", json=request).status_code == 200
        scrape(http, 1)
        page = browser.get("/ui")
        assert page.status_code == 401
        assert 'type="password"' in page.text
        for path in ("/ui/requests", "/ui/keys", "/ui/routes", "/ui/requests/req_" + "0" * 24):
            response = browser.get(path)
            assert (response.status_code, response.json()) == (401, {"error": "log in first"})
        assert browser.post("/ui/login", data={"key": "wrong"}).status_code == 401
        assert browser.post("/ui/login", data={"key": KEY}).status_code == 401
        assert browser.post("/ui/login", content=b"key=" + b"x" * 9000).status_code == 413
        assert browser.post("/ui/login", content=b"a=1&b=2&c=3&d=4&key=wrong").status_code == 401
        login = browser.post("/ui/login", data={"key": ADMIN}, headers={"origin": str(http.base_url)})
        assert login.status_code == 303
        cookie = login.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert ADMIN not in cookie
        page = browser.get("/ui")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert path.startswith("/ui/"), "nothing comes from elsewhere"
            assert browser.get(path).status_code == 200
        assert "innerHTML" not in browser.get("/ui/page.js").text
        for method, path, status, reason in (
            ("POST", "/ui/requests", 405, "only GET is supported"),
            ("GET", "/ui/requests/req_" + "0" * 24, 404, "it is no longer kept"),
            ("GET", "/ui/nothing", 404, "there is nothing here"),
        ):
            response = browser.request(method, path)
            assert (response.status_code, response.json()) == (status, {"error": reason})
        (entry,) = browser.get("/ui/requests").json()
        answer = browser.get(f"/ui/requests/{entry['id']}")
        record = answer.json()
        for secret in secrets:
            assert secret not in answer.text
            assert secret not in browser.get("/ui/requests").text
        assert "abcdefgh12345678" not in answer.text
        assert record["sent"]["model"] == MODEL
        assert record["upstream"]["model"] == upstream.bodies[0]["model"] == "priced"
        assert record["sent"]["max_tokens"] == 10**9
        assert record["sent"]["metadata"]["deep"] == nested("… (nested too deeply)", 99)
        assert http.post("/v1/chat/completions", json={**request, "model": f"gtp {shaped}"}).status_code == 404
        refused, _ = browser.get("/ui/requests").json()
        assert refused["model"].startswith("gtp "), "the name that was refused is in the list"
        for secret in secrets:
            assert secret not in browser.get("/ui/requests").text
        assert record["upstream"].get("max_tokens") != 10**9
        assert "param-clamped" in {note["code"] for note in record["entry"]["notes"]}
        assert record["reply"]["content"].startswith("Good day")
        end, _, signature = browser.cookies["cnllm_ui"].partition(".")
        for forged in (f"{int(end) + 9}.{signature}", f"1.{signature}", f"{end}.", "x.y", "", f"{end}.é"):
            headers = {b"cookie": f"cnllm_ui={forged}".encode()}
            assert httpx.get(f"{http.base_url}/ui/requests", headers=headers).status_code == 401
        assert browser.post("/ui/logout").status_code == 303
        assert browser.get("/ui/requests").status_code == 401


def test_secrets_are_hidden_in_every_place() -> None:
    table = {
        "my sk-proj-abcdefghijkl12345 and more": "my [redacted] and more",
        "Authorization: Bearer abc.def-ghi_jkl": "Authorization: Bearer [redacted]",
        "ghp_abcdefghijkl12345": "[redacted]",
        "task-related-things stay": "task-related-things stay",
        "the token count is 12": "the token count is 12",
        "known-one": "[redacted]",
    }
    for text, wanted in table.items():
        assert hide_secrets(text, ("known-one",)) == wanted
    data = {"api_key": "x", "password": "y", "max_tokens": 5, "key": {"type": "string"}, "a": [{"token": "z"}]}
    assert hide_secrets(data, ()) == {
        "api_key": "[redacted]",
        "password": "[redacted]",
        "max_tokens": 5,
        "key": {"type": "string"},
        "a": [{"token": "[redacted]"}],
    }
    inners: tuple[Any, ...] = (True, [], {})
    for inner in inners:
        assert hide_secrets(nested(inner, 100), ()) == nested(inner, 100)
        assert hide_secrets(nested(inner, 5000), ()) == nested("… (nested too deeply)", 101)


def test_the_last_requests_have_a_bound(tmp_path: Path) -> None:
    ids = [f"req_{index:024x}" for index in range(9)]
    for recent in (Recent(most=3), Recent(str(tmp_path), most=3)):
        for id in ids:
            recent.add(id, RequestRecord({"id": id}, None, None, None, None), ())
        assert [entry["id"] for entry in recent.entries()] == ids[:5:-1]
        assert recent.find(ids[0]) is None
        assert recent.find(ids[8]) is not None
        assert recent.find("*") is None
    assert len(list(tmp_path.iterdir())) == 3
    large = Recent()
    for id in ids:
        large.add(id, RequestRecord({"id": id}, "x" * (4 << 20), None, None, None), ())  # too large to be kept whole
        large.add(f"{id[:-2]}f{id[-1]}", RequestRecord({"id": ""}, ["x" * 9000] * 440, None, None, None), ())
    assert len(large.entries()) == 16, "eight of 4 MB, and those between them, which are cut off"


def test_a_record_looks_the_same_in_memory_in_a_file_and_where_it_is_too_large(tmp_path: Path) -> None:
    secret = "known-one-of-the-caller"
    deep = nested("end", 200)
    ids = [f"req_{index:024x}" for index in range(3)]
    records = []
    for recent, more in ((Recent(), ""), (Recent(str(tmp_path)), ""), (Recent(), "x" * (4 << 20))):
        sent = {"text": [f"my {secret}", "é" * 9000], "api_key": "mine", "deep": deep}
        reply = {"content": secret, "more": more}
        entry = {"id": ids[0], "key": "team", "model": secret}
        recent.add(ids[0], RequestRecord(entry, sent, {"n": 1}, f"POST https://h/v1?key={secret}", reply), (secret,))
        data = recent.find(ids[0])
        assert data is not None
        assert secret.encode() not in data
        record = json.loads(data)
        assert record["reply"].pop("more")[:8000] == more[:8000]
        assert recent.entries() == [record["entry"]] == [{"id": ids[0], "key": "team", "model": "[redacted]"}]
        records.append(record)
    assert records[0] == records[1] == records[2]
    assert secret not in (next(tmp_path.iterdir())).read_text()
    sent = records[0]["sent"]
    assert sent["text"] == ["my [redacted]", f"{'é' * 8000}… (9,000 characters)"]
    assert (sent["api_key"], sent["deep"]) == ("[redacted]", nested("… (nested too deeply)", 100))


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="this system has no limit of a file's size")
def test_a_request_that_finds_no_place_on_the_disk_leaves_nothing_there(tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom cnllm.gateway.monitoring.recent import Recent, RequestRecord\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\nrecent = Recent(sys.argv[1])\n"
        "for id, text in (('req_1', 'x' * 5000), ('req_2', 'x')):\n"
        "    recent.add(id, RequestRecord({'id': text}, None, None, None, None), ())"
    )
    process = program(code, str(tmp_path))
    assert process.communicate(timeout=60)[1] == ""
    assert [path.name.partition("-")[2] for path in tmp_path.iterdir()] == ["req_2.json"]


def test_without_metrics_there_is_no_page_of_them() -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    for options, status in (((), 200), (("--no-metrics",), 404)):
        with serving("--simulate", "--key", KEY, "--store", "memory:", *options) as (_, url):
            assert httpx.get(f"{url}/metrics", headers=headers).status_code == status


UI = Path(monitoring.__file__).parent / "ui"


def run_ui(tmp_path: Path, language: str, code: str) -> Any:
    """Run the scripts of the page over a document that holds no more than what they set, and return what `code` is."""
    stub = (
        "const node = () => ({dataset: {}, children: [], append(...all) { this.children.push(...all); }, "
        "addEventListener() {}, replaceChildren() {}, setAttribute() {}});\n"
        "globalThis.document = {documentElement: node(), createElement: node, getElementById: node,\n"
        "title: '', querySelectorAll: () => []};\n"
        f"Object.defineProperty(globalThis, 'navigator', {{value: {{language: {language!r}}}}});\n"
        "globalThis.setInterval = () => {};\n"
        "globalThis.fetch = async () => ({ok: true, json: async () => []});\n"
        "const shown = value => value?.textContent ?? (value?.children ?? []).map(shown).join('');\n"
    )
    scripts = "\n".join((UI / name).read_text(encoding="utf-8") for name in ("words.js", "page.js"))
    path = tmp_path / "ui.js"
    path.write_text(f"{stub}{scripts}\nconsole.log(JSON.stringify({code}));\n", encoding="utf-8")
    done = subprocess.run(
        ["node", str(path)], capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC"}
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_page_shows_day_key_and_cost_and_no_path_as_a_model(tmp_path: Path) -> None:
    entry = {
        "time": 1795000000, "status": 200, "key": "team-a", "model": "zai/glm-4.7", "path": "/v1/x", "notes": [],
        "seconds": 1, "protocol": "openai-chat", "usage": {"input": 1, "output": 2},
    }  # fmt: skip
    cost = {"amount": "0.0002", "currency": "USD"}
    rows = [
        {**entry, "cost": cost},
        {**entry, "cost": {**cost, "missing": ["tools"]}},
        entry | {"model": "", "key": ""},
        entry | {"notes": [{"code": "simulated"}]},
    ]
    code = f"{json.dumps(rows)}.map(entry => row(entry).children.map(shown))"
    exact, bound, bare, simulated = run_ui(tmp_path, "en", code)
    assert exact[0].startswith("18 Nov 2026, ")
    assert exact[1:4] == ["200", "team-a", "zai/glm-4.7"]
    assert (exact[8], bound[8], bare[8]) == ("0.0002 USD", "≥ 0.0002 USD", "?")
    assert simulated[8] == "simulated"
    assert bare[2:4] == ["–", "–"], "a path is no model"
    assert run_ui(tmp_path, "zh-CN", code)[0][0].startswith("2026年11月18日")
    assert run_ui(tmp_path, "zh-CN", "document.documentElement.lang") == "zh-CN"


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_page_shows_the_models_that_a_key_may_use(tmp_path: Path) -> None:
    bound = KeyRecord("bound", 1.0, models=("zhipuai/*", "deepseek/deepseek-chat"))
    uses = [KeyUse(record) for record in (bound, KeyRecord("free", 1.0))]
    code = f"{json.dumps([use_data(use) for use in uses])}.map(used)"
    assert run_ui(tmp_path, "en", code) == ["models zhipuai/*, deepseek/deepseek-chat", "no limit"]
    assert run_ui(tmp_path, "zh-CN", code) == ["模型 zhipuai/*、deepseek/deepseek-chat", "没有限额"]


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_page_shows_why_a_host_was_asked_first_and_what_the_others_scored(tmp_path: Path) -> None:
    hosts = [
        HostRecord(name, tuple(HostTurn(0.0, "tool" if number < failed else "") for number in range(40)), cost=cost)
        for name, failed, cost in (("one/m", 40, 1.0), ("two/m", 0, 1.1))
    ]
    order = order_hosts([*hosts, HostRecord("three/m", cost=2.0)], RouteState(), 1.0)
    choice = {"time": 1795000000, "first": "two/m", "reason": order.reason, "scores": msgspec.to_builtins(order.scores)}
    code = (
        f"(choice => choice.scores.map(score => hostRow(choice, score).children.map(shown)))({json.dumps(choice)})"
        ".map(cells => cells.map(cell => cell ?? ''))"
    )
    one, two, three = run_ui(tmp_path, "en", code)
    assert one == ["one/m", "40", "40 (99 to 100 %)", "", "1.00 ×", "3.00", ""]
    assert two[:6] == ["two/m", "40", "0 (0 to 1 %)", "", "1.10 ×", "1.10"]
    assert two[6].startswith("asked first: it is shown to be better (18 Nov 2026, ")
    assert three == ["three/m", "0", "", "", "", "", ""]
    assert run_ui(tmp_path, "zh-CN", code)[1][6].startswith("首选：数据表明它更好（2026年11月18日")
    source = Path(host_order.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'"((?:it|no other host) [a-z ]+)"', source))
    assert len(reasons) == 4
    assert run_ui(tmp_path, "zh", f"{json.dumps(sorted(reasons))}.filter(text => !ZH[text])") == []


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_every_text_of_the_page_is_there_in_chinese(tmp_path: Path) -> None:
    pages = "".join((UI / name).read_text(encoding="utf-8") for name in ("page.html", "login.html"))
    texts = set(re.findall(r"<(?:title|h\d|th|label|button|p)\b[^>]*>([^<]+)<", pages)) - {"…"}
    texts |= set(re.findall(r'aria-label="([^"]+)"', pages))
    script = (UI / "page.js").read_text(encoding="utf-8")
    texts |= set(re.findall(r'\bt\((?:[^()"`]* \? )?"([^"]+)"', script)) | set(
        re.findall(r'^ *\["([A-Z][^"]+)", ', script, re.M)
    )
    assert len(texts) > 30
    found = run_ui(tmp_path, "zh", f"{json.dumps(sorted(texts))}.filter(text => !ZH[text])")
    assert found == []
