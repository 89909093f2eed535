"""Answer the requests of a batch interface."""

from __future__ import annotations

from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cnllm.jsonpath import contains
from cnllm.simulator.batch.describe import describe_file, describe_job, describe_page
from cnllm.simulator.batch.results import finish
from cnllm.simulator.batch.steps import BatchStep, Interface
from cnllm.simulator.batch.store import BatchStore, SimulatedJob
from cnllm.simulator.batch.submission import RefusedStep, read_submission
from cnllm.simulator.check_request import check_key
from cnllm.simulator.faults import page_size
from cnllm.simulator.respond import MARK, SimulatedResponse, error_body, json_response, reject
from cnllm.simulator.violations import Violation

if TYPE_CHECKING:
    from email.message import EmailMessage

__all__ = ["BatchRequest", "answer_step"]

_PAGE = 20  # jobs in a page of a list, where the request says nothing


class BatchRequest(Struct, frozen=True):
    """A request of a batch interface. `base_url` is the provider's, as the client knows it."""

    target: str
    headers: Mapping[str, str]
    content: bytes
    base_url: str


def answer_step(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    """Return the response to a step."""
    offer = step.interfaces[0]
    if (rejection := check_key(offer.model, request.headers)) is not None:
        return error_body(rejection)
    with store.lock:
        try:
            if step.name == "upload":
                return _upload(store, offer, request)
            if step.name == "submit":
                return _submit(store, step, request)
            if step.name == "list":
                return _list(store, offer, request)
            return _answer_named(store, step, request)
        except RefusedStep as error:
            return _refuse(offer, error)
        except (ValueError, RecursionError) as error:
            return _refuse(offer, RefusedStep(str(error)))


def _upload(store: BatchStore, offer: Interface, request: BatchRequest) -> SimulatedResponse:
    form = _read_form(_header(request.headers, "content-type"), request.content)
    expected = (offer.flags.upload.set if offer.flags.upload is not None else None) or {}
    for name, value in expected.items():
        if form.fields.get(name) != value:
            raise RefusedStep(f"The field {name} must be {value}.", param=name)
    if form.filename is None:
        raise RefusedStep("The form has no file.", param="file")
    limit = offer.flags.max_bytes
    if limit is not None and len(form.content) > limit:
        raise RefusedStep(f"The file has {len(form.content)} bytes; the limit is {limit}.", status=413, param="file")
    file = store.add_file(offer.model.provider, form.filename, form.content)
    return _json(describe_file(offer, file))


def _submit(store: BatchStore, step: BatchStep, request: BatchRequest) -> SimulatedResponse:
    try:
        body = msgspec.json.decode(request.content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RefusedStep(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedStep("The body is not a JSON object.")
    # Two wires of a provider may share a path. The fixed keys of the body tell which one is meant.
    offers = [o for o in step.interfaces if o.flags.submit is not None and contains(body, o.flags.submit.set or {})]
    offer = (offers or list(step.interfaces))[0]
    size = len(request.content)
    job = read_submission(store, offer, body, step.names.get("model"), request.headers, size)
    response = _json(describe_job(job, store.clock(), request.base_url))  # fails for half of a character
    store.save(job)
    return response


def _list(store: BatchStore, offer: Interface, request: BatchRequest) -> SimulatedResponse:
    flags = offer.flags.list_
    query = {name: values[-1] for name, values in parse_qs(urlsplit(request.target).query).items()}
    start = query.pop((flags.parameter if flags is not None else None) or "after", None)
    wanted = next((int(value) for name, value in query.items() if _is_size(name) and value.isdecimal()), _PAGE)
    jobs = [finish(store, job) for job in store.jobs(offer.model.provider)]
    described = [describe_job(job, store.clock(), request.base_url) for job in jobs]
    return _json(describe_page(offer, described, start, max(1, page_size(request.headers) or wanted)))


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


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


def _refuse(offer: Interface, error: RefusedStep) -> SimulatedResponse:
    violation = Violation("param", error.message, param=error.param)
    return reject(violation, status=error.status, protocol=offer.model.protocol)


def _json(body: Any) -> SimulatedResponse:
    return json_response(msgspec.json.encode(body))


def _lines(content: bytes) -> SimulatedResponse:
    return SimulatedResponse(200, {"content-type": "application/jsonl", MARK: "1"}, [content])


# ── forms ────────────────────────────────────────────────────────────────────
class UploadForm(Struct, frozen=True):
    """The fields of a form, and its one file. `filename` is None if there is no file."""

    fields: dict[str, str]
    content: bytes = b""
    filename: str | None = None


def _read_form(content_type: str, body: bytes) -> UploadForm:
    """Return the fields and the file of a form. Raise `ValueError` for a body that is none."""
    kind = _part_headers(b"content-type: " + content_type.encode("latin-1", "replace"))
    boundary = kind.get_boundary()
    if kind.get_content_type() != "multipart/form-data" or not boundary:
        raise ValueError("the body is not multipart/form-data")
    # The parser of `email` reads the heads of parts alone: it takes seconds for a file of a usual size.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if not parts or not parts[-1].startswith(b"--"):
        raise ValueError("the form has no end")
    fields: dict[str, str] = {}
    file: tuple[bytes, str] | None = None
    for part in parts[:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = _part_headers(head)
        name = headers.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise ValueError("a part of the form has no name")
        if name == "file":
            file = (content, headers.get_filename() or "")
        else:
            fields[name] = content.decode("utf-8", "replace")
    return UploadForm(fields) if file is None else UploadForm(fields, *file)


def _part_headers(text: bytes) -> EmailMessage:
    from email.message import EmailMessage  # slow to import, and few need it

    message = BytesParser(policy=HTTP).parsebytes(text + b"\r\n\r\n", headersonly=True)
    assert isinstance(message, EmailMessage)
    return message
