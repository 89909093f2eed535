"""Read the request that starts a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cnllm.jsonpath import get
from cnllm.registry.flags.batch import BatchSubmit
from cnllm.simulator.batch.rows import JobRow, RowProblem, read_lines, read_rows
from cnllm.simulator.batch.steps import Interface
from cnllm.simulator.batch.store import BatchStore, SimulatedJob, StoredFile
from cnllm.simulator.faults import read_job_faults
from cnllm.simulator.respond import ModelLookup
from cnllm.types.checks import unfit_id

__all__ = ["RefusedStep", "read_submission"]


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
