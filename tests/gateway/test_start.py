"""A gateway starts right or not at all, and its store may fail while it runs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import cnllm
from cnllm.errors import CnllmError
from cnllm.gateway.access import digest
from cnllm.gateway.access_log import LineHandler
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.bounds import Bounds
from cnllm.gateway.limits.book import open_book
from cnllm.gateway.limits.keys import KeyRecord, new_key
from cnllm.gateway.server import running
from cnllm.gateway.store.items import Item
from cnllm.gateway.store.memory import MemoryStore

from .store_support import program
from .support import KEY, ChatClient, Upstream, call, gateway_for, say
from .test_http import serving
from .test_store_redis import closed_port

RESPONSES = "/v1/responses"
BODY = {"model": "deepseek/deepseek-v4-flash", "input": "Hi"}

START = """
import contextlib, io, json, os, sys
from cnllm.cli.app import run
for line in sys.stdin:
    arguments, variables = json.loads(line)
    out, error = io.StringIO(), io.StringIO()
    os.environ.update(variables)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            status = run(["serve", "--simulate", *arguments])
        except SystemExit as end:
            status = end.code
    for name in variables:
        del os.environ[name]
    print(json.dumps([status, out.getvalue(), error.getvalue()]))
"""


def test_each_wrong_option_is_named_at_the_start(tmp_path: Path) -> None:
    """Every case has a port in use, so that one which is not refused ends with another message."""
    junk, other, blank, none = (tmp_path / name for name in ("junk.db", "other.db", "blank", "none"))
    junk.write_bytes(os.urandom(5000))
    (tmp_path / "book-keys.db").write_bytes(os.urandom(5000))
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        raw.execute("CREATE TABLE x (a)")
    raw.close()
    blank.write_text(f"# keys\n{KEY}\na key of four words\n")
    none.write_text("# no key\n")
    key = ["--key", KEY]
    closed = closed_port()
    cases: list[tuple[list[str], dict[str, str], list[str]]] = [
        ([*key, "--store", f"sqlite:{junk}"], {}, ["--store", str(junk), "not a database", "move it"]),
        (["--store", f"sqlite:{junk}"], {}, ["--store", str(junk), "not a database"]),
        (["--no-key", "--store", f"sqlite:{junk}"], {}, ["--store", str(junk), "not a database"]),
        ([*key, "--store", f"sqlite:{tmp_path}/book.db"], {}, ["--store", "book-keys.db", "not a database"]),
        ([*key, "--store", f"sqlite:{other}"], {}, ["--store", "another program"]),
        ([*key, "--store", f"sqlite:{tmp_path}"], {}, ["--store", str(tmp_path)]),
        ([*key, "--store", "sqlite:/proc/nowhere/a.db"], {}, ["--store", "/proc/nowhere"]),
        ([*key], {"CNLLM_DATA_DIR": "/proc/nowhere"}, ["--store", "/proc/nowhere"]),
        ([*key, "--store", "nonsense"], {}, ["--store", "sqlite:PATH"]),
        ([*key, "--store", ""], {}, ["--store is empty"]),
        ([*key, "--store", f"redis://:pass%40word@127.0.0.1:{closed}/0"], {}, ["--store", f"127.0.0.1:{closed}"]),
        (["--no-key", "--store", f"redis://127.0.0.1:{closed}"], {}, ["--store", f"127.0.0.1:{closed}"]),
        ([*key, "--store", "redis://no-such-host.invalid"], {}, ["--store", "no-such-host.invalid"]),
        ([*key, "--store", "redis://127.0.0.1:99999999"], {}, ["--store", "redis://:PASSWORD@HOST:PORT/DB"]),
        ([*key, "--store", "redis://127.0.0.1/first"], {}, ["--store", "redis://:PASSWORD@HOST:PORT/DB"]),
        ([*key, "--store", f"unix://{tmp_path}/no.sock"], {}, ["--store", "no.sock"]),
        (["--key", "a key"], {}, ["--key", "blank", "letters, digits"]),
        (["--key", f"{KEY}\n"], {}, ["--key", "line break", "letters, digits"]),
        (["--key", f" {KEY}"], {}, ["--key", "blank"]),
        (["--key", ""], {}, ["--key", "empty"]),
        (["--key", "schlüssel-12345"], {}, ["--key", "ASCII"]),
        (["--key", "a\x01b"], {}, ["--key", "ASCII"]),
        ([], {"CNLLM_SERVE_KEY": "a key"}, ["CNLLM_SERVE_KEY", "blank"]),
        ([*key, "--admin-key", "a\tkey"], {}, ["--admin-key", "blank"]),
        ([*key, "--admin-key", ""], {}, ["--admin-key", "empty"]),
        (key, {"CNLLM_ADMIN_KEY": "a key"}, ["CNLLM_ADMIN_KEY", "blank"]),
        (["--keys-file", "/nowhere/keys"], {}, ["--keys-file /nowhere/keys", "No such file"]),
        (["--keys-file", ""], {}, ["--keys-file"]),
        (["--keys-file", str(junk)], {}, ["--keys-file", str(junk), "UTF-8"]),
        (["--keys-file", str(none)], {}, ["--keys-file", "holds no key"]),
        (["--keys-file", str(blank)], {}, [f"--keys-file {blank}:3", "blank"]),
        ([*key, "--map", "nothing"], {}, ["--map nothing", "PATTERN=MODEL"]),
        ([*key, "--map", "a=no-such-model-anywhere"], {}, ["--map a=no-such-model-anywhere"]),
        ([*key, "--map", "a=glm-4.7", "--map", "a=deepseek-v4-pro"], {}, ["--map", "two models for a"]),
        (key, {}, ["port {port}", "in use", "--port N"]),
        ([*key, "--port", "70000"], {}, ["--port"]),
        ([*key, "--public", "--host", "no-such-host.invalid"], {}, ["no-such-host.invalid", "--host"]),
        ([*key, "--public", "--host", "192.0.2.1"], {}, ["192.0.2.1", "--host"]),
        ([*key, "--host", "0.0.0.0"], {}, ["--host 0.0.0.0", "--public"]),
        ([*key, "--host", ""], {}, ["--host is empty"]),
        (["--public", "--no-key"], {}, ["--public without a key"]),
        ([*key, "--no-key"], {}, ["--no-key with a key"]),
        (["--no-key", "--ui"], {}, ["--ui", "--admin-key"]),
        ([*key, "--public-url", "https://llm.example.org"], {}, ["--public-url", "--public"]),
        ([*key, "--public", "--public-url", "llm.example.org"], {}, ["--public-url", "https://"]),
        ([*key, "--public", "--public-url", "https://llm.example.org/path"], {}, ["--public-url", "https://"]),
        ([*key, "--workers", "0"], {}, ["--workers"]),
        ([*key, "--workers", "2", "--store", "memory:"], {}, ["--store memory:", "redis://"]),
        ([*key, "--trusted-proxy", "balancer"], {}, ["--trusted-proxy", "10.0.0.0/8"]),
        ([*key, "--trusted-proxy", "10.0.0.0/99"], {}, ["--trusted-proxy"]),
        ([*key, "--head-timeout", "0"], {}, ["--head-timeout"]),
        ([*key, "--body-timeout", "nan"], {}, ["--body-timeout"]),
        ([*key, "--idle-timeout", "inf"], {}, ["--idle-timeout"]),
        ([*key, "--max-connections", "0"], {}, ["--max-connections"]),
        ([*key, "--log", "/nowhere/log"], {}, ["--log /nowhere/log"]),
        (key, {"CNLLM_TRANSPORT": "carrier-pigeon"}, ["CNLLM_TRANSPORT", "httpx"]),
        (key, {"CNLLM_GATEWAY_KEY": "short"}, ["CNLLM_GATEWAY_KEY", "make one with"]),
        (key, {"CNLLM_ATTEMPTS": "many"}, ["CNLLM_ATTEMPTS"]),
        (key, {"CNLLM_CONFIG_DIR": "/proc/nowhere"}, ["/proc/nowhere"]),
    ]
    names = ("CONFIG", "CACHE", "DATA")
    folders = {f"CNLLM_{name}_DIR": str(tmp_path / name.lower()) for name in names}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        lines = [json.dumps([["--port", port, *arguments], variables]) for arguments, variables, _ in cases]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CNLLM_")} | folders
        done = subprocess.run(
            [sys.executable, "-c", START],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases), done.stderr
    for (arguments, variables, words), (status, out, error) in zip(cases, results, strict=True):
        assert status == 2, (arguments, variables, error)
        assert out == ""
        for word in words:
            assert word.format(port=port) in error, (arguments, variables, error)
        assert "pass" not in error.replace("PASSWORD", ""), "a password is shown"
        assert "four words" not in error, "a key is shown"
        assert "bug in cnllm" not in error


class FlappingStore(MemoryStore):
    """A store that fails for one request, and works again for another one before the first takes its result."""

    failure = None

    def _keep(self, items: Sequence[Item]) -> list[bool | None]:  # type: ignore[override]
        return [None] * len(items)

    def _find(self, keys: Sequence[bytes]) -> None:  # type: ignore[override]
        return None


def test_a_failure_that_another_request_ended_is_in_the_notes(tmp_path: Path) -> None:
    upstream = Upstream(call("Paris"))
    with gateway_for(upstream, tmp_path, "deepseek", store=FlappingStore()) as http:
        client = ChatClient(http, BODY["model"], stream=False)
        for turn in range(2):
            client.user("Weather?")
            ((id, _),) = client.send()
            client.result(id, "sunny")
            assert client.response is not None
            request = client.response.headers["x-request-id"]
            notes = http.get(f"/v1/requests/{request}").json()["notes"]
            lost = [note["did"] for note in notes if note["code"] == "state-unavailable"]
            searched = ["went on without what it keeps"] if turn else []
            assert lost == [*searched, "the reasoning and the calls of the reply were not kept"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named_at_the_start(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\nfrom cnllm.cli.app import run\n"
        "sys.dont_write_bytecode = True\n"  # Python would leave a cut file of a module that is compiled now
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.exit(run(['serve', '--simulate', '--key', 'a-key', '--store', 'sqlite:' + sys.argv[1]]))"
    )
    process = program(code, str(tmp_path / "a.db"))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2, error
    assert "--store" in error
    assert "disk" in error


def test_the_application_raises_for_what_it_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = tmp_path / "junk.db"
    junk.write_bytes(os.urandom(5000))
    app: Callable[..., Any] = cnllm.gateway.app
    for options, words in (
        ({"store": f"sqlite:{junk}"}, "not a database"),
        ({"store": f"redis://127.0.0.1:{closed_port()}"}, "127.0.0.1"),
        ({"store": "nonsense"}, "store"),
        ({"keys": ["a key"]}, "keys: .* blank"),
        ({"keys": ["ok", "a\n"]}, "keys: .* line break"),
        ({"keys": KEY}, "keys"),
        ({"keys": [b"bytes"]}, "keys"),
        ({"admin_key": "a key"}, "admin_key"),
        ({"hosts": "localhost"}, "hosts"),
        ({"public_url": "llm.example.org"}, "llm.example.org"),
        ({"models": {"a": "no-such-model"}}, "no-such-model"),
        ({"trusted_proxies": ["balancer"]}, "balancer"),
    ):
        with pytest.raises((CnllmError, ValueError, TypeError), match=words):
            app(**{"simulate": True, "keys": [KEY], **options})
    for name in ("head_seconds", "requests", "client_share"):
        for value in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=name):
                Bounds(**{name: value})  # type: ignore[arg-type]
    monkeypatch.setenv("CNLLM_GATEWAY_KEY", "short")
    with pytest.raises(CnllmError, match="CNLLM_GATEWAY_KEY"):
        app(simulate=True, keys=[KEY])


def test_the_application_takes_the_keys_of_its_store_beside_its_own(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'state.db'}"
    book = open_book(store)
    assert book is not None
    book.add(digest(key := new_key()), KeyRecord("ada", time.time()))
    book.close()
    with running(cnllm.gateway.app(simulate=True, keys=[KEY], store=store)) as url, httpx.Client(base_url=url) as http:
        for word, status in ((KEY, 200), (key, 200), (new_key(), 401)):
            assert http.get("/v1/models", headers={"authorization": f"Bearer {word}"}).status_code == status


def test_the_application_closes_a_websocket() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(cnllm.gateway.app(simulate=True, keys=[KEY])({"type": "websocket", "path": "/v1"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1000}]


def test_a_transport_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_TRANSPORT", "fast")
    monkeypatch.setattr("cnllm.transports._has_httptools", lambda: False)
    with pytest.raises(CnllmError, match="CNLLM_TRANSPORT=fast"):
        cnllm.gateway.app(keys=[KEY])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("content", ["{", '["sk-1"]', '{"DEEPSEEK_API_KEY": 1}', None])
def test_a_keys_file_that_breaks_while_the_gateway_runs_is_no_fault_of_the_client(
    content: str | None, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CNLLM_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    file = tmp_path / "keys.json"
    with running(Gateway(keys=[KEY])) as url:
        if content is None:
            file.mkdir()  # it cannot be read
        else:
            file.write_text(content)
        headers = {"authorization": f"Bearer {KEY}"}
        response = httpx.post(f"{url}{RESPONSES}", headers=headers, json={**BODY, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, "internal_error")
    assert response.headers["x-should-retry"] == "false"
    assert "keys" not in response.text
    id = response.headers["x-request-id"]
    assert id in error["message"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "cnllm.gateway"]
    assert line.startswith(f"{id}: ")
    assert str(file) in line
    assert "; " in line  # what to do


# ── the store fails while the gateway runs ───────────────────────────────────
def test_a_store_that_is_away_is_not_an_answer_about_a_response(tmp_path: Path) -> None:
    if (path := shutil.which("redis-server")) is None:
        pytest.skip("redis-server is not installed")
    port = closed_port()
    command = [path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            upstream = Upstream(say("hello"))
            with gateway_for(upstream, tmp_path, "deepseek", store=f"redis://127.0.0.1:{port}/0") as http:
                answer = http.post(RESPONSES, json=BODY)
                assert "x-cnllm-store" not in answer.headers
                id = answer.json()["id"]
                assert http.get(f"{RESPONSES}/{id}").status_code == 200
                server.kill()
                server.wait()
                for answer in (
                    http.get(f"{RESPONSES}/{id}"),
                    http.get(f"{RESPONSES}/{id}/input_items"),
                    http.delete(f"{RESPONSES}/{id}"),
                    http.post(RESPONSES, json={**BODY, "previous_response_id": id}),
                    http.get(f"{RESPONSES}/resp_of_nobody"),
                ):
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["error"]["code"] == "store_unavailable"
                    assert answer.headers["retry-after"] == "2"
                assert len(upstream.bodies) == 1, "the model was asked without the conversation"
                answer = http.post(RESPONSES, json=BODY)
                assert answer.status_code == 200
                assert answer.headers["x-cnllm-store"] == "failed"
                notes = http.get(f"/v1/requests/{answer.headers['x-request-id']}").json()["notes"]
                assert [note["code"] for note in notes if note["code"] == "state-unavailable"]
                streamed = http.post(RESPONSES, json={**BODY, "stream": True})
                assert "response.completed" in streamed.text
                notes = http.get(f"/v1/requests/{streamed.headers['x-request-id']}").json()["notes"]
                assert [note["code"] for note in notes if note["code"] == "state-unavailable"]
                plain = {"model": BODY["model"], "messages": [{"role": "user", "content": "Hi"}]}
                answer = http.post("/v1/chat/completions", json=plain)  # a client keeps such a turn whole
                assert answer.json()["choices"][0]["message"]["content"] == "hello"
                notes = http.get(f"/v1/requests/{answer.headers['x-request-id']}").json()["notes"]
                assert [note["code"] for note in notes if note["code"] == "state-unavailable"] == []
        finally:
            server.kill()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_costs_one_line(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with serving("--simulate", "--key", KEY, "--store", "memory:", "--log", str(tmp_path / "log")) as (process, url):
        for _ in range(20):
            assert httpx.get(f"{url}/v1/models/glm-4.7", headers={"x-api-key": KEY}, timeout=30).status_code == 200
        process.terminate()
        process.wait(20)
        assert process.stderr is not None
        simulated, *lines = process.stderr.read().splitlines()
    assert "every answer is made up" in simulated
    assert len(lines) == 1, lines
    assert "No space left" in lines[0]
    assert "log" in lines[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_that_fails_again_within_a_minute_says_so_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "log"
    handler = LineHandler(str(log))
    for target in ("/dev/full", str(tmp_path / "file"), "/dev/full"):
        log.unlink()
        log.symlink_to(target)
        for _ in range(2):
            handler.emit(logging.LogRecord("", logging.INFO, "", 0, "{}", (), None))
    said = [message.removeprefix(str(log)) for message in caplog.messages]
    lost = " cannot be written: No space left on device; lines of the log lost: 1"
    assert said == [lost, " is written again; 2 lines of the log were lost", lost]


def test_a_line_that_another_process_tore_is_joined_by_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    handler = LineHandler(str(log))
    for line in ('{"id": 1}', '{"id": 2}'):
        with log.open("a") as file:  # as a worker does whose line finds no place on the disk
            file.write('{"id": ')
        handler.emit(logging.LogRecord("", logging.INFO, "", 0, line, (), None))
    handler.emit(logging.LogRecord("", logging.INFO, "", 0, '{"id": 3}', (), None))
    assert log.read_text() == '{"id": \n{"id": 1}\n{"id": \n{"id": 2}\n{"id": 3}\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["pipe", "-"])
def test_a_log_that_nobody_reads_stops_no_request(name: str, tmp_path: Path) -> None:
    """A reader of the log that stands still would stop the gateway, and its end, with the first pipe that is full."""
    reader = None
    if name != "-":
        os.mkfifo(tmp_path / name)
        reader = os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK)
    log = name if reader is None else str(tmp_path / name)
    with serving("--simulate", "--key", KEY, "--store", "memory:", "--log", log) as (process, url):
        with httpx.Client(base_url=url, headers={"x-api-key": KEY}, timeout=20) as http:
            for _ in range(500):  # a pipe holds some 300 lines
                assert http.get("/v1/models/glm-4.7").status_code == 200
        if reader is not None:
            assert os.read(reader, 1 << 20).count(b"/v1/models/glm-4.7") > 100
            os.close(reader)
        process.terminate()
        assert process.wait(20) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    if reader is None:
        assert said.count("/v1/models/glm-4.7") > 100
    else:
        assert f"{log} cannot be written" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_without_a_reader_is_named_at_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--key", KEY, "--log", str(tmp_path / "pipe")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--log" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_stderr_on_a_full_disk_stops_no_gateway() -> None:
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--key", KEY, "--store", "memory:", "--log", "-"]
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full, text=True) as process,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            for _ in range(20):
                response = httpx.get(f"{url}/v1/models/glm-4.7", headers={"x-api-key": KEY}, timeout=30)
                assert response.status_code == 200
        finally:
            process.terminate()
        assert process.wait(20) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_address_that_cannot_be_printed_is_an_error_in_one_line(workers: str, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'gateway.db'}"
    command = [sys.executable, "-m", "cnllm", "serve", "--simulate", "--key", KEY, "--store", store]
    command += ["--workers", workers]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "cnllm: stdout: No space left on device\n"


def test_the_same_fault_has_one_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        threads = 0
        failure = None

        def response(self, identity: str, id: str) -> bytes:
            raise RuntimeError("a fault of the gateway")

        def close(self) -> None: ...

    with gateway_for(Upstream(say("hello")), tmp_path, "deepseek", store=Broken()) as http:
        for _ in range(10):
            assert http.get(f"{RESPONSES}/resp_1").status_code == 500
    records = [record for record in caplog.records if "a fault of the gateway" in record.message]
    assert len(records) == 10
    assert sum(bool(record.exc_info) for record in records) == 1


# ── pages of the operator ────────────────────────────────────────────────────
@pytest.mark.parametrize("public_url", [None, "https://llm.example.org"])
def test_a_public_gateway_checks_the_origin_of_the_operators_pages(public_url: str | None) -> None:
    from cnllm.gateway.monitoring.recent import Recent

    gateway = Gateway(simulate=True, keys=[KEY], hosts=None, public_url=public_url, recent=Recent())
    login, form = "/ui/login", {"content-type": "application/x-www-form-urlencoded"}
    own = "llm.example.org"
    with running(gateway) as url, httpx.Client(base_url=url, timeout=30) as http:
        for origin, host, status in (
            ("http://evil.com", own, 403),
            (f"http://{own}.evil.com", own, 403),
            ("null", own, 403),
            ("http://", own, 403),
            ("http://evil.com", "evil.com", 403 if public_url else 303),  # its own name for this machine
            (f"https://{own}", own, 303),
            (f"https://{own}", "gateway:8641", 303 if public_url else 403),  # a proxy that sets another host
            (None, own, 303),
        ):
            headers = {"host": host, **form, **({} if origin is None else {"origin": origin})}
            answer = http.post(login, content=f"key={KEY}", headers=headers)
            assert answer.status_code == status, (origin, host, answer.text)
            if status == 403:
                assert "set-cookie" not in answer.headers
                assert http.post("/ui/logout", headers=headers).status_code == 403
                assert http.get("/metrics", headers={**headers, "x-api-key": KEY}).status_code == 403
        headers = {"origin": "https://app.example.com", "x-api-key": KEY, "host": own}
        assert http.get("/v1/models/glm-4.7", headers=headers).status_code == 200, "clients in browsers have a key"


def test_the_options_of_a_gateway_are_the_same_in_its_signature_its_settings_and_the_command() -> None:
    from cnllm.cli.commands.serve import serve
    from cnllm.gateway.asgi import GatewayOptions, GatewaySettings

    assert list(GatewayOptions.__annotations__) == list(GatewaySettings.__struct_fields__)
    command = {parameter.name for parameter in serve.params}
    names = {
        "hosts": "public",
        "public_url": "public_url",
        "trusted_proxies": "proxies",
        "call_log": "log_calls",
        "limited_keys": "keys_file",
        "admin_key": "admin_key",
        "metrics": "no_metrics",
        "recent": "ui",
        "spans": "otel",
    }
    objects = {"token_keys", "identity", "client", "ping", "bounds", "access_log", "key_book"}  # of Python alone
    assert set(names) | objects == set(GatewayOptions.__annotations__)
    assert set(names.values()) <= command
