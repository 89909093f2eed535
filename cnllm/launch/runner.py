"""Run a client, with a gateway beside it that ends when the client ends.

The gateway is a child process, and this process becomes the client, or waits for it to say something after its end:
terminal, signals, job control and the exit status are the client's own. The gateway watches this process, so that it
ends however the client ends. It is in a session of its own: Ctrl-C and a closed terminal reach the client alone. A
system that cannot do this (Windows) runs the client as a child, beside the gateway in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from cnllm.errors import CnllmError
from cnllm.launch.setup import Setup
from cnllm.system import processes

__all__ = ["GatewayServer", "run_client"]

_READY = b"ready"


class GatewayServer(Struct, frozen=True):
    """The gateway on its socket. `run` serves until SIGTERM and calls what it gets when it is ready; `running` serves
    in a thread while a block runs."""

    listener: socket.socket
    run: Callable[[Callable[[], None]], None]
    running: Callable[[], AbstractContextManager[object]]


def run_client(
    server: GatewayServer,
    setup: Setup,
    program: str,
    environment: Mapping[str, str],
    log: Path,
    on_end: Callable[[], None] | None = None,
) -> int:
    """Run the client to its end and return its exit status; where it can and need not wait, this process becomes it.

    The gateway writes warnings to `log`. `on_end` is called after the client has ended. Raises `CnllmError` where the
    gateway or the client does not start.
    """
    if not processes.can_fork():
        status = _run_beside(server, setup, program, environment)
        if on_end is not None:
            on_end()
        return status
    _start_gateway(server, log)
    server.listener.close()
    _flush()
    try:
        if on_end is not None:
            return processes.run_in_front(program, setup.command, environment, on_end)
        processes.become(program, setup.command, environment)
    except OSError as error:
        raise CnllmError(f"{program} cannot be started: {error.strerror}") from error


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _start_gateway(server: GatewayServer, log: Path) -> None:
    """Start the gateway in a child process, and wait until it serves. Raises `CnllmError` where it does not start."""
    server.listener.set_inheritable(False)  # the client does not get the socket

    def serve(tell: Callable[[bytes], None]) -> None:
        try:
            _redirect(log)
            server.run(lambda: tell(_READY))
        except CnllmError as error:
            tell(f"{error.message}\n{error.hint or ''}".encode())
            raise
        except BaseException:
            logging.getLogger("cnllm.gateway").exception("the gateway failed")
            raise

    _flush()
    message = processes.start_companion(serve)
    if message != _READY:
        reason, _, hint = message.decode().partition("\n")
        raise CnllmError(reason or "the gateway did not start", hint=hint or f"the end of {log} says why")


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


def _run_beside(server: GatewayServer, setup: Setup, program: str, environment: Mapping[str, str]) -> int:
    """Run the client as a child of this process, which serves meanwhile in a thread."""
    with server.running():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the client; what it does is its own
        try:
            with subprocess.Popen([program, *setup.command[1:]], env=dict(environment)) as process:
                with contextlib.suppress(KeyboardInterrupt):
                    process.wait()
                return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
