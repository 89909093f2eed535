"""Hold the files and jobs of one server in memory, and read the request that starts a job."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import get
from cnllm.registry.flags.batch import BatchSubmit
from cnllm.simulator.batch.rows import JobRow, RowProblem, read_lines, read_rows
from cnllm.simulator.batch.steps import BatchStep, Interface, find_step, provider_interfaces
from cnllm.simulator.faults import JobFaults, read_job_faults
from cnllm.simulator.respond import ModelLookup
from cnllm.types.checks import unfit_id

__all__ = ["BatchStore", "Phase", "RefusedStep", "SimulatedJob", "StoredFile", "read_submission"]

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


# ── the request that starts a job ────────────────────────────────────────────


class RefusedStep(Exception):
    """A request that the interface refuses at once."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param


def read_submission(
    store: BatchStore,
    offer: Interface,
    body: dict[str, Any],
    model_in_path: str | None,
    headers: Mapping[str, str],
    size: int,
) -> SimulatedJob:
    """Return the job that a request starts. Raise `RefusedStep`.

    What is wrong with rows in a file fails the job later, in its validation. Rows in the body are refused at once.
    """
    flags = offer.flags.submit or BatchSubmit()
    for key, value in (flags.set or {}).items():
        if isinstance(value, str) and value.startswith("/") and key not in body:  # the path of the calls
            raise RefusedStep(f"{key} is missing; it may be {value}.", param=key)
    job_model = model_in_path or (_text(body, flags.model) if flags.model is not None else None)
    rows, problems = read_rows(offer, _lines(store, offer, flags, body), job_model)
    problems += _limits(offer, size) + _unsupported(store.registry, offer, rows)
    if problems and flags.rows is not None:
        where = "" if problems[0].line is None else f"{flags.rows}[{problems[0].line - 1}]: "
        raise RefusedStep(where + problems[0].message, param=problems[0].param)
    faults = read_job_faults(headers)
    if faults.invalid:
        problems.insert(0, RowProblem("invalid_request", "This failure was asked for.", faults.invalid))
    kept = dict(body)
    if flags.rows is not None:
        kept.pop(flags.rows.partition(".")[0], None)
    mark = get(body, flags.mark) if flags.mark is not None else None
    return SimulatedJob(
        id=store.new_id(offer.form.prefix),
        offer=offer,
        created=store.clock(),
        body=kept,
        headers=dict(headers),
        rows=tuple(rows),
        faults=faults,
        problems=tuple(problems),
        mark=mark if isinstance(mark, str) else None,
    )


def _lines(store: BatchStore, offer: Interface, flags: BatchSubmit, body: dict[str, Any]) -> Iterable[tuple[int, Any]]:
    """Return the rows that the body has or names, with their numbers."""
    if flags.rows is not None:
        rows = get(body, flags.rows)
        if not isinstance(rows, list):
            raise RefusedStep(f"{flags.rows} must be a list of requests.", param=flags.rows)
        return enumerate(rows, start=1)
    if flags.files is not None:
        ids = get(body, flags.files)
        if not isinstance(ids, list) or len(ids) != 1:
            raise RefusedStep(f"{flags.files} must be a list of one file.", param=flags.files)
        return read_lines(_file(store, offer, ids[0], flags.files).content)
    path = flags.file or "input_file_id"
    return read_lines(_file(store, offer, get(body, path), path).content)


def _file(store: BatchStore, offer: Interface, id: Any, path: str) -> StoredFile:
    file = store.file(offer.model.provider, id) if isinstance(id, str) else None
    if file is None:
        raise RefusedStep(f"There is no file {id}.", param=path)
    return file


def _text(body: dict[str, Any], path: str) -> str | None:
    value = get(body, path)
    return value if isinstance(value, str) and value else None


def _unsupported(registry: ModelLookup, offer: Interface, rows: Iterable[JobRow]) -> list[RowProblem]:
    """Return which models of the rows the interface does not serve."""
    names = sorted({row.model for row in rows if unfit_id(row.model) is None})
    provider, protocol = offer.model.provider, offer.model.protocol
    batches = {name: registry.resolve(f"{provider}/{name}", protocol=protocol).flags.batch for name in names}
    refused = [name for name, batch in batches.items() if batch is not None and batch.available is False]
    return [RowProblem("model_not_supported", f"The model {name} is not served in batches.") for name in refused]


def _limits(offer: Interface, size: int) -> list[RowProblem]:
    """Return what is wrong with the size of a request that holds its rows."""
    limit = offer.flags.max_bytes
    if offer.flags.input != "inline" or limit is None or size <= limit:
        return []
    return [RowProblem("too_large", f"The request has {size} bytes; the limit is {limit}.")]
