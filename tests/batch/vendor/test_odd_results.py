"""Results of a job that no vendor should send: a typed error, a row of nobody or one to ask again; no traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import cnllm
from cnllm import Registry
from cnllm.batch.vendor.codec import read_job, read_page
from cnllm.batch.vendor.exchange import UnreadableAnswer
from cnllm.batch.vendor.parts import JobPart
from cnllm.batch.vendor.results import Results
from cnllm.registry.flags import Batch

PART = JobPart(1, "mark", "openai/gpt-4.1-mini", 1, 0.0, 5, "submitted")


def interface() -> Batch:
    batch = Registry.load().resolve(PART.model).flags.batch
    assert batch is not None
    return batch


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    with closing(Results(interface(), PART, tmp_path)) as found:
        yield found


@pytest.mark.parametrize("line", [b'{"custom_id": "mark-1', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_json_is_named(results: Results, line: bytes) -> None:
    with pytest.raises(UnreadableAnswer, match="a line of the vendor's results is not JSON"):
        results.add(line)


@pytest.mark.parametrize("id", ["mark-0", "mark-6", "mark-\u0662", "mark-", "mark", "other-1", "mark-" + "1" * 5000])
def test_a_result_of_no_row_is_counted_as_foreign(results: Results, id: str) -> None:
    results.add(json.dumps({"custom_id": id, "response": {"status_code": 200, "body": {}}}).encode())
    assert (results.foreign, results.lines) == (1, 1)
    assert not results.is_of_part()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1767323045, 1767323045.0),
        (1767323045250, 1767323045.25),
        ("2026-01-02T03:04:05Z", 1767323045.0),
        ("soon", None),
        (True, None),
        (None, None),
    ],
)
def test_a_vendor_may_tell_the_time_of_a_job_in_any_form(value: Any, seconds: float | None) -> None:
    job = read_job(interface(), {"id": "batch-1", "status": "validating", "created_at": value})
    assert job is not None
    assert job.created == seconds


def test_a_list_of_jobs_may_be_left_out_and_an_error_is_no_list() -> None:
    assert read_page(interface(), {}, 0) == ([], None)
    assert read_page(interface(), {"error": {"message": "later"}}, 0) is None


class OddVendor(BaseHTTPRequestHandler):
    """An interface of OpenAI's form. It answers one row of two; the other has the result that the test gives it."""

    odd: Any
    rows: list[str]
    calls: int
    state = "completed"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/files":
            type(self).rows = [json.loads(line)["custom_id"] for line in content.splitlines() if line.startswith("{")]
            self.send({"id": "file-in"})
        elif self.path == "/batches":
            self.send({"id": "batch-1", "status": "validating"})
        else:
            type(self).calls += 1
            self.send(REPLY)

    def do_GET(self) -> None:
        if "/content" not in self.path:
            self.send({"id": "batch-1", "status": self.state, "output_file_id": "good", "error_file_id": "odd"})
        else:
            is_odd = "odd" in self.path
            result = self.odd if is_odd else {"response": {"status_code": 200, "body": REPLY}, "error": None}
            self.send({"custom_id": self.rows[is_odd], **result})

    def send(self, data: Any) -> None:
        content = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


REPLY = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1000, "total_tokens": 2000},
}  # fmt: skip
GEMINI_REPLY = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 1000, "totalTokenCount": 2000},
}
HOME = """
[providers.home]
title = "x"
protocol = "openai-chat"
base_url = "URL"
keys = []
batch = { available = true, price_factor = 0.5 }
[models."home/m"]
price = { currency = "USD", input = 1, output = 1 }
limits = { context = 100_000, output = 90_000 }
"""
GEMINI_HOME = HOME.replace('"openai-chat"', '"gemini"')


class InlineVendor(OddVendor):
    """An interface of Gemini's form. It answers one row of two; the other has the result that the test gives it."""

    def do_POST(self) -> None:
        data = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "batchGenerateContent" in self.path:
            requests = data["batch"]["inputConfig"]["requests"]["requests"]
            type(self).rows = [row["metadata"]["key"] for row in requests]
            self.send({"name": "batches/1", "metadata": {"state": "BATCH_STATE_PENDING"}})
        else:
            type(self).calls += 1
            self.send(GEMINI_REPLY)

    def do_GET(self) -> None:
        results = [{"response": GEMINI_REPLY}, self.odd]
        rows = [{"metadata": {"key": key}, **result} for key, result in zip(self.rows, results, strict=True)]
        output = {"inlinedResponses": {"inlinedResponses": rows}}
        self.send({"name": "batches/1", "metadata": {"state": "BATCH_STATE_SUCCEEDED", "output": output}})


@contextmanager
def serving(vendor: type[OddVendor], odd: Any, folder: Path, provider: str) -> Iterator[tuple[Registry, Any]]:
    """Serve an interface; yield a registry that has it as home/m, and what it was asked."""
    handler: Any = type("Handler", (vendor,), {"odd": odd, "rows": [], "calls": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        file = folder / "providers.toml"
        file.write_text(provider.replace("URL", f"http://127.0.0.1:{server.server_port}"))
        yield Registry.load(str(file)), handler
        server.shutdown()


class FailedVendor(OddVendor):
    """The first job fails in the middle: it has the results of the rows until then. The next one is done."""

    def do_POST(self) -> None:
        if self.path == "/batches":
            type(self).state = "completed" if type(self).calls else "failed"
            type(self).calls += 1
        super().do_POST()

    def do_GET(self) -> None:
        if "odd" in self.path:
            self.send({})
        else:
            super().do_GET()


def test_a_job_that_failed_in_the_middle_brings_what_it_served(tmp_path: Path) -> None:
    """Mistral's FAILED has a file of results where `succeeded_requests` is not zero."""
    with serving(FailedVendor, {}, tmp_path, HOME) as (registry, vendor):
        out = tmp_path / "out"
        report = cnllm.batch.run(["one", "two"], "home/m", out=out, vendor_batch=True, registry=registry)
        assert (report.done, report.cost, len(vendor.rows)) == (1, Decimal("0.001"), 2), report.messages
        report = cnllm.batch.run(["one", "two"], "home/m", out=out, vendor_batch=True, registry=registry)
        assert (report.done, len(vendor.rows)) == (2, 1), "the row that was served is not paid twice"


@pytest.mark.parametrize("code", [8, 14, 13])
def test_a_row_that_google_refused_for_now_is_asked_by_itself(tmp_path: Path, code: int) -> None:
    """The error of a row is a google.rpc.Status: the number of a code, without its word."""
    odd = {"error": {"code": code, "message": "Resource has been exhausted (e.g. check quota)."}}
    with serving(InlineVendor, odd, tmp_path, GEMINI_HOME) as (registry, vendor):
        report = cnllm.batch.run(["one", "two"], "home/m", out=tmp_path / "out", vendor_batch=True, registry=registry)
        assert (report.done, report.failed, vendor.calls) == (2, 0, 1), report.messages


def test_results_in_a_job_may_be_longer_than_64_megabytes(tmp_path: Path) -> None:
    """A job of 20 MB may bring pictures, for example."""
    odd = {"response": GEMINI_REPLY | {"responseId": "x" * 68_000_000}}
    with serving(InlineVendor, odd, tmp_path, GEMINI_HOME) as (registry, vendor):
        report = cnllm.batch.run(["one", "two"], "home/m", out=tmp_path / "out", vendor_batch=True, registry=registry)
        assert (report.done, report.failed, vendor.calls) == (2, 0, 0), report.messages


@pytest.mark.parametrize("body", [{}, None])
def test_a_row_without_a_response_costs_nothing_and_is_asked_by_itself(tmp_path: Path, body: Any) -> None:
    """As in tidyverse/ellmer#830: its own call to the model failed, and the vendor has no status for that."""
    odd = {"response": {"status_code": 0, "request_id": "", "body": body}, "error": None}
    with serving(OddVendor, odd, tmp_path, HOME) as (registry, vendor):
        report = cnllm.batch.run(["one", "two"], "home/m", out=tmp_path / "out", vendor_batch=True, registry=registry)
    assert (report.done, report.failed, vendor.calls) == (2, 0, 1), report.messages
    assert "1 rows were left without a response by the vendor" in report.messages
    assert report.cost == Decimal("0.003"), "half the price of one reply, and the full price of the other"
