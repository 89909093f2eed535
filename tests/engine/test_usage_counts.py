"""Counts of tokens on every wire, whole and streamed: whole numbers from 0 to 2**53, else unknown and noted."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import engine

REGISTRY = cnllm.Registry.load()
VALID: list[float] = [0, 1, 12, 12.0, 2**53, float(2**53)]
INVALID: list[Any] = [-1, 12.5, 2**53 + 1, 2**63, 10**19, 10**400, 1e308, "12", True, [], {"a": 1}]


def chat(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"prompt_tokens": input, "completion_tokens": output}
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "finish_reason": "stop", ("delta" if stream else "message"): message}
    return [{"id": "x", "choices": [choice], "usage": usage}, *(["[DONE]"] if stream else [])]


def messages(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"input_tokens": input, "output_tokens": output}
    message = {"id": "x", "type": "message", "role": "assistant", "content": [], "usage": usage}
    text = {"type": "text", "text": "Hi"}
    if not stream:
        return [{**message, "content": [text], "stop_reason": "end_turn"}]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]


def responses(input: Any, output: Any, stream: bool) -> list[Any]:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}], "id": "m"}
    usage = {"input_tokens": input, "output_tokens": output}
    body = {"id": "x", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [{"type": "response.completed", "response": body}] if stream else [body]


def gemini(input: Any, output: Any, stream: bool) -> list[Any]:
    usage = {"promptTokenCount": input, "candidatesTokenCount": output}
    content = {"role": "model", "parts": [{"text": "Hi"}]}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]


WIRES: dict[str, Any] = {
    "openai-chat": chat,
    "anthropic-messages": messages,
    "openai-responses": responses,
    "gemini": gemini,
}


def read(protocol: str, input: Any, output: Any, stream: bool) -> cnllm.Reply:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    plan = engine.build_request(model, "Hi", stream=stream, max_tokens=100)
    events = WIRES[protocol](input, output, stream)
    if not stream:
        return engine.parse_response(model, 200, {}, json.dumps(events[0]).encode(), plan=plan)
    parser = engine.StreamParser(model, plan=plan)
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        text = event if isinstance(event, str) else json.dumps(event)
        parser.feed(f"{name}data: {text}\n\n".encode())
    return parser.close()


@each("protocol", list(WIRES))
@pytest.mark.parametrize("stream", [False, True])
def test_a_count_is_a_whole_number_or_unknown(protocol: str, stream: bool) -> None:
    for value in VALID:
        reply = read(protocol, value, 7, stream)
        assert (reply.usage.input, type(reply.usage.input), reply.usage.output) == (int(value), int, 7)
        assert [note for note in reply.notes if note.code == "usage-invalid"] == []
        assert read(protocol, 7, value, stream).usage.output == int(value)
    for value in INVALID:
        for is_input in (True, False):
            reply = read(protocol, value if is_input else 7, 7 if is_input else value, stream)
            counts = (reply.usage.input, reply.usage.output)
            assert counts == ((None, 7) if is_input else (7, None)), value
            notes = [note for note in reply.notes if note.code == "usage-invalid"]
            assert len(notes) == 1, value
            assert len(str(notes[0])) < 300
            assert reply.text == "Hi"
            json.dumps(reply.to_dict())


PRICE = "{ currency = 'USD', input = 1, output = 2, cached = 0.1, cache_write = 3, cache_write_1h = 4 }"
PARTS: list[tuple[str, str, str | tuple[str, ...]]] = [
    ("openai-chat", "prompt_tokens_details.cached_tokens", "cached"),
    ("openai-responses", "input_tokens_details.cached_tokens", "cached"),
    ("openai-responses", "input_tokens_details.cache_write_tokens", "cache_write"),
    ("anthropic-messages", "cache_creation_input_tokens", ("input", "cache_write")),
    ("anthropic-messages", "cache_read_input_tokens", ("input", "cached")),
    ("anthropic-messages", "cache_creation.ephemeral_1h_input_tokens", "cache_write_1h"),
    ("gemini", "cachedContentTokenCount", "cached"),
    ("gemini", "thoughtsTokenCount", "output"),
    ("gemini", "toolUsePromptTokenCount", "input"),
]


@each("protocol, path, missing", PARTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("value", ["50", -1, 12.5])
def test_a_part_whose_count_cannot_be_read_is_missing(
    tmp_path: Path, protocol: str, path: str, missing: str | tuple[str, ...], stream: bool, value: Any
) -> None:
    file = tmp_path / "providers.toml"
    extra = f"price = {PRICE}\nusage.cache_write = ['input_tokens_details.cache_write_tokens']\n"
    wire = f"price = {PRICE}\n" if protocol != "openai-responses" else extra
    file.write_text(f'[models."openai-compatible/m"]\n{wire}', encoding="utf-8")
    model = cnllm.Registry.load(file).resolve("openai-compatible/m", base_url="http://127.0.0.1:9", protocol=protocol)
    events = WIRES[protocol](100, 7, stream)
    whole = events[0]
    usage = whole.get("usage") or whole.get("usageMetadata") or (whole.get("message") or whole["response"])["usage"]
    place, _, key = path.rpartition(".")
    (usage.setdefault(place, {}) if place else usage)[key] = value
    if path.startswith("cache_creation."):
        usage["cache_creation_input_tokens"] = 60
    plan = engine.build_request(model, "Hi", stream=stream, max_tokens=100)
    if stream:
        parts = [
            (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
            for event in events
            if isinstance(event, dict)
        ]
        data = "".join(parts).encode()
    else:
        data = json.dumps(whole).encode()
    reply = engine.parse_response(model, 200, {}, data, plan=plan)
    assert reply.text == "Hi"
    assert reply.cost is not None
    assert reply.cost.missing == ((missing,) if isinstance(missing, str) else missing)
    if missing == "cached":
        assert reply.cost.amount * 1_000_000 == 100 * Decimal("0.1") + 7 * 2
        assert reply.cost.at_most is not None
        assert reply.cost.at_most * 1_000_000 == 100 + 7 * 2


def test_counts_that_become_unreadable_are_unknown() -> None:
    model = REGISTRY.resolve("zai/glm-4.7")
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
    first = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage}
    broken = dict.fromkeys(usage, "100")
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": broken}
    body = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in (first, last))
    cost = engine.parse_response(model, 200, {}, body).cost
    assert cost is not None
    assert (cost.missing, cost.at_most) == (("input", "output"), None)


def test_calls_whose_number_cannot_be_read_are_unknown() -> None:
    model = REGISTRY.resolve("anthropic/claude-opus-5")
    for value in ("3", -1, 1.5):
        [body] = messages(100, 7, False)
        body["usage"]["server_tool_use"] = {"web_search_requests": value}
        cost = engine.parse_response(model, 200, {}, json.dumps(body).encode()).cost
        assert cost is not None
        assert (cost.missing, cost.at_most) == (("web_search",), None)


def test_sound_whose_count_cannot_be_read_is_unknown() -> None:
    model = REGISTRY.resolve("google/gemini-2.5-flash", protocol="gemini")
    [body] = gemini(1000, 7, False)
    body["usageMetadata"]["promptTokensDetails"] = [{"modality": "AUDIO", "tokenCount": "800"}]
    cost = engine.parse_response(model, 200, {}, json.dumps(body).encode()).cost
    assert cost is not None
    assert cost.missing == ("input_audio",)
    assert cost.at_most is not None
    assert cost.at_most > cost.amount


@each("protocol", list(WIRES))
def test_a_sum_that_is_no_count_is_unknown(protocol: str) -> None:
    assert read(protocol, 2**53, 2**53, False).usage.total is None


@each("protocol", list(WIRES))
@pytest.mark.parametrize("many", [{f"k{i}": i for i in range(2000)}, {"k": [1] * 2000}, {"k": {"l": "x" * 200_000}}])
def test_a_usage_object_keeps_a_bounded_number_of_values(protocol: str, many: dict[str, Any]) -> None:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    plan = engine.build_request(model, "Hi", stream=True)
    parser = engine.StreamParser(model, plan=plan)
    for event in WIRES[protocol](3, 7, True):
        if isinstance(event, dict):
            for usage in (event.get("usage"), event.get("usageMetadata"), (event.get("response") or {}).get("usage")):
                if isinstance(usage, dict):
                    usage.update(many)
        parser.feed(b"data: " + (event.encode() if isinstance(event, str) else json.dumps(event).encode()) + b"\n\n")
    reply = parser.close()
    assert (reply.usage.input, reply.usage.output, reply.text) == (3, 7, "Hi")
    assert len(json.dumps(reply.extra)) < 20_000
    assert [note.code for note in reply.notes].count("usage-invalid") == 1


@each("protocol", list(WIRES))
def test_counts_of_a_whole_body_are_all_kept_or_noted(protocol: str) -> None:
    model = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    [body] = WIRES[protocol](3, 7, False)
    details = {f"k{i}": i for i in range(2000)}
    body["usageMetadata" if protocol == "gemini" else "usage"]["details"] = details
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=engine.build_request(model, "Hi"))
    assert (reply.usage.input, reply.usage.output) == (3, 7)
    is_noted = "usage-invalid" in [note.code for note in reply.notes]
    assert is_noted or reply.extra["usage"]["details"] == details


def claude_stream(start: dict[str, int | dict[str, int]], end: dict[str, int]) -> list[Any]:
    first, *middle, last, stop = messages(0, 0, True)
    first["message"]["usage"] = {"output_tokens": 1, **start}
    return [first, *middle, {**last, "usage": {"output_tokens": 7, **end}}, stop]


def read_claude(events: list[Any]) -> cnllm.Reply:
    """Read a reply to a request that writes to a cache of an hour and to one of minutes."""
    model = REGISTRY.resolve("anthropic/claude-opus-5")
    texts = [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": ttl}}
        for text, ttl in (("a", "1h"), ("b", "5m"))
    ]
    plan = engine.build_request(model, [{"role": "user", "content": texts}], stream=True)
    parser = engine.StreamParser(model, plan=plan)
    for event in events:
        parser.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return parser.close()


@each("beside", [{}, {"service_tier": "standard"}])
def test_the_times_of_fewer_writes_say_nothing_of_all_of_them(beside: dict[str, Any]) -> None:
    """The last event counts what the steps of a search have written as well, and has no times."""
    kept = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000}
    start = {"input_tokens": 10, "cache_creation_input_tokens": 1000, "cache_creation": kept, **beside}
    reply = read_claude(claude_stream(start, {"input_tokens": 20, "cache_creation_input_tokens": 5000}))
    assert (reply.usage.cache_write, reply.usage.cache_write_1h, reply.extra.get("usage", {})) == (5000, None, beside)
    assert reply.cost is not None
    low, most = 20 * 5 + 7 * 25 + 5000 * Decimal("6.25"), 20 * 5 + 7 * 25 + 5000 * 10
    assert (reply.cost.amount * 1_000_000, reply.cost.missing) == (low, ("cache_write_1h",))
    assert reply.cost.at_most is not None
    assert reply.cost.at_most * 1_000_000 == most
    same = read_claude(claude_stream(start, {"input_tokens": 10, "cache_creation_input_tokens": 1000}))
    assert (same.usage.cache_write_1h, same.cost is not None and same.cost.complete) == (1000, True)


@each("name", ["cache_read_input_tokens", "cache_creation_input_tokens"])
def test_a_prompt_that_the_cache_has_to_its_end_counts_once(name: str) -> None:
    """Some hosts count the whole prompt first, and the tokens of the cache in the last event."""
    reply = read_claude(claude_stream({"input_tokens": 8834, name: 0}, {"input_tokens": 0, name: 8834}))
    assert (reply.usage.input, reply.usage.total) == (8834, 8841)
    again = read_claude(claude_stream({"input_tokens": 3, name: 90}, {"input_tokens": 0, name: 90}))
    assert again.usage.input == 93, "a zero beside a count that was known says nothing"


def gemini_counts(prompt: int, answer: int, total: int, thoughts: int, tools: int = 0) -> dict[str, int]:
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": answer, "totalTokenCount": total}
    return {**counts, "thoughtsTokenCount": thoughts, "toolUsePromptTokenCount": tools}


@each(
    "counts, input, output",
    [
        (gemini_counts(10, 5, 20, 5), 10, 10),
        (gemini_counts(10, 10, 20, 5), 10, 10),  # the answer has the thoughts in it
        (gemini_counts(10, 10, 60, 5, 40), 50, 10),
        (gemini_counts(50, 5, 60, 5, 40), 50, 10),  # the prompt has the text of the tool in it
        (gemini_counts(50, 10, 60, 5, 40), 50, 10),
        (gemini_counts(10, 5, 15, 8), 10, 13),  # an answer has no more thoughts than tokens: the total is wrong
        (gemini_counts(10, 10, 22, 5), 10, 15),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_total_tells_parts_within_a_count_from_those_beside_it(
    counts: dict[str, int], input: int, output: int, stream: bool
) -> None:
    model = REGISTRY.resolve("google/gemini-2.5-pro", protocol="gemini")
    [body] = gemini(0, 0, stream)
    data = json.dumps({**body, "usageMetadata": counts}).encode()
    plan = engine.build_request(model, "Hi", stream=stream)
    reply = engine.parse_response(model, 200, {}, b"data: " + data + b"\n\n" if stream else data, plan=plan)
    assert (reply.usage.input, reply.usage.output, reply.usage.reasoning) == (
        input,
        output,
        counts["thoughtsTokenCount"],
    )
    sent = engine.encode_reply("gemini", reply)["usageMetadata"]
    parts = ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    assert sum(sent.get(name, 0) for name in parts) == input + output
