"""Run the gateway's application over uvicorn: one process or several, on one address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.configuration import Configuration, on_hangup
from cnllm.gateway.monitoring.prometheus import drop_process, shared_folder

__all__ = ["address_url", "listen", "run", "run_workers", "running"]

_OLDEST_UVICORN = (0, 36)  # pyproject.toml says the same
_BACKLOG = 2048
_ASYNCIO_BACKLOG = 16  # asyncio accepts so many at once, and must not run out of files before it can close any
_DRAIN_SECONDS = 30  # streams that run may go on for so long when the server stops
_RELOAD_SECONDS = 10.0  # the first process waits so long for the others to read the files
_SHORT_LIFE = 2.0  # seconds
_MOST_FAILURES = 5  # workers in a row that end so soon


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `CnllmError` where the address is in use or cannot be had."""
    try:
        # as bytes, which need no codec of international names
        infos = socket.getaddrinfo(
            host.encode() if host.isascii() else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = infos[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        is_name = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        hint = "name an address of this machine: --host 127.0.0.1" if is_name else "choose another: --port N"
        raise CnllmError(f"cannot listen on {host}, port {port}: {reason}", hint=hint) from error
    listener.set_inheritable(True)
    return listener


def run(
    gateway: Gateway,
    listener: socket.socket,
    on_ready: Callable[[], None] | None = None,
    reload: Callable[[Gateway], object] | None = None,
) -> None:
    """Serve on a socket until SIGTERM or SIGINT; then end the streams that run, and return.

    `reload` is called with the gateway when SIGHUP comes, in a thread.
    """
    server = _server(gateway)

    def stop(number: int, frame: Any) -> None:
        """End the server, also before uvicorn has its own handler. At its end uvicorn raises the signal once more."""
        server.should_exit = True

    signal.signal(signal.SIGTERM, stop)
    report_ready = on_ready or (lambda: None)

    def ready() -> None:
        gc.freeze()  # what is loaded now stays: no later collection goes through it
        report_ready()

    if reload is not None:
        on_hangup(lambda: reload(gateway), lambda: stop(signal.SIGTERM, None))
    with contextlib.suppress(KeyboardInterrupt):
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

    connections = Connections(gateway.bounds, gateway.clients)
    return uvicorn.Server(
        uvicorn.Config(
            gateway,
            loop=(loop := _loop_name()),
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
        if server.started:
            on_ready()
        await serving

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(serve())


def run_workers(
    configuration: Configuration,
    listener: socket.socket,
    count: int,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve with several processes on one socket.

    A process that dies is replaced. SIGTERM and SIGINT end all; after SIGHUP all read the configuration again, unless
    it has an error.
    """
    _import_uvicorn()  # so that one error is printed, and not one for each process
    with shared_folder():
        _run_workers(configuration, listener, count, on_ready)


def _run_workers(
    configuration: Configuration, listener: socket.socket, count: int, on_ready: Callable[[], None] | None
) -> None:
    """Start the processes and replace those that die, until all have ended."""
    workers: dict[int, float] = {}  # the time at which each was started
    failures = 0
    stopping = False
    log = logging.getLogger("cnllm.gateway")
    reports, report = os.pipe()  # a byte for each reload of a worker

    def send(number: int) -> None:
        for pid in list(workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        stopping = True
        send(signal.SIGTERM)

    def reload() -> None:
        """Let all processes read the files, and say so when the last one has: only then may the files change again."""
        is_new = configuration.reload()
        if is_new or configuration.suspended:
            send(signal.SIGHUP)
            deadline, count = time.monotonic() + _RELOAD_SECONDS, 0
            while count < len(workers) and time.monotonic() < deadline:
                if select.select([reports], [], [], 0.1)[0]:
                    count += len(os.read(reports, 1024))
        if is_new:
            log.warning("the configuration was read again")

    def start() -> None:
        # No signal in between: this process would not know the worker yet, and the worker would have its handlers.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        try:
            if not stopping:
                with configuration.lock:
                    pid = os.fork()
                    if pid:
                        workers[pid] = time.monotonic()
                if not pid:
                    _work(configuration, listener, {*mask, signal.SIGHUP}, report)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    on_hangup(reload, lambda: stop(signal.SIGTERM, None))
    for _ in range(count):
        start()
    if on_ready is not None:
        on_ready()
    while workers:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        except InterruptedError:
            continue
        started = workers.pop(pid, 0.0)
        drop_process(pid)
        if stopping:
            continue
        short = time.monotonic() - started < _SHORT_LIFE
        failures = failures + 1 if short and os.waitstatus_to_exitcode(status) > 0 else 0  # a signal is no failure
        if failures >= _MOST_FAILURES:
            stop(signal.SIGTERM, None)
            raise CnllmError("the workers end as soon as they start", hint="the lines above say why")
        log.warning("worker %d ended; another takes its place", pid)
        start()


def _work(configuration: Configuration, listener: socket.socket, mask: Iterable[int], report: int) -> NoReturn:
    """Serve in a worker, then end its process.

    `mask` are the signals to block until it can handle them. A byte goes to `report` after each reload.
    """

    def reload(gateway: Gateway) -> None:
        configuration.reload(gateway)
        os.write(report, b".")

    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process passes it on
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))  # until `run` has its own handler
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        run(configuration.gateway(), listener, reload=reload)
        status = 0
    except BaseException:
        logging.getLogger("cnllm.gateway").exception("a worker failed")
    finally:
        sys.stderr.flush()
        os._exit(status)


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


def _loop_name() -> str:
    """Return the name of the event loop: uvloop where it is installed."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"
