"""Two gateways with one Redis server, as behind a load balancer: a conversation goes on where one of them dies."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .support import KEY, THOUGHT, Answer, ChatClient, MessagesClient, Upstream, call, say

SEALING_KEY = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("redis", reason="the package redis is not installed")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    from .test_store_redis import Server

    server = Server(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@contextlib.contextmanager
def machine(folder: Path, name: str, store: str, upstream: Upstream) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A gateway with files of its own, as on a machine of its own, and a client of it."""
    config = folder / name
    config.mkdir()
    (config / "providers.toml").write_text(
        f'[providers.here]\nextends = "deepseek"\nbase_url = "{upstream.url}"\nkeys = ["HERE_KEY"]\n'
        '[models."here/strict"]\nextends = "deepseek/deepseek-v4-pro"\n'
    )
    env = {**os.environ, "HERE_KEY": "sk-provider", "CNLLM_SERVE_KEY": KEY, "CNLLM_GATEWAY_KEY": SEALING_KEY}
    env |= {f"CNLLM_{kind}_DIR": str(config) for kind in ("CONFIG", "DATA")}
    command = [sys.executable, "-m", "cnllm", "serve", "--store", store, "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as http:
                yield process, http
        finally:
            process.kill()


@pytest.mark.parametrize("kind", [ChatClient, MessagesClient])
def test_a_conversation_goes_on_after_a_kill(kind: type[ChatClient], store: str, tmp_path: Path) -> None:
    """The second machine sends the endpoint all reasoning of the first, which the client does not have."""
    begins = Answer([{"reasoning_content": "Sunny"}, {"content": "In Bei"}], wait=threading.Event())
    city = f"Beijing {kind.__name__}"  # a conversation of its own
    upstream = Upstream(call(city), begins, call("上海"), say("Both are sunny."))
    with (
        machine(tmp_path, "one", store, upstream) as (first, http),
        machine(tmp_path, "two", store, upstream) as (_, other),
    ):
        client = kind(http, "here/strict")
        client.user(f"Weather in {city} and 上海?")
        ((id, _),) = client.send()
        client.result(id, "sunny")
        with http.stream("POST", client.path(), json=client.request()) as response:
            assert response.status_code == 200
            pieces = response.iter_bytes()
            next(pieces)
            first.kill()
            with pytest.raises(httpx.TransportError):  # no end that looks like one
                for _ in pieces:
                    pass
        assert begins.wait is not None
        begins.wait.set()
        client.http = other
        ((id, _),) = client.send()
        client.result(id, "sunny, too")
        assert client.send() == []
        assert "Both are sunny." in client.text()
    thoughts = [
        [m.get("reasoning_content") for m in body["messages"] if m["role"] == "assistant"] for body in upstream.bodies
    ]
    assert thoughts == [[], [THOUGHT], [THOUGHT], [THOUGHT, THOUGHT]]
