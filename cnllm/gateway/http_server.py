"""uvicorn's server with an end of its own: what clients have sent is answered, and what was used is reported."""

from __future__ import annotations

import asyncio
import logging
import selectors
import signal
import socket
from types import FrameType

import uvicorn

__all__ = ["DrainedServer"]

_ACCEPT_SECONDS = 1.0  # the longest time in which waiting connections are accepted
_TURN_SECONDS = 0.001  # for the event loop to accept some of them
_READ_TURNS = 5  # of a loop, however busy: to make a connection, to watch it, to read it, and two more
_READ_SECONDS = 0.01  # of each
_LOOK_SECONDS = 0.05
_BREAK_SECONDS = 1.0  # for the last piece of each response that breaks off

_log = logging.getLogger("cnllm.gateway")


class DrainedServer(uvicorn.Server):
    """A server that ends after the requests that have come, and at a second Ctrl-C without waiting for them."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal in. uvicorn would raise it once more at the end, when nothing is left to do."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the requests, then the application."""
        await self._take_in(sockets or [])
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._end_requests()
        await self.lifespan.shutdown()

    async def _take_in(self, listeners: list[socket.socket]) -> None:
        """Take the connections that wait, and read their requests: the system would reset them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ACCEPT_SECONDS
        with selectors.DefaultSelector() as selector:
            for listener in listeners:
                selector.register(listener, selectors.EVENT_READ)
            while selector.select(0) and loop.time() < deadline:
                await asyncio.sleep(_TURN_SECONDS)
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        for _ in range(_READ_TURNS):
            await asyncio.sleep(_READ_SECONDS)

    async def _end_requests(self) -> None:
        """Wait for the requests that run, then break them off: before the application ends, which counts their cost."""
        state, loop = self.server_state, asyncio.get_running_loop()
        deadline = loop.time() + (self.config.timeout_graceful_shutdown or 0)
        while (state.connections or state.tasks) and not self.force_exit and loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        if tasks := list(state.tasks):
            _log.warning("the server ends before its requests; broken off: %d", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_BREAK_SECONDS)
