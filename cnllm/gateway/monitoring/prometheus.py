"""Count in the registry of `prometheus-client`, in one process or in several that share a folder."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from cnllm.config.distribution import install_command
from cnllm.errors import CnllmError
from cnllm.gateway.monitoring.entry import Entry
from cnllm.gateway.monitoring.updates import METRICS, Counts, Observation, add_request

__all__ = ["FOLDER", "Metrics", "drop_process", "shared_folder"]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which processes share their metrics."""

_WARN_SECONDS = 60.0  # between two lines about counts that cannot be written
_PREFIXES = {"counter": "counter", "histogram": "histogram", "gauge": "gauge_livesum"}
"""The beginnings of the names that `prometheus-client` gives its files, by the kind of their metrics."""
_FILE_BYTES = 64 * 1024  # of a file at first; it doubles each time
_VALUE_BYTES = 128  # of a value in such a file beside its labels: a number, a time, the name of a bucket
_MOST_OBSERVED = 512  # values of histograms
_MOST = 4096  # sets of labels of one metric: a registry with more models counts the others together

_log = logging.getLogger("cnllm.gateway")


class Metrics:
    """The metrics of a gateway. They are made at the start of the process that serves: after a fork.

    `prometheus-client` chooses between memory and files when it is imported, so this module imports it late.
    """

    def __init__(self) -> None:
        self._registry: Any = None
        self._metrics: dict[str, Any] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._counts: Counts = defaultdict(float)  # since the last scrape
        self._observed: list[Observation] = []  # since the last scrape
        self._is_missing = False
        self._is_shared = False  # with other processes, any of which may answer a scrape
        self._warned = -_WARN_SECONDS

    def start(self) -> None:
        """Make the metrics. Without `prometheus-client` nothing is counted."""
        if self._registry is not None or self._is_missing:
            return
        try:
            import prometheus_client
        except ImportError:
            self._is_missing = True
            return
        self._is_shared = FOLDER in os.environ
        registry = prometheus_client.CollectorRegistry()
        try:
            if self._is_shared and not os.path.isdir(os.environ[FOLDER]):
                os.makedirs(os.environ[FOLDER], exist_ok=True)
                _log.warning("the folder of the metrics was removed, and with it the counts of all processes")
            for name, metric in METRICS.items():
                if self._is_shared and not metric.labels:
                    _take_space(name, ())
                make = getattr(prometheus_client, metric.kind.title())
                self._metrics[name] = make(name, metric.help, metric.labels, registry=registry, **metric.options)
            self._metrics["cnllm_workers"].set(1)
            self._registry = registry
        except OSError as error:
            self._warn(error)

    def count(self, entry: Entry, model: str) -> None:
        """Count a request that has ended. A disk that fails stops no request.

        What is counted is gathered until a scrape asks for it, unless another process may answer that.
        """
        self.start()
        if self._registry is not None:
            add_request(entry, model, self._counts, self._observed)
            if self._is_shared or len(self._counts) > _MOST or len(self._observed) > _MOST_OBSERVED:
                self._flush()

    def _warn(self, error: OSError) -> None:
        """Say in the log why the files of the metrics cannot be written, once a minute."""
        if (now := time.monotonic()) - self._warned >= _WARN_SECONDS:
            self._warned = now
            _log.warning("the metrics lack some requests: %s", error)

    def _flush(self) -> None:
        """Add the counts to their counters, and the values to their histograms. A count that is not written is kept."""
        observed, self._observed = self._observed, []
        try:
            for name, labels, value in observed:
                self._child(name, labels).observe(value)
            for name, labels in list(self._counts):
                counter = self._child(name, labels)
                counter.inc(self._counts.pop((name, labels)))
        except OSError as error:
            self._warn(error)

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        """Return the counter or histogram of a set of labels; beyond the bound that of all others."""
        child = self._children.get((name, labels))
        if child is None:
            has_place = len(self._children) < _MOST
            known = labels if has_place else ("other",) * len(labels)
            if self._is_shared:
                _take_space(name, known)
            child = self._metrics[name].labels(*known)
            if has_place:
                self._children[name, labels] = child
        return child

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of all processes and their media type, in the format that a scraper accepts."""
        self.start()
        if self._is_missing:
            raise CnllmError("metrics need prometheus-client", hint=install_command("serve"))
        from prometheus_client import CollectorRegistry, multiprocess
        from prometheus_client.exposition import choose_encoder

        registry = self._registry
        try:
            if self._is_shared:
                registry = CollectorRegistry()
                registry.register(_SharedFiles(multiprocess.MultiProcessCollector(None)))  # type: ignore[no-untyped-call]
            self._flush()
            encode, media_type = choose_encoder(accept)
            return encode(registry), media_type
        except (OSError, ValueError) as error:
            raise CnllmError(f"the metrics cannot be read: {error}", hint="start the gateway again") from error


class _SharedFiles:
    """Collects the metrics of all processes. A new file is empty at first."""

    def __init__(self, collector: Any) -> None:
        self._merge = collector.merge

    def collect(self) -> Iterable[Any]:
        """Return the metrics of the files that are not empty."""
        files: list[str] = []
        for entry in os.scandir(os.environ[FOLDER]):  # only reads
            with contextlib.suppress(FileNotFoundError):  # of a process that has ended
                if entry.name.endswith(".db") and entry.stat().st_size:
                    files.append(entry.path)
        metrics: Iterable[Any] = self._merge(files)
        return metrics


@contextlib.contextmanager
def shared_folder() -> Iterator[None]:
    """Share metrics between this process's children while the block runs, in a folder that is removed at the end.

    A folder that the user chose by the environment variable stays as it is.
    """
    if os.environ.get(FOLDER):
        os.makedirs(os.environ[FOLDER], exist_ok=True)
        yield
        return
    parent = os.getpid()
    folder = tempfile.mkdtemp(prefix="cnllm-metrics-")
    os.environ[FOLDER] = folder
    try:
        yield
    finally:
        if os.getpid() == parent:  # a child has a copy of this block
            os.environ.pop(FOLDER, None)
            shutil.rmtree(folder, ignore_errors=True)  # ours: made above


def _take_space(name: str, labels: tuple[str, ...]) -> None:
    """Make the file of a metric longer where it has no space for a set of labels. Raises `OSError`.

    `prometheus-client` would leave holes there, and the system ends a process that writes to one on a full disk.
    """
    metric = METRICS[name]
    values = len(metric.options["buckets"]) + 2 if metric.kind == "histogram" else 1
    need = values * (len(json.dumps([name, metric.labels, labels, metric.help])) + _VALUE_BYTES)
    path = os.path.join(os.environ[FOLDER], f"{_PREFIXES[metric.kind]}_{os.getpid()}.db")
    with open(path, "a+b", buffering=0) as file:  # ours: a file of the metrics of this process
        length = file.seek(0, os.SEEK_END)
        file.seek(0)
        if int.from_bytes(file.read(4), sys.byteorder) + need <= length:
            return
        more = max(length, _FILE_BYTES)
        try:
            if file.write(bytes(more)) < more:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        except OSError:
            file.truncate(length)  # ours: what was added above
            if not length:  # a file without its length cannot be read
                os.unlink(path)  # ours: made above
            raise


def drop_process(pid: int) -> None:
    """Take a process that has ended out of the gauges. What it counted stays: a counter never goes back."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    with contextlib.suppress(ImportError):
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
