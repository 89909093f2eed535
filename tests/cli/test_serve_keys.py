"""`cnllm serve keys`: a key is shown once, its limits and its use are listed, and a running gateway follows."""

from __future__ import annotations

import json
import stat
import time
from typing import Any

import httpx

from .support import Machine

BODY = {"model": "zai/glm-4.7", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10}


def test_a_key_is_shown_once(machine: Machine) -> None:
    done = machine.run(
        "serve", "keys", "add", "team-a", "--models", "glm-4.7,deepseek/*", "--models", "zai/glm-*", "--rpm", "100",
        "--tpm", "5000", "--budget", "20", "--currency", "CNY", "--budget", "0.5", "--currency", "USD",
    )  # fmt: skip
    assert done.status == 0
    key = done.out.strip()
    assert key.startswith("sk-cnllm-")
    assert len(key) == 52
    assert key not in done.err
    for words in ("team-a", "100 requests a minute", "5,000 tokens a minute", "20.00 CNY", "0.50 USD"):
        assert words in done.err
    (row,) = machine.run("serve", "keys", "list", "--json").json()
    assert row["models"] == ["zai/glm-4.7", "deepseek/*", "zai/glm-*"]
    assert (row["rpm"], row["tpm"], row["budgets"]) == (100, 5000, {"CNY": "20.00", "USD": "0.50"})
    assert (row["calls"], row["spent"], row["reserved"], row["revoked"], row["last_use"]) == (0, {}, {}, None, None)
    assert abs(row["created"] - time.time()) < 600
    shown = machine.run("serve", "keys", "list")
    assert "team-a" in shown.out
    assert key not in shown.out + json.dumps(row)
    folder = machine.home / "data"
    assert stat.S_IMODE((folder / "gateway-keys.db").stat().st_mode) == 0o600
    assert all(key.encode() not in path.read_bytes() for path in folder.iterdir())
    machine.run("serve", "keys", "add", "team-a").fails(2, "team-a", "revoke")
    assert machine.run("serve", "keys", "revoke", "team-a").status == 0
    machine.run("serve", "keys", "revoke", "team-a").fails(2, "no key in use is called team-a")
    again: Any = machine.run("serve", "keys", "add", "team-a", "--json").json()
    assert again["key"] != key
    assert [row["revoked"] is None for row in machine.run("serve", "keys", "list", "--json").json()] == [False, True]


def test_what_is_wrong_is_named_and_no_key_is_made(machine: Machine) -> None:
    cases: list[tuple[tuple[str, ...], str]] = [
        (("bad name",), "name"),
        (("",), "name"),
        (("a\x1b[31m",), "name"),
        (("a", "--budget", "20"), "--currency"),
        (("a", "--currency", "CNY"), "--budget"),
        (("a", "--budget", "20", "--currency", "yuan"), "--currency"),
        (("a", "--budget", "-1", "--currency", "CNY"), "--budget"),
        (("a", "--budget", "nan", "--currency", "CNY"), "--budget"),
        (("a", "--budget", "1e400", "--currency", "CNY"), "--budget"),
        (("a", "--budget", "9000001", "--currency", "CNY"), "--budget"),
        (("a", "--budget", "1", "--currency", "CNY", "--budget", "1", "--currency", "CNY"), "two budgets"),
        (("a", "--rpm", "0"), "rpm"),
        (("a", "--tpm", "many"), "tpm"),
        (("a", "--models", ""), "--models"),
        (("a", "--models", "no-such-model-anywhere"), "no-such-model-anywhere"),
        (("a", "--store", "memory:"), "memory"),
        (("a", "--store", "mysql://x"), "store"),
    ]
    for args, word in cases:
        machine.run("serve", "keys", "add", *args).fails(2, word)
    assert machine.run("serve", "keys", "list", "--json").json() == []
    assert not (machine.home / "data" / "gateway-keys.db").exists(), "to list creates no file"
    wrong = machine.run("serve", "keys", "list", "--store", "redis://:a-secret-password@127.0.0.1:1/0")
    assert wrong.status == 2
    assert "a-secret-password" not in wrong.out + wrong.err


def test_a_running_gateway_follows(machine: Machine) -> None:
    key = machine.run("serve", "keys", "add", "first", "--rpm", "2").out.strip()
    gateway = machine.start("serve", "--simulate", "--json")
    try:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]

        def send(key: str) -> httpx.Response:
            return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {key}"})

        assert [send(key).status_code for _ in range(3)] == [200, 200, 429]
        new = machine.run("serve", "keys", "add", "second").out.strip()
        assert send(new).status_code == 200, "a new key is known at once"
        assert send(f"sk-cnllm-{'x' * 43}").status_code == 401
        machine.run("serve", "keys", "revoke", "second")
        revoked = time.monotonic()
        while send(new).status_code == 200:
            assert time.monotonic() - revoked < 1
    finally:
        gateway.terminate()
        _, err = gateway.communicate()
    assert b"key:" not in err, "the gateway makes no key of its own beside those of the book"
    rows = {row["name"]: row for row in machine.run("serve", "keys", "list", "--json").json()}
    assert rows["first"]["calls"] == 2
    assert rows["first"]["tokens"] > 0
    assert rows["second"]["revoked"]
