"""Every error body that a vendor, a server or a gateway sends becomes the right error, in its own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cnllm
from cnllm import engine

from .support import CLASSES, WIRES, as_sent, failure, model, rows


def wrong(row: dict[str, object]) -> str:
    """Return what is wrong with the error of a row, or an empty text."""
    error = failure(model(str(row["at"]), str(row["wire"])), int(str(row["status"])), as_sent(row))
    expected = CLASSES[str(row["is"])]
    faults = []
    if type(error) is not expected:
        faults.append(f"is {type(error).__name__}, not {expected.__name__}")
    if getattr(error, "retryable", None) is not row["retry"]:
        faults.append(f"retryable is {getattr(error, 'retryable', None)}")
    if getattr(error, "status", None) != row.get("status_out", row["status"]):
        faults.append(f"status is {getattr(error, 'status', None)}")
    if str(row["says"]) not in error.message:
        faults.append(f"says {error.message!r}")
    if error.message.lstrip()[:1] in ("{", "[") or '{"' in error.message or "{'" in error.message:
        faults.append(f"shows JSON: {error.message!r}")
    return (
        "; ".join(faults) and f"{row['at']} {row['wire']} {row['status']} {row['says']!r} ({row['source']}): {faults}"
    )


def test_each_body_has_a_source_and_most_were_seen() -> None:
    """`composed`: in the form that the vendor documents, but no public text of the body was seen."""
    table = rows()
    assert all(row.get("source") for row in table)
    assert sum(row["source"] != "composed" for row in table) >= 150


def test_each_body_becomes_the_right_error() -> None:
    table = rows()
    assert len(table) >= 150
    faults = [found for row in table if (found := wrong(row))]
    assert not faults, "\n" + "\n".join(faults)


def test_the_sentence_of_an_error_that_was_cut_off_inside_another_one_is_read() -> None:
    cut = '{"message": "Say \\"hi\\"\\nnow.", "detail": "and th'
    body = json.dumps({"error": {"message": cut, "code": 4}}).encode()
    error = failure(model("openai-compatible", "openai-chat", "http://127.0.0.1:9/v1"), 400, body)
    assert error.message.splitlines()[:2] == ['Say "hi"', "now."]


def test_json_in_the_message_of_an_error_is_read_for_its_sentences() -> None:
    found = model("openai-compatible", "openai-chat", "http://127.0.0.1:9/v1")
    inner = {"message": "No such model.", "hint": "See the list of models."}
    error = failure(found, 400, json.dumps({"error": {"message": json.dumps(inner)}}).encode())
    assert error.message == "No such model: See the list of models."
    parser = engine.StreamParser(found)
    event = {"message": json.dumps({"why": "The value is too large."})}
    parser.feed(b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n")
    with pytest.raises(cnllm.EndpointError, match=r"^The value is too large\."):
        parser.close()


def test_a_list_of_faults_without_places_is_read() -> None:
    for fault in ({"msg": "no such model"}, {"msg": "no such model", "loc": []}, {"msg": "no such model", "loc": "m"}):
        error = failure(model("openai-compatible", "openai-chat"), 422, json.dumps({"detail": [fault]}).encode())
        assert error.message.splitlines()[0] == "no such model"
    placed = {"message": "Bad request", "details": [{"loc": ["body", "the first message"], "msg": "is no good"}]}
    error = failure(model("openai-compatible", "openai-chat"), 422, json.dumps({"error": placed}).encode())
    assert error.message.splitlines()[0] == "Bad request: is no good"


def test_a_status_at_the_start_of_the_sentence_counts_where_http_says_success() -> None:
    for text, expected in (("HTTP 429: slow down", 429), ("429 Too Many Requests", 429), ("Room 429 is taken", 200)):
        error = failure(model("openai-compatible", "openai-chat"), 200, json.dumps({"error": text}).encode())
        assert isinstance(error, cnllm.EndpointError)
        assert error.status == expected


def test_a_list_or_braces_in_a_sentence_are_part_of_it() -> None:
    for text in (
        "The stop texts are [1, 2], not texts.",
        "Put {name} there.",
        "Only ['a', 'b'] are known.",
        "No } or {.",
    ):
        error = failure(
            model("openai-compatible", "openai-chat"), 400, json.dumps({"error": {"message": text}}).encode()
        )
        assert error.message.splitlines()[0] == text


def test_a_number_in_the_error_decides_where_it_says_more_than_the_status_around_it() -> None:
    for status, number, expected in (
        (500, 429, cnllm.RateLimited),
        (502, 404, cnllm.BadRequest),
        (502, 503, cnllm.EndpointError),
        (400, 401, cnllm.BadKey),
        (400, 418, cnllm.BadRequest),
        (404, 401, cnllm.BadRequest),
        (403, 429, cnllm.BadKey),
    ):
        body = json.dumps({"error": {"code": number, "message": "Not now."}}).encode()
        assert type(failure(model("openai-compatible", "openai-chat"), status, body)) is expected, (status, number)


def test_a_page_in_the_place_of_a_reply_is_named_by_its_title() -> None:
    for page, expected in (
        ("<html><head><title> Too busy\n</title></head></html>", "a page instead of a reply: Too busy"),
        ("\n<!DOCTYPE html><p>no", "a page instead of a reply"),
        ("<b>no</b>\n<p>", "<b>no</b>"),
    ):
        error = failure(model("openai-compatible", "openai-chat"), 502, page.encode())
        assert error.message.splitlines()[0] == expected


def test_without_a_rule_the_status_says_whether_another_attempt_may_succeed(tmp_path: Path) -> None:
    (tmp_path / "providers.toml").write_text(
        '[providers.home]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\nerrors = []\n'
    )
    target = cnllm.Registry.load(tmp_path / "providers.toml").resolve("home/m")
    retryable = {}
    for status in (404, 405, 408, 409, 410, 418, 429, 499, 500, 502, 599):
        error = failure(target, status, b"word")
        assert isinstance(error, cnllm.EndpointError)
        retryable[status] = error.retryable
    assert [status for status, may in retryable.items() if may] == [408, 409, 429, 500, 502, 599], retryable


def test_an_object_that_says_it_failed_is_an_error_and_no_empty_reply() -> None:
    for body, is_error in (
        ({"status": "failed", "reason": "no"}, True),
        ({"type": "Error"}, True),
        ({"code": "1234"}, True),
        ({"message": "no", "status": 500}, True),
        ({"status": "completed"}, False),
        ({"note": "error"}, False),
    ):
        error = failure(model("openai-compatible", "openai-chat"), 200, json.dumps(body).encode())
        assert isinstance(error, cnllm.EmptyReply) is not is_error, body


def test_an_empty_reply_names_the_host_with_its_request_and_without_but_no_password() -> None:
    target = model("openai-compatible", "openai-chat", "http://user:secret@127.0.0.1:9/v1")
    for plan in (None, engine.build_request(target, "hi")):
        with pytest.raises(cnllm.EmptyReply) as caught:
            engine.parse_response(target, 200, {}, b'{"choices": []}', plan=plan)
        assert f"{target.name} at 127.0.0.1:9 is empty" in caught.value.message
        assert "secret" not in caught.value.message


def test_what_is_wrong_is_read_ten_levels_deep_and_no_deeper() -> None:
    for depth, is_read in ((1, True), (10, True), (20, False), (300, False)):
        body = '{"error": ' * depth + '{"message": "The deployment sleeps."}' + "}" * depth
        error = failure(model("openai-compatible", "openai-chat"), 400, body.encode())
        assert (error.message.splitlines()[0].strip() == "The deployment sleeps.") is is_read, (depth, error.message)


def test_json_that_was_cut_off_is_no_sentence() -> None:
    for sent in (b'[{"a', b'{"a', b" [1, 2"):
        error = failure(model("openai-compatible", "openai-chat"), 400, sent)
        expected = f"HTTP 400, with JSON that cannot be read: {sent.decode().strip()}"
        assert error.message.splitlines()[0].strip() == expected


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_of_the_history_says_what_was_sent(wire: str) -> None:
    target = model("openai-compatible", wire)
    plan = engine.build_request(target, [{"role": "user", "content": "hi"}])
    body = json.dumps({"error": {"message": "reasoning_content is missing"}}).encode()
    with pytest.raises(cnllm.ReplayMissing) as caught:
        engine.parse_response(target, 400, {}, body, plan=plan)
    hint = caught.value.hint or ""
    assert "the request had about" in hint
    assert ("; sent with reasoning: no turn; without it: no turn" in hint) is (
        wire in ("openai-chat", "anthropic-messages")
    )


def test_the_first_five_of_many_faults_are_told() -> None:
    faults = [{"loc": ["body", number], "msg": f"problem {number}"} for number in range(7)]
    body = json.dumps({"detail": faults}).encode()
    error = failure(model("openai-compatible", "openai-chat", "http://127.0.0.1:9/v1"), 422, body)
    assert error.message.splitlines()[0] == "; ".join(f"body.{number}: problem {number}" for number in range(5))


def test_an_error_of_a_stream_may_stand_in_a_list() -> None:
    body = b'data: [{"error": {"code": 429, "message": "No room.", "status": "RESOURCE_EXHAUSTED"}}]\n\n'
    for wire in WIRES:
        for start in (b"", b"event: error\n"):
            headers = {"content-type": "text/event-stream"}
            found = failure(model("openai-compatible", wire), 200, start + body, headers)
            assert isinstance(found, cnllm.RateLimited), wire
            assert (found.message, found.retryable) == ("No room.", True)


def test_four_characters_of_chinese_are_a_sentence() -> None:
    body = json.dumps(
        {"error": {"message": "Bad request", "metadata": {"why": "余额不足"}}}, ensure_ascii=False
    ).encode()
    error = failure(model("openai-compatible", "openai-chat"), 400, body)
    assert error.message.splitlines()[0] == "Bad request: 余额不足"
