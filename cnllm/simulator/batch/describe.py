"""Describe jobs, files and lists as the vendor does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cnllm.jsonpath import get, merge_patch, set_value
from cnllm.registry.flags.batch import BatchJob, BatchList, BatchResults, BatchUpload
from cnllm.simulator.batch.rows import RowProblem
from cnllm.simulator.batch.steps import Interface
from cnllm.simulator.batch.store import Phase, SimulatedJob, StoredFile

__all__ = ["describe_file", "describe_job", "describe_page"]


def describe_file(offer: Interface, file: StoredFile) -> dict[str, Any]:
    """Return the description of an uploaded file; some vendors put it inside of another object."""
    flags = offer.flags.upload or BatchUpload()
    parent, _, last = (flags.id or "id").rpartition(".")
    described: dict[str, Any] = {
        "object": "file",
        "bytes": len(file.content),
        "created_at": int(file.created),
        "filename": file.name,
        **(flags.set or {}),
        last: file.id,
    }
    out: dict[str, Any] = {}
    if parent:
        set_value(out, parent, described)
    return out or described


def describe_job(job: SimulatedJob, now: float, base_url: str) -> dict[str, Any]:
    """Return the description of a job. `base_url` is the provider's, as the client knows it, for links."""
    flags = job.offer.flags.job or BatchJob()
    form = job.offer.form
    phase = job.phase(now)
    out: dict[str, Any] = {}
    merge_patch(out, {**form.job, **job.body})
    set_value(out, flags.id or "id", job.id)
    set_value(out, flags.state or "status", _state(flags, job, phase))
    set_value(out, flags.created or "created_at", _time(job.offer, job.created))
    if job.mark is not None and flags.mark is not None:
        set_value(out, flags.mark, job.mark)
    _set_counts(out, job, phase)
    results = job.offer.flags.results or BatchResults()
    for path in results.files or ():
        set_value(out, path, job.files.get(path))
    if results.rows is not None and job.results:
        set_value(out, results.rows, list(job.results))
    if form.results_url is not None:
        link = base_url + (results.path or "").replace("{id}", job.id)
        set_value(out, form.results_url, link if job.results is not None else None)
    if flags.errors is not None and phase == "failed":
        _set_errors(out, flags.errors, job.problems)
    return out


def _state(flags: BatchJob, job: SimulatedJob, phase: Phase) -> str:
    """Return the vendor's word for a phase. Where it has none for how a job ended, it is over like any other."""
    states = flags.states or {}
    words = [word for word, meaning in states.items() if meaning == phase]
    if phase == "pending":
        is_stopping = job.cancelled
        words = [word for word in words if ("cancel" in word.lower()) == is_stopping] or words
        return words[min(job.polls, len(words) - 1)] if words else phase
    return next(iter(words), None) or next((word for word, meaning in states.items() if meaning == "done"), phase)


def _time(offer: Interface, seconds: float) -> int | str:
    if not offer.form.iso_times:
        return int(seconds)
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _set_counts(out: dict[str, Any], job: SimulatedJob, phase: Phase) -> None:
    """Set the counts of rows at the paths that the flags and the wire name."""
    form = job.offer.form
    counts = dict(job.counts)
    paths = (job.offer.flags.job.finished if job.offer.flags.job is not None else None) or []
    named = {path: next((w for w in ("expir", "cancel", "fail", "err") if w in path), "served") for path in paths}
    for path, word in named.items():
        keys = {"expir": ["expired"], "cancel": ["cancelled"], "served": ["served"]}.get(word, ["refused"])
        if word == "fail" and not {"expir", "cancel"} & set(named.values()):
            keys += ["expired", "cancelled"]
        set_value(out, path, sum(counts.get(key, 0) for key in keys))
    if form.total is not None:
        set_value(out, form.total, len(job.rows))
    if form.remaining is not None:
        set_value(out, form.remaining, len(job.rows) if phase == "pending" else 0)


def _set_errors(out: dict[str, Any], path: str, problems: tuple[RowProblem, ...]) -> None:
    """Set what was wrong with a job: one object where the path is called error, else a list."""
    listed = [{"code": p.code, "message": p.message, "line": p.line, "param": p.param} for p in problems]
    if path.rpartition(".")[2] == "error":
        set_value(out, path, {"code": 3, "message": " ".join(p.message for p in problems)})
        return
    if path.endswith(".data"):
        set_value(out, f"{path.removesuffix('.data')}.object", "list")
    set_value(out, path, listed)


def describe_page(offer: Interface, jobs: list[dict[str, Any]], start: str | None, size: int) -> dict[str, Any]:
    """Return the page of a list that begins at `start`: a token, the id of the job before it, or a number."""
    flags = offer.flags.list_ or BatchList()
    id_path = (offer.flags.job.id if offer.flags.job is not None else None) or "id"
    first = 0
    if start and flags.pages == "last-id":
        first = next((n + 1 for n, job in enumerate(jobs) if get(job, id_path) == start), len(jobs))
    elif start and start.isdecimal():
        first = int(start) * (size if flags.pages == "number" else 1)
    page = jobs[first : first + size]
    has_more = first + size < len(jobs)
    out: dict[str, Any] = dict(offer.form.page)
    set_value(out, flags.items or "data", page)
    if flags.more is not None:
        set_value(out, flags.more, has_more)
    if flags.token is not None and has_more:
        set_value(out, flags.token, str(first + size))
    if flags.pages == "last-id":
        ids = [get(job, id_path) for job in page] or [None]
        out |= {"first_id": ids[0], "last_id": ids[-1]}
    elif flags.pages == "number":
        out["total"] = len(jobs)
    return out
