"""generateContent, writing: requests as its endpoints take them, with everything in its place."""

from __future__ import annotations

from typing import Any

from cases import each

import cnllm
from cnllm import Media, Message, Opaque, Reasoning, Seal, Text, ToolCall, ToolResult, engine

from .gemini_support import Json, model, registry, seal

USER = {"role": "user", "content": "Hi"}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Json] = [
    {"type": "function", "function": {"name": "weather", "description": "Now", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "clock"}},
]
STAND_IN = "skip_thought_signature_validator"


def plan(messages: Any, of: str = "gemini-3.8-flash", **options: Any) -> cnllm.Plan:
    return engine.build_request(model(of), messages, **options)


def codes(made: cnllm.Plan) -> list[str]:
    return [note.code for note in made.notes]


def test_the_model_and_the_stream_are_in_the_url() -> None:
    base = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash"
    whole, stream = plan("Hi"), plan("Hi", stream=True)
    assert (whole.url, stream.url) == (f"{base}:generateContent", f"{base}:streamGenerateContent?alt=sse")
    assert whole.body == stream.body == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    assert whole.headers["x-goog-api-key"] == "{key}"
    assert whole.turns == whole.body["contents"]
    assert whole.notes == []


def test_an_endpoint_that_nobody_described() -> None:
    made = registry().resolve("openai-compatible/some-id", protocol="gemini", base_url="http://127.0.0.1:9/v1beta")
    assert engine.build_request(made, "Hi").url == "http://127.0.0.1:9/v1beta/models/some-id:generateContent"


def test_system_text_from_anywhere() -> None:
    made = plan([{"role": "system", "content": "A"}, USER, {"role": "developer", "content": "B"}])
    assert made.body["systemInstruction"] == {"parts": [{"text": "A\n\nB"}]}
    assert made.body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]
    alone = plan([{"role": "system", "content": "A"}])
    assert alone.body["contents"] == [{"role": "user", "parts": [{"text": "…"}]}]
    assert "first-user" in codes(alone)


def test_parameters_have_their_places() -> None:
    made = plan("Hi", temperature=0.5, top_p=0.9, max_tokens=99, stop="x", seed=7, extra_body={"safetySettings": []})
    assert made.body["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 99,
        "stopSequences": ["x"],
        "seed": 7,
    }
    assert made.body["safetySettings"] == []
    assert plan("Hi", stop=["a", "b"]).body["generationConfig"] == {"stopSequences": ["a", "b"]}


@each(
    "of, asked, wanted",
    [
        ("gemini-3.8-flash", "high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", "on", {"includeThoughts": True}),
        ("gemini-3.8-flash", 2000, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.8-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.6-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-4-argon", "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", "off", None),
        ("gemini-2.5-pro", "off", None),
        ("gemini-2.5-pro", 100, {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "medium", {"includeThoughts": True, "thinkingBudget": 8192}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", 99_999, {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash-lite", "on", {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-2.5-flash-lite", 100, {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-2.5-flash-lite", None, None),
    ],
)
def test_reasoning_by_level_and_by_budget(of: str, asked: Any, wanted: Json | None) -> None:
    assert plan("Hi", of, reasoning=asked).body.get("generationConfig", {}).get("thinkingConfig") == wanted


def test_a_level_that_is_only_spelt_in_capitals_is_no_change() -> None:
    assert plan("Hi", reasoning="high").notes == []
    assert codes(plan("Hi", reasoning="max")) == ["reasoning-level"]


# ── tools ────────────────────────────────────────────────────────────────────


def test_tools_are_one_table_beside_the_endpoints_own() -> None:
    made = plan("Hi", tools=[*TOOLS, {"googleSearch": {}}])
    assert made.body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "Now", "parametersJsonSchema": SCHEMA},
                {"name": "clock"},
            ]
        },
        {"googleSearch": {}},
    ]
    assert "toolConfig" not in made.body


@each(
    "choice, wanted",
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("clock", {"mode": "ANY", "allowedFunctionNames": ["clock"]}),
    ],
)
def test_each_choice_of_tools_is_written_for_gemini(choice: str, wanted: Json) -> None:
    made = plan("Hi", tools=TOOLS, tool_choice=choice)
    assert made.body["toolConfig"] == {"functionCallingConfig": wanted}


def test_strict_tools_are_a_mode() -> None:
    strict = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
    assert plan("Hi", tools=[strict]).body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    forced = plan("Hi", tools=[strict], tool_choice="required").body["toolConfig"]
    assert forced == {"functionCallingConfig": {"mode": "ANY"}}


def test_schemas_are_in_the_subset_that_is_taken() -> None:
    odd = {
        "$schema": "x",
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}, "b": {"oneOf": [{"type": "string"}]}},
        "$defs": {"A": {"type": "integer"}},
    }
    made = plan("Hi", tools=[{"name": "f", "parameters": odd}])
    assert made.body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "d"}, "b": {"anyOf": [{"type": "string"}]}},
    }


def test_an_answer_by_a_schema() -> None:
    made = plan("Hi", schema=SCHEMA)
    assert made.body["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    with_tools = plan("Hi", "gemini-2.5-flash", schema=SCHEMA, tools=TOOLS)
    assert "generationConfig" not in with_tools.body  # older models take either, and it is asked for in words
    assert "city" in with_tools.body["systemInstruction"]["parts"][0]["text"]
    assert "responseJsonSchema" in plan("Hi", schema=SCHEMA, tools=TOOLS).body["generationConfig"]


# ── history ──────────────────────────────────────────────────────────────────

CALLS = [
    ToolCall("id1", "weather", {"city": "Bern"}, '{"city":"Bern"}', seal=seal({"thoughtSignature": "s"})),
    ToolCall("call_1", "clock", {}, "{}"),
]


def turn(*parts: Any, by: str = "google/gemini-3.8-flash") -> Message:
    return Message("assistant", parts, by=by)


def test_what_the_model_said_goes_back_part_by_part() -> None:
    thought = Reasoning("Hm.", seal({"thoughtSignature": "t"}))
    empty = Text("", seal({"thoughtSignature": "u"}))
    code = Opaque({"executableCode": {"code": "1"}}, seal(None))
    made = plan([USER, turn(thought, Text("So:"), code, *CALLS, empty), ToolResult("id1", "21"), "And?"][:2])
    assert made.body["contents"][1]["parts"] == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "t"},
        {"text": "So:"},
        {"executableCode": {"code": "1"}},
        {"functionCall": {"id": "id1", "name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "s"},
        {"functionCall": {"name": "clock", "args": {}}},
        {"text": "", "thoughtSignature": "u"},
    ]


def test_results_are_one_turn_in_the_order_of_the_calls() -> None:
    results = [
        Message("tool", [ToolResult("call_1", "noon")]),
        Message("tool", [ToolResult("id1", '{"degrees":21}', "weather")]),
    ]
    made = plan([USER, turn(*CALLS), *results, "And?"])
    assert made.body["contents"][2:] == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "id1", "name": "weather", "response": {"degrees": 21}}},
                {"functionResponse": {"name": "clock", "response": {"output": "noon"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


@each(
    "result, wanted",
    lambda: [
        (ToolResult("id1", "plain"), {"output": "plain"}),
        (ToolResult("id1", "[1]"), {"output": "[1]"}),
        (ToolResult("id1", ""), {"output": ""}),
        (ToolResult("id1", "{no json"), {"output": "{no json"}),
        (ToolResult("id1", '{"a":{"b":[1]}}'), {"a": {"b": [1]}}),
        (ToolResult("id1", '{"output":"x"}'), {"output": '{"output":"x"}'}),
        (ToolResult("id1", "boom", error=True), {"error": "boom"}),
    ],
)
def test_a_result_is_an_object(result: ToolResult, wanted: Json) -> None:
    made = plan([USER, turn(CALLS[0]), Message("tool", [result])])
    assert made.body["contents"][2]["parts"][0]["functionResponse"]["response"] == wanted


def test_pictures_of_a_result_stay_in_it_where_the_model_takes_them() -> None:
    picture = Media("image/png", "aGk=")
    history = [USER, turn(CALLS[0]), Message("tool", [ToolResult("id1", "see", "weather", media=(picture,))])]
    said = plan(history).body["contents"][2]["parts"][0]["functionResponse"]
    assert said["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]
    older = plan(history, "gemini-2.5-flash")
    assert "media-moved" in codes(older)
    assert older.body["contents"][3]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def test_pictures_of_the_user() -> None:
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,eA=="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    ]
    assert plan([{"role": "user", "content": content}]).body["contents"][0]["parts"] == [
        {"text": "What is it?"},
        {"inlineData": {"mimeType": "image/jpeg", "data": "eA=="}},
        {"fileData": {"fileUri": "https://example.com/a.png"}},
    ]


def test_neighbours_of_the_models_are_one_turn() -> None:
    made = plan([USER, turn(Text("a")), turn(CALLS[0]), Message("tool", [ToolResult("id1", "x")])])
    assert [c["role"] for c in made.body["contents"]] == ["user", "model", "user"]
    assert len(made.body["contents"][1]["parts"]) == 2


def test_a_history_that_begins_with_the_model() -> None:
    assert [c["role"] for c in plan([turn(Text("a")), USER]).body["contents"]] == ["user", "model", "user"]


# ── hand-over ────────────────────────────────────────────────────────────────


def test_calls_of_another_model_carry_the_stand_in_where_it_is_wanted() -> None:
    foreign = Seal("anthropic-messages", "anthropic", "claude", {"signature": "x"})
    theirs = turn(Reasoning("Hm.", foreign), *(c for c in CALLS if c.seal is None), by="anthropic/claude")
    history = [USER, theirs, Message("tool", [ToolResult("call_1", "noon")])]
    made = plan(history)
    assert made.body["contents"][1]["parts"] == [
        {"functionCall": {"name": "clock", "args": {}}, "thoughtSignature": STAND_IN}
    ]
    assert codes(made) == ["reasoning-foreign", "reasoning-filled"]
    older = plan(history, "gemini-2.5-flash")
    assert "thoughtSignature" not in older.body["contents"][1]["parts"][0]


def test_signatures_go_to_the_model_that_gave_them_alone() -> None:
    history: list[Any] = [
        USER,
        turn(Text("a", seal({"thoughtSignature": "s"})), *CALLS),
        Message("tool", [ToolResult("id1", "x")]),
    ]
    assert "'s'" in str(plan(history).body)
    assert "'s'" not in str(plan(history, "gemini-3.5-flash").body)
    other = registry().resolve("google/gemini-3.8-flash")
    assert other.protocol == "openai-chat"
    assert "thoughtSignature" not in str(engine.build_request(other, history).body)


def test_a_picture_goes_back_to_who_made_it() -> None:
    history: list[Any] = [
        USER,
        turn(Text("Here:"), Media("image/png", "aGk=", None, seal({"thoughtSignature": "s"}))),
        "And?",
    ]
    assert plan(history).body["contents"][1]["parts"][1] == {
        "inlineData": {"mimeType": "image/png", "data": "aGk="},
        "thoughtSignature": "s",
    }
    other = engine.build_request(registry().resolve("glm-4.7"), history)
    assert "aGk=" not in str(other.body)
    assert {"media-foreign", "media-dropped"} & set(codes(other))


def test_the_other_door_still_sends_its_own_signatures_back() -> None:
    shim = registry().resolve("google/gemini-3.8-flash")
    extra = {"extra_content": {"google": {"thought_signature": "abc"}}}
    said = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, **extra}
    body = {"choices": [{"index": 0, "message": {"tool_calls": [said]}, "finish_reason": "tool_calls"}]}
    reply = engine.parse_response(shim, 200, {}, cnllm_json(body))
    history: list[Any] = [USER, reply.message, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    assert engine.build_request(shim, history).body["messages"][1]["tool_calls"] == [said]
    native = plan(history).body["contents"][1]["parts"][0]
    assert native == {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": STAND_IN}


def cnllm_json(data: Any) -> bytes:
    import json

    return json.dumps(data).encode()


def test_a_call_and_its_result_go_back_under_the_name_that_the_tool_has_on_the_wire() -> None:
    name = "look_up_the_weather_" * 10
    tool = {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    history = [
        "Hi",
        Message("assistant", [ToolCall("c1", name, {"city": "杭州"})]),
        Message("tool", [ToolResult("c1", "sunny", name)]),
        Message("assistant", [ToolCall("c2", "clock", {})]),
        Message("tool", [ToolResult("c2", "noon", "clock")]),
    ]
    made = plan(history, tools=[tool, TOOLS[1]])
    (declared, clock) = (one["name"] for one in made.body["tools"][0]["functionDeclarations"])
    assert (made.renamed, clock) == ({declared: name}, "clock")
    parts = [part for content in made.body["contents"] for part in content["parts"]]
    calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
    assert calls == results == [declared, "clock"]
