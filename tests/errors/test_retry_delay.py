"""How long an endpoint asks to wait, where only the body of its error says so."""

from __future__ import annotations

import json
from typing import Any

from cnllm import EndpointError

from .support import WIRES, failure, model

INFO = "type.googleapis.com/google.rpc.RetryInfo"


def wait(body: Any, headers: dict[str, str] | None = None, wire: str = "openai-chat", status: int = 429) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = failure(model("openai-compatible", wire), status, content, headers)
    assert isinstance(error, EndpointError)
    return error.retry_after


def test_fields_that_name_a_wait_are_read_wherever_they_stand() -> None:
    google = {"message": "slow down", "details": [{"@type": "x.QuotaFailure"}, {"@type": INFO, "retryDelay": "34s"}]}
    table: list[tuple[Any, float]] = [
        ({"error": google}, 34),
        ([{"error": google}], 34),
        ({"error": {"message": json.dumps({"error": google})}}, 34),  # a gateway's error inside another
        ({"error": {"message": "Provider error", "metadata": {"raw": json.dumps({"error": google})}}}, 34),
        ({"error": {"message": "wait", "retry_after": 12}}, 12),
        ({"error": {"message": "wait", "retryAfter": "12"}}, 12),
        ({"error": "Too many requests", "retryAfter": 7}, 7),
        ({"detail": "Too many requests", "retry_after_seconds": 3.5}, 3.5),
        ({"detail": {"msg": "wait", "retry-after-ms": 1500}}, 1.5),
        ({"message": "wait", "metadata": {"headers": {"Retry-After": "9"}}}, 9),
        ({"message": "wait", "retry_after": 0}, 0),
        ({"message": "wait", "retry_after": 1, "more": {"retryDelay": "2s"}}, 2),  # the longest
    ]
    for body, seconds in table:
        assert wait(body) == seconds, body
        assert wait(body, {"retry-after": "5"}) == 5, body
        assert wait(body, {"retry-after": "soon"}) == seconds, body


def test_a_header_in_milliseconds_goes_before_the_one_in_seconds() -> None:
    for value, seconds in (("2500", 2.5), (" 1.5 ", 0.0015), ("0", 0), ("soon", 5), ("", 5), ("1.5.1", 5)):
        assert wait({}, {"retry-after-ms": value, "retry-after": "5"}) == seconds, value


def test_an_error_of_one_key_is_an_error_on_every_wire() -> None:
    for wire in WIRES:
        for error in ({"message": "no room"}, {"message": "no room", "code": "x"}):
            found = failure(model("openai-compatible", wire), 200, json.dumps({"error": error}).encode())
            assert isinstance(found, EndpointError), (wire, error)
            assert found.message == "no room"


def test_a_duration_is_read_in_every_way_that_is_written() -> None:
    table: list[tuple[Any, float | None]] = [
        ("34s", 34),
        ("34.074824224s", 34.074824224),
        ("0.5s", 0.5),
        ("250ms", 0.25),
        ("1m30s", 90),
        ("2h", 7200),
        ({"seconds": 34, "nanos": 500_000_000}, 34.5),
        ({"seconds": "34"}, 34),
        ("Tue, 01 Jan 2019 00:00:00 GMT", 0),
        (34.5, 34.5),
        # no wait
        ("soon", None),
        ("", None),
        ("-3s", None),
        (-3, None),
        (True, None),
        (None, None),
        (1_900_000_000, None),  # a point in time
        ("9" * 400, None),
        ([34], None),
        ({"seconds": "soon"}, None),
        ({}, None),
        ("3 parsecs", None),
        ("٣s", None),
    ]
    for value, seconds in table:
        assert wait({"error": {"message": "slow down", "retryDelay": value}}) == seconds, value


def test_what_an_error_repeats_of_the_request_names_no_wait() -> None:
    for key in ("input", "request", "messages", "failed_generation"):
        assert wait({"error": {"message": "no", key: {"retry_after": 9}}}) is None, key
    for key in ("retry", "max_retries", "retry_count", "after", "should_retry"):
        assert wait({"error": {"message": "no", key: 9}}) is None, key


def test_every_wire_reads_it_in_a_body_and_inside_a_stream() -> None:
    fault = {"code": 429, "type": "rate_limit_error", "message": "slow down", "retry_after": 4}
    for wire in WIRES:
        body = {"type": "error", "error": fault}
        assert wait(body, wire=wire) == 4, wire
        assert wait(body, wire=wire, status=200) == 4, wire
        stream = b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"
        assert wait(stream, {"content-type": "text/event-stream"}, wire, 200) == 4, wire


def test_a_sentence_names_a_wait_where_nothing_else_does() -> None:
    table: list[tuple[str, float | None]] = [
        ("Rate limit reached on tokens per min: Limit 30000, Requested 2000. Please try again in 1.2s. Visit x.", 1.2),
        ("Rate limit reached. Please try again in 6m0s.", 360),
        ("Please try again in 20ms.", 0.02),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("The rate was exceeded in 10 s. Please retry your request after 59 seconds.", 59),
        ("Too many requests, try again in 1 hour, 2 minutes and 3 seconds", 3723),
        ("Please wait at least 500 milliseconds", 0.5),
        ("请求过于频繁，请在 5 秒后重试", 5),
        ("请 2 分钟之后再试", 120),
        # no wait
        ("Please try again later.", None),
        ("The retry failed after 30 seconds.", None),
        ("Try again in a few minutes.", None),
        ("Limit 5s. Retry 3 times.", None),
        ("Please try again in 3 parsecs.", None),
        ("again in " + "1" * 5000 + "s", None),
        ("again " * 20_000, None),
    ]
    for sentence, seconds in table:
        for wire in WIRES:
            assert wait({"error": {"message": sentence}}, wire=wire) == seconds, sentence
            assert wait({"error": {"message": sentence}}, {"retry-after": "5"}, wire) == 5
            assert wait({"error": {"message": sentence, "retry_after": 4}}, wire=wire) == 4
        assert wait(sentence.encode()) == seconds, sentence
    quoted = "invalid value of messages[0]: try again in 5 seconds"
    assert wait({"error": {"message": quoted}}, status=400) is None


def test_a_header_may_hold_a_duration_and_no_point_in_time() -> None:
    moment = "1900000000"
    for value, seconds in (("5s", 5), ("1m30s", 90), ("500ms", 0.5), (moment, None), ("9" * 30, None), ("-1", None)):
        assert wait({}, {"retry-after": value}) == seconds, value
