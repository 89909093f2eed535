"""`cnllm serve keys`: a key is shown once, its limits and its use are listed, and a running gateway follows."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

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
    folder = machine.data
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
        (("a", "--budget", "1/year", "--currency", "CNY"), "month"),
        (("a", "--soft-budget", "1"), "soft budget"),
        (("a", "--budget", "1", "--currency", "CNY", "--soft-budget", "2"), "soft budget"),
        (("a", "--assume-price", "2", "--currency", "CNY"), "--assume-price"),
        (("a", "--assume-price", "2,8"), "currency"),
        (("a", "--assume-price", "2/8"), "currency"),
        (("a", "--expires", "tomorrow"), "--expires"),
        (("a", "--expires", "2020-01-01"), "--expires 2020-01-01 is in the past"),
        (("a", "--time-zone", "Mars/Olympus"), "Mars/Olympus"),
        (("a", "--team", "nobody"), "no team in use is called nobody"),
        (("a", "--concurrency", "0"), "concurrency"),
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
    assert not (machine.data / "gateway-keys.db").exists(), "to list creates no file"
    wrong = machine.run("serve", "keys", "list", "--store", "redis://:a-secret-password@127.0.0.1:1/0")
    assert wrong.status == 2
    assert "a-secret-password" not in wrong.out + wrong.err


@pytest.mark.usefixtures("small_builtin")
def test_what_the_registry_of_this_machine_does_not_know_is_said_and_kept(machine: Machine) -> None:
    """The gateway may run elsewhere, with a registry of its own."""
    for name, options, words in [
        ("rmb", ("--budget", "1", "--currency", "RMB"), "no model is billed in RMB; did you mean CNY?"),
        ("gold", ("--budget", "1", "--currency", "XAU"), "no model is billed in XAU; prices are in "),
        ("vendor", ("--models", "zhipu/*"), "no provider is called zhipu; did you mean zhipuai"),
        ("title", ("--models", "智谱/*"), "no provider is called 智谱; did you mean zhipuai"),
        ("usual", ("--models", "zhipuai/*", "--budget", "1", "--currency", "CNY"), ""),
    ]:
        added = machine.run("serve", "keys", "add", name, *options)
        assert added.status == 0
        assert words in added.err
        assert ("is called" in added.err or "is billed" in added.err) is bool(words)
    assert len(machine.run("serve", "keys", "list", "--json").json()) == 5


@pytest.mark.usefixtures("small_builtin")
def test_a_budget_that_no_model_is_billed_in_is_told(machine: Machine) -> None:
    idle = machine.run("serve", "keys", "add", "a", "--models", "zai/*", "--budget", "5", "--currency", "CNY")
    assert idle.status == 0
    assert "no model of a is billed in CNY; they are billed in USD" in idle.err
    assert "every request of a is refused without a budget in USD" in idle.err
    team = machine.run(
        "serve", "teams", "add", "t", "--models", "zai/*", "--budget", "5", "--currency", "CNY", "--budget", "5",
        "--currency", "USD",
    )  # fmt: skip
    assert "no model of t is billed in CNY" in team.err
    assert "refused" not in team.err
    told = machine.run("serve", "keys", "set", "a", "--models", "zhipuai/*")
    assert "billed" not in told.err
    assert "billed" in machine.run("serve", "keys", "set", "a", "--models", "zai/*").err
    machine.run("serve", "keys", "set", "a", "--expires", "2020-01-01").fails(2, "past")
    assert "zhipuai" in machine.run("serve", "teams", "set", "t", "--models", "zhipu/*").err
    assert "CNY" in machine.run("serve", "teams", "add", "u", "--budget", "5", "--currency", "RMB").err
    assumed = machine.run(
        "serve", "keys", "add", "b", "--budget", "5", "--currency", "EUR", "--assume-price", "2,8", "--models", "zai/*"
    )
    assert (assumed.status, "billed" in assumed.err) == (0, False)


def test_a_running_gateway_follows(machine: Machine) -> None:
    key = machine.run("serve", "keys", "add", "first", "--rpm", "2").out.strip()
    gateway = machine.start("serve", "--simulate", "--json", "--ui", "--admin-key", "the-key-of-an-operator")
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
            assert time.monotonic() - revoked < 15  # one second, and what a busy machine adds
    finally:
        gateway.terminate()
        _, err = gateway.communicate()
    assert b"simulated: every answer is made up on this machine" in err
    assert f"operator page: {url}/ui (log in with the key of --admin-key)".encode() in err
    assert b"key:" not in err, "the gateway makes no key of its own beside those of the book"
    rows = {row["name"]: row for row in machine.run("serve", "keys", "list", "--json").json()}
    assert rows["first"]["calls"] == 2
    assert rows["first"]["tokens"] > 0
    assert rows["second"]["revoked"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai"])
def test_the_day_of_expiry_is_shown_as_it_was_given(machine: Machine, zone: str) -> None:
    machine.run("serve", "keys", "add", "ann", "--expires", "2099-01-01", "--time-zone", zone)
    shown = machine.run("serve", "keys", "list", env={"TZ": "EST5"}, process=True).out
    assert "until 2099-01-01 00:00" in shown
    assert ("days of Asia/Shanghai" in shown) == (zone != "UTC")


@pytest.mark.parametrize("rest", ["revoked", "in a keys file"])
def test_a_gateway_whose_keys_are_all_out_of_use_makes_one(machine: Machine, tmp_path: Path, rest: str) -> None:
    if rest == "in a keys file":
        (tmp_path / "keys.txt").write_text("a-key-of-the-tests --name tests --rpm 5\n")
        gateway = machine.start("serve", "--simulate", "--json", "--keys-file", str(tmp_path / "keys.txt"))
        assert gateway.stdout is not None
        assert gateway.stdout.readline()
        gateway.terminate()
        gateway.communicate()
    else:
        machine.run("serve", "keys", "add", "ada")
        machine.run("serve", "keys", "revoke", "ada")
    assert [row["name"] for row in machine.run("serve", "keys", "list", "--json").json()]
    gateway = machine.start("serve", "--simulate", "--json")
    assert gateway.stdout is not None
    assert gateway.stdout.readline()
    gateway.terminate()
    _, err = gateway.communicate()
    assert b"key: sk-cnllm-" in err, "otherwise no client could use it, and nothing would say so"


def test_a_team_that_is_removed_leaves_no_key_without_its_limits(machine: Machine) -> None:
    machine.run("serve", "teams", "add", "research", "--rpm", "2")
    ann, _, cem = (
        machine.run("serve", "keys", "add", name, "--team", "research").out.strip() for name in ("ann", "bob", "cem")
    )
    machine.run("serve", "keys", "revoke", "bob")
    gateway = machine.start("serve", "--simulate", "--json")
    try:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]

        def send(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers=headers).status_code

        assert [send(key) for key in (ann, cem, ann)] == [200, 200, 429]
        machine.run("serve", "teams", "remove", "research").fails(
            2, "the team research has keys in use: ann, cem", "--revoke-keys", "cnllm serve keys set ann --team none"
        )
        assert [row["state"] for row in machine.run("serve", "keys", "list", "--json").json()] == [
            "in use",
            "revoked",
            "in use",
        ]
        machine.run("serve", "keys", "set", "cem", "--team", "none")
        removed = machine.run("serve", "teams", "remove", "research", "--revoke-keys")
        assert removed.status == 0
        assert "the key of ann is revoked" in removed.err
        assert "the team research is removed" in removed.err
        last = time.monotonic() + 15  # one second, and what a busy machine adds
        while (send(ann), send(cem)) != (401, 200):  # a key that was moved before stays, without the team's limits
            assert time.monotonic() < last
        assert machine.run("serve", "teams", "list", "--json").json() == []
        machine.run("serve", "teams", "remove", "research").fails(2, "no team in use is called research")
        machine.run("serve", "teams", "add", "research", "--rpm", "5")
        assert send(ann) == 401, "a new team of the name gives a revoked key nothing back"
        (row,) = machine.run("serve", "teams", "list", "--json").json()
        assert (row["calls"], row["minute_requests"]) == (0, 0)
    finally:
        gateway.terminate()
        gateway.communicate()


def test_everything_can_be_set_and_read_again(machine: Machine) -> None:
    team = machine.run(
        "serve", "teams", "add", "research", "--models", "zai/*", "--rpm", "50", "--budget", "100/week", "--currency",
        "CNY", "--json",
    ).json()  # fmt: skip
    assert (team["kind"], team["budgets"], team["periods"]) == ("team", {"CNY": "100.00"}, {"CNY": "week"})
    made: Any = machine.run(
        "serve", "keys", "add", "ann", "--team", "research", "--expires", "2099-01-01", "--budget", "20/month",
        "--soft-budget", "15", "--currency", "CNY", "--time-zone", "Asia/Shanghai", "--concurrency", "3",
        "--assume-price", "2,8.5", "--json",
    ).json()  # fmt: skip
    expected = {
        "name": "ann", "team": "research", "expires": 4_070_880_000.0, "budgets": {"CNY": "20.00"},
        "periods": {"CNY": "month"}, "soft_budgets": {"CNY": "15.00"}, "time_zone": "Asia/Shanghai", "concurrency": 3,
        "assumed_price": ["CNY", 2.0, 8.5], "rpm": None, "state": "in use", "in_flight": 0, "spent_before": {},
    }  # fmt: skip
    (row,) = machine.run("serve", "keys", "list", "--json").json()
    assert {name: row[name] for name in expected} == expected
    assert made["key"] not in str(row)
    assert row["period_ends"]["CNY"] > time.time() > row["period_starts"]["CNY"]
    shown = machine.run("serve", "keys", "list").out
    for words in ("0 of 3 requests in flight", "0.00 of 20.00 CNY a month, warns at 15.00", "research"):
        assert words in shown
    same: Any = machine.run("serve", "keys", "set", "ann", "--assume-price", "2/8.5", "--json").json()
    assert same["assumed_price"] == expected["assumed_price"]
    machine.run("serve", "keys", "set", "ann", "--rpm", "9", "--expires", "none", "--concurrency", "none")
    changed = {**expected, "rpm": 9, "expires": None, "concurrency": None}
    (row,) = machine.run("serve", "keys", "list", "--json").json()
    assert {name: row[name] for name in expected} == changed
    machine.run("serve", "keys", "set", "ann", "--budget", "none", "--team", "none")
    (row,) = machine.run("serve", "keys", "list", "--json").json()
    assert (row["budgets"], row["periods"], row["soft_budgets"], row["team"]) == ({}, {}, {}, None)
    machine.run("serve", "teams", "set", "research", "--rpm", "none")
    (row,) = machine.run("serve", "teams", "list", "--json").json()
    assert (row["rpm"], row["models"]) == (None, ["zai/*"])
    assert "0.00 of 100.00 CNY a week" in machine.run("serve", "teams", "list").out
    machine.run("serve", "keys", "set", "ann").fails(2, "ann")
    machine.run("serve", "keys", "set", "nobody", "--rpm", "1").fails(2, "no key in use is called nobody")
    machine.run("serve", "keys", "set", "ann", "--team", "nobody").fails(2, "no team in use is called nobody")
    machine.run("serve", "teams", "set", "ann", "--rpm", "1").fails(2, "no team in use is called ann")
    machine.run("serve", "teams", "add", "research").fails(2, "a team in use is called research")
    machine.run("serve", "keys", "add", "research")  # a key and a team may be called the same


def test_one_of_a_kind_has_no_plural(machine: Machine) -> None:
    limits = ("--rpm", "1", "--tpm", "1", "--concurrency", "1")
    made = machine.run("serve", "keys", "add", "a", *limits)
    assert "1 request a minute; 1 token a minute; 1 request in flight" in made.err
    shown = machine.run("serve", "keys", "list").out
    assert "0 of 1 request a minute; 0 of 1 token a minute; 0 of 1 request in flight" in shown
    source = machine.file("in.txt", "hi\n")
    done = machine.run("batch", source, "-m", "zai/glm-4.7", "-o", f"{source}.out", "--dry-run")
    assert done.out.startswith("1 row to ask;")


def test_a_file_of_keys_has_their_limits(machine: Machine) -> None:
    file = machine.home / "keys"
    file.write_text(
        "# keys\nfree-key-0123456789\nslow-key-0123456789 --name slow --rpm 1 --budget 5/day --currency CNY\n"
    )
    gateway = machine.start("serve", "--simulate", "--json", "--keys-file", str(file))
    try:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]

        def send(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers=headers).status_code

        def reload(text: str, key: str, status: int) -> None:
            file.write_text(text)
            gateway.send_signal(signal.SIGHUP)
            last = time.monotonic() + 20
            while send(key) != status:
                assert time.monotonic() < last
                time.sleep(0.05)

        assert [send("slow-key-0123456789") for _ in range(2)] == [200, 429]
        assert [send("free-key-0123456789") for _ in range(3)] == [200] * 3
        assert send("slow-key-0123456789 --rpm 1") == 401
        reload("slow-key-0123456789 --name slow --rpm 3\n", "slow-key-0123456789", 200)
        reload("other-key-012345678\n", "slow-key-0123456789", 401)
        machine.run("serve", "keys", "revoke", "slow")
        reload("slow-key-0123456789 --name slow --rpm 3\nthird-key-0123456789\n", "third-key-0123456789", 200)
        assert send("slow-key-0123456789") == 401, "it is revoked for good, and the file does not change that"
    finally:
        gateway.terminate()
        gateway.communicate()
    (row,) = machine.run("serve", "keys", "list", "--json").json()
    assert (row["name"], row["rpm"]) == ("slow", 3)
    for line, word in (("k --rpm many", "keys:1"), ("k --team nobody", "nobody"), ("k --what 1", "--what")):
        file.write_text(line)
        machine.run("serve", "--simulate", "--keys-file", str(file)).fails(2, word)


def test_a_wrong_keys_file_changes_nothing(machine: Machine) -> None:
    file = machine.home / "keys"
    file.write_text("sk-first-0123456789 --name first --rpm 5\nsk-second-0123456789 --rpm many\n")
    machine.run("serve", "--simulate", "--keys-file", str(file)).fails(2, f"{file}:2")
    assert machine.run("serve", "keys", "list", "--json").json() == []


def test_a_key_with_limits_in_a_file_stands_nowhere_else(machine: Machine) -> None:
    """One without limits would count, and nobody would see that the limits do not hold."""
    file, key = machine.home / "keys", "sk-first-0123456789"
    for lines, more in (
        (f"{key}\n{key} --rpm 5\n", ()),
        (f"{key} --rpm 5\n{key}\n", ()),
        (f"{key} --rpm 5\n{key} --rpm 6 --name other\n", ()),
        (f"# one\n{key} --rpm 5\n", ("--key", key)),
    ):
        file.write_text(lines)
        done = machine.run("serve", "--simulate", "--keys-file", str(file), *more)
        done.fails(2, f"{file}:2: this key stands twice")
        assert key not in done.err
    assert machine.run("serve", "keys", "list", "--json").json() == []


def test_limits_of_a_file_wait_until_all_else_is_right(machine: Machine) -> None:
    """A registry file with a fault, read again together with the keys, and a name that nothing has, at the start."""

    def limit() -> Any:
        (row,) = machine.run("serve", "keys", "list", "--json").json()
        return row["rpm"]

    file, registry = machine.home / "keys", machine.config / "providers.toml"
    file.write_text("sk-first-0123456789 --name first --rpm 5\n")
    machine.run("serve", "--simulate", "--keys-file", str(file), "--map", "a=none/such").fails(2, "none/such")
    assert machine.run("serve", "keys", "list", "--json").json() == []
    gateway = machine.start("serve", "--simulate", "--json", "--keys-file", str(file))
    try:
        assert gateway.stdout is not None
        assert gateway.stderr is not None
        assert gateway.stdout.readline()
        assert limit() == 5
        file.write_text("sk-first-0123456789 --name first --rpm 7\n")
        registry.parent.mkdir(parents=True, exist_ok=True)
        registry.write_text('[gateway.models]\nmine = "none/such"\n')
        gateway.send_signal(signal.SIGHUP)
        assert any(b"stays as it was" in line for line in gateway.stderr)
        assert limit() == 5
        registry.write_text('[gateway.models]\nmine = "glm-4.7"\n')
        gateway.send_signal(signal.SIGHUP)
        assert any(b"read again" in line for line in gateway.stderr)
        assert limit() == 7
    finally:
        gateway.terminate()
        gateway.communicate()


def test_the_list_says_of_a_key_of_a_file_that_its_file_decides(machine: Machine) -> None:
    file = machine.home / "keys"
    file.write_text("sk-first-0123456789 --name first --rpm 5\n")
    gateway = machine.start("serve", "--simulate", "--json", "--keys-file", str(file))
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline()
    finally:
        gateway.terminate()
        gateway.communicate(timeout=60)
    file.unlink()
    machine.run("serve", "keys", "add", "other")
    done = machine.run("serve", "keys", "list")
    rows = dict(re.findall(r"^(first|other) +(in a keys file|in use)", done.out, re.MULTILINE))
    assert rows == {"first": "in a keys file", "other": "in use"}
    assert "where --keys-file of a gateway has it" in done.err


def test_a_record_that_cannot_be_read_is_named_with_its_file(machine: Machine) -> None:
    machine.run("serve", "teams", "add", "office")
    machine.run("serve", "keys", "add", "team-a")
    path = machine.data / "gateway-keys.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE keys SET record = x'c1'")
    for words in (["list"], ["set", "team-a", "--rpm", "5"], ["revoke", "team-a"], ["add", "b", "--team", "office"]):
        machine.run("serve", "keys", *words).fails(2, f"{path} is damaged", "backup")
