"""Run a real local HTTP server that simulates every endpoint of the registry.

    with running(Registry.load()) as server:
        base_url = f"{server.url}/{provider}"

It listens on loopback only and accepts only requests whose Host is loopback, so that no web page can reach it under
another name. A request header injects faults: see `faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec

import h11  # comes with httpx
from anyio.from_thread import start_blocking_portal

from cnllm.registry.registry import Registry
from cnllm.simulator.batch import BatchStore
from cnllm.simulator.faults import HEADER, NO_FAULT, InjectedFault, read_fault
from cnllm.simulator.respond import NDJSON, Endpoints, SimulatedResponse, reject
from cnllm.simulator.routes import HiddenNames, ServedModels, batch_step, route
from cnllm.simulator.unfaithful import HostFaults, UnfaithfulHost, read_host_faults
from cnllm.simulator.violations import Violation
from cnllm.types.checks import is_loopback

__all__ = ["Observer", "Server", "running"]

Observer = Callable[[str, str, str], None]
"""Called for each request with (its step of a batch, or call; its path; received, handled or sent)."""
_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
_ERROR = (
    b'event: error\ndata: {"type":"error","error":{"type":"server_error","code":"server_error",'
    b'"message":"This failure was asked for."}}\n\n'
)
"""An error event in a stream, as an endpoint of any protocol may send it."""
_DRAIN_SECONDS = 2.0  # seconds to read on after an oversized body, so that the client gets the error
_MAX_BODY = 64 * 1024 * 1024  # bytes of a request body: images are long


class Server:
    """The HTTP server. `url` is known after the start, also if `port` is 0 and the system chooses one.

    `strict`: refuse everything that the flags of a model deny, with a general error if the endpoint's own is unknown.
    `neutral`: paths, names and errors do not show providers and models. If `models` is given, serve only these.
    `unfaithful`: the faults of a host (see `cnllm.simulator.unfaithful`), in every reply to a single call.
    `on_request` is called in the server's thread, so that a test can stop a client at any point of a conversation.
    """

    def __init__(
        self,
        registry: Registry,
        host: str = "127.0.0.1",
        port: int = 0,
        pace: float = 0.0,
        *,
        body_limit: int = _MAX_BODY,
        strict: bool = False,
        neutral: bool = False,
        models: Sequence[str] = (),
        unfaithful: str = "",
        on_request: Observer | None = None,
    ) -> None:
        if not is_loopback(host):
            raise ValueError(f"the simulator listens on loopback only, not on {host}")
        hidden_names = HiddenNames(tuple(models) or tuple(registry.names()), only=bool(models)) if neutral else None
        faults = read_host_faults(unfaithful)
        change = UnfaithfulHost(faults).change if faults != HostFaults() else None
        batches = BatchStore(registry, strict=strict)
        self.catalog = ServedModels(Endpoints(registry, strict, change), batches, hidden_names)
        self.slow = faults.slow
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
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a second write would wait 40 ms for an ACK
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
            await _ClientConnection(self, reader, writer).run()
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

    def fault(self, header: str, method: str, target: str) -> InjectedFault:
        """Return the fault for the next request with this header. Raise `ValueError` if the header names none."""
        fault = read_fault(header)
        if fault.kinds and fault.step in (None, self._step(method, target)):
            self._fault_counts[header] += 1
            if fault.times is None or self._fault_counts[header] <= fault.times:
                return fault
        return NO_FAULT


class _ClientConnection:
    """One client connection: requests one after the other, until either side ends it."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.wire = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        """Answer until the connection ends."""
        while True:
            try:
                event = await self.next_event()
                if not isinstance(event, h11.Request):
                    return
                headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in event.headers}
                content = await self.body()
            except h11.RemoteProtocolError as error:
                if self.wire.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    violation = Violation("http", str(error))
                    await self.send(reject(violation, status=error.error_status_hint))
                return
            if content is None:
                await self.send(reject(Violation("size", "The request body is too large."), status=413))
                # If closed at once, data still on its way would reset the connection, and the answer would be lost.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stall(), _DRAIN_SECONDS)
                return
            target = event.target.decode("latin-1")
            if not await self.answer(event.method.decode("ascii"), target, headers, content):
                return
            if self.wire.our_state is not h11.DONE or self.wire.their_state is not h11.DONE:
                return
            self.wire.start_next_cycle()

    async def next_event(self) -> h11.Event:
        """Return the next event of the request, or of the end of the connection."""
        while True:
            event = self.wire.next_event()
            if event is h11.NEED_DATA:
                if self.wire.they_are_waiting_for_100_continue:
                    await self.write(h11.InformationalResponse(status_code=100, headers=[]))
                self.wire.receive_data(await self.reader.read(65536))
            elif event is h11.PAUSED:
                return h11.ConnectionClosed()
            else:
                assert not isinstance(event, type)
                return event

    async def body(self) -> bytes | None:
        """Return the request's body, or None if it is longer than the limit."""
        parts = bytearray()
        while isinstance(event := await self.next_event(), h11.Data):
            parts += event.data
            if len(parts) > self.server.body_limit:
                return None
        return bytes(parts)

    async def answer(self, method: str, target: str, headers: dict[str, str], content: bytes) -> bool:
        """Answer one request. Return False if the connection must end."""
        if _host_name(headers.get("host", "")) not in _HOSTS:
            violation = Violation("host", "This server answers only to localhost, 127.0.0.1 and [::1].")
            await self.send(reject(violation, status=421))
            return True
        self.server.observe(method, target, "received")
        try:
            fault = self.server.fault(headers[HEADER], method, target) if HEADER in headers else NO_FAULT
        except ValueError as error:
            await self.send(reject(Violation("fault", str(error))))
            return True
        if "stall-headers" in fault.kinds:
            await self.stall()
            return False
        if "reset-headers" in fault.kinds:
            self.reset()
            return False
        response = replacement = _fault_response(fault)
        if response is None or fault.takes_effect:
            response = route(self.server.catalog, method, target, headers, content)
        self.server.observe(method, target, "handled")
        stays_open = await self.send(replacement or response, fault, no_body=method == "HEAD")
        self.server.observe(method, target, "sent")
        return stays_open

    # ── sending ──────────────────────────────────────────────────────────────
    async def send(
        self, response: SimulatedResponse, fault: InjectedFault = NO_FAULT, *, no_body: bool = False
    ) -> bool:
        """Send a response, one HTTP chunk per piece. Return False if a fault ended the connection."""
        pieces = list(response.pieces)
        streams = response.headers.get("content-type") in ("text/event-stream", NDJSON)
        headers = dict(response.headers)
        if not streams and fault.kinds:
            pieces = _quarters(b"".join(pieces))
        elif not streams:
            headers["content-length"] = str(sum(map(len, pieces)))
        status, reason = response.status, _REASONS.get(response.status, "")
        await self.write(h11.Response(status_code=status, headers=[*headers.items()], reason=reason))
        if "stall-body" in fault.kinds:
            await self.stall()
            return False
        middle = max(1, len(pieces) // 2) if fault.is_midway else None
        delay = max(self.server.pace, self.server.slow, fault.delay)
        for index, piece in enumerate([] if no_body else pieces[:middle]):
            if delay and (index or self.server.slow or fault.kinds):
                await asyncio.sleep(delay)
            await self.write(h11.Data(data=piece))
        if not await self.inject(fault):
            return False
        await self.write(h11.EndOfMessage())
        return True

    async def inject(self, fault: InjectedFault) -> bool:
        """Inject a fault when the body, or half of it, is sent. Return False if it ends the connection."""
        if "reset" in fault.kinds:
            self.reset()
        elif "error" in fault.kinds:
            await self.write(h11.Data(data=_ERROR))
        elif "comments" in fault.kinds:
            while True:
                await asyncio.sleep(self.server.pace or 0.02)
                await self.write(h11.Data(data=b": still here\n\n"))
        elif not fault.kinds.keys().isdisjoint({"stall-middle", "linger"}):
            await self.stall()
        return fault.kinds.keys().isdisjoint({"reset", "stall-middle", "linger", "drop"})

    async def write(self, event: h11.Event) -> None:
        """Write bytes to the socket, and let other connections run."""
        data = self.wire.send(event)
        if data:
            self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)

    async def stall(self) -> None:
        """Send nothing until the client closes the connection."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """End the connection with a reset, as a crashed server does."""
        peer: socket.socket | None = self.writer.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _fault_response(fault: InjectedFault) -> SimulatedResponse | None:
    """Return the response that replaces the endpoint's own, if the fault has one."""
    if "redirect" in fault.kinds:
        return reject(Violation("moved", "Moved."), status=307, location=fault.kinds["redirect"] or "/moved")
    if fault.status is None:
        return None
    headers = {"retry-after": fault.kinds["retry-after"]} if "retry-after" in fault.kinds else {}
    return reject(Violation("fault", "This failure was asked for."), status=fault.status, **headers)


def _quarters(body: bytes) -> list[bytes]:
    size = max(1, -(-len(body) // 4))
    return [body[i : i + size] for i in range(0, len(body), size)]


Arguments = ParamSpec("Arguments")


def _in_thread(make: Callable[Arguments, Server]) -> Callable[Arguments, AbstractContextManager[Server]]:
    """Return a function that makes a server, and runs it in a thread of its own while a block runs."""

    @contextlib.contextmanager
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Iterator[Server]:
        server = make(*arguments, **options)
        with start_blocking_portal() as portal:
            portal.call(server.start)
            try:
                yield server
            finally:
                portal.call(server.stop)

    return run


running = _in_thread(Server)
"""Run a server in a thread of its own while the block runs. Its arguments are those of `Server`."""
