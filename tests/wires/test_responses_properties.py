"""OpenAI Responses: whatever comes, nothing raises; however it is cut, it says the same; what is written is read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from examples import share
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cnllm import Message, Registry, engine
from cnllm.protocols.responses.client_decode import _EVENTS
from cnllm.types import Media, Opaque, Reasoning, Seal, Text, ToolCall, ToolResult

from .made import read_anything

WIRE = "openai-responses"
MODEL = Registry.load().resolve("openai/gpt-6.1-terra", protocol=WIRE)

WORDS = [
    *(
        "type",
        "item",
        "response",
        "output",
        "output_index",
        "item_id",
        "content_index",
        "summary_index",
        "delta",
        "text",
    ),
    *(
        "part",
        "id",
        "content",
        "summary",
        "arguments",
        "name",
        "call_id",
        "status",
        "usage",
        "error",
        "message",
        "code",
    ),
    *(
        "reasoning",
        "function_call",
        "output_text",
        "refusal",
        "reasoning_text",
        "incomplete_details",
        "reason",
        "model",
    ),
    *(
        "completed",
        "incomplete",
        "failed",
        "web_search_call",
        "content_filter",
        "input_tokens",
        "{}",
        '{"a":1}',
        "detail",
    ),
]
LEAVES = (
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | st.sampled_from(WORDS) | st.text()
)
ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(), inner),
    max_leaves=20,
)
EVENTS = st.dictionaries(st.sampled_from(WORDS), ANY, max_size=6).flatmap(
    lambda data: st.sampled_from([*_EVENTS]).map(lambda kind: {**data, "type": kind})
)


UNTYPED_ITEM = [
    {"type": "response.output_item.done", "output_index": 0, "item": {"id": "x"}},
    {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
]


@given(st.lists(EVENTS | st.dictionaries(st.sampled_from(WORDS), ANY), max_size=12), st.booleans())
@example(UNTYPED_ITEM, False)
@settings(max_examples=share(300), deadline=None)
def test_no_json_raises(events: list[dict[str, Any]], whole: bool) -> None:
    for reply in read_anything(MODEL, events, whole=whole):
        engine.encode_reply(WIRE, reply)


@given(st.lists(EVENTS, max_size=8))
@settings(max_examples=share(100), deadline=None)
def test_no_stream_raises(events: list[dict[str, Any]]) -> None:
    parser = engine.StreamParser(MODEL)
    for event in events:
        parser.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    parser.end()


KEYS = ["input", "instructions", "tools", "tool_choice", "reasoning", "text", "model", "stream", "conversation"]
KINDS = ["message", "reasoning", "function_call", "function_call_output", "item_reference", "input_text", "input_image"]
ODD_ITEMS = st.dictionaries(st.sampled_from([*WORDS, "role", "output", "image_url"]), ANY).flatmap(
    lambda item: st.sampled_from([*KINDS, None]).map(lambda kind: {**item, "role": "assistant", "type": kind})
)


@given(st.dictionaries(st.sampled_from(KEYS), ANY), st.lists(ODD_ITEMS | ANY, max_size=4))
@settings(max_examples=share(200), deadline=None)
def test_no_request_raises_anything_but_what_is_wrong_with_it(body: dict[str, Any], items: list[Any]) -> None:
    with contextlib.suppress(ValueError):
        engine.decode_request(WIRE, {**body, "input": items}, origin=MODEL)
    with contextlib.suppress(ValueError):
        engine.decode_request(WIRE, body, origin=MODEL)


# ── replies ──────────────────────────────────────────────────────────────────

SAID = st.text(min_size=1, max_size=12)
ITEMS = st.lists(
    st.one_of(
        SAID.map(
            lambda text: {"type": "message", "content": [{"type": "output_text", "text": text, "annotations": []}]}
        ),
        st.tuples(SAID, SAID).map(
            lambda texts: {"type": "message", "content": [{"type": "output_text", "text": text} for text in texts]}
        ),
        SAID.map(lambda text: {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}),
        SAID.map(
            lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
        ),
        st.just({"type": "reasoning", "summary": [], "encrypted_content": "zz"}),
        SAID.map(lambda text: {"type": "function_call", "name": "f", "arguments": json.dumps({"a": text})}),
        st.just({"type": "web_search_call", "action": {"query": "q"}}),
    ),
    min_size=1,
    max_size=5,
)


def numbered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for n, item in enumerate(items):
        item = {"id": f"i_{n}", **item}
        if item["type"] == "message":
            item |= {"role": "assistant", "status": "completed"}
        if item["type"] == "function_call":
            item |= {"call_id": f"call_{n}", "status": "completed"}
        out.append(item)
    return out


def streamed(items: list[dict[str, Any]], response: dict[str, Any]) -> bytes:
    """The events that an endpoint would send."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "output": []}}]
    for place, item in enumerate(items):
        at = {"output_index": place, "item_id": item["id"]}
        begun = {k: v for k, v in item.items() if k not in ("content", "summary", "encrypted_content", "arguments")}
        events.append({"type": "response.output_item.added", "output_index": place, "item": {**begun, "arguments": ""}})
        for index, part in enumerate(item.get("content") or []):
            kind = "reasoning_text" if part["type"] == "reasoning_text" else "output_text"
            events += [
                {"type": f"response.{kind}.delta", **at, "content_index": index, "delta": char} for char in part["text"]
            ]
            events.append({"type": f"response.{kind}.done", **at, "content_index": index, "text": part["text"]})
            events.append({"type": "response.content_part.done", **at, "content_index": index, "part": part})
        for index, part in enumerate(item.get("summary") or []):
            name = "response.reasoning_summary_text"
            events += [{"type": f"{name}.delta", **at, "summary_index": index, "delta": char} for char in part["text"]]
            events.append({"type": f"{name}.done", **at, "summary_index": index, "text": part["text"]})
        if item["type"] == "function_call":
            name = "response.function_call_arguments"
            events += [{"type": f"{name}.delta", **at, "delta": char} for char in item["arguments"]]
            events.append({"type": f"{name}.done", **at, "arguments": item["arguments"]})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": {**response, "status": "completed", "output": items}})
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def message_of(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text, "annotations": []}]}


CALL = {"type": "function_call", "name": "f", "arguments": "{}"}


@given(ITEMS, st.lists(st.integers(1, 400), max_size=6))
@example([message_of("<"), message_of("0")], [])  # what may begin a marker stays in the message that it came in
@example([message_of("x <tool_"), CALL, message_of("call> y")], [])
@example([message_of("``"), message_of("`")], [])
@settings(max_examples=share(120), deadline=None)
def test_a_stream_says_what_the_whole_says_and_is_written_as_it_was(
    given_items: list[dict[str, Any]], cuts: list[int]
) -> None:
    items = numbered(given_items)
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress"}
    body = {**response, "status": "completed", "output": items}
    whole = engine.parse_response(MODEL, 200, {}, json.dumps(body).encode())
    stream = streamed(items, response)
    parser = engine.StreamParser(MODEL)
    at = 0
    for size in cuts:
        parser.feed(stream[at : at + size])
        at += size
    parser.feed(stream[at:])
    reply = parser.close()
    assert reply.message == whole.message
    assert (reply.text, reply.reasoning, reply.finish) == (whole.text, whole.reasoning, whole.finish)
    assert engine.encode_reply(WIRE, whole)["output"] == items


# ── requests ─────────────────────────────────────────────────────────────────


def seal(data: Any) -> Seal:
    return Seal(MODEL.protocol, MODEL.provider, MODEL.id, data)


TEXTS = st.text(min_size=1, max_size=10).filter(lambda text: bool(text.strip()))
PICTURES = st.just(Media("image/png", "AAAA")) | st.just(
    Media("image", None, "https://a.test/b.png", None, {"detail": "low"})
)
USERS = st.lists(
    TEXTS.map(Text) | PICTURES | st.just(Opaque({"type": "input_file", "file_id": "f"}, seal(None))),
    min_size=1,
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    out = [Message("system", (Text(draw(TEXTS)),))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        out.append(Message("user", tuple(draw(USERS))))
        parts: list[Any] = []
        calls: list[ToolCall] = []
        for nth in range(draw(st.integers(1, 3))):
            said_before: list[str] = [] if calls else ["text", "sealed"]  # after its calls a turn says nothing more
            match draw(st.sampled_from([*said_before, "reasoning", "call", "opaque"])):
                case "text":
                    parts.append(Text(draw(TEXTS)))
                case "sealed":
                    said = {"item": {"id": f"msg_{turn}{nth}", "phase": "commentary"}, "part": {"annotations": []}}
                    parts.append(Text(draw(TEXTS), seal(said)))
                case "reasoning":
                    text = draw(TEXTS)
                    summary = [{"type": "summary_text", "text": text}]
                    item = {"type": "reasoning", "id": f"rs_{turn}{nth}", "summary": summary, "encrypted_content": "e"}
                    parts.append(Reasoning(text, seal(item)))
                case "call":
                    raw = json.dumps({"a": draw(TEXTS)})
                    call = ToolCall(f"c{turn}{nth}", "f", json.loads(raw), raw, seal=seal({"id": f"fc_{turn}{nth}"}))
                    parts.append(call)
                    calls.append(call)
                case "opaque":
                    parts.append(Opaque({"type": "web_search_call", "id": f"ws_{turn}{nth}"}, seal(None)))
        while calls and type(parts[-1]) is Reasoning:
            parts.pop()  # reasoning that leads to nothing is refused
        out.append(Message("assistant", (Text("so"), *parts) if calls else (*parts, Text("so")), MODEL.name))
        for call in calls:
            media = draw(st.just(()) | PICTURES.map(lambda picture: (picture,)))
            out.append(Message("tool", (ToolResult(call.id, draw(TEXTS), media=media),)))
    return out


@given(conversations())
@settings(max_examples=share(150), deadline=None)
def test_what_is_written_is_read_as_it_was(messages: list[Message]) -> None:
    plan = engine.build_request(MODEL, messages)
    read = engine.decode_request(WIRE, plan.body, origin=MODEL)
    assert read.messages == messages
    assert engine.build_request(MODEL, read.messages, **read.options).body == plan.body
