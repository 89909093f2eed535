"""Servers that do not start, end, hang or lie: typed errors, and runs that go on; nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import cnllm
from cnllm import AsyncClient, Client, LoopStopped, McpError

from .support import SOON, command, is_alive, over_http, own_threads, pid_of, read_pipe

MODEL = "glm-4.7"


# ── the start ────────────────────────────────────────────────────────────────
def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(McpError, match=r"cannot be used \(no-such-server --x\): there is no no-such-server") as caught:
        cnllm.mcp("no-such-server --x").tools()
    assert caught.value.server == "no-such-server --x"
    assert own_threads() == []


def test_a_server_that_ends_at_the_start_is_named_with_its_last_lines_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    lines = "first\n" * 50 + "the port is taken\nTOKEN was hunter2-hunter2\nand sk-0123456789abcdefghij\x1b[31m"
    file = tmp_path / "lines"
    file.write_text(lines)
    words = command("--stderr", str(file), "--exit", "3", "--api-key", "hunter3-hunter3", "hunter2-hunter2")
    with pytest.raises(McpError) as caught:
        cnllm.mcp(words, env=["TOKEN"]).tools()
    error = caught.value
    assert error.stderr[-3:] == ("the port is taken", "TOKEN was [redacted]", "and [redacted] [31m")
    assert len(error.stderr) == 5
    assert "the port is taken" in str(error)
    assert "server.py" in str(error)
    everything = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert not any(secret in everything for secret in ("hunter2", "hunter3", "sk-0123456789"))
    assert own_threads() == []


def test_a_server_that_says_nothing_is_given_up() -> None:
    with pytest.raises(McpError, match=r"did not answer within 0\.3 s"):
        cnllm.mcp(command("--silent"), start_timeout=0.3).tools()
    assert own_threads() == []


def test_a_url_where_nobody_answers_or_something_else_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(McpError, match="cannot be used"):
        cnllm.mcp(f"http://127.0.0.1:{port}/mcp").tools()
    with over_http() as url, pytest.raises(McpError, match="cannot be used"):
        cnllm.mcp(url.replace("/mcp", "/other?token=hunter2-hunter2")).tools()
    assert own_threads() == []


def test_a_run_whose_server_does_not_start_sends_nothing() -> None:
    events: list[object] = []
    with Client(simulate=True, on_event=events.append) as client:
        with pytest.raises(McpError):
            client.run(MODEL, "hi", tools=[cnllm.mcp("no-such-server")])
        with pytest.raises(McpError):
            client.call(MODEL, "hi", tools=[cnllm.mcp("no-such-server")])
    assert not any("RequestSent" in type(event).__name__ for event in events)

    async def work() -> None:
        async with AsyncClient(simulate=True) as client:
            with pytest.raises(McpError) as caught:
                await client.run(MODEL, "hi", tools=[cnllm.mcp("no-such-server")])
            assert caught.value.run.stopped == "error"

    anyio.run(work)


def test_one_of_two_servers_that_does_not_start_ends_the_other() -> None:
    with Client(simulate=True) as client, pytest.raises(McpError):
        client.run(MODEL, "hi", tools=[cnllm.mcp(command()), cnllm.mcp("no-such-server")])
    assert own_threads() == []


# ── in the middle ────────────────────────────────────────────────────────────
def test_the_model_is_told_of_a_server_that_ends_and_the_run_goes_on() -> None:
    with Client(simulate=True) as client:
        run = client.run(MODEL, "hi", tools=[cnllm.mcp(command(), name="t", tools=["die"])])
        (result,) = run.steps[0].results
        assert (result.error, run.stopped) == (True, "done")
        assert "the MCP server t failed: it has ended" in result.text
    assert own_threads() == []

    async def work() -> None:
        async with AsyncClient(simulate=True) as client:
            run = await client.run(MODEL, "hi", tools=[cnllm.mcp(command(), name="t", tools=["die"])])
            assert "the MCP server t failed: it has ended" in run.steps[0].results[0].text

    anyio.run(work)
    assert own_threads() == []


def test_a_server_that_asks_and_reads_no_answer_is_read_no_further() -> None:
    with cnllm.mcp(command(), tools=["flood"], timeout=2) as tools, pytest.raises(McpError, match="no result in 2 s"):
        tools.call("flood")
    assert own_threads() == []


def test_a_call_that_takes_too_long_is_given_up_and_the_server_goes_on(tmp_path: Path) -> None:
    file = str(tmp_path / "pid")
    with cnllm.mcp(command(), tools=["wait", "echo"], timeout=2) as tools:
        with pytest.raises(McpError, match=r"wait of the MCP server server gave no result in 2 s"):
            tools.call("wait", {"text": file})
        assert tools.call("echo", {"text": "still here"}).text == "still here"
    with Client(simulate=True) as client:
        run = client.run(MODEL, file, tools=[cnllm.mcp(command(), tools=["wait"], timeout=0.3)])
    assert "Timeout: it gave no result in 0.3 s" in run.steps[0].results[0].text
    assert not is_alive(int(Path(file).read_text()))


# ── nothing is left ──────────────────────────────────────────────────────────
def test_nothing_is_left_after_errors_and_ctrl_c() -> None:
    pids: list[int] = []

    def run(on_step: Callable[[Any], None], error: type[BaseException] | None) -> None:
        with Client(simulate=True) as client:
            catch = pytest.raises(error) if error else contextlib.nullcontext()
            with catch:
                client.run(MODEL, "hi", tools=[cnllm.mcp(command(), tools=["process"])], on_step=on_step)
        assert own_threads() == []

    def keep(step: Any) -> None:
        pids.extend(int(result.text) for result in step.results)

    def fail(step: Any) -> None:
        keep(step)
        raise ZeroDivisionError

    def interrupt(step: Any) -> None:
        keep(step)
        raise KeyboardInterrupt

    run(keep, None)
    run(fail, ZeroDivisionError)
    run(interrupt, KeyboardInterrupt)
    tools = cnllm.mcp(command(), tools=["process"])
    with Client(simulate=True) as client, client.run_stream(MODEL, "hi", tools=[tools]) as stream:
        next(iter(stream))  # and then leave it
    assert own_threads() == []
    assert len(pids) == 3
    assert not any(map(is_alive, pids))
    assert own_threads() == []


def test_a_cancelled_run_ends_its_server_in_the_middle_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe = Path("pid")
    os.mkfifo(pipe)  # the tool writes its process into it, and reading waits for that
    pids: list[int] = []
    with Client(simulate=True) as client:
        run = client.run_stream(MODEL, str(pipe), tools=[cnllm.mcp(command(), tools=["wait"])])

        def cancel() -> None:
            pids.append(int(read_pipe(pipe)))
            run.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        with run:
            list(run)
        thread.join()
    assert run.stopped == "cancelled"
    assert not is_alive(pids[0])
    assert own_threads() == []

    async def work() -> None:
        async with AsyncClient(simulate=True) as client:
            tools = cnllm.mcp(command(), tools=["wait"])
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.run(MODEL, str(pipe), tools=[tools]))
                pids.append(int(await anyio.to_thread.run_sync(read_pipe, pipe)))
                group.cancel_scope.cancel()

    anyio.run(work)
    assert not is_alive(pids[1])
    assert own_threads() == []


def test_a_set_that_nobody_has_any_more_ends_its_server() -> None:
    tools = cnllm.mcp(command())
    tools.retain()
    pid = pid_of(tools)
    (thread,) = [thread for thread in threading.enumerate() if thread.name.startswith("cnllm-mcp")]
    del tools
    gc.collect()
    thread.join(SOON)
    assert not is_alive(pid)


def test_a_run_that_did_not_finish_ends_its_server_too() -> None:
    def process() -> None:
        with Client(simulate=True) as client:
            client.run(MODEL, "hi", tools=[cnllm.mcp(command(), tools=["process"])], max_steps=1)

    with pytest.raises(LoopStopped):
        process()
    assert own_threads() == []


# ── forks ────────────────────────────────────────────────────────────────────
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_starts_a_server_of_its_own_and_leaves_its_parents_alone() -> None:
    with cnllm.mcp(command()) as tools:
        parents = pid_of(tools)
        out, into = os.pipe()
        go, end = os.pipe()  # the child lives until the parent closes this
        child = os.fork()
        if not child:
            os.close(end)
            try:
                os.write(into, f"{pid_of(tools)} ".encode())
            except BaseException:  # noqa: BLE001 the parent reads it
                os.write(into, traceback.format_exc().encode())
            os.read(go, 1)
            os._exit(0)
        os.close(into)
        try:
            readable, _, _ = select.select([out], [], [], SOON)
            assert readable, "the child hangs"
            said = os.read(out, 65536).decode()
            assert said.strip().isdecimal(), said
            assert int(said) != parents
            assert pid_of(tools) == parents
            tools.close()  # the child has no copy of the pipe that would keep the server alive
            assert not is_alive(parents)
            assert is_alive(int(said))
        finally:
            os.close(end)
            os.waitpid(child, 0)
            os.close(out)
            os.close(go)
