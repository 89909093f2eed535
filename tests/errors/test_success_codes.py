"""An error object with 0 as its code reports success, on every wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import engine

REGISTRY = cnllm.Registry.load()
ITEM = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": (
        "deepseek/deepseek-chat",
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]},
    ),
    "anthropic-messages": (
        "anthropic/claude",
        {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"},
    ),
    "gemini": (
        "google/gemini-2.5-pro",
        {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]},
    ),
    "openai-responses": ("openai/gpt-5", {"id": "r", "status": "completed", "output": [ITEM]}),
}


@each("protocol", BODIES)
def test_an_error_with_the_code_0_is_none(protocol: str) -> None:
    name, body = BODIES[protocol]
    content = json.dumps({**body, "error": {"code": 0, "message": "success"}}).encode()
    reply = engine.parse_response(REGISTRY.resolve(name, protocol=protocol), 200, {}, content)
    assert (reply.text, reply.finish) == ("Hi", "stop")


def test_a_chunk_with_the_code_0_and_a_sentence_is_no_error() -> None:
    parser = engine.StreamParser(REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1"))
    head = {"header": {"code": 0, "message": "accepted by the queue", "sid": "s1"}}
    for chunk in (head, {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}):
        parser.feed(b"data: %b\n\n" % json.dumps(chunk).encode())
    assert parser.close().text == "Hi"


def test_the_code_1_alone_is_the_error_of_a_choice_and_0_is_none() -> None:
    name, body = BODIES["openai-chat"]
    [choice] = body["choices"]
    fine = json.dumps({"choices": [{**choice, "error": {"code": 0, "message": "success"}}]}).encode()
    assert engine.parse_response(REGISTRY.resolve(name), 200, {}, fine).text == "Hi"
    content = json.dumps({"choices": [{**choice, "error": {"code": 1, "message": ""}}]}).encode()
    with pytest.raises(cnllm.EndpointError):
        engine.parse_response(REGISTRY.resolve(name), 200, {}, content)


@each(
    "event, expected, code",
    [
        ({"header": {"code": 10013, "message": "内容审核不通过", "sid": "s"}}, cnllm.ContentFiltered, "10013"),
        ({"error_code": 18, "error_msg": "Open api qps request limit reached"}, cnllm.RateLimited, "18"),
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, cnllm.QuotaExceeded, "1008"),
        ({"code": "InvalidParameter", "message": "Range of max_tokens should be [1, 8192]"}, cnllm.BadRequest, None),
        ({"success": False, "code": 1261, "msg": "Prompt too long"}, cnllm.ContextTooLong, "1261"),
    ],
)
@each("protocol", BODIES)
def test_a_code_in_a_stream_is_the_error_that_it_names(protocol: str, event: Any, expected: Any, code: Any) -> None:
    name, _ = BODIES[protocol]
    parser = engine.StreamParser(REGISTRY.resolve(name, protocol=protocol))
    parser.feed(f"data: {json.dumps(event)}\n\n".encode())
    with pytest.raises(expected) as caught:
        parser.close()
    assert caught.value.code == (code or event["code"])
    assert caught.value.message in json.dumps(event, ensure_ascii=False)


@each("event", [{"type": "invalid_request_error", "message": "no"}, {"own": {"code": 7}, "words": "no"}])
def test_a_chunk_is_an_error_by_the_places_that_the_registry_names(event: Any, tmp_path: Path) -> None:
    overlay = tmp_path / "own.toml"
    overlay.write_text('[providers.deepseek.error]\ncode = ["own.code", "type"]\nmessage = ["words", "message"]\n')
    parser = engine.StreamParser(cnllm.Registry.load(overlay).resolve("deepseek/deepseek-chat"))
    parser.feed(f"data: {json.dumps(event)}\n\n".encode())
    with pytest.raises(cnllm.EndpointError) as caught:
        parser.close()
    assert caught.value.message == "no"


@each("report", [{"code": 20000, "msg": "success"}, {"header": {"code": "A0", "message": "OK"}}])
@each("protocol", BODIES)
def test_a_code_beside_the_word_of_success_is_no_error(protocol: str, report: Any) -> None:
    name, body = BODIES[protocol]
    model = REGISTRY.resolve(name, protocol=protocol)
    parser = engine.StreamParser(model)
    parser.feed(f"data: {json.dumps(report)}\n\n".encode())
    with pytest.raises(cnllm.StreamCut):  # it had nothing else
        parser.close()
    assert engine.parse_response(model, 200, {}, json.dumps({**report, **body}).encode()).finish == "stop"
