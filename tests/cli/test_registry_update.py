"""`registry update`: what is shown, asked and written, from files and from a server on loopback."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import pty
import re
import resource
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from client.proxies import Proxy

from cnllm.errors import CnllmError, RegistryError
from cnllm.registry_files.updates.review import add_to_changelog

from .support import Machine, Reset, Server, http, read_terminal

pytestmark = pytest.mark.usefixtures("small_builtin")

NAME = "zai/glm-4.7"
STUB = {"limit": {"context": 1000, "output": 100}, "cost": {"input": 1, "output": 2}}


def nested(**models: Any) -> str:
    return json.dumps({"zai": {"models": {"glm-4.7": models.get("old", {}), "glm-99": models.get("new", STUB)}}})


def flat(**fields: Any) -> str:
    return json.dumps({"zai/glm-4.7": {"litellm_provider": "zai", "mode": "chat", **fields}})


@pytest.fixture
def lists(machine: Machine) -> tuple[str, ...]:
    """Both lists say the same of an old model's window; one has a new model, and says that the old one is retired."""
    one = nested(old={"limit": {"context": 7000, "output": 600}, "status": "deprecated"})
    return (
        *("--from", machine.file("api.json", one)),
        *("--from", machine.file("prices.json", flat(max_output_tokens=600))),
    )


def updates(machine: Machine) -> Path:
    return machine.config / "registry" / "updates.toml"


def limits(machine: Machine, name: str = NAME) -> Any:
    return machine.run("models", "show", name, "--json").json()["flags"].get("limits")


# ── in a pipe ────────────────────────────────────────────────────────────────
def test_a_pipe_gets_the_difference_and_nothing_is_written(machine: Machine, lists: tuple[str, ...]) -> None:
    done = machine.run("registry", "update", *lists)
    assert done.status == 0
    assert "New models (1)\n" in done.out
    assert "Limits (1)\n" in done.out
    assert "Limits: your decision (1)\n" in done.out
    assert "Status: your decision (1)\n" in done.out
    assert done.err.splitlines() == [
        "2 changes not made: --yes makes them",
        "2 changes left for your decision, 2 questions: on a terminal, or with --accept KIND",
    ]
    assert not updates(machine).exists()


def test_yes_makes_what_needs_no_decision(machine: Machine, lists: tuple[str, ...]) -> None:
    before = limits(machine)
    done = machine.run("registry", "update", *lists, "--yes")
    assert done.status == 0
    assert f"2 changes written to {updates(machine)}; to undo: cnllm registry rollback updates" in done.err
    assert limits(machine) == {"context": before["context"], "output": 600}
    assert limits(machine, "zai/glm-99") == {"context": 1000, "output": 100}
    show = machine.run("models", "show", NAME, "--explain", "--json").json()
    (fact,) = [fact for fact in show if fact["flag"] == "limits.output"]
    assert re.fullmatch(rf"{re.escape(str(updates(machine)))}:\d+", fact["where"])
    assert fact["source"].startswith("https://")
    assert machine.run("registry", "path").out.splitlines()[1:] == [str(updates(machine))]
    assert " updates " in machine.run("registry", "path").err
    assert machine.run("registry", "check").status == 0
    again = machine.run("registry", "update", *lists, "--yes")
    assert "written" not in again.err
    assert machine.run("registry", "rollback", "updates").status == 0
    assert limits(machine) == before
    machine.run("registry", "rollback", "updates").fails(2, "there is no earlier one", "nothing was changed")


def test_what_was_written_is_a_changelog_for_people(machine: Machine, lists: tuple[str, ...]) -> None:
    """Newest first; nothing is added where nothing was written."""
    path = machine.config.parent / "data-changes.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    machine.run("registry", "update", *lists, "--yes", "--changelog", str(path))
    first = path.read_text()
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert first.startswith(f"## {day}\n\n- ")
    assert f"- {NAME}: output 131,072 → 600 (models.dev {day}, litellm {day})\n" in first
    assert (
        f"- zai/glm-99: new (context 1k, output 100, price of input 1, price of output 2) (models.dev {day})\n" in first
    )
    machine.run("registry", "update", *lists, "--yes", "--changelog", str(path))
    assert path.read_text() == first
    machine.run("registry", "update", *lists, "--accept", "status", "--changelog", str(path))
    assert path.read_text().endswith(first)
    assert f"- {NAME}: status unknown → retired (models.dev {day})\n" in path.read_text()
    machine.run("registry", "update", *lists, "--accept", "limits", "--changelog", str(path.parent)).fails(
        2, "changelog"
    )


def test_a_changelog_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path, day = tmp_path / "changes.md", datetime.date(2026, 1, 1)
    path.write_text("## 2025-12-31\n\n- all that was there\n")
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CnllmError, match=r"changes\.md cannot be written: File too large"):
            add_to_changelog(path, ["x" * 100_000], day)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    path.write_bytes(b"\xff")
    with pytest.raises(RegistryError, match="cannot be written"):
        add_to_changelog(path, ["a line"], day)
    assert path.read_bytes() == b"\xff"


def test_accept_decides_for_one_kind(machine: Machine, lists: tuple[str, ...]) -> None:
    machine.run("registry", "update", *lists, "--accept", "status")
    assert updates(machine).read_text().count("\n[models") == 1
    assert machine.run("models", "show", NAME, "--json").json()["status"] == "retired"
    assert machine.run("registry", "check").status == 0
    machine.run("registry", "update", *lists, "--accept", "everything").fails(2, "everything")


def test_a_dry_run_writes_nothing(machine: Machine, lists: tuple[str, ...]) -> None:
    done = machine.run("registry", "update", *lists, "--yes", "--accept", "limits", "--dry-run")
    assert (done.status, done.err) == (0, "")
    assert "New models (1)" in done.out
    assert not updates(machine).exists()


def test_json_has_every_change_and_whether_it_was_made(machine: Machine, lists: tuple[str, ...]) -> None:
    rows = machine.run("registry", "update", *lists, "--yes", "--json").json()
    found = {(row["model"], row["flag"]): (row["kind"], row["action"], row["applied"]) for row in rows}
    assert found == {
        ("zai/glm-99", ""): ("new", "automatic", True),
        (NAME, "limits.output"): ("limits", "automatic", True),
        (NAME, "limits.context"): ("limits", "ask", False),
        (NAME, "status.is"): ("status", "ask", False),
    }
    machine.run("registry", "update", *lists[:2], "--json")  # without --yes
    assert machine.run("registry", "update", *lists, "--dry-run", "--json").json()


def test_nothing_new_is_said(machine: Machine) -> None:
    path = machine.file("api.json", json.dumps({"zai": {"models": {}}}))
    done = machine.run("registry", "update", "--from", path, "--yes")
    assert (done.status, done.out, done.err) == (0, "", "nothing differs\n")


def test_the_own_file_stays_as_it_is_and_wins(machine: Machine, lists: tuple[str, ...]) -> None:
    machine.config.mkdir(parents=True)
    own = machine.config / "providers.toml"
    own.write_text(f'# mine\n[models."{NAME}"]\nlimits.output = 9 # sic\n')
    done = machine.run("registry", "update", *lists, "--yes", "--accept", "limits", "--accept", "status")
    assert "limits.output" not in done.out
    assert own.read_text().startswith("# mine\n")
    assert limits(machine) == {"context": 7000, "output": 9}


def test_a_list_must_be_named(machine: Machine) -> None:
    machine.run("registry", "update").fails(2, "--from")
    machine.run("registry", "update", "--from", "nothing.json").fails(2, "nothing.json", "models.dev, litellm")
    machine.run("registry", "update", "--from", machine.file("x", "{}")).fails(2, "is not a list of models")


# ── on a terminal ────────────────────────────────────────────────────────────
def answered(machine: Machine, lists: tuple[str, ...], *answers: str) -> str:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        machine.command("registry", "update", *lists),
        env={**machine.env, "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, ("".join(f"{answer}\n" for answer in answers) + "\x04" * 20).encode())  # then the end of the input
    text = read_terminal(master)
    assert process.wait(60) == 0
    os.close(master)
    return text


@pytest.fixture
def real_lists(machine: Machine) -> tuple[str, ...]:
    """Lists about the registry that the program, in a process of its own, has."""
    machine.overlay("http://127.0.0.1:9/v1", "limits = { context = 5000, output = 500 }")
    entry = {"limit": {"context": 7000, "output": 600}}
    path = machine.file("api.json", json.dumps({"zai": {"models": {"glm-99": STUB, "glm-4.7": entry}}}))
    return "--from", path


def test_a_terminal_is_asked_by_kind_or_one_by_one(machine: Machine, real_lists: tuple[str, ...]) -> None:
    text = answered(machine, real_lists, "y", "o", "y", "n")
    assert "Make 1 change that need no decision? [Y/n]" in text
    question = r"Limits \(our value [^)]*models\.dev[^)]*\): take none of 2, all, or one by one\? \[N/a/o\]"
    assert re.search(question, text)
    assert f"{NAME} limits.context: " in text
    written = updates(machine).read_text()
    assert "limits.context = 7000" in written
    assert "limits.output = 600" not in written
    assert '[models."zai/glm-99"]' in written


def test_no_answer_is_no(machine: Machine, real_lists: tuple[str, ...]) -> None:
    answered(machine, real_lists, "n", "")
    assert not updates(machine).exists()


# ── from a server ────────────────────────────────────────────────────────────
def body(text: str) -> bytes:
    return http(200, text.encode())


def test_a_list_comes_from_a_server(machine: Machine) -> None:
    with Server([body(nested())]) as server:
        done = machine.run("registry", "update", "--from", f"{server.url}/api.json", "--yes")
    assert (done.status, limits(machine, "zai/glm-99")) == (0, {"context": 1000, "output": 100})
    (request,) = server.received
    assert request.head.startswith("GET /v1/api.json HTTP/1.1\r\n")
    assert "authorization" not in request.head.lower()
    assert "cookie" not in request.head.lower()
    today = datetime.datetime.now(datetime.UTC).date()
    assert f'url = "{server.url}/api.json#zai", seen = {today}' in updates(machine).read_text()


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://127.0.0.1:1/x", "https://elsewhere.example/"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(machine: Machine, target: str, status: int) -> None:
    with Server([http(status, b"", Location=target)]) as server:
        machine.run("registry", "update", "--from", f"{server.url}/x").fails(1, "redirect, which is not followed")
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "data://x", "http://example.org/x", "https://", "http://[::"]
)
def test_only_https_or_this_machine_is_asked(machine: Machine, url: str) -> None:
    machine.run("registry", "update", "--from", url).fails(2)


def test_a_password_in_an_address_is_refused_and_not_shown(machine: Machine) -> None:
    done = machine.run("registry", "update", "--from", "https://me:hunter2secret@example.org/x")
    done.fails(2, "holds a name or a password")
    assert "hunter2secret" not in done.err


@pytest.mark.parametrize("status", [204, 400, 404, 500])
def test_another_status_is_said(machine: Machine, status: int) -> None:
    with Server([http(status, b"")]) as server:
        machine.run("registry", "update", "--from", f"{server.url}/x").fails(1, f"status {status}")


def test_a_body_without_end_is_cut_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.registry_files.public_lists.MAX_BYTES", 1_000_000)
    head = b"HTTP/1.1 200 x\r\nContent-Length: 1073741824\r\n\r\n"
    with Server([head, *[b"[" * 65536] * 200]) as server:
        machine.run("registry", "update", "--from", f"{server.url}/x").fails(1, "sends more than 1000000 bytes")


def test_a_compressed_gigabyte_is_cut_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.registry_files.public_lists.MAX_BYTES", 1_000_000)
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"[" * 1_000_000) for _ in range(100)) + packer.flush()
    assert len(bomb) < 200_000
    with Server([http(200, bomb, Content_Encoding="gzip")]) as server:
        machine.run("registry", "update", "--from", f"{server.url}/x").fails(1, "sends more than 1000000 bytes")
    small = gzip.compress(nested().encode())
    with Server([http(200, small, Content_Encoding="gzip")]) as server:
        assert machine.run("registry", "update", "--from", f"{server.url}/x").status == 0


@pytest.mark.parametrize(
    "script", [[Reset], [b"HTTP/1.1 200 x\r\nContent-Length: 50\r\n\r\nshort"], [b"nonsense\r\n\r\n"]]
)
def test_a_broken_connection_writes_nothing(machine: Machine, script: list[Any]) -> None:
    with Server(script) as server:
        machine.run("registry", "update", "--from", f"{server.url}/x", "--yes").fails(1)
    assert not updates(machine).exists()


def test_a_large_file_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.registry_files.public_lists.MAX_BYTES", 1000)
    path = machine.file("big.json", "[" * 5000)
    machine.run("registry", "update", "--from", path).fails(2, "more than 1,000 bytes")
    machine.run("registry", "update", "--from", "/dev/zero").fails(2, "/dev/zero", "cannot be read")


def test_nothing_that_a_list_says_reaches_the_terminal_as_it_is(machine: Machine) -> None:
    evil = {"z\x1bai": {"models": {"glm-4.7": {"limit": {"output": 5}, "status": "\x1b[2J"}, "x\x1b]0;": STUB}}}
    done = machine.run("registry", "update", "--from", machine.file("e\x1b.json", json.dumps(evil)), "--yes")
    assert "\x1b" not in done.out + done.err
    assert not updates(machine).exists() or "\x1b" not in updates(machine).read_text()


# ── a faulty file ────────────────────────────────────────────────────────────
def test_a_faulty_file_of_updates_says_how_to_go_on(machine: Machine, lists: tuple[str, ...]) -> None:
    machine.run("registry", "update", *lists, "--yes")
    updates(machine).write_text(f'[models."{NAME}"]\nbase_url = "https://evil.example"\n')
    machine.run("models", "show", NAME).fails(2, "updates.toml:2", "cnllm registry rollback updates")
    assert machine.run("registry", "rollback", "updates").status == 0
    assert machine.run("models", "show", NAME).status == 0


def test_a_password_that_a_proxy_echoes_is_not_shown(machine: Machine) -> None:
    with Proxy(b"HTTP/1.1 407 not hunter2-hunter2\r\n\r\n", password="hunter2-hunter2") as proxy:
        machine.env["HTTPS_PROXY"] = proxy.url
        done = machine.run("registry", "update", "--from", "https://lists.example/api.json", "--dry-run")
    assert done.status == 1
    assert "407 not [redacted]" in done.err
    assert "hunter2" not in done.err
