"""B: requests refused for a parameter the endpoint does not take (B8 and B9: test_b_structured.py)."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm

from .support import (
    Json,
    Wire,
    call_turn,
    chunk,
    expect_note,
    home,
    model,
    notes_about,
    ok,
    overlay,
    plan,
    play,
    read_whole,
    result_turn,
    roles,
    streamed,
    text_chunks,
    text_of,
    tool,
    whole_body,
)

OVERLAY = "overlay.toml"
THINKER = """
reasoning.mode = "toggle"
reasoning.default = "on"
reasoning.on = { set = { thinking = { type = "enabled" } } }
reasoning.off = { set = { thinking = { type = "disabled" } } }
reasoning.fields = ["reasoning_content"]
when."reasoning".tool_choice.allowed = ["auto", "none"]
"""
NAMED: Json = {"type": "function", "function": {"name": "search"}}


# ── B1 ───────────────────────────────────────────────────────────────────────
DEEPSEEK = ["deepseek/deepseek-flash", "deepseek/deepseek-v4-pro"]


@each("name", DEEPSEEK)
@each("choice", ["required", "search", NAMED, "any"])
def test_B1_forced_tool_choice_while_thinking_is_downgraded_with_a_note(name: str, choice: Any) -> None:
    made = plan(name, tools=[tool()], tool_choice=choice)
    assert made.body.get("tool_choice", "auto") == "auto"
    assert made.body["tools"]
    assert made.body.get("thinking", {}).get("type") != "disabled"
    expect_note(made.notes, "tool_choice", said="search" if choice in ("search", NAMED) else "required", did="auto")


@each("name", DEEPSEEK)
@each(
    "choice, wire", [("required", "required"), ("any", "required"), ("search", NAMED), (NAMED, NAMED), ("none", "none")]
)
def test_B1_forced_tool_choice_is_forwarded_when_thinking_is_off(name: str, choice: Any, wire: Any) -> None:
    made = plan(name, tools=[tool()], tool_choice=choice, reasoning="off")
    assert made.body["tool_choice"] == wire
    assert made.body["thinking"] == {"type": "disabled"}
    assert notes_about(made.notes, "tool_choice") == []


@each("choice", ["auto", "none"])
def test_B1_what_is_legal_while_thinking_is_sent_without_a_note(choice: str) -> None:
    made = plan("deepseek/deepseek-flash", tools=[tool()], tool_choice=choice)
    assert made.body.get("tool_choice", "auto") == choice
    assert notes_about(made.notes, "tool_choice") == []


def test_B1_the_caller_may_ask_for_an_error_instead() -> None:
    with pytest.raises(cnllm.CannotSend) as caught:
        plan("deepseek/deepseek-flash", tools=[tool()], tool_choice="required", on_unsupported="error")
    expect_note([caught.value.note], "tool_choice", said="required")


def test_B1_the_caller_may_send_it_as_it_is() -> None:
    made = plan("deepseek/deepseek-flash", tools=[tool()], tool_choice="required", on_unsupported="send")
    assert made.body["tool_choice"] == "required"


def test_B1_policy_error_is_declared(tmp_path: Path) -> None:
    with pytest.raises(cnllm.CannotSend) as caught:
        plan(
            home(tmp_path, THINKER + 'tool_choice.otherwise = "error"'),
            tools=[tool()],
            tool_choice="required",
        )
    assert notes_about([caught.value.note], "tool_choice")


def test_B1_policy_reasoning_off_is_declared(tmp_path: Path) -> None:
    target = home(tmp_path, THINKER + 'tool_choice.otherwise = "reasoning-off"')
    made = plan(target, tools=[tool()], tool_choice="required")
    assert made.body["tool_choice"] == "required"
    assert made.body["thinking"] == {"type": "disabled"}
    assert any((note.where or "").rpartition(":")[0].endswith(OVERLAY) for note in made.notes)
    quiet = plan(target, tools=[tool()], tool_choice="auto")
    assert quiet.body.get("thinking", {}).get("type") != "disabled"


# ── B2 ───────────────────────────────────────────────────────────────────────
GLM = ["zai/glm-4.7", "zhipuai/glm-4.7", "zai-coding-plan/glm-4.7"]


@each("name", GLM)
def test_B2_a_named_tool_becomes_auto_with_only_that_tool_offered(name: str) -> None:
    made = plan(name, tools=[tool("other"), tool("search")], tool_choice="search")
    assert made.body.get("tool_choice", "auto") == "auto"
    assert [t["function"]["name"] for t in made.body["tools"]] == ["search"]
    expect_note(made.notes, "tool_choice", said="search", did="auto")


@each("name", GLM)
def test_B2_required_becomes_auto_with_a_note(name: str) -> None:
    made = plan(name, tools=[tool("other"), tool("search")], tool_choice="required")
    assert made.body.get("tool_choice", "auto") == "auto"
    assert len(made.body["tools"]) == 2
    expect_note(made.notes, "tool_choice", said="required", did="auto")


def test_B2_none_never_leaves_the_model_free_to_call() -> None:
    made = plan("zai/glm-4.7", tools=[tool()], tool_choice="none")
    assert made.body.get("tool_choice") == "none" or "tools" not in made.body


# ── B3 ───────────────────────────────────────────────────────────────────────
@each("name", ["moonshotai/kimi-k2.6", "moonshotai-cn/kimi-k2.6"])
@each("choice", ["required", "search"])
def test_B3_forced_choice_is_kept_from_a_thinking_model_that_breaks_on_it(name: str, choice: str) -> None:
    made = plan(name, tools=[tool()], tool_choice=choice)
    assert made.body.get("tool_choice", "auto") == "auto"
    expect_note(made.notes, "tool_choice", said=choice)


def test_B3_the_allowed_values_belong_to_the_model_not_to_the_vendor() -> None:
    k3 = plan("moonshotai/kimi-k3", tools=[tool()], tool_choice="required")
    assert k3.body["tool_choice"] == "required"
    assert notes_about(k3.notes, "tool_choice") == []
    named = plan("moonshotai/kimi-k3", tools=[tool()], tool_choice="search")
    assert not isinstance(named.body.get("tool_choice"), dict)
    off = plan("moonshotai/kimi-k2.6", tools=[tool()], tool_choice="search", reasoning="off")
    assert off.body["tool_choice"] == NAMED


def test_B3_a_user_declares_it_for_one_self_hosted_model(tmp_path: Path) -> None:
    path = tmp_path / OVERLAY
    path.write_text('[models."sglang/zai-org/GLM-4.7"]\ntool_choice.allowed = ["auto"]\n')
    registry = cnllm.Registry.load(str(path))
    made = plan(registry.resolve("sglang/zai-org/GLM-4.7"), tools=[tool()], tool_choice="required")
    assert made.body.get("tool_choice", "auto") == "auto"
    expect_note(made.notes, "tool_choice", said="required", where=OVERLAY)
    other = plan(registry.resolve("sglang/Qwen/Qwen3-8B"), tools=[tool()], tool_choice="required")
    assert other.body["tool_choice"] == "required"


# ── B4 ───────────────────────────────────────────────────────────────────────
DEVELOPER = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@each(
    "name",
    lambda: [
        *DEEPSEEK,
        "minimax/MiniMax-M3",
        "alibaba/qwen3.7-plus",
        "zai/glm-4.7",
        "moonshotai/kimi-k3",
        "openrouter/deepseek/deepseek-v4-pro",
    ],
)
def test_B4_role_developer_becomes_system_with_a_note(name: str) -> None:
    given = copy.deepcopy(DEVELOPER)
    made = plan(name, given)
    assert roles(made.body) == ["system", "user"]
    assert text_of(made.body["messages"][0]["content"]) == "Be brief."
    expect_note(made.notes, "messages.developer", said="developer", did="system")
    assert given == DEVELOPER


def test_B4_role_developer_stays_where_it_is_declared_supported() -> None:
    made = plan("openai/gpt-6-sol", DEVELOPER)
    assert roles(made.body) == ["developer", "user"]
    assert notes_about(made.notes, "messages.developer") == []


def test_B4_an_endpoint_no_one_described_gets_system() -> None:
    assert roles(plan(model("openai-compatible/x", base_url="http://127.0.0.1:9/v1"), DEVELOPER).body)[0] == "system"


# ── B5 ───────────────────────────────────────────────────────────────────────
@each(
    "name, reasoning, legal",
    [
        ("moonshotai/kimi-k2.6", None, 1),
        ("moonshotai-cn/kimi-k2.6", "on", 1),
        ("moonshotai/kimi-k2.6", "off", 0.6),
        ("moonshotai/kimi-k2.5", None, 1),
        ("moonshotai/kimi-k3", None, 1),
        ("moonshotai/kimi-k2.7-code", None, 1),
    ],
)
def test_B5_fixed_sampling_is_omitted_or_sent_at_its_value_with_a_note(
    name: str, reasoning: str | None, legal: float
) -> None:
    made = plan(name, temperature=0.2, top_p=0.5, reasoning=reasoning)
    assert made.body.get("temperature", legal) == legal
    assert made.body.get("top_p", 0.95) == 0.95
    expect_note(made.notes, "params.temperature", said="0.2")
    expect_note(made.notes, "params.top_p", said="0.5")


def test_B5_nothing_is_noted_where_nothing_was_asked() -> None:
    made = plan("moonshotai/kimi-k2.6")
    assert "temperature" not in made.body
    assert notes_about(made.notes, "params") == []


def test_B5_the_caller_may_refuse_the_change_or_insist() -> None:
    with pytest.raises(cnllm.CannotSend):
        plan("moonshotai/kimi-k2.6", temperature=0.2, on_unsupported="error")
    assert plan("moonshotai/kimi-k2.6", temperature=0.2, on_unsupported="send").body["temperature"] == 0.2


# ── B6 ───────────────────────────────────────────────────────────────────────
@each("name", ["minimax/MiniMax-M3", "minimax-cn/MiniMax-M3", "minimax/MiniMax-M2.1"])
@each("asked", [0, 0.0, 1.5])
def test_B6_temperature_outside_a_half_open_interval_is_clamped_with_a_note(name: str, asked: float) -> None:
    made = plan(name, temperature=asked)
    assert 0 < made.body.get("temperature", 1) <= 1
    expect_note(made.notes, "params.temperature", said=asked)


def test_B6_temperature_inside_is_sent_as_it_is() -> None:
    for asked in (0.01, 0.7, 1.0):
        made = plan("minimax/MiniMax-M3", temperature=asked)
        assert made.body["temperature"] == asked
        assert notes_about(made.notes, "params") == []


# ── B7 ───────────────────────────────────────────────────────────────────────
OPEN_QWEN = ["alibaba/qwen3-32b", "alibaba/qwen3-235b-a22b", "alibaba-cn/qwen3-8b"]


@each("name", OPEN_QWEN)
def test_B7_a_whole_call_never_asks_for_thinking_without_streaming(name: str) -> None:
    made = plan(name, stream=False)
    assert made.body.get("enable_thinking") is False or made.body.get("stream") is True
    thinking = plan(name, stream=False, reasoning="on")
    assert thinking.body["enable_thinking"] is True
    assert thinking.body["stream"] is True
    off = plan(name, stream=False, reasoning="off")
    assert off.body["enable_thinking"] is False
    assert not off.body.get("stream")


def test_B7_the_stream_is_collected_into_one_reply() -> None:
    parts = text_chunks("Hm.", field="reasoning_content") + text_chunks("Be", "cause.") + [chunk(finish="stop")]
    wire = Wire(streamed(parts))
    with cnllm.Client(transport=wire.transport, api_key="k") as client:
        reply = client.call("alibaba/qwen3-32b", "why?", reasoning="on")
    assert wire.body()["stream"] is True
    assert (reply.reasoning, reply.text, reply.finish) == ("Hm.", "Because.", "stop")


# ── B10 ──────────────────────────────────────────────────────────────────────
@each(
    "name, ceiling",
    [
        ("deepseek/deepseek-flash", 393_216),
        ("deepseek/deepseek-v4-pro", 393_216),
        ("zai/glm-5.3", 131_072),
        ("zai/glm-4.7", 131_072),
    ],
)
def test_B10_max_tokens_above_the_ceiling_is_clamped_with_a_note(name: str, ceiling: int) -> None:
    made = plan(name, max_tokens=1_000_000)
    assert made.body["max_tokens"] == ceiling
    note = [n for n in made.notes if "1000000" in str(n.said) and str(ceiling) in str(n.did)]
    assert note
    assert "providers.toml:" in (note[0].where or "")
    inside = plan(name, max_tokens=ceiling)
    assert inside.body["max_tokens"] == ceiling
    assert not [n for n in inside.notes if str(ceiling) in str(n.said)]


# ── B11 ──────────────────────────────────────────────────────────────────────
@each(
    "name, field",
    lambda: [
        *[(name, "max_tokens") for name in DEEPSEEK],
        ("zai/glm-4.7", "max_tokens"),
        ("alibaba/qwen3.7-plus", "max_tokens"),
        ("mistral/mistral-large-4", "max_tokens"),
        ("minimax/MiniMax-M3", "max_completion_tokens"),
        ("moonshotai/kimi-k3", "max_completion_tokens"),
        ("openai/gpt-6-sol", "max_completion_tokens"),
    ],
)
def test_B11_the_limit_goes_out_under_the_name_the_endpoint_honours(name: str, field: str) -> None:
    body = plan(name, max_tokens=321).body
    assert body[field] == 321
    assert ({"max_tokens", "max_completion_tokens"} - {field}).isdisjoint(body)


# ── B12 ──────────────────────────────────────────────────────────────────────
@each("name", lambda: [*DEEPSEEK, "zai/glm-5.2", "moonshotai/kimi-k2.6", "moonshotai-cn/kimi-k2.5"])
def test_B12_off_is_sent_as_disabled_and_never_beside_an_effort(name: str) -> None:
    body = plan(name, reasoning="off").body
    assert body["thinking"]["type"] == "disabled"
    assert "reasoning_effort" not in body


@each("level", ["on", "minimal", "low", "medium", "high", "xhigh", "max", 2000])
@each("name", ["moonshotai/kimi-k2.6", "moonshotai/kimi-k3"])
def test_B12_never_both_switches_where_the_endpoint_refuses_both(name: str, level: Any) -> None:
    body = plan(name, reasoning=level).body
    assert not ("thinking" in body and "reasoning_effort" in body)


# ── B13 ──────────────────────────────────────────────────────────────────────
@each("level, wire", [("minimal", "low"), ("medium", "high"), ("xhigh", "high")])
def test_B13_a_lossy_effort_is_mapped_and_reported(level: str, wire: str) -> None:
    made = plan("deepseek/deepseek-flash", reasoning=level)
    assert made.body["reasoning_effort"] == wire
    expect_note(made.notes, "reasoning", said=level, did=wire)


@each("level", ["low", "high", "max"])
def test_B13_an_effort_the_endpoint_has_is_sent_without_a_note(level: str) -> None:
    made = plan("deepseek/deepseek-flash", reasoning=level)
    assert made.body["reasoning_effort"] == level
    assert notes_about(made.notes, "reasoning") == []


def test_B13_a_binary_switch_reports_that_the_level_has_no_effect() -> None:
    made = plan("moonshotai/kimi-k2.6", reasoning="low")
    assert made.body["thinking"]["type"] == "enabled"
    assert "low" not in json.dumps(made.body)
    expect_note(made.notes, "reasoning", said="low")


def test_B13_a_level_outside_the_ladder_lands_on_the_ladder_and_is_reported() -> None:
    made = plan("moonshotai/kimi-k3", reasoning="medium")
    assert made.body["reasoning_effort"] in {"low", "high", "max"}
    expect_note(made.notes, "reasoning", said="medium")


def test_B13_each_endpoint_gets_its_own_spelling_and_no_other() -> None:
    flat = ["cerebras/gpt-oss-120b", "groq/openai/gpt-oss-120b", "xai/grok-4.6", "openai/gpt-6-sol"]
    for name in flat:
        body = plan(name, reasoning="high").body
        assert body["reasoning_effort"] == "high", name
        assert {"reasoning", "thinking", "enable_thinking"}.isdisjoint(body), name
    nested = plan("openrouter/moonshotai/kimi-k3", reasoning="high").body
    assert nested["reasoning"]["effort"] == "high"
    assert {"reasoning_effort", "thinking", "enable_thinking"}.isdisjoint(nested)
    for name in ("moonshotai/kimi-k2.6", "zai/glm-4.7", "deepseek/deepseek-flash", "alibaba/qwen3.7-plus"):
        assert "reasoning" not in plan(name, reasoning="high").body, name


# ── B14 ──────────────────────────────────────────────────────────────────────
ALWAYS = [
    "zai/glm-5.3",
    "zai/glm-5.3-flash",
    "zhipuai/glm-5.3",
    "minimax/MiniMax-M3.1-Flash",
    "moonshotai/kimi-k3",
]


@each("name", ALWAYS)
def test_B14_off_is_never_sent_to_a_model_that_always_thinks(name: str) -> None:
    made = plan(name, reasoning="off")
    assert made.body.get("thinking", {}).get("type") != "disabled"
    assert made.body.get("reasoning_effort") not in ("none", "minimal", "off")
    expect_note(made.notes, "reasoning", said="off")


@each("name", ALWAYS)
def test_B14_off_is_refused_locally_when_asked(name: str) -> None:
    with pytest.raises(cnllm.CannotSend) as caught:
        plan(name, reasoning="off", on_unsupported="error")
    expect_note([caught.value.note], "reasoning", said="off")


# ── B15 ──────────────────────────────────────────────────────────────────────
EMPTY_AT = ["alibaba/qwen3.7-plus", "deepseek/deepseek-flash", "openai/gpt-6-sol", "zai/glm-4.7"]


@each("name", EMPTY_AT)
def test_B15_empty_tools_and_a_dangling_choice_are_dropped(name: str) -> None:
    for choice in (None, "auto", "none"):
        body = plan(name, tools=[], tool_choice=choice, parallel_tool_calls=True).body
        assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(body)
    assert "tool_choice" not in plan(name, tool_choice="auto").body


@each("name", EMPTY_AT)
def test_B15_empty_tool_calls_of_a_turn_are_dropped(name: str) -> None:
    turns: list[Json] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": []},
        {"role": "user", "content": "c"},
    ]
    sent = plan(name, turns).body["messages"]
    assert "tool_calls" not in sent[1]
    assert sent[1]["content"] == "b"
    assert turns[1]["tool_calls"] == []


@each("choice", ["required", "search"])
@each("tools", [None, []])
def test_B15_a_forced_choice_without_tools_is_a_local_error(choice: str, tools: list[Json] | None) -> None:
    with pytest.raises(cnllm.CannotSend, match=choice):
        plan("deepseek/deepseek-flash", tools=tools, tool_choice=choice)


# ── B16 ──────────────────────────────────────────────────────────────────────
@each("name", ["minimax/MiniMax-M3", "minimax-cn/MiniMax-M3"])
@each("parameters", ["absent", None, {}])
def test_B16_a_tool_without_parameters_gets_an_empty_object_schema(name: str, parameters: Any) -> None:
    bare: Json = {"name": "now", "description": "The time."}
    if parameters != "absent":
        bare["parameters"] = parameters
    offered = {"type": "function", "function": bare}
    kept = copy.deepcopy(offered)
    body = plan(name, tools=[offered]).body
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert offered == kept


# ── B17 ──────────────────────────────────────────────────────────────────────
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "when": {
            "type": "string",
            "description": "day",
            "anyOf": [{"minLength": 1}, {"enum": ["now", "later"]}],
        },
        "where": {"$ref": "#/definitions/Place", "description": "where to look"},
        "note": {"description": "anything"},
    },
    "required": ["when"],
    "definitions": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def _schemas(node: Any) -> Iterator[Json]:
    """Every schema below this one; `properties` and `$defs` hold schemas under free names."""
    if not isinstance(node, dict):
        return
    yield node
    for key, value in node.items():
        if key in ("properties", "$defs", "definitions"):
            for child in value.values():
                yield from _schemas(child)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for child in value:
                yield from _schemas(child)
        elif key in ("items", "additionalProperties"):
            yield from _schemas(value)


@each("name", ["moonshotai/kimi-k3", "moonshotai-cn/kimi-k2.6"])
def test_B17_tool_schemas_are_brought_into_the_declared_dialect(name: str) -> None:
    given = copy.deepcopy(SCHEMA)
    sent = plan(name, tools=[tool("look", given)]).body["tools"][0]["function"]["parameters"]
    assert given == SCHEMA
    assert sent["type"] == "object"
    assert sent["required"] == ["when"]
    assert set(sent["properties"]) == {"when", "where", "note"}
    for schema in _schemas(sent):
        assert {"type", "anyOf", "$ref"} & set(schema), f"a node without a type: {schema}"
        if "anyOf" in schema:
            assert "type" not in schema
        if "$ref" in schema:
            assert set(schema) == {"$ref"}
            assert schema["$ref"].startswith("#/$defs/")
            assert schema["$ref"].removeprefix("#/$defs/") in sent["$defs"]
    assert '"city"' in json.dumps(sent)
    assert "later" in json.dumps(sent)


@each("name", ["deepseek/deepseek-flash", "openai/gpt-6-sol"])
def test_B17_where_no_dialect_is_declared_the_schema_goes_out_as_it_came(name: str) -> None:
    sent = plan(name, tools=[tool("look", SCHEMA)]).body["tools"][0]
    assert sent.get("function", sent)["parameters"] == SCHEMA


# ── B18 ──────────────────────────────────────────────────────────────────────
LONG = "mcp__a_server_with_a_very_long_name__" + "look_up_things_" * 4 + "by_id"
TWIN = LONG + "_and_kind"


def test_B18_long_tool_names_are_shortened_the_same_way_each_time() -> None:
    assert len(LONG) > 64
    offered = [tool(LONG), tool(TWIN), tool("short")]
    first = plan("deepseek/deepseek-flash", tools=offered)
    names = [t["function"]["name"] for t in first.body["tools"]]
    assert all(0 < len(name) <= 64 for name in names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") for name in names)
    assert len(set(names)) == 3
    assert names[2] == "short"
    alone = plan("deepseek/deepseek-flash", tools=[tool(TWIN)])
    assert alone.body["tools"][0]["function"]["name"] == names[1]
    expect_note(first.notes, "tools.name_max_length", said=LONG, did=names[0])


def test_B18_the_short_name_is_used_everywhere_in_the_request() -> None:
    turns = [{"role": "user", "content": "a"}, call_turn(name=LONG), result_turn()]
    made = plan("deepseek/deepseek-flash", turns, tools=[tool(LONG)], tool_choice=LONG, reasoning="off")
    short = made.body["tools"][0]["function"]["name"]
    assert made.body["tool_choice"]["function"]["name"] == short
    assert made.body["messages"][1]["tool_calls"][0]["function"]["name"] == short
    assert LONG not in made.content.decode()


def test_B18_the_reply_carries_the_name_the_caller_gave() -> None:
    made = plan("deepseek/deepseek-flash", tools=[tool(LONG)])
    short = made.body["tools"][0]["function"]["name"]
    call = {"id": "c1", "type": "function", "function": {"name": short, "arguments": '{"q":"a"}'}}
    whole = read_whole("deepseek/deepseek-flash", {"content": None, "tool_calls": [call]}, "tool_calls", asked=made)
    assert [c.name for c in whole.tool_calls] == [LONG]
    parts = [chunk({"tool_calls": [{"index": 0, **call}]}), chunk(finish="tool_calls")]
    played = play("deepseek/deepseek-flash", parts, asked=made)
    assert [e.name for e in played.events if isinstance(e, cnllm.ToolCallStart)] == [LONG]
    assert played.calls() == [(LONG, {"q": "a"})]


# ── B19 ──────────────────────────────────────────────────────────────────────
PARTS = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]


def test_B19_text_parts_become_one_string() -> None:
    turns = [
        {"role": "system", "content": PARTS},
        {"role": "user", "content": PARTS},
        call_turn(reasoning=""),
        result_turn(text=PARTS),
    ]
    given = copy.deepcopy(turns)
    sent = plan("deepseek/deepseek-v4-pro", turns).body["messages"]
    for index in (0, 1, 3):
        content = sent[index]["content"]
        assert isinstance(content, str)
        assert content.replace("\n", "") == "one two"
    assert turns == given


def test_B19_images_stay_parts_where_they_are_taken() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    sent = plan("deepseek/deepseek-flash", [{"role": "user", "content": [*PARTS, image]}]).body["messages"]
    assert [part["type"] for part in sent[0]["content"]][-1] == "image_url"
    assert text_of(sent[0]["content"]).replace("\n", "") == "one two"


def test_B19_a_user_declares_it(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": PARTS}]
    for form, kind in (("string", str), ("parts", list)):
        sent = plan(home(tmp_path, f'messages.content = "{form}"'), turns).body["messages"]
        assert isinstance(sent[0]["content"], kind)
        assert text_of(sent[0]["content"]).replace("\n", "") == "one two"


# ── B20 ──────────────────────────────────────────────────────────────────────
ABSENT = object()


@each("form, wire", [("null", None), ("empty", ""), ("omit", ABSENT), ("space", " ")])
@each("content", [None, "", ABSENT])
def test_B20_empty_content_beside_calls_takes_the_declared_form(
    tmp_path: Path, form: str, wire: Any, content: Any
) -> None:
    turn = call_turn()
    del turn["content"]
    if content is not ABSENT:
        turn["content"] = content
    turns = [{"role": "user", "content": "a"}, turn, result_turn()]
    sent = plan(home(tmp_path, f'messages.empty = "{form}"'), turns).body["messages"]
    assert sent[1].get("content", ABSENT) == wire
    assert sent[1]["tool_calls"]


@each("form", ["null", "empty", "omit", "space"])
def test_B20_the_form_is_for_tool_call_turns_only(tmp_path: Path, form: str) -> None:
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "text stays"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": None, "reasoning": "only thought"},
        {"role": "user", "content": "c"},
    ]
    sent = plan(home(tmp_path, f'messages.empty = "{form}"'), turns).body["messages"]
    assert sent[1]["content"] == "text stays"
    assert all(message.get("content", None) is not None for message in sent), "null is refused without calls"
    assert text_of(sent[-1]["content"]).endswith("c")


def test_B20_the_built_in_registry_knows_who_refuses_null() -> None:
    sent = plan("ollama/qwen3:8b", [{"role": "user", "content": "a"}, call_turn(), result_turn()]).body["messages"]
    assert sent[1]["content"] == ""


# ── B21 ──────────────────────────────────────────────────────────────────────
SYSTEMS = [
    {"role": "system", "content": "First rule."},
    {"role": "system", "content": "Second rule."},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "system", "content": "Third rule."},
    {"role": "user", "content": "c"},
]


@each("name", ["minimax/MiniMax-M3", "vllm/Qwen/Qwen3.5-27B", "llamacpp/Qwen3.5-27B"])
def test_B21_system_turns_are_folded_into_one_leading_message(name: str) -> None:
    given = copy.deepcopy(SYSTEMS)
    made = plan(name, given)
    assert roles(made.body) == ["system", "user", "assistant", "user"]
    told = text_of(made.body["messages"][0]["content"])
    assert told.index("First rule.") < told.index("Second rule.") < told.index("Third rule.")
    expect_note(made.notes, "messages.system")
    assert given == SYSTEMS


def test_B21_one_leading_system_message_is_nothing_to_note() -> None:
    made = plan("minimax/MiniMax-M3", [SYSTEMS[0], SYSTEMS[2]])
    assert roles(made.body) == ["system", "user"]
    assert notes_about(made.notes, "messages.system") == []


def test_B21_elsewhere_system_turns_stay_where_they_are() -> None:
    assert roles(plan("deepseek/deepseek-v4-pro", SYSTEMS).body) == [m["role"] for m in SYSTEMS]


def test_B21_an_endpoint_without_system_messages(tmp_path: Path) -> None:
    made = plan(home(tmp_path, 'messages.system = "user"'), SYSTEMS)
    assert "system" not in roles(made.body)
    everything = "".join(text_of(m["content"]) for m in made.body["messages"])
    for rule in ("First rule.", "Second rule.", "Third rule."):
        assert everything.count(rule) == 1
    expect_note(made.notes, "messages.system", where=OVERLAY)


# ── B22 ──────────────────────────────────────────────────────────────────────
STRICT = 'messages.consecutive_roles = "join"\nmessages.first_user = true'
RUNS = [
    {"role": "user", "content": "one"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "three"},
    call_turn(content="four"),
    result_turn(),
    {"role": "assistant", "content": "five"},
    {"role": "user", "content": "six"},
]


def test_B22_neighbours_are_merged_where_alternation_is_declared(tmp_path: Path) -> None:
    given = copy.deepcopy(RUNS)
    made = plan(home(tmp_path, STRICT), given)
    assert roles(made.body) == ["user", "assistant", "tool", "assistant", "user"]
    user, assistant, result, *_ = made.body["messages"]
    assert text_of(user["content"]).index("one") < text_of(user["content"]).index("two")
    assert text_of(assistant["content"]).index("three") < text_of(assistant["content"]).index("four")
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"]
    expect_note(made.notes, "messages.consecutive_roles", where=OVERLAY)
    assert given == RUNS


def test_B22_results_of_parallel_calls_are_never_merged(tmp_path: Path) -> None:
    turn = call_turn("c1")
    turn["tool_calls"] += call_turn("c2")["tool_calls"]
    turns = [{"role": "user", "content": "a"}, turn, result_turn("c1", "x"), result_turn("c2", "y")]
    sent = plan(home(tmp_path, STRICT), turns).body["messages"]
    assert [m.get("tool_call_id") for m in sent[2:]] == ["c1", "c2"]


def test_B22_a_history_that_starts_with_the_assistant_starts_with_the_user(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "Welcome."},
        {"role": "user", "content": "hi"},
    ]
    made = plan(home(tmp_path, STRICT), turns)
    spoken = [m for m in made.body["messages"] if m["role"] != "system"]
    assert (spoken[0]["role"], text_of(spoken[0]["content"])) == ("user", "…")
    assert all(text_of(m["content"]).strip() for m in spoken)
    assert text_of(spoken[-1]["content"]).endswith("hi")
    expect_note(made.notes, "messages.first_user", where=OVERLAY)


def test_B22_it_is_declared_and_not_global() -> None:
    made = plan("deepseek/deepseek-flash", [RUNS[0], RUNS[1]])
    assert roles(made.body) == ["user", "user"]


# ── B23 ──────────────────────────────────────────────────────────────────────
def test_B23_stream_options_is_not_sent_where_it_is_refused() -> None:
    body = plan("mistral/mistral-large-4", stream=True).body
    assert body["stream"] is True
    assert "stream_options" not in body


@each("name", ["mistral/mistral-large-4", "deepseek/deepseek-flash", "openai/gpt-6-sol", "moonshotai/kimi-k3"])
def test_B23_stream_options_is_sent_with_streams_only(name: str) -> None:
    assert "stream_options" not in plan(name, stream=False).body


def test_B23_usage_is_asked_for_where_that_is_how_it_comes() -> None:
    for name in ("deepseek/deepseek-flash", "openai/gpt-6-sol"):
        assert plan(name, stream=True).body["stream_options"] == {"include_usage": True}


# ── B24 ──────────────────────────────────────────────────────────────────────
SIGNED: Json = {
    "id": "c1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"q":"a"}'},
    "extra_content": {"google": {"thought_signature": "CiQB0e2K+b1Zs=="}},
}


@each("streamed_in", [False, True])
def test_B24_what_rides_on_a_call_goes_back_to_its_endpoint_only(tmp_path: Path, streamed_in: bool) -> None:
    origin = home(tmp_path)
    if streamed_in:
        reply = play(origin, [chunk({"tool_calls": [{"index": 0, **SIGNED}]}), chunk(finish="tool_calls")]).reply
    else:
        reply = read_whole(origin, {"content": None, "tool_calls": [SIGNED]}, "tool_calls")
    stored = cnllm.Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
    turns = [{"role": "user", "content": "a"}, stored, result_turn("c1")]
    back = plan(origin, turns, tools=[tool()]).body["messages"][1]["tool_calls"][0]
    assert back["extra_content"] == SIGNED["extra_content"]
    for other in ("deepseek/deepseek-flash", "groq/openai/gpt-oss-120b"):
        assert "thought_signature" not in plan(other, turns, tools=[tool()]).content.decode()


# ── B25 ──────────────────────────────────────────────────────────────────────
def test_B25_headers_are_data_and_the_caller_may_change_them(tmp_path: Path) -> None:
    path = overlay(tmp_path, 'headers = { "User-Agent" = "my-agent/1.0", "X-Client" = "a" }')
    registry = cnllm.Registry.load(str(path))
    made = plan(registry.resolve("home/m"))
    assert {k.lower(): v for k, v in made.headers.items()}["user-agent"] == "my-agent/1.0"
    wire = Wire(ok(whole_body({"content": "hi"})))
    with cnllm.Client(registry=registry, transport=wire.transport) as client:
        client.call("home/m", "hi")
        client.call("home/m", "hi", extra_headers={"user-agent": "mine/2.0"})
    assert wire.requests[0].headers.get_list("user-agent") == ["my-agent/1.0"]
    assert wire.requests[1].headers.get_list("user-agent") == ["mine/2.0"]
    assert wire.requests[1].headers["x-client"] == "a"


def test_B25_a_user_sets_a_header_on_a_built_in_provider(tmp_path: Path) -> None:
    path = tmp_path / OVERLAY
    path.write_text('[providers.moonshotai]\nheaders = { "User-Agent" = "KimiCLI/1.0" }\n')
    made = plan(cnllm.Registry.load(str(path)).resolve("moonshotai/kimi-k3"))
    assert {k.lower(): v for k, v in made.headers.items()}["user-agent"] == "KimiCLI/1.0"
