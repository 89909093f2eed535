"""What the tests of the command line share: the program as a process, and a peer on a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import home_folders
import program

KEY = "sk-test-0123456789abcdef"
SIMULATED = "simulated"


# ── the program ──────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def fails(self, status: int, *words: str) -> None:
        """It ended so, said these words in one or two lines, and nothing else anywhere."""
        assert (self.status, self.out) == (status, ""), self
        assert 1 <= len(self.err.splitlines()) <= 2, self.err
        assert self.err.startswith("cnllm: ")
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err, self.err


class Machine:
    """A bare machine: a home of its own, no keys, no proxies, and whatever a test sets."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().endswith(("_API_KEY", "_PROXY", "_KEY")) and not name.startswith(("CNLLM", "_CNLLM"))
        }
        self.env |= {"HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": "", "NO_COLOR": ""}
        self.env |= home_folders.variables(home)  # the cache is shared: a load without one takes long

    @property
    def config(self) -> Path:
        return home_folders.config_dir(self.home)

    @property
    def data(self) -> Path:
        return home_folders.data_dir(self.home)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "cnllm", *args]

    def run(
        self,
        *args: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
        process: bool = False,
    ) -> Done:
        """Run the program here, or in a `process` where a test is about one, and where the environment demands one."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        env = {**self.env, **(env or {})}
        if not process and program.can_run(env):
            return Done(*program.run(args, env, given, cwd))
        done = subprocess.run(
            self.command(*args),
            env=env,
            cwd=cwd,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*args),
            env=self.env,
            stdin=more.pop("stdin", subprocess.DEVNULL),
            stdout=more.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            **more,
        )

    def overlay(self, url: str, flags: str = "status = { is = 'current' }") -> None:
        """Declares `home/m`, whose key is in HOME_TEST_KEY, and sets that variable."""
        self.config.parent.mkdir(mode=0o700, exist_ok=True)
        self.config.mkdir(exist_ok=True)
        (self.config / "providers.toml").write_text(
            '[providers.home]\ntitle = "A server at home"\nprotocol = "openai-chat"\n'
            f'base_url = "{url}"\nkeys = ["HOME_TEST_KEY"]\n[models."home/m"]\n{flags}\n'
        )
        self.env["HOME_TEST_KEY"] = KEY

    def file(self, name: str, content: str | bytes) -> str:
        path = self.home / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)


def chat(machine: Machine, *lines: str, args: tuple[str, ...], **more: Any) -> Done:
    """A run with these lines piped in."""
    return machine.run(*args, stdin="".join(f"{line}\n" for line in lines), **more)


@contextmanager
def terminal(
    machine: Machine, *args: str, both: bool = True, columns: int | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The program with stdout (and stderr) on a terminal; yields the descriptor of the other side."""
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        machine.command(*args),
        env={**machine.env, "TERM": "xterm"} | ({} if columns is None else {"COLUMNS": str(columns)}),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave if both else subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield master, process
    finally:
        os.close(master)
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def on_terminal(machine: Machine, *args: str, columns: int | None = None) -> str:
    """Everything that reaches a terminal with both streams on it: of the program here, where the environment allows."""
    env = {**machine.env, "TERM": "xterm"} | ({} if columns is None else {"COLUMNS": str(columns)})
    if program.can_run(env):
        _, seen = program.run_on_terminal(args, env)
        return seen.decode().replace("\r\n", "\n")
    with terminal(machine, *args, columns=columns) as (master, _):
        return read_terminal(master)


def read_until(process: subprocess.Popen[bytes], words: bytes) -> bytes:
    """What a program has written to stdout once the words are among it."""
    assert process.stdout is not None
    data = b""
    while words not in data:
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, f"it ended with {data!r}"
        data += piece
    return data


def interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What a program still writes after Ctrl-C: to stdout, and to stderr.

    A signal that comes just before a system call that waits does not end that call: the key is pressed once more.
    """
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=30)


def read_terminal(master: int) -> str:
    """Everything that reached a terminal until the program left it."""
    seen: list[bytes] = []
    program.read_to_end(master, seen)
    return b"".join(seen).decode().replace("\r\n", "\n")


# ── what an endpoint sends ───────────────────────────────────────────────────
def chunk(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    payload = {"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def texts(*pieces: str) -> bytes:
    return b"".join(chunk(content=piece) for piece in pieces)


USAGE = {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46}
DONE = b"data: " + json.dumps({"id": "r1", "choices": [], "usage": USAGE}).encode() + b"\n\ndata: [DONE]\n\n"


def whole(finish: str = "stop", **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "r1", "model": "m", "choices": [choice], "usage": USAGE}).encode()


def http(status: int, body: bytes, kind: str = "application/json", **headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status} x",
        f"Content-Length: {len(body)}",
        "Connection: close",
        f"Content-Type: {kind}",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
ANSWER = (HEAD, chunk(role="assistant", reasoning_content="hm"), texts("Hel", "lo"), chunk("stop"), DONE)


# ── a peer on a real socket ──────────────────────────────────────────────────
@dataclass(frozen=True)
class Received:
    head: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reset:
    """The connection is torn down."""


class Hold:
    """The connection stays open and silent until the server is left."""


Step = bytes | type[Reset] | type[Hold]


class Server:
    """Plays one script a connection on loopback (the last one again) and keeps every request."""

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self.scripts = scripts
        self.received: list[Received] = []
        self.holding = threading.Event()
        self._left = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Server:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._left.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, peer)

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(20)
            try:
                request = _read(peer)
                if request is None:
                    return
                script = self.scripts[min(len(self.received), len(self.scripts) - 1)]
                self.received.append(request)
                for step in script:
                    self._play(peer, step)
            except OSError:
                return  # the client went away, which is its right

    def _play(self, peer: socket.socket, step: Step) -> None:
        if isinstance(step, bytes):
            peer.sendall(step)
        elif step is Reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        else:
            self.holding.set()
            self._left.wait()


def _read(peer: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = peer.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    while length and len(body) < int(length[1]):
        body += peer.recv(65536)
    return Received(head.decode("latin-1"), body)
