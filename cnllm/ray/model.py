"""The callable class that `Dataset.map_batches` takes, and the way of its workers to the allowance."""

from __future__ import annotations

import asyncio
import copyreg
import os
import socket
import time
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Unpack
from weakref import WeakKeyDictionary

from cnllm.batch.shared import (
    ADDED,
    COUNTS,
    Allowance,
    Asker,
    Link,
    LinkLost,
    ModelOptions,
    ModelSettings,
    PendingRow,
    Permissions,
    WorkerReport,
    decode_grant,
    decode_report,
    encode,
    model_settings,
)
from cnllm.errors import KeyMissing, Untrusted
from cnllm.ray.transport import node_error

__all__ = ["Model"]

_DIGITS = Decimal("1e-18")
_CONTEXT = Context(prec=38)  # the digits of the column


class Model:
    """A callable class that asks a model the rows of a batch: `dataset.map_batches(Model("glm-4.7"), concurrency=2)`.

    Each row needs `messages` or `prompt`, or what `prompt="Translate: {text}"` fills in. The columns `text`,
    `reasoning`, `finish`, `usage`, `cost` and `error` are added, each name with `prefix` before it.

    `rpm`, `tpm`, `concurrency`, `max_cost`, `currency`, `assume_price`, `assume_output` and `attempts` are those of
    `cnllm.batch.run`, and hold for all workers together. `state` is a file in which what was spent and what was
    answered outlives the run: the cap then holds for all runs with that file, and rows that are finished are not asked
    again. `id_column` names the column by which they are known. `key_env` is the variable that holds the key on each
    node. All other options are those of a call.

    Called with a batch, outside of `map_batches`, it answers it in this process. Raises `TypeError` and `ValueError`
    for an option that is wrong, and the errors of a request that cannot be built; nothing is sent before.
    """

    def __new__(cls, name: str, **options: Unpack[ModelOptions]) -> Any:
        """Return the class of workers for a model: Ray makes one in each actor."""
        return _bind(model_settings(name, **options))


class _Bound(type):
    """The type of the classes that `Model` returns. `pickle` takes classes of this type by their settings."""

    settings: ModelSettings


class _BatchWorker:
    """The object in an actor of Ray: its batches overlap, and share one client and one event loop."""

    settings: ModelSettings

    def __new__(cls, batch: Any = None) -> Any:
        """Return a worker; with a batch, the answered batch."""
        if batch is None:
            return object.__new__(cls)
        worker = _own_workers.get(cls)
        if worker is None:
            worker = _own_workers[cls] = cls()
        return worker._answer(batch)

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        try:
            self._asker = Asker(self.settings, process_place(), open_link())
        except (KeyMissing, Untrusted) as error:
            raise node_error(error) from None

    async def __call__(self, batch: Any) -> Any:
        """Return the batch with the answers' columns, as a pyarrow table."""
        table, rows = self._read(batch)
        return self._write(table, rows, await self._asker.ask(_pending(rows)))

    def _answer(self, batch: Any) -> Any:
        table, rows = self._read(batch)
        return _like(batch, self._write(table, rows, self._asker.ask_and_wait(_pending(rows))))

    def _read(self, batch: Any) -> tuple[Any, list[PendingRow | dict[str, Any]]]:
        """Return the table of a batch and its rows; a faulty one is its result."""
        if self._pid != os.getpid():  # threads and connections do not outlive a fork
            self._open()
        table = _as_table(batch)
        for name in ADDED:
            if self.settings.prefix + name in table.column_names:
                raise ValueError(
                    f"the dataset has a column {self.settings.prefix + name} already; rename it, or let the added "
                    'columns begin with another word: prefix="answer_"'
                )
        return table, [self._asker.row(row) for row in _read_rows(table, list(dict.fromkeys(self._asker.columns)))]

    def _write(self, table: Any, rows: list[PendingRow | dict[str, Any]], answers: list[Any]) -> Any:
        """Return the table with the columns of all rows."""
        rest = iter(answers)
        results = [next(rest) if isinstance(row, PendingRow) else row for row in rows]
        return _add_columns(table, results, self.settings.prefix)


def _pending(rows: list[PendingRow | dict[str, Any]]) -> list[PendingRow]:
    return [row for row in rows if isinstance(row, PendingRow)]


_own_workers: WeakKeyDictionary[type[_BatchWorker], _BatchWorker] = WeakKeyDictionary()
"""The worker of this process for each class that is called with a batch. Pickles of a class must not hold it."""


def _like(batch: Any, table: Any) -> Any:
    """Return a table in the format of a batch."""
    import pyarrow

    if isinstance(batch, pyarrow.Table):
        return table
    if not isinstance(batch, dict):
        return table.to_pandas()
    import numpy

    added = [name for name in table.column_names if name not in batch]
    return {**batch, **{name: numpy.array(table[name].to_pylist(), dtype=object) for name in added}}


def _bind(settings: ModelSettings) -> _Bound:
    """Return the class of workers with these settings. Its name is its own: Ray tells classes by their names."""
    names = {"__module__": __name__, "__qualname__": f"Model_{settings.run}"}
    return _Bound("Model", (_BatchWorker,), {"settings": settings, **names})


copyreg.pickle(_Bound, lambda bound: (_bind, (bound.settings,)))


def _as_table(batch: Any) -> Any:
    """Return a batch of any of Ray's formats as a pyarrow table."""
    import pyarrow
    from ray.data.block import BlockAccessor

    if isinstance(batch, pyarrow.Table):
        return batch
    return BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()


def _read_rows(table: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a table with these of its columns. Keys of messages that a row does not have are left out."""
    rows: list[dict[str, Any]] = table.select([name for name in names if name in table.column_names]).to_pylist()
    for row in rows:
        if "messages" in row:
            row["messages"] = _plain(row["messages"])
    return rows


def _plain(value: Any) -> Any:
    """Return lists for NumPy's arrays, and objects without the keys that Arrow adds so that all have the same."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


def _add_columns(table: Any, results: Sequence[Mapping[str, Any]], prefix: str) -> Any:
    """Return the table with the columns of the results."""
    import pyarrow

    for name, kind in _kinds().items():
        values = [_exact(result[name]) if name == "cost" else result[name] for result in results]
        table = table.append_column(prefix + name, pyarrow.array(values, kind))
    return table


def _exact(cost: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    amounts = {name: cost.get(name) for name in ("amount", "at_most")}
    return {
        **cost,
        **{
            name: None if amount is None else Decimal(str(amount)).quantize(_DIGITS, context=_CONTEXT)
            for name, amount in amounts.items()
        },
    }


def _kinds() -> dict[str, Any]:
    """Return the type of each column: the same in each block, whatever its rows hold."""
    import pyarrow

    text, count, money = pyarrow.string(), pyarrow.int64(), pyarrow.decimal128(38, 18)
    return {
        "text": text,
        "reasoning": text,
        "finish": text,
        "usage": pyarrow.struct([(name, count) for name in COUNTS]),
        "cost": pyarrow.struct(
            [("amount", money), ("currency", text), ("complete", pyarrow.bool_()), ("at_most", money)]
        ),
        "error": pyarrow.struct([("type", text), ("message", text), ("status", count), ("retryable", pyarrow.bool_())]),
    }


# ── the way to the allowance ─────────────────────────────────────────────────


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
