"""The vendors' own SDKs run batches on the simulator, over real sockets, with their own methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from google.genai.errors import ClientError

from cnllm.registry.registry import Registry
from cnllm.simulator.server import Server, running

from .support import OPENAI, VENDORS, Vendor, lines

CLAUDE = "claude-haiku-4-5"
GEMINI = "gemini-3.8-flash"


# ── OpenAI's, at every endpoint that has its interface ───────────────────────
def chat(server: Server, vendor: Vendor = OPENAI, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/{vendor.provider}", api_key="k", max_retries=0, **options)


SAME = [vendor for vendor in VENDORS if vendor.jobs == "/batches"]


@pytest.mark.share(2)
@pytest.mark.parametrize("vendor", SAME, ids=lambda vendor: vendor.provider)
def test_the_batches_of_openai_s_sdk(server: Server, vendor: Vendor) -> None:
    client = chat(server, vendor)
    rows = [vendor.row("a", "one"), vendor.row("b", "two")]
    file = client.files.create(file=("rows.jsonl", lines(rows)), purpose="batch")
    file_id = vendor.file_id(file.to_dict())
    endpoint: Any = vendor.calls
    batch = client.batches.create(
        input_file_id=file_id, endpoint=endpoint, completion_window="24h", metadata={"cnllm": "n"}
    )
    assert batch.object == "batch"
    for _ in range(2):
        batch = client.batches.retrieve(batch.id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed, batch.request_counts.total) == (vendor.done, 2, 2)
    assert batch.output_file_id is not None
    results = [json.loads(line) for line in client.files.content(batch.output_file_id).iter_lines()]
    texts = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in results}
    assert '"one"' in texts["a"]
    assert '"two"' in texts["b"]


def test_openai_lists_all_pages(registry: Registry) -> None:
    with running(registry) as server:
        client = chat(server)
        file = client.files.create(file=("rows.jsonl", lines([OPENAI.row("a")])), purpose="batch")
        made = [
            client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h").id
            for _ in range(5)
        ]
        assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1]


def test_openai_cancels_and_reads_what_was_wrong(server: Server) -> None:
    client = chat(server)
    content = lines([OPENAI.row("a")]) + b"oops\n"
    file = client.files.create(file=("rows.jsonl", content), purpose="batch")
    assert client.files.retrieve(file.id).bytes == len(content)
    assert client.files.content(file.id).content == content
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    for _ in range(2):
        batch = client.batches.retrieve(batch.id)
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert (batch.status, batch.errors.data[0].line) == ("failed", 2)
    good = client.files.create(file=("rows.jsonl", lines([OPENAI.row("a")])), purpose="batch")
    batch = client.batches.create(input_file_id=good.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert client.batches.cancel(batch.id).status == "cancelling"
    assert client.batches.retrieve(batch.id).status == "cancelled"


def test_openai_raises_what_an_endpoint_answers(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="no batch batch_none"):
        chat(server).batches.retrieve("batch_none")
    client = chat(server, default_headers={"x-cnllm-fault": "status=429;step=poll"})
    with pytest.raises(openai.RateLimitError):
        client.batches.retrieve("batch_none")


# ── Anthropic's ──────────────────────────────────────────────────────────────
def messages(server: Server, fault: str | None = None) -> anthropic.Anthropic:
    headers = {"x-cnllm-fault": fault} if fault else None
    return anthropic.Anthropic(base_url=f"{server.url}/anthropic", api_key="k", max_retries=0, default_headers=headers)


def claude_rows(*ids: str, **params: Any) -> list[Any]:
    message = {"role": "user", "content": "hi"}
    return [
        {"custom_id": id, "params": {"model": CLAUDE, "max_tokens": 99, "messages": [message], **params}} for id in ids
    ]


def test_the_batches_of_anthropic_s_sdk(server: Server) -> None:
    client = messages(server)
    batch = client.messages.batches.create(requests=[*claude_rows("a", "b"), *claude_rows("c", temperature=9)])
    assert (batch.type, batch.processing_status, batch.results_url) == ("message_batch", "in_progress", None)
    assert batch.request_counts.processing == 3
    with pytest.raises(anthropic.AnthropicError, match="results_url"):
        client.messages.batches.results(batch.id)
    batch = client.messages.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert batch.processing_status == "ended"
    assert (counts.succeeded, counts.errored, counts.processing) == (2, 1, 0)
    results = {row.custom_id: row.result for row in client.messages.batches.results(batch.id)}
    assert results["a"].type == "succeeded"
    assert "Simulated" in str(results["a"].message.content)
    assert results["c"].type == "errored"
    assert results["c"].error.error.type == "invalid_request_error"


def test_anthropic_tells_what_expired_and_what_was_cancelled(server: Server) -> None:
    client = messages(server, "polls=0;expired=1")
    batch = client.messages.batches.create(requests=claude_rows("a", "b"))
    assert client.messages.batches.retrieve(batch.id).request_counts.expired == 1
    results = client.messages.batches.results(batch.id)
    assert [(row.custom_id, row.result.type) for row in results] == [("a", "succeeded"), ("b", "expired")]
    slow = messages(server, "polls=9")
    batch = slow.messages.batches.create(requests=claude_rows("a"))
    assert slow.messages.batches.cancel(batch.id).processing_status == "canceling"
    assert slow.messages.batches.retrieve(batch.id).processing_status == "ended"
    assert [row.result.type for row in slow.messages.batches.results(batch.id)] == ["canceled"]


def test_anthropic_lists_all_pages(registry: Registry) -> None:
    with running(registry) as server:
        client = messages(server)
        made = [client.messages.batches.create(requests=claude_rows("a")).id for _ in range(5)]
        assert [batch.id for batch in client.messages.batches.list(limit=2)] == made[::-1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (claude_rows("a", "a"), r"requests\[1\]: .*twice"),
        (claude_rows("a", model=""), r"requests\[0\]: .*no model"),
        ([], "no request"),
        ([{"custom_id": "a"}], r"requests\[0\]: .*no params"),
    ],
)
def test_anthropic_refuses_bad_rows_at_once(server: Server, rows: Any, words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        messages(server).messages.batches.create(requests=rows)


# ── Google's ─────────────────────────────────────────────────────────────────
@pytest.fixture
def gemini(server: Server) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=f"{server.url}/google", api_version="")
    with genai.Client(api_key="k", http_options=options) as client:
        yield client


def gemini_row(key: str, text: str = "hi", **config: Any) -> Any:
    contents = [{"role": "user", "parts": [{"text": text}]}]
    return {"contents": contents, "metadata": {"key": key}, **({"config": config} if config else {})}


def test_the_batches_of_google_s_sdk(gemini: genai.Client) -> None:
    rows = [gemini_row("a", "one"), gemini_row("b", max_output_tokens=10**9)]
    job = gemini.batches.create(model=GEMINI, src=rows, config={"display_name": "nonce"})
    assert job.name is not None
    assert (job.state, job.display_name) == (types.JobState.JOB_STATE_PENDING, "nonce")
    states = []
    for _ in range(2):
        job = gemini.batches.get(name=job.name or "")
        states.append(job.state)
    assert states == [types.JobState.JOB_STATE_RUNNING, types.JobState.JOB_STATE_SUCCEEDED]
    assert job.dest is not None
    first, second = job.dest.inlined_responses or []
    assert (first.metadata, second.metadata) == ({"key": "a"}, {"key": "b"})
    assert first.response is not None
    assert '"one"' in (first.response.text or "")
    assert second.error is not None
    assert second.error.code == 400


def test_gemini_lists_all_pages_and_cancels(registry: Registry) -> None:
    with running(registry) as server:
        options = types.HttpOptions(base_url=f"{server.url}/google", api_version="")
        with genai.Client(api_key="k", http_options=options) as client:
            made = [client.batches.create(model=GEMINI, src=[gemini_row("a")]).name or "" for _ in range(5)]
            assert [job.name for job in client.batches.list(config={"page_size": 2})] == made[::-1]
            client.batches.cancel(name=made[0])
            assert client.batches.get(name=made[0]).state == types.JobState.JOB_STATE_CANCELLED
            with pytest.raises(ClientError):
                client.batches.get(name="batches/none")


def test_a_gemini_job_that_expired_has_no_results(server: Server) -> None:
    headers = {"x-cnllm-fault": "polls=0;expired=1"}
    options = types.HttpOptions(base_url=f"{server.url}/google", api_version="", headers=headers)
    with genai.Client(api_key="k", http_options=options) as client:
        job = client.batches.create(model=GEMINI, src=[gemini_row("a"), gemini_row("b")])
        job = client.batches.get(name=job.name or "")
        assert job.state == types.JobState.JOB_STATE_EXPIRED
        assert job.dest is None
