"""The way from a worker to the allowance: an actor of Ray, or where Ray does not run an allowance of the process."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from cnllm.batch.shared import (
    Allowance,
    Link,
    LinkLost,
    Permissions,
    WorkerReport,
    decode_grant,
    decode_report,
    encode,
)

__all__ = ["open_link", "process_place"]

ACTOR = "cnllm"
"""The name of the actor, in the namespace of the job."""
_IDLE = 120.0
"""Seconds without workers after which the actor ends."""
_LOOK = 5.0


class LocalLink:
    """An allowance of this process, where Ray does not run."""

    def __init__(self) -> None:
        self._allowance = Allowance(f"{os.getpid()}")

    async def exchange(self, report: WorkerReport) -> Permissions:
        """Pass a report to the allowance of this process."""
        return self._allowance.exchange(time.monotonic(), report)

    async def find(self, worker: str, keys: Sequence[tuple[bytes, bool]]) -> list[bytes | None]:
        """Return the answers that the allowance of this process has."""
        return self._allowance.find(worker, list(keys))


class AllowanceActor:
    """The allowance as an actor. It ends by itself when no worker has been there for a while."""

    def __init__(self) -> None:
        self._allowance = Allowance()
        self._allowance.last_report = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    async def exchange(self, report: bytes) -> bytes:
        """Take in a report, and return what is granted."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_idle())
        return encode(self._allowance.exchange(time.monotonic(), decode_report(report)))

    async def find(self, worker: str, keys: list[tuple[bytes, bool]]) -> list[bytes | None]:
        """Return the answers that are there already."""
        return self._allowance.find(worker, keys)

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            now = time.monotonic()
            if not self._allowance.has_workers(now) and now - self._allowance.last_report > _IDLE:
                self._allowance.close()
                os._exit(0)  # a task of the event loop cannot end an actor in another way


class RayLink:
    """The actor of the job's namespace. The worker that needs it first makes it, also when it was lost."""

    def __init__(self) -> None:
        self._actor: Any = None

    async def exchange(self, report: WorkerReport) -> Permissions:
        """Send a report to the actor. Raises `LinkLost`."""
        return decode_grant(await self._call("exchange", encode(report)))

    async def find(self, worker: str, keys: Sequence[tuple[bytes, bool]]) -> list[bytes | None]:
        """Return the answers that the actor has. Raises `LinkLost`."""
        found: list[bytes | None] = await self._call("find", worker, list(keys))
        return found

    async def _call(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayActorError

        try:
            if self._actor is None:
                self._actor = _open_actor()
            return await getattr(self._actor, method).remote(*arguments)
        except RayActorError as error:
            self._actor = None
            raise LinkLost(str(error)) from error


def _open_actor() -> Any:
    """Return the actor, made if it is not there.

    It is detached, since it must outlive the worker that happens to make it; in the namespace of one job it ends with
    the workers of that job.
    """
    import ray

    kind: Any = ray.remote(AllowanceActor)
    options = {"name": ACTOR, "get_if_exists": True, "lifetime": "detached", "num_cpus": 0, "max_concurrency": 1000}
    return kind.options(**options).remote()


def open_link() -> Link:
    """Return the way to the allowance."""
    import ray

    return RayLink() if ray.is_initialized() else LocalLink()


def process_place() -> str:
    """Return what stays of a worker when its process is started again: the actor, else the process."""
    import ray

    if ray.is_initialized() and (actor := ray.get_runtime_context().get_actor_id()) is not None:
        return str(actor)
    return f"{socket.gethostname()} {os.getpid()}"
