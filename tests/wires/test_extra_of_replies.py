"""Data about a reply: log probabilities, tiers, fingerprints, and what an endpoint's usage holds beside the counts."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from cnllm import Finished, Registry, Reply, TextDelta, ToolCall, ToolCallEnd, ToolCallStart, engine
from cnllm.protocols import PROTOCOLS
from cnllm.types import ExtraAdded
from docs.generate.reply_fields import REPLIES

Json = dict[str, Any]
REGISTRY = Registry.load()


def token(text: str, logprob: float) -> Json:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


TOKENS = [
    {**token("Hel", -0.1), "top_logprobs": [token("Hel", -0.1), token("Hi", -2.5)]},
    {**token("lo", -0.2), "top_logprobs": []},
]
COST = {"cost": 0.5, "server_tool_use": {"web_search_requests": 2}}
CHAT_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, **COST}
OPENAI_USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, **COST}
ANTHROPIC = {
    "server_tool_use": {"web_search_requests": 2},
    "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 4},
    "service_tier": "priority",
}
ABOUT = {"service_tier": "priority", "system_fingerprint": "fp_1"}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}


def output(tokens: list[Json]) -> list[Json]:
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": tokens}
    return [{**MESSAGE, "content": [part]}]


def gemini(tokens: list[Json]) -> Json:
    def one(item: Json) -> Json:
        return {"token": item["token"], "logProbability": item["logprob"]}

    tops = [{"candidates": [one(other) for other in item["top_logprobs"]]} for item in tokens]
    return {"chosenCandidates": [one(item) for item in tokens], "topCandidates": tops}


RESPONSE = {"status": "completed", "output": output(TOKENS), "service_tier": "priority", "usage": OPENAI_USAGE}
WHOLE: dict[str, Json] = {
    "openai-chat": {
        **ABOUT,
        "choices": [{"message": {"content": "Hello"}, "logprobs": {"content": TOKENS}, "finish_reason": "stop"}],
        "usage": CHAT_USAGE,
    },
    "anthropic-messages": {
        "type": "message",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "usage": {"input_tokens": 3, "output_tokens": 2, **ANTHROPIC},
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP", "logprobsResult": gemini(TOKENS)}
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5, "trafficType": "X"},
    },
    "openai-responses": RESPONSE,
}
PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
STREAMS: dict[str, list[Json]] = {
    "openai-chat": [
        *(
            {
                **ABOUT,
                "id": "1",
                "model": "m",
                "choices": [{"index": 0, "delta": {"content": item["token"]}, "logprobs": {"content": [item]}}],
            }
            for item in TOKENS
        ),
        {**ABOUT, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**ABOUT, "choices": [], "usage": CHAT_USAGE},
    ],
    "anthropic-messages": [
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 3, **ANTHROPIC}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ],
    "gemini": [
        *(
            {"candidates": [{"content": {"parts": [{"text": item["token"]}]}, "logprobsResult": gemini([item])}]}
            for item in TOKENS
        ),
        {
            "candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
            "usageMetadata": WHOLE["gemini"]["usageMetadata"],
        },
    ],
    "openai-responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
        *(
            {"type": "response.output_text.delta", **PLACE, "delta": item["token"], "logprobs": [item]}
            for item in TOKENS
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": output(TOKENS)[0]},
        {"type": "response.completed", "response": RESPONSE},
    ],
}
EXTRA: dict[str, Json] = {
    "openai-chat": {**ABOUT, "logprobs": TOKENS, "usage": COST},
    "anthropic-messages": {"usage": ANTHROPIC, "stop_sequence": "END"},
    "gemini": {"logprobs": TOKENS, "usage": {"trafficType": "X"}},
    "openai-responses": {"service_tier": "priority", "logprobs": TOKENS, "usage": COST},
}


def endpoint(protocol: str) -> Any:
    return REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)


def read(protocol: str, stream: bool) -> tuple[list[Any], Reply]:
    model = endpoint(protocol)
    if not stream:
        plan = engine.build_request(model, "Hi")
        return [], engine.parse_response(model, 200, {}, json.dumps(WHOLE[protocol]).encode(), plan=plan)
    parser = engine.StreamParser(model)
    events = parser.feed(b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in STREAMS[protocol]))
    return [*events, *parser.end()], parser.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reply_has_what_its_endpoint_says_about_it(protocol: str, stream: bool) -> None:
    _, reply = read(protocol, stream)
    assert reply.text == "Hello"
    assert reply.extra == EXTRA[protocol]
    assert (reply.usage.input, reply.usage.output) == (3, 2)


def test_a_usual_body_keeps_it_on_the_quick_way() -> None:
    body = {**WHOLE["openai-chat"], "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    plan = engine.build_request(endpoint("openai-chat"), "Hi")
    quick = engine.parse_response(endpoint("openai-chat"), 200, {}, json.dumps(body).encode(), plan=plan)
    assert quick.extra == {**ABOUT, "usage": COST}
    assert quick.extra == engine.parse_response(endpoint("openai-chat"), 200, {}, json.dumps(body).encode()).extra


def test_empty_and_odd_values_say_nothing_about_a_reply() -> None:
    odd = {"service_tier": "", "system_fingerprint": 7, "moderation": [1], "metadata": {}}
    model, choice = endpoint("openai-chat"), {"message": {"content": "Hello"}, "finish_reason": "stop"}
    body = json.dumps({**odd, "choices": [choice]}).encode()
    plan = engine.build_request(model, "Hi")
    replies = [engine.parse_response(model, 200, {}, body, plan=request) for request in (plan, None)]
    parser = engine.StreamParser(model)
    chunks = [{**odd, "choices": [{"delta": {"content": "Hello"}}]}, {**odd, "choices": [{**choice, "delta": {}}]}]
    parser.feed(b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks))
    parser.end()
    assert [reply.extra for reply in (*replies, parser.close())] == [{}, {}, {}]


def client_body(client: str, events: list[Any], reply: Reply) -> Json:
    """What a client reads of the data: the body, or what its stream adds up to."""
    if not events:
        return engine.encode_reply(client, reply)
    writer = engine.StreamWriter(client, id="x", model="m", request={"stream_options": {"include_usage": True}})
    data = writer.begin() + b"".join(map(writer.feed, events))
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
    chunks: list[Json] = [json.loads(line) for line in lines if line != b"[DONE]"]
    if client == "openai-chat":
        tokens = [t for c in chunks if c["choices"] for t in (c["choices"][0].get("logprobs") or {}).get("content", ())]
        last = next(chunk for chunk in chunks if not chunk["choices"])
        return {**last, "choices": [{"logprobs": {"content": tokens} if tokens else None}]}
    if client == "anthropic-messages":
        delta = next(chunk for chunk in chunks if chunk["type"] == "message_delta")
        return {"usage": delta["usage"], **delta["delta"]}
    return chunks[-1] if client == "gemini" else chunks[-1]["response"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("client", PROTOCOLS)
def test_a_client_reads_what_its_wire_has_a_place_for(client: str, target: str, stream: bool) -> None:
    body = client_body(client, *read(target, stream))
    extra = EXTRA[target]
    has_tokens = "logprobs" in extra
    counts = {key: value for key, value in extra["usage"].items() if key.islower()}
    match client:
        case "openai-chat":
            logprobs = body["choices"][0]["logprobs"]
            assert (logprobs["content"] == TOKENS) if has_tokens else logprobs is None
            assert counts.items() <= body["usage"].items()
            for key in ("service_tier", "system_fingerprint"):
                assert body.get(key) == extra.get(key)
        case "anthropic-messages":
            assert counts.items() <= body["usage"].items()
            assert body["stop_sequence"] == extra.get("stop_sequence")
        case "gemini":
            candidate = body["candidates"][0]
            assert candidate.get("logprobsResult") == (gemini(TOKENS) if has_tokens else None)
            assert (body["usageMetadata"].get("trafficType") == "X") == (target == "gemini")
        case "openai-responses":
            part = body["output"][0]["content"][0]
            assert part["logprobs"] == (TOKENS if has_tokens else [])
            assert body["service_tier"] == extra.get("service_tier", "default")
            assert counts.items() <= body["usage"].items()


PLACES = {
    "openai-chat": ["", "usage.prompt_tokens_details", "usage.completion_tokens_details"],
    "anthropic-messages": ["", "usage"],
    "gemini": ["", "candidates[]", "usageMetadata"],
    "openai-responses": ["", "usage.input_tokens_details"],
}
"""The objects of a reply whose own keys go through, by wire."""
LAST = {"anthropic-messages": (-2, "delta"), "openai-responses": (-1, "response")}


def holder(protocol: str, body: Json, place: str) -> Json:
    """The object at a place of a body, or of the last part of a stream."""
    for name in filter(None, place.split(".")):
        body = body[name[:-2]][0] if name.endswith("[]") else body.setdefault(name, {})
    return body


BESIDE = {"context_management", "input_transformations"}
"""Keys of Messages that stand beside the delta of a message: `BetaRawMessageDeltaEvent` of Anthropic's SDK."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_field_that_the_table_keeps_reaches_the_caller_and_the_client_of_its_wire(
    protocol: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in PLACES[protocol]:
        for name, row in REPLIES[protocol][place].items():
            if row.outcome != "keep" or name in {"stop_sequence", *ABOUT, *ANTHROPIC}:
                continue
            value: Any = 7 if "token" in name.lower() else {"marked": [name]}
            whole, chunks = copy.deepcopy(WHOLE[protocol]), copy.deepcopy(STREAMS[protocol])
            at, key = LAST.get(protocol, (-1, ""))
            last = chunks[at][key] if key and not place.startswith("usage") else chunks[at].get("response", chunks[at])
            is_beside = protocol == "anthropic-messages" and name in BESIDE
            if is_beside:
                last = chunks[at]
            holder(protocol, last if stream else whole, place)[name] = value
            monkeypatch.setitem(WHOLE, protocol, whole)
            monkeypatch.setitem(STREAMS, protocol, chunks)
            events, reply = read(protocol, stream)
            assert msgspec.json.encode({name: value})[1:-1] in msgspec.json.encode([reply.extra, reply.message])
            body = client_body(protocol, events, reply)
            if is_beside and stream:
                continue  # it stands beside the delta, as the next test shows
            assert holder(protocol, body, place)[name] == value, (place, name)
            monkeypatch.undo()


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_what_stands_beside_the_delta_of_a_message_stays_there(name: str) -> None:
    chunks = copy.deepcopy(STREAMS["anthropic-messages"])
    chunks[-2][name] = {"applied_edits": [{"type": "clear"}]}
    parser = engine.StreamParser(endpoint("anthropic-messages"))
    events = parser.feed(b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks))
    writer = engine.StreamWriter("anthropic-messages", id="x", model="m")
    data = b"".join(map(writer.feed, [*events, *parser.end()]))
    (delta,) = [line for line in data.splitlines() if line.startswith(b'data: {"type":"message_delta"')]
    assert json.loads(delta[6:])[name] == {"applied_edits": [{"type": "clear"}]}


@pytest.mark.parametrize(
    ("target", "client"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_details_of_counts_have_the_names_of_the_client_s_wire(target: str, client: str) -> None:
    names = {"openai-chat": "prompt_tokens_details", "openai-responses": "input_tokens_details"}
    body = copy.deepcopy(WHOLE[target])
    body["usage"] |= {names[target]: {"cached_tokens": 1, "audio_tokens": 2}}
    reply = engine.parse_response(endpoint(target), 200, {}, json.dumps(body).encode())
    assert reply.usage.cached == 1
    assert engine.encode_reply(client, reply)["usage"][names[client]] == {"cached_tokens": 1, "audio_tokens": 2}


def test_log_probabilities_of_equal_tokens_are_as_many_as_the_tokens() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "ha"}, "logprobs": {"content": [token("ha", 0.0)]}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    parser = engine.StreamParser(REGISTRY.resolve("deepseek/deepseek-flash"))
    parser.feed(b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (chunk, chunk, end)))
    reply = parser.close()
    assert (reply.text, len(reply.extra["logprobs"])) == ("haha", 2)


def test_a_count_that_grows_in_a_stream_is_an_event_each_time() -> None:
    usage: Json = {"input_tokens": 3, "output_tokens": 1, "server_tool_use": {"web_search_requests": 1}}
    later: Json = {"output_tokens": 2, "server_tool_use": {"web_search_requests": 2}}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [], "usage": usage}
    chunks: list[Json] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": later},
        {"type": "message_stop"},
    ]
    parser = engine.StreamParser(REGISTRY.resolve("anthropic/claude-haiku-4-5"))
    events = parser.feed(b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks))
    found = [event.extra["usage"]["server_tool_use"] for event in events if type(event) is ExtraAdded]
    assert found == [{"web_search_requests": 1}, {"web_search_requests": 2}]
    assert parser.close().extra["usage"]["server_tool_use"] == {"web_search_requests": 2}


def test_the_probabilities_of_a_refusal_are_those_of_its_tokens() -> None:
    choice = {
        "message": {"content": None, "refusal": "Hello"},
        "logprobs": {"refusal": TOKENS},
        "finish_reason": "stop",
    }
    body = json.dumps({"choices": [choice]}).encode()
    reply = engine.parse_response(endpoint("openai-chat"), 200, {}, body)
    assert reply.extra == {"refusal": True, "logprobs": TOKENS}
    told = engine.encode_reply("openai-chat", reply)["choices"][0]["logprobs"]
    assert told == {"content": None, "refusal": TOKENS}
    assert [note.said for note in engine.reply_notes("openai-responses", reply)] == ["'logprobs' in the answer"]


def test_each_text_of_a_response_keeps_the_probabilities_of_its_own_tokens() -> None:
    texts = [output([item])[0]["content"][0] for item in TOKENS]
    body = {**WHOLE["openai-responses"], "output": [{**MESSAGE, "content": texts}]}
    reply = engine.parse_response(endpoint("openai-responses"), 200, {}, json.dumps(body).encode())
    told = engine.encode_reply("openai-responses", reply)["output"]
    assert [part["logprobs"] for item in told for part in item["content"]] == [[item] for item in TOKENS]


def test_a_client_of_gemini_reads_why_its_prompt_was_blocked() -> None:
    feedback = {"blockReason": "SAFETY", "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT"}]}
    body = json.dumps({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 3}}).encode()
    reply = engine.parse_response(endpoint("gemini"), 200, {}, body)
    assert engine.encode_reply("gemini", reply)["promptFeedback"] == feedback


@pytest.mark.parametrize("size", [1, 64, 1 << 16])
def test_what_only_a_chunk_in_the_middle_of_a_stream_has_is_kept(size: int) -> None:
    def chunk(text: str, **about: str | None) -> dict[str, Any]:
        return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}], **about}

    plain = [chunk(text) for text in "Hello"]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    for key in ABOUT:
        for place in range(1, len(plain)):
            chunks = [*plain[:place], chunk("!", **{key: "first"}), chunk("?", **{key: None}), *plain[place:]]
            for last, value in ((chunks[:-1], "first"), ([*chunks[:-1], chunk("o", **{key: "last"})], "last")):
                parser = engine.StreamParser(endpoint("openai-chat"))
                data = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in [*last, end])
                for at in range(0, len(data), size):
                    parser.feed(data[at : at + size])
                assert parser.close().extra == {key: value}


def test_tokens_that_come_behind_a_call_stand_with_their_text_in_the_final_response() -> None:
    called = ToolCallStart(0, "c1", "f"), ToolCallEnd(0, ToolCall("c1", "f", {}, "{}"))
    writer = engine.StreamWriter("openai-responses")
    content = writer.begin()
    for event in (TextDelta("Hello"), *called, ExtraAdded({"logprobs": TOKENS}), Finished("tool_calls")):
        content += writer.feed(event)
    last = json.loads([line for line in content.decode().splitlines() if line.startswith("data: {")][-1][6:])
    (part,) = last["response"]["output"][0]["content"]
    assert (part["text"], part["logprobs"]) == ("Hello", TOKENS)
