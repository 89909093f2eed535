"""The callable class that `Dataset.map_batches` takes."""

from __future__ import annotations

import copyreg
import os
from typing import Any, Literal
from weakref import WeakKeyDictionary

from cnllm.ray.settings import ModelSettings, model_settings
from cnllm.registry import Registry

__all__ = ["Model"]


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

    def __new__(
        cls,
        name: str,
        *,
        prompt: str | None = None,
        concurrency: int | Literal["auto"] = "auto",
        id_column: str = "id",
        prefix: str = "",
        state: str | os.PathLike[str] | None = None,
        key_env: str | None = None,
        base_url: str | None = None,
        protocol: str | None = None,
        registry: Registry | None = None,
        **options: Any,
    ) -> Any:
        """Return the class of workers for a model: Ray makes one in each actor."""
        return _bind(
            model_settings(
                name,
                key_env=key_env,
                base_url=base_url,
                protocol=protocol,
                registry=registry,
                id_column=id_column,
                prefix=prefix,
                state=None if state is None else os.path.abspath(state),
                settings={"prompt": prompt, "concurrency": concurrency, **options},
            )
        )


class _Bound(type):
    """The type of the classes that `Model` returns. `pickle` takes classes of this type by their settings."""

    settings: ModelSettings


class _Worker:
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
        from cnllm.ray.worker import Asker  # the driver needs no client

        self._pid = os.getpid()
        self._asker = Asker(self.settings)

    async def __call__(self, batch: Any) -> Any:
        """Return the batch with the answers' columns, as a pyarrow table."""
        if self._pid != os.getpid():  # threads and connections do not outlive a fork
            self._open()
        asker = self._asker
        table, results, rows, places = asker.read(batch)
        return asker.write(table, results, places, await asker.ask(rows))

    def _answer(self, batch: Any) -> Any:
        if self._pid != os.getpid():
            self._open()
        asker = self._asker
        table, results, rows, places = asker.read(batch)
        return _like(batch, asker.write(table, results, places, asker.ask_and_wait(rows)))


_own_workers: WeakKeyDictionary[type[_Worker], _Worker] = WeakKeyDictionary()
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
    return _Bound("Model", (_Worker,), {"settings": settings, **names})


copyreg.pickle(_Bound, lambda bound: (_bind, (bound.settings,)))
