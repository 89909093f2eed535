"""Run a real local HTTP server that simulates every endpoint of the registry.

    with running(Registry.load()) as server:
        base_url = f"{server.url}/{provider}"

It listens on loopback only and accepts only requests whose Host is loopback, so that no web page can reach it under
another name. A request header injects faults: see `faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from cnllm.simulator.faults import InjectedFault, read_fault
from cnllm.simulator.http_connection import ClientConnection
from cnllm.simulator.respond import ModelLookup
from cnllm.simulator.served_models import HiddenNames, ServedModels, batch_step

__all__ = ["Observer", "Server", "running"]

Observer = Callable[[str, str, str], None]
"""Called for each request with (its step of a batch, or call; its path; received, handled or sent)."""
_MAX_BODY = 64 * 1024 * 1024  # bytes of a request body: images are long


class Server:
    """The HTTP server. `url` is known after the start, also if `port` is 0 and the system chooses one.

    `strict`: refuse everything that the flags of a model deny, with a general error if the endpoint's own is unknown.
    `neutral`: paths, names and errors do not show providers and models. If `models` is given, serve only these.
    `on_request` is called in the server's thread, so that a test can stop a client at any point of a conversation.
    """

    def __init__(
        self,
        registry: ModelLookup,
        host: str = "127.0.0.1",
        port: int = 0,
        pace: float = 0.0,
        *,
        body_limit: int = _MAX_BODY,
        strict: bool = False,
        neutral: bool = False,
        models: Sequence[str] = (),
        on_request: Observer | None = None,
    ) -> None:
        if host != "localhost" and not _is_loopback(host):
            raise ValueError(f"the simulator listens on loopback only, not on {host}")
        hidden_names = HiddenNames(tuple(models) or tuple(registry.names()), only=bool(models)) if neutral else None
        self.catalog = ServedModels(registry, strict, hidden_names)
        self.host = host
        self.port = port
        self.pace = pace
        self.body_limit = body_limit
        self._on_request = on_request
        self._listener: socket.socket | None = None
        self._accept_task: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._fault_counts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """Return the server's address, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Begin to listen."""
        # Not asyncio.Server: if it is closed while a connection arrives, it loses that connection's socket.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, self.port), family=family, backlog=1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._accept_task = asyncio.create_task(self._accept(self._listener))

    async def serve_forever(self) -> None:
        """Listen until the task is cancelled."""
        if self._listener is None:
            await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        listener, self._listener = self._listener, None
        if listener is None or self._accept_task is None:
            return
        try:  # one more connection ends the accept loop; cancelling the loop might lose a socket
            _, writer = await asyncio.open_connection(self.host, self.port)
            writer.close()
        except OSError:
            self._accept_task.cancel()
        await asyncio.wait([self._accept_task])
        listener.close()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next iteration of the loop
        for peer in connections.values():
            peer.close()  # a task that never started did not close its socket

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError:  # no free file descriptor: waiting clients connect when one is free again
                await asyncio.sleep(0.05)
                continue
            if self._listener is None:
                peer.close()
                return
            peer.setblocking(False)
            task = asyncio.create_task(self._serve(peer))
            self._connections[task] = peer
            task.add_done_callback(self._connections.pop)

    async def _serve(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await ClientConnection(self, reader, writer).run()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass  # the peer closed the connection
        finally:
            writer.transport.abort()

    def observe(self, method: str, target: str, phase: str) -> None:
        """Report a request to the observer: it was received, handled or answered."""
        if self._on_request is not None:
            self._on_request(self._step(method, target), target.partition("?")[0], phase)

    def _step(self, method: str, target: str) -> str:
        step = batch_step(self.catalog, method, target)
        return "call" if step is None else step.name

    def fault(self, header: str, method: str, target: str) -> InjectedFault | None:
        """Return the fault for the next request with this header. Raise `ValueError` if the header names none."""
        fault = read_fault(header)
        if not fault.kinds or (fault.step is not None and fault.step != self._step(method, target)):
            return None
        if fault.times is None:
            return fault
        self._fault_counts[header] += 1
        return fault if self._fault_counts[header] <= fault.times else None


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
    on_request: Observer | None = None,
) -> Iterator[Server]:
    """Run a server in a thread of its own while the block runs."""
    server = Server(registry, host, port, pace, strict=strict, neutral=neutral, models=models, on_request=on_request)
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop_event = asyncio.Event()
        try:
            await server.start()
        except OSError as error:  # the port is in use: raise it in the caller's thread
            started.set_exception(error)
            return
        started.set_result((asyncio.get_running_loop(), stop_event))
        await stop_event.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="cnllm-simulator", daemon=True)
    thread.start()
    loop, stop_event = started.result()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop_event.set)
        thread.join()
