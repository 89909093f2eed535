"""What is reached: nothing before it is approved, nothing by the built-in tools, nothing that a schema refers to."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.support import ANSWER, KEY, Machine, Server
from client.peer import JSON, Peer, answer, reply, whole
from client.support import at
from pydantic import BaseModel, FilePath

import cnllm
from cnllm.cli import builtin_tools
from cnllm.tools import as_tools, problem_with

TOUCHED: list[str] = []
_REACHES = ("open", "os.", "socket.", "subprocess.", "shutil.", "glob.", "pathlib.", "import", "exec", "compile")
_watching = threading.Event()


def _hook(event: str, args: Any) -> None:
    if _watching.is_set() and event.startswith(_REACHES):
        TOUCHED.append(f"{event} {args!r}")


@contextmanager
def touched() -> Iterator[list[str]]:
    """What Python's own audit sees of files, sockets and processes meanwhile."""
    if _hook not in _hooked:
        sys.addaudithook(_hook)
        _hooked.append(_hook)
    TOUCHED.clear()
    _watching.set()
    try:
        yield TOUCHED
    finally:
        _watching.clear()


_hooked: list[Any] = []


@contextmanager
def listening() -> Iterator[tuple[str, list[Any]]]:
    """A socket that must get no connection, and those it got."""
    got: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json", got
        try:
            got.append(listener.accept())  # it would stand in the queue
        except BlockingIOError:
            return


# ── arguments ────────────────────────────────────────────────────────────────
def test_a_path_in_arguments_is_not_touched_before_approval(tmp_path: Path) -> None:
    """`FilePath` looks whether there is such a file: only once the call may be executed."""
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    asked: list[str] = []

    def show(path: FilePath) -> str:
        """Show a file."""
        return path.read_text()

    def approve(call: cnllm.ToolCall) -> bool:
        asked.append(call.raw)
        return False

    paths = [str(secret), str(tmp_path / "nowhere.txt"), "~/secret.txt", "//evil.example/share/secret.txt"]
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "show", "arguments": json.dumps({"path": path})}}
        for n, path in enumerate(paths)
    ]
    with Peer([answer(200, whole(None, "tool_calls", tool_calls=made), JSON)], [reply()]) as peer:
        with cnllm.Client() as client, touched() as seen:
            run = client.run(at(peer), "hi", tools=[show], approve=approve)
        assert len(asked) == len(paths)  # none was refused for what is on the disk
        assert not [each for each in seen if "secret.txt" in each or "nowhere.txt" in each]
    assert all("not approved" in result.text for result in run.steps[0].results)
    assert "x" not in [result.text for result in run.steps[0].results]


def test_checking_arguments_touches_nothing(tmp_path: Path) -> None:
    def show(path: Path, more: list[Path]) -> str:
        """Show files."""
        return ""

    call = cnllm.ToolCall("c", "show", {"path": "/etc/passwd", "more": ["~", "../x"]}, "{}")
    made = cnllm.tool(show)
    problem_with(made, call)  # what the check itself needs is imported
    with touched() as seen:
        assert problem_with(made, call) is None
    assert not [each for each in seen if "passwd" in each or "../x" in each]


# ── the tools that come with the program ─────────────────────────────────────
def test_the_built_in_tools_reach_nothing_but_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("no")
    here = tmp_path / "here"
    here.mkdir()
    (here / "in.txt").write_text("yes")
    (here / ".env").write_text(KEY)
    (here / ".git").mkdir()
    (here / ".git" / "config").write_text(KEY)
    (here / "link.txt").symlink_to(outside)
    (here / "up").symlink_to(tmp_path)
    os.mkfifo(here / "pipe")
    monkeypatch.chdir(here)
    builtin_tools.time("Asia/Shanghai")
    builtin_tools.read("in.txt")  # what they need themselves is imported
    with touched() as seen:
        assert builtin_tools.read("in.txt") == "yes"
        builtin_tools.calc("(2 + 3) * sqrt(16) / 7 ** 2")
        builtin_tools.time()
    names = [each.partition(",")[0] for each in seen if each.startswith("open ")]
    assert [each for each in names if each not in ("open ('.'", "open ('in.txt'") and not each[6:].isdigit()] == []
    assert not [each for each in seen if each.startswith(("socket.", "subprocess.", "os.system", "os.exec", "shutil."))]
    refused = ("../outside.txt", str(outside), "link.txt", "up/outside.txt", ".env", ".git/config", "./.env", "pipe")
    for path in (*refused, "/etc/passwd", "/dev/zero", "~/.ssh/id_rsa", "\0", "http://evil.example/", "//evil/x"):
        with touched() as seen, pytest.raises((ValueError, OSError)):
            builtin_tools.read(path)
        assert not [each for each in seen if each.startswith("socket.")]
        opened = [eval(each.removeprefix("open ")) for each in seen if each.startswith("open ")]
        assert all(name == "." or ("/" not in name and flags & os.O_NOFOLLOW) for name, _, flags in opened)
    for zone in ("../../etc/passwd", "/etc/passwd", str(outside), "no/such"):
        with pytest.raises(ValueError, match="time zone"):
            builtin_tools.time(zone)
    for expression in ("__import__('os').system('x')", "open('in.txt')", "().__class__", "(lambda: 1)()", "'a'*9"):
        with touched() as seen, pytest.raises(ValueError):
            builtin_tools.calc(expression)
        assert not [each for each in seen if each.startswith(("open ", "socket.", "subprocess.", "os."))]


@pytest.mark.parametrize("in_steps", [True, False])
def test_a_folder_that_becomes_a_link_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_steps: bool
) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "here" / "d"
    for folder, text in ((outside, "SECRET"), (inside, "public")):
        folder.mkdir(parents=True)
        (folder / "s.txt").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    if not in_steps:  # as on a system without `dir_fd`
        monkeypatch.setattr(os, "supports_dir_fd", set())
    assert builtin_tools.read("d/s.txt") == builtin_tools.read(str(inside / "s.txt")) == "public"
    todo: list[int] = []

    def exchange(event: str, _: Any) -> None:  # at a moment of the program's own: before one of its files is opened
        if event == "open" and todo:
            todo[0] -= 1
            if todo[0] < 0:
                todo.clear()
                os.rename("d", "e")
                os.symlink(outside, "d")

    sys.addaudithook(exchange)
    results = set()
    for moment in range(4):
        todo[:] = [moment]
        try:
            results.add(builtin_tools.read("d/s.txt"))
        except ValueError as error:
            results.add(str(error))
        todo.clear()
        if os.path.islink("d"):
            os.unlink("d")
            os.rename("e", "d")
    assert results <= {"public", "d/s.txt leads over a link, and links are not followed"}
    assert len(results) == 2


# ── schemas ──────────────────────────────────────────────────────────────────
def test_what_a_schema_refers_to_is_never_fetched() -> None:
    class City(BaseModel):
        name: str

    with listening() as (url, got), Peer([reply('{"x": 1}')]) as peer, cnllm.Client() as client:
        for schema in (
            {"type": "object", "properties": {"x": {"$ref": url}}},
            {"$ref": url},
            {"$schema": url, "type": "object"},
            {"$id": url, "type": "object", "properties": {"x": {"$ref": "other.json"}}},
            {"type": "object", "properties": {"x": {"$dynamicRef": f"{url}#x"}}},
            {"allOf": [{"$ref": f"file://{__file__}"}]},
        ):
            tool = {"name": "look", "description": "", "parameters": schema}
            for options in ({"schema": schema}, {"tools": [tool]}):
                try:
                    client.call(at(peer), "hi", **options)
                except ValueError:
                    continue  # it may be refused
            call = cnllm.ToolCall("c", "look", {"x": 1}, '{"x": 1}')
            try:
                problem_with(as_tools([tool])[0], call)
            except ValueError:
                continue
        assert client.call(at(peer), "hi", schema=City).parsed is None
    assert got == []


def test_no_command_fetches_it_either(machine: Machine) -> None:
    with listening() as (url, got), Server(ANSWER) as server:
        machine.overlay(server.url)
        schema = {"type": "object", "properties": {"x": {"$ref": url}}}
        tools = machine.file("tools.json", json.dumps([{"name": "look", "parameters": schema}]))
        file = machine.file("schema.json", json.dumps(schema))
        for args in (
            ["--tools", tools],
            ["--schema", file],
            ["--schema", file, "--simulate"],
            ["--tools", tools, "--plan"],
        ):
            done = machine.run("call", "-m", "home/m", *args, "hi")
            assert "Traceback" not in done.err
        machine.run("sanitize", "-m", "glm-4.7", "--tools", tools, stdin='<tool_call>{"name": "look"}</tool_call>')
    assert got == []


# ── overlays ─────────────────────────────────────────────────────────────────
def test_a_trusted_file_loses_trust_when_it_changes(machine: Machine) -> None:
    """Over a socket: the key of a built-in provider reaches the address only while the file is as it was."""
    with Server(ANSWER) as server:
        file = machine.config / "providers.toml"
        machine.config.mkdir(parents=True)
        file.write_text(f'[providers.zai]\nbase_url = "{server.url}"\n')
        machine.env["ZAI_API_KEY"] = KEY
        call = ("call", "-m", "zai/glm-4.7", "hi")
        machine.run(*call).fails(2, "ZAI_API_KEY", "trust")
        assert machine.run("registry", "trust", str(file)).status == 0
        assert machine.run(*call).status == 0
        assert KEY in server.received[-1].head
        file.write_text(file.read_text() + "\n")
        machine.run(*call).fails(2, "ZAI_API_KEY", "trust")
        assert len(server.received) == 1
