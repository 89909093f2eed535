"""generateContent, the server's side: requests in, replies and streams out, and back again without loss."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cnllm import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult, Usage, engine
from cnllm.types.messages import as_messages

from .gemini_support import Json, answer, dumps, model, seal, streamed, whole

PATH = "/v1beta/models/gemini-3.8-flash:generateContent"
OF = "google/gemini-3.8-flash"


def read(body: Json, path: str = PATH) -> Any:
    return engine.decode_request("gemini", body, path=path, origin=model())


def again(body: Json) -> Json:
    """The body, as it is after it was read and written once more."""
    request = read(body)
    return engine.build_request(model(), request.messages, stream=request.stream, **request.options).body


def said(*contents: Json, **more: Any) -> Json:
    return {"contents": list(contents), **more}


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts)}


def by_model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


HI = user({"text": "Hi"})


def test_the_path_names_the_model_and_the_stream() -> None:
    assert (read(said(HI)).model, read(said(HI)).stream) == ("gemini-3.8-flash", False)
    stream = read(said(HI), "/google/models/org/odd:name:streamGenerateContent")
    assert (stream.model, stream.stream) == ("org/odd:name", True)
    assert read(said(HI), "").model is None


LOSSLESS: list[Json] = [
    said(HI),
    said(HI, systemInstruction={"parts": [{"text": "Be brief."}]}),
    said(user({"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}, {"text": "b"})),
    said(user({"fileData": {"mimeType": "video/mp4", "fileUri": "u"}, "videoMetadata": {"fps": 2}}, {"text": "x"})),
    said(
        user({"inlineData": {"mimeType": "a/b", "data": "eA==", "displayName": "n"}, "mediaResolution": {"level": "L"}})
    ),
    said(
        HI,
        by_model(
            {"text": "Hm.", "thought": True},
            {"text": "So", "thoughtSignature": "s"},
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "t"},
            {"functionCall": {"id": "x", "name": "g", "args": {}}},
            {"text": "", "thoughtSignature": "u"},
        ),
        user(
            {"functionResponse": {"name": "f", "response": {"output": "one"}}},
            {
                "functionResponse": {
                    "id": "x",
                    "name": "g",
                    "response": {"error": "two"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
                }
            },
        ),
        user({"text": "And?"}),
    ),
    said(
        HI,
        by_model({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "t"}),
        user({"functionResponse": {"name": "f", "response": {"result": {"deep": [1]}}, "scheduling": "SILENT"}}),
    ),
    said(HI, generationConfig={"temperature": 0.1, "topP": 1, "maxOutputTokens": 5, "stopSequences": ["x"], "seed": 1}),
    said(HI, generationConfig={"topK": 3, "responseModalities": ["TEXT"], "responseMimeType": "application/json"}),
    said(HI, generationConfig={"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}}),
    said(HI, generationConfig={"thinkingConfig": {"includeThoughts": False, "thinkingLevel": "HIGH"}}),
    said(HI, generationConfig={"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}),
    said(HI, safetySettings=[{"category": "C", "threshold": "T"}], cachedContent="cachedContents/x"),
    said(HI, tools=[{"functionDeclarations": [{"name": "f", "description": "d"}]}, {"googleSearch": {}}]),
    *(
        said(
            HI,
            tools=[
                {"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object", "properties": {}}}]}
            ],
            toolConfig={"functionCallingConfig": config},
        )
        for config in (
            {"mode": "AUTO"},
            {"mode": "NONE"},
            {"mode": "ANY"},
            {"mode": "VALIDATED"},
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
            {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
        )
    ),
    said(HI, toolConfig={"retrievalConfig": {"languageCode": "de"}}),
]


@each("body", LOSSLESS)
def test_a_request_survives_the_way_through_neutral_types(body: Json) -> None:
    assert again(body) == body


@each(
    "config, is_option",
    [
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, True),
        ({"mode": "ANY"}, True),
        ({"mode": "NONE"}, True),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, False),
    ],
)
def test_a_choice_of_tools_goes_to_another_endpoint_once(config: Json, is_option: bool) -> None:
    """As an option, which each wire has in its own words, or as the client's own keys; not as both."""
    tools = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    options = read(said(HI, tools=tools, toolConfig={"functionCallingConfig": config})).options
    assert ("tool_choice" in options, "extra_body" in options) == (is_option, not is_option)


def test_both_spellings_are_understood() -> None:
    odd = {
        "contents": [{"parts": [{"text": "Hi", "thought": False}]}],
        "system_instruction": {"parts": [{"text": "A"}], "role": "user"},
        "generation_config": {
            "max_output_tokens": 5,
            "thinking_config": {"include_thoughts": True, "thinking_level": "LOW"},
        },
        "tools": [
            {
                "function_declarations": [
                    {
                        "name": "f",
                        "parameters": {
                            "type": "OBJECT",
                            "properties": {
                                "a": {"type": "STRING", "nullable": True},
                                "b": {"type": "ARRAY", "minItems": "1"},
                            },
                            "property_ordering": ["a"],
                        },
                    }
                ],
                "code_execution": None,
            }
        ],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
        "safetySettings": None,
    }
    assert again(odd) == {
        "systemInstruction": {"parts": [{"text": "A"}]},
        "contents": [HI],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "f",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array", "minItems": 1}},
                            "propertyOrdering": ["a"],
                        },
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 5, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}},
    }


NULL = {"type": "null"}


@each(
    "own, expected",
    [
        ({"type": "STRING", "enum": ["x", "y"]}, {"type": ["string", "null"], "enum": ["x", "y", None]}),
        ({"type": ["STRING", "NULL"], "enum": ["x", None]}, {"type": ["string", "null"], "enum": ["x", None]}),
        ({"anyOf": [{"type": "STRING"}, {"minItems": "1"}]}, {"anyOf": [{"type": "string"}, {"minItems": 1}, NULL]}),
        ({"any_of": [{"type": "STRING"}, {"type": "NULL"}]}, {"anyOf": [{"type": "string"}, NULL]}),
        ({"oneOf": [{"type": "STRING", "nullable": True}]}, {"oneOf": [{"type": ["string", "null"]}]}),
        (
            {"type": "OBJECT", "anyOf": [{"required": ["a"]}]},
            {"type": ["object", "null"], "anyOf": [{"required": ["a"]}, NULL]},
        ),
        ({"$ref": "#/$defs/a"}, {"anyOf": [{"$ref": "#/$defs/a"}, NULL]}),
        ({"$ref": "#/$defs/a", "$defs": {}}, {"$defs": {}, "anyOf": [{"$ref": "#/$defs/a"}, NULL]}),
        ({"description": "d"}, {"description": "d"}),
    ],
)
def test_a_schema_that_takes_null_goes_on_with_null(own: dict[str, Any], expected: dict[str, Any]) -> None:
    schema = {"type": "OBJECT", "properties": {"a": {**own, "nullable": True}}}
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    functions = [{"name": "f", "parameters": schema}, {"name": "g", "parametersJsonSchema": schema}]
    body = said(HI, tools=[{"functionDeclarations": functions}], generationConfig=config)
    options = read(body).options
    parameters = [tool["function"]["parameters"] for tool in options["tools"]]
    for found in (*parameters, options["schema"]["json_schema"]["schema"]):
        assert found["properties"]["a"] == expected
    if "$ref" not in own and "oneOf" not in own:  # which the endpoint does not take as they are
        sent = again(body)
        parameters = sent["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
        for found in (parameters, sent["generationConfig"]["responseJsonSchema"]):
            assert found["properties"]["a"] == expected


def test_options_are_those_of_the_clients() -> None:
    body = said(HI, generationConfig={"thinkingConfig": {"thinkingBudget": 0}, "responseMimeType": "application/json"})
    body["generationConfig"]["responseSchema"] = {"type": "OBJECT", "title": "A b"}
    request = read(body)
    assert request.options == {
        "reasoning": "off",
        "schema": {"json_schema": {"name": "A_b", "schema": {"type": "object", "title": "A b"}}},
    }
    dynamic = read(said(HI, generationConfig={"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": True}}))
    assert dynamic.options == {"reasoning": "on"}
    shown = read(said(HI, generationConfig={"thinkingConfig": {"includeThoughts": True}}))
    assert shown.options == {"reasoning": "on"}
    hidden = read(said(HI, generationConfig={"thinkingConfig": {"includeThoughts": False}}))
    assert "reasoning" not in hidden.options


def test_a_number_that_is_written_as_text_is_a_number() -> None:
    """JSON of protocol buffers has both for each number."""
    numbers = {"temperature": 0.5, "topP": 0.75, "topK": 4, "maxOutputTokens": 300, "seed": 2**53 + 1, "logprobs": 2}
    budget = {"thinkingBudget": -1}
    texts = {key: str(value) for key, value in numbers.items()}
    config = {**texts, "candidateCount": "1", "thinkingConfig": {"thinkingBudget": "-1"}}
    assert read(said(HI, generationConfig=config)) == read(
        said(HI, generationConfig={**numbers, "candidateCount": 1, "thinkingConfig": budget})
    )
    with pytest.raises(ValueError, match="candidateCount"):
        read(said(HI, generationConfig={"candidateCount": "2"}))
    for text in ("many", "NaN", '"3"', "[3]", ""):
        assert read(said(HI, generationConfig={"topK": text})).options["extra_body"] == {
            "generationConfig": {"topK": text}
        }


@each(
    "body, where",
    lambda: [
        ({}, "contents"),
        ({"contents": "Hi"}, "contents"),
        (said({"role": "assistant", "parts": []}), "contents[0].role"),
        ({"contents": [HI, 3]}, "contents[1]"),
        (said({"parts": [{"text": "a"}, "b"]}), "contents[0].parts[1]"),
        (said(by_model({"functionCall": {"args": {}}})), "contents[0].parts[0].functionCall.name"),
        (said(by_model({"functionCall": {"name": "f", "args": "x"}})), "functionCall.args"),
        (said(user({"functionResponse": {"name": "f", "response": "x"}})), "functionResponse.response"),
        (said(HI, tools={}), "tools"),
        (said(HI, tools=[{"functionDeclarations": [{}]}]), "tools[0].functionDeclarations[0].name"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(body: Json, where: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(body)
    assert where in str(caught.value)


# ── replies ──────────────────────────────────────────────────────────────────

REPLIES: list[Json] = [
    answer({"text": "Hi"}, modelVersion="m", responseId="r"),
    answer(
        {"text": "Hm.", "thought": True}, {"text": "Hi", "thoughtSignature": "s"}, {"text": "", "thoughtSignature": "t"}
    ),
    answer(
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
        {"functionCall": {"name": "f", "args": {}}},
    ),
    answer({"text": "a"}, {"functionCall": {"id": "x", "name": "f", "args": {}}}),
    answer({"text": "cut"}, finish="MAX_TOKENS"),
    answer({"text": "no"}, finish="RECITATION"),
    answer(
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}
    ),
    answer(
        {"text": "x"},
        usageMetadata={
            "promptTokenCount": 9,
            "candidatesTokenCount": 4,
            "totalTokenCount": 19,
            "cachedContentTokenCount": 5,
            "thoughtsTokenCount": 6,
        },
    ),
]


@each("body", REPLIES)
def test_a_reply_survives_the_way_through_neutral_types(body: Json) -> None:
    assert engine.encode_reply("gemini", whole(body)) == body


def piece(part: Json) -> Json:
    return answer(part, finish=None, modelVersion="m", responseId="r")


@each("body", REPLIES)
def test_a_stream_that_is_written_is_read_as_what_it_was(body: Json) -> None:
    reply = whole(body)
    parser = engine.StreamParser(model())
    events = [*parser.feed(dumps(body)), *parser.end()]
    writer = engine.StreamWriter("gemini", id="r", model="m")
    content = writer.begin() + b"".join(map(writer.feed, events))
    told, _ = streamed(content)
    for name in ("text", "reasoning", "finish", "raw_finish", "usage"):
        assert getattr(told, name) == getattr(reply, name)
    wire = [
        [(c.id if not c.id.startswith("call_") else "", c.name, c.raw, c.seal) for c in r.tool_calls]
        for r in (told, reply)
    ]  # an id that the wire did not give is made for each reply
    assert wire[0] == wire[1]
    seals = [[p.seal for p in r.message.parts if p.seal is not None] for r in (told, reply)]
    assert seals[0] == seals[1]


def test_errors_are_worded_by_the_protocol() -> None:
    assert engine.encode_error("gemini", 429, "Slow down.") == {
        "error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}
    }
    error = engine.encode_error("gemini", 404, "No such model.", "model_not_found")["error"]
    assert (error["status"], error["details"]) == ("NOT_FOUND", [{"reason": "model_not_found"}])
    assert "details" not in engine.encode_error("gemini", 404, "No such model.", "NOT_FOUND")["error"]
    writer = engine.StreamWriter("gemini")
    assert b'"UNAVAILABLE"' in writer.error(503, "Busy.")


def test_a_block_of_another_wire_is_not_written() -> None:
    code = {"executableCode": {"code": "1"}}
    foreign = replace(seal(None), protocol="openai-chat")
    parts = [Opaque(code), Opaque(code, foreign), Opaque("code", seal(None)), Opaque(code, seal(None))]
    body = engine.encode_reply("gemini", replace(whole(answer({"text": "x"})), message=Message("assistant", parts)))
    assert body["candidates"][0]["content"]["parts"] == [code]


def test_a_reply_of_another_wire_has_what_this_one_can_say() -> None:
    chat = {
        "choices": [{"index": 0, "message": {"content": "Hi", "reasoning_content": "Hm."}, "finish_reason": "length"}]
    }
    from .gemini_support import registry

    reply = engine.parse_response(registry().resolve("glm-4.7"), 200, {}, dumps(chat))
    assert engine.encode_reply("gemini", reply) == answer(
        {"text": "Hm.", "thought": True}, {"text": "Hi"}, finish="MAX_TOKENS"
    )


# ── anything ─────────────────────────────────────────────────────────────────

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PLAIN = TEXTS.filter(lambda text: bool(text.strip()))
SEALS = st.none() | TEXTS.map(lambda text: seal({"thoughtSignature": text}))
ARGS = st.dictionaries(TEXTS, st.integers(-9, 9) | TEXTS | st.none() | st.lists(st.booleans(), max_size=2), max_size=2)
NAMES = st.sampled_from(["f", "g", "h"])
MEDIA = st.builds(Media, st.just("image/png"), st.just("aGk=")) | st.just(Media("audio/wav", None, "https://x/y"))


@st.composite
def conversations(draw: Any) -> list[Message]:
    """Turns as they may stand, each call answered."""
    out = [Message("system", [Text(draw(PLAIN))])] if draw(st.booleans()) else []
    nth = 0
    for _ in range(draw(st.integers(1, 3))):
        out.append(Message("user", draw(st.lists(PLAIN.map(Text) | MEDIA, min_size=1, max_size=3))))
        spoken: list[Part] = draw(
            st.lists(
                st.builds(Text, PLAIN, SEALS)
                | st.builds(Reasoning, PLAIN, SEALS)
                | st.just(Text("", seal({"thoughtSignature": "e"})))
                | st.just(Opaque({"executableCode": {"code": "1"}}, seal(None))),
                min_size=1,
                max_size=3,
            )
        )
        calls = [
            ToolCall(f"id{nth + i}", draw(NAMES), args, "", seal=seal({"thoughtSignature": "c"}))
            for i, args in enumerate(draw(st.lists(ARGS, max_size=2)))
        ]
        nth += len(calls)
        out.append(Message("assistant", [*spoken, *calls, *([Text("end")] if not calls else [])], by=OF))
        results = [ToolResult(c.id, draw(TEXTS | st.just('{"a":[1,"ü"]}')), c.name, draw(st.booleans())) for c in calls]
        if results:
            out.append(Message("tool", results))
    return out


def plain(messages: list[Message]) -> list[Any]:
    """Messages without what means nothing: the text form of arguments."""
    return [
        (m.role, [(p.id, p.name, p.arguments, p.seal) if isinstance(p, ToolCall) else p for p in m.parts])
        for m in messages
    ]


@given(conversations())
def test_a_conversation_is_the_same_after_it_was_written_and_read(messages: list[Message]) -> None:
    plan = engine.build_request(model(), messages)
    assert plan.notes == []
    assert plain(read(plan.body).messages) == plain(as_messages(messages))
    assert again(plan.body) == plan.body


KEYS = [
    *("contents", "role", "parts", "text", "thought", "functionCall", "functionResponse", "name", "args", "response"),
    *("id", "inlineData", "data", "mimeType", "tools", "functionDeclarations", "parameters", "type", "toolConfig"),
    *("functionCallingConfig", "mode", "allowedFunctionNames", "generationConfig", "thinkingConfig", "thinkingLevel"),
    *("thinkingBudget", "responseMimeType", "responseSchema", "title", "anyOf", "properties", "systemInstruction"),
]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "model", "user", "ANY", "application/json"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)
BODIES = st.fixed_dictionaries(
    {"contents": st.lists(st.fixed_dictionaries({"parts": st.lists(ODD, max_size=2)}) | ODD, max_size=3)},
    optional=dict.fromkeys(("tools", "toolConfig", "generationConfig", "systemInstruction", "other"), ODD),
)


@given(BODIES | st.dictionaries(st.sampled_from(KEYS), ODD))
def test_any_body_is_read_or_refused(body: Json) -> None:
    with contextlib.suppress(ValueError):
        read(body)


def test_a_file_of_openais_shape_is_understood() -> None:
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="}}
    body = engine.build_request(model(), [{"role": "user", "content": [{"type": "text", "text": "?"}, file]}]).body
    assert body["contents"][0]["parts"][1:] == [
        {"text": "\n\n[PDF a.pdf]"},
        {"inlineData": {"mimeType": "application/pdf", "data": "eA=="}},
    ]


def test_tokens_of_tools_are_no_tokens_of_the_prompt() -> None:
    for by_tools, prompt in ((3, 4), (7, 0), (9, 0), (None, 7), ("3", 7)):
        own = {} if by_tools is None else {"usage": {"toolUsePromptTokenCount": by_tools}}
        reply = replace(whole(answer({"text": "Hi"})), usage=Usage(input=7, output=2), extra=own)
        body = engine.encode_reply("gemini", reply)
        assert body["usageMetadata"]["promptTokenCount"] == prompt, by_tools
        assert body["usageMetadata"].get("toolUsePromptTokenCount") == by_tools


def test_a_reply_without_parts_has_the_role_alone() -> None:
    reply = engine.parse_response(model(), 200, {}, dumps({"candidates": [{"finishReason": "SAFETY"}]}))
    [candidate] = engine.encode_reply("gemini", reply)["candidates"]
    assert candidate["content"] == {"role": "model"}


def test_a_file_without_a_type_is_a_file() -> None:
    found = engine.decode_request("gemini", said(user({"fileData": {"fileUri": "https://a.example/x"}})))
    [part] = found.messages[0].parts
    assert isinstance(part, Media)
    assert (part.type, part.url) == ("file", "https://a.example/x")
