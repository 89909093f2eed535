"""Read the request that starts a job of a batch, and the job's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cnllm.jsonpath import contains, get
from cnllm.registry.flags.batch import BatchRow, BatchSubmit
from cnllm.registry.registry import Registry
from cnllm.simulator.batch.store import (
    BatchRequest,
    BatchStep,
    BatchStore,
    Interface,
    JobRow,
    RowProblem,
    SimulatedJob,
    StoredFile,
)
from cnllm.simulator.faults import read_job_faults
from cnllm.types.checks import unfit_id
from cnllm.types.lenient_json import replace_surrogates

__all__ = ["RefusedStep", "read_submission"]


class RefusedStep(Exception):
    """A request that the interface refuses at once."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param


def read_submission(
    store: BatchStore, offer: Interface, body: dict[str, Any], step: BatchStep, request: BatchRequest
) -> SimulatedJob:
    """Return the job that a request starts. Raise `RefusedStep`.

    What is wrong with rows in a file fails the job later, in its validation. Rows in the body are refused at once.
    """
    flags = offer.flags.submit or BatchSubmit()
    for key, value in (flags.set or {}).items():
        if isinstance(value, str) and value.startswith("/") and key not in body:  # the path of the calls
            raise RefusedStep(f"{key} is missing; it may be {value}.", param=key)
    job_model = step.names.get("model") or (_text(body, flags.model) if flags.model is not None else None)
    rows, problems = _read_rows(offer, _lines(store, offer, flags, body), job_model)
    problems += _limits(offer, len(request.content)) + _unsupported_models(store.registry, offer, rows)
    if problems and flags.rows is not None:
        where = "" if problems[0].line is None else f"{flags.rows}[{problems[0].line - 1}]: "
        raise RefusedStep(where + problems[0].message, param=problems[0].param)
    faults = read_job_faults(request.headers)
    if faults.invalid:
        problems.insert(0, RowProblem("invalid_request", "This failure was asked for.", faults.invalid))
    rest = dict(body)
    if flags.rows is not None:
        rest.pop(flags.rows.partition(".")[0], None)
    mark = get(body, flags.mark) if flags.mark is not None else None
    return SimulatedJob(
        id=store.new_id(offer.form.prefix),
        offer=offer,
        created=store.clock(),
        body=rest,
        headers=dict(request.headers),
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
        return _read_lines(_file(store, offer, ids[0], flags.files).content)
    path = flags.file or "input_file_id"
    return _read_lines(_file(store, offer, get(body, path), path).content)


def _file(store: BatchStore, offer: Interface, id: Any, path: str) -> StoredFile:
    file = store.file(offer.model.provider, id) if isinstance(id, str) else None
    if file is None:
        raise RefusedStep(f"There is no file {id}.", param=path)
    return file


def _text(body: dict[str, Any], path: str) -> str | None:
    value = get(body, path)
    return value if isinstance(value, str) and value else None


def _unsupported_models(registry: Registry, offer: Interface, rows: Iterable[JobRow]) -> list[RowProblem]:
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


# ── rows ─────────────────────────────────────────────────────────────────────


def _read_lines(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) for each line of a file; the value is a `RowProblem` where a line is no JSON."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                yield number, RowProblem("invalid_json_line", f"This line is not valid JSON: {error}", number)


def _read_rows(
    offer: Interface, lines: Iterable[tuple[int, Any]], job_model: str | None
) -> tuple[list[JobRow], list[RowProblem]]:
    """Return the rows of a job and what is wrong with others. `job_model` is named by the job and not by its rows."""
    form = offer.flags.row or BatchRow()
    rows: list[JobRow] = []
    problems: list[RowProblem] = []
    seen: set[str] = set()
    for number, value in lines:
        row = value if isinstance(value, RowProblem) else _read_row(form, number, value, job_model)
        if isinstance(row, JobRow) and row.id in seen:
            row = RowProblem("duplicate_id", f"The {form.id} {row.id} occurs twice.", number, form.id)
        if isinstance(row, RowProblem):
            problems.append(row)
        else:
            seen.add(row.id)
            rows.append(row)
    if not rows and not problems:
        problems.append(RowProblem("empty_file", "There is no request."))
    limit = offer.flags.max_rows
    if limit is not None and len(rows) > limit:
        problems.append(RowProblem("too_many_requests", f"There are {len(rows)} requests; the limit is {limit}."))
    return rows, problems


def _read_row(form: BatchRow, number: int, value: Any, job_model: str | None) -> JobRow | RowProblem:
    """Return a row, or why it is none."""
    body = get(value, form.body or "body") if isinstance(value, dict) else None
    id = get(value, form.id or "custom_id") if isinstance(value, dict) else None
    # Old releases of msgspec decode half of a character, which no response could hold.
    if not isinstance(id, str) or not id or replace_surrogates(id) != id:
        return RowProblem("missing_id", f"The row has no {form.id}.", number, form.id)
    if not isinstance(body, dict):
        return RowProblem("missing_body", f"The row has no {form.body}.", number, form.body)
    if form.set and not contains(value, form.set):
        wrong = next(key for key, expected in form.set.items() if value.get(key) != expected)
        return RowProblem("invalid_row", f"The row's {wrong} must be {form.set[wrong]}.", number, wrong)
    model = body.get("model") if job_model is None else job_model
    if not isinstance(model, str) or not model:
        return RowProblem("missing_model", "The row names no model.", number, "model")
    return JobRow(id, model, body)
