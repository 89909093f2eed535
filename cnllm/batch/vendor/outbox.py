"""Bring rows to the vendor: pack them into parts and submit these, and go on with the parts of earlier runs.

A part is brought there in three steps: store the intent, upload, submit. A crash does no harm.

The job of a part that may have been submitted is looked for: after a crash, or where no answer came.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing

from msgspec import Struct

from cnllm.batch.jobs import Job
from cnllm.batch.rows import InputRow
from cnllm.batch.state import RowMark
from cnllm.batch.vendor.codec import (
    VendorJob,
    encode_row,
    list_plan,
    read_file_id,
    read_job,
    read_page,
    submit_plan,
    upload_plan,
)
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection, VendorContext, delay_of, failure_reason
from cnllm.batch.vendor.parts import INTENT, SUBMITTED, UPLOADED, JobPart, VendorParts
from cnllm.batch.vendor.results import fetch_results
from cnllm.errors import CnllmError, EndpointError, TransportError
from cnllm.types.checks import plural

__all__ = [
    "Outbox",
]


_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of a part, whatever the vendor takes: it is held in memory while it is sent."""
_MARGIN = 1024  # bytes for what stands around the rows
_MOST_ROWS = 50_000
_LONGEST_ID = "0123456789abcdef-0000000"

_ATTEMPTS = 6
_DELAY = 60.0  # seconds until a new job stands in the list, where the registry does not know better
_MOST_PAGES = 1000
_SLACK = 600.0  # seconds by which the vendor's clock may differ


class Outbox:
    """The parts at the vendor are in `open`. `refusal` is why the vendor takes no more; None while it does."""

    def __init__(self, context: VendorContext) -> None:
        self._context = context
        self._session = session = context.session
        self._budget = session.budget
        self._parts = session.parts
        self._first_seq = self._next_seq = session.state.last_seq() + 1
        self._batch = batch = context.exchange.batch
        self._most_rows = min(batch.max_rows or _MOST_ROWS, _MOST_ROWS)
        self._most_bytes = min(batch.max_bytes or _MOST_BYTES, _MOST_BYTES) - _MARGIN
        self._packed: list[_PartRow] = []  # the part that is being filled
        self._bytes = 0
        probe = context.exchange.probe
        self._model = f"{probe.model.name} over {probe.model.protocol}"
        self._held: Job | None = None  # a row that waits for room below the cap
        self.open: list[JobPart] = []
        self.refusal: str | None = None
        self.messages: list[str] = []
        self.cap_reason = ""

    async def settle(self) -> None:
        """Find the jobs of parts that an earlier run left, and free the rows of those without one."""
        for part in self._parts.open_parts():
            if part.model != self._model:
                raise CnllmError(
                    f"{part.size:,} rows are in job {part.job or part.mark} of {part.model}, and this run is one of "
                    f"{self._model}",
                    hint=f"-m {part.model.partition(' ')[0]} goes on with it; another -o OUT asks all rows anew",
                )
            found: JobPart | None = part
            if part.state != SUBMITTED:
                try:
                    found = await _settle_part(self._context.exchange, self._parts, part)
                except _UnsureJob as error:
                    if self._session.settings.unsure == "skip":
                        self.messages.append(f"{error}; its rows were left unanswered")
                        continue
                    self.messages.append(f"{error}; its rows are asked again")
                    found = None
            if found is None:
                for number in self.release(part):
                    self._session.comparison.to_send.add(number)
            else:
                self.open.append(found)

    def release(self, part: JobPart) -> list[int]:
        """Free the rows of a part, and return their lines."""
        rows = self._parts.release(part)
        for row in rows:
            self._budget.settle(row.cost, 0)
        return [row.number for row in rows]

    async def submit(self, rows: AsyncIterator[InputRow]) -> bool:
        """Pack rows into parts and submit them, as far as the cap permits. Return whether rows are left."""
        while not self._context.stopping.is_set() and self.refusal is None:
            job, self._held = self._held, None
            if job is None:
                row = await anext(rows, None)
                if row is None:
                    await self._submit_part()
                    return False
                job = self._context.jobs.make(row, self._next_seq)
                self._next_seq += 1
            size = 0 if job.outcome is not None else self._size_of(job)
            if not 0 < size <= min(self._batch.max_row_bytes or size, self._most_bytes):  # nothing, or too much
                self._context.leftover.add(job.row.number)
                continue
            if not self._budget.has_room(job.reserved):
                await self._submit_part()
                self._held = job
                self.cap_reason = self._budget.refusal(job.reserved)
                return True
            if len(self._packed) >= self._most_rows or self._bytes + size > self._most_bytes:
                await self._submit_part()
            self._budget.reserve(job.reserved)
            self._pack(job, size)
        self.drop()
        return True

    def _size_of(self, job: Job) -> int:
        """Return the bytes of a row."""
        assert self._batch.row is not None
        return len(encode_row(self._batch.row, _LONGEST_ID, job.prepared.plan.content)) + 1

    def _pack(self, job: Job, size: int) -> None:
        """Put a row into the part."""
        mark = job.mark(self._session.number, None, retake=job.row.number <= self._session.comparison.scanned)
        self._packed.append(_PartRow(mark, job.prepared.plan.content, job.reserved))
        self._bytes += size

    def _take(self) -> list[_PartRow]:
        """Return the rows of the part, and begin another."""
        rows, self._packed, self._bytes = self._packed, [], 0
        return rows

    def drop(self) -> None:
        """Forget the rows of a part that is not submitted."""
        for packed in self._take():
            self._budget.settle(packed.cost, 0)

    async def _submit_part(self) -> None:
        """Store a part, and bring it to the vendor."""
        rows = self._take()
        if not rows:
            return
        marks, costs = [packed.mark for packed in rows], [packed.cost for packed in rows]
        part, doubled = self._parts.intend(self._model, self._session.number, marks, costs, self._first_seq)
        for index in doubled:
            self._budget.settle(rows[index].cost, 0)
            self._context.leftover.add(rows[index].mark.number)
        rest = [packed for index, packed in enumerate(rows) if index not in set(doubled)]
        if not rest:
            self.release(part)
            return
        try:
            part = await _submit_part(self._context.exchange, self._parts, part, rest)
        except _NotSubmitted as failure:
            self.release(part)
            (error,) = failure.args
            self.refusal = f"the vendor took no job: {type(error).__name__}: {error}"
            return
        self.open.append(part)


# ── one part ─────────────────────────────────────────────────────────────────


class _PartRow(Struct, frozen=True):
    """A row of a part: what the state keeps of it, its body, and the most that it can cost, in units."""

    mark: RowMark
    body: bytes
    cost: int | None


class _NotSubmitted(Exception):
    """The vendor certainly has no job of a part. The argument is the error that says why."""


class _UnsureJob(CnllmError):
    """Nobody can tell whether the vendor has a job of a part."""


async def _submit_part(
    exchange: VendorConnection, parts: VendorParts, part: JobPart, packed: Sequence[_PartRow]
) -> JobPart:
    """Upload and submit a part that is stored. Return it with its job.

    Raises `_NotSubmitted`. After any other error the part stays as it is, and `_settle_part` goes on with it.
    """
    batch = exchange.batch
    assert batch.row is not None
    rows = [encode_row(batch.row, part.row_id(position), row.body) for position, row in enumerate(packed, 1)]
    file = None
    if batch.input == "file":
        file = await _upload(exchange, part, rows)
        part = parts.advance(part, UPLOADED, file=file)
    plan = submit_plan(batch, exchange.probe, part.mark, file=file, rows=rows)
    tries = 0
    while True:
        tries += 1
        error: CnllmError
        try:
            job = read_job(batch, await exchange.send(plan))
            if job is not None:
                return parts.advance(part, SUBMITTED, job=job.id)
            error = UnreadableAnswer("the answer to the submission has no id of a job")
        except (TransportError, EndpointError, UnreadableAnswer) as failure:
            error = failure
        if not _is_refused(error) and (found := await _settle_part(exchange, parts, part)) is not None:
            return found
        if tries >= _ATTEMPTS or not error.meaning.again:
            raise _NotSubmitted(error)
        await exchange.sleep(delay_of(error, tries), failure_reason(error))


async def _upload(exchange: VendorConnection, part: JobPart, rows: list[bytes]) -> str:
    """Upload the rows of a part, and return the id of the file."""
    try:
        answer = await exchange.repeat(upload_plan(exchange.batch, exchange.probe, part.mark, rows))
    except (TransportError, EndpointError, UnreadableAnswer) as error:
        raise _NotSubmitted(error) from error
    file = read_file_id(exchange.batch, answer)
    if file is None:
        hint = "check batch.upload in the registry"
        raise _NotSubmitted(UnreadableAnswer("the answer to the upload has no id", hint=hint))
    return file


async def _settle_part(exchange: VendorConnection, parts: VendorParts, part: JobPart) -> JobPart | None:
    """Return a part with its job, which is looked for at the vendor. None: there is no such job.

    Raises `_UnsureJob` where nobody can tell.
    """
    if part.state == INTENT and exchange.batch.input == "file":
        return None  # its file was not even uploaded
    job = await _find_job(exchange, part, parts.known_jobs())
    return None if job is None else parts.advance(part, SUBMITTED, job=job.id)


def _unsure(part: JobPart, reason: str) -> _UnsureJob:
    return _UnsureJob(
        f"{part.size:,} rows may be in a job of the vendor with the mark {part.mark}: {reason}",
        hint="look for it at the vendor; --unsure ask asks the rows again, --unsure skip leaves them",
    )


def _is_refused(error: CnllmError) -> bool:
    """Whether the vendor has certainly started no job."""
    if isinstance(error, TransportError):
        return not error.sent
    return isinstance(error, EndpointError) and 400 <= error.status < 500 and error.status != 408


# ── the search for a job ─────────────────────────────────────────────────────


async def _find_job(exchange: VendorConnection, part: JobPart, known: frozenset[str]) -> VendorJob | None:
    """Find the job of a part in the account's list; None where there is none. `known` are jobs of other parts.

    A job that carries a mark is known by it. One without is known by the ids of its rows, which stand in its results:
    every job since the part was stored is waited for. A job that is not found is looked for once more when the list is
    sure to have it. Raises `_UnsureJob` where nobody can tell.
    """
    batch, listing = exchange.batch, exchange.batch.list_
    if listing is None:
        raise _unsure(part, "the vendor has no list of jobs")
    has_mark = batch.submit is not None and bool(batch.submit.mark) and batch.job is not None and bool(batch.job.mark)
    delay = _DELAY if listing.delay is None else listing.delay
    for is_last in (False, True):
        start = time.time()
        candidates: list[VendorJob] = []
        try:
            async for job in _jobs(exchange):
                if has_mark and job.mark == part.mark:
                    return job
                is_recent = job.created is None or job.created >= part.created - _SLACK
                if not has_mark and job.id not in known and is_recent:
                    candidates.append(job)
        except (UnreadableAnswer, EndpointError) as error:
            raise _unsure(part, f"the vendor's list of jobs cannot be read: {error}") from error
        for job in candidates:
            if await _is_of_part(exchange, part, job):
                return job
        wait = min(part.created + delay - start, delay)  # the clock may have been set back
        if wait <= 0 or is_last:
            break
        await exchange.sleep(wait, f"looking for the job of {part.size:,} row{plural(part.size)}")
    return None


async def _jobs(exchange: VendorConnection) -> AsyncIterator[VendorJob]:
    """Yield all jobs of the account. Raises `UnreadableAnswer` where the list does not end."""
    batch, page = exchange.batch, None
    for number in range(_MOST_PAGES):
        found = read_page(batch, await exchange.repeat(list_plan(batch, exchange.probe, page)), number)
        if found is None:
            raise UnreadableAnswer("the answer is not a list")
        jobs, following = found
        for job in jobs:
            yield job
        if following is None or following == page:
            return
        page = following
    raise UnreadableAnswer(f"it has more than {_MOST_PAGES} pages")


async def _is_of_part(exchange: VendorConnection, part: JobPart, job: VendorJob) -> bool:
    """Whether the results of a job are those of a part; waits until it has results."""
    tries = 0
    while job.state == "pending":
        tries += 1
        await exchange.sleep(
            min(60.0, 0.5 * 1.5**tries),
            f"waiting for job {job.id}, which may be that of {part.size:,} row{plural(part.size)}",
        )
        job = await exchange.poll(job.id) or job
    if job.state == "failed":
        return False
    with closing(await fetch_results(exchange, part, job)) as results:
        return results.is_of_part()
