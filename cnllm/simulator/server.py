"""A real local HTTP server that speaks for every endpoint of the registry.

    with running(Registry.load()) as server:
        base_url = f"{server.url}/{provider}"

It listens on loopback only and answers only requests whose Host is loopback, so that no web page can reach it
by a name of its own. `faults` says how a request header makes it misbehave.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from cnllm.simulator.faults import InjectedFault, read_fault
from cnllm.simulator.http_connection import Connection
from cnllm.simulator.routes import HiddenNames, ServedModels
from cnllm.simulator.transport import ModelLookup

__all__ = ["Server", "running"]

_LIMIT = 64 * 1024 * 1024  # of a request body, in bytes: pictures are long


class Server:
    """The server; `url` is known once it has started, also when `port` is 0 and the system chooses one.

    `strict`: it refuses all that the flags of a model deny, in general words where the endpoint's own are unknown.
    `neutral`: paths, names and errors say nothing about providers and models; `models` alone are served if given.
    """

    def __init__(
        self,
        registry: ModelLookup,
        host: str = "127.0.0.1",
        port: int = 0,
        pace: float = 0.0,
        *,
        body_limit: int = _LIMIT,
        strict: bool = False,
        neutral: bool = False,
        models: Sequence[str] = (),
    ) -> None:
        if host != "localhost" and not _is_loopback(host):
            raise ValueError(f"the simulator listens on loopback only, not on {host}")
        plain = HiddenNames(tuple(models) or tuple(registry.names()), only=bool(models)) if neutral else None
        self.served = ServedModels(registry, strict, plain)
        self.host = host
        self.port = port
        self.pace = pace
        self.body_limit = body_limit
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[asyncio.Task[None], socket.socket] = {}
        self._met: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Begin to listen."""
        # Not asyncio.Server: one that is closed while a connection comes in loses that connection's socket.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listening = socket.create_server((self.host, self.port), family=family, backlog=1024)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(self._listening))

    async def serve_forever(self) -> None:
        """Listen until the task is cancelled."""
        if self._listening is None:
            await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        listening, self._listening = self._listening, None
        if listening is None or self._accepting is None:
            return
        try:  # one more connection, so that accepting ends by itself: cancelled, it might lose a socket
            _, writer = await asyncio.open_connection(self.host, self.port)
            writer.close()
        except OSError:
            self._accepting.cancel()
        await asyncio.wait([self._accepting])
        listening.close()
        dropped = dict(self._open)
        for task in dropped:
            task.cancel()
        await asyncio.gather(*dropped, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn of the loop
        for peer in dropped.values():
            peer.close()  # those whose task never began

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listening)
            except OSError:  # no more file descriptors: those who wait get theirs when some are free again
                await asyncio.sleep(0.05)
                continue
            if self._listening is None:
                peer.close()
                return
            peer.setblocking(False)
            task = asyncio.create_task(self._serve(peer))
            self._open[task] = peer
            task.add_done_callback(self._open.pop)

    async def _serve(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await Connection(self, reader, writer).run()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass  # the peer went away: nobody is left to tell
        finally:
            writer.transport.abort()

    def fault(self, header: str) -> InjectedFault | None:
        """The fault that meets a request with this header now. Raises `ValueError` where it names none."""
        fault = read_fault(header)
        if fault.times is None:
            return fault
        self._met[header] += 1
        return fault if self._met[header] <= fault.times else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def running(
    registry: ModelLookup,
    host: str = "127.0.0.1",
    port: int = 0,
    pace: float = 0.0,
    *,
    strict: bool = False,
    neutral: bool = False,
    models: Sequence[str] = (),
) -> Iterator[Server]:
    """A server in a thread of its own, listening while the block runs."""
    server = Server(registry, host, port, pace, strict=strict, neutral=neutral, models=models)
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        done = asyncio.Event()
        try:
            await server.start()
        except OSError as error:  # the port is taken: the one who asked for it must hear of it
            started.set_exception(error)
            return
        started.set_result((asyncio.get_running_loop(), done))
        await done.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="cnllm-simulator", daemon=True)
    thread.start()
    loop, done = started.result()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
