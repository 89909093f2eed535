"""Read what a test asks of a job: words of the fault header, on the request that starts the job.

    x-cnllm-fault: polls=3            the job is pending for the first 3 polls (1 if it says nothing)
    x-cnllm-fault: seconds=0.5        the job is pending for half a second, however often it is polled
    x-cnllm-fault: unlisted=2         the job is missing in the next 2 lists
    x-cnllm-fault: invalid=3          the job fails in validation, at its third row
    x-cnllm-fault: expired=2          the last 2 rows expire
    x-cnllm-fault: failed-rows=1      the first row is answered with status 500
    x-cnllm-fault: missing-rows=1     the first result is missing
    x-cnllm-fault: duplicate-rows=1   the first result occurs twice
    x-cnllm-fault: shuffled           the results come in another order

Separate several words with `;`. On the request for a list, `page-size=1` sets the number of jobs in a page. With
`step=poll` in the header, every fault (see `cnllm.simulator.faults`) meets that step of a batch only.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cnllm.simulator.faults import HEADER, fault_words

__all__ = ["JobFaults", "page_size", "read_job_faults"]


class JobFaults(Struct, frozen=True):
    """The fate of a job; the module explains the words."""

    polls: int = 1
    seconds: float | None = None
    unlisted: int = 0
    invalid: int = 0
    expired: int = 0
    failed_rows: int = 0
    missing_rows: int = 0
    duplicate_rows: int = 0
    shuffled: bool = False


def read_job_faults(headers: Mapping[str, str]) -> JobFaults:
    """Return what the fault header asks of a job. Raise `ValueError` for a value that is no number."""
    words = _words(headers)
    return JobFaults(
        polls=int(words.get("polls", 1)),
        seconds=float(words["seconds"]) if "seconds" in words else None,
        unlisted=int(words.get("unlisted", 0)),
        invalid=int(words.get("invalid", 0)),
        expired=int(words.get("expired", 0)),
        failed_rows=int(words.get("failed-rows", 0)),
        missing_rows=int(words.get("missing-rows", 0)),
        duplicate_rows=int(words.get("duplicate-rows", 0)),
        shuffled="shuffled" in words,
    )


def page_size(headers: Mapping[str, str]) -> int | None:
    """Return the number of jobs in a page that the fault header asks for, or None."""
    words = _words(headers)
    return int(words["page-size"]) if "page-size" in words else None


def _words(headers: Mapping[str, str]) -> dict[str, str]:
    return fault_words(next((value for name, value in headers.items() if name.lower() == HEADER), ""))
