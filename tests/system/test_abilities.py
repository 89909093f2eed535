"""What systems do in different ways stands in `cnllm/system`, and usual acts run on a system without POSIX."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import home_folders
import httpx
import pytest

from docs.generate.rooms import PACKAGE

from .no_posix import MODULES, NAMES

PROGRAM = [sys.executable, str(Path(__file__).with_name("no_posix.py"))]
ALLOWED = {
    "schemas/grammar": "a program of its own, which imports nothing of the package",
}
OTHER = {
    "os": {"name", "kill", "getppid", "execv", "execve", "execvp", "supports_dir_fd", "set_blocking", "umask"},
    "select": {"select"},
}
METHODS = {"add_signal_handler", "remove_signal_handler"}
_HOMES = "|".join({*NAMES, *OTHER})
WORDS = re.compile(
    rf"\b(?:{'|'.join([*MODULES, *METHODS, 'msvcrt', 'winreg'])})\b|(?:has|get)attr\((?:{_HOMES}),"
    rf"|from (?:{_HOMES}) import|\b(?:{_HOMES})\.(?:{'|'.join(chain(*NAMES.values(), *OTHER.values()))})\b"
)
"""In files without any of these nothing is found, and a look at each of their nodes takes seconds."""


def _uses(path: Path) -> list[str]:
    """Return the names of POSIX that a file uses, as `module.name`."""
    text = path.read_text(encoding="utf-8")
    if not WORDS.search(text):
        return []
    names = {module: {*names, *OTHER.get(module, ())} for module, names in NAMES.items()}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"{node.value.id}.{node.attr}"] if node.attr in names.get(node.value.id, ()) else []
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.append(node.attr)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in {*MODULES, "msvcrt", "winreg"}]
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module in MODULES else []
            found += [f"{node.module}.{a.name}" for a in node.names if a.name in names.get(node.module, ())]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            module, name = [*node.args, None, None][:2]
            if isinstance(module, ast.Name) and isinstance(name, ast.Constant):
                found += [f"{module.id}.{name.value!s}"] if name.value in names.get(module.id, ()) else []
    return found


def test_only_the_two_homes_use_what_systems_do_in_different_ways() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if not module.startswith("system/") and module not in ALLOWED and (uses := _uses(path)):
            found[module] = uses
    assert found == {}
    assert len(_uses(PACKAGE / "system" / "files.py")) > 5  # so that an empty list above says something
    assert len(_uses(PACKAGE / "system" / "processes.py")) > 20


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, **home_folders.variables(tmp_path), "HOME": str(tmp_path), "LANG": "C.UTF-8"}


ACTS = """
import asyncio, io, signal, sys
from cnllm.cli import main
from cnllm.system import processes

def act(*args, stdin=""):
    sys.stdin = io.TextIOWrapper(open("stdin", "w+b"), encoding="utf-8")
    sys.stdin.buffer.write(stdin.encode())
    sys.stdin.buffer.seek(0)
    assert main(args) == 0, args

act("call", "-m", "glm-4.7", "--simulate", "first")
act("-c", "--simulate", "second")
act("chat", "-m", "glm-4.7", "--simulate", stdin="third\\n/quit\\n")
act("keys", "set", "zai", stdin="sk-1234567890abcdef")
act("keys", "list")
act("logs", "list")
act("models", "list", "zai")
act("registry", "set", "home/m", "limits.context=9", "--source", "https://example.com/x")
act("registry", "check")
act("batch", "rows.jsonl", "-m", "glm-4.7", "--simulate", "--out", "out.jsonl")
act("call", "-m", "glm-4.7", "--simulate", "--tool", "read", "--record", "tape.jsonl", "rows.jsonl")
assert main(["serve", "--simulate", "--no-key", "--workers", "2"]) == 2

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


def test_commands_run_without_posix(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"id": n, "prompt": f"row {n}"}) + "\n" for n in range(3)))
    config = home_folders.config_dir(tmp_path)
    config.mkdir(parents=True)
    own = '[providers.home]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
    (config / "providers.toml").write_text(own)
    done = subprocess.run(
        [*PROGRAM, "-c", ACTS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all done\n")
    for word in ("first", "second", "third"):
        assert f'You said: "{word}"' in done.stdout, word
    assert "this system cannot share one address among several processes" in done.stderr
    assert "leave out --workers" in done.stderr
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    assert json.loads((config / "keys.json").read_text()) == {"ZAI_API_KEY": "sk-1234567890abcdef"}
    assert "Traceback" not in done.stderr


def test_a_gateway_serves_and_is_probed_without_posix(environment: dict[str, str]) -> None:
    command = [*PROGRAM, "serve", "--simulate", "--no-key"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            body = {"model": "glm-4.7", "messages": [{"role": "user", "content": "hi"}]}
            answer = httpx.post(f"{address}/v1/chat/completions", json=body, trust_env=False)
            assert 'You said: "hi"' in answer.json()["choices"][0]["message"]["content"]
            probe = [*PROGRAM, "probe", address, "--model", "glm-4.7", "--max-requests", "5"]
            done = subprocess.run(probe, env=environment, capture_output=True, text=True, check=False)
            assert "Traceback" not in done.stderr, done.stderr
            assert 'protocol = "openai-chat"' in done.stdout, done.stderr
        finally:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate()
    assert "Traceback" not in errors, errors


def test_a_client_is_launched_without_posix(environment: dict[str, str]) -> None:
    """The client is a child then. Its exit status is that of the command."""
    client = "import os, sys; print(os.environ['OPENAI_BASE_URL']); sys.exit(3)"
    command = [*PROGRAM, "launch", "--simulate", "-m", "glm-4.7", sys.executable, "--", "-c", client]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("http://127.0.0.1:")) == (3, True), done.stderr
