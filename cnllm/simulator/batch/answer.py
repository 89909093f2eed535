"""Answer the requests of a batch interface: run the rows of a job, and write their results in the vendor's form."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import contains, get, merge_patch, nest, set_value
from cnllm.registry.flags.batch import BatchJob, BatchList, BatchResult, BatchResults, BatchUpload
from cnllm.simulator.batch.store import (
    BatchRequest,
    BatchStep,
    BatchStore,
    Interface,
    JobRow,
    Phase,
    RowProblem,
    SimulatedJob,
    StoredFile,
)
from cnllm.simulator.batch.submission import RefusedStep, read_submission
from cnllm.simulator.check_request import check_key
from cnllm.simulator.faults import page_size
from cnllm.simulator.respond import (
    MARK,
    Endpoints,
    SimulatedResponse,
    error_body,
    json_response,
    read_object,
    reject,
)
from cnllm.simulator.violations import Violation
from cnllm.types.checks import unfit_id

__all__ = ["answer_step", "finish"]

_PAGE = 20  # jobs in a page of a list, where the request says nothing

_FAILURE = {"error": {"message": "This failure was asked for.", "type": "server_error", "code": "server_error"}}
_WORDS = {
    "expired": "This request could not be executed before the completion window expired.",
    "cancelled": "This request was cancelled.",
}


def answer_step(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    """Return the response to a step."""
    offer = step.interfaces[0]
    if (rejection := check_key(offer.model, request.headers)) is not None:
        return error_body(rejection)
    with store.lock:
        try:
            answers = {"upload": _upload, "submit": _submit, "list": _list}
            return answers.get(step.name, _answer_named)(store, step, request)
        except RefusedStep as error:
            return _refuse(offer, error)
        except (ValueError, RecursionError) as error:
            return _refuse(offer, RefusedStep(str(error)))


def _upload(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    offer = step.interfaces[0]
    content_type = next((value for key, value in request.headers.items() if key.lower() == "content-type"), "")
    fields, file = _read_form(content_type, request.content)
    for name, value in ((offer.flags.upload or BatchUpload()).set or {}).items():
        if fields.get(name) != value:
            raise RefusedStep(f"The field {name} must be {value}.", param=name)
    if file is None:
        raise RefusedStep("The form has no file.", param="file")
    size, limit = len(file[1]), offer.flags.max_bytes
    if limit is not None and size > limit:
        raise RefusedStep(f"The file has {size} bytes; the limit is {limit}.", status=413, param="file")
    return _json(describe_file(offer, store.add_file(offer.model.provider, *file)))


def _submit(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    body = read_object(request.content)
    # Two wires of a provider may share a path. The fixed keys of the body tell which one is meant.
    offers = [o for o in step.interfaces if o.flags.submit is not None and contains(body, o.flags.submit.set or {})]
    offer = (offers or list(step.interfaces))[0]
    job = read_submission(store, offer, body, step, request)
    response = _json(describe_job(job, store.clock(), request.base_url))  # fails for half of a character
    store.save(job)
    return response


def _list(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    offer = step.interfaces[0]
    flags = offer.flags.list_ or BatchList()
    query = {name: values[-1] for name, values in parse_qs(urlsplit(request.target).query).items()}
    start = query.pop(flags.parameter or "after", None)
    size = next((int(value) for name, value in query.items() if _is_size(name) and value.isdecimal()), _PAGE)
    jobs = [finish(store, job) for job in store.jobs(offer.model.provider)]
    described = [describe_job(job, store.clock(), request.base_url) for job in jobs]
    return _json(describe_page(offer, described, start, max(1, page_size(request.headers) or size)))


def _is_size(name: str) -> bool:
    """Whether a query parameter is the number of jobs in a page, as any of the vendors calls it."""
    return name.lower().replace("_", "") in ("limit", "pagesize")


def _answer_named(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    """Return the response to a request whose path names a job or a file."""
    offer, provider = step.interfaces[0], step.interfaces[0].model.provider
    if (id := step.names.get("file")) is not None:
        file = store.file(provider, id)
        if file is None:
            raise RefusedStep(f"There is no file {id}.", status=404, param="file_id")
        return _lines(file.content) if step.name == "results" else _json(describe_file(offer, file))
    id = step.names["id"]
    job = store.job(provider, id)
    if job is None:
        raise RefusedStep(f"There is no batch {id}.", status=404, param="id")
    if step.name == "cancel":
        return _cancel(store, job, request)
    if step.name == "poll":
        job = store.save(replace(job, polls=job.polls + 1))
    job = finish(store, job)
    if step.name == "poll":
        return _json(describe_job(job, store.clock(), request.base_url))
    if job.results is None:
        raise RefusedStep(f"The batch {id} has no results yet.", status=404, param="id")
    return _lines(b"".join(msgspec.json.encode(row) + b"\n" for row in job.results))


def _cancel(store: BatchStore, job: SimulatedJob, request: BatchRequest) -> SimulatedResponse:
    if job.phase(store.clock()) != "pending":
        raise RefusedStep(f"The batch {job.id} is over and cannot be cancelled.", param="id")
    job = store.save(replace(job, cancelled=True))
    return _json(describe_job(job, store.clock(), request.base_url))


def _refuse(offer: Interface, error: RefusedStep) -> SimulatedResponse:
    violation = Violation("param", error.message, param=error.param)
    return reject(violation, status=error.status, protocol=offer.model.protocol)


def _json(body: Any) -> SimulatedResponse:
    return json_response(msgspec.json.encode(body))


def _lines(content: bytes) -> SimulatedResponse:
    return SimulatedResponse(200, {"content-type": "application/jsonl", MARK: "1"}, [content])


# ── forms ────────────────────────────────────────────────────────────────────
def _read_form(content_type: str, body: bytes) -> tuple[dict[str, str], tuple[str, bytes] | None]:
    """Return the fields of a form, and the name and content of its file. Raise `ValueError` for a body that is none."""
    kind = _part_headers(b"content-type: " + content_type.encode("latin-1", "replace"))
    boundary = kind.get_boundary()
    if kind.get_content_type() != "multipart/form-data" or not boundary:
        raise ValueError("the body is not multipart/form-data")
    # The parser of `email` reads the heads of parts alone: it takes seconds for a file of a usual size.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if not parts or not parts[-1].startswith(b"--"):
        raise ValueError("the form has no end")
    fields: dict[str, str] = {}
    file: tuple[str, bytes] | None = None
    for part in parts[:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = _part_headers(head)
        name = headers.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise ValueError("a part of the form has no name")
        if name == "file":
            file = (headers.get_filename() or "", content)
        else:
            fields[name] = content.decode("utf-8", "replace")
    return fields, file


def _part_headers(text: bytes) -> EmailMessage:
    """Return the head of a part of a form."""
    return BytesParser(policy=HTTP).parsebytes(text + b"\r\n\r\n", headersonly=True)


# ── the results of a job ─────────────────────────────────────────────────────


class RowOutcome(Struct, frozen=True):
    """The outcome of a row: the status and body of its response, or why it was not served."""

    id: str
    status: int = 200
    body: Any = None
    unserved: str | None = None


def finish(store: BatchStore, job: SimulatedJob) -> SimulatedJob:
    """Return a job with its results, if it is over and has none yet."""
    phase = job.phase(store.clock())
    if job.results is not None or phase in ("pending", "failed"):
        return job
    if phase == "cancelled":
        outcomes = [RowOutcome(row.id, unserved="cancelled") for row in job.rows]
    else:
        served = len(job.rows) - min(job.faults.expired, len(job.rows))
        outcomes = [_answer_row(store, job, row) for row in job.rows[:served]]
        outcomes += [RowOutcome(row.id, unserved="expired") for row in job.rows[served:]]
    for index in range(min(job.faults.failed_rows, len(outcomes))):
        outcomes[index] = RowOutcome(outcomes[index].id, 500, _FAILURE)
    counts = Counter(outcome.unserved or ("served" if outcome.status == 200 else "refused") for outcome in outcomes)
    if job.faults.shuffled:
        outcomes = outcomes[1::2][::-1] + outcomes[::2]
    outcomes = outcomes[job.faults.missing_rows :] + outcomes[: job.faults.duplicate_rows]
    return store.save(_with_results(store, replace(job, counts=counts), outcomes))


def _answer_row(store: BatchStore, job: SimulatedJob, row: JobRow) -> RowOutcome:
    """Return the outcome of a row: the endpoint's own response to its body."""
    response = _respond(store, job, row)
    text = b"".join(response.pieces)
    try:
        return RowOutcome(row.id, response.status, msgspec.json.decode(text))
    except msgspec.DecodeError:  # an endpoint that refuses in plain text
        return RowOutcome(row.id, response.status, text.decode())


def _respond(store: BatchStore, job: SimulatedJob, row: JobRow) -> SimulatedResponse:
    """Return the endpoint's response to the body of a row."""
    own = job.offer.model
    if (problem := unfit_id(row.model)) is not None:
        return _refuse(job.offer, RefusedStep(f"The model {row.model!a} is none: {problem}."))
    model = store.registry.resolve(f"{own.provider}/{row.model}", protocol=own.protocol)
    path = (model.flags.path or "").partition("?")[0].replace("{model}", row.model)
    body = {key: value for key, value in row.body.items() if key != "stream"}  # nothing streams in a batch
    if "{model}" not in (model.flags.path or "") and "model" not in body:
        body["model"] = row.model
    try:
        content = msgspec.json.encode(body)
    except (UnicodeError, RecursionError) as error:
        return _refuse(job.offer, RefusedStep(f"The body cannot be read: {error}"))
    return Endpoints(store.registry, store.strict).respond(model, job.headers, content, path)


def _with_results(store: BatchStore, job: SimulatedJob, outcomes: list[RowOutcome]) -> SimulatedJob:
    """Return a job with the results as its vendor has them: in its files, or in the job itself."""
    rows = [(_write(store, job.offer, outcome), outcome) for outcome in outcomes]
    paths = (job.offer.flags.results or BatchResults()).files or ()
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
    # Where results do not say which rows were not served, a job that was not done has none.
    tells_reasons = bool((job.offer.flags.result or BatchResult()).unserved)
    has_none = job.phase(store.clock()) in ("expired", "cancelled") and not tells_reasons
    return replace(job, results=() if has_none else tuple(row for row, _ in rows), files=files)


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
    word = next((word for word, meaning in (flags.unserved or {}).items() if meaning == reason), reason)
    if flags.kind is not None and flags.error and flags.kind.startswith(f"{flags.error[0]}."):
        row[(flags.body or ["response"])[0].partition(".")[0]] = None
        set_value(row, f"{flags.error[0]}.message", _WORDS[reason])
    set_value(row, flags.kind or "error.code", word)


def _inner_error(body: Any) -> Any:
    """Return the error inside of a body that holds nothing else, without its details, which jobs have as texts."""
    if not isinstance(body, dict) or body.keys() != {"error"} or not isinstance(body["error"], dict):
        return body
    return {key: value for key, value in body["error"].items() if not isinstance(value, list | dict)}


# ── jobs, files and lists as the vendor describes them ───────────────────────


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
    return nest(parent, described) if parent else described


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
    paths = (job.offer.flags.job or BatchJob()).finished or ()
    words = {path: next((w for w in ("expir", "cancel", "fail", "err") if w in path), "served") for path in paths}
    for path, word in words.items():
        keys = {"expir": ["expired"], "cancel": ["cancelled"], "served": ["served"]}.get(word, ["refused"])
        if word == "fail" and not {"expir", "cancel"} & set(words.values()):
            keys += ["expired", "cancelled"]
        set_value(out, path, sum(job.counts.get(key, 0) for key in keys))
    if form.total is not None:
        set_value(out, form.total, len(job.rows))
    if form.remaining is not None:
        set_value(out, form.remaining, len(job.rows) if phase == "pending" else 0)


def _set_errors(out: dict[str, Any], path: str, problems: tuple[RowProblem, ...]) -> None:
    """Set what was wrong with a job: one object where the path is called error, else a list."""
    if path.rpartition(".")[2] == "error":
        set_value(out, path, {"code": 3, "message": " ".join(p.message for p in problems)})
        return
    if path.endswith(".data"):
        set_value(out, f"{path.removesuffix('.data')}.object", "list")
    set_value(out, path, msgspec.to_builtins(problems))


def describe_page(offer: Interface, jobs: list[dict[str, Any]], start: str | None, size: int) -> dict[str, Any]:
    """Return the page of a list that begins at `start`: a token, the id of the job before it, or a number."""
    flags = offer.flags.list_ or BatchList()
    id_path = (offer.flags.job or BatchJob()).id or "id"
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
