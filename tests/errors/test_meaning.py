"""What a failure means is declared once, on the class of the error: again, charged, load, elsewhere, cools, key."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import cnllm
from cnllm import errors
from cnllm.types import Usage

TABLE: dict[str, str] = {
    # A word: always. With a question mark: the response decides.
    "CnllmError": "",
    "RegistryError": "",
    "UnknownModel": "",
    "KeyMissing": "elsewhere key",
    "Untrusted": "elsewhere key",
    "ClientClosed": "",
    "CannotSend": "elsewhere",
    "NoTarget": "",
    "StreamCut": "again charged load elsewhere cools",
    "ReplyTooLarge": "again charged",
    "McpError": "",
    "LoopStopped": "charged",
    "EndpointError": "again? charged? load? elsewhere? cools?",
    "BadKey": "again? elsewhere cools key",
    "QuotaExceeded": "again? elsewhere cools key",
    "RateLimited": "again? load elsewhere cools",
    "Overloaded": "again? charged? load? elsewhere cools",
    "ContextTooLong": "again? load? elsewhere",
    "ContentFiltered": "again? charged? load?",
    "ReplayMissing": "again? load? elsewhere",
    "BadRequest": "again? load? elsewhere? cools?",
    "EmptyReply": "again charged? load? elsewhere",
    "TransportError": "again charged? load? elsewhere cools",
    "Timeout": "again charged? load? elsewhere cools",
    "IdleTimeout": "again charged? load? elsewhere cools",
}


def words(meaning: errors.Meaning) -> str:
    marks = {True: "", None: "?"}
    return " ".join(name + marks[value] for name, value in meaning._asdict().items() if value is not False)


def test_every_class_declares_what_it_means() -> None:
    kinds = {name: getattr(errors, name) for name in errors.__all__}
    assert [name for name, kind in kinds.items() if "class_meaning" not in vars(kind)] == []
    assert {name: words(kind.class_meaning) for name, kind in kinds.items()} == TABLE


@pytest.mark.parametrize(
    ("kind", "status", "retryable", "expected"),
    [
        ("EndpointError", 200, False, "charged elsewhere cools"),
        ("EndpointError", 400, False, ""),
        ("EndpointError", 422, True, "again load elsewhere cools"),
        ("EndpointError", 429, False, "elsewhere cools"),
        ("EndpointError", 503, True, "again load elsewhere cools"),
        ("BadRequest", 200, False, ""),
        ("BadRequest", 404, False, "elsewhere cools"),
        ("BadRequest", 500, False, "elsewhere cools"),
        ("RateLimited", 200, True, "again load elsewhere cools"),
        ("EmptyReply", 200, False, "again charged elsewhere"),
        ("ContentFiltered", 200, False, "charged"),
        ("ContentFiltered", 400, False, ""),
    ],
)
def test_the_response_decides_what_the_class_does_not(kind: str, status: int, retryable: bool, expected: str) -> None:
    error = getattr(errors, kind)("No.", status=status, retryable=retryable)
    assert words(error.meaning) == expected


def test_a_request_that_was_not_sent_costs_nothing_and_a_lost_worker_is_no_load() -> None:
    error = errors.TransportError("no connection")
    assert words(error.meaning) == "again charged load elsewhere cools"
    error.sent, error.worker_lost = False, True
    assert words(error.meaning) == "again elsewhere cools"


def test_what_has_arrived_may_be_charged_whatever_the_class() -> None:
    with cnllm.Client(simulate=True) as client:
        reply = client.call("glm-4.7", "Hi")
    bare: Any = {"text": "", "message": cnllm.Message("assistant", []), "usage": Usage()}
    for kind in (errors.BadRequest, errors.RateLimited):
        assert kind("No.", status=200, reply=reply).meaning.charged
        assert not kind("No.", status=200, reply=replace(reply, **bare)).meaning.charged


def test_a_failure_within_a_tool_loop_may_be_charged_for_the_steps_before() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with cnllm.Client(simulate=True) as client:
        run = client.run("glm-4.7", "What is 2 and 3?", tools=[add])
    error = errors.McpError("the server is gone")
    assert not error.meaning.charged
    error.run = run
    assert error.meaning.charged
