"""A transport whose requests leave from the nodes of a Ray cluster.

All else of a batch stays with the driver: rows, marks, limits, the cap and the output are those of a batch without Ray.
A worker that ends takes its requests with it. They count as paid at their worst case and are asked again.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from cnllm.batch.shared import RemoteRequest, RemoteSender, Response, stand_in
from cnllm.config.distribution import install_command
from cnllm.engine.encode.plan import Plan
from cnllm.errors import CnllmError, TransportError
from cnllm.registry.model import Model

__all__ = ["RayTransport", "node_error"]

Error = TypeVar("Error", bound=CnllmError)
_FEWEST = 2
_GROUP = 0.003  # seconds in which requests are passed on together
_CONNECT = 5.0
_AGAIN = 0.3  # seconds after which a worker that ended is looked for again


class RayTransport:
    """A transport over one worker on each node of a cluster, two at least.

    `address` is that of the cluster as `ray.init` takes it: "auto", "local", HOST:PORT or ray://HOST:PORT. Raises
    `CnllmError` where Ray is not installed or the cluster does not answer.
    """

    def __init__(self, address: str) -> None:
        ray = _connect(address)
        count = max(_FEWEST, sum(bool(node["Alive"]) for node in ray.nodes()))
        kind = ray.remote(RemoteSender).options(
            num_cpus=0, scheduling_strategy="SPREAD", max_restarts=-1, max_concurrency=10_000
        )
        self._workers = [_RemoteWorker(kind.remote(node_error)) for _ in range(count)]
        self._closed = False

    def key_of_nodes(self, model: Model, key: str | None) -> str | None:
        """Return what stands for the key of a model until a worker sends; `key` is that of a variable, None by default.

        Raises `Untrusted` as a client does, and `KeyMissing` where a worker does not have it.
        """
        import ray

        key = stand_in(model) if key is None else key
        if key is not None:
            url = model.flags.base_url or ""
            faults = ray.get([worker.actor.check.remote(key, url) for worker in self._workers])
            for fault in filter(None, faults):
                raise pickle.loads(fault)
        return key

    async def send(self, plan: Plan) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Send a plan from the worker that has the least to do. Raises `TransportError`."""
        worker = min(self._workers, key=_RemoteWorker.load)
        request = RemoteRequest(
            plan.method, plan.url, plan.headers, plan.content, plan.stream, plan.timeouts, plan.limits.reply
        )
        response = await worker.send(request)
        error: CnllmError | None = None if response.error is None else pickle.loads(response.error)
        if response.status is None:
            raise error or TransportError("the worker of Ray gave no answer")
        return response.status, response.headers, _body(response.body, error)

    async def aclose(self) -> None:
        """End the workers and leave the cluster."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.close()
        self.close()

    def close(self) -> None:
        """Leave the cluster. The workers end with that, too."""
        import ray

        ray.shutdown()


async def _body(body: bytes, error: CnllmError | None) -> AsyncIterator[bytes]:
    if body:
        yield body
    if error is not None:
        raise error


class _RemoteWorker:
    """An actor, and the requests that it has."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._next = 0
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._group: list[tuple[int, RemoteRequest]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._collector: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_lost = False

    def load(self) -> tuple[bool, int]:
        """Return what the next request is decided by: it goes to a worker that is there, and has the fewest."""
        return self._is_lost, len(self._pending)

    async def send(self, request: RemoteRequest) -> Response:
        loop = asyncio.get_running_loop()
        if self._collector is None:
            self._collector = loop.create_task(self._collect())
        number, self._next = self._next, self._next + 1
        future: asyncio.Future[Response] = loop.create_future()
        self._pending[number] = future
        self._group.append((number, request))
        if self._timer is None:
            self._timer = loop.call_later(_GROUP, self._flush)
        try:
            return await future
        finally:
            self._pending.pop(number, None)

    def close(self) -> None:
        if self._collector is not None:
            self._collector.cancel()

    def _flush(self) -> None:
        self._timer = None
        group, self._group = self._group, []
        task = asyncio.get_running_loop().create_task(self._submit(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, group: list[tuple[int, RemoteRequest]]) -> None:
        from ray.exceptions import RayError

        try:
            await self.actor.submit.remote(group)
        except RayError:
            self._lose([number for number, _ in group])

    async def _collect(self) -> None:
        """Take answers in. Where the worker ends, its requests are lost; Ray starts it again."""
        from ray.exceptions import RayError

        while True:
            try:
                responses: list[Response] = await self.actor.collect.remote()
            except RayError:
                self._is_lost = True
                self._lose([*self._pending])
                await asyncio.sleep(_AGAIN)
                continue
            self._is_lost = False
            for response in responses:
                future = self._pending.get(response.number)
                if future is not None and not future.done():
                    future.set_result(response)

    def _lose(self, numbers: list[int]) -> None:
        for number in numbers:
            future = self._pending.get(number)
            if future is not None and not future.done():
                error = TransportError("the worker of Ray that had sent the request ended", retryable=True)
                error.worker_lost = True
                future.set_exception(error)


def _connect(address: str) -> Any:
    """Return Ray, connected. Raises `CnllmError`."""
    try:
        import ray
    except ImportError as error:
        raise CnllmError("Ray is not installed", hint=install_command("ray")) from error
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        _require_server(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR", **local)
    except (OSError, ValueError, RuntimeError) as error:
        raise CnllmError(
            f"Ray at {address}: {str(error).splitlines()[0]}",
            hint="auto is the cluster of this node (`ray start --head`), local a new one for this batch; "
            "else HOST:PORT or ray://HOST:PORT",
        ) from error
    return ray


def _require_server(address: str) -> None:
    """Raise `OSError` where nothing answers at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()


# ── the node of this process, for errors ─────────────────────────────────────


def node_error(error: Error) -> Error:
    """Return an error whose message names this node."""
    error.message = f"node {_node_name()}: {error.message}"
    error.args = (error.message,)
    return error


def _node_name() -> str:
    """Return the name of this node, with its address in the cluster."""
    import ray

    if not ray.is_initialized():
        return socket.gethostname()
    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
