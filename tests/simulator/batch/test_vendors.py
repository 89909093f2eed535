"""Each vendor's interface with files and jobs, over real sockets, by paths and words of the vendor's own pages."""

from __future__ import annotations

import httpx
import pytest

from cnllm.simulator.server import Server

from .support import OPENAI, VENDORS, Caller, Vendor


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.provider)
def test_a_job_from_upload_to_results(server: Server, http: httpx.Client, vendor: Vendor) -> None:
    caller = Caller(http, server.url, vendor)
    rows = [vendor.row("a", "one"), vendor.row("b", "two"), vendor.row("c", messages=[])]
    job = caller.start(rows)
    assert (job["status"], job["metadata"]) == (vendor.pending[0], {"cnllm": "n1"})
    assert [job[path] for path in vendor.outputs] == [None, None]
    assert caller.poll(job)["status"] == vendor.pending[1]
    over = caller.poll(job)
    assert over["status"] == vendor.done
    output, error = (caller.results(over, path) for path in vendor.outputs)
    assert [row["custom_id"] for row in output] == ["a", "b"]
    assert 'You said: "two"' in str(output[1]["response"]["body"]["choices"][0]["message"]["content"])
    assert all((row["response"]["status_code"], row["error"]) == (200, None) for row in output)
    assert [row["custom_id"] for row in error] == ["c"]
    assert error[0]["response"]["status_code"] >= 400


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.provider)
def test_a_job_is_found_in_the_list_by_its_mark(server: Server, http: httpx.Client, vendor: Vendor) -> None:
    caller = Caller(http, server.url, vendor)
    jobs = [caller.start([vendor.row("a")], metadata={"cnllm": mark}) for mark in ("first", "second")]
    listed = caller.get(vendor.jobs).json()["data"]
    assert [(job["id"], job["metadata"]["cnllm"]) for job in listed[:2]] == [
        (jobs[1]["id"], "second"),
        (jobs[0]["id"], "first"),
    ]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.provider)
def test_a_job_is_cancelled(server: Server, http: httpx.Client, vendor: Vendor) -> None:
    caller = Caller(http, server.url, vendor)
    job = caller.start([vendor.row("a")], "polls=9")
    path = f"{vendor.jobs}/{job['id']}/cancel"
    assert http.post(caller.base + path, headers={"authorization": "Bearer k"}).status_code == 200
    over = caller.poll(job)
    assert over["status"].lower() in ("cancelled", "stopped")
    assert http.post(caller.base + path, headers={"authorization": "Bearer k"}).status_code == 400


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.provider)
def test_without_a_key_nothing_is_served(server: Server, http: httpx.Client, vendor: Vendor) -> None:
    base = f"{server.url}/{vendor.provider}"
    files = {"file": ("rows.jsonl", b"{}")}
    for answer in (
        http.post(f"{base}/files", data={"purpose": "batch"}, files=files),
        http.get(f"{base}{vendor.jobs}"),
        http.get(f"{base}/files/file-1/content"),
    ):
        assert answer.status_code in (400, 401, 403), answer.text


@pytest.mark.parametrize("provider", ["zai", "alibaba-coding-plan", "deepseek", "anthropic"])
def test_other_providers_have_no_such_interface(server: Server, http: httpx.Client, provider: str) -> None:
    """A wire's table has the shape; a provider that says nothing of it, and one that extends a vendor's, have none."""
    assert http.get(f"{server.url}/{provider}/batches", headers={"authorization": "Bearer k"}).status_code == 404


def test_a_provider_with_two_wires_answers_on_the_one_that_is_meant(server: Server, http: httpx.Client) -> None:
    caller = Caller(http, server.url)
    row = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "gpt-5.4-mini", "input": "hi"}}
    job = caller.start([row], endpoint="/v1/responses")
    caller.poll(job)
    [result] = caller.results(caller.poll(job), "output_file_id")
    assert result["response"]["body"]["object"] == "response"


def test_slow_calls_have_a_path_of_their_own(server: Server, http: httpx.Client) -> None:
    body = {"model": "doubao-seed-2-1-pro-260915", "messages": [{"role": "user", "content": "hi"}]}
    url = f"{server.url}/volcengine/batch/chat/completions"
    answer = http.post(url, json=body, headers={"authorization": "Bearer k"})
    assert answer.json()["choices"][0]["message"]["content"]


def test_rows_are_checked_as_single_requests_are(server: Server, http: httpx.Client) -> None:
    caller = Caller(http, server.url, VENDORS[2])
    single = caller.vendor.row("x", temperature=0.3)["body"]
    alone = http.post(f"{caller.base}/chat/completions", json=single, headers={"authorization": "Bearer k"})
    _, output, error = caller.finish([caller.vendor.row("x", temperature=0.3)])
    assert alone.status_code == 400
    assert (output, error[0]["response"]["body"]) == ([], alone.json())


def test_a_row_may_ask_for_a_stream_and_gets_none(server: Server, http: httpx.Client) -> None:
    _, output, _ = Caller(http, server.url).finish([OPENAI.row("a", stream=True)])
    assert output[0]["response"]["body"]["object"] == "chat.completion"
