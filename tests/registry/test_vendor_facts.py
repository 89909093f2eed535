"""What the built-in file says of some models, where a request or a bill shows it."""

from __future__ import annotations

import datetime
import tomllib
from decimal import Decimal
from typing import Any

from builtin import BUILTIN
from cases import each

from cnllm import UnknownModel, Usage, engine, web_search
from cnllm.engine.decode.cost import cost_of

from .support import BUILTIN as TOML

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = {"name": "look", "arguments": "{}"}


def body(name: str, wire: str | None = None, **options: Any) -> dict[str, Any]:
    """What a call sends besides its messages and tools."""
    plan = engine.build_request(BUILTIN.resolve(name, protocol=wire), [{"role": "user", "content": "Hi"}], **options)
    sent = plan.body
    assert isinstance(sent, dict)
    return {key: sent[key] for key in sent if key not in {"messages", "contents", "input", "tools"}}


def tables() -> dict[str, dict[str, Any]]:
    """The providers of the built-in file, as they are written."""
    found = tomllib.loads(TOML.read_text(encoding="utf-8"))["providers"]
    assert isinstance(found, dict)
    return found


def address(provider: str, wire: str | None) -> str | None:
    """Where a provider is asked over a wire; None where it has none."""
    try:
        return BUILTIN.resolve(f"{provider}/any", protocol=wire).flags.base_url
    except UnknownModel:
        return None


@each("level", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_qwen4_takes_every_level_and_no_other_switch_of_depth(level: str) -> None:
    sent = body("alibaba/qwen4-max", reasoning=level)
    assert sent["reasoning_effort"] == level
    assert "thinking_budget" not in sent


def test_qwen4_takes_a_low_temperature_which_qwen_3_8_raises() -> None:
    assert body("alibaba/qwen4-max", temperature=0.3)["temperature"] == 0.3
    assert body("alibaba/qwen3.8-max", temperature=0.3)["temperature"] == 0.6


@each("name", ["openai/gpt-6.2-sol", "openai/gpt-6.2-astra", "openai/gpt-6-cyber"])
def test_tools_of_a_model_that_always_thinks_go_over_responses(name: str) -> None:
    plan = engine.build_request(BUILTIN.resolve(name), [{"role": "user", "content": "Hi"}], tools=[TOOL])
    assert plan.url.endswith("/responses")


@each("name, wire", [("deepseek/deepseek-flash", "/responses"), ("deepseek/deepseek-v4-pro", "/chat/completions")])
def test_deepseek_searches_over_responses_and_with_flash_alone(name: str, wire: str) -> None:
    plan = engine.build_request(BUILTIN.resolve(name), [{"role": "user", "content": "Hi"}], tools=[web_search()])
    sent = plan.body
    assert isinstance(sent, dict)
    assert plan.url.endswith(wire)
    assert sent.get("tools") == ([{"type": "web_search"}] if wire == "/responses" else None)


def test_a_search_of_deepseek_over_messages_has_the_form_of_that_wire() -> None:
    plan = engine.build_request(
        BUILTIN.resolve("deepseek/deepseek-flash", protocol="anthropic-messages"),
        [{"role": "user", "content": "Hi"}],
        tools=[web_search()],
    )
    sent = plan.body
    assert isinstance(sent, dict)
    assert sent["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]


@each("name", ["google/gemini-4-neon", "google/gemini-4-hydrogen"])
def test_the_highest_level_of_gemini_4_is_one_of_its_own_wire(name: str) -> None:
    config = body(name, "gemini", reasoning="xhigh")["generationConfig"]
    assert config["thinkingConfig"]["thinkingLevel"] == "XHIGH"
    assert body(name, reasoning="xhigh")["reasoning_effort"] == "high"


@each("day, amount", [(datetime.date(2026, 11, 30), "12"), (datetime.date(2026, 12, 2), "24")])
def test_the_price_of_gemini_4_carbon_doubles_in_december(day: datetime.date, amount: str) -> None:
    created = datetime.datetime.combine(day, datetime.time(12), datetime.UTC).timestamp()
    cost = cost_of(Usage(1_000_000, 1_000_000), BUILTIN.resolve("google/gemini-4-carbon").flags.price, created)
    assert cost is not None
    assert cost.amount == Decimal(amount)


@each("wire, default", [("openai-chat", "on"), ("anthropic-messages", "off"), ("openai-responses", "off")])
def test_minimax_m3_thinks_unasked_over_chat_alone(wire: str, default: str) -> None:
    facts = {fact.flag: fact.value for fact in BUILTIN.resolve("minimax/MiniMax-M3", protocol=wire).explain()}
    assert facts["reasoning.default"] == default


@each("name", ["kimi-for-coding/k3", "togetherai/moonshotai/Kimi-K3.1-Pro"])
def test_a_long_answer_of_kimi_k3_is_not_cut_to_a_default(name: str) -> None:
    assert 500_000 in body(name, max_tokens=500_000).values()


def messages_of(name: str, wire: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """What a call sends of a conversation with a finished call of a tool, whose thinking is lost."""
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": CALL}]},
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]
    sent = engine.build_request(BUILTIN.resolve(name, protocol=wire), history, tools=[TOOL], **options).body
    assert isinstance(sent, dict)
    found = sent["input" if wire == "openai-responses" else "messages"]
    assert isinstance(found, list)
    return found


@each("wire", [None, "openai-responses", "anthropic-messages"])
@each("name", ["deepseek/deepseek-flash", "deepseek/deepseek-v4-pro"])
def test_deepseek_takes_low_as_a_level_of_its_own(name: str, wire: str | None) -> None:
    sent = body(name, wire, reasoning="low")
    assert "low" in {
        sent.get("reasoning_effort"),
        *sent.get("reasoning", {}).values(),
        *sent.get("output_config", {}).values(),
    }


@each("name", ["moonshotai/kimi-k2.6", "moonshotai/kimi-k2.7-code", "moonshotai/kimi-k3", "moonshotai-cn/kimi-k2.6"])
def test_kimi_answers_by_a_schema(name: str) -> None:
    sent = body(name, schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    assert sent["response_format"]["type"] == "json_schema"


@each("name", ["kimi-for-coding/k3", "kimi-for-coding/kimi-for-coding", "moonshotai/kimi-k3.1-pro"])
def test_schemas_of_tools_are_in_the_subset_of_kimi_on_its_plan_too(name: str) -> None:
    choice = {"type": "string", "anyOf": [{"enum": ["a"]}, {"enum": ["b"]}]}
    parameters = {"type": "object", "properties": {"way": choice, "any": True}, "minProperties": 1}
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    sent = engine.build_request(BUILTIN.resolve(name), [{"role": "user", "content": "Hi"}], tools=[tool]).body
    assert isinstance(sent, dict)
    properties = sent["tools"][0]["function"]["parameters"]["properties"]
    assert properties["way"] == {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b"]}]}
    assert isinstance(properties["any"], dict)


@each("wire", ["anthropic-messages", "openai-responses"])
def test_a_provider_with_an_address_of_its_own_has_one_on_every_wire_where_its_parent_has(wire: str) -> None:
    parents = {name: table["extends"] for name, table in tables().items() if "extends" in table}
    lost = []
    for name, parent in parents.items():
        own, its = address(name, None), address(parent, None)
        own_wire, its_wire = address(name, wire), address(parent, wire)
        if own_wire is not None and its_wire is not None and its_wire != its and own_wire == own:
            lost.append((name, own_wire, its_wire))
    assert lost == []


@each("name", ["minimax-coding-plan/MiniMax-M3.1-Flash", "minimax-cn-coding-plan/MiniMax-M3.1-Flash"])
def test_levels_of_minimax_are_those_of_its_plans(name: str) -> None:
    assert body(name, reasoning="low")["reasoning_effort"] == "low"
    assert body(name, "anthropic-messages", reasoning="low")["output_config"] == {"effort": "low"}


@each("wire", [None, "anthropic-messages"])
def test_kimi_code_gets_no_other_temperature_than_its_own(wire: str | None) -> None:
    assert body("kimi-for-coding/k3", wire, temperature=0.1).get("temperature", 1) == 1


def test_longcat_is_asked_over_responses_in_the_words_of_that_wire() -> None:
    history: list[Any] = [{"role": "developer", "content": "Be short"}, {"role": "user", "content": "Hi"}]
    model = BUILTIN.resolve("longcat/LongCat-2.0", protocol="openai-responses")
    plan = engine.build_request(model, history, max_tokens=99, reasoning="off")
    assert plan.url == "https://api.longcat.chat/openai/v1/responses"
    assert isinstance(plan.body, dict)
    assert plan.body["max_output_tokens"] == 99
    assert not {"thinking", "max_tokens", "thinking_budget"} & set(plan.body)
    assert "reasoning.off" in [note.flag for note in plan.notes]


@each("name", ["moonshotai/kimi-k3.1-pro", "moonshotai-cn/kimi-k3", "kimi-for-coding/k3", "kimi-for-coding/k3.1-pro"])
def test_levels_of_kimi_k3_are_sent_over_messages_too(name: str) -> None:
    sent = body(name, "anthropic-messages", reasoning="max", max_tokens=200)
    assert sent["thinking"] == {"type": "enabled"}
    assert sent["output_config"] == {"effort": "max"}


@each("name", ["xiaomi/mimo-v2.6-pro", "xiaomi-token-plan-cn/mimo-v2.6-pro", "longcat/LongCat-2.0"])
def test_a_short_answer_turns_no_thinking_off_where_messages_take_no_number_of_tokens(name: str) -> None:
    assert body(name, "anthropic-messages", reasoning="on", max_tokens=200)["thinking"] == {"type": "enabled"}


@each("name", ["zai/glm-5.3", "zhipuai/glm-5.3-flash", "zai-coding-plan/glm-5.3", "zai/glm-5.2"])
def test_levels_of_glm_are_sent_over_messages_where_a_number_of_tokens_is_ignored(name: str) -> None:
    sent = body(name, "anthropic-messages", reasoning="max", max_tokens=200)
    assert sent["thinking"] == {"type": "adaptive"}
    assert sent["output_config"] == {"effort": "max"}


@each("name", ["moonshotai/kimi-k3", "kimi-for-coding/k3"])
def test_a_tools_name_begins_with_a_letter_at_moonshot(name: str) -> None:
    tools = [{"type": "function", "function": {"name": "3d_view", "parameters": {"type": "object", "properties": {}}}}]
    plan = engine.build_request(BUILTIN.resolve(name), [{"role": "user", "content": "Hi"}], tools=tools)
    assert plan.body["tools"][0]["function"]["name"] == "tool_3d_view"
    assert plan.renamed == {"tool_3d_view": "3d_view"}


@each(
    "provider, start",
    [
        ("zai", "https://api.z.ai/api/v1"),
        ("zai-coding-plan", "https://api.z.ai/api/v1"),
        ("zhipuai", "https://open.bigmodel.cn/api/v1"),
        ("zhipuai-coding-plan", "https://open.bigmodel.cn/api/v1"),
    ],
)
def test_glm_answers_over_responses_at_an_address_of_its_region(provider: str, start: str) -> None:
    model = BUILTIN.resolve(f"{provider}/glm-5.3", protocol="openai-responses")
    plan = engine.build_request(model, [{"role": "user", "content": "Hi"}], reasoning="max")
    assert plan.url == f"{start}/responses"
    assert isinstance(plan.body, dict)
    assert plan.body["reasoning"]["effort"] == "max"


@each("name", ["zai/glm-4.5v", "zhipuai/glm-4.5v"])
def test_the_old_vision_model_of_glm_takes_tools_and_no_response_format(name: str) -> None:
    flags = BUILTIN.resolve(name).flags
    assert flags.tools.supported is not False
    assert flags.schema.methods == ["tool", "prompt"]


@each("name, amount", [("moonshotai/kimi-k3", 6), ("moonshotai/kimi-k3.1-pro", 4), ("anthropic/claude-mythos-5-2", 16)])
def test_a_cache_of_an_hour_costs_twice_the_input(name: str, amount: int) -> None:
    price = BUILTIN.resolve(name).flags.price
    assert price is not None
    assert price.cache_write_1h == amount


@each("name", ["anthropic/claude-fable-5-2", "anthropic/claude-mythos-5-2"])
def test_the_fast_mode_of_the_newest_claude_costs_double(name: str) -> None:
    price = BUILTIN.resolve(name).flags.price
    assert price is not None
    assert price.factors is not None
    assert price.factors["speed"]["fast"] == 2


@each(
    "name",
    ["openai/gpt-4", "openai/gpt-4-0613", "openai/gpt-4-turbo", "openai/gpt-3.5-turbo", "openai/gpt-4o-2024-05-13"],
)
def test_no_schema_is_sent_to_a_model_of_openai_that_is_older_than_schemas(name: str) -> None:
    schema = BUILTIN.resolve(name).flags.schema
    assert "json_schema" not in (schema.methods or ())
