"""What a gateway does when it ends, when its first process is killed, and when its files are moved or deleted."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import AsyncClient
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.limits.keys import Rights
from cnllm.gateway.limits.limiter import Limiter
from cnllm.gateway.limits.sqlite_book import book_path
from cnllm.gateway.server import running

from .limits_support import Counting, book_with, cny, code_of, in_use, run, sqlite_url
from .support import KEY, Answer, Upstream, registry_for, say
from .test_http import BODIES, PATHS, serving

HEADERS = {"authorization": f"Bearer {KEY}"}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """The processes of a gateway with several."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("no list of children here")
    return [int(child) for child in path.read_text().split()]


def is_refused(host: str, port: int) -> bool:
    """Whether nobody listens."""
    try:
        socket.create_connection((host, port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


# ── replies that run ──────────────────────────────────────────────────────────
@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "anthropic-messages"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_that_outlasts_the_server_ends_with_an_error_of_the_protocol(
    protocol: str, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cnllm.gateway.server._DRAIN_SECONDS", 0.2)
    caplog.set_level(logging.INFO)
    go = threading.Event()
    upstream = Upstream(Answer([{"content": "Hel"}, {"content": "lo"}], wait=go, lasts=False, pause=5))
    registry = registry_for(upstream, tmp_path, "zai")
    client = AsyncClient(registry, api_key="the-key-of-the-provider")
    answers: list[httpx.Response] = []
    begun = threading.Event()
    body = {**BODIES[protocol], "model": "glm-4.7", "stream": stream}

    def ask(url: str) -> None:
        with httpx.stream("POST", url + PATHS[protocol], json=body, headers=HEADERS, timeout=30) as response:
            begun.set()
            response.read()
            answers.append(response)

    with running(Gateway(registry, client=client, keys=[KEY])) as url:
        thread = threading.Thread(target=ask, args=(url,))
        thread.start()
        if stream:
            assert begun.wait(30)
        else:
            until(lambda: bool(upstream.bodies))
    go.set()
    thread.join(30)
    (answer,) = answers
    assert "the gateway was stopped" in answer.text
    if stream:
        assert '"Hel"' in answer.text
        last = json.loads(answer.text.strip().rpartition("data: ")[2])
        assert last.get("error") or last["response"]["error"]
    else:
        assert answer.status_code in (503, 529)
        assert "error" in answer.json()
    assert not [record for record in caplog.records if record.exc_info]
    (line,) = [json.loads(r.getMessage()) for r in caplog.records if r.name == "cnllm.gateway" and r.levelno == 20]
    assert line["outcome"] == "the server stopped"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a process cannot be stopped here")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_requests_that_wait_when_the_server_stops_are_answered(workers: str) -> None:
    """Without it a restart under load resets connections whose requests nobody has read."""
    content = json.dumps(BODIES["openai-chat"]).encode()
    head = f"POST {PATHS['openai-chat']} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
    request = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
    with contextlib.ExitStack() as stack:
        process, url = stack.enter_context(serving("--simulate", "--key", KEY, "--workers", workers))
        assert httpx.get(f"{url}/readyz").status_code == 200
        host, _, port = url.removeprefix("http://").partition(":")
        servers = [process.pid] if workers == "1" else children(process.pid)
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        clients = [stack.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(50)]
        for client in clients:
            client.sendall(request)
        process.terminate()
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        for client in clients:
            client.settimeout(30)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert process.wait(30) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="other signals here")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_ctrl_c_breaks_the_replies_off_and_their_cost_is_counted(workers: str, tmp_path: Path) -> None:
    upstream = Upstream(say("Hello", wait=threading.Event(), lasts=False))
    config = tmp_path / "config"
    config.mkdir()
    (config / "providers.toml").write_text(
        f'[providers.mine]\nextends = "openai-compatible"\nbase_url = "{upstream.url}"\nkeys = ["THE_KEY"]\n'
        '[models."mine/any"]\nprice = {currency = "CNY", input = 2, output = 8}\n'
        "limits = {context = 100000, output = 8000}\n"
    )
    url_of_store = sqlite_url(tmp_path)
    book, key, _ = book_with(url_of_store, budgets={"CNY": cny("100")})
    env = {"CNLLM_CONFIG_DIR": str(config), "CNLLM_DATA_DIR": str(tmp_path), "THE_KEY": "sk-of-the-provider"}
    body = {**BODIES["openai-chat"], "model": "mine/any", "stream": True}
    arguments = ("--key", KEY, "--workers", workers, "--store", url_of_store)
    with (
        serving(*arguments, env=env) as (process, url),
        httpx.stream(
            "POST", url + PATHS["openai-chat"], json=body, headers={"authorization": f"Bearer {key}"}, timeout=60
        ) as response,
    ):
        pieces = response.iter_text()
        text = next(pieces)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        host, _, port = url.removeprefix("http://").partition(":")
        until(lambda: is_refused(host, int(port)))  # it has begun to stop
        process.send_signal(signal.SIGINT)
        text += "".join(pieces)
        assert process.wait(20) == 0
        assert time.monotonic() - start < 15, "without it the stream goes on for 20 seconds"
        assert process.stderr is not None
        said = process.stderr.read()
    assert "the gateway was stopped" in text
    assert "Traceback" not in said, said
    use = in_use(book)
    book.close()
    assert use.spent["CNY"] > 0
    assert not any(use.open.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="one process here")
def test_no_connection_waits_for_workers_that_stop(tmp_path: Path) -> None:
    """A balancer, or a client that tries again, learns at once that nobody takes a request here."""
    go = threading.Event()
    upstream = Upstream(say("Hello", wait=go, lasts=False))
    config = tmp_path / "config"
    config.mkdir()
    (config / "providers.toml").write_text(
        f'[providers.mine]\nextends = "openai-compatible"\nbase_url = "{upstream.url}"\nkeys = ["THE_KEY"]\n'
    )
    env = {"CNLLM_CONFIG_DIR": str(config), "CNLLM_DATA_DIR": str(tmp_path), "THE_KEY": "sk-of-the-provider"}
    body = {**BODIES["openai-chat"], "model": "mine/any", "stream": True}
    with (
        serving("--key", KEY, "--workers", "2", env=env) as (process, url),
        httpx.stream("POST", url + PATHS["openai-chat"], json=body, headers=HEADERS, timeout=60) as response,
    ):
        pieces = response.iter_text()
        text = next(pieces)
        host, _, port = url.removeprefix("http://").partition(":")
        start = time.monotonic()
        process.terminate()

        until(lambda: is_refused(host, int(port)))
        assert time.monotonic() - start < 15, "the stream goes on by itself after 20 seconds"
        assert process.poll() is None
        go.set()
        text += "".join(pieces)
        assert "[DONE]" in text
        assert process.wait(30) == 0


def test_workers_end_with_the_first_process(tmp_path: Path) -> None:
    """Nobody would replace them or let them read files again, and they would keep the port."""
    with serving("--simulate", "--key", KEY, "--workers", "2") as (process, url):
        workers = children(process.pid)
        assert len(workers) == 2
        assert httpx.get(f"{url}/healthz", timeout=30).status_code == 200
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        until(lambda: not any(_runs(worker) for worker in workers))
        port = url.rpartition(":")[2]
        with serving("--simulate", "--key", KEY, "--port", port) as (_, again):
            assert httpx.get(f"{again}/healthz", timeout=30).status_code == 200


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ── files that are moved or deleted ───────────────────────────────────────────
def test_the_log_goes_on_in_the_file_at_its_path(tmp_path: Path) -> None:
    log, old = tmp_path / "log", tmp_path / "log.1"
    with serving("--simulate", "--key", KEY, "--store", "memory:", "--log", str(log)) as (_, url):

        def ask(name: str) -> None:
            httpx.get(f"{url}/v1/models/{name}", headers=HEADERS, timeout=30)
            until(lambda: log.exists() and name in log.read_text())

        ask("first-one")
        log.rename(old)
        ask("second-one")
        log.unlink()
        ask("third-one")
    assert [json.loads(line)["path"] for line in old.read_text().splitlines()] == ["/v1/models/first-one"]
    assert [json.loads(line)["path"] for line in log.read_text().splitlines()] == ["/v1/models/third-one"]
    if os.name == "posix":
        assert log.stat().st_mode & 0o777 == 0o600


def answer(url: str, key: str, client: Any = httpx) -> httpx.Response:
    body: dict[str, Any] = BODIES["openai-chat"]
    headers = {"authorization": f"Bearer {key}"}
    response: httpx.Response = client.post(url + PATHS["openai-chat"], json=body, headers=headers, timeout=30)
    return response


def status(url: str, key: str) -> int:
    return answer(url, key).status_code


def test_another_file_of_keys_at_the_path_is_the_one_that_counts(tmp_path: Path) -> None:
    """A backup that is restored: a key that is revoked in it is refused, and calls are counted there."""
    store = sqlite_url(tmp_path)
    book, key, _ = book_with(store, budgets={"CNY": cny("1")})
    with serving("--simulate", "--store", store) as (_, url):
        assert status(url, key) == 200
        until(lambda: book.uses()[0].calls == 1)
        book.close()
        path = Path(book.path)  # type: ignore[attr-defined]
        backup = path.with_name("backup.db")
        with sqlite3.connect(path) as source, sqlite3.connect(backup) as target:
            source.backup(target)
        source.close()
        target.close()
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.replace(backup, path)
        assert status(url, key) == 200
        until(lambda: book.uses()[0].calls == 2)
        book.revoke("team")
        until(lambda: status(url, key) == 401)
    book.close()


def test_a_file_of_keys_that_has_gone_lets_nobody_pass(tmp_path: Path) -> None:
    """Nobody knows what is spent: that is no answer about the key, and none about a budget."""
    store = sqlite_url(tmp_path)
    book, key, _ = book_with(store, budgets={"CNY": cny("1")})
    with serving("--simulate", "--store", store, "--workers", "2") as (process, url):
        assert status(url, key) == 200
        book.close()
        path = Path(book.path)  # type: ignore[attr-defined]
        moved = [(file, file.with_name(f"moved-{file.name}")) for file in path.parent.glob(f"{path.name}*")]
        for file, place in moved:
            file.rename(place)
        until(lambda: {status(url, key) for _ in range(6)} == {503})
        for file, place in moved:
            place.rename(file)
        until(lambda: status(url, key) == 200)
        process.terminate()
        assert process.stderr is not None
        assert f"requests of keys with limits are refused: {path} has gone" in process.stderr.read()
        assert book.uses()[0].calls >= 1
        book.close()


@pytest.mark.parametrize("is_in_file", [True, False])
def test_a_key_that_the_store_has_lost_is_not_called_wrong(tmp_path: Path, *, is_in_file: bool) -> None:
    """A client with a wrong key asks its user for another one. This key is right, and the store fails."""
    store, file = sqlite_url(tmp_path), tmp_path / "keys"
    path = book_path(store.removeprefix("sqlite:"))
    book, key, _ = book_with(store, rpm=100)
    if is_in_file:
        key = "sk-of-a-file-0123456789"
    file.write_text("sk-of-a-file-0123456789 --name filed --rpm 100\n")
    with serving("--simulate", "--store", store, "--keys-file", str(file)) as (process, url):
        assert status(url, key) == 200
        book.close()
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM keys")
        until(lambda: status(url, key) == 503)
        with httpx.Client() as client:
            for _ in range(200):  # more than an address may send of wrong keys
                refused = answer(url, key, client)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
                assert "the store of the gateway's keys fails" in refused.json()["error"]["message"]
        assert status(url, f"{key}x") == 401
        if is_in_file:
            process.send_signal(signal.SIGHUP)  # it writes the keys of the file again
            until(lambda: status(url, key) == 200)
        process.terminate()
        assert process.stderr is not None
        assert "requests of keys with limits are refused: the store has lost a key" in process.stderr.read()


def test_a_store_that_loses_a_key_while_it_is_used_does_not_call_it_revoked(tmp_path: Path) -> None:
    path = book_path(sqlite_url(tmp_path).removeprefix("sqlite:"))
    book, _, digest = book_with(sqlite_url(tmp_path), rpm=100)

    async def steps(limiter: Limiter, rights: Rights, counting: Counting) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM keys")
        assert (await code_of(limiter.admit(digest, rights))).startswith("keys_unavailable: ")

    run(sqlite_url(tmp_path), digest, steps)
    book.close()


def test_a_folder_of_metrics_that_was_removed_stops_no_request_and_no_process(tmp_path: Path) -> None:
    metrics, log = tmp_path / "metrics", tmp_path / "log"
    metrics.mkdir()
    env = {"PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    arguments = ("--simulate", "--key", KEY, "--workers", "2", "--log", str(log), "--max-held", "1")
    model = {"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "x" * 300_000}]}

    def ask(url: str) -> int:
        return httpx.post(f"{url}/v1/chat/completions", json=model, headers=HEADERS, timeout=30).status_code

    with serving(*arguments, env=env) as (process, url):
        until(lambda: len(list(metrics.iterdir())) == 2)  # both processes serve
        shutil.rmtree(metrics)
        assert [ask(url) for _ in range(12)] == [200] * 12  # nothing of their bodies stays counted
        until(lambda: len(log.read_text().splitlines()) == 12)
        refused = httpx.get(f"{url}/metrics", headers=HEADERS)
        assert refused.status_code == 500
        assert refused.json()["error"]["message"].startswith("the metrics cannot be read")
        killed = children(process.pid)
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(running := children(process.pid)) == 2 and not set(killed) & set(running))
        until(lambda: metrics.exists() and len(list(metrics.iterdir())) == 2)
        assert ask(url) == 200
        assert httpx.get(f"{url}/metrics", headers=HEADERS).status_code == 200


# ── signals while it starts ───────────────────────────────────────────────────
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM"])
def test_a_signal_at_the_moment_the_port_opens_has_its_meaning(name: str, workers: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "cnllm",
        "serve",
        "--simulate",
        "--no-key",
        "--port",
        str(port),
        "--workers",
        workers,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            while is_refused("127.0.0.1", port):
                assert process.poll() is None
            process.send_signal(getattr(signal, name))
            if name == "SIGHUP":
                assert process.stdout is not None
                assert process.stdout.readline() == f"http://127.0.0.1:{port}\n"
                until(lambda: httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=30).status_code == 200)
        finally:
            process.terminate()
            assert process.wait(30) == 0
