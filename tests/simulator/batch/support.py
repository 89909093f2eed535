"""A client of batch interfaces that knows the paths of each vendor by heart, and none of the flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from msgspec import Struct

Json = dict[str, Any]
KEY = {"authorization": "Bearer k", "x-api-key": "k", "x-goog-api-key": "k"}


def ask(text: str = "hi", **more: Any) -> Json:
    """The messages of a request."""
    return {"messages": [{"role": "user", "content": text}], **more}


def lines(rows: Sequence[Json]) -> bytes:
    """Rows as a file."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def by_line(text: str) -> list[Json]:
    """A file as rows."""
    return [json.loads(line) for line in text.splitlines()]


class Vendor(Struct, frozen=True):
    """A vendor with files and jobs: what it does in its own way."""

    provider: str
    model: str
    calls: str = "/v1/chat/completions"
    jobs: str = "/batches"
    file_id: Callable[[Json], str] = lambda answer: answer["id"]
    pending: tuple[str, str] = ("validating", "in_progress")
    done: str = "completed"
    names_model: bool = False
    outputs: tuple[str, str] = ("output_file_id", "error_file_id")

    def row(self, id: str, text: str = "hi", **body: Any) -> Json:
        """A row of a file."""
        request = ask(text, **{"model": self.model, **body})
        if self.names_model:
            del request["model"]
            return {"custom_id": id, "body": request}
        return {"custom_id": id, "method": "POST", "url": self.calls, "body": request}

    def job(self, file: str, mark: str = "n1") -> Json:
        """The body that starts a job."""
        if self.names_model:
            body: Json = {"input_files": [file], "model": self.model, "timeout_hours": 24}
        else:
            body = {"input_file_id": file, "completion_window": "24h"}
        return {**body, "endpoint": self.calls, "metadata": {"cnllm": mark}}


OPENAI = Vendor("openai", "gpt-5.4-mini")
VENDORS = (
    OPENAI,
    Vendor("zhipuai", "glm-4-plus", calls="/v4/chat/completions"),
    Vendor("moonshotai-cn", "kimi-k2.6"),
    Vendor("alibaba-cn", "qwen-plus"),
    Vendor(
        "siliconflow-cn",
        "Qwen/Qwen3-32B",
        file_id=lambda answer: answer["data"]["id"],
        pending=("in_queue", "in_progress"),
    ),
    Vendor("groq", "openai/gpt-oss-120b"),
    Vendor("deepinfra", "deepseek-ai/DeepSeek-V4.1-Flash"),
    Vendor("baidu", "ernie-5.1", calls="/v2/chat/completions", pending=("Queuing", "Running"), done="Done"),
    Vendor(
        "mistral",
        "mistral-large-4",
        jobs="/batch/jobs",
        pending=("QUEUED", "RUNNING"),
        done="SUCCESS",
        names_model=True,
        outputs=("output_file", "error_file"),
    ),
)


class Caller:
    """Calls one vendor's interface on a server, with a fault if a test wants one."""

    def __init__(self, http: httpx.Client, url: str, vendor: Vendor = OPENAI) -> None:
        self.http, self.vendor = http, vendor
        self.base = f"{url}/{vendor.provider}"

    def upload(self, content: bytes, fault: str | None = None, **fields: str) -> httpx.Response:
        """Send a file."""
        files = {"file": ("rows.jsonl", content, "application/jsonl")}
        data = {"purpose": "batch", **fields}
        return self.http.post(f"{self.base}/files", data=data, files=files, headers=headers(fault))

    def submit(self, rows: Sequence[Json] | bytes, fault: str | None = None, **more: Any) -> httpx.Response:
        """Upload rows and start a job."""
        content = rows if isinstance(rows, bytes) else lines(rows)
        file = self.vendor.file_id(self.upload(content).json())
        return self.http.post(
            f"{self.base}{self.vendor.jobs}", json={**self.vendor.job(file), **more}, headers=headers(fault)
        )

    def start(self, rows: Sequence[Json] | bytes, fault: str | None = None, **more: Any) -> Json:
        """Start a job that is accepted."""
        answer = self.submit(rows, fault, **more)
        assert answer.status_code == 200, answer.text
        job: Json = answer.json()
        return job

    def get(self, path: str, fault: str | None = None) -> httpx.Response:
        """Get what is at a path."""
        return self.http.get(f"{self.base}{path}", headers=headers(fault))

    def poll(self, job: Json) -> Json:
        """The job as it is now."""
        found: Json = self.get(f"{self.vendor.jobs}/{job['id']}").json()
        return found

    def finish(self, rows: Sequence[Json], fault: str | None = None) -> tuple[Json, list[Json], list[Json]]:
        """Run a job of two polls: the job when it is over, its results and its errors."""
        job = self.start(rows, fault)
        self.poll(job)
        over = self.poll(job)
        output, error = (self.results(over, path) for path in self.vendor.outputs)
        return over, output, error

    def results(self, job: Json, path: str) -> list[Json]:
        """The rows of a result file; none if the job has no such file."""
        file = job.get(path)
        return by_line(self.get(f"/files/{file}/content").text) if file else []


def headers(fault: str | None) -> dict[str, str]:
    """The headers of a request."""
    return KEY | ({"x-cnllm-fault": fault} if fault else {})
