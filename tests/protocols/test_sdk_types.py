"""Bodies and streams of every protocol are what the official SDKs' types say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Finished, ToolCall, ToolCallDelta, ToolCallStart, engine
from cnllm.protocols import PROTOCOLS

from .clients import CHAT, GEMINI, MESSAGES, RESPONSES, endpoint, tool_body
from .test_client_tools import APPLY_PATCH, PATCH, call, function, written
from .test_client_tools import request as codex_request
from .test_pairs import ASKED, events, read, replies, streamed

pytest.importorskip("pydantic")


def frames(content: bytes) -> list[Any]:
    """The data of a stream's frames."""
    lines = [line[6:] for line in content.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def adapters(protocol: str) -> tuple[Any, Any]:
    """The SDK's types of a whole body and of one frame."""
    from pydantic import TypeAdapter

    if protocol == CHAT:
        chat = pytest.importorskip("openai.types.chat")
        return TypeAdapter(chat.ChatCompletion), TypeAdapter(chat.ChatCompletionChunk)
    if protocol == RESPONSES:
        responses = pytest.importorskip("openai.types.responses")
        return TypeAdapter(responses.Response), TypeAdapter(responses.ResponseStreamEvent)
    if protocol == MESSAGES:
        types = pytest.importorskip("anthropic.types")
        return TypeAdapter(types.Message), TypeAdapter(types.RawMessageStreamEvent)
    types = pytest.importorskip("google.genai.types")
    return TypeAdapter(types.GenerateContentResponse), TypeAdapter(types.GenerateContentResponse)


def complete(data: dict[str, Any]) -> dict[str, Any]:
    """A body with the one count that the newest type requires and that most endpoints do not report."""
    for holder in (data, data.get("response") or {}):
        usage = holder.get("usage") or {}
        if "input_tokens_details" in usage:
            usage["input_tokens_details"].setdefault("cache_write_tokens", 0)
    return data


def test_bodies_and_streams_have_the_sdk_s_form() -> None:
    for client in PROTOCOLS:
        body, frame = adapters(client)
        request = {**tool_body(client), **(ASKED if client == CHAT else {})}
        for target in PROTOCOLS:
            for meant in replies(target).values():
                arrived, reply = read(target, streamed(target, events(meant)))
                parsed = body.validate_python(complete(engine.encode_reply(client, reply, request=request)))
                written = frames(streamed(client, arrived, request=request, input_tokens=12))
                for data in written:
                    frame.validate_python(complete(data))
                if client == RESPONSES:
                    assert parsed.id.startswith("resp_") or target == RESPONSES
                    assert parsed.prompt_cache_key == "key-1"
                    assert parsed.instructions == "Be brief."
                    assert [tool.name for tool in parsed.tools] == ["weather", "news"]
                    assert len({item.id for item in parsed.output}) == len(parsed.output)
                if client == MESSAGES:
                    assert written[0]["message"]["usage"]["input_tokens"] == 12
                    assert written[-2]["usage"]["input_tokens"] == 15  # 5 of 20 came from the cache


def test_calls_of_the_client_s_own_tools_have_the_sdk_s_form() -> None:
    body, frame = adapters(RESPONSES)
    search = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "files", "description": "", "tools": [function("read")]}
    asked = codex_request(tools=[APPLY_PATCH, space, search, {"type": "local_shell"}])
    shell = ToolCall("s", "local_shell", {"command": ["ls"]}, '{"command":["ls"]}')
    calls = [call("apply_patch", input=PATCH), call("files__read", q="a"), shell, call("tool_search", q="mail")]
    whole, stream = written(asked, *calls)
    types = [type(item).__name__ for item in body.validate_python(complete(whole)).output]
    assert types[:3] == ["ResponseCustomToolCall", "ResponseFunctionToolCall", "LocalShellCall"]
    for data in stream:
        frame.validate_python(complete(data))
    chat_body, chunk = adapters(CHAT)
    custom = {"type": "custom", "custom": {"name": "apply_patch"}}
    whole, stream = written({"messages": [], "tools": [custom]}, calls[0], protocol=CHAT)
    assert chat_body.validate_python(whole).choices[0].message.tool_calls[0].type == "custom"
    assert chunk.validate_python(stream[-1]).choices[0].finish_reason == "tool_calls"  # its chunks know functions only


def test_usage_comes_where_it_is_asked_for() -> None:
    meant = events(replies(CHAT)["plain"])
    for request, count in (({}, 0), ({"stream_options": {"include_usage": False}}, 0), (ASKED, 1)):
        chunks = frames(streamed(CHAT, meant, request=request))
        assert len([chunk for chunk in chunks if chunk.get("usage")]) == count


def test_ids_are_new_for_each_reply_without_one() -> None:
    for protocol in (CHAT, MESSAGES, RESPONSES):
        bodies = [engine.StreamWriter(protocol).begin() for _ in range(2)]
        assert bodies[0] != bodies[1]
    for foreign in ("chatcmpl-1", "msg_1", "resp_1"):
        for protocol, prefix in ((CHAT, "chatcmpl-"), (MESSAGES, "msg_"), (RESPONSES, "resp_")):
            assert f'"id":"{prefix}1"'.encode() in engine.StreamWriter(protocol, id=foreign).begin()
    for protocol, own in ((CHAT, "chatcmpl-1.a"), (MESSAGES, "msg_1.a"), (RESPONSES, "resp_1.a"), (CHAT, "x.1")):
        assert f'"id":"{own}"'.encode() in engine.StreamWriter(protocol, id=own).begin()
    assert b'"responseId"' not in engine.StreamWriter(GEMINI).feed(Finished("stop"))


def test_headers_that_ask_for_features_stay_on_their_protocol() -> None:
    headers = {"Anthropic-Beta": "context-1m", "Authorization": "Bearer secret", "X-Other": "1"}
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    request = engine.decode_request(MESSAGES, body, headers=headers)
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), request.messages, **request.options)
        sent = {name.lower(): value for name, value in plan.headers.items()}
        assert (sent.get("anthropic-beta") == "context-1m") == (protocol == MESSAGES)
        assert "secret" not in str(plan.headers)
        assert "x-other" not in sent
        assert [note.code for note in plan.notes].count("key-foreign") == (protocol != MESSAGES)


def test_a_cut_call_is_incomplete() -> None:
    asked = codex_request(tools=[APPLY_PATCH])
    writer = engine.StreamWriter(RESPONSES, request=asked)
    content = writer.begin() + writer.feed(ToolCallStart(0, "c", "apply_patch"))
    content += writer.feed(ToolCallDelta(0, '{"input": "*** Beg')) + writer.feed(Finished("length"))
    last = frames(content)[-1]
    assert last["type"] == "response.incomplete"
    assert (last["response"]["output"][0]["status"], last["response"]["output"][0]["input"]) == (
        "incomplete",
        "*** Beg",
    )
