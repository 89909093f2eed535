"""Faults that meet one step of a batch, and what a test sees of the requests, over real sockets."""

from __future__ import annotations

import httpx
import pytest

from cnllm.registry.registry import Registry
from cnllm.simulator.server import Server, running

from .support import OPENAI, Caller, headers, lines

ROWS = [OPENAI.row(id) for id in "abcd"]


@pytest.fixture
def caller(server: Server, http: httpx.Client) -> Caller:
    return Caller(http, server.url)


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("step", ["upload", "submit", "poll", "list", "results"])
def test_a_step_fails(caller: Caller, step: str, status: int) -> None:
    over, _, _ = caller.finish(ROWS)
    fault = f"status={status};step={step}"
    answers = {
        "upload": caller.upload(lines(ROWS), fault),
        "submit": caller.submit(ROWS, fault),
        "poll": caller.get(f"/batches/{over['id']}", fault),
        "list": caller.get("/batches", fault),
        "results": caller.get(f"/files/{over['output_file_id']}/content", fault),
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        name: status if name == step else 200 for name in answers
    }


def marks(caller: Caller) -> list[str | None]:
    """The marks of all jobs; those of other tests may have none."""
    jobs = caller.get("/batches?limit=100").json()["data"]
    return [(job.get("metadata") or {}).get("cnllm") for job in jobs]


def test_a_refused_job_does_not_exist_and_one_whose_answer_is_lost_does(caller: Caller) -> None:
    for mark, fault, exists in (
        ("refused", "status=500;step=submit", False),
        ("lost", "status=500;step=submit;after-effect", True),
    ):
        assert caller.submit(ROWS, fault, metadata={"cnllm": mark}).status_code == 500
        assert (mark in marks(caller)) == exists
    for mark, fault, exists in (("before", "reset-headers;step=submit", False), ("after", "reset;step=submit", True)):
        with pytest.raises(httpx.TransportError):
            caller.submit(ROWS, fault, metadata={"cnllm": mark})
        assert (mark in marks(caller)) == exists


def test_a_fault_that_ends_meets_its_step_only(caller: Caller) -> None:
    job = caller.start(ROWS, "polls=0")
    fault = "status=429;retry-after=1;step=poll;times=2;id=ends"
    assert caller.get("/batches", fault).status_code == 200  # and does not count
    statuses = [caller.get(f"/batches/{job['id']}", fault) for _ in range(3)]
    assert [answer.status_code for answer in statuses] == [429, 429, 200]
    assert statuses[0].headers["retry-after"] == "1"


def test_a_test_sees_each_request(registry: Registry, http: httpx.Client) -> None:
    seen: list[tuple[str, str, str]] = []
    with running(registry, on_request=lambda *call: seen.append(call)) as server:
        caller = Caller(http, server.url)
        caller.start(ROWS)
        http.post(f"{server.url}/openai/chat/completions", json={}, headers=headers(None))
    assert [step for step, _, phase in seen if phase == "received"] == ["upload", "submit", "call"]
    assert [phase for step, _, phase in seen if step == "submit"] == ["received", "handled", "sent"]
    assert seen[0][1] == "/openai/files"
