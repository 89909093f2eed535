"""Real clients hold a session of six turns with each of four models, over the gateway.

The endpoints refuse everything that the models' flags deny. A turn has parallel calls, one a call that leaked into the
text; the gateway is killed in the middle of one, and one goes to another model. What is asserted: no request is
refused, every command ran and its result came back, each model gets its own reasoning back, to the byte, and no
other's, and all else that a client sends reaches the endpoint.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import home_folders
import pytest

from cnllm.launch.setup import Values, build_setup, find_client, write_files
from cnllm.registry import Registry

from .programs import AGENTS, EDITOR, FOLDERS, PLANNER, Program, search_path
from .recorder import Recorder, losses, recorder
from .upstream import Seen, Step, Upstream, scripted_upstream, thought

pytestmark = pytest.mark.long

MODELS = (
    "zai/glm-4.7",
    "deepseek/deepseek-flash",
    "moonshotai/kimi-k2.6",
    "minimax/MiniMax-M3",
    "alibaba-cn/qwen3.6-plus",
)
KEYS = ("ZAI_API_KEY", "DEEPSEEK_API_KEY", "MOONSHOT_API_KEY", "MINIMAX_API_KEY", "DASHSCOPE_API_KEY")
KEY = "sk-cnllm-the-key-of-this-test"
SECONDS = 120

WAIT = "touch started; while [ ! -e go ]; do sleep 0.1; done; cat a.txt"
SCRIPT: dict[int, Sequence[Step]] = {
    1: [Step(text="Turn one is done.")],
    2: [Step(["cat a.txt", "cat b.txt"]), Step(text="Turn two is done.")],
    3: [Step(["cat c.txt"], leaked=True), Step(["cat b.txt"]), Step(text="Turn three is done.")],
    4: [Step([WAIT]), Step(text="Turn four is done.")],
    5: [Step(["cat a.txt"]), Step(text="Turn five is done.")],
    6: [Step(["cat b.txt"]), Step(text="Turn six is done.")],
}
PROMPTS = {
    1: "TURN-1 Say hello.",
    2: "TURN-2 Read a.txt and b.txt at once.",
    3: "TURN-3 Read c.txt, then b.txt.",
    4: "TURN-4 Wait, then read a.txt.",
    5: "TURN-5 Read a.txt again.",
    6: "TURN-6 And b.txt again.",
}
ENDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
CONTENTS = {"a.txt": "alpha 阿尔法", "b.txt": "bravo 42", "c.txt": "charlie <&>"}
FILES = {2: ("a.txt", "b.txt"), 3: ("c.txt", "b.txt"), 4: ("a.txt",), 5: ("a.txt",), 6: ("b.txt",)}
"""What the results of each turn hold."""


class Machine:
    """A home of its own: the gateway's configuration and data, and the folder that the client works in."""

    def __init__(self, home: Path, upstream: Upstream) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        for name, content in CONTENTS.items():
            (self.work / name).write_text(content)
        config = home / "config"
        config.mkdir()
        providers = dict.fromkeys(model.partition("/")[0] for model in MODELS)
        overlay = config / "providers.toml"
        overlay.write_text("".join(f'[providers.{p}]\nbase_url = "{upstream.url}/{p}"\n' for p in providers))
        self.env = {
            **{name: value for name, value in os.environ.items() if name in ("LANG", "TERM", "TMPDIR")},
            **dict.fromkeys(KEYS, "sk-a-key-of-the-provider"),
            "PATH": search_path(),
            "HOME": str(home),
            "CNLLM_CONFIG_DIR": str(config),
            "CNLLM_DATA_DIR": str(home / "data"),
            "CNLLM_CACHE_DIR": str(home_folders.cache_dir()),
        }
        nowhere = "http://127.0.0.1:9"  # a client that wants to leave this machine fails at once
        proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        self.client_env = {**self.env, **dict.fromkeys(proxies, nowhere)}
        self.cnllm("registry", "trust", str(overlay))

    def cnllm(self, *args: str) -> None:
        command = [sys.executable, "-m", "cnllm", *args]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr


class Gateway:
    """`cnllm serve` on one port, which can be killed and started again."""

    def __init__(self, machine: Machine, models: Sequence[str]) -> None:
        self.machine = machine
        self.maps = [word for name in models for word in ("--map", name)]
        self.port = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cnllm", "serve", "--port", str(self.port), "--store", "sqlite:", "--json"]
        log = ["--log", str(self.machine.home / "gateway.jsonl")]
        process = subprocess.Popen(
            [*command, "--key", KEY, *log, *self.maps], env=self.machine.env, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        self.url = json.loads(process.stdout.readline())["url"]
        self.port = int(self.url.rpartition(":")[2])
        return process

    def kill(self) -> None:
        """Kill it, without a chance to say goodbye."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def restart(self) -> None:
        self.kill()
        self.process = self._start()


@contextmanager
def gateway_of(machine: Machine, names: Sequence[str], model: str) -> Iterator[Gateway]:
    gateway = Gateway(machine, [f"{name}={model}" for name in names])
    try:
        yield gateway
    finally:
        gateway.kill()


def start_turn(program: Program, machine: Machine, url: str, model: str, turn: int) -> subprocess.Popen[str]:
    """Start the client with what `cnllm launch` gives it."""
    _, entry = find_client(program.name)
    folder = machine.home / program.name
    values = Values(url, KEY, model, str(folder), 200_000, 32_000)
    args = [*(program.first if turn == 1 else program.next), PROMPTS[turn]]
    setup = build_setup(entry, program.name, args, values, machine.client_env)
    write_files(folder, setup)
    return subprocess.Popen(
        setup.command,
        executable=program.path(),
        env={**setup.environment(machine.client_env), **program.environment},
        cwd=machine.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_turn(program: Program, machine: Machine, gateway: Gateway, url: str, model: str, turn: int) -> None:
    """Run one turn, and kill the gateway in the middle of the fourth."""
    process = start_turn(program, machine, url, model, turn)
    try:
        if turn == 4:
            wait_for(machine.work / "started", process)
            gateway.restart()
            (machine.work / "go").touch()
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, output
    assert f"Turn {ENDS[turn]} is done." in output, output


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a command of the client has made a file."""
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "the client ran no command"
        time.sleep(0.05)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("program", AGENTS, ids=lambda program: program.name)
def test_six_turns_of_a_real_client_over_the_gateway(program: Program, model: str, tmp_path: Path) -> None:
    if program.path() is None:
        pytest.skip(f"{program.name} is neither on PATH nor in a folder of {FOLDERS}")
    other = MODELS[(MODELS.index(model) + 1) % len(MODELS)]
    registry = Registry.load()
    with scripted_upstream(registry, SCRIPT) as upstream:
        machine = Machine(tmp_path, upstream)
        names = find_client(program.name)[1].models
        with gateway_of(machine, names, model) as gateway, recorder(gateway.port) as between:
            for turn in PROMPTS:
                run_turn(program, machine, gateway, between.url, other if turn == 5 else model, turn)
                assert upstream.record.refused == []
        check(upstream.record.seen, model, other, program.keeps_history)
        check_nothing_is_lost(between, upstream.record.seen)


def check_nothing_is_lost(between: Recorder, seen: Sequence[Seen], *, has_tools: bool = True) -> None:
    """Each request of the script reached an endpoint whole, and no result of a tool is empty."""
    bodies = [body for body in between.bodies if "TURN-" in json.dumps(body) and bool(body.get("tools")) is has_tools]
    assert bodies
    for body in bodies:
        lost = [losses(body, request.body) for request in seen]
        assert [] in lost, min(lost, key=len)
    for request in seen:
        assert all(request.results), request


def png(size: int) -> bytes:
    """A red picture."""

    def chunk(name: bytes, data: bytes) -> bytes:
        """A piece of the file, with its length and its checksum."""
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + b"\xc8\x1e\x1e" * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    pieces = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + pieces


@pytest.mark.parametrize("model", MODELS)
def test_plans_pictures_and_searched_tools(model: str, tmp_path: Path) -> None:
    """Claude Code begins in plan mode, reads a picture, searches for tools, and goes on after a restart."""
    if PLANNER.path() is None:
        pytest.skip(f"{PLANNER.name} is neither on PATH nor in a folder of {FOLDERS}")
    work = tmp_path / "work"
    reads = [("Read", {"file_path": str(work / name)}) for name in ("picture.png", "a.txt")]
    search = ("ToolSearch", {"query": "select:WebFetch,NotebookEdit", "max_results": 5})
    script = {
        **SCRIPT,
        1: [Step(["cat a.txt"]), Step(text="Turn one is done.")],
        2: [Step(calls=reads), Step(text="Turn two is done.")],
        3: [Step(calls=[search]), Step(["cat c.txt"]), Step(text="Turn three is done.")],
    }
    registry = Registry.load()
    with scripted_upstream(registry, script) as upstream:
        machine = Machine(tmp_path, upstream)
        (work / "picture.png").write_bytes(png(32))
        names = find_client(PLANNER.name)[1].models
        with gateway_of(machine, names, model) as gateway, recorder(gateway.port) as between:
            for turn in PROMPTS:
                run_turn(PLANNER, machine, gateway, between.url, model, turn)
                assert upstream.record.refused == []
        seen = upstream.record.seen
        assert [(s.turn, s.step) for s in seen] == [
            (turn, step) for turn in script for step in range(len(script[turn]))
        ]
        check_nothing_is_lost(between, seen)
        picture = json.dumps([request.body["messages"] for request in seen if (request.turn, request.step) == (2, 1)])
        takes = "image" in (registry.resolve(model).flags.input or ())
        assert ("data:image/png;base64," in picture) is takes
        assert takes or "image" in picture.replace("picture.png", "")


@pytest.mark.parametrize("model", MODELS)
def test_edits_in_the_text_of_replies(model: str, tmp_path: Path) -> None:
    """aider changes a file in each of six turns, and sends what it holds by then."""
    if EDITOR.path() is None:
        pytest.skip(f"{EDITOR.name} is neither on PATH nor in a folder of {FOLDERS}")
    script = {
        turn: [
            Step(
                text=f"code.py\n```python\n<<<<<<< SEARCH\nx = {turn - 1}\n=======\nx = {turn}\n>>>>>>> REPLACE\n```\n"
            )
        ]
        for turn in PROMPTS
    }
    with scripted_upstream(Registry.load(), script, has_tools=False) as upstream:
        machine = Machine(tmp_path, upstream)
        code = machine.work / "code.py"
        code.write_text("x = 0\ny = '你好 <&>'\n")
        with gateway_of(machine, (), model) as gateway, recorder(gateway.port) as between:
            for turn in PROMPTS:
                process = start_turn(EDITOR, machine, between.url, model, turn)
                output, _ = process.communicate(timeout=SECONDS)
                assert process.returncode == 0, output
                assert code.read_text() == f"x = {turn}\ny = '你好 <&>'\n", output
                assert upstream.record.refused == []
                if turn == 3:
                    gateway.restart()
        assert [(s.turn, s.step) for s in upstream.record.seen] == [(turn, 0) for turn in PROMPTS]
        check_nothing_is_lost(between, upstream.record.seen, has_tools=False)


def check(seen: Sequence[Seen], model: str, other: str, keeps_history: bool) -> None:
    """The order of the script was kept, results came back, and reasoning went to its author alone."""
    steps = [(s.model, s.turn, s.step) for s in seen]
    wanted = [(other if turn == 5 else model, turn, step) for turn in SCRIPT for step in range(len(SCRIPT[turn]))]
    assert [step for index, step in enumerate(steps) if step not in steps[:index]] == wanted
    for request in seen:
        text = json.dumps(request.body, ensure_ascii=False)
        if request.step:
            results = "\n".join(request.results)
            for file in FILES[request.turn][: request.step if request.turn == 3 else None]:
                assert CONTENTS[file] in results, (request.turn, request.step, file, results)
        for author, turn, step in wanted[: wanted.index((request.model, request.turn, request.step))]:
            words = json.dumps(thought(author, turn, step), ensure_ascii=False)[1:-1]
            if author != request.model:
                assert words not in text, f"{author}'s thought {turn}.{step} was sent to {request.model}"
            elif keeps_history or step < len(SCRIPT[turn]) - 1:  # each turn, or each with calls
                assert words in text, f"thought {turn}.{step} is missing in {request.turn}.{request.step}"
