"""Run the gateway's application over uvicorn: one process or several, on one address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.configuration import Configuration
from cnllm.gateway.monitoring.prometheus import drop_process, shared_folder
from cnllm.system import processes

__all__ = ["address_url", "listen", "run", "run_workers", "running"]

_OLDEST_UVICORN = (0, 36)  # pyproject.toml says the same
_BACKLOG = 2048
_ASYNCIO_BACKLOG = 16  # asyncio accepts so many at once, and must not run out of files before it can close any
_DRAIN_SECONDS = 30  # streams that run may go on for so long when the server stops


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `CnllmError` where the address is in use or cannot be had."""
    try:
        # as bytes, which need no codec of international names
        infos = socket.getaddrinfo(
            host.encode() if host.isascii() else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = infos[0]
        is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # of :: IPv4, too
        listener = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        is_name = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        hint = "name an address of this machine: --host 127.0.0.1" if is_name else "choose another: --port N"
        raise CnllmError(f"cannot listen on {host}, port {port}: {reason}", hint=hint) from error
    listener.set_inheritable(True)
    return listener


def run(
    gateway: Gateway,
    open_listener: Callable[[], socket.socket],
    on_ready: Callable[[str], None] | None = None,
    reload: Callable[[Gateway], object] | None = None,
) -> None:
    """Serve on a socket until SIGTERM or SIGINT; then end the streams that run, and return.

    `on_ready` gets the URL. `reload` is called with the gateway when SIGHUP comes, in a thread. The socket is opened
    when signals have their handlers.
    """
    server = _server(gateway)

    def stop(number: int, frame: Any) -> None:
        """End the server, before it has its own handler."""
        server.should_exit = True

    signal.signal(signal.SIGTERM, stop)
    if reload is not None:
        processes.on_hangup(lambda: reload(gateway), lambda: stop(signal.SIGTERM, None))
    with open_listener() as listener, contextlib.suppress(KeyboardInterrupt):
        address = address_url(listener)  # a server that ends closes the socket

        def ready() -> None:
            gc.freeze()  # the garbage collector need not visit what is loaded now
            if on_ready is not None:
                on_ready(address)

        _run_server(server, listener, ready)


@contextlib.contextmanager
def running(
    gateway: Gateway, host: str = "127.0.0.1", port: int = 0, *, listener: socket.socket | None = None
) -> Iterator[str]:
    """Serve in a thread of its own while the block runs, on an address or a socket. The value is the URL."""
    listener = listen(host, port) if listener is None else listener
    server = _server(gateway)
    ready: Future[None] = Future()

    def serve() -> None:
        try:
            _run_server(server, listener, lambda: ready.set_result(None))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    with listener:
        thread = threading.Thread(target=serve, name="cnllm-gateway", daemon=True)
        thread.start()
        ready.result()
        try:
            yield address_url(listener)
        finally:
            server.should_exit = True
            thread.join()


def address_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _server(gateway: Gateway) -> Any:
    """Return a server of uvicorn's. Raises `CnllmError` where a package is missing or too old."""
    uvicorn = _import_uvicorn()
    from cnllm.gateway.http_protocol import BoundedProtocol, Connections
    from cnllm.gateway.http_server import DrainedServer

    connections = Connections(gateway.bounds, gateway.clients)
    return DrainedServer(
        uvicorn.Config(
            gateway,
            loop=(loop := "uvloop" if processes.loop_factory() else "asyncio"),
            backlog=_BACKLOG if loop == "uvloop" else _ASYNCIO_BACKLOG,
            http=partial(BoundedProtocol, open_connections=connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
    )


def _run_server(server: Any, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until the server is stopped."""

    async def serve() -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        try:
            if server.started:
                on_ready()
        except BaseException:  # the address cannot be printed
            server.should_exit = True
            await serving
            raise
        await serving

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(serve())


def run_workers(
    configuration: Configuration,
    open_listener: Callable[[], socket.socket],
    count: int,
    on_ready: Callable[[str], None],
) -> None:
    """Serve with several processes on one socket, which is opened when signals have their handlers.

    A process that dies is replaced. SIGTERM and SIGINT end all; after SIGHUP all read the configuration again, unless
    it has an error. Raises `CnllmError` where the system cannot do it.
    """
    if not processes.can_fork():
        raise CnllmError(
            "this system cannot share one address among several processes",
            hint="leave out --workers: one process serves many requests at once",
        )
    _import_uvicorn()  # so that one error is printed, and not one for each process
    with shared_folder():
        workers = _Workers(configuration, open_listener)
        processes.run_workers(workers, count, lambda: on_ready(workers.address))


class _Workers:
    """The work of each process, and what the first one does for them."""

    log = logging.getLogger("cnllm.gateway")

    address: str
    listener: socket.socket | None = None

    def __init__(self, configuration: Configuration, open_listener: Callable[[], socket.socket]) -> None:
        self.lock = configuration.lock
        self._configuration, self._open = configuration, open_listener

    def begin(self) -> None:
        """Open the socket."""
        listener = self._open()
        self.address, self.listener = address_url(listener), listener

    def opened(self) -> socket.socket:
        """Return the socket."""
        assert self.listener is not None
        return self.listener

    def work(self, report: Callable[[], None]) -> None:
        """Serve until SIGTERM."""

        def reload(gateway: Gateway) -> None:
            self._configuration.reload(gateway)
            report()

        run(self._configuration.gateway(), self.opened, reload=reload)

    def reload(self, pass_on: Callable[[], None]) -> None:
        """Let all processes read the files, and say so when the last one has: only then may the files change again."""
        is_new = self._configuration.reload()
        if is_new or self._configuration.suspended:
            pass_on()
        if is_new:
            self.log.warning("the configuration was read again")

    def drop(self, process: int) -> None:
        """Forget the measures of a process that has ended."""
        drop_process(process)

    def stop(self) -> None:
        """Close the socket: else it would take connections in that no process accepts."""
        if self.listener is not None:
            self.listener.close()


def _import_uvicorn() -> Any:
    """Return uvicorn. Raises `CnllmError` where it or httptools is missing, or it is too old."""
    try:
        import httptools  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise CnllmError(
            f"the gateway needs {error.name or 'uvicorn'}, which is not installed", hint=install_command("serve")
        ) from error
    version = uvicorn.__version__
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_UVICORN:
        oldest = ".".join(map(str, _OLDEST_UVICORN))
        raise CnllmError(
            f"uvicorn {version} is too old: the gateway needs {oldest} or newer",
            hint=f"pip install --upgrade 'uvicorn>={oldest}'",
        )
    return uvicorn
