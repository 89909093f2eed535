"""Bring a part to the vendor: store the intent, upload, submit. A crash does no harm.

The job of a part that may have been submitted is looked for: after a crash, or where no answer came.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

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
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection, delay_of
from cnllm.batch.vendor.parts import INTENT, SUBMITTED, UPLOADED, JobPart, VendorParts
from cnllm.batch.vendor.results import fetch_results
from cnllm.errors import CnllmError, EndpointError, TransportError

__all__ = ["NotSubmitted", "Packed", "UnsureJob", "settle_part", "submit_part"]

_ATTEMPTS = 6
_DELAY = 60.0  # seconds until a new job stands in the list, where the registry does not know better
_MOST_PAGES = 1000
_SLACK = 600.0  # seconds by which the vendor's clock may differ


class Packed(Struct, frozen=True):
    """A row of a part: what the state keeps of it, its body, and the most that it can cost, in units."""

    mark: RowMark
    body: bytes
    cost: int | None


class NotSubmitted(Exception):
    """The vendor certainly has no job of a part. `error` says why."""

    def __init__(self, error: CnllmError) -> None:
        super().__init__(str(error))
        self.error = error


class UnsureJob(CnllmError):
    """Nobody can tell whether the vendor has a job of a part."""


async def submit_part(
    exchange: VendorConnection, parts: VendorParts, part: JobPart, packed: Sequence[Packed]
) -> JobPart:
    """Upload and submit a part that is stored. Return it with its job.

    Raises `NotSubmitted`. After any other error the part stays as it is, and `settle_part` goes on with it.
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
        if not _is_refused(error) and (found := await settle_part(exchange, parts, part)) is not None:
            return found
        if tries >= _ATTEMPTS or not error.meaning.again:
            raise NotSubmitted(error)
        await exchange.sleep(delay_of(error, tries))


async def _upload(exchange: VendorConnection, part: JobPart, rows: list[bytes]) -> str:
    """Upload the rows of a part, and return the id of the file."""
    try:
        answer = await exchange.repeat(upload_plan(exchange.batch, exchange.probe, part.mark, rows))
    except (TransportError, EndpointError, UnreadableAnswer) as error:
        raise NotSubmitted(error) from error
    file = read_file_id(exchange.batch, answer)
    if file is None:
        hint = "check batch.upload in the registry"
        raise NotSubmitted(UnreadableAnswer("the answer to the upload has no id", hint=hint))
    return file


async def settle_part(exchange: VendorConnection, parts: VendorParts, part: JobPart) -> JobPart | None:
    """Return a part with its job, which is looked for at the vendor. None: there is no such job.

    Raises `UnsureJob` where nobody can tell.
    """
    if part.state == INTENT and exchange.batch.input == "file":
        return None  # its file was not even uploaded
    job = await _find_job(exchange, part, parts.known_jobs())
    return None if job is None else parts.advance(part, SUBMITTED, job=job.id)


def _unsure(part: JobPart, reason: str) -> UnsureJob:
    return UnsureJob(
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
    sure to have it. Raises `UnsureJob` where nobody can tell.
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
                if not has_mark and job.id not in known and _may_be(job, part):
                    candidates.append(job)
        except (UnreadableAnswer, EndpointError) as error:
            raise _unsure(part, f"the vendor's list of jobs cannot be read: {error}") from error
        for job in candidates:
            if await _is_of_part(exchange, part, job):
                return job
        wait = min(part.created + delay - start, delay)  # the clock may have been set back
        if wait <= 0 or is_last:
            break
        await exchange.sleep(wait)
    return None


def _may_be(job: VendorJob, part: JobPart) -> bool:
    return job.created is None or job.created >= part.created - _SLACK


async def _jobs(exchange: VendorConnection) -> AsyncIterator[VendorJob]:
    """Yield all jobs of the account. Raises `UnreadableAnswer` where the list does not end."""
    batch, page = exchange.batch, None
    for number in range(_MOST_PAGES):
        found = read_page(batch, await exchange.repeat(list_plan(batch, exchange.probe, page)), number)
        if found is None:
            raise UnreadableAnswer("the answer is not a list")
        for job in found.jobs:
            yield job
        if found.next is None or found.next == page:
            return
        page = found.next
    raise UnreadableAnswer(f"it has more than {_MOST_PAGES} pages")


async def _is_of_part(exchange: VendorConnection, part: JobPart, job: VendorJob) -> bool:
    """Whether the results of a job are those of a part; waits until it has results."""
    tries = 0
    while job.state == "pending":
        tries += 1
        await exchange.sleep(min(60.0, 0.5 * 1.5**tries))
        job = await exchange.poll(job.id) or job
    if job.state == "failed":
        return False
    results = await fetch_results(exchange, part, job)
    try:
        return results.is_of_part()
    finally:
        results.close()
