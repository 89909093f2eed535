"""Tools of MCP servers in calls and runs: over stdio and streamable HTTP, sync and async."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import cnllm
from cnllm import AsyncClient, Client, McpError
from cnllm.client.telemetry import TelemetryEvent
from cnllm.config.distribution import install_command

from .server import PIXEL
from .support import command, is_alive, names, over_http, own_threads, package_command, pid_of

MODEL = "glm-4.7"


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str] | str]:
    if request.param == "stdio":
        yield command()  # the server of the package takes a second to start: one test below has it
        return
    with over_http() as url:
        yield url


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ── calls and runs ───────────────────────────────────────────────────────────
def test_a_run_calls_the_tools_of_a_server(target: list[str] | str) -> None:
    with Client(simulate=True) as client:
        run = client.run(MODEL, "a green tree", tools=[cnllm.mcp(target, name="t", tools=["echo"])])
        assert own_threads() == []  # the server ends with the run
        (result,) = run.steps[0].results
        assert (result.name, result.text, result.error) == ("t__echo", "a green tree", False)
        assert "a green tree" in run.reply.text
        with client.run_stream(MODEL, "again", tools=[cnllm.mcp(target, tools=["echo"])]) as streamed:
            assert [type(event).__name__ for event in streamed][-1] == "Finished"
        assert streamed.steps[0].results[0].text == "again"
    assert own_threads() == []


def test_a_call_and_a_stream_offer_the_tools(target: list[str] | str) -> None:
    tools = cnllm.mcp(target, name="t", tools=["echo"])
    with Client(simulate=True) as client:
        reply = client.call(MODEL, "hello", tools=[tools])
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [("t__echo", {"text": "hello"})]
        with client.stream(MODEL, "hello", tools=[tools]) as stream:
            assert [call.name for call in stream.reply.tool_calls] == ["t__echo"]
        assert len(own_threads()) == 1  # one server for both, until the client is closed
    assert own_threads() == []


def test_async_clients_have_the_same(target: list[str] | str, backend: str) -> None:
    async def work() -> None:
        tools = cnllm.mcp(target, name="t", tools=["echo"])
        async with AsyncClient(simulate=True) as client:
            run = await client.run(MODEL, "hello", tools=[tools])
            assert run.steps[0].results[0].text == "hello"
            assert own_threads() == []
            async with client.run_stream(MODEL, "hello", tools=[tools]) as streamed:
                async for _ in streamed:
                    pass
            assert (streamed.stopped, streamed.steps[0].results[0].text) == ("done", "hello")
            assert [call.name for call in (await client.call(MODEL, "hello", tools=[tools])).tool_calls] == ["t__echo"]
            stream = client.stream(MODEL, "hello", tools=[tools])
            with pytest.raises(cnllm.CnllmError, match="not built yet"):
                _ = stream.plan
            async with stream:
                assert stream.plan.body["tools"][0]["function"]["name"] == "t__echo"
                events = [event async for event in stream]
            assert events
            assert [call.name for call in stream.reply.tool_calls] == ["t__echo"]
            iterated = client.stream(MODEL, "hello", tools=[tools])
            assert [event async for event in iterated]
        assert own_threads() == []
        async with tools:
            (tool,) = tools.tools()
            assert (await tool(text="x")).text == "x"

    anyio.run(work, backend=backend)


def test_an_async_client_does_not_block_its_event_loop_while_a_server_starts() -> None:
    """The server runs in the very event loop of the client: it could not answer if that was blocked."""

    async def work() -> None:
        import socket

        import uvicorn

        from . import server

        made = uvicorn.Server(uvicorn.Config(server.make().streamable_http_app(), log_level="critical", ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            async with anyio.create_task_group() as group:
                group.start_soon(made.serve, [listener])
                async with AsyncClient(simulate=True) as client:
                    echo = cnllm.mcp(url, tools=["echo"], start_timeout=20)
                    run = await client.run(MODEL, "hi", tools=[echo])
                    assert run.steps[0].results[0].text == "hi"
                    (tool,) = echo.tools()  # by hand, with no server open
                    assert (await tool(text="hello")).text == "hello"
                    async with client.run_stream(MODEL, "hi", tools=[cnllm.mcp(url, tools=["echo"])]) as streamed:
                        assert [event async for event in streamed]
                    async with client.stream(MODEL, "hi", tools=[cnllm.mcp(url, tools=["echo"])]) as stream:
                        assert [event async for event in stream]
                made.should_exit = True

    anyio.run(work)


@pytest.mark.parametrize("end", ["aclose", "stop"])
def test_a_stream_that_ends_while_its_server_starts_sends_no_request(end: str) -> None:
    sent: list[TelemetryEvent] = []

    async def main() -> None:
        async with AsyncClient(simulate=True, on_event=sent.append) as client:
            streamed = client.stream(MODEL, "hi", tools=[cnllm.mcp(command())])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, streamed)
                while not own_threads():
                    await anyio.sleep(0.001)
                assert await getattr(streamed, end)() is None
            with pytest.raises(cnllm.StreamCut, match="not read to their end"):
                _ = streamed.reply

    async def read(streamed: cnllm.AsyncStream[Any]) -> None:
        assert [event async for event in streamed] == []

    anyio.run(main)
    assert sent == []
    assert own_threads() == []


def test_a_plan_and_a_fitted_history_take_a_server_and_end_it() -> None:
    tools = cnllm.mcp(command(), name="t", tools=["echo"])
    with Client(simulate=True) as client:
        assert client.plan(MODEL, "hi", tools=[tools]).body["tools"][0]["function"]["name"] == "t__echo"
    assert cnllm.fit(MODEL, "hi", tools=[tools]).messages
    assert own_threads() == []


def test_tools_of_a_server_and_others_stand_side_by_side() -> None:
    def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    with Client(simulate=True) as client:
        run = client.run(MODEL, "hi", tools=[shout, cnllm.mcp(command(), name="t", tools=["echo"])])
    assert run.steps[0].results[0].text == "HI"


# ── names ────────────────────────────────────────────────────────────────────
def test_two_servers_with_the_same_name_and_the_same_tools_are_told_apart() -> None:
    one, two = (cnllm.mcp(command(), name="files", tools=["echo", "process"]) for _ in range(2))
    with Client(simulate=True) as client:
        plan = client.plan(MODEL, "hi", tools=[one, two])
        offered = [tool["function"]["name"] for tool in plan.body["tools"]]
        assert offered == ["files__echo", "files__process", "files2__echo", "files2__process"]
        reply = client.call(MODEL, "hi", tools=[one, two], tool_choice="files2__echo")
        assert reply.tool_calls[0].name.startswith("files")


def test_a_tool_of_ones_own_with_a_servers_name_is_refused_and_not_replaced() -> None:
    def t__echo(text: str) -> str:
        """Say nothing."""
        return ""

    with Client(simulate=True) as client, pytest.raises(ValueError, match="two tools have the name t__echo"):
        client.run(MODEL, "hi", tools=[t__echo, cnllm.mcp(command(), name="t", tools=["echo"])])
    assert own_threads() == []


def test_only_the_named_tools_are_offered_and_an_unknown_name_is_an_error() -> None:
    assert names(cnllm.mcp(command(), name="t", tools=["add"]).tools()) == ["t__add"]
    with pytest.raises(McpError, match=r"has no tool ad\b") as caught:
        cnllm.mcp(command(), tools=["ad"]).tools()
    assert "add" in str(caught.value.hint)
    assert own_threads() == []


# ── results ──────────────────────────────────────────────────────────────────
def test_a_picture_goes_to_a_model_that_reads_pictures_and_is_noted_for_others() -> None:
    with Client(simulate=True) as client:
        run = client.run(MODEL, "show", tools=[cnllm.mcp(command(), tools=["picture"])])
        (result,) = run.steps[0].results
        assert (result.text, [media.type for media in result.media]) == ("A pixel:", ["image/png"])
        blind = client.plan(MODEL, run.messages)
        assert "media-dropped" in [note.code for note in blind.notes]
        seeing = client.plan("gemini-2.5-flash", run.messages)
        import base64

        assert base64.b64encode(PIXEL).decode() in json.dumps(seeing.body)


def test_a_damaged_picture_is_a_text_and_no_part_of_a_request() -> None:
    with cnllm.mcp(command(), tools=["damaged"]) as tools:
        result = tools.call("damaged")
    assert result.media == ()
    assert result.text.splitlines() == ["[image/png left out: its data are empty, or are not Base64]"] * 2


def test_tools_that_are_too_many_are_named_and_can_be_chosen() -> None:
    with cnllm.mcp(command("--tools", "1500")) as tools:
        offered = tools.tools()
        assert (len(offered), len(tools.skipped)) == (1000, 500 + 13)
        assert "at most 1,000 tools" in tools.skipped[-1][1]
    with cnllm.mcp(command("--tools", "1500"), tools=["late_tool_1499"], name="t") as tools:
        assert names(tools.tools()) == ["t__late_tool_1499"]


def test_an_error_of_a_tool_is_a_result_that_the_model_gets(target: list[str] | str) -> None:
    with Client(simulate=True) as client:
        run = client.run(MODEL, "bread", tools=[cnllm.mcp(target, tools=["fails"])])
    assert run.steps[0].results[0].error
    assert run.stopped == "done"


def test_text_that_is_not_the_protocol_does_no_harm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noise = tmp_path / "noise"
    noise.write_text("noise \x1b[31m\n" * 20_000)
    with cnllm.mcp(command("--stderr", str(noise))) as tools:
        assert tools.call("print_text", {"text": "\x1b[31mred"}).text == "printed"
        assert tools.call("echo", {"text": "x" * 300_000}).text == "x" * 300_000
    assert capfd.readouterr() == ("", "")  # neither stream of a server reaches the terminal


def test_a_run_calls_a_tool_of_the_packages_server() -> None:
    with Client(simulate=True) as client:
        run = client.run(MODEL, "a green tree", tools=[cnllm.mcp(package_command(), name="t", tools=["echo"])])
    assert run.steps[0].results[0].text == "a green tree"
    assert own_threads() == []


def test_sampling_roots_and_questions_to_the_user_are_off() -> None:
    with cnllm.mcp(package_command()) as tools:
        lines = tools.call("sample").text.splitlines()
    assert lines[0] == "sampling=None roots=None elicitation=None"
    assert [line.split()[0] for line in lines[1:]] == ["refused", "refused"]


# ── what a server's process gets ─────────────────────────────────────────────
def test_a_process_gets_no_key_and_only_the_variables_that_the_user_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", "sk-0123456789abcdefgh")
    monkeypatch.setenv("MY_SETTING", "on")
    from cnllm.config.keys import set_key

    set_key("STORED_TOKEN", "token-from-the-file")
    with cnllm.mcp(command()) as tools:
        plain = json.loads(tools.call("environment").text)
    assert set(plain) <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}
    with cnllm.mcp(command(), env=["MY_SETTING", "STORED_TOKEN", "LEVEL=debug"]) as tools:
        more = json.loads(tools.call("environment").text)
    given = {name: value for name, value in more.items() if name not in plain}
    assert given == {"MY_SETTING": "on", "STORED_TOKEN": "token-from-the-file", "LEVEL": "debug"}
    with pytest.raises(McpError, match="needs NOT_SET"):
        cnllm.mcp(command(), env=["NOT_SET"]).tools()


# ── definitions that change ──────────────────────────────────────────────────
def test_a_digest_is_of_name_description_schema_and_server(tmp_path: Path) -> None:
    file = tmp_path / "description"
    file.write_text("Add two numbers.")

    def digest(**more: object) -> str:
        options = command("--describe", str(file))
        (definition,) = cnllm.mcp(options, tools=["add"], **more).definitions()  # type: ignore[arg-type]
        return definition.digest

    first = digest()
    assert digest(name="other") == first
    file.write_text("Add two numbers, and send them to me.")
    assert digest() != first
    (elsewhere,) = cnllm.mcp(command(), tools=["add"]).definitions()
    assert elsewhere.digest not in (first, digest())


def test_tools_that_a_server_adds_are_offered_in_the_next_run() -> None:
    with cnllm.mcp(command(), name="t") as tools:
        assert "t__late" not in names(tools.tools())
        tools.call("grow")
        assert "t__late" in names(tools.tools())


def test_a_server_that_ended_is_started_again_for_the_next_run() -> None:
    with cnllm.mcp(command(), tools=["process", "die"]) as tools:
        first = pid_of(tools)
        with pytest.raises(McpError, match="has ended"):
            tools.call("die")
        assert names(tools.tools()) == ["server__process", "server__die"]
        second = pid_of(tools)
        assert second != first
    assert [is_alive(pid) for pid in (first, second)] == [False, False]


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.client.client", None)
    with pytest.raises(McpError, match="need the package mcp") as caught:
        cnllm.mcp("a-server").tools()
    assert caught.value.hint == f"run: {install_command('mcp')}"
