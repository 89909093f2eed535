"""Names from outside: bounded before anything is looked up by one, and never written at length."""

from __future__ import annotations

import functools
import json
import logging
import time
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import CannotSend, Registry, UnknownModel, engine
from cnllm.gateway import access_log
from cnllm.gateway.access_log import AccessLog, Entry
from cnllm.gateway.bounds import LONGEST, MOST_FIELDS, MOST_OPTIONS
from cnllm.types import Cost, Note, Usage

from .support import Answer, say
from .test_keys_http import requests, sentence, setting

TOO_LONG = "here/" + "x" * LONGEST["model"]
ODD_NAMES = ["here/p\n", "here/p\r\nx-evil: 1", "here/p\x00", "here/\x7f", "here/p\u2028", "here/p%0a", "\thop"]


def body_of(http: httpx.Client, response: httpx.Response, protocol: str) -> str:
    """The sentence of a refusal in the client's protocol."""
    assert response.status_code == 400, response.text
    assert len(response.text) < 1000
    return str(sentence(protocol, response.json())[0])


@pytest.mark.parametrize("protocol", list(requests()))
def test_a_model_name_of_any_length_is_refused_before_it_is_looked_up(protocol: str, tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        names = [TOO_LONG, "é" * 129] if protocol == "gemini" else [TOO_LONG, "é" * 129, "x" * 3_000_000, "ß" * 500_000]
        for name in names:
            path, body = requests(name)[protocol]
            start = time.perf_counter()
            response = here.send(key, (path, body))
            assert time.perf_counter() - start < 15
            assert "at most 256 bytes" in body_of(here.http, response, protocol)
            assert max(len(value) for value in response.headers.values()) < 200
        longest = requests("é" * 128)[protocol]
        assert here.send(key, longest).status_code == 404  # it is looked up
        assert here.upstream.bodies == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_with_a_control_character_is_refused_before_the_endpoint_is_asked(name: str, tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        for protocol, (path, body) in requests(name).items():
            if protocol == "gemini":
                path = "/v1beta/models/" + "".join(f"%{byte:02x}" for byte in name.encode()) + ":generateContent"
            assert "control character" in body_of(here.http, here.send(key, (path, body)), protocol)
        encoded = "".join(f"%{byte:02X}" for byte in name.replace("/", "").encode())
        for path in (f"/v1/models/{encoded}", f"/v1/responses/{encoded}", f"/v1/requests/{encoded}"):
            response = here.http.get(path, headers={"authorization": f"Bearer {key}"})
            assert "control character" in body_of(here.http, response, "openai-chat")
        assert here.upstream.bodies == []


def test_a_refusal_quotes_a_short_name_whole_and_the_beginning_of_another(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        for length, quoted in ((40, "x" * 39 + "\\x00' has"), (41, "x" * 40 + "'… has")):
            response = here.send(here.key(str(length)), requests("x" * (length - 1) + "\0")["openai-chat"])
            assert f"model: '{quoted} a control character" in body_of(here.http, response, "openai-chat")


def test_options_are_bounded_by_their_names_and_their_number(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        for protocol, (path, body) in requests().items():
            many = {f"temperatur{number}": 1 for number in range(MOST_OPTIONS)}
            for odd in (
                {"x" * 129: 1}, {"metadata": {"ü" * 65: "x"}}, {**many, "one_more": 1},
                {f"temperatur{number}": 1 for number in range(60_000)},
            ):  # fmt: skip
                start = time.perf_counter()
                body_of(here.http, here.send(key, (path, {**body, **odd})), protocol)
                assert time.perf_counter() - start < 15
            assert here.upstream.bodies == []
            for usual in ({"x" * 128: 1}, many):
                assert here.send(key, (path, {**body, **usual})).status_code == 200
            here.upstream.bodies.clear()


def test_the_options_of_a_long_conversation_are_bounded_too(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        for protocol, (path, body) in requests().items():
            (name,) = {"messages", "input", "contents"} & body.keys()
            (turn,) = [{"role": "user", "content": body[name]}] if name == "input" else body[name]
            for count in (20, 200):  # of the second, most turns are remembered
                long = {**body, name: [turn] * count, "metadata": {"x": "y" * 5000}}
                assert here.send(key, (path, long)).status_code == 200
                here.upstream.bodies.clear()
                for odd in ({"x" * 129: 1}, {"metadata": {"ü" * 65: "x" * 5000}}):
                    body_of(here.http, here.send(key, (path, {**long, **odd})), protocol)
                assert here.upstream.bodies == []


def test_other_names_of_a_request_are_bounded(tmp_path: Path) -> None:
    long = "n" * 5000
    tool = {"type": "function", "function": {"name": long, "parameters": {"type": "object"}}}
    spoken = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": long, "arguments": "{}"}}],
    }
    answer = {"role": "tool", "tool_call_id": "1", "content": "x"}
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        path, body = requests()["openai-chat"]
        for odd in ({"tools": [tool]}, {"messages": [*body["messages"], spoken, answer]}):
            body_of(here.http, here.send(key, (path, {**body, **odd})), "openai-chat")
        other, input = requests()["openai-responses"]
        body_of(here.http, here.send(key, (other, {**input, "previous_response_id": long})), "openai-responses")
        headers = {"authorization": f"Bearer {key}"}
        for url in (f"/v1/responses/{long}", f"/v1/requests/{long}", f"/v1/responses/{long}/input_items"):
            body_of(here.http, here.http.get(url, headers=headers), "openai-chat")
        body_of(here.http, here.http.get("/v1/models?" + "a&" * MOST_FIELDS, headers=headers), "openai-chat")
        odd_header = {**headers, "anthropic-beta": long}
        messages, sent = requests()["anthropic-messages"]
        body_of(here.http, here.http.post(messages, json=sent, headers=odd_header), "anthropic-messages")
        assert here.upstream.bodies == []


def test_the_gateway_suggests_no_names(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        for protocol, request in requests("deepsek-v4-pro").items():
            response = here.send(key, request)
            assert response.status_code == 404
            assert "did you mean" not in sentence(protocol, response.json())[0]


def test_a_path_is_decoded_once(tmp_path: Path) -> None:
    with setting(tmp_path, say("Hello")) as here:
        key, headers = here.key(), {}
        headers["authorization"] = f"Bearer {key}"
        assert here.http.get("/v1/models/here%2Fpriced", headers=headers).json()["id"] == "here/priced"
        twice = here.http.get("/v1/models/here%252Fpriced", headers=headers)
        assert twice.status_code == 404
        assert "here%2Fpriced" in twice.text


def test_refused_names_take_no_memory_and_no_line_of_a_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cnllm.gateway")
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        path, body = requests()["openai-chat"]
        for number in range(5):
            here.send(key, (path, {**body, "model": f"here/m{number}" + "x" * 1_000_000}))
            here.send(key, (path, {**body, f"o{number}" + "x" * 1_000_000: 1}))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 10
    assert max(map(len, lines)) < 1500


def test_the_log_keeps_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cnllm.gateway.access_log._KEPT_BYTES", 100_000)
    log = AccessLog()
    for number in range(50):
        notes = [Note("param-unknown", "params", "s" * 5_000_000, "d") for _ in range(1 + number % 3)]
        log.write(Entry(str(number), "POST", "/", outcome="o" * 1_000_000, notes=notes * 100), "me")
    kept = [log.request("me", str(number)) for number in range(50) if str(number) in log._entries]
    assert 1 <= len(kept) < 10
    assert sum(len(json.dumps(entry)) for entry in kept) < 250_000
    assert kept[-1]["id"] == "49"


def test_the_log_takes_no_more_memory_than_it_counts() -> None:
    log = AccessLog()

    def write(number: int) -> None:
        usage, cost = Usage(100, 20, 120), Cost(Decimal(number) / 1000, "CNY")
        notes = [Note("prefix-broken", "price.cached", f"messages[{number}]", "nobody knows how many tokens")]
        entry = Entry(f"req_{number:024}", "POST", "/v1/chat/completions", number + 0.5, 200, "generate", notes=notes)
        entry.protocol, entry.model, entry.finish, entry.usage, entry.cost = (
            "openai-chat",
            "here/p",
            "done",
            usage,
            cost,
        )
        log.write(entry, "me")

    write(0)
    tracemalloc.start()
    try:
        for number in range(1, 10_000):
            write(number)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(log._entries) > 2500
    assert grown < 1.1 * access_log._KEPT_BYTES
    assert log.request("me", f"req_{9999:024}")["cost"] == {"amount": "9.999", "currency": "CNY"}


def test_a_long_name_costs_no_comparison_in_the_library() -> None:
    registry = Registry.load()
    start = time.process_time()
    for name in ("x" * 2_000_000, "deepseek-" * 200_000, "nobody/" * 200_000):
        with pytest.raises(UnknownModel) as caught:
            registry.resolve(name)
        assert caught.value.close == []
        assert len(str(caught.value)) < 500
    assert time.process_time() - start < 5


@pytest.mark.parametrize("id", ["%" + "25" * 40_000 + "2e", "a%252fb", "%2525252e"])
def test_an_id_that_is_encoded_twice_is_refused_at_once(id: str, tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text(
        '[providers.gem]\nprotocol = "gemini"\nbase_url = "http://127.0.0.1:1/v1beta"\nkeys = []\n'
    )
    registry = Registry.load(str(tmp_path / "o.toml"))
    start = time.process_time()
    with pytest.raises(CannotSend):
        engine.build_request(registry.resolve(f"gem/{id}"), "Hi")
    assert time.process_time() - start < 3


TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
FULL: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "name": "n", "content": "u"}],
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "reasoning_effort": "low", "service_tier": "auto", "user": "u", "verbosity": "low",
    },
    "openai-responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "u"}]}],
        "tools": [{"type": "function", **TOOL}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low", "summary": "auto"}, "include": ["x"], "truncation": "auto",
    },
    "anthropic-messages": {
        "max_tokens": 9, "system": [{"type": "text", "text": "s"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f"}, "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "u"}]}],
        "tools": [{"functionDeclarations": [TOOL]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"responseMimeType": "text/plain", "thinkingConfig": {"thinkingLevel": "low"}},
    },
}  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the values of a body that hold no others."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path
        return
    for key, inner in items:
        yield from leaves(inner, (*path, key))


@pytest.mark.share(2)
@pytest.mark.parametrize("protocol", list(FULL))
def test_a_refusal_quotes_little_of_what_the_client_sent(protocol: str, tmp_path: Path) -> None:
    refused = 0
    with setting(tmp_path, say("Hello")) as here:
        key = here.key()
        path, body = requests()[protocol]
        for leaf in leaves(FULL[protocol]):
            for long in ("x" * 50_000, "%25" * 20_000, 10**4000):
                full = json.loads(json.dumps(FULL[protocol]))
                *parents, last = leaf
                functools.reduce(lambda inner, name: inner[name], parents, full)[last] = long
                response = here.send(key, (path, {**body, **full}))
                if response.status_code != 200:
                    refused += 1
                    assert len(response.text) < 1000, (leaf, response.text[:200])
    assert refused > 5


def test_an_answer_bounds_what_an_endpoint_says(tmp_path: Path) -> None:
    with setting(tmp_path, Answer(status=400, body={"error": {"message": "x" * 100_000}})) as here:
        response = here.send(here.key(), requests()["openai-chat"])
        assert response.status_code == 400
        assert len(response.text) < 5000
