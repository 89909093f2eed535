"""Define the faults that a test injects: one request header names the fault.

    x-cnllm-fault: stall-headers           accepts the request and never answers
    x-cnllm-fault: stall-body              sends the headers and nothing more
    x-cnllm-fault: stall-middle            sends half of the body and nothing more
    x-cnllm-fault: comments                sends half of the body, then endless comments
    x-cnllm-fault: linger                  sends all of the body and never ends it
    x-cnllm-fault: reset-headers           resets the connection before it answers
    x-cnllm-fault: reset                   resets the connection after half of the body
    x-cnllm-fault: drop                    closes it after half of the body, without the end of the last chunk
    x-cnllm-fault: cut                     ends the body properly after half of it
    x-cnllm-fault: error                   sends an error event after half of the body, and ends the body properly
    x-cnllm-fault: slow                    waits 0.2 seconds before each piece (slow=0.5: 0.5 seconds)
    x-cnllm-fault: redirect                answers 307 to /moved (redirect=URL: to URL)
    x-cnllm-fault: status=503              answers with that status and a plain error object
    x-cnllm-fault: retry-after=2           sends that header too (alone: with status 429)

Separate several faults with `;`. With `times=2` only the first two requests with exactly this header meet the fault.
Any further word (`id=a`) makes the header of one test different from another's. With `step=poll` a fault meets that
step of a batch only (upload, submit, poll, list, results, cancel). A request that meets a status has no effect; with
`after-effect` it has.

On the request that starts a job of a batch, these words say what happens to the job:

    x-cnllm-fault: polls=3            the job is pending for the first 3 polls (1 if it says nothing)
    x-cnllm-fault: seconds=0.5        the job is pending for half a second, however often it is polled
    x-cnllm-fault: unlisted=2         the job is missing in the next 2 lists
    x-cnllm-fault: invalid=3          the job fails in validation, at its third row
    x-cnllm-fault: expired=2          the last 2 rows expire
    x-cnllm-fault: failed-rows=1      the first row is answered with status 500
    x-cnllm-fault: missing-rows=1     the first result is missing
    x-cnllm-fault: duplicate-rows=1   the first result occurs twice
    x-cnllm-fault: shuffled           the results come in another order

On the request for a list, `page-size=1` sets the number of jobs in a page.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

__all__ = ["HEADER", "NO_FAULT", "InjectedFault", "JobFaults", "page_size", "read_fault", "read_job_faults"]

HEADER = "x-cnllm-fault"

_KINDS = frozenset(
    [
        *("stall-headers", "stall-body", "stall-middle", "comments", "linger", "reset-headers", "reset", "drop"),
        *("cut", "error", "slow", "redirect", "status", "retry-after"),
    ]
)


class JobFaults(Struct, frozen=True, rename="kebab"):
    """The fate of a job of a batch; the module explains the words."""

    polls: int = 1
    seconds: float | None = None
    unlisted: int = 0
    invalid: int = 0
    expired: int = 0
    failed_rows: int = 0
    missing_rows: int = 0
    duplicate_rows: int = 0
    shuffled: bool = False


_JOB_WORDS = JobFaults.__struct_encode_fields__
"""Words that say what happens to a job. They change nothing about the request itself."""
_PAGE_SIZE = "page-size"


class InjectedFault(Struct, frozen=True):
    """A fault: `kinds` with the text after `=`, how many requests it applies to, and at which step (None: all).

    `takes_effect`: a status replaces the response to a request that took effect.
    """

    kinds: dict[str, str]
    times: int | None = None
    step: str | None = None
    takes_effect: bool = False

    @property
    def status(self) -> int | None:
        """Return the status that replaces the endpoint's own response."""
        if "status" in self.kinds:
            return int(self.kinds["status"])
        return 429 if "retry-after" in self.kinds else None

    @property
    def delay(self) -> float:
        """Return the seconds to wait before each piece."""
        return float(self.kinds["slow"] or 0.2) if "slow" in self.kinds else 0.0

    @property
    def is_midway(self) -> bool:
        """Whether the fault occurs in the middle of the body."""
        return not self.kinds.keys().isdisjoint({"stall-middle", "comments", "reset", "drop", "cut", "error"})


NO_FAULT = InjectedFault({})


def _fault_words(header: str) -> dict[str, str]:
    """Return the words of a header, each with the text after its `=`."""
    return dict(w.strip().partition("=")[::2] for w in header.split(";") if w.strip())


def read_fault(header: str) -> InjectedFault:
    """Parse the fault that a header names. Raise `ValueError` for an unknown fault."""
    words = _fault_words(header)
    kinds = {k: v for k, v in words.items() if k in _KINDS}
    if not kinds and words.keys().isdisjoint({*_JOB_WORDS, _PAGE_SIZE}):
        raise ValueError(f"{HEADER}: {header} is no fault; there are {', '.join(sorted(_KINDS))}")
    for word, convert in (("status", int), ("retry-after", float)):
        if word in kinds:
            convert(kinds[word])
    if kinds.get("slow"):
        float(kinds["slow"])
    if "status" in kinds and not 200 <= int(kinds["status"]) <= 599:
        raise ValueError(f"{HEADER}: {kinds['status']} is not a status to answer with")
    times = int(words["times"]) if "times" in words else None
    return InjectedFault(kinds=kinds, times=times, step=words.get("step"), takes_effect="after-effect" in words)


def read_job_faults(headers: Mapping[str, str]) -> JobFaults:
    """Return what the fault header asks of a job. Raise `ValueError` for a value that is no number."""
    words = {name: value or True for name, value in _words(headers).items()}  # a word alone is a switch
    return msgspec.convert(words, JobFaults, strict=False)


def page_size(headers: Mapping[str, str]) -> int | None:
    """Return the number of jobs in a page that the fault header asks for, or None."""
    words = _words(headers)
    return int(words[_PAGE_SIZE]) if _PAGE_SIZE in words else None


def _words(headers: Mapping[str, str]) -> dict[str, str]:
    return _fault_words(next((value for name, value in headers.items() if name.lower() == HEADER), ""))
