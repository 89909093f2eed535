"""Whatever is uploaded and submitted, the simulator answers it as an endpoint does, and other jobs go on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm.registry.registry import Registry
from cnllm.simulator.batch import BatchRequest, BatchStore, answer_step
from cnllm.simulator.server import Server

from .support import KEY, OPENAI, VENDORS, Caller, Json, lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["custom_id", "method", "url", "body", "model", "messages", "key", "request", "metadata"])
ROW = st.dictionaries(KEYS, JSON, max_size=5) | st.builds(
    lambda body: OPENAI.row("a", **body), st.dictionaries(KEYS, JSON)
)
LINE = st.builds(json.dumps, ROW) | st.text(max_size=20)


def answer(registry: Registry, store: BatchStore, method: str, path: str, content: bytes, kind: str = "") -> Any:
    step = store.find_step("openai", method, path)
    assert step is not None, path
    headers = {**KEY, "content-type": kind}
    response = answer_step(store, step, BatchRequest(path, headers, content, "http://h"))
    assert response.status in (200, 400, 404, 413)
    return msgspec.json.decode(b"".join(response.pieces)) if method == "POST" or path == "/batches" else response


@given(st.lists(LINE, max_size=4))
def test_any_file_of_rows(registry: Registry, content: list[str]) -> None:
    store = BatchStore(registry)
    file = store.add_file("openai", "rows.jsonl", "\n".join(content).encode("utf-8", "surrogatepass"))
    body = json.dumps(OPENAI.job(file.id)).encode()
    job = answer(registry, store, "POST", "/batches", body)
    for _ in range(2):
        polled = answer(registry, store, "GET", f"/batches/{job['id']}", b"")
    over = msgspec.json.decode(b"".join(polled.pieces))
    assert over["status"] in ("completed", "failed")
    if over["status"] == "failed":
        assert over["errors"]["data"]
    else:
        counts = over["request_counts"]
        assert counts["completed"] + counts["failed"] == counts["total"] > 0
    assert answer(registry, store, "GET", "/batches", b"")["data"][0]["id"] == job["id"]


@given(st.dictionaries(st.sampled_from(["input_file_id", "endpoint", "completion_window", "metadata", "x"]), JSON))
def test_any_body_of_a_submission(registry: Registry, body: Json) -> None:
    answer(registry, BatchStore(registry), "POST", "/batches", json.dumps(body).encode())


@given(
    st.binary(max_size=80), st.sampled_from(["", "multipart/form-data", "multipart/form-data; boundary=b", "a; b=c"])
)
def test_an_upload_of_any_form_is_answered(registry: Registry, content: bytes, kind: str) -> None:
    answer(registry, BatchStore(registry), "POST", "/files", content, kind)
    answer(registry, BatchStore(registry), "POST", "/files", b"--b\r\n" + content + b"\r\n--b--", kind)


@given(st.binary(max_size=200))
def test_a_file_comes_back_as_it_was(registry: Registry, content: bytes) -> None:
    request = httpx.Request("POST", "http://h", data={"purpose": "batch"}, files={"file": ("é.jsonl", content)})
    store = BatchStore(registry)
    file = answer(registry, store, "POST", "/files", request.read(), request.headers["content-type"])
    assert (file["bytes"], file["filename"]) == (len(content), "é.jsonl")
    assert b"".join(answer(registry, store, "GET", f"/files/{file['id']}/content", b"").pieces) == content


@pytest.mark.parametrize(
    "body",
    [
        {"model": "../admin"},
        {"model": "a\nb"},
        {"messages": "[" * 500},
    ],
)
def test_one_bad_row_does_not_harm_the_others(server: Server, http: httpx.Client, body: Json) -> None:
    _, output, error = Caller(http, server.url).finish([OPENAI.row("good"), OPENAI.row("bad", **body)])
    assert [row["custom_id"] for row in output] == ["good"]
    assert [row["custom_id"] for row in error] == ["bad"]
    assert error[0]["response"]["status_code"] in (400, 404)


def test_a_row_that_is_too_deep(server: Server, http: httpx.Client) -> None:
    deep = b'{"custom_id":"deep","method":"POST","url":"/v1/chat/completions","body":{"model":"m","x":%b1%b}}\n'
    caller = Caller(http, server.url)
    job = caller.start(lines([OPENAI.row("a")]) + deep % (b"[" * 200_000, b"]" * 200_000))  # Python 3.13 reads 9,000
    caller.poll(job)
    failed = caller.poll(job)
    assert (failed["status"], failed["errors"]["data"][0]["line"]) == ("failed", 2)
    job = caller.start(lines([OPENAI.row("a")]) + deep % (b"[" * 300, b"]" * 300))
    caller.poll(job)
    assert len(caller.results(caller.poll(job), "error_file_id")) == 1


@pytest.mark.parametrize("half", ["\ud800", "\ud83d\ud83d"])
def test_half_of_a_character(server: Server, http: httpx.Client, half: str) -> None:
    caller = Caller(http, server.url)
    before = caller.get("/batches?limit=1000").json()["data"]
    file = caller.upload(lines([OPENAI.row("a")])).json()["id"]
    body = json.dumps(OPENAI.job(file, half)).encode()
    assert http.post(f"{caller.base}/batches", content=body, headers=KEY).status_code == 400
    assert len(caller.get("/batches?limit=1000").json()["data"]) == len(before)
    job = caller.start([OPENAI.row("a"), {**OPENAI.row("a"), "custom_id": half}], "polls=0")
    assert caller.poll(job)["errors"]["data"][0]["line"] == 2
    over, output, error = caller.finish([OPENAI.row("a"), OPENAI.row("b", "\ud83d\ud83d")], "polls=0")
    assert (over["status"], len(output), len(error)) in [("completed", 1, 1), ("failed", 0, 0)]


@pytest.mark.parametrize("fault", ["polls=soon", "seconds=x", "page-size=-3", "expired=-1"])
def test_words_of_a_fault_that_make_no_sense(server: Server, http: httpx.Client, fault: str) -> None:
    caller = Caller(http, server.url, VENDORS[1])
    assert caller.submit([VENDORS[1].row("a")], fault).status_code in (200, 400)
    assert caller.get("/batches", fault).status_code == 200
