"""What goes wrong with files, jobs and results, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from cnllm.registry.read import builtin_path, read
from cnllm.registry.registry import Registry
from cnllm.simulator.server import Server, running

from .support import OPENAI, VENDORS, Caller, Json, Vendor, by_line, headers, lines

ROWS = [OPENAI.row(id) for id in "abcd"]
BAIDU = next(vendor for vendor in VENDORS if vendor.provider == "baidu")


@pytest.fixture
def caller(server: Server, http: httpx.Client) -> Caller:
    return Caller(http, server.url)


# ── what is refused at once ──────────────────────────────────────────────────
def test_an_upload_without_its_purpose_or_its_file(caller: Caller) -> None:
    wrong = caller.upload(b"{}", purpose="fine-tune")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "purpose")
    bare = caller.http.post(f"{caller.base}/files", files={"other": ("a", b"{}")}, headers=headers(None))
    assert bare.status_code == 400
    no_form = caller.http.post(f"{caller.base}/files", content=b"{}", headers=headers(None))
    assert (no_form.status_code, "multipart" in no_form.text) == (400, True)


def test_a_job_without_its_file_or_its_path(caller: Caller) -> None:
    url = f"{caller.base}/batches"
    unknown = caller.http.post(url, json=OPENAI.job("file-none"), headers=headers(None))
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "input_file_id")
    body = {key: value for key, value in OPENAI.job("file-none").items() if key != "endpoint"}
    assert caller.http.post(url, json=body, headers=headers(None)).json()["error"]["param"] == "endpoint"
    for content in (b"[", b"[]"):
        assert caller.http.post(url, content=content, headers=headers(None)).status_code == 400


@pytest.mark.parametrize(
    "path", ["/batches/batch_none", "/files/file-none", "/files/file-none/content", "/batches/batch_none/cancel"]
)
def test_what_is_not_there(caller: Caller, path: str) -> None:
    method = "POST" if path.endswith("cancel") else "GET"
    answer = caller.http.request(method, caller.base + path, headers=headers(None))
    assert (answer.status_code, answer.json()["error"]["message"].endswith("none.")) == (404, True)


def test_one_provider_does_not_see_the_files_and_jobs_of_another(caller: Caller, server: Server) -> None:
    other = Caller(caller.http, server.url, BAIDU)
    job = caller.start(ROWS)
    assert other.get(f"/batches/{job['id']}").status_code == 404
    assert other.get(f"/files/{job['input_file_id']}/content").status_code == 404
    assert job["id"] not in [listed["id"] for listed in other.get("/batches").json()["data"]]


# ── jobs that fail in validation ─────────────────────────────────────────────
@pytest.mark.parametrize(
    ("content", "line", "param"),
    [
        (lines(ROWS[:1]) + b"{no json}\n" + lines(ROWS[1:]), 2, None),
        (b"\n" + lines([ROWS[0], ROWS[0]]), 3, "custom_id"),
        (lines([{**ROWS[0], "custom_id": ""}]), 1, "custom_id"),
        (lines([ROWS[0], {**ROWS[1], "url": "/v2/chat/completions"}]), 2, "url"),
        (lines([{**ROWS[0], "method": "GET"}]), 1, "method"),
        (lines([{**ROWS[0], "body": "hi"}]), 1, "body"),
        (lines([OPENAI.row("a", model=None)]), 1, "model"),
        (b"", None, None),
    ],
)
def test_a_bad_line_fails_the_job_and_is_named(
    caller: Caller, content: bytes, line: int | None, param: str | None
) -> None:
    job = caller.start(content)
    assert caller.poll(job)["status"] == "in_progress"
    failed = caller.poll(job)
    [error] = failed["errors"]["data"]
    assert (failed["status"], error["line"], error["param"]) == ("failed", line, param)
    assert failed["output_file_id"] is failed["error_file_id"] is None


def test_a_job_may_be_told_to_fail(caller: Caller) -> None:
    job = caller.start(ROWS, "polls=0;invalid=3")
    failed = caller.poll(job)
    assert (failed["status"], failed["errors"]["data"][0]["line"]) == ("failed", 3)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """An endpoint with small limits."""
    overlay = tmp_path_factory.mktemp("narrow") / "providers.toml"
    limits = "[providers.openai]\nbatch = { max_rows = 3, max_bytes = 2_000 }\n"
    overlay.write_text(limits + "[models.'openai/gpt-4']\nbatch.available = false\n")
    registry = Registry([read(builtin_path(), builtin=True), read(overlay)])
    with running(registry) as server, httpx.Client(trust_env=False, timeout=20) as http:
        yield Caller(http, server.url)


def test_a_model_that_is_not_served_in_batches(narrow: Caller) -> None:
    job = narrow.start([OPENAI.row(id, model="gpt-4") for id in "ab"], "polls=0")
    failed = narrow.poll(job)
    assert (failed["status"], failed["errors"]["data"][0]["code"]) == ("failed", "model_not_supported")


def test_a_file_that_is_too_large_is_refused(narrow: Caller) -> None:
    answer = narrow.upload(b"x" * 2_001)
    assert (answer.status_code, "the limit is 2000" in answer.json()["error"]["message"]) == (413, True)


@pytest.mark.parametrize(("count", "status"), [(3, "completed"), (4, "failed")])
def test_too_many_rows(narrow: Caller, count: int, status: str) -> None:
    job = narrow.start(ROWS[:count], "polls=0")
    over = narrow.poll(job)
    assert over["status"] == status
    assert bool(over.get("errors")) == (status == "failed")


# ── how long a job takes ─────────────────────────────────────────────────────
def test_a_job_takes_as_many_polls_as_it_is_told_to(caller: Caller) -> None:
    job = caller.start(ROWS, "polls=3")
    states = [caller.poll(job)["status"] for _ in range(4)]
    assert states == ["in_progress", "finalizing", "finalizing", "completed"]


def test_a_job_may_take_a_time_instead(registry: Registry) -> None:
    """By a clock of the test's own."""
    now = [100.0]
    with running(registry) as server, httpx.Client(trust_env=False, timeout=20) as http:
        server.catalog.batches.clock = lambda: now[0]
        caller = Caller(http, server.url)
        job = caller.start(ROWS, "seconds=5")
        assert [caller.poll(job)["status"] for _ in range(3)] == ["in_progress", "finalizing", "finalizing"]
        now[0] += 5
        assert caller.poll(job)["status"] == "completed"


def test_lists_do_not_make_a_job_older(caller: Caller) -> None:
    job = caller.start(ROWS)
    for _ in range(5):
        listed = caller.get("/batches").json()["data"]
        assert next(item["status"] for item in listed if item["id"] == job["id"]) == "validating"


# ── results ──────────────────────────────────────────────────────────────────
def test_the_last_rows_expire(caller: Caller) -> None:
    over, output, error = caller.finish(ROWS, "expired=3")
    assert (over["status"], [row["custom_id"] for row in output]) == ("expired", ["a"])
    assert [(row["custom_id"], row["response"], row["error"]["code"]) for row in error] == [
        (id, None, "batch_expired") for id in "bcd"
    ]
    assert over["request_counts"] == {"completed": 1, "failed": 3, "total": 4}


def test_rows_of_a_cancelled_job_are_named(caller: Caller) -> None:
    job = caller.start(ROWS, "polls=9")
    assert caller.http.post(f"{caller.base}/batches/{job['id']}/cancel", headers=headers(None)).status_code == 200
    over = caller.poll(job)
    assert over["output_file_id"] is None
    assert {row["error"]["code"] for row in caller.results(over, "error_file_id")} == {"batch_cancelled"}


@pytest.mark.parametrize(
    ("fault", "ids"),
    [("missing-rows=2", "cd"), ("duplicate-rows=2", "abcdab"), ("shuffled", "dbac"), ("failed-rows=1", "bcd")],
)
def test_results_are_not_as_one_would_like(caller: Caller, fault: str, ids: str) -> None:
    over, output, error = caller.finish(ROWS, fault)
    assert "".join(row["custom_id"] for row in output) == ids
    assert [row["response"]["status_code"] for row in error] == ([500] if fault == "failed-rows=1" else [])
    assert over["request_counts"]["completed"] == 4 - len(error)


def test_a_file_of_results_is_cut(caller: Caller) -> None:
    over, output, _ = caller.finish(ROWS)
    path = f"/files/{over['output_file_id']}/content"
    cut = caller.get(path, "cut;step=results").content
    whole = caller.get(path, "cut;step=poll").content
    assert whole.startswith(cut)
    assert len(cut) < len(whole)
    assert by_line(whole.decode()) == output
    with pytest.raises(httpx.RemoteProtocolError):
        caller.get(path, "drop;step=results")


# ── lists ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("vendor", [OPENAI, VENDORS[-1]], ids=lambda vendor: vendor.provider)
def test_a_list_has_pages(http: httpx.Client, registry: Registry, vendor: Vendor) -> None:
    with running(registry) as server:
        caller = Caller(http, server.url, vendor)
        ids = [caller.start([vendor.row("a")])["id"] for _ in range(5)][::-1]
        if vendor.jobs == "/batches":
            first = caller.get("/batches?limit=2").json()
            assert ([job["id"] for job in first["data"]], first["has_more"], first["last_id"]) == (
                ids[:2],
                True,
                ids[1],
            )
            rest = caller.get(f"/batches?limit=9&after={ids[1]}").json()
        else:
            first = caller.get("/batch/jobs?page_size=3&page=0").json()
            assert ([job["id"] for job in first["data"]], first["total"]) == (ids[:3], 5)
            rest = caller.get("/batch/jobs?page_size=3&page=1").json()
        seen = [*first["data"], *rest["data"]]
        assert [job["id"] for job in seen] == ids
        assert rest.get("has_more", False) is False


def test_a_fault_makes_pages_small(caller: Caller) -> None:
    for _ in range(2):
        caller.start(ROWS)
    page: Json = caller.get("/batches?limit=100", "page-size=1").json()
    assert (len(page["data"]), page["has_more"]) == (1, True)


def test_a_new_job_is_missing_in_the_list_for_a_while(caller: Caller) -> None:
    job = caller.start(ROWS, "unlisted=2")
    seen = [job["id"] in [item["id"] for item in caller.get("/batches").json()["data"]] for _ in range(3)]
    assert seen == [False, False, True]
    assert caller.poll(job)["id"] == job["id"]
