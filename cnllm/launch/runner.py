"""Run a client, with a gateway beside it that ends when the client ends.

On POSIX the gateway is a child process, and this process becomes the client: terminal, signals, job control and the
exit status are the client's own. The gateway watches the client's process, so that it ends however the client ends. It
is in a session of its own: Ctrl-C and a closed terminal reach the client alone. On Windows the gateway is a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.launch.setup import Setup

__all__ = ["GatewayServer", "run_client"]

_READY = b"ready"
_LOOK = 0.2  # seconds between two looks at the client, where the system cannot wait for it


class GatewayServer(Struct, frozen=True):
    """The gateway on its socket. `run` serves until SIGTERM and calls what it gets when it is ready; `running` serves
    in a thread while a block runs."""

    listener: socket.socket
    run: Callable[[Callable[[], None]], None]
    running: Callable[[], AbstractContextManager[object]]


def run_client(server: GatewayServer, setup: Setup, program: str, environment: Mapping[str, str], log: Path) -> int:
    """Run the client to its end and return its exit status; on POSIX this process becomes the client.

    The gateway writes warnings to `log`. Raises `CnllmError` where the gateway or the client does not start.
    """
    if os.name == "posix":
        _start_gateway(server, log)
        server.listener.close()
        _flush()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a client would inherit that
        try:
            os.execve(program, setup.command, dict(environment))
        except OSError as error:
            raise CnllmError(f"{program} cannot be started: {error.strerror}") from error
    return _run_beside(server, setup, program, environment)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


# ── POSIX ────────────────────────────────────────────────────────────────────


def _start_gateway(server: GatewayServer, log: Path) -> None:
    """Start the gateway in a child process, and wait until it serves. Raises `CnllmError` where it does not start."""
    server.listener.set_inheritable(False)  # the client does not get the socket
    reader, writer = os.pipe()
    _flush()
    client = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            _serve(server, client, log, lambda: _tell(writer, _READY))
            status = 0
        except CnllmError as error:
            _tell(writer, f"{error.message}\n{error.hint or ''}".encode())
        except BaseException:
            logging.getLogger("cnllm.gateway").exception("the gateway failed")
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        message = pipe.read()
    if message != _READY:
        os.waitpid(pid, 0)
        reason, _, hint = message.decode().partition("\n")
        raise CnllmError(reason or "the gateway did not start", hint=hint or f"the end of {log} says why")


def _tell(writer: int, message: bytes) -> None:
    """Send the launching process its only message."""
    with contextlib.suppress(OSError):  # it has its message, or is gone
        os.write(writer, message)
        os.close(writer)


def _serve(server: GatewayServer, client: int, log: Path, on_ready: Callable[[], None]) -> None:
    """Serve until the client has ended. This is the gateway's process."""
    os.setsid()
    _redirect(log)
    threading.Thread(target=_watch, args=(client,), name="cnllm-watch", daemon=True).start()
    server.run(on_ready)


def _redirect(log: Path) -> None:
    """Send what the gateway prints to a file: the terminal is the client's."""
    null = os.open(os.devnull, os.O_RDONLY)
    # ours: in our data folder
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(null)
    os.close(file)
    logger = logging.getLogger("cnllm.gateway")
    logger.propagate = False
    handler = logging.StreamHandler(open(2, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - lives with the process
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)


def _watch(client: int) -> None:
    """Wait until the client has ended, and end this process then."""
    try:
        descriptor = os.pidfd_open(client)  # Linux
    except (AttributeError, OSError):
        while os.getppid() == client:
            time.sleep(_LOOK)
    else:
        if os.getppid() == client:  # it was still there when the descriptor was opened
            select.select([descriptor], [], [])
    while True:  # a signal that comes before the server is ready for it has no effect
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)


# ── Windows ──────────────────────────────────────────────────────────────────


def _run_beside(server: GatewayServer, setup: Setup, program: str, environment: Mapping[str, str]) -> int:
    """Run the client as a child of this process, which serves meanwhile."""
    with server.running():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the client; what it does is its own
        try:
            with subprocess.Popen([program, *setup.command[1:]], env=dict(environment)) as process:
                with contextlib.suppress(KeyboardInterrupt):
                    process.wait()
                return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
