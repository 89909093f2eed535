"""OpenAI Responses: how a conversation is written, and what each kind of event comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each
from msgspec.structs import replace
from note_rules import check_notes

import cnllm
from cnllm import Message, Model, Registry, engine
from cnllm.protocols.event_order import reply_events
from cnllm.types import (
    BlockEnd,
    Media,
    Opaque,
    Reasoning,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallStart,
    ToolResult,
)

WIRE = "openai-responses"
REGISTRY = Registry.load()
MODEL = REGISTRY.resolve("openai/gpt-6.1-terra", protocol=WIRE)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def seal(data: Any, model: Model = MODEL) -> Seal:
    return Seal(model.protocol, model.provider, model.id, data)


def body(*messages: Any, model: Model = MODEL, **options: Any) -> dict[str, Any]:
    return engine.build_request(model, list(messages), **options).body


def by(*parts: Any) -> Message:
    return Message("assistant", parts, MODEL.name)


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
CALL = ToolCall("call_1", "f", {}, "{}", seal=seal({"id": "fc_1"}))
DONE = Message("tool", (ToolResult("call_1", "done"),))


# ── writing ──────────────────────────────────────────────────────────────────


def test_a_plain_request() -> None:
    sent = body({"role": "system", "content": "be brief"}, "hi", max_tokens=9)
    assert sent == {
        "model": "gpt-6.1-terra",
        "input": [
            {"type": "message", "role": "system", "content": "be brief"},
            {"type": "message", "role": "user", "content": "hi"},
        ],
        "max_output_tokens": 9,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_nothing_is_included_that_a_model_without_thinking_refuses() -> None:
    assert "include" not in body("hi", model=REGISTRY.resolve("openai/gpt-4.1", protocol=WIRE))


def test_tools_are_flat_and_not_strict_unless_asked() -> None:
    strict = {"type": "function", "function": {"name": "g", "description": "d", "strict": True}}
    own = {"type": "web_search"}
    sent = body("hi", tools=[TOOL, strict, own], tool_choice="f", parallel_tool_calls=False)
    empty = {"type": "object", "properties": {}}
    closed = {**empty, "required": [], "additionalProperties": False}
    assert sent["tools"] == [
        {"type": "function", "name": "f", "parameters": empty, "strict": False},
        {"type": "function", "name": "g", "description": "d", "parameters": closed, "strict": True},
        own,
    ]
    assert sent["tool_choice"] == {"type": "function", "name": "f"}
    assert sent["parallel_tool_calls"] is False


def test_a_schema_is_a_format_of_the_text() -> None:
    schema = {"type": "object", "title": "Point", "properties": {"x": {"type": "integer"}}}
    said = body("hi", schema=schema)["text"]["format"]
    assert (said["type"], said["name"]) == ("json_schema", "Point")
    assert said["schema"]["properties"] == schema["properties"]


def test_what_was_sealed_goes_back_as_it_was() -> None:
    said = Text("so", seal({"item": {"id": "msg_1", "phase": "commentary"}, "part": {"annotations": []}}))
    block = Opaque({"type": "web_search_call", "id": "ws_1"}, seal(None))
    sent = body("hi", by(Reasoning("t", seal(THOUGHT)), said, block, CALL), DONE)
    content = [{"type": "output_text", "text": "so", "annotations": []}]
    assert sent["input"][1:] == [
        THOUGHT,
        {"type": "message", "role": "assistant", "id": "msg_1", "phase": "commentary", "content": content},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    ]


def test_texts_of_one_message_go_back_as_one() -> None:
    item = {"id": "msg_1"}
    first = Text("a", seal({"item": item, "part": {}}))
    second = Text("b", seal({"item": item, "part": {"type": "refusal"}, "at": 1}))
    [said] = body("hi", by(first, second), "so?")["input"][1:-1]
    assert said["content"] == [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]


def test_what_another_model_sealed_stays_at_home() -> None:
    other = REGISTRY.resolve("openai/gpt-5.4", protocol=WIRE)
    turn = Message(
        "assistant", (Reasoning("t", seal(THOUGHT, other)), Text("so", seal({"item": {"id": "m"}}, other))), other.name
    )
    assert body("hi", turn, "and?")["input"][1] == {"type": "message", "role": "assistant", "content": "so"}
    user = Message("user", (Text("see"), Opaque({"type": "input_file", "file_id": "f"}, seal(None, other))))
    plan = engine.build_request(MODEL, [user])
    assert plan.body["input"] == [{"type": "message", "role": "user", "content": "see"}]
    assert [note.code for note in plan.notes] == ["block-foreign"]


def test_reasoning_that_led_to_nothing_is_not_sent() -> None:
    sent = body("hi", by(Text("so"), Reasoning("t", seal(THOUGHT))), "go on")
    assert [item.get("type") for item in sent["input"]] == ["message", "message", "message"]


@each("turns", [[by(Text("so"), Reasoning("t", seal(THOUGHT)))], [by(CALL, Reasoning("", seal(THOUGHT))), DONE]])
def test_a_note_tells_of_reasoning_that_led_to_nothing(turns: list[Message]) -> None:
    plan = engine.build_request(MODEL, [Message.user("hi"), *turns, Message.user("go on")])
    assert "reasoning" not in [item["type"] for item in plan.body["input"]]
    assert [(note.code, note.said) for note in plan.notes] == [
        ("reasoning-misplaced", "messages[1]: reasoning behind all else")
    ]
    check_notes(plan.notes)


def test_reasoning_leads_to_what_the_next_turn_says() -> None:
    plan = engine.build_request(
        MODEL, [Message.user("hi"), by(Text("so"), Reasoning("t", seal(THOUGHT))), by(Text("and"))]
    )
    assert [item["type"] for item in plan.body["input"]] == ["message", "message", "reasoning", "message"]
    assert plan.notes == []


def test_an_empty_text_is_nothing_between_reasoning_and_a_call() -> None:
    sent = body("hi", by(Reasoning("t", seal(THOUGHT)), Text(""), CALL), DONE)
    assert [item["type"] for item in sent["input"]] == ["message", "reasoning", "function_call", "function_call_output"]


def test_what_lost_its_reasoning_loses_its_id() -> None:
    edited = cnllm.Message.from_dict({**by(Reasoning("t", seal(THOUGHT)), CALL).to_dict(), "reasoning": "another"})
    sent = body("hi", edited, DONE)
    assert sent["input"][1] == {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}


def test_pictures_stay_in_results() -> None:
    result = Message("tool", (ToolResult("call_1", "see", media=(Media("image/png", "AAAA"),)),))
    assert body("hi", by(CALL), result)["input"][2]["output"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]


def test_instructions_stay_apart_at_home_only() -> None:
    asked = {"model": "m", "input": "hi", "instructions": "be brief"}
    read = engine.decode_request(WIRE, asked, origin=MODEL)
    assert body(*read.messages)["instructions"] == "be brief"
    elsewhere = engine.decode_request(WIRE, asked).messages
    assert body(*elsewhere)["input"][0] == {"type": "message", "role": "system", "content": "be brief"}


@each(
    "name, level, sent",
    [
        ("openai/gpt-6.1-sol", "max", {"effort": "max"}),
        ("openai/gpt-5.5", "max", {"effort": "xhigh"}),
        ("openai/gpt-5.4", "off", {"effort": "none"}),
        ("openai/gpt-5.4-mini", "minimal", {"effort": "low"}),
        ("openai/o3", "high", {"effort": "high"}),
        ("azure/gpt-5-mini", "high", {"effort": "high"}),
        ("deepseek/deepseek-flash", "off", {"effort": "none"}),
        ("deepseek/deepseek-flash", "medium", {"effort": "high"}),
        ("xai/grok-4.3", "off", {"effort": "none"}),
        ("xai/grok-4.7", "xhigh", {"effort": "xhigh"}),
        ("xai/grok-build-0.1", "high", None),
        ("openrouter/any/model", "low", {"enabled": True, "effort": "low"}),
        ("openrouter/any/model", "on", {"enabled": True}),
        ("openai-compatible/any", "high", {"effort": "high"}),
    ],
)
def test_levels_of_reasoning(name: str, level: str, sent: Any) -> None:
    base_url = "http://127.0.0.1:9/v1" if name.startswith(("azure", "openai-compatible")) else None
    model = REGISTRY.resolve(name, protocol=WIRE, base_url=base_url)
    assert body("hi", model=model, reasoning=level).get("reasoning") == sent


def test_an_endpoint_that_thinks_in_the_open_takes_it_so() -> None:
    model = REGISTRY.resolve("deepseek/deepseek-flash", protocol=WIRE)
    turn = Message("assistant", (Reasoning("t"), Text("so")), model.name)
    sent = body({"role": "developer", "content": "d"}, "hi", turn, "and?", model=model)
    assert sent["input"][0]["role"] == "system"
    content = [{"type": "reasoning_text", "text": "t"}]
    assert sent["input"][2] == {"type": "reasoning", "summary": [], "content": content}
    assert model.flags.base_url == "https://api.deepseek.com"
    assert model.flags.path == "/responses"


@pytest.mark.parametrize("shape", ["field", "content-parts"])
def test_reasoning_without_a_seal_goes_back_where_its_form_is_known(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "home.toml"
    head = f'[providers.home]\nprotocol = "{WIRE}"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
    path.write_text(
        f'{head}reasoning = {{ replay = "always", replay_as = "{shape}" }}\n[models."home/m"]\n', encoding="utf-8"
    )
    model = Registry.load(path).resolve("home/m")
    turn = Message("assistant", (Reasoning("t"), Text("so")), model.name)
    items = body("hi", turn, "and?", model=model)["input"]
    assert [item.get("content") for item in items if item.get("type") == "reasoning"] == (
        [[{"type": "reasoning_text", "text": "t"}]] if shape == "content-parts" else []
    )


def test_what_an_unknown_server_may_not_take_is_not_sent() -> None:
    model = REGISTRY.resolve("openai-compatible/m", protocol=WIRE, base_url="http://127.0.0.1:9/v1")
    turn = Message("assistant", (ToolCall("call_1", "f", {}, "{}"),), model.name)
    result = Message("tool", (ToolResult("call_1", "see", media=(Media("image/png", "AAAA"),)),))
    sent = body({"role": "developer", "content": "d"}, "hi", turn, result, model=model)["input"]
    assert sent[0]["role"] == "system"
    assert sent[3]["output"] == "see"
    assert sent[4]["role"] == "user"
    assert sent[4]["content"][-1]["type"] == "input_image"


def test_a_key_goes_where_the_endpoint_wants_it() -> None:
    azure = REGISTRY.resolve("azure/d", protocol=WIRE, base_url="https://r.test/openai/v1")
    plan = engine.build_request(azure, "hi")
    assert plan.headers["api-key"] == "{key}"
    assert plan.url == "https://r.test/openai/v1/responses"


# ── the wire that takes it ───────────────────────────────────────────────────


@each("name", ["openai/gpt-6.1-sol", "openai/gpt-6-astra", "openai/gpt-5.6-luna", "openai/gpt-6-luna"])
def test_tools_with_reasoning_are_routed_and_the_note_says_so(name: str) -> None:
    plan = engine.build_request(REGISTRY.resolve(name), "hi", tools=[TOOL])
    assert plan.url.endswith("/responses")
    [note] = plan.notes
    assert (note.code, note.flag) == ("wire-routed", "protocol")
    assert WIRE in note.did
    assert note.where.startswith("providers.toml:")


def test_who_names_the_wire_is_not_routed() -> None:
    for name in ("openai/gpt-5.6-sol", "openai/gpt-6-astra"):
        plan = engine.build_request(REGISTRY.resolve(name, protocol="openai-chat"), "hi", tools=[TOOL])
        assert plan.url.endswith("/chat/completions")
        assert "wire-routed" not in {note.code for note in plan.notes}


def test_without_reasoning_or_tools_nothing_is_routed() -> None:
    for options in ({"tools": [TOOL], "reasoning": "off"}, {"reasoning": "high"}, {}):
        plan = engine.build_request(REGISTRY.resolve("openai/gpt-5.6-sol"), "hi", **options)
        assert plan.url.endswith("/chat/completions")
    assert engine.build_request(REGISTRY.resolve("openai/gpt-5.4"), "hi", tools=[TOOL]).url.endswith("/completions")


# ── reading ──────────────────────────────────────────────────────────────────


def read(*events: dict[str, Any], model: Model = MODEL) -> tuple[list[Any], cnllm.Reply]:
    parser = engine.StreamParser(model)
    out: list[Any] = []
    for event in events:
        out += parser.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    out += parser.end()
    reply = parser.close()
    check_notes(reply.notes)
    return out, reply


def done(*items: Any, **more: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": list(items), **more}
    return {"type": f"response.{response['status']}", "response": response}


def delta(text: str, place: int = 0, kind: str = "output_text", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "item_id": f"i{place}", "delta": text, **more}


def added(kind: str, place: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "type": "response.output_item.added",
        "output_index": place,
        "item": {"type": kind, "id": f"i{place}", **more},
    }


def over(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": {"id": f"i{place}", **item}}


def message(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": content, **more}


def test_what_only_the_last_event_has_is_not_lost() -> None:
    _, reply = read(done({**message("all"), "id": "i0"}, usage={"input_tokens": 3, "output_tokens": 2}))
    assert reply.text == "all"
    assert (reply.usage.input, reply.usage.output, reply.usage.total) == (3, 2, 5)
    assert reply.id == "resp_1"


@each("content", ["all", ["al", "l"], [{"type": "output_text", "text": "al"}, "l", 5]])
def test_the_content_of_a_message_may_be_plain_texts(content: Any) -> None:
    item = {**message(), "content": content}
    for reply in (
        read(done(item))[1],
        read(over(item), done(item))[1],
        engine.parse_response(MODEL, 200, {}, json.dumps({"status": "completed", "output": [item]}).encode()),
    ):
        assert (reply.text, reply.finish) == ("all", "stop")
        back = body("hi", reply.message, "go")["input"][1]["content"]
        assert {part["type"] for part in back} == {"output_text"}
        assert "".join(part["text"] for part in back) == "all"


def test_what_came_in_pieces_counts_once() -> None:
    item = message("all", phase="final_answer")
    events, reply = read(added("message"), delta("a"), delta("ll"), over(item), done({"id": "other", **item}))
    assert reply.text == "all"
    assert [event.text for event in events if type(event) is TextDelta] == ["a", "ll"]
    [part] = reply.message.parts
    assert part.seal is not None
    assert part.seal.data["item"] == {"id": "i0", "phase": "final_answer"}


def test_a_part_that_was_not_sent_in_pieces() -> None:
    whole = {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "all"}
    _, reply = read(added("message"), whole, over(message("all")), done({"id": "i0", **message("all")}))
    assert reply.text == "all"


def test_a_part_that_no_item_repeats_is_the_text() -> None:
    for kind, text in (("output_text", {"text": "all"}), ("content_part", {"part": message("all")["content"][0]})):
        whole = {"type": f"response.{kind}.done", "output_index": 0, "content_index": 0, **text}
        events, reply = read(added("message"), whole, done())
        assert [event.text for event in events if type(event) is TextDelta] == ["all"]
        assert (reply.text, reply.finish) == ("all", "stop")


def test_reasoning_that_no_item_repeats_is_the_reasoning() -> None:
    thought = {"type": "reasoning_text", "text": "so"}
    for kind, text in (("reasoning_text", {"text": "so"}), ("content_part", {"part": thought})):
        whole = {"type": f"response.{kind}.done", "output_index": 0, "content_index": 0, **text}
        _, reply = read(added("reasoning"), whole, added("message", 1), delta("all", 1), done())
        assert (reply.reasoning, reply.text) == ("so", "all")


def test_items_whose_pieces_are_mixed() -> None:
    events = [
        *(added("message", 0), added("message", 1), delta("a", 0), delta("x", 1), delta("b", 0), delta("y", 1)),
        *(over(message("ab"), 0), over(message("xy"), 1), done()),
    ]
    got, reply = read(*events)
    assert sorted(reply.text) == ["a", "b", "x", "y"]
    assert [event.text for event in got if type(event) is TextDelta] == ["a", "b", "x", "y"]
    assert [part.text for part in reply.message.parts if type(part) is Text] == ["ab", "xy"]
    assert reply.notes == []


def test_reasoning_in_pieces_between_texts_has_its_item_behind_them_all() -> None:
    kind = "reasoning_summary_text"
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ab"}], "encrypted_content": "e"}
    pieces = [added("reasoning"), delta("a", 0, kind), added("message", 1), delta("x", 1), delta("b", 0, kind)]
    _, reply = read(*pieces, over(item), over(message("x"), 1), done())
    assert (reply.reasoning, reply.text) == ("ab", "x")
    thoughts = [part for part in reply.message.parts if type(part) is Reasoning]
    assert [(part.text, part.seal is not None) for part in thoughts] == [("a", False), ("b", False), ("", True)]


MIXED = (delta("a", 0), delta("x", 1), delta("b", 0), delta("y", 1), delta("z", 1))


BOTH = (over(message("ab"), 0), over(message("xyz"), 1))


@each("last", [BOTH, BOTH[::-1], ()])
def test_texts_that_come_at_the_same_time_are_those_of_the_whole_reply(last: tuple[Any, ...]) -> None:
    whole = done({**message("ab"), "id": "i0"}, {**message("xyz"), "id": "i1"})
    _, reply = read(*MIXED, *last, whole)
    at_once = engine.parse_response(MODEL, 200, {}, json.dumps(whole["response"]).encode())
    assert (reply.text, reply.message.parts) == (at_once.text, at_once.message.parts)
    assert reply.notes == []


def test_a_text_that_waits_for_another_goes_on_when_that_one_ends() -> None:
    parser = engine.StreamParser(MODEL)
    texts = []
    for event in (*MIXED, over(message("ab"), 0), delta("1", 1), delta("2", 1)):
        got = parser.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        texts.append("".join(e.text for e in got if type(e) is TextDelta))
    assert texts == ["a", "", "b", "", "", "xyz", "1", "2"]


def test_a_text_that_waits_is_not_lost_where_the_stream_breaks_off() -> None:
    with pytest.raises(cnllm.StreamCut) as caught:
        read(*MIXED)
    assert caught.value.reply is not None
    assert caught.value.reply.text == "abxyz"


def test_what_comes_behind_a_text_that_waits_waits_too() -> None:
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
    begun = added("function_call", 2, call_id="c0", name="f")
    _, reply = read(*MIXED[:2], begun, over(call, 2), *MIXED[2:], over(message("ab")), over(message("xyz"), 1), done())
    assert [type(part) for part in reply.message.parts] == [Text, Text, ToolCall]
    assert (reply.text, reply.finish) == ("abxyz", "tool_calls")


def test_reasoning_of_two_items_that_comes_at_the_same_time() -> None:
    kind = "reasoning_summary_text"
    items = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]} for text in ("ab", "xyz")]
    pieces = [{**event, "type": f"response.{kind}.delta", "summary_index": 0} for event in MIXED]
    _, reply = read(*pieces, over(items[0]), over(items[1], 1), delta("so", 2), done())
    assert [part.text for part in reply.message.parts if type(part) is Reasoning] == ["ab", "xyz"]
    assert (reply.reasoning, reply.text) == ("abxyz", "so")


def test_parts_of_one_message_whose_pieces_are_mixed_have_a_note() -> None:
    pieces = [delta("a"), delta("x", content_index=1), delta("b"), delta("y", content_index=1)]
    _, reply = read(*pieces, done({**message("ab", "xy"), "id": "i0"}))
    assert sorted(reply.text) == ["a", "b", "x", "y"]
    assert [note.code for note in reply.notes] == ["text-differs"]


@each("streams", [True, False])
def test_two_texts_of_one_message_are_one_message_for_a_client(streams: bool) -> None:
    source = {"type": "url_citation", "start_index": 0, "end_index": 4, "url": "https://a", "title": "A"}
    item = message("One ", "two. ", "three.", id="i0", phase="commentary", status="completed")
    item["content"][1]["annotations"] = [source]
    pieces = [added("message", phase="commentary")]
    for index, part in enumerate(item["content"]):
        pieces += [delta(text, content_index=index) for text in part["text"]]
        pieces.append({"type": "response.content_part.done", "output_index": 0, "content_index": index, "part": part})
    events, reply = read(*pieces, over(item), over(message("Four.", id="i1"), 1), done(item, message("Four.", id="i1")))
    if not streams:
        events = [*reply_events(reply), cnllm.Finished("stop", "completed")]
    assert (
        body(replace(reply.message, parts=tuple(e.part for e in events if type(e) is BlockEnd)))["input"][0]["content"]
        == item["content"]
    )
    writer = engine.StreamWriter(WIRE, id="x", model="m")
    data = b"".join([writer.begin(), *map(writer.feed, events)])
    frames = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    ended = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert ended == frames[-1]["response"]["output"]
    whole = engine.encode_reply(WIRE, reply)["output"]
    assert [[(part["text"], part["annotations"]) for part in item["content"]] for item in ended] == [
        [(part["text"], part["annotations"]) for part in item["content"]] for item in whole
    ]
    assert [item.get("phase") for item in ended] == ["commentary", None]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    texts: dict[tuple[int, int], str] = {}
    for frame in frames:
        place = frame.get("output_index", -1), frame.get("content_index", -1)
        if frame["type"] == "response.content_part.added":
            texts[place] = ""
        elif frame["type"] == "response.output_text.delta":
            texts[place] += frame["delta"]
    assert texts == {(0, 0): "One ", (0, 1): "two. ", (0, 2): "three.", (1, 0): "Four."}
    again = engine.parse_response(MODEL, 200, {}, data)
    assert [type(part) for part in again.message.parts] == [Text] * 4


def test_calls_whose_pieces_are_mixed() -> None:
    first = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": '{"a":1}'}
    second = {"type": "function_call", "call_id": "c1", "name": "g", "arguments": '{"b":2}'}
    kind = "function_call_arguments"
    events, reply = read(
        *(added("function_call", 0, call_id="c0", name="f"), added("function_call", 1, call_id="c1", name="g")),
        *(delta('{"a"', 0, kind), delta('{"b"', 1, kind), delta(":1}", 0, kind), delta(":2}", 1, kind)),
        *(over(first, 0), over(second, 1), done(first, second)),
    )
    assert [(c.id, c.arguments) for c in reply.tool_calls] == [("c0", {"a": 1}), ("c1", {"b": 2})]
    assert [c.seal and c.seal.data for c in reply.tool_calls] == [{"id": "i0"}, {"id": "i1"}]
    assert [event.name for event in events if type(event) is ToolCallStart] == ["f", "g"]
    assert reply.finish == "tool_calls"
    assert reply.notes == []


def test_a_call_that_nothing_announces_keeps_its_own_arguments() -> None:
    kind = "function_call_arguments"
    first = {"type": "function_call", "id": "i0", "call_id": "c0", "name": "f", "arguments": "{}"}
    second = {"type": "function_call", "id": "i1", "call_id": "c1", "name": "g", "arguments": '{"a":1}'}
    _, reply = read(delta("{}", 0, kind), delta('{"a":', 1, kind), delta("1}", 1, kind), done(first, second))
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [("c0", "f", {}), ("c1", "g", {"a": 1})]


@each("has_places", [True, False])
def test_an_item_that_is_announced_behind_its_first_piece_is_one(has_places: bool) -> None:
    call = {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"a":1}'}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Well."}]}
    kind = "function_call_arguments"
    events = [
        *(delta("Well.", 0, "reasoning_summary_text", summary_index=0), added("reasoning"), over(thought)),
        *(delta("He", 1), added("message", 1), delta("llo", 1), over(message("Hello"), 1)),
        *(delta('{"a"', 2, kind), added("function_call", 2, call_id="c2", name="f"), delta(":1}", 2, kind)),
        *(over(call, 2), done()),
    ]
    if not has_places:
        events = [{key: value for key, value in event.items() if key != "output_index"} for event in events]
    _, reply = read(*events)
    assert (reply.reasoning, reply.text) == ("Well.", "Hello")
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [("c2", "f", {"a": 1})]
    assert reply.incomplete == []


@each("key", ["call_id", "item_id"])
def test_calls_whose_items_have_no_ids_are_told_apart_by_those_of_the_calls(key: str) -> None:
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": f'{{"a":{n}}}'} for n in (0, 1)]
    begun = [{"type": "response.output_item.added", "item": {**call, "arguments": ""}} for call in calls]
    pieces = [
        {"type": "response.function_call_arguments.delta", key: f"c{n}", "delta": piece}
        for piece_pair in (('{"a"', '{"a"'), (":0}", ":1}"))
        for n, piece in enumerate(piece_pair)
    ]
    ends = [{"type": "response.output_item.done", "item": call} for call in calls]
    for events in ([*begun, *pieces, *ends], [*begun, *pieces], [*begun, *ends], ends, [*begun, *pieces, *ends[::-1]]):
        _, reply = read(*events, done(*calls))
        assert [(c.id, c.arguments) for c in reply.tool_calls] == [("c0", {"a": 0}), ("c1", {"a": 1})]
        assert reply.incomplete == []
        assert reply.notes == []


def test_a_call_whose_item_has_no_end_is_passed_on_as_complete() -> None:
    begun = added("function_call", call_id="c0", name="f", status="in_progress", arguments="")
    whole = {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "i0", "arguments": "{}"}
    events, reply = read(begun, whole, done())
    assert engine.encode_reply(WIRE, reply)["output"][0]["status"] == "completed"
    writer = engine.StreamWriter(WIRE, id="x", model="m")
    again = engine.parse_response(MODEL, 200, {}, b"".join([writer.begin(), *map(writer.feed, events)]))
    assert [(c.id, c.name, c.arguments) for c in again.tool_calls] == [("c0", "f", {})]


def test_a_call_begins_where_it_stands_in_the_reply() -> None:
    kind = "function_call_arguments"
    begun, arguments = added("function_call", 0, call_id="c0", name="f"), delta('{"a":1}', 0, kind)
    call = {"type": "function_call", "id": "i0", "call_id": "c0", "name": "f", "arguments": '{"a":1}'}
    events, reply = read(begun, delta("hi", 1), arguments, over(call), done(call))
    assert [type(part) for part in reply.message.parts] == [ToolCall, Text]
    begins = [event for event in events if type(event) in (ToolCallStart, TextDelta)]
    assert begins == [ToolCallStart(0, "c0", "f"), TextDelta("hi")]


@each("search", [False, True])
def test_texts_behind_a_call_are_no_empty_messages_for_a_client(search: bool) -> None:
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
    source = {"type": "url_citation", "start_index": 0, "end_index": 3, "url": "https://a", "title": "A"}
    looking = message("I look.", id="m1", phase="commentary")
    looking["content"][0]["annotations"] = [source]
    answer = message(" It rains.", id="m2", phase="final_answer")
    between = [over({"type": "web_search_call", "action": {"type": "search", "query": "q"}}, 2)] if search else []
    events, reply = read(
        *(over(call), delta("I look.", 1), over(looking, 1), *between, delta(" It rains.", 3), over(answer, 3), done())
    )
    writer = engine.StreamWriter(WIRE, id="x", model="m")
    sent = b"".join([writer.begin(), *map(writer.feed, events)])
    output = json.loads(sent.rpartition(b"data: ")[2])["response"]["output"]
    messages = [item for item in output if item["type"] == "message"]
    assert [item["content"][0]["text"] for item in messages] == ["I look.", " It rains."]
    assert [(item["phase"], item["content"][0]["annotations"]) for item in messages] == [
        ("commentary", [source]),
        ("final_answer", []),
    ]
    whole = engine.encode_reply(WIRE, reply)["output"]
    assert [item["type"] for item in output] == [item["type"] for item in whole]
    assert [item["content"] for item in messages] == [item["content"] for item in whole if item["type"] == "message"]
    done_items = [json.loads(line[6:]) for line in sent.decode().splitlines() if line.startswith("data: ")]
    assert [e["item"] for e in done_items if e["type"] == "response.output_item.done" and e["item"] in messages]


def test_reasoning_behind_a_call_keeps_its_token_for_a_client_of_messages() -> None:
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"}
    pieces = (delta("hm", 1, "reasoning_summary_text"), over(thought, 1), delta("hi", 2), over(message("hi"), 2))
    events, reply = read(over(call), *pieces, done())
    writer = engine.StreamWriter("anthropic-messages", id="x", model="m")
    token = Seal("anthropic-messages", "", "", {"signature": "token"})
    data = writer.begin()
    for event in events:
        is_reasoning = type(event) is BlockEnd and type(event.part) is Reasoning
        data += writer.feed(replace(event, part=replace(event.part, seal=token)) if is_reasoning else event)
    claude = REGISTRY.resolve("anthropic/claude-sonnet-4-5")
    again = engine.parse_response(claude, 200, {}, data).message.parts
    assert [type(part) for part in again] == [type(part) for part in reply.message.parts]
    assert [(p.text, p.seal and p.seal.data["signature"]) for p in again if type(p) is Reasoning] == [("hm", "token")]


def test_parts_behind_a_call_that_is_none_in_the_end_are_reported_once() -> None:
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": '{"a":1}'}
    parser = engine.StreamParser(MODEL)
    events: list[Any] = []
    for event in (over(call), delta("one", 1), over(message("one"), 1), delta("two", 2)):
        events += parser.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    assert [e.index for e in events if type(e) is BlockEnd] == [1]
    events += parser.end()
    with pytest.raises(cnllm.StreamCut) as caught:
        parser.close()
    reply = caught.value.reply
    assert reply is not None
    assert [(e.index, e.part) for e in events if type(e) is BlockEnd] == list(enumerate(reply.message.parts, 1))
    assert "".join(e.text for e in events if type(e) is TextDelta) == reply.text == "onetwo"


@each("field", ["summary", "content"])
def test_sealed_reasoning_between_a_call_and_a_text_is_passed_on_once(field: str) -> None:
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}
    kind = "summary_text" if field == "summary" else "reasoning_text"
    thought = {"type": "reasoning", "summary": [], field: [{"type": kind, "text": "hm"}], "encrypted_content": "e"}
    pieces = delta("hm", 1, "reasoning_summary_text" if field == "summary" else kind)
    events, _ = read(over(call), added("reasoning", 1), pieces, over(thought, 1), delta("hi", 2), done(call, thought))
    writer = engine.StreamWriter(WIRE, id="x", model="m")
    again = engine.parse_response(MODEL, 200, {}, b"".join([writer.begin(), *map(writer.feed, events)]))
    assert (again.reasoning, again.text) == ("hm", "hi")
    seals = [part.seal.data for part in again.message.parts if type(part) is Reasoning and part.seal is not None]
    assert [data["encrypted_content"] for data in seals if "encrypted_content" in data] == ["e"]


def test_sealed_reasoning_that_only_the_last_event_has() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    late = {"id": "i0", **item, "encrypted_content": "e"}
    _, reply = read(
        added("reasoning"),
        delta("hm", 0, "reasoning_summary_text", summary_index=0),
        over(item),
        delta("so", 1),
        done(late),
    )
    thought = reply.message.parts[0]
    assert thought == Reasoning("hm", seal(late))


def test_a_text_between_pieces_of_reasoning_leaves_the_whole_item_to_go_back() -> None:
    item = {"type": "reasoning", "encrypted_content": "e", "summary": [{"type": "summary_text", "text": "so, hm"}]}
    pieces = [delta(text, 0, "reasoning_summary_text", summary_index=0) for text in ("so, ", "hm")]
    _, reply = read(pieces[0], delta("x", 1), pieces[1], over(item), over(message("x"), 1), done())
    assert (reply.reasoning, reply.text) == ("so, hm", "x")
    seals = [part.seal.data for part in reply.message.parts if type(part) is Reasoning and part.seal is not None]
    assert seals == [{**item, "id": "i0"}]


@pytest.mark.parametrize(("whole", "is_whole"), [('{"a": 1}', True), ('{"a":2}', False), ('{"b":', False)])
def test_a_call_whose_arguments_are_others_at_its_end_is_not_whole(whole: str, is_whole: bool) -> None:
    call: dict[str, Any] = {"call_id": "c", "name": "f"}
    piece = {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "i0", "delta": '{"a":1}'}
    _, reply = read(
        added("function_call", **call, arguments=""),
        piece,
        over({"type": "function_call", **call, "arguments": whole}),
        done(),
    )
    assert [found.arguments for found in reply.tool_calls] == [{"a": 1}] * is_whole
    assert len(reply.incomplete) == (not is_whole)


@pytest.mark.parametrize("times", [8, 9])
def test_an_item_that_comes_again_and_again_is_read_eight_times(times: int) -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    late = {"id": "i0", **item, "encrypted_content": "e"}
    _, reply = read(added("reasoning"), *[over(item)] * times, delta("so", 1), done(late))
    thought = reply.message.parts[0]
    assert thought.seal is not None
    assert ("encrypted_content" in thought.seal.data) is (times == 8)
    assert [note.code for note in reply.notes] == ["item-repeated"] * (times - 8)


def test_reasoning_in_two_fields_counts_once() -> None:
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
    }
    reply = engine.parse_response(MODEL, 200, {}, json.dumps(done(item)["response"]).encode())
    assert reply.reasoning == "short"
    _, reply = read(
        *(delta(c, 0, "reasoning_text") for c in "long"),
        *(delta(c, 0, "reasoning_summary_text") for c in "short"),
        done(item),
    )
    assert reply.reasoning == "long"


def test_encrypted_reasoning_without_text() -> None:
    _, reply = read(over(THOUGHT), delta("so", 1), done())
    assert reply.message.parts[0] == Reasoning("", seal(THOUGHT))


def test_reasoning_between_a_call_and_its_result_stays_with_the_words_behind_it() -> None:
    turn = by(CALL, Reasoning("", seal(THOUGHT)), Text("so", seal({"item": {"id": "msg_1"}})))
    items = body("hi", turn, DONE, "and?")["input"]
    kinds = [item.get("type") for item in items]
    assert kinds[1:5] == ["function_call", "function_call_output", "reasoning", "message"]


@each("status", ["queued", "in_progress"])
@each("name", ["completed", "done"])
def test_a_reply_that_goes_on_is_not_whole_whatever_its_last_event_is_called(status: str, name: str) -> None:
    with pytest.raises(cnllm.StreamCut) as caught:
        read(delta("so"), {"type": f"response.{name}", "response": {"id": "r", "status": status, "output": []}})
    assert caught.value.reply is not None
    assert (caught.value.reply.text, caught.value.reply.finish) == ("so", "cut")


def test_a_refusal_is_text() -> None:
    item = {**message("I cannot"), "content": [{"type": "refusal", "refusal": "I cannot"}]}
    events, reply = read(delta("I can", 0, "refusal"), delta("not", 0, "refusal"), over(item), done(item))
    assert (reply.text, reply.finish) == ("I cannot", "content_filter")
    writer = engine.StreamWriter(WIRE, id="r", model="m")
    data = writer.begin() + b"".join(map(writer.feed, events))
    kinds = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    [ended] = [event for event in kinds if event["type"] == "response.refusal.done"]
    assert ended["refusal"] == "I cannot"
    assert [event["delta"] for event in kinds if event["type"] == "response.refusal.delta"] == ["I can", "not"]
    assert not [event for event in kinds if event["type"].startswith("response.output_text")]


@each("stream", [False, True])
def test_a_refusal_of_a_chat_model_is_a_complete_response(stream: bool) -> None:
    model = Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
    key = "delta" if stream else "message"
    said = {"role": "assistant", "content": None, "reasoning_content": "Hm.", "refusal": "I cannot"}
    choice = {"index": 0, key: said, "finish_reason": "stop"}
    body = json.dumps({"id": "a", "model": "m", "choices": [choice]}).encode()
    parser = engine.StreamParser(model)
    events = [*parser.feed(b"data: %b\n\ndata: [DONE]\n\n" % body if stream else body), *parser.end()]
    response = engine.encode_reply(WIRE, parser.close())
    if stream:
        writer = engine.StreamWriter(WIRE, id="r", model="m")
        data = writer.begin() + b"".join(map(writer.feed, events))
        frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
        deltas = {frame["type"]: frame["delta"] for frame in frames if "delta" in frame}
        assert deltas == {"response.reasoning_summary_text.delta": "Hm.", "response.refusal.delta": "I cannot"}
        response = frames[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    [content] = response["output"][1]["content"]
    assert content == {"type": "refusal", "refusal": "I cannot"}


def test_an_items_own_tools_stay_as_they_are() -> None:
    item = {"type": "mcp_call", "id": "m", "output": "x"}
    events, reply = read(added("mcp_call"), over(item), delta("so", 1), done(item))
    assert reply.message.parts[0] == Opaque(item, seal(None))
    assert next(event.part for event in events if type(event) is BlockEnd) == Opaque(item, seal(None))


@each("why, finish", [("max_output_tokens", "length"), ("content_filter", "content_filter")])
def test_a_response_that_is_incomplete_says_why(why: str, finish: str) -> None:
    last = done(message("so f"), status="incomplete", incomplete_details={"reason": why})
    _, reply = read(delta("so f"), last)
    assert (reply.text, reply.finish, reply.raw_finish) == ("so f", finish, "incomplete")


@each(
    "event, kind",
    lambda: [
        ({"type": "error", "code": "server_error", "message": "oh", "param": None}, cnllm.EndpointError),
        ({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "oh"}}, cnllm.RateLimited),
        (done(status="failed", error={"code": "context_length_exceeded", "message": "oh"}), cnllm.ContextTooLong),
        ({"type": "odd", "error": {"code": "insufficient_quota", "message": "oh"}}, cnllm.QuotaExceeded),
    ],
)
def test_failures_in_the_middle(event: dict[str, Any], kind: type[cnllm.EndpointError]) -> None:
    with pytest.raises(cnllm.EndpointError, match="oh") as failed:
        read(delta("so f"), event)
    assert type(failed.value) is kind
    assert failed.value.reply is not None
    assert (failed.value.reply.text, failed.value.reply.finish) == ("so f", "error")


def test_a_stream_without_its_end_is_cut() -> None:
    with pytest.raises(cnllm.StreamCut) as cut:
        read(delta("so f"), {"type": "response.output_text.done", "output_index": 0, "text": "so f"})
    assert cut.value.reply is not None
    assert cut.value.reply.text == "so f"


def test_the_fast_way_says_the_same() -> None:
    texts = [delta(str(n % 10), 1, content_index=0) for n in range(300)]
    thoughts = [delta("t", 0, "reasoning_summary_text", summary_index=0) for _ in range(300)]
    end = done(usage={"input_tokens": 1, "output_tokens": 2})
    start = {"type": "response.created", "response": {"id": "r", "model": "m", "output": []}}
    events = [start, *thoughts, *texts, end]
    _, reply = read(*events)
    slow = engine.StreamParser(MODEL, keep_raw=True)
    slow.feed(b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events))
    assert slow.close().message == reply.message
    assert len(reply.text) == len(reply.reasoning) == 300


def test_a_message_that_was_cut_short_before_another_item_is_passed_on_as_such() -> None:
    short, call = message("so f", status="incomplete"), {"type": "function_call", "call_id": "c", "name": "f"}
    call |= {"arguments": "{}", "status": "completed"}
    events, _ = read(
        *(added("message", 0), delta("so f"), over(short, 0), added("function_call", 1, call_id="c", name="f")),
        *(over(call, 1), done({"id": "i0", **short}, {"id": "i1", **call})),
    )
    writer = engine.StreamWriter(WIRE, id="r", model="m")
    body = writer.begin() + b"".join(writer.feed(event) for event in events)
    frames = [json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line.startswith(b"data: {")]
    ended = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert (ended[0]["type"], ended[0]["status"]) == ("message", "incomplete")


def test_an_item_without_a_type_is_a_message_where_it_has_content() -> None:
    content = [{"type": "output_text", "text": "Hi"}]
    body = {"id": "r", "status": "completed", "output": [{"role": "assistant", "content": content}]}
    reply = engine.parse_response(MODEL, 200, {}, json.dumps(body).encode())
    assert (reply.text, reply.finish) == ("Hi", "stop")


def test_a_call_whose_arguments_come_at_its_end_has_a_delta_of_them() -> None:
    writer = engine.StreamWriter(WIRE, id="r", model="m")
    made = ToolCall("call_1", "f", {"a": 1}, '{"a": 1}')
    events: list[cnllm.Event] = [
        ToolCallStart(0, "call_1", "f"),
        cnllm.ToolCallEnd(0, made),
        cnllm.Finished("tool_calls", "stop"),
    ]
    data = writer.begin() + b"".join(writer.feed(event) for event in events)
    written = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    pieces = [event["delta"] for event in written if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(pieces) == '{"a": 1}'


def test_items_end_for_a_client_in_their_order() -> None:
    """A client keeps them in the order in which they end: thoughts must not move before a call."""
    call = {"type": "function_call", "call_id": "c0", "name": "f", "arguments": '{"a":1}'}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"}
    pieces = (delta("hm", 1, "reasoning_summary_text"), over(thought, 1), delta("hi", 2), over(message("hi"), 2))
    events, reply = read(over(call), *pieces, over({**call, "call_id": "c1"}, 3), done())
    writer = engine.StreamWriter(WIRE, id="x", model="m")
    data = b"".join([writer.begin(), *map(writer.feed, [*events])]).decode()
    frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: ")]
    ended = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert ended == frames[-1]["response"]["output"]
    assert [item["type"] for item in ended] == ["function_call", "reasoning", "message", "function_call"]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    kinds = [frame["type"] for frame in frames]
    assert kinds.index("response.output_text.delta") < kinds.index("response.output_item.done")  # no text waits
    assert len(reply.message.parts) == 4
