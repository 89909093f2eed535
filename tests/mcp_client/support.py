"""What the tests of MCP share: a server as a command and over HTTP, and what is left of processes and threads."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from cnllm.mcp_client import McpTools

from . import server

SOON = 30  # seconds
PLAIN = Path(__file__).parent / "plain" / "server.py"
SERVER = Path(__file__).with_name("server.py")


def command(*options: str) -> list[str]:
    """The words that start the plain server over stdio. -S: it needs no site-packages."""
    return [sys.executable, "-S", str(PLAIN), *options]


def package_command() -> list[str]:
    """The words that start the server of the package `mcp` over stdio."""
    return [sys.executable, str(SERVER)]


@contextmanager
def over_http() -> Iterator[str]:
    """The server over streamable HTTP in a thread of this process; yields its URL."""
    app = server.make().streamable_http_app()
    made = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it listens already: a connection waits for the server
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            made.should_exit = True
            thread.join()


def is_alive(pid: int) -> bool:
    """Is there such a process?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(tools: McpTools) -> int:
    """The process of a server that runs."""
    return int(tools.call("process").text)


def read_pipe(path: Path) -> str:
    """What somebody writes into a named pipe; fails where nobody does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        readable, _, _ = select.select([descriptor], [], [], SOON)
        assert readable, "nobody wrote"
        return os.read(descriptor, 65536).decode()
    finally:
        os.close(descriptor)


def own_threads() -> list[str]:
    """The threads of sessions."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cnllm-mcp")]


def names(tools: Sequence[object]) -> list[str]:
    return [str(getattr(tool, "name", tool)) for tool in tools]
