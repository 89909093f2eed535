"""Two workers keep one limit and one cap, and the keys stay where they are."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from batch.stub import Answer, Stub, error, stub
from batch.support import KEY, PRICE

from .support import driver, overlay, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.long

PER_MINUTE = 1200


def test_two_workers_keep_a_limit(tmp_path: Path) -> None:
    with stub(latency=0.3) as server:
        options = {"registry": overlay(server, tmp_path), "key_env": "HOME_TEST_KEY", "rpm": PER_MINUTE}
        with driver({"rows": 900, "blocks": 8, "batch": 64, "options": options}) as run:
            result = run.result()
    assert result["right"] == 900
    assert rate(server.times) == pytest.approx(PER_MINUTE, rel=0.05)
    for start in range(0, 900 - 200, 50):
        assert rate(server.times[start : start + 200]) <= PER_MINUTE * 1.05


def rate(times: list[float]) -> float:
    """Requests a minute."""
    return 60 * (len(times) - 1) / (times[-1] - times[0])


def test_two_workers_learn_a_limit(tmp_path: Path) -> None:
    """An endpoint that tells nothing and refuses what is above its limit: hardly anything is refused."""
    bucket = {"level": 20.0, "at": 0.0}

    def rule(prompt: str, server: Stub) -> Answer | None:
        now = server.times[-1]
        bucket["level"] = min(20.0, bucket["level"] + (now - bucket["at"]) * PER_MINUTE / 60)
        bucket["at"] = now
        if bucket["level"] < 1:
            return 429, error("too many requests"), {"retry-after": "1"}
        bucket["level"] -= 1
        return None

    with stub(latency=0.2, rule=rule) as server:
        options = {"registry": overlay(server, tmp_path), "key_env": "HOME_TEST_KEY"}
        with driver({"rows": 1500, "blocks": 8, "batch": 64, "options": options}) as run:
            result = run.result()
    assert result["right"] == 1500
    assert server.refused < 150
    assert rate(server.times) > PER_MINUTE * 0.7


def test_two_workers_keep_a_cap(tmp_path: Path) -> None:
    """With a worker that is killed in the middle, too: what it had sent counts at its worst case."""
    price = Decimal("0.00006")
    cap = price * 2000
    with stub(latency=0.1) as server:
        options = {
            "registry": overlay(server, tmp_path, PRICE),
            "key_env": "HOME_TEST_KEY",
            "max_cost": str(cap),
            "currency": "CNY",
            "max_tokens": 10,
        }
        with driver({"rows": 5000, "options": options}) as run:
            wait_until(lambda: len(server.log) > 700)
            run.kill("ray::MapWorker")
            result = run.result()
    assert result["rows"] == 5000
    assert set(result["errors"]) == {"CostCap"}
    assert result["errors"]["CostCap"] + result["right"] == 5000
    assert Decimal(result["spent"]) <= cap
    assert len(server.log) * price <= cap


def test_the_key_stays_on_its_node(tmp_path: Path) -> None:
    """No file of the session holds it, no object in the store, and no error, though the endpoint echoes it."""

    def rule(prompt: str, server: Stub) -> Answer | None:
        return (401, error(f"wrong key {KEY}"), {}) if len(server.log) > 350 else None

    with (
        stub(latency=0.02, rule=rule) as server,
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder,  # sockets need a short path
    ):
        options = {"registry": overlay(server, tmp_path), "key_env": "HOME_TEST_KEY"}
        spec = {"rows": 400, "options": options, "blocks": 4, "temporary": folder}
        with driver(spec) as run:
            wait_until(lambda: len(server.log) > 200)
            objects = b"".join(object_store(pid) for pid in run.pids("raylet"))
            said = run.failure()
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            contents = {path: path.read_bytes() for path in files}
    assert set(server.keys) == {KEY}
    assert "BadKey" in said
    assert KEY not in said
    assert b"HOME_TEST_KEY" in objects, "what went to the workers was looked at"
    assert KEY.encode() not in objects
    assert len(contents) > 10
    assert [path for path, content in contents.items() if KEY.encode() in content] == []


def object_store(pid: int) -> bytes:
    """The bytes in the object store of a process."""
    pieces = []
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "plasma" in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                pieces.append(memory.read(end - start))
    return b"".join(pieces)


def test_a_node_without_a_key(tmp_path: Path) -> None:
    with stub() as server:
        options = {"registry": overlay(server, tmp_path), "key_env": "HOME_TEST_KEY"}
        with driver({"rows": 10, "options": options, "hidden": ["HOME_TEST_KEY"]}) as run:
            said = run.failure()
        assert "KeyMissing" in said
        assert "HOME_TEST_KEY holds no key" in said
        assert "node " in said
        assert server.log == []
