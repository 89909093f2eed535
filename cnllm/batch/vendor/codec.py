"""Write the requests to a batch interface, each a plan without its key, and read the answers. Pure.

The requests upload, submit, poll, list and fetch; the answers are jobs, pages of jobs, and results of rows.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from cnllm.config.http_address import address_fault
from cnllm.engine.encode.plan import Plan
from cnllm.engine.encode.url_headers import join_url
from cnllm.jsonpath import get, get_first, merge_patch, set_value
from cnllm.registry.flags.batch import Batch, BatchResult, BatchRow

__all__ = [
    "RowResult",
    "VendorJob",
    "decode_long",
    "encode_row",
    "fetch_plan",
    "list_plan",
    "poll_plan",
    "read_file_id",
    "read_job",
    "read_page",
    "read_result",
    "submit_plan",
    "upload_plan",
]


def encode_row(row: BatchRow, id: str, body: bytes) -> bytes:
    """Return a row as JSON, without an end of line. `body` is the request's body as JSON."""
    data: dict[str, Any] = {}
    set_value(data, row.id or "", id)
    merge_patch(data, row.set or {})
    set_value(data, row.body or "", Raw(body))
    return msgspec.json.encode(data)


def upload_plan(batch: Batch, probe: Plan, mark: str, rows: list[bytes]) -> Plan:
    """Return the upload of a file of rows, as a multipart form. `probe` is any request to the endpoint."""
    upload = batch.upload
    assert upload is not None
    boundary = f"cnllm-{mark}"
    head = []
    for name, value in (upload.set or {}).items():
        head.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n')
    head.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{mark}.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    content = b"".join(["".join(head).encode(), *(row + b"\n" for row in rows), f"\r\n--{boundary}--\r\n".encode()])
    return _plan(probe, "POST", upload.path or "", content, f"multipart/form-data; boundary={boundary}")


def submit_plan(batch: Batch, probe: Plan, mark: str, *, file: str | None, rows: list[bytes]) -> Plan:
    """Return the request that starts a job, of a file that is uploaded or of the rows themselves."""
    submit = batch.submit
    assert submit is not None
    body: dict[str, Any] = {}
    merge_patch(body, submit.set or {})
    source: list[tuple[str | None, Any]] = [(submit.file, file), (submit.files, [file])]
    if file is None:
        source = [(submit.rows, [Raw(row) for row in rows])]
    for place, value in (*source, (submit.model, probe.model.id), (submit.mark, mark)):
        if place:
            set_value(body, place, value)
    return _plan(probe, "POST", submit.path or "", msgspec.json.encode(body))


def poll_plan(batch: Batch, probe: Plan, id: str) -> Plan:
    """Return the request for the state of a job."""
    assert batch.job is not None
    return _plan(probe, "GET", (batch.job.path or "").replace("{id}", quote(id)))


def list_plan(batch: Batch, probe: Plan, page: str | None) -> Plan:
    """Return the request for a page of the account's jobs; the first where `page` is None."""
    listing = batch.list_
    assert listing is not None
    path = listing.path or ""
    if page is not None:
        path += ("&" if "?" in path else "?") + urlencode({listing.parameter or "after": page})
    return _plan(probe, "GET", path)


def fetch_plan(batch: Batch, probe: Plan, id: str, file: str) -> Plan:
    """Return the request for a file of results. A file that is named by a URL elsewhere is fetched without the key."""
    if file.startswith(("https://", "http://")):
        plan = _plan(probe, "GET", "")
        own = address_fault(file) is None and urlsplit(plan.url)[:2] == urlsplit(file)[:2]
        headers = plan.headers if own else {"accept": "*/*"}
        return replace(plan, url=file, headers=headers)
    results = batch.results
    assert results is not None
    path = (results.path or "").replace("{file}", quote(file)).replace("{id}", quote(id))
    return _plan(probe, "GET", path)


def _plan(probe: Plan, method: str, path: str, content: bytes = b"", content_type: str = "application/json") -> Plan:
    """Return a request to a path of the interface."""
    url, _ = join_url(probe.flags.base_url or "", path, probe.model.id)  # the probe has a password in its headers
    headers = dict(probe.headers)
    if method == "GET":
        headers.pop("content-type", None)
    else:
        headers["content-type"] = content_type
    return replace(probe, method=method, url=url, headers=headers, content=content, stream=False)


# ── answers ──────────────────────────────────────────────────────────────────

_LONG = 1 << 20  # bytes of JSON that are decoded at once


def decode_long(content: Any, redact: Callable[[bytes], bytes] = bytes) -> Any:
    """Return JSON as values, each without the secrets; the items of a long list as they stand in the content, `Raw`."""
    if len(memoryview(content)) > _LONG:
        with contextlib.suppress(msgspec.ValidationError):
            value = msgspec.json.decode(content, type=dict[str, Raw] | list[Raw])
            return {key: decode_long(item, redact) for key, item in value.items()} if type(value) is dict else value
    return msgspec.json.decode(redact(bytes(content)))


Standing = Literal["pending", "done", "failed", "cancelled", "expired"]


class JobError(Struct, frozen=True):
    """An error of a job as a whole. `line` is the line of its file, from 1."""

    message: str
    code: str | None = None
    line: int | None = None


class VendorJob(Struct, frozen=True):
    """A job as the vendor describes it. `word` is the vendor's for its state; `files` are those of its results."""

    id: str
    state: Standing
    word: str
    mark: str | None = None
    created: float | None = None
    finished: int | None = None
    errors: tuple[JobError, ...] = ()
    files: tuple[str, ...] = ()
    rows: tuple[Any, ...] = ()
    """The results that the job holds itself, with the secrets that the endpoint echoed."""


class RowResult(Struct, frozen=True):
    """The result of a row: a response with its status, or an error.

    `free`: it was not paid. `unserved` says why it was not served either.
    """

    id: str
    status: int
    body: bytes
    free: bool = False
    unserved: Literal["expired", "cancelled", "unanswered"] | None = None


def read_file_id(batch: Batch, data: Any) -> str | None:
    """Return the id of an uploaded file; None where the answer has none."""
    value = get(data, (batch.upload.id if batch.upload is not None else None) or "id")
    return value if type(value) is str and value else None


def read_job(batch: Batch, data: Any) -> VendorJob | None:
    """Return the job in an answer or a list; None where it has no id."""
    job = batch.job
    assert job is not None
    if type(data) is Raw:
        data = decode_long(data)
    id = get(data, job.id or "id")
    if type(id) not in (str, int):
        return None
    word = get(data, job.state or "")
    counts = [value for path in job.finished or () if type(value := get(data, path)) is int]
    results = batch.results
    files = [value for path in (results.files if results else None) or () if (value := get(data, path))]
    rows = get(data, results.rows) if results is not None and results.rows else None
    mark = get(data, job.mark) if job.mark else None
    return VendorJob(
        id=str(id),
        state=(job.states or {}).get(str(word), "pending"),
        word=str(word),
        mark=mark if type(mark) is str else None,
        created=_time(get(data, job.created) if job.created else None),
        finished=sum(counts) if counts else None,
        errors=tuple(_job_errors(get(data, job.errors) if job.errors else None)),
        files=tuple(value for value in files if type(value) is str),
        rows=tuple(rows) if type(rows) is list else (),
    )


def read_page(batch: Batch, data: Any, number: int) -> tuple[list[VendorJob], str | None] | None:
    """Return the jobs of a page, and what names the following one. None where the answer is no list.

    `number` is that of the page, from 0. Without a following page its name is None.
    """
    listing = batch.list_
    assert listing is not None
    items = get(data, listing.items or "data")
    if items is None and type(data) is dict and not data.get("error"):
        items = []  # Google's answers leave an empty list out
    if type(items) is not list:
        return None
    jobs = [job for item in items if (job := read_job(batch, item)) is not None]
    following: str | None = None
    if items and (not listing.more or get(data, listing.more) is True):
        if listing.pages == "token":
            token = get(data, listing.token or "")
            following = token if type(token) is str and token else None
        elif listing.pages == "last-id":
            following = jobs[-1].id if jobs else None
        elif listing.pages == "number":
            following = str(number + 1)
    return jobs, following


def read_result(result: BatchResult, data: Any) -> RowResult | None:
    """Return the result of a row; None where it names no row."""
    id = get(data, result.id or "")
    if type(id) is not str:
        return None
    kind = get(data, result.kind) if result.kind else None
    if kind is not None and (reason := (result.unserved or {}).get(str(kind))) is not None:
        return RowResult(id, 0, b"", free=True, unserved=reason)
    status = get(data, result.status) if result.status else None
    body, error = get_first(data, result.body), get_first(data, result.error)
    if type(status) is int and not (100 <= status <= 599 or body or error):  # the vendor's own call has no response
        return RowResult(id, 0, b"", free=True, unserved="unanswered")
    if body is not None and type(body) is not str:
        return RowResult(id, status if type(status) is int and 100 <= status <= 599 else 200, msgspec.json.encode(body))
    if error is None:
        error = {"message": body or f"the vendor's result has neither a response nor an error: {_excerpt(data)}"}
    known = status if type(status) is int and 400 <= status <= 599 else 200  # the engine finds one in the error
    wrapped = error if type(error) is dict and "error" in error else {"error": error}
    return RowResult(id, known, msgspec.json.encode(wrapped), free=True)


def _job_errors(found: Any) -> list[JobError]:
    out = []
    for entry in found if type(found) is list else [] if found is None else [found]:
        fields = entry if type(entry) is dict else {}
        code, line = fields.get("code"), fields.get("line")
        words = str(fields.get("message") or code or _excerpt(entry)) if fields else str(entry)
        place = line if type(line) is int and line > 0 else None
        out.append(JobError(words, None if code is None else str(code), place))
    return out


def _time(value: Any) -> float | None:
    """Return a time in seconds since 1970."""
    if type(value) in (int, float):
        return value / 1000 if value > 1e11 else float(value)
    if type(value) is str:
        try:
            return datetime.datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    return None


def _excerpt(data: Any) -> str:
    return msgspec.json.encode(data).decode()[:200]
