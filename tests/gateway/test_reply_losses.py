"""What an endpoint says reaches a client of another wire, or a note names it; an odd end is no usual one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocols.replies import frames, read, streamed

from cnllm import Registry, Text
from cnllm.gateway.store.memory import MemoryStore
from cnllm.protocols import PROTOCOLS
from cnllm.sdk import http_client

Json = dict[str, Any]
CHAT, MESSAGES, GEMINI, RESPONSES = PROTOCOLS
USER = {"role": "user", "content": "Rain?"}
REQUESTS: dict[str, tuple[str, Json]] = {
    CHAT: ("/v1/chat/completions", {"messages": [USER]}),
    MESSAGES: ("/v1/messages", {"max_tokens": 99, "messages": [USER]}),
    GEMINI: ("/v1beta/models/MODEL:METHOD", {"contents": [{"role": "user", "parts": [{"text": "Rain?"}]}]}),
    RESPONSES: ("/v1/responses", {"input": "Rain?"}),
}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
TEXT = {"type": "text", "text": "It rains."}


def message(*blocks: Json, stop_reason: str = "end_turn", **keys: Any) -> Json:
    """A reply of Messages."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {**head, "content": list(blocks), "stop_reason": stop_reason, "usage": usage, **keys}


def ask(client: str, target: str, reply: Json, folder: Path, *, stream: bool = False, **keys: Any) -> httpx.Response:
    """The answer that a client gets of an endpoint that answers with a reply."""
    overlay = folder / "own.toml"
    overlay.write_text(f'[providers.own]\nprotocol = "{target}"\nbase_url = "http://127.0.0.1:9/own"\nkeys = []\n')

    def answer(request: httpx.Request) -> httpx.Response:
        if not stream:
            return httpx.Response(200, json=reply)
        content = b"".join(frames(target, streamed(target, reply)))
        return httpx.Response(200, content=content, headers={"content-type": "text/event-stream"})

    registry = Registry.load(overlay)
    http = http_client(registry, transport=httpx.MockTransport(answer), store=MemoryStore(), family="httpx")
    path, body = REQUESTS[client]
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    body = {"model": "own/m", **body, **keys, **({} if client == GEMINI or not stream else {"stream": True})}
    url = "http://cnllm.invalid" + path.replace("MODEL", "own/m").replace("METHOD", method)
    response: httpx.Response = http.post(url, json=body)
    return response


def test_blocks_and_keys_without_a_place_are_in_the_notes(tmp_path: Path) -> None:
    reply = message(SEARCH, TEXT, container={"id": "c1", "expires_at": "2026-11-28T00:00:00Z"})
    for client in (CHAT, GEMINI, RESPONSES):
        codes = ask(client, MESSAGES, reply, tmp_path).headers["x-cnllm-notes"]
        assert "block-foreign" in codes, client
        assert "key-foreign" in codes, client
    assert "foreign" not in ask(MESSAGES, MESSAGES, reply, tmp_path).headers.get("x-cnllm-notes", "")


ODD = ["pause_turn", "compaction", "new_reason"]


@pytest.mark.share(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ODD)
def test_an_odd_stop_reason_is_no_usual_end(word: str, stream: bool, tmp_path: Path) -> None:
    for client in PROTOCOLS:
        response = ask(client, MESSAGES, message(SEARCH, TEXT, stop_reason=word), tmp_path, stream=stream)
        _, seen = read(client, response.content)
        if client == MESSAGES:
            assert seen.raw_finish == word
            continue
        assert (seen.text, seen.finish) == ("It rains.", "length"), client
        if client == RESPONSES:
            assert json.dumps(word) in response.text.rpartition("incomplete_details")[2][:60]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", PROTOCOLS)
def test_an_unknown_reason_of_an_incomplete_response_is_not_that_of_a_limit(
    client: str, stream: bool, tmp_path: Path
) -> None:
    content = [{"type": "output_text", "text": "It rains.", "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": content}
    details = {"reason": "new_reason"}
    reply = {"id": "resp_1", "status": "incomplete", "incomplete_details": details, "output": [item]}
    response = ask(client, RESPONSES, reply, tmp_path, stream=stream)
    _, seen = read(client, response.content)
    assert (seen.text, seen.finish) == ("It rains.", "length")
    if client == RESPONSES:
        assert '"reason":"new_reason"' in response.text
        assert '"reason":"max_output_tokens"' not in response.text
    elif not stream:
        assert "finish-unknown" in response.headers["x-cnllm-notes"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("word", "reason"), [("LENGTH", "MAX_TOKENS"), ("CONTENT_FILTER", "SAFETY"), ("STOP", "STOP")])
def test_a_reason_of_another_wire_in_capitals_is_none_of_gemini(
    word: str, reason: str, stream: bool, tmp_path: Path
) -> None:
    reply = {"choices": [{"index": 0, "message": {"content": "It rains."}, "finish_reason": word}]}
    response = ask(GEMINI, CHAT, reply, tmp_path, stream=stream)
    body = frames_of(response)[-1] if stream else response.json()
    assert body["candidates"][0]["finishReason"] == reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_gemini_can_go_on_with_an_answer_that_was_stopped(stream: bool, tmp_path: Path) -> None:
    """google-genai asks for the rest by itself, with the token, where this is the reason."""
    content = {"role": "model", "parts": [{"text": "It rains."}]}
    candidate = {"index": 0, "content": content, "finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}
    for client in PROTOCOLS:
        response = ask(client, GEMINI, {"candidates": [candidate]}, tmp_path, stream=stream)
        _, seen = read(client, response.content)
        assert (seen.text, seen.finish) == ("It rains.", "length"), client
        if client == GEMINI:
            assert (seen.raw_finish, seen.extra["continuationToken"]) == ("CONTINUATION", "dG9rZW4=")


def test_an_estimate_of_the_input_counts_what_the_cache_read_and_wrote(tmp_path: Path) -> None:
    counts = {"cache_creation_input_tokens": 300, "cache_read_input_tokens": 4000, "output_tokens": 2}
    usage = ask(CHAT, MESSAGES, message(TEXT, usage=counts), tmp_path).json()["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (4300, 4000)


def frames_of(response: httpx.Response) -> list[Json]:
    """The events of a stream."""
    lines = response.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_what_the_first_event_of_an_endpoint_says_stands_in_the_first_for_the_client(tmp_path: Path) -> None:
    """SDKs read these there, and nowhere else."""
    counts = {"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 2}
    written = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}
    usage = {**counts, "cache_creation": written, "service_tier": "standard"}
    about: Json = {"diagnostics": {"cache_miss_reason": None}}
    reply = message(TEXT, usage=usage, **about)
    start = frames_of(ask(MESSAGES, MESSAGES, reply, tmp_path, stream=True))[0]["message"]
    assert start["usage"] == {**usage, "output_tokens": 0}
    assert start["diagnostics"] == about["diagnostics"]

    choice = {"index": 0, "message": {"content": "It rains."}, "finish_reason": "stop"}
    chat = {"id": "1", "model": "m", "choices": [choice], "service_tier": "flex", "system_fingerprint": "fp_1"}
    start = frames_of(ask(CHAT, CHAT, chat, tmp_path, stream=True))[0]
    assert (start["choices"][0]["delta"]["role"], start["service_tier"]) == ("assistant", "flex")
    assert start["system_fingerprint"] == "fp_1"


def test_changes_of_the_input_stand_where_sdks_read_them(tmp_path: Path) -> None:
    changes = [{"type": "thinking_dropped", "message_index": 1, "content_index": 0}]
    reply = message(TEXT, input_transformations=changes)
    end = frames_of(ask(MESSAGES, MESSAGES, reply, tmp_path, stream=True))[-2]
    assert (end["type"], end["input_transformations"]) == ("message_delta", changes)
    assert "input_transformations" not in end["delta"]


PIECES = ["By the page, ", "it rains", ". Take a coat."]
SOURCE = {"type": "web_search_result_location", "url": "https://a.example/1", "title": "t", "cited_text": "rain"}
SPLIT: dict[str, Json] = {
    MESSAGES: message(
        {"type": "text", "text": PIECES[0]},
        {"type": "text", "text": PIECES[1], "citations": [{**SOURCE, "encrypted_index": "e"}]},
        {"type": "text", "text": PIECES[2]},
    ),
    GEMINI: {
        "candidates": [
            {
                "index": 0,
                "content": {
                    "role": "model",
                    "parts": [{"text": PIECES[0]}, {"text": PIECES[1], "thoughtSignature": "s"}, {"text": PIECES[2]}],
                },
                "finishReason": "STOP",
            }
        ]
    },
}
"""An answer in several pieces, as these wires have it where a piece of it has a source or a signature."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", SPLIT)
def test_an_answer_in_pieces_is_one_message_of_a_response(target: str, stream: bool, tmp_path: Path) -> None:
    """Agents of OpenAI's SDK take the last message for the answer."""
    response = ask(RESPONSES, target, SPLIT[target], tmp_path, stream=stream)
    body = frames_of(response)[-1]["response"] if stream else response.json()
    (item,) = body["output"]
    assert "".join(part["text"] for part in item["content"]) == "".join(PIECES)
    notes = [(note["start_index"], note["end_index"]) for part in item["content"] for note in part["annotations"]]
    assert notes == ([(0, 8)] if target == MESSAGES else [])
    if stream:
        done = [frame["item"] for frame in frames_of(response) if frame["type"] == "response.output_item.done"]
        assert done == [item]


@pytest.mark.parametrize("stream", [False, True])
def test_a_signature_in_the_middle_of_a_text_does_not_split_it_for_other_clients(stream: bool, tmp_path: Path) -> None:
    """Gemini signs the last piece of a text. Clients of Messages show each block of text by itself."""
    call = {"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
    reply = json.loads(json.dumps(SPLIT[GEMINI]))
    reply["candidates"][0]["content"]["parts"] += [call, {"text": "Bye"}, {"text": "."}]
    response = ask(MESSAGES, GEMINI, reply, tmp_path, stream=stream)
    if stream:
        starts = [frame["content_block"] for frame in frames_of(response) if frame["type"] == "content_block_start"]
        assert [block["type"] for block in starts] == ["text", "tool_use", "text"]
    parts = read(MESSAGES, response.content)[1].message.parts
    assert [getattr(part, "text", None) for part in parts] == ["".join(PIECES), None, "Bye."]
    own = read(GEMINI, ask(GEMINI, GEMINI, reply, tmp_path, stream=stream).content)[1].message.parts
    assert [part.seal.data for part in own if isinstance(part, Text) and part.seal] == [{"thoughtSignature": "s"}]


REFUSALS: dict[str, Json] = {
    CHAT: {"choices": [{"index": 0, "message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}]},
    RESPONSES: {
        "status": "completed",
        "output": [{"type": "message", "id": "msg_1", "content": [{"type": "refusal", "refusal": "I cannot."}]}],
    },
}


@pytest.mark.parametrize("schema", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", REFUSALS)
def test_a_refusal_of_the_model_has_its_field(target: str, stream: bool, schema: bool, tmp_path: Path) -> None:
    object_format = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
    formats: Json = {CHAT: {"response_format": {"type": "json_schema", "json_schema": object_format}}}
    formats[RESPONSES] = {"text": {"format": object_format}}
    reply = {"id": "1", "model": "m", **REFUSALS[target]}
    for client in (CHAT, RESPONSES):
        keys = formats[client] if schema else {}
        text = ask(client, target, reply, tmp_path, stream=stream, **keys).text
        _, seen = read(client, text.encode())
        assert (seen.text, seen.finish, seen.extra["refusal"]) == ("I cannot.", "content_filter", True), client
        assert '"content":"I' not in text
        assert '"type":"output_text"' not in text
        assert '"finish_reason":"content_filter"' not in text
    for client in (MESSAGES, GEMINI):
        response = ask(client, target, reply, tmp_path, stream=stream)
        assert read(client, response.content)[1].finish == "content_filter"
        assert "key-foreign" not in response.headers.get("x-cnllm-notes", "")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_says_who_made_it_from_its_beginning_on(stream: bool, tmp_path: Path) -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}, "caller": caller}
    text = ask(MESSAGES, MESSAGES, message(call, stop_reason="tool_use"), tmp_path, stream=stream).text
    assert f'"caller":{json.dumps(caller, separators=(",", ":"))}' in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_an_unknown_kind_is_no_usual_end(stream: bool, tmp_path: Path) -> None:
    call = {"id": "call_1", "type": "new_kind", "new_kind": {"name": "n"}}
    choice = {"index": 0, "message": {"content": "Hm.", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    body = {"id": "1", "model": "m", "choices": [choice]}
    for client in PROTOCOLS:
        response = ask(client, CHAT, body, tmp_path, stream=stream)
        _, seen = read(client, response.content)
        assert (response.status_code, seen.finish, seen.tool_calls) == (200 if stream else 502, "error", []), client


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_nothing_but_an_unknown_block_is_not_empty(stream: bool, tmp_path: Path) -> None:
    reply = message({"type": "new_kind_of_block", "data": "x"})
    for client in PROTOCOLS:
        response = ask(client, MESSAGES, reply, tmp_path, stream=stream)
        if client == MESSAGES:
            assert '"new_kind_of_block","data":"x"' in response.text
            assert stream or "answer-missing" in response.headers["x-cnllm-notes"]
        else:
            line = "[new_kind_of_block: this client's protocol has no place for it]"
            assert read(client, response.content)[1].text == line
