"""The error of a wrong base URL names the address and the base that would work; an empty reply names its host."""

from __future__ import annotations

import json

import pytest

import cnllm
from cnllm import engine
from cnllm.protocols import PROTOCOLS

from .support import content, model

HTML = "<!DOCTYPE html><html><head><title>Error 404 (Not Found)!!1</title></head></html>"
NO_ROUTE = (
    *(HTML, "404 page not found", "Not Found", "", {"detail": "Not Found"}, {"error": "Not Found", "status": 404}),
    {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}},
    {"error": {"message": "Invalid URL (POST /v1/v1/chat/completions)", "type": "invalid_request_error"}},
    {"error": {"code": "404", "message": "Resource not found"}},
    {"type": "error", "error": {"type": "not_found_error", "message": "Not found"}},
    {"message": "no Route matched with those values"},
    {"message": "Route POST:/chat/completions not found", "error": "Not Found", "statusCode": 404},
    "<html><body><pre>Cannot POST /chat/completions</pre></body></html>",
)
# wire, the base that was given, the one that works
BASES = (
    ("openai-chat", "http://h:1/", "http://h:1/v1"),
    ("openai-chat", "http://h:1/v1/v1", "http://h:1/v1"),
    ("openai-chat", "http://h:1/v1/chat", "http://h:1/v1"),
    ("openai-chat", "http://h:1/chat/completions", "http://h:1/v1"),
    ("openai-chat", "http://h:1//v1", "http://h:1/v1"),
    ("openai-chat", "http://h:1/v1/completions", "http://h:1/v1"),
    ("openai-responses", "http://h:1", "http://h:1/v1"),
    ("openai-responses", "http://h:1/v1/chat/completions", "http://h:1/v1"),
    ("anthropic-messages", "http://h:1/v1", "http://h:1"),
    ("anthropic-messages", "http://h:1/anthropic/v1", "http://h:1/anthropic"),
    ("gemini", "http://h:1", "http://h:1/v1beta"),
    ("gemini", "http://h:1/v1beta/models/x:generateContent", "http://h:1/v1beta"),
    ("gemini", "http://h:1/v1beta/v1beta", "http://h:1/v1beta"),
)
ADDRESSES = (
    ("openai-chat", "http://h:1/v1/chat/completions"),
    ("openai-chat", "http://h:1/api/v3/chat/completions/"),
    ("openai-responses", "http://h:1/v1/responses"),
    ("anthropic-messages", "http://h:1/v1/messages"),
)
RIGHT = (
    *(
        ("openai-chat", "http://h:1/v1"),
        ("openai-chat", "http://h:1/api/paas/v4"),
        ("openai-responses", "http://h:1/v1"),
    ),
    *(("anthropic-messages", "http://h:1/anthropic"), ("gemini", "http://h:1/v1beta")),
)


def refused(wire: str, base: str, body: object, status: int = 404) -> cnllm.EndpointError:
    target = model("openai-compatible", wire, base)
    plan = engine.build_request(target, [{"role": "user", "content": "hi"}])
    with pytest.raises(cnllm.EndpointError) as caught:
        engine.parse_response(target, status, {}, content(body), plan=plan)
    return caught.value


def test_the_base_that_would_work_is_named() -> None:
    for wire, base, better in BASES:
        for body in NO_ROUTE[:3]:
            error = refused(wire, base, body)
            assert "http://h:1/" in error.message, (wire, base, body)
            assert f"base_url={better!r}" in (error.hint or ""), (wire, base, error.hint)
            assert type(error) is cnllm.BadRequest
            assert not error.retryable


def test_a_base_that_is_the_address_of_requests_is_asked_there() -> None:
    for wire, address in ADDRESSES:
        error = refused(wire, address, NO_ROUTE[0])
        assert f"the request went to {address.rstrip('/')})" in error.message, (wire, error.message)


def test_every_way_to_say_that_nothing_is_there_names_the_address() -> None:
    for body in NO_ROUTE:
        error = refused("openai-chat", "http://h:1", body)
        assert "http://h:1/chat/completions" in error.message, (body, error.message)
        assert "'http://h:1/v1'" in (error.hint or ""), body
    error = refused("openai-chat", "http://h:1", HTML, 200)
    assert "http://h:1/chat/completions" in error.message
    error = refused(
        "openai-chat", "http://h:1", {"error": "Unexpected endpoint or method. (POST /chat/completions)"}, 200
    )
    assert "'http://h:1/v1'" in (error.hint or "")


def test_where_the_shape_shows_no_fault_no_base_is_guessed() -> None:
    for wire, base in RIGHT:
        error = refused(wire, base, "404 page not found")
        assert base in error.message
        assert "base_url=" not in (error.hint or "")
        assert "base_url" in (error.hint or "")


def test_other_errors_keep_their_sentence() -> None:
    for said in ("The model `x` does not exist", "model: x", "model 'x' not found", "models/x is not found"):
        error = refused("openai-chat", "http://h:1", {"error": {"message": said, "type": "not_found_error"}})
        assert error.message == said
    error = refused("openai-chat", "http://h:1", "Not Found", 500)
    assert error.message == "Not Found"


def test_no_secret_of_an_address_is_shown() -> None:
    error = refused("openai-chat", "http://me:s3cret@h:1/?key=k3y", "Not Found")
    assert "s3cret" not in f"{error} {error.hint}"
    assert "k3y" not in f"{error} {error.hint}"


def test_an_empty_reply_names_its_endpoint() -> None:
    for wire in PROTOCOLS:
        for sent in (b"{}", b"", json.dumps({"choices": [], "content": [], "output": [], "candidates": []}).encode()):
            target = model("openai-compatible", wire, "http://h:1/v1")
            plan = engine.build_request(target, [{"role": "user", "content": "hi"}])
            with pytest.raises(cnllm.EmptyReply, match="openai-compatible/some-model at h:1") as caught:
                engine.parse_response(target, 200, {}, sent, plan=plan)
            assert caught.value.body.replace(" ", "") == sent.decode().replace(" ", "")
