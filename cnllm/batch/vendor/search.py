"""Find the job of a part that may have been submitted: after a crash, or where no answer came."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from cnllm.batch.vendor.answers import VendorJob, read_job, read_page
from cnllm.batch.vendor.bodies import list_plan, poll_plan
from cnllm.batch.vendor.exchange import UnreadableAnswer, VendorConnection
from cnllm.batch.vendor.parts import Part
from cnllm.batch.vendor.results import fetch_results
from cnllm.engine.encode.plan import Plan
from cnllm.errors import EndpointError
from cnllm.registry.flags.batch import Batch

__all__ = ["SearchResult", "find_job"]

_DELAY = 60.0  # seconds until a new job stands in the list, where the registry does not know better
_MOST_PAGES = 1000
_SLACK = 600.0  # seconds by which the vendor's clock may differ


class SearchResult(Struct, frozen=True):
    """The job of a part; None: there is none, or with `unknown` nobody can tell."""

    job: VendorJob | None
    unknown: str = ""


async def find_job(
    exchange: VendorConnection,
    batch: Batch,
    probe: Plan,
    part: Part,
    known: frozenset[str],
    out: Path,
    sleep: Callable[[float], Awaitable[object]],
) -> SearchResult:
    """Find the job of a part in the account's list. `known` are jobs of other parts.

    A job that carries a mark is known by it. One without is known by the ids of its rows, which stand in its results:
    every job since the part was stored is waited for. A job that is not found is looked for once more when the list is
    sure to have it.
    """
    listing = batch.list_
    if listing is None:
        return SearchResult(None, "the vendor has no list of jobs")
    has_mark = batch.submit is not None and bool(batch.submit.mark) and batch.job is not None and bool(batch.job.mark)
    delay = _DELAY if listing.delay is None else listing.delay
    for is_last in (False, True):
        start = time.time()
        candidates: list[VendorJob] = []
        try:
            async for job in _jobs(exchange, batch, probe):
                if has_mark and job.mark == part.mark:
                    return SearchResult(job)
                if not has_mark and job.id not in known and _may_be(job, part):
                    candidates.append(job)
        except (UnreadableAnswer, EndpointError) as error:
            return SearchResult(None, f"the vendor's list of jobs cannot be read: {error}")
        for job in candidates:
            if await _is_of_part(exchange, batch, probe, part, job, out, sleep):
                return SearchResult(job)
        wait = min(part.created + delay - start, delay)  # the clock may have been set back
        if wait <= 0 or is_last:
            break
        await sleep(wait)
    return SearchResult(None)


def _may_be(job: VendorJob, part: Part) -> bool:
    return job.created is None or job.created >= part.created - _SLACK


async def _jobs(exchange: VendorConnection, batch: Batch, probe: Plan) -> AsyncIterator[VendorJob]:
    """Yield all jobs of the account. Raises `UnreadableAnswer` where the list does not end."""
    page: str | None = None
    for number in range(_MOST_PAGES):
        found = read_page(batch, await exchange.repeat(list_plan(batch, probe, page)), number)
        if found is None:
            raise UnreadableAnswer("the answer is no list")
        for job in found.jobs:
            yield job
        if found.next is None or found.next == page:
            return
        page = found.next
    raise UnreadableAnswer(f"it has more than {_MOST_PAGES} pages")


async def _is_of_part(
    exchange: VendorConnection,
    batch: Batch,
    probe: Plan,
    part: Part,
    job: VendorJob,
    out: Path,
    sleep: Callable[[float], Awaitable[object]],
) -> bool:
    """Whether the results of a job are those of a part; waits until it has results."""
    tries = 0
    while job.state == "pending":
        tries += 1
        await sleep(min(60.0, 0.5 * 1.5**tries))
        again = read_job(batch, await exchange.repeat(poll_plan(batch, probe, job.id)))
        job = job if again is None else again
    if job.state == "failed":
        return False
    results = await fetch_results(exchange, batch, probe, part, job, out)
    try:
        return results.is_of_part()
    finally:
        results.close()
