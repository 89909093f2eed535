"""A client of each protocol with an endpoint of each: what goes in comes out, or a note names what does not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from cnllm import (
    BlockEnd,
    EndpointError,
    Finished,
    Media,
    Message,
    Reasoning,
    ReasoningDelta,
    Reply,
    Seal,
    StreamCut,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
    UsageSeen,
    engine,
)
from cnllm.protocols import PROTOCOLS, server_codec
from cnllm.registry import Registry

from .clients import (
    ANSWER,
    CALLS,
    CHAT,
    GEMINI,
    MESSAGES,
    PATHS,
    RESPONSES,
    RESULTS,
    endpoint,
    json_body,
    picture_body,
    schema_body,
    tool_body,
)

PAIRS = list(itertools.product(PROTOCOLS, PROTOCOLS))


def sent(client: str, target: str, body: dict[str, Any]) -> tuple[engine.Plan, list[str]]:
    """The request for an endpoint, and the codes of all notes."""
    request = engine.decode_request(client, body, path=PATHS.get(client, ""))
    plan = engine.build_request(endpoint(target), request.messages, **request.options)
    return plan, [note.code for note in (*request.notes, *plan.notes)]


def meaning(protocol: str, plan: engine.Plan) -> list[Any]:
    """The parts of a request body: (role, kind, what it says)."""
    path = plan.url.removeprefix("http://127.0.0.1:9/v1")
    request = engine.decode_request(protocol, json.loads(plan.content), path=path)
    out: list[Any] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text():
                    out.append((message.role, "text", part.text))
                case ToolCall():
                    out.append(("call", part.id, part.name, part.arguments))
                case ToolResult():
                    out.append(("result", part.id, part.text))
                case _:
                    out.append((message.role, type(part).__name__))
    return out


@pytest.mark.parametrize("count", [1, 2])
def test_tool_turns_keep_ids_and_nothing_of_the_client_s_own_protocol(count: int) -> None:
    for client, target in PAIRS:
        plan, codes = sent(client, target, tool_body(client, count))
        calls = [("call", id, name, json.loads(raw)) for id, name, raw in CALLS[:count]]
        results = [("result", id, text) for (id, _, _), text in zip(CALLS[:count], RESULTS, strict=False)]
        expected = [("system", "text", "Be brief."), ("user", "text", "Weather?"), *calls, *results]
        assert meaning(target, plan) == expected, (client, target)
        text = plan.content.decode()
        for data in ("foreign-signature", "I look.", '"fc_', '"rs_', '"msg_in1', '"caller"', "billing"):
            assert data not in text, (client, target, data)
        assert "reasoning-foreign" in codes, (client, target)
        if client != target:
            for data in ("secret-device", "cache_control", "safetySettings", "context_man"):
                assert data not in text, (client, target, data)
            assert "key-foreign" in codes


RETURNED = {MESSAGES: {"caller (2 times)"}, GEMINI: {"thoughtSignature (2 times)"}}
"""What another endpoint gave with its calls, and takes back alone."""


def test_each_key_that_is_left_out_has_a_note_without_its_value() -> None:
    for client, target in PAIRS:
        if client == target:
            continue
        request = engine.decode_request(client, tool_body(client), path=PATHS.get(client, ""))
        plan = engine.build_request(endpoint(target), request.messages, **request.options)
        notes = [note for note in plan.notes if note.code == "key-foreign"]
        named = {note.said.partition(".")[0] for note in notes}
        assert RETURNED.get(client, set()) <= named
        named -= RETURNED.get(client, set())
        gone = {
            name
            for name, value in request.options["extra_body"].items()
            if not all(text in plan.content for text in texts(value)) or not list(texts(value))
        }
        assert named == gone, (client, target)
        assert not any("secret" in str(note) for note in notes)
        again = engine.build_request(endpoint(client), request.messages, **request.options)
        left_out = [note.said for note in again.notes if note.code == "key-foreign"]
        assert set(left_out) == RETURNED.get(client, set())
        assert "secret-device" in again.content.decode()


def texts(value: Any) -> Iterator[bytes]:
    """The texts in a value, as JSON."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, str):
        yield json.dumps(value).encode()


def test_reasoning_comes_back_to_its_author_only() -> None:
    for protocol in PROTOCOLS:
        model = endpoint(protocol)
        body = tool_body(protocol)
        proven = engine.decode_request(protocol, body, path=PATHS.get(protocol, ""), origin=model)
        text = engine.build_request(model, proven.messages, **proven.options).content.decode()
        assert ("foreign-signature" in text) == (protocol != CHAT)
        for other in PROTOCOLS:
            if other != protocol:  # a model of another protocol cannot have signed it
                request = engine.decode_request(protocol, body, path=PATHS.get(protocol, ""), origin=endpoint(other))
                plan = engine.build_request(endpoint(other), request.messages, **request.options)
                assert "foreign-signature" not in plan.content.decode()
                assert "I look." not in plan.content.decode()
                assert [p.text for m in request.messages for p in m.parts if type(p) is Reasoning] == ["I look."]


def test_pictures_of_the_user_and_in_results_arrive() -> None:
    for client, target in PAIRS:
        request = engine.decode_request(client, picture_body(client), path=PATHS.get(client, ""))
        assert any(type(part) is Media for part in request.messages[0].parts), client
        results = [part for message in request.messages for part in message.parts if type(part) is ToolResult]
        assert [len(result.media) for result in results] == [1], client
        plan, _ = sent(client, target, picture_body(client))
        assert plan.content.decode().count("iVBORw0KGgo") == 2, (client, target)
        assert "seen" in plan.content.decode()


def test_the_schema_of_the_answer_arrives() -> None:
    for client, target in PAIRS:
        plan, codes = sent(client, target, schema_body(client))
        assert plan.schema == ANSWER, (client, target)
        assert "key-foreign" not in codes
        if (body := json_body(client)) is not None:
            plan, codes = sent(client, target, body)
            assert client == target or plan.schema == {"type": "object"}, (client, target)
            assert "key-foreign" not in codes


# ── replies ──────────────────────────────────────────────────────────────────


def seal(protocol: str, text: str) -> Seal | None:
    """What an endpoint wants back with a thought."""
    item = {"type": "reasoning", "id": "rs_9", "summary": [{"type": "summary_text", "text": text}]}
    data: Any = {
        CHAT: None,
        MESSAGES: {"signature": "c2lnbg=="},
        GEMINI: {"thoughtSignature": "c2lnbg=="},
        RESPONSES: {**item, "encrypted_content": "c2lnbg=="},
    }[protocol]
    return None if data is None else Seal(protocol, endpoint(protocol).provider, endpoint(protocol).id, data)


def replies(protocol: str) -> dict[str, Reply]:
    """Replies of an endpoint."""
    thought = Reasoning("I think.", seal(protocol, "I think."))
    calls = [ToolCall(id, name, json.loads(raw), raw) for id, name, raw in CALLS]
    text = Text("It is 12 °C, 你好 😀.")
    cases: dict[str, list[Any]] = {
        "plain": [text],
        "tool": [text, calls[0]],
        "parallel": calls,
        "thought": [thought, text],
        "thought and calls": [thought, *calls],
        "all": [thought, text, *calls],
        "structured": [Text('{"sum":2}')],
    }
    return {name: reply(protocol, parts) for name, parts in cases.items()}


def reply(protocol: str, parts: list[Any], finish: Any = None) -> Reply:
    """A reply of an endpoint with these parts."""
    calls = [part for part in parts if type(part) is ToolCall]
    message = Message("assistant", parts, endpoint(protocol).name)
    return Reply(
        text=message.text,
        reasoning=message.reasoning,
        tool_calls=calls,
        finish=finish or ("tool_calls" if calls else "stop"),
        raw_finish=None,
        usage=Usage(20, 9, 29, 4 if message.reasoning else None, 5),
        cost=None,
        model="m",
        id="id_1",
        notes=[],
        message=message,
        incomplete=[],
    )


def events(reply: Reply) -> list[Any]:
    """The events of a reply."""
    out: list[Any] = []
    count = 0
    for index, part in enumerate(reply.message.parts):
        match part:
            case Reasoning() | Text():
                delta = ReasoningDelta if type(part) is Reasoning else TextDelta
                out += [delta(character) for character in part.text]
                out.append(BlockEnd(index, part))
            case ToolCall():
                out.append(ToolCallStart(count, part.id, part.name))
                out += [ToolCallDelta(count, character) for character in part.raw]
                out.append(ToolCallEnd(count, part))
                count += 1
    return [*out, UsageSeen(reply.usage), Finished(reply.finish, reply.raw_finish)]


def streamed(protocol: str, events: list[Any], **options: Any) -> bytes:
    """A stream with these events."""
    writer = engine.StreamWriter(protocol, id="id_1", model="m", **options)
    return writer.begin() + b"".join(writer.feed(event) for event in events)


def read(protocol: str, content: bytes) -> tuple[list[Any], Reply]:
    """The events and the reply of a stream."""
    parser = engine.StreamParser(endpoint(protocol))
    out = parser.feed(content) + parser.end()
    return out, parser.close()


def whole(protocol: str, body: dict[str, Any]) -> Reply:
    """The reply of a body."""
    return engine.parse_response(endpoint(protocol), 200, {}, json.dumps(body).encode())


def same(got: Reply, meant: Reply) -> None:
    """Check that a reply says the same."""
    assert (got.text, got.reasoning, got.finish) == (meant.text, meant.reasoning, meant.finish)
    shapes = [(call.id, call.name, call.arguments) for call in got.tool_calls]
    assert shapes == [(call.id, call.name, call.arguments) for call in meant.tool_calls]
    assert (got.usage.input, got.usage.output) == (meant.usage.input, meant.usage.output)


def seals(reply: Reply) -> list[Any]:
    """What the endpoint wants back with the reasoning."""
    sealed = [part.seal.data for part in reply.message.parts if type(part) is Reasoning and part.seal is not None]
    return [{key: value for key, value in data.items() if key != "id"} for data in sealed]


ASKED = {"stream_options": {"include_usage": True}}


def test_replies_say_the_same_to_every_client_whole_and_streamed() -> None:
    for target, client in PAIRS:
        for name, meant in replies(target).items():
            upstream = whole(target, engine.encode_reply(target, meant))
            same(upstream, meant)
            same(whole(client, engine.encode_reply(client, upstream, request=ASKED)), meant)
            arrived, from_stream = read(target, streamed(target, events(meant)))
            same(from_stream, meant)
            _, got = read(client, streamed(client, arrived, request=ASKED))
            same(got, meant)
            if client == target and client != CHAT:
                assert seals(got) == seals(from_stream) == seals(upstream), (target, name)
            elif target != client:
                text = streamed(client, arrived, request=ASKED).decode()
                assert "c2lnbg==" not in text, (target, client, name)
                assert "c2lnbg==" not in json.dumps(engine.encode_reply(client, from_stream)), (target, client, name)


def test_a_token_travels_with_the_reply_and_comes_back() -> None:
    token = "cnllm1." + "Ab+/=" * 4000
    for target, client in PAIRS:
        codec = server_codec(client)
        carrier = ToolCall if client == GEMINI else Reasoning

        def write(part: Any, kind: Any = carrier, codec: Any = codec) -> Any:
            return codec.token.write(part, token) if type(part) is kind else part

        meant = replies(target)["all"]
        arrived, reply = read(target, streamed(target, events(meant)))
        parts = [write(part) for part in reply.message.parts]
        calls = [part for part in parts if type(part) is ToolCall]
        signed = replace(reply, message=Message("assistant", parts), tool_calls=calls)
        bodies = [whole(client, engine.encode_reply(client, signed))]
        bodies.append(read(client, streamed(client, arrived, seal=write))[1])
        late = [e for e in arrived if not isinstance(e, BlockEnd)]
        ends = [replace(e, part=write(e.part)) for e in arrived if isinstance(e, BlockEnd)]
        late[-2:-2] = ends
        if client == GEMINI:
            late = [replace(e, call=write(e.call)) if isinstance(e, ToolCallEnd) else e for e in late]
        bodies.append(read(client, streamed(client, late))[1])
        for body in bodies:
            found = [codec.token.read(part) for part in body.message.parts]
            assert (token in found) == (client != CHAT), (target, client)
            same(body, meant)


def test_an_error_keeps_its_class_and_a_cut_stream_is_never_whole() -> None:
    for target, client in PAIRS:
        meant = replies(target)["all"]
        arrived, _ = read(target, streamed(target, events(meant)))
        body = engine.encode_error(target, 429, "Slow down.", None)
        with pytest.raises(EndpointError) as refused:
            engine.parse_response(endpoint(target), 429, {}, json.dumps(body).encode())
        assert engine.error_status(refused.value) == 429
        writer = engine.StreamWriter(client, id="id_1", model="m")
        begun = writer.begin() + b"".join(writer.feed(event) for event in arrived[:12])
        with pytest.raises((StreamCut, EndpointError)):
            read(client, begun + writer.feed(Finished("cut")))
        with pytest.raises(EndpointError, match="Slow down"):
            read(client, begun + writer.error(engine.error_status(refused.value), "Slow down."))


def test_a_token_survives_a_client_that_decodes_bytes() -> None:
    types = pytest.importorskip("google.genai.types")
    codec = server_codec(GEMINI)
    token = "cnllm1." + "".join(map(chr, range(33, 127)))
    call = codec.token.write(ToolCall("call_a1", "weather", {}, "{}"), token)
    body = engine.encode_reply(GEMINI, reply(GEMINI, [call]))
    parsed = types.GenerateContentResponse.model_validate_json(json.dumps(body))
    content = json.loads(parsed.candidates[0].content.model_dump_json(by_alias=True, exclude_none=True))
    user = {"role": "user", "parts": [{"text": "Go."}]}
    back = engine.decode_request(GEMINI, {"contents": [user, content]}).messages[1].parts[0]
    assert codec.token.read(back) == token


def test_the_billing_text_of_a_client_is_left_out_with_a_note() -> None:
    body = tool_body(MESSAGES)
    request = engine.decode_request(MESSAGES, body)
    assert request.messages[0].text == "Be brief."
    assert [note.code for note in request.notes] == ["key-foreign"]
    alone = engine.decode_request(MESSAGES, {**body, "system": body["system"][0]["text"]})
    assert alone.messages[0].role == "user"
    own = engine.build_request(endpoint(MESSAGES), request.messages, **request.options)
    mark = {"type": "ephemeral"}
    assert own.body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert own.body["messages"][-1]["content"][-1]["cache_control"] == mark


PAGE = {"type": "image", "source": {"type": "url", "url": "https://a.example/1.png"}}
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "Page 1:"},
    PAGE,
    {"type": "text", "text": "Page 2:"},
    {"type": "image", "source": {"type": "url", "url": "https://a.example/2.png"}},
]
OUTPUT: list[dict[str, Any]] = [
    {"type": "input_text", "text": "Page 1:"},
    {"type": "input_image", "image_url": "https://a.example/1.png"},
    {"type": "input_text", "text": "Page 2:"},
    {"type": "input_image", "image_url": "https://a.example/2.png"},
]


@pytest.mark.parametrize("error", [False, True])
def test_texts_and_pictures_of_a_result_keep_their_order(error: bool) -> None:
    called = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": CONTENT, "is_error": error}
    turns = [{"role": "assistant", "content": [called]}, {"role": "user", "content": [result]}]
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Look."}, *turns]}
    request = engine.decode_request(MESSAGES, body)
    model = Registry.load().resolve("openai/gpt-4.1", protocol=RESPONSES)
    found = engine.build_request(model, request.messages, **request.options).body["input"][-1]["output"]
    assert found == [{**OUTPUT[0], "text": "Error: Page 1:" if error else "Page 1:"}, *OUTPUT[1:]]
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    items = [{"role": "user", "content": "Look."}, call]
    plan, _ = sent(
        RESPONSES, MESSAGES, {"input": [*items, {"type": "function_call_output", "call_id": "c1", "output": OUTPUT}]}
    )
    assert plan.body["messages"][-1]["content"][0]["content"] == CONTENT
    [message] = [m for m in request.messages if m.role == "tool"]
    assert Message.from_dict(message.to_dict()) == message
    assert [part["type"] for part in message.to_dict()["content"]] == ["text", "image_url", "text", "image_url"]


def test_the_order_of_a_result_that_was_changed_says_nothing() -> None:
    """What is left of it goes on: the text, then the media."""
    result = next(p for m in engine.decode_request(RESPONSES, {"input": [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": OUTPUT},
    ]}).messages for p in m.parts if type(p) is ToolResult)  # fmt: skip
    for changed in (
        replace(result, text="Two pages."),
        replace(result, media=result.media[:1]),
        replace(result, order=("Page 1:", 5, "Page 2:", 0)),
        replace(result, order=("Page 1:", 0, "Page 2:", 0)),
    ):
        call = ToolCall("c1", "look", {}, "{}")
        history = [
            Message.user("Look."),
            Message("assistant", (call,)),
            Message("tool", (replace(changed, seal=None),)),
        ]
        block = engine.build_request(endpoint(MESSAGES), history).body["messages"][-1]["content"][0]
        assert [part["type"] for part in block["content"]] == ["text", *["image"] * len(changed.media)]
        assert block["content"][0]["text"] == changed.text


PIECES = ("def f():", "\n", "    ", "return 1", "\n\n", "Done.")


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("thinks", [False, True])
def test_an_answer_that_a_client_keeps_piece_by_piece_is_one_text(target: str, thinks: bool) -> None:
    """The chat of google-genai keeps a content for each chunk of a stream."""
    thought = [{"text": piece, "thought": True} for piece in ("I ", "think.") if thinks]
    chunks = [*thought, *({"text": piece} for piece in PIECES), {"text": "", "thoughtSignature": "c2ln"}]
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        *({"role": "model", "parts": [part]} for part in chunks),
        {"role": "user", "parts": [{"text": "Go on"}]},
    ]
    request = engine.decode_request(GEMINI, {"contents": contents}, path=PATHS[GEMINI])
    assert [part.text for part in request.messages[1].parts if isinstance(part, Reasoning)] == ["I think."] * thinks
    body = engine.build_request(endpoint(target), request.messages).body
    turns = body.get("messages") or body.get("input") or body["contents"]
    answers = [turn for turn in turns if turn["role"] in ("assistant", "model")]
    assert len(answers) == 1
    assert json.dumps("".join(PIECES)) in json.dumps(answers)
