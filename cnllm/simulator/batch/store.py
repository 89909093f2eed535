"""Hold the files and jobs of one server in memory."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.simulator.batch.rows import JobRow, RowProblem
from cnllm.simulator.batch.steps import BatchStep, Interface, find_step, provider_interfaces
from cnllm.simulator.faults import JobFaults
from cnllm.simulator.respond import ModelLookup

__all__ = ["BatchStore", "Phase", "SimulatedJob", "StoredFile"]

Phase = Literal["pending", "done", "failed", "cancelled", "expired"]


class StoredFile(Struct, frozen=True):
    """A file of rows or results."""

    id: str
    provider: str
    name: str
    content: bytes
    created: float


class SimulatedJob(Struct, frozen=True):
    """A job. `body` is that of its submission, without the rows; `headers` answer for the key.

    `polls` and `lists` count the requests that have seen it. `results` are the rows of its results, and `files` their
    ids by the path that names them in the job; both are None while it runs.
    """

    id: str
    offer: Interface
    created: float
    body: dict[str, Any]
    headers: dict[str, str]
    rows: tuple[JobRow, ...]
    faults: JobFaults
    problems: tuple[RowProblem, ...] = ()
    mark: str | None = None
    polls: int = 0
    lists: int = 0
    cancelled: bool = False
    counts: dict[str, int] = {}
    results: tuple[dict[str, Any], ...] | None = None
    files: dict[str, str] = {}

    @property
    def provider(self) -> str:
        """Return the provider that has the job."""
        return self.offer.model.provider

    def phase(self, now: float) -> Phase:
        """Return how far the job is."""
        seconds = self.faults.seconds
        over = self.polls > self.faults.polls if seconds is None else now - self.created >= seconds
        if not over and not (self.cancelled and self.polls):
            return "pending"
        if self.problems:
            return "failed"
        if self.cancelled:
            return "cancelled"
        return "expired" if self.faults.expired else "done"


class BatchStore:
    """The files and jobs of one server. `lock` is held while a request is answered.

    `strict`: rows are refused everything that the flags deny.
    """

    def __init__(self, registry: ModelLookup, *, strict: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.registry = registry
        self.strict = strict
        self.clock = clock
        self.lock = threading.Lock()
        self._interfaces: dict[str, tuple[Interface, ...]] = {}
        self._files: dict[tuple[str, str], StoredFile] = {}
        self._jobs: dict[tuple[str, str], SimulatedJob] = {}
        self._count = 0

    def find_step(self, provider: str, method: str, path: str) -> BatchStep | None:
        """Return the step that a request to one of a provider's paths is, or None. Providers are looked up once."""
        if provider not in self._interfaces:
            self._interfaces[provider] = provider_interfaces(self.registry, provider)
        return find_step(self._interfaces[provider], method, path)

    def new_id(self, prefix: str) -> str:
        """Return an id that no file and no job has."""
        self._count += 1
        return prefix + hashlib.sha256(str(self._count).encode()).hexdigest()[:24]

    def add_file(self, provider: str, name: str, content: bytes) -> StoredFile:
        """Keep a file."""
        file = StoredFile(self.new_id("file-"), provider, name, content, self.clock())
        self._files[provider, file.id] = file
        return file

    def file(self, provider: str, id: str) -> StoredFile | None:
        """Return a provider's file, or None."""
        return self._files.get((provider, id))

    def save(self, job: SimulatedJob) -> SimulatedJob:
        """Keep a job in its new state."""
        self._jobs[job.provider, job.id] = job
        return job

    def job(self, provider: str, id: str) -> SimulatedJob | None:
        """Return a provider's job, or None."""
        return self._jobs.get((provider, id))

    def jobs(self, provider: str) -> Iterator[SimulatedJob]:
        """Yield a provider's jobs, the newest first. A job may ask to be missing at first."""
        for job in reversed(list(self._jobs.values())):
            if job.provider == provider:
                seen = self.save(replace(job, lists=job.lists + 1))
                if seen.lists > seen.faults.unlisted:
                    yield seen
