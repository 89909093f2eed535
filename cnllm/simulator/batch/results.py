"""Run the rows of a job, and write their results in the vendor's form."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from cnllm.jsonpath import set_value
from cnllm.registry.flags.batch import BatchResult
from cnllm.simulator.batch.rows import RowOutcome, answer_row
from cnllm.simulator.batch.steps import Interface
from cnllm.simulator.batch.store import BatchStore, SimulatedJob

__all__ = ["finish"]

_FAILURE = {"error": {"message": "This failure was asked for.", "type": "server_error", "code": "server_error"}}
_WORDS = {
    "expired": "This request could not be executed before the completion window expired.",
    "cancelled": "This request was cancelled.",
}


def finish(store: BatchStore, job: SimulatedJob) -> SimulatedJob:
    """Return a job with its results, if it is over and has none yet."""
    phase = job.phase(store.clock())
    if job.results is not None or phase in ("pending", "failed"):
        return job
    if phase == "cancelled":
        outcomes = [RowOutcome(row.id, unserved="cancelled") for row in job.rows]
    else:
        served = len(job.rows) - min(job.faults.expired, len(job.rows))
        outcomes = [
            answer_row(store.registry, job.offer, row, job.headers, strict=store.strict) for row in job.rows[:served]
        ]
        outcomes += [RowOutcome(row.id, unserved="expired") for row in job.rows[served:]]
    for index in range(min(job.faults.failed_rows, len(outcomes))):
        outcomes[index] = RowOutcome(outcomes[index].id, 500, _FAILURE)
    counts = _counts(outcomes)
    if job.faults.shuffled:
        outcomes = outcomes[1::2][::-1] + outcomes[::2]
    outcomes = outcomes[job.faults.missing_rows :] + outcomes[: job.faults.duplicate_rows]
    return store.save(_with_results(store, replace(job, counts=counts), outcomes))


def _counts(outcomes: list[RowOutcome]) -> dict[str, int]:
    """Return how many rows were served, refused, expired and cancelled."""
    counts = {"served": 0, "refused": 0, "expired": 0, "cancelled": 0}
    for outcome in outcomes:
        counts[outcome.unserved or ("served" if outcome.status == 200 else "refused")] += 1
    return counts


def _with_results(store: BatchStore, job: SimulatedJob, outcomes: list[RowOutcome]) -> SimulatedJob:
    """Return a job with the results as its vendor has them: in its files, or in the job itself."""
    rows = [(_write(store, job.offer, outcome), outcome) for outcome in outcomes]
    paths = (job.offer.flags.results.files if job.offer.flags.results is not None else None) or []
    files: dict[str, str] = {}
    for index, path in enumerate(paths):
        is_error_file = index > 0
        lines = [
            msgspec.json.encode(row) + b"\n"
            for row, outcome in rows
            if len(paths) == 1 or is_error_file == (outcome.status != 200 or outcome.unserved is not None)
        ]
        if lines:
            name = f"{job.id}_{'error' if is_error_file else 'output'}.jsonl"
            files[path] = store.add_file(job.provider, name, b"".join(lines)).id
    has_none = job.phase(store.clock()) in ("expired", "cancelled") and not _tells_unserved(job.offer)
    return replace(job, results=() if has_none else tuple(row for row, _ in rows), files=files)


def _tells_unserved(offer: Interface) -> bool:
    """Whether results say which rows were not served. Where they do not, a job that was not done has none."""
    return bool(offer.flags.result is not None and offer.flags.result.unserved)


def _write(store: BatchStore, offer: Interface, outcome: RowOutcome) -> dict[str, Any]:
    """Return the result of a row."""
    flags = offer.flags.result or BatchResult()
    row: dict[str, Any] = {}
    if offer.flags.input == "file":
        row["id"] = store.new_id("batch_req_")
    set_value(row, flags.id or "custom_id", outcome.id)
    if outcome.unserved is not None:
        _write_unserved(row, flags, outcome.unserved)
    elif flags.status is not None or outcome.status == 200:
        set_value(row, (flags.body or ["response"])[0], outcome.body)
        if flags.status is not None:
            set_value(row, flags.status, outcome.status)
            row["error"] = None
    else:
        set_value(row, (flags.error or ["error"])[0], _inner_error(outcome.body))
    word = offer.form.served if outcome.status == 200 else offer.form.refused
    if word is not None and flags.kind is not None and outcome.unserved is None:
        set_value(row, flags.kind, word)
    return row


def _write_unserved(row: dict[str, Any], flags: BatchResult, reason: str) -> None:
    """Add to a result that the row was not served."""
    stem = reason[:6]  # some write canceled
    word = next((word for word in flags.unserved or () if stem in word), reason)
    if flags.kind is not None and flags.error and flags.kind.startswith(f"{flags.error[0]}."):
        row[(flags.body or ["response"])[0].partition(".")[0]] = None
        set_value(row, f"{flags.error[0]}.message", _WORDS[reason])
    set_value(row, flags.kind or "error.code", word)


def _inner_error(body: Any) -> Any:
    """Return the error inside of a body that holds nothing else, without its details, which jobs have as texts."""
    if not isinstance(body, dict) or body.keys() != {"error"} or not isinstance(body["error"], dict):
        return body
    return {key: value for key, value in body["error"].items() if not isinstance(value, list | dict)}
