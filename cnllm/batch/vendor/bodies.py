"""Build the requests to a batch interface: upload, submit, poll, list, fetch. Pure; each is a plan without its key."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from cnllm.engine.encode.plan import Plan
from cnllm.jsonpath import merge_patch, set_value
from cnllm.registry.flags.batch import Batch, BatchRow

__all__ = ["encode_row", "fetch_plan", "list_plan", "poll_plan", "submit_plan", "upload_plan"]

_BOUNDARY = "cnllm-{mark}"


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
    boundary = _BOUNDARY.format(mark=mark)
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
    if file is not None and submit.file:
        set_value(body, submit.file, file)
    if file is not None and submit.files:
        set_value(body, submit.files, [file])
    if file is None and submit.rows:
        set_value(body, submit.rows, [Raw(row) for row in rows])
    if submit.model:
        set_value(body, submit.model, probe.model.id)
    if submit.mark:
        set_value(body, submit.mark, mark)
    path = (submit.path or "").replace("{model}", quote(probe.model.id, safe="/:"))
    return _plan(probe, "POST", path, msgspec.json.encode(body))


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
        own = urlsplit(plan.url)[:2] == urlsplit(file)[:2]
        headers = plan.headers if own else {"accept": "*/*"}
        return replace(plan, url=file, headers=headers)
    results = batch.results
    assert results is not None
    path = (results.path or "").replace("{file}", quote(file)).replace("{id}", quote(id))
    return _plan(probe, "GET", path)


def _plan(probe: Plan, method: str, path: str, content: bytes = b"", content_type: str = "application/json") -> Plan:
    """Return a request to a path of the interface."""
    base = probe.flags.base_url or ""
    headers = dict(probe.headers)
    if method == "GET":
        headers.pop("content-type", None)
    else:
        headers["content-type"] = content_type
    return replace(
        probe, method=method, url=base.rstrip("/") + path, headers=headers, content=content, body={}, stream=False
    )
