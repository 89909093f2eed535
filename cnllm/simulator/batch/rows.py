"""Read the rows of a job, and answer each as a single request is answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cnllm.jsonpath import contains, get
from cnllm.registry.flags.batch import BatchRow
from cnllm.simulator.batch.steps import Interface
from cnllm.simulator.respond import Endpoints, ModelLookup, SimulatedResponse, reject
from cnllm.simulator.violations import Violation
from cnllm.types.checks import unfit_id

__all__ = ["JobRow", "RowOutcome", "RowProblem", "answer_row", "read_lines", "read_rows"]


class JobRow(Struct, frozen=True):
    """A row: its id, the model that answers it, and the body of its request."""

    id: str
    model: str
    body: dict[str, Any]


class RowProblem(Struct, frozen=True):
    """The reason why a job cannot be run. `line` counts from 1; None where no single row is at fault."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class RowOutcome(Struct, frozen=True):
    """The outcome of a row: the status and body of its response, or why it was not served."""

    id: str
    status: int = 200
    body: Any = None
    unserved: str | None = None


def read_lines(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) for each line of a file; the value is a `RowProblem` where a line is no JSON."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                yield number, RowProblem("invalid_json_line", f"This line is not valid JSON: {error}", number)


def read_rows(
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
    if not isinstance(id, str) or not id or not _is_text(id):
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


def _is_text(text: str) -> bool:
    """Whether a text has no half of a character, which old releases of msgspec decode and no response could hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def answer_row(
    registry: ModelLookup, offer: Interface, row: JobRow, headers: Mapping[str, str], *, strict: bool = False
) -> RowOutcome:
    """Return the outcome of a row: the endpoint's own response to its body."""
    if (problem := unfit_id(row.model)) is not None:
        return _refused(offer, row, f"The model {row.model!a} is none: {problem}.")
    model = registry.resolve(f"{offer.model.provider}/{row.model}", protocol=offer.model.protocol)
    path = (model.flags.path or "").partition("?")[0].replace("{model}", row.model)
    body = {key: value for key, value in row.body.items() if key != "stream"}  # nothing streams in a batch
    if "{model}" not in (model.flags.path or "") and "model" not in body:
        body["model"] = row.model
    try:
        content = msgspec.json.encode(body)
    except (UnicodeError, RecursionError) as error:
        return _refused(offer, row, f"The body cannot be read: {error}")
    return _outcome(row, Endpoints(registry, strict).respond(model, headers, content, path))


def _refused(offer: Interface, row: JobRow, message: str) -> RowOutcome:
    """Return the outcome of a row that the endpoint cannot read."""
    return _outcome(row, reject(Violation("param", message), protocol=offer.model.protocol))


def _outcome(row: JobRow, response: SimulatedResponse) -> RowOutcome:
    text = b"".join(response.pieces)
    try:
        return RowOutcome(row.id, response.status, msgspec.json.decode(text))
    except msgspec.DecodeError:  # an endpoint that refuses in plain text
        return RowOutcome(row.id, response.status, text.decode())
