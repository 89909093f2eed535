"""Errors speak the client's protocol everywhere: unknown paths, other methods, and fields of a wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .support import say
from .test_keys_http import Setting, requests, sentence, setting

SAMPLES: dict[str, list[Any]] = {
    "boolean": [True],
    "string": ["x"],
    "number": [0.5],
    "integer": [1],
    "array": [["x"]],
    "object": [{"x": 1}],
}
# What the documentation of each protocol says of its fields.
FIELDS = {
    "openai-chat": {
        "model": "string", "messages": "array", "stream": "boolean", "stream_options": "object",
        "temperature": "number integer", "top_p": "number integer", "max_tokens": "integer", "n": "integer",
        "max_completion_tokens": "integer", "seed": "integer", "stop": "string array", "tools": "array",
        "tool_choice": "string object", "parallel_tool_calls": "boolean", "response_format": "object",
        "metadata": "object", "store": "boolean", "user": "string", "reasoning_effort": "string",
        "presence_penalty": "number integer", "frequency_penalty": "number integer", "logprobs": "boolean",
        "top_logprobs": "integer", "logit_bias": "object", "service_tier": "string",
    },
    "openai-responses": {
        "model": "string", "input": "string array", "instructions": "string", "stream": "boolean", "store": "boolean",
        "background": "boolean", "previous_response_id": "string", "conversation": "string object",
        "tools": "array", "tool_choice": "string object", "parallel_tool_calls": "boolean", "reasoning": "object",
        "text": "object", "temperature": "number integer", "top_p": "number integer", "max_output_tokens": "integer",
        "max_tool_calls": "integer", "include": "array", "metadata": "object", "truncation": "string",
        "user": "string", "top_logprobs": "integer", "prompt_cache_key": "string", "stream_options": "object",
    },
    "anthropic-messages": {
        "model": "string", "messages": "array", "max_tokens": "integer", "stream": "boolean",
        "system": "string array", "temperature": "number integer", "top_p": "number integer", "top_k": "integer",
        "stop_sequences": "array", "tools": "array", "tool_choice": "object", "thinking": "object",
        "metadata": "object", "service_tier": "string",
    },
    "gemini": {
        "contents": "array object", "systemInstruction": "object string", "tools": "array object",
        "toolConfig": "object", "generationConfig": "object", "safetySettings": "array object",
        "cachedContent": "string", "labels": "object",
    },
}  # fmt: skip
PATHS = {
    "openai-chat": [
        "/v1/chat/batches",
        "/v1/embeddings",
        "/v1/chat/completions/x/messages",
        "/nothing/here",
        "/chat/x",
    ],
    "openai-responses": ["/v1/responses/x/y", "/responses/x/cancel/z", "/v1/responses/x/input_items/y"],
    "anthropic-messages": ["/v1/messages/batches", "/v1/messages/batches/x/results", "/messages/x"],
    "gemini": ["/v1beta/cachedContents", "/v1beta/files/x", "/v1beta/tunedModels/x", "/v1beta"],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with setting(Path(tmp_path_factory.mktemp("gateway")), say("Hello")) as made:
        yield made


@pytest.mark.parametrize("protocol", list(PATHS))
def test_an_unknown_path_is_answered_in_the_protocol_of_its_beginning(protocol: str, here: Setting) -> None:
    key = here.key(f"paths-{protocol}")
    for path in PATHS[protocol]:
        for method in ("GET", "POST", "DELETE"):
            for header, status in ((f"Bearer {key}", (404, 405)), ("Bearer wrong", (401,)), ("", (401,))):
                headers = {"authorization": header}
                response = here.http.request(method, path, headers=headers, json={} if method == "POST" else None)
                assert response.status_code in status, (method, path, response.text)
                _, kind = sentence(protocol, response.json())
                assert kind
                body = response.json()
                assert ("type" in body) == (protocol == "anthropic-messages"), body
                assert ("status" in body["error"]) == (protocol == "gemini"), body


def test_an_unknown_verb_of_a_model_is_answered_in_its_protocol(here: Setting) -> None:
    headers = {"authorization": f"Bearer {here.key('verbs')}"}
    response = here.http.post("/v1beta/models/here/priced:embedContent", headers=headers, json={})
    assert response.status_code == 404
    assert response.json()["error"]["status"] == "NOT_FOUND"
    assert sentence("gemini", response.json())[0].endswith("/v1beta/models/here/priced:embedContent")


def test_headers_decide_where_the_path_says_nothing(here: Setting) -> None:
    key = here.key("headers")
    for header, protocol in (("anthropic-version", "anthropic-messages"), ("x-goog-api-key", "gemini")):
        headers = {"authorization": f"Bearer {key}", header: "2023-06-01" if header == "anthropic-version" else key}
        response = here.http.get("/v1/batches", headers=headers)
        assert response.status_code == 404
        assert sentence(protocol, response.json())[1]


@pytest.mark.parametrize("protocol", list(FIELDS))
def test_a_field_of_a_wrong_type_is_named(protocol: str, here: Setting) -> None:
    key = here.key(f"types-{protocol}")
    path, body = requests()[protocol]
    calls = len(here.upstream.bodies)
    for field, allowed in FIELDS[protocol].items():
        for kind in SAMPLES.keys() - set(allowed.split()):
            for value in SAMPLES[kind]:
                response = here.send(key, (path, {**body, field: value}))
                assert response.status_code == 400, (field, value, response.text)
                text = sentence(protocol, response.json())[0]
                assert field in text, (field, value, text)
    assert len(here.upstream.bodies) == calls
    nothing = {name: None for name in FIELDS[protocol] if name not in body}
    assert here.send(key, (path, {**body, **nothing})).status_code == 200


def test_stream_is_a_boolean_on_every_wire_and_in_counts(here: Setting) -> None:
    key = here.key("streams")
    for protocol, (path, body) in requests().items():
        if protocol == "gemini":
            continue  # the path says whether to stream
        values: list[Any] = [1, 0, "true", "false", [], {}]
        for value in values:
            response = here.send(key, (path, {**body, "stream": value}))
            assert response.status_code == 400
            assert "stream" in sentence(protocol, response.json())[0]
