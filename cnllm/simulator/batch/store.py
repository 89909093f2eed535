"""Hold the files and jobs of one server in memory, and tell which step of a batch interface a request is."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.errors import UnknownModel
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.protocols.server_interface import BatchForm
from cnllm.registry.flags import Batch
from cnllm.registry.flags.batch import BatchJob, BatchList, BatchResults, BatchSubmit, BatchUpload
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry
from cnllm.simulator.faults import JobFaults

__all__ = [
    "BatchRequest",
    "BatchStep",
    "BatchStore",
    "Interface",
    "JobRow",
    "Phase",
    "RowProblem",
    "SimulatedJob",
    "StoredFile",
]

Phase = Literal["pending", "done", "failed", "cancelled", "expired"]
StepName = Literal["upload", "submit", "poll", "list", "results", "cancel", "file"]


class Interface(Struct, frozen=True):
    """A provider's batch interface on one wire. `model` is the endpoint; its id does not count."""

    model: Model
    flags: Batch

    @property
    def form(self) -> BatchForm:
        """Return the words of the wire's own interface."""
        return server_codec(self.model.protocol).batch

    @property
    def paths(self) -> dict[StepName, tuple[str, str | None]]:
        """Return method and path of each step in the order in which they are tried: paths that name more come first."""
        flags, job, upload = self.flags, self.flags.job or BatchJob(), (self.flags.upload or BatchUpload()).path
        return {
            "upload": ("POST", upload),
            "submit": ("POST", (flags.submit or BatchSubmit()).path),
            "cancel": ("POST", job.cancel),
            "list": ("GET", (flags.list_ or BatchList()).path),
            "results": ("GET", (flags.results or BatchResults()).path),
            "file": ("GET", f"{upload}/{{file}}" if upload else None),
            "poll": ("GET", job.path),
        }

    def match(self, step: StepName, method: str, path: str) -> re.Match[str] | None:
        """Return the match of a request with the path of a step, with what the path names."""
        verb, own = self.paths[step]
        return _compile(own.partition("?")[0]).fullmatch(path) if own and verb == method else None


class BatchRequest(Struct, frozen=True):
    """A request of a batch interface. `base_url` is the provider's, as the client knows it."""

    target: str
    headers: Mapping[str, str]
    content: bytes
    base_url: str


class BatchStep(Struct, frozen=True):
    """A step: the interfaces of the provider that have it at this path, and what the path names."""

    name: StepName
    interfaces: tuple[Interface, ...]
    names: dict[str, str] = {}


def _interfaces(registry: Registry, provider: str) -> tuple[Interface, ...]:
    """Return a provider's batch interfaces, one per wire: that of its first model that is served in batches."""
    found: dict[str, Interface] = {}
    names = [f"{provider}/any", *(name for name in registry.names() if name.startswith(f"{provider}/"))]
    for protocol in (None, *PROTOCOLS):
        for name in names:
            try:
                model = registry.resolve(name, protocol=protocol)
            except UnknownModel:
                break  # there is no such provider, or it does not speak this protocol
            flags = model.flags.batch
            if flags is not None and flags.available and flags.submit is not None and flags.input != "calls":
                found.setdefault(model.protocol, Interface(model, flags))
                break
    return tuple(found.values())


@cache
def _compile(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with names in braces. A name that is a whole path has a slash in it."""
    is_whole = path in ("/{id}", "/{id}:cancel")
    texts = {"model": ".+", "id": r"[^/]+/[^/:]+" if is_whole else "[^/]+"}
    pattern = re.sub(r"\\\{(\w+)\\\}", lambda name: f"(?P<{name[1]}>{texts.get(name[1], '[^/]+')})", re.escape(path))
    return re.compile(pattern)


# ── files and jobs ───────────────────────────────────────────────────────────


class JobRow(Struct, frozen=True):
    """A row: its id, the model that answers it, and the body of its request."""

    id: str
    model: str
    body: dict[str, Any]


class RowProblem(Struct, frozen=True):
    """The reason why a job cannot be run. `line` counts from 1; None where no single row is at fault."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class StoredFile(Struct, frozen=True):
    """A file of rows or results."""

    id: str
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

    def __init__(self, registry: Registry, *, strict: bool = False, clock: Callable[[], float] = time.time) -> None:
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
            self._interfaces[provider] = _interfaces(self.registry, provider)
        interfaces = self._interfaces[provider]
        for step in interfaces[0].paths if interfaces else ():
            hits = [(found, match) for found in interfaces if (match := found.match(step, method, path)) is not None]
            if hits:
                return BatchStep(step, tuple(found for found, _ in hits), hits[0][1].groupdict())
        return None

    def new_id(self, prefix: str) -> str:
        """Return an id that no file and no job has."""
        self._count += 1
        return prefix + hashlib.sha256(str(self._count).encode()).hexdigest()[:24]

    def add_file(self, provider: str, name: str, content: bytes) -> StoredFile:
        """Keep a file."""
        file = StoredFile(self.new_id("file-"), name, content, self.clock())
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
