"""`cnllm launch`: a client runs on any model, through a gateway that ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cnllm.cli.commands.launch import launch
from cnllm.config.distribution import install_command
from cnllm.gateway.model_names import ModelNames
from cnllm.launch.setup import KnownClient, Values, build_setup, clients, find_client
from cnllm.registry import Registry

from .support import ANSWER, Machine, Server

posix = pytest.mark.skipif(os.name != "posix", reason="the client takes the place of the launching process")

CLIENT = """#!{python}
import json, os, signal, sys, urllib.request
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def post(url, body, **headers):
    headers = {{"content-type": "application/json", **{{k.replace("_", "-"): v for k, v in headers.items()}}}}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)
def chat(*messages):
    return post(url + "/chat/completions", {{"model": "gpt-5", "messages": messages}}, authorization="Bearer " + key)
def user(text):
    return {{"role": "user", "content": text}}
"""


def script(machine: Machine, lines: str, name: str = "client.py") -> str:
    """An executable client: what `CLIENT` defines, and these lines."""
    path = machine.file(name, CLIENT.format(python=sys.executable) + lines)
    os.chmod(path, 0o755)
    return path


def is_closed(url: str) -> bool:
    """Whether nobody listens there, now or within some seconds."""
    port = int(re.findall(r":(\d+)", url)[0])
    for _ in range(500):
        with socket.socket() as peer:
            if peer.connect_ex(("127.0.0.1", port)) != 0:
                return True
        time.sleep(0.02)
    return False


THREE = """
messages = post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
    {"model": "claude-haiku-4-5", "max_tokens": 99, "messages": [user("hi")]},
    x_api_key=os.environ["ANTHROPIC_API_KEY"])
gemini = post(os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/gemini-3-flash:generateContent",
    {"contents": [{"parts": [{"text": "hi"}]}]}, x_goog_api_key=os.environ["GEMINI_API_KEY"])
print(json.dumps({"url": url, "args": sys.argv[1:], "stdin": sys.stdin.read(),
    "chat": chat(user("hi"))["choices"][0]["message"]["content"], "messages": messages["content"][-1]["text"],
    "gemini": gemini["candidates"][0]["content"]["parts"][-1]["text"]}))
sys.exit(7)
"""


@posix
def test_any_command_finds_the_gateway_in_every_protocol(machine: Machine) -> None:
    """Names of other vendors' models mean the chosen one; arguments, stdin, stdout and exit status are passed on."""
    command = ("launch", script(machine, THREE), "--model", "glm-4.7", "--simulate", "--", "-x", "--model", "y")
    done = machine.run(*command, stdin="from a pipe", process=True)
    assert done.status == 7, done
    shown = done.json()
    assert (shown["args"], shown["stdin"]) == (["-x", "--model", "y"], "from a pipe")
    assert all("the real glm-4.7 was not called" in shown[name] for name in ("chat", "messages", "gemini"))
    assert len(done.err.splitlines()) == 1
    assert "simulator" in done.err
    assert is_closed(shown["url"])


@posix
@pytest.mark.parametrize("mode", ["on", "off"])
def test_what_the_calls_of_a_client_cost_is_logged(machine: Machine, mode: str) -> None:
    machine.env["CNLLM_LOG"] = mode
    path = script(machine, "chat(user('words that stay out'))\nprint(url)")
    done = machine.run("launch", path, "-m", "glm-4.7", "--simulate", process=True)
    assert is_closed(done.out)
    deadline = time.monotonic() + 30  # the gateway writes it at its end
    while not (listed := machine.run("logs", "list", "--json").json()) and mode == "on":
        assert time.monotonic() < deadline
    assert [row["models"] for row in listed] == ([["zai/glm-4.7"]] if mode == "on" else [])
    assert all(b"words that stay out" not in file.read_bytes() for file in machine.data.glob("conversations.db*"))


@posix
def test_a_client_that_a_signal_ends_ends_so_for_us(machine: Machine) -> None:
    path = script(machine, "os.kill(os.getpid(), signal.SIGTERM)")
    assert machine.run("launch", path, "-m", "glm-4.7", "--simulate", process=True).status == -signal.SIGTERM


@posix
def test_ctrl_c_is_the_clients(machine: Machine) -> None:
    """The gateway serves on: an agent uses Ctrl-C to interrupt itself, and goes on."""
    path = script(
        machine,
        "signal.signal(signal.SIGINT, lambda *_: (chat(user('again')), os.write(1, b'served\\n'), os._exit(5)))\n"
        "print(url, flush=True)\nwhile True: signal.pause()\n",
    )
    process = machine.start("launch", path, "-m", "glm-4.7", "--simulate", start_new_session=True)
    assert process.stdout is not None
    url = process.stdout.readline().decode()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the foreground
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"served\n", 5)
    assert is_closed(url)


@posix
def test_the_gateway_ends_when_the_client_is_killed(machine: Machine) -> None:
    process = machine.start(
        "launch", script(machine, "print(url, flush=True)\nsignal.pause()"), "-m", "glm-4.7", "--simulate"
    )
    assert process.stdout is not None
    url = process.stdout.readline().decode()
    process.kill()
    process.communicate(timeout=30)
    assert is_closed(url)


@posix
def test_the_next_launch_has_the_reasoning_of_the_last(machine: Machine) -> None:
    """The client keeps no reasoning; the endpoint wants it back, and gets it after a new start with a new key."""
    first = script(machine, "print(json.dumps(chat(user('hi'))['choices'][0]['message']['content']))", "first.py")
    second = script(machine, "chat(user('hi'), {'role': 'assistant', 'content': 'Hello'}, user('on'))", "second.py")
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, 'reasoning = { replay = "always" }')
        done = machine.run("launch", first, "-m", "home/m", process=True)
        assert done.out == '"Hello"\n', done
        assert machine.run("launch", second, "-m", "home/m", process=True).status == 0
        turn = peer.received[1].json()["messages"][1]
    assert (turn["content"], turn["reasoning_content"]) == ("Hello", "hm")


def test_what_cannot_start_says_so_before_anything_starts(machine: Machine) -> None:
    path = script(machine, "open('started', 'w')")
    machine.run("launch", "claude", "-m", "glm-4.7", env={"PATH": "/none"}).fails(
        2, "claude is not installed", "npm install -g @anthropic-ai/claude-code"
    )
    machine.run("launch", "no-such-client", "-m", "glm-4.7").fails(2, "no-such-client is not installed")
    machine.run("launch", path, "-m", "no-such-model", cwd=machine.home).fails(2, "no-such-model")
    machine.run("launch", path, "-m", "glm-4.7", cwd=machine.home).fails(2, "ZAI_API_KEY", "--simulate")
    machine.run("launch", path, cwd=machine.home).fails(2, "--model")
    machine.run("launch", path, "-m", "glm-4.7", "-p", "hi", cwd=machine.home).fails(2, "-p", "after --")
    assert not (machine.home / "started").exists()


@posix
def test_a_gateway_that_does_not_start_says_why(machine: Machine) -> None:
    path = script(machine, "open('started', 'w')")
    (machine.home / "uvicorn.py").write_text("raise ImportError")
    env = {"PYTHONPATH": str(machine.home)}
    command = ("launch", path, "-m", "glm-4.7", "--simulate")
    done = machine.run(*command, env=env, cwd=machine.home, process=True)
    assert (done.status, done.out) == (2, "")
    assert "uvicorn" in done.err
    assert install_command("serve") in done.err
    assert not (machine.home / "started").exists()


DUMP = """#!{python}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""


@posix
def test_the_users_configuration_stays_as_it_is(machine: Machine) -> None:
    """Each client gets a folder of its own. Keys and settings that would win over the gateway are removed."""
    bin = machine.home / "bin"
    bin.mkdir()
    for name in clients():
        (bin / name).write_text(DUMP.format(python=sys.executable))
        (bin / name).chmod(0o755)
    own = {
        ".claude/settings.json": "{}",
        ".claude.json": "{}",
        ".codex/config.toml": "x = 1",
        ".gemini/settings.json": "{}",
    }
    for name, content in own.items():
        path = machine.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    before = {path for path in machine.home.rglob("*") if path.is_file() and machine.data not in path.parents}
    env = {
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "ANTHROPIC_API_KEY": "sk-the-users-own",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "intern",
        "ANTHROPIC_CUSTOM_HEADERS": "x-team: blue",
    }
    for name in ("claude", "codex", "gemini"):
        done = machine.run("launch", name, "-m", "glm-4.7", "--simulate", env=env, process=True)
        assert done.status == 0, done
        words, seen = done.json()
        assert re.search(r"x-cnllm-on-unsupported\W+adjust", " ".join([*words, *seen.values()]))
        if name == "claude":
            assert seen["ANTHROPIC_CUSTOM_HEADERS"] == "x-team: blue\nx-cnllm-on-unsupported: adjust"
        folder = machine.data / "launch" / name
        assert str(folder) in seen.values()
        assert folder.stat().st_mode & 0o077 == 0
        assert seen["NO_PROXY"] == seen["no_proxy"] == "intern,127.0.0.1,localhost,::1"
        removed = {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"} if name == "claude" else set()
        assert env.keys() - seen.keys() == removed
    new = {path for path in machine.home.rglob("*") if path.is_file() and machine.data not in path.parents} - before
    assert new <= {machine.config / "serve.keys"}
    assert all((machine.home / name).read_text() == content for name, content in own.items())


@posix
def test_the_printed_script_does_the_same(machine: Machine) -> None:
    path = script(machine, "print(chat(user('hi'))['choices'][0]['message']['content'], *sys.argv[1:])", "a client.py")
    done = machine.run("launch", path, "-m", "glm-4.7", "--simulate", "--print", "--", "it's me")
    assert done.status == 0, done
    assert not (machine.data).exists(), "nothing is started or written"
    bin = machine.home / "bin"
    bin.mkdir()
    (bin / "cnllm").write_text(f'#!/bin/sh\nexec {sys.executable} -m cnllm "$@"\n')
    (bin / "cnllm").chmod(0o755)
    env = {**machine.env, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"}
    out = machine.home / "out"
    with out.open("w") as file:  # no pipe: the gateway goes on
        subprocess.run(["sh"], input=done.out, env=env, stdout=file, stderr=file, text=True, timeout=60, check=True)
    lines = out.read_text().splitlines()
    started = json.loads(next(line for line in lines if line.startswith("{")))
    os.kill(started["pid"], signal.SIGTERM)
    assert is_closed(started["url"])
    assert "the real glm-4.7 was not called" in lines[-1]
    assert lines[-1].endswith("it's me")


def test_the_printed_script_writes_the_files(machine: Machine) -> None:
    done = machine.run("launch", "claude", "-m", "glm-4.7", "--print")
    lines = done.out.splitlines()
    begin, end = next(i for i, line in enumerate(lines) if line.startswith("mkdir")), lines.index("CNLLM_FILE")
    commands = "\n".join(lines[begin : end + 1])
    subprocess.run(["sh"], input=commands, env=machine.env, text=True, check=True)
    file = machine.data / "launch" / "claude" / ".claude.json"
    assert json.loads(file.read_text()) == {"hasCompletedOnboarding": True}


# ── clients.toml ─────────────────────────────────────────────────────────────
def facts(client: KnownClient) -> list[tuple[str, str]]:
    """(what, source) of all that is set for a client."""
    named: list[tuple[str, Any]] = [*client.variables.items(), *client.files.items()]
    named += [(" ".join(argument.words), argument) for argument in client.arguments]
    return [(client.title, client.source), *((name, fact.source) for name, fact in named)]


def test_every_fact_has_a_source() -> None:
    for name, client in clients().items():
        for what, source in facts(client):
            assert re.fullmatch(r"https://[\w.-]+/\S*", source), (name, what, source)


def test_files_hold_nothing_that_differs_from_launch_to_launch() -> None:
    """Two launches of a client at once share its folder."""
    for name, client in clients().items():
        for path, file in client.files.items():
            assert "{url}" not in file.content, (name, path)
            assert "{key}" not in file.content, (name, path)
            assert not Path(path).is_absolute()
            assert ".." not in path


def test_all_names_of_a_client_mean_the_chosen_model() -> None:
    registry = Registry.load()
    for name, client in clients().items():
        names = ModelNames(registry, dict.fromkeys(client.models, "zai/glm-4.7"))
        for pattern in client.models:
            model = names.resolve(pattern.replace("*", "some-1"))
            assert not isinstance(model, str)
            assert model.name == "zai/glm-4.7", (name, pattern)
        other = names.resolve("deepseek/deepseek-flash")
        assert not isinstance(other, str)
        assert other.name == "deepseek/deepseek-flash", "every other model can be named, too"


def test_the_help_names_the_clients() -> None:
    assert launch.help is not None
    assert all(re.search(rf"\b{name}\b", launch.help) for name in clients())


def test_a_path_or_a_windows_name_is_the_client() -> None:
    for command in ("claude", "/opt/bin/claude", "claude.cmd", "CLAUDE.EXE"):
        assert find_client(command)[0] == "claude"
    assert find_client("./claude_agent.py")[0] == "any"


def environment_of(command: str, own: dict[str, str]) -> dict[str, str]:
    """The environment of a client whose user has these variables."""
    values = Values("http://127.0.0.1:1", "sk-key", "glm-4.7", "/f")
    return build_setup(find_client(command)[1], command, [], values, own).environment(own)


def test_what_would_win_over_the_gateway_does_not() -> None:
    """aider lets an .env and its own file replace OPENAI_API_BASE and OPENAI_API_KEY, and not what is its own."""
    seen = environment_of("aider", {"OPENAI_BASE_URL": "http://other/v1", "AIDER_OPENAI_API_BASE": "http://other/v1"})
    places = {name: value for name, value in seen.items() if name.endswith(("_BASE", "_BASE_URL"))}
    assert set(places) == {"OPENAI_API_BASE", "OPENAI_BASE_URL", "AIDER_OPENAI_API_BASE"}
    assert set(places.values()) == {"http://127.0.0.1:1/v1"}
    assert seen["AIDER_OPENAI_API_KEY"] == "sk-key"
    clouds = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_GENAI_USE_ENTERPRISE": "true"}
    for command in ("./my_agent.py", "gemini"):
        assert environment_of(command, clouds).keys().isdisjoint(clouds)
    assert "ANTHROPIC_AUTH_TOKEN" not in environment_of("./my_agent.py", {"ANTHROPIC_AUTH_TOKEN": "sk-mine"})


@pytest.mark.parametrize(
    ("own", "value"), [("*", "*"), ("", "127.0.0.1,localhost,::1"), ("intern", "intern,127.0.0.1,localhost,::1")]
)
def test_a_proxy_is_left_out_for_this_machine(own: str, value: str) -> None:
    """A star excludes every host only where it stands alone."""
    seen = environment_of("any", {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": own})
    assert seen["NO_PROXY"] == seen["no_proxy"] == value


def test_the_templates_of_a_client_quote_values_and_leave_out_unknown_limits() -> None:
    """Values are quoted in files and in JSON; what names an unknown limit is left out, with its table."""
    _, opencode = find_client("opencode")
    model = 'a"b\\c'
    for context, limit in ((1000, {"context": 1000, "output": 10}), (None, None)):
        values = Values("http://127.0.0.1:1", "k", model, "/f", context, 10)
        config = build_setup(opencode, "opencode", [], values, {}).variables["OPENCODE_CONFIG_CONTENT"]
        assert config is not None
        entry = json.loads(config)["provider"]["cnllm"]["models"]["launched"]
        assert entry["id"] == model
        assert entry.get("limit") == limit
    _, codex = find_client("codex")
    for context, words in ((1000, ["-c", "model_context_window=1000"]), (None, [])):
        command = build_setup(codex, "codex", ["-m", "x"], Values("u", "k", "m", "/f", context), {}).command
        assert [*command[-2 - len(words) : -2]] == words if words else "model_context" not in str(command)
        assert 'model="m"' not in command, "the user's own choice wins"
    _, llm = find_client("llm")
    file = next(iter(build_setup(llm, "llm", [], Values("u", "k", model, "/f"), {}).files.values())).content
    assert 'model_name: "a\\"b\\\\c"' in file


@pytest.mark.share(2)
@posix
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGSTOP); sys.exit(7)", 7),
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(5)); print('READY', flush=True); signal.pause()", 5),
    ],
)
def test_at_a_terminal_the_command_that_goes_on_is_printed_last(machine: Machine, lines: str, status: int) -> None:
    """The exit status, stops and signals stay those of the client."""
    import pty

    folder = machine.home / "bin"
    folder.mkdir()
    client = folder / "claude"
    client.write_text(
        f"#!{sys.executable}\nimport os, signal, sys\nprint('CLIENT', sys.argv[1:], flush=True)\n{lines}\n"
    )
    client.chmod(0o755)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        machine.command("launch", "claude", "-m", "glm-4.7", "--simulate"),
        env={**machine.env, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    if "SIGSTOP" in lines:
        _, stopped = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(stopped)  # as a shell sees it
        os.kill(process.pid, signal.SIGCONT)
    shown = b""
    while True:
        try:
            shown += (piece := os.read(master, 4096))
        except OSError:
            break
        if not piece:
            break
        if b"READY" in shown:
            os.killpg(process.pid, signal.SIGINT)
            shown = shown.replace(b"READY", b"")
    assert process.wait(30) == status, shown
    os.close(master)
    *_, advice, command = shown.decode().strip().splitlines()
    assert advice == "cnllm: to go on with this session:"
    assert command == "  cnllm launch claude --model glm-4.7 --simulate -- --continue"
    assert is_closed(shown.decode())


@posix
def test_the_start_says_what_a_client_writes_outside_of_its_folder(machine: Machine) -> None:
    for name, places in (("aider", ("~/.aider", ".gitignore")), ("opencode", ("~/.local/share/opencode",))):
        path = script(machine, "", name)
        done = machine.run("launch", path, "-m", "glm-4.7", "--simulate", process=True)
        assert all(place in done.err for place in places), done
    assert (
        "writes files"
        not in machine.run("launch", script(machine, "", "llm"), "-m", "glm-4.7", "--simulate", process=True).err
    )


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("launch", "sh", "--model", "glm-4.7")])
def test_a_gateway_without_its_extra_names_what_is_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = machine.run(*command, "--simulate")
    done.fails(2, "the gateway seals its tokens with the package cryptography", install_command("serve"))
    assert "--map" not in done.err
