"""Canaries go through every command, over real sockets, and show nowhere: not on a screen, not in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.support import DONE, HEAD, Done, Machine, Reset, Server, chunk, http, texts, whole

from .canaries import HEADER, KEY, PASSWORD, PROXY, clean

ECHO = f"you sent {KEY}, {HEADER} and {PASSWORD}"
STREAM = (HEAD, chunk(role="assistant", reasoning_content=f"hm {KEY}"), texts("The sky ", ECHO), chunk("stop"), DONE)
WHOLE = (http(200, whole(content=f"The sky. {ECHO}"), x_echo=KEY),)
ERROR = (http(401, f'{{"error": {{"message": "wrong: {ECHO}", "code": "{KEY}"}}}}'.encode(), x_echo=KEY),)
BUSY = (http(503, f'{{"error": {{"message": "busy: {ECHO}"}}}}'.encode(), retry_after="0"),)
CUT = (HEAD, texts("The sky ", ECHO), Reset)
CALL = ("call", "-m", "home/m")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.env |= {"HOME_TEST_KEY": KEY, "OTHER_PROXY": f"http://user:{PROXY}@127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    return machine


def overlay(machine: Machine, url: str) -> None:
    machine.config.mkdir(parents=True, exist_ok=True)
    (machine.config / "providers.toml").write_text(
        f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{url.replace("://", f"://user:{PASSWORD}@")}"\n'
        f'keys = ["HOME_TEST_KEY"]\nauth = {{ header = "x-api-key", value = "{{key}}" }}\n'
        f'headers = {{ x-team = "{HEADER}" }}\n[models."home/m"]\n'
    )


def run(machine: Machine, script: tuple[object, ...], *args: str, stdin: str | None = None) -> tuple[Done, Server]:
    with Server(script) as server:  # type: ignore[arg-type]
        overlay(machine, server.url)
        done = machine.run(*args, stdin=stdin)
    clean(done.out, done.err)
    for request in server.received:
        assert KEY in request.head
        assert HEADER in request.head
        assert "Basic " in request.head
    return done, server


def files(machine: Machine, *but: str) -> list[Path]:
    """Every file below the home, all without canaries."""
    there = [path for path in machine.home.rglob("*") if path.is_file() and path.name not in but]
    clean(*(path.read_bytes() for path in there))
    return there


OUTCOMES = {
    "success": (STREAM, 0),
    "an error": (ERROR, 1),
    "a retry": (BUSY, 1),
    "a cut": (CUT, 3),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("form", [[], ["--json"], ["--events", "--debug"], ["--debug"]], ids=" ".join)
def test_a_call_its_outcome_and_its_logs(machine: Machine, outcome: str, form: list[str]) -> None:
    machine.env["CNLLM_ATTEMPTS"] = "2"
    script, status = OUTCOMES[outcome]
    tape, raw = str(machine.home / "tape"), str(machine.home / "raw")
    done, server = run(machine, script, *CALL, *form, "--record", tape, "--raw-log", raw, f"Is {KEY} a key?")
    assert done.status == status, done.err
    assert server.received
    if form == ["--debug"]:
        assert ("Traceback" in done.err) == (status != 0)
    for args in (["list"], ["show", "--reasoning"], ["search", "key"], ["export"], ["show", "--json"]):
        shown = machine.run("logs", *args)
        assert shown.status == 0
        clean(shown.out, shown.err)
    assert len(files(machine, "providers.toml")) >= 3
    if not form and status != 3:
        again = machine.run(*CALL, "--replay", tape, f"Is {KEY} a key?")
        clean(again.out, again.err)
        assert again.status in (0, 1)


def test_whole_replies_and_chats(machine: Machine) -> None:
    run(machine, WHOLE, *CALL, "--no-stream", "hi")
    run(machine, STREAM, "chat", "-m", "home/m", stdin=f"Hello, {KEY}\n/cost\n/retry\n/undo\n")
    run(machine, ERROR, "chat", "-m", "home/m", stdin="Hello\n")
    files(machine, "providers.toml")


SHOWING = [
    [*CALL, "hi", "--plan"],
    [*CALL, "hi", "--curl"],
    ["models", "show", "home/m"],
    ["models", "show", "home/m", "--json"],
    ["models", "show", "home/m", "--explain"],
    ["models", "show", "home/m", "--explain", "--json"],
    ["models", "list", "home", "--json"],
    ["registry", "check"],
    ["keys", "list"],
    ["keys", "list", "--json"],
    [*CALL, "hi", "--key-env", KEY],
    ["keys", "set", KEY],
    ["keys", "set", KEY, KEY, "--debug"],
    [*CALL, "hi", "--base-url", f"ftp://user:{PASSWORD}@home", "--debug"],
    [*CALL, "hi", "--base-url", f"http://user:{PASSWORD}@127.0.0.1:1/v1", "--debug"],
]


@pytest.mark.usefixtures("small_builtin")
@pytest.mark.parametrize("args", SHOWING, ids=lambda args: " ".join(args)[:40])
def test_what_is_shown_without_a_call(machine: Machine, args: list[str]) -> None:
    machine.env["CNLLM_ATTEMPTS"] = "1"
    (machine.config).mkdir(parents=True)
    keys = machine.config / "keys.json"
    keys.write_text(f'{{"KEPT_KEY": "{KEY}"}}')
    keys.chmod(0o644)  # which is told of
    done, server = run(machine, STREAM, *args)
    assert server.received == []
    assert "Traceback" not in done.err or "--debug" in args
    files(machine, "providers.toml", "keys.json")


def test_a_crash_and_a_tool_that_shows_the_environment(machine: Machine) -> None:
    """What nobody foresaw is told without secrets too; with --debug the traceback is."""
    machine.file("broken.py", "import os\n\ndef look() -> str:\n    'Look.'\n    return str(dict(os.environ))\n")
    machine.file("dead.py", "import os\nraise SystemError(os.environ['HOME_TEST_KEY'])\n")
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asks = (HEAD, chunk(tool_calls=[call]), chunk("tool_calls"), DONE)
    with Server(asks, STREAM) as server:
        overlay(machine, server.url)
        done = machine.run(*CALL, "--tool", str(machine.home / "broken.py:look"), "--approve", "all", "hi")
    assert (done.status, len(server.received)) == (0, 2)
    clean(done.out, done.err)
    files(machine, "providers.toml")
    for more in ([], ["--debug"]):
        dead, _ = run(machine, STREAM, *CALL, "--tool", str(machine.home / "dead.py:look"), *more, "hi")
        assert dead.status == 2
