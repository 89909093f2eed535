"""Every command runs on a system without POSIX."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import home_folders
import httpx
import pytest
import small

from cnllm.cli import app

PROGRAM = [sys.executable, str(Path(__file__).with_name("no_posix.py"))]
MODEL = ("-m", "glm-4.7")
SIMULATED = (*MODEL, "--simulate")
MESSAGES = '[{"role":"user","content":"fourth"}]'
ACTS: tuple[tuple[tuple[str, ...], str, int], ...] = (  # words, input, exit status
    (("call", *SIMULATED, "first"), "", 0),
    (("call", "-c", "--simulate", "second"), "", 0),
    (("chat", *SIMULATED), "third\n/quit\n", 0),
    (("batch", "rows.jsonl", *SIMULATED, "--out", "out.jsonl"), "", 0),
    (("call", *SIMULATED, "--tool", "read", "--record", "tape.jsonl", "rows.jsonl"), "", 0),
    (("fit", *MODEL), MESSAGES, 0),
    (("sanitize", *MODEL, "--tools", "tools.json"), "<think>aside</think>fifth", 0),
    (("keys", "set", "zai"), "sk-1234567890abcdef", 0),
    (("keys", "set", "deepseek"), "sk-1234567890abcdef", 0),
    (("keys", "remove", "deepseek"), "", 0),
    (("keys", "list"), "", 0),
    (("keys", "path"), "", 0),
    (("logs", "list"), "", 0),
    (("logs", "show", "last"), "", 0),
    (("logs", "search", "third"), "", 0),
    (("logs", "export", "last"), "", 0),
    (("logs", "cost"), "", 0),
    (("logs", "cache", "last"), "", 0),
    (("logs", "path"), "", 0),
    (("logs", "off"), "", 0),
    (("logs", "on"), "", 0),
    (("logs", "delete", "last", "--yes"), "", 0),
    (("models", "list", "zai"), "", 0),
    (("models", "show", "glm-4.7"), "", 0),
    (("models", "diff", "zai/glm-4.7", "zai/glm-4.6"), "", 0),
    (("models", "default", "glm-4.7"), "", 0),
    (("models", "add", "--provider", "home", "--id", "two", "--reasoning", "never"), "", 0),
    (("models", "matrix", "--html", "matrix.html"), "", 0),
    (("aliases", "set", "fast", "zai/glm-4.7"), "", 0),
    (("aliases", "list"), "", 0),
    (("aliases", "remove", "fast"), "", 0),
    (("prefer", "zai"), "", 0),
    (("call", *MODEL, "--save", "mine", "sixth"), "", 0),
    (("templates", "list"), "", 0),
    (("templates", "show", "mine"), "", 0),
    (("templates", "path", "mine"), "", 0),
    (("templates", "remove", "mine"), "", 0),
    (("registry", "set", "home/m", "limits.context=9", "--source", "https://example.com/x"), "", 0),
    (("registry", "fmt"), "", 0),
    (("registry", "check"), "", 0),
    (("registry", "path"), "", 0),
    (("registry", "why", "glm-4.7", "price.input"), "", 0),
    (("registry", "schema"), "", 0),
    (("registry", "export", "-o", "registry.json"), "", 0),
    (("registry", "trust", "trusted.toml"), "", 0),
    (("registry", "update", "--from", "list.json", "--yes", "--accept", "limits"), "", 0),
    (("registry", "rollback", "updates"), "", 0),
    (("registry", "upgrade", "list.json", "--yes"), "", 2),  # no release
    (("serve", "keys", "add", "ada"), "", 0),
    (("serve", "keys", "set", "ada", "--rpm", "5"), "", 0),
    (("serve", "keys", "list"), "", 0),
    (("serve", "keys", "revoke", "ada"), "", 0),
    (("serve", "teams", "add", "lab"), "", 0),
    (("serve", "teams", "set", "lab", "--rpm", "5"), "", 0),
    (("serve", "teams", "list"), "", 0),
    (("serve", "teams", "remove", "lab"), "", 0),
    (("serve", "--simulate", "--no-key", "--workers", "2"), "", 2),
    (("verify", "zai/glm-4.7", "--simulate", "--max-requests", "3"), "", 3),
    (("compare", "glm-4.7", "--hosts", "zai"), "", 0),
    (("completion", "powershell"), "", 0),
)
WITH_SERVER = {"serve", "serve top", "simulate", "probe", "keys test", "launch"}
"""Commands of the tests below, which serve or ask a server."""

RUN = """
import asyncio, io, json, signal, sys
from cnllm.cli import main
from cnllm.model_facts import summary
from cnllm.registry import files, read
from cnllm.system import processes

for module in (files, read, summary):
    module.builtin_file = lambda: sys.argv[2]
    module.catalogue_file = lambda: sys.argv[3]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's process in the background ignores it
wrong = []
for words, text, status in json.loads(sys.argv[1]):
    sys.stdin = io.TextIOWrapper(open("stdin", "w+b"), encoding="utf-8")
    sys.stdin.buffer.write(text.encode())
    sys.stdin.buffer.seek(0)
    if (got := main(words)) != status:
        wrong.append([words, got])
print(wrong, file=sys.stderr)

async def interrupted():
    done = asyncio.Event()
    end = processes.handle_interrupt(asyncio.get_running_loop(), done.set)
    signal.raise_signal(signal.SIGINT)
    await done.wait()
    end()

asyncio.run(interrupted())
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("all done")
"""


def _names(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each command that does something."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _names(inner, (*path, name))
    if path and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield " ".join(path)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, **home_folders.variables(tmp_path), "HOME": str(tmp_path), "LANG": "C.UTF-8"}


@contextmanager
def running(environment: dict[str, str], *words: str) -> Iterator[str]:
    """Run a server without POSIX, and yield what its first line says."""
    with subprocess.Popen(
        [*PROGRAM, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate()
    assert "Traceback" not in errors, errors


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PROGRAM, *words], env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_each_command_is_among_these_tests() -> None:
    acts = {" ".join(words) + " " for words, *_ in ACTS}
    names = set(_names(app.root))
    assert names >= WITH_SERVER
    assert {name for name in names - WITH_SERVER if not any(act.startswith(f"{name} ") for act in acts)} == set()


def test_commands_run_without_posix(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"id": n, "prompt": f"row {n}"}) + "\n" for n in range(3)))
    (tmp_path / "tools.json").write_text("[]")
    (tmp_path / "trusted.toml").write_text("")
    model = {"id": "glm-4.7", "limit": {"context": 12345, "output": 1234}}
    public = {"zai": {"id": "zai", "api": "https://api.z.ai/api/paas/v4", "models": {"glm-4.7": model}}}
    (tmp_path / "list.json").write_text(json.dumps(public))
    (tmp_path / "catalogue.toml").write_text("schema = 1\n")
    builtin = small.small_file(Path(os.environ[home_folders.SHARED_CACHE]) / "small")
    config = home_folders.config_dir(tmp_path)
    config.mkdir(parents=True)
    own = '[providers.home]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
    (config / "providers.toml").write_text(own)
    done = subprocess.run(
        [*PROGRAM, "-c", RUN, json.dumps(ACTS), str(builtin), "catalogue.toml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "[]" in done.stderr.splitlines(), done.stderr
    assert done.stdout.endswith("all done\n")
    for word in ("first", "second", "third"):
        assert f'You said: "{word}"' in done.stdout, word
    assert "this system cannot share one address among several processes" in done.stderr
    assert "leave out --workers" in done.stderr
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    assert json.loads((config / "keys.json").read_text()) == {"ZAI_API_KEY": "sk-1234567890abcdef"}


def test_a_gateway_serves_and_is_probed_without_posix(environment: dict[str, str]) -> None:
    environment["CNLLM_ADMIN_KEY"] = "sk-operator-1234567890"
    with running(environment, "serve", "--simulate", "--no-key") as address:
        body = {"model": "glm-4.7", "messages": [{"role": "user", "content": "hi"}]}
        answer = httpx.post(f"{address}/v1/chat/completions", json=body, trust_env=False)
        assert 'You said: "hi"' in answer.json()["choices"][0]["message"]["content"]
        done = run(environment, "probe", address, "--model", "glm-4.7", "--max-requests", "5")
        assert 'protocol = "openai-chat"' in done.stdout, done.stderr
        done = run(environment, "serve", "top", "--once", "--url", address)
        assert (done.returncode, "glm-4.7" in done.stdout) == (0, True), done.stderr


def test_a_simulator_serves_and_takes_a_key_without_posix(tmp_path: Path, environment: dict[str, str]) -> None:
    with running(environment, "simulate", "--port", "0") as line:
        address = line.split()[-1].rstrip("/")
        config = home_folders.config_dir(tmp_path)
        config.mkdir(parents=True)
        own = f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{address}/zai"\nkeys = ["HOME_KEY"]\n'
        (config / "providers.toml").write_text(own + '[models."home/glm-4.7"]\n')
        done = run({**environment, "HOME_KEY": "sk-1"}, "keys", "test", "home")
        assert (done.returncode, done.stdout.count("HOME_KEY")) == (0, 1), done.stdout + done.stderr


def test_a_client_is_launched_without_posix(environment: dict[str, str]) -> None:
    """The client is a child then. Its exit status is that of the command."""
    client = "import os, sys; print(os.environ['OPENAI_BASE_URL']); sys.exit(3)"
    done = run(environment, "launch", "--simulate", "-m", "glm-4.7", sys.executable, "--", "-c", client)
    assert (done.returncode, done.stdout.startswith("http://127.0.0.1:")) == (3, True), done.stderr
