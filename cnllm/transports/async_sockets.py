"""Open sockets in an event loop of asyncio's own kind.

asyncio's own race of addresses loses a socket that connects while its task is cancelled: it stays open until the
garbage collector finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from cnllm.transports.sockets import HEAD_START, Target, alternate

__all__ = ["open_async_socket"]


async def open_async_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a connected socket that does not block. One that is not returned is closed.

    Raise `OSError`, or `UnicodeError` for an impossible name.
    """
    targets = alternate(await _resolve(loop, host, port))
    return await (_connect(loop, targets[0]) if len(targets) == 1 else _race(loop, targets))


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Target]:
    """Return the addresses of a host. An address needs no thread."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _race(loop: asyncio.AbstractEventLoop, targets: list[Target]) -> socket.socket:
    """Return the first socket that connects. Addresses start one after another, and none stops those before it."""
    waiting = list(reversed(targets))
    tasks: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    failure: BaseException = OSError("the name has no address")
    try:
        pending: set[asyncio.Task[socket.socket]] = set()
        while winner is None and (waiting or pending):
            if waiting:
                tasks.append(loop.create_task(_connect(loop, waiting.pop())))
                pending.add(tasks[-1])
            seconds = HEAD_START if waiting else None
            done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) is not None:
                    failure = error
                elif winner is None:
                    winner = task
    finally:
        for task in tasks:
            if task is winner or task.cancel() or task.cancelled():
                continue
            if task.exception() is None:
                task.result().close()
    if winner is None:
        raise failure
    return winner.result()


async def _connect(loop: asyncio.AbstractEventLoop, target: Target) -> socket.socket:
    """Return a socket that is connected to one address."""
    family, kind, protocol, _, address = target
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
