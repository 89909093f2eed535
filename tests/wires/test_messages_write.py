"""Anthropic Messages, written: turns, tools, choices, thinking."""

from __future__ import annotations

from typing import Any

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm import Media, Message, Opaque, Plan, Reasoning, Seal, Text, ToolCall, ToolResult, engine
from cnllm.protocols import EncodeInput, wire
from cnllm.types import Part

from .messages_support import MESSAGES, model

TOOL = {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}}
OF = "anthropic/claude-haiku-4-5"


def sealed(data: Any, of: str = OF) -> Seal:
    provider, _, id = of.partition("/")
    return Seal(MESSAGES, provider, id, data)


def plan(*messages: Any, of: str = OF, **options: Any) -> Plan:
    return engine.build_request(model(of), list(messages), **options)


def turns(*messages: Any, of: str = OF, **options: Any) -> list[Any]:
    return list(plan(*messages, of=of, **options).body["messages"])


def notes(found: Plan) -> list[str]:
    return [n.code for n in found.notes if n.code != "param-default"]


# ── turns ────────────────────────────────────────────────────────────────────
def test_the_systems_text_stands_apart() -> None:
    body = plan({"role": "system", "content": "Be short."}, "Hi").body
    assert body["system"] == "Be short."
    assert body["messages"] == [{"role": "user", "content": "Hi"}]


def test_cache_marks_stay_where_the_caller_put_them() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": TOOL, **mark}
    text = {"type": "text", "text": "Be short.", **mark}
    body = plan({"role": "system", "content": [text]}, {"role": "user", "content": [text]}, tools=[tool]).body
    assert body["system"] == [text]
    assert body["messages"] == [{"role": "user", "content": [text]}]
    assert body["tools"][0]["cache_control"] == mark["cache_control"]
    assert plan("Hi", tools=[{**TOOL, **mark}]).body["tools"][0]["cache_control"] == mark["cache_control"]


@each("role", ["user", "assistant", "system"])
def test_white_space_between_texts_is_kept(role: str) -> None:
    content = [{"type": "text", "text": text} for text in ("def f():", "\n", "    ", "return 1", " ")]
    said = {"role": role, "content": content}
    body = plan(*([said] if role == "user" else [said, "Hi"] if role == "system" else ["Hi", said, "Go on."])).body
    blocks = body["system"] if role == "system" else body["messages"][0 if role == "user" else 1]["content"]
    texts = [block["text"] for block in blocks]
    assert "def f():\n    return 1" in "".join(texts)
    assert all(text.strip() for text in texts)  # the endpoint refuses a text without anything else


def test_system_in_the_middle_stays_where_the_model_takes_it() -> None:
    history = ["Hi", {"role": "assistant", "content": "Hello."}, "Go on.", {"role": "system", "content": "In French."}]
    newer = plan(*history, of="anthropic/claude-opus-4-8").body
    assert newer["messages"][-1] == {"role": "system", "content": "In French."}
    older = plan(*history)
    assert older.body["system"] == "In French."
    assert [turn["role"] for turn in older.body["messages"]] == ["user", "assistant", "user"]


def test_results_of_one_round_and_what_the_user_says_next_are_one_turn() -> None:
    history = [
        "Hi",
        Message("assistant", [Text("I look."), ToolCall("a", "look_up", {"q": 1}), ToolCall("b", "look_up", {})]),
        Message("tool", [ToolResult("b", "two", error=True)]),
        Message("tool", [ToolResult("a", "one")]),
        "And now?",
    ]
    user, assistant, results = turns(*history, tools=[TOOL])
    assert user == {"role": "user", "content": "Hi"}
    assert assistant["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "look_up", "input": {"q": 1}},
        {"type": "tool_use", "id": "b", "name": "look_up", "input": {}},
    ]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b", "content": "two", "is_error": True},
        {"type": "text", "text": "And now?"},
    ]


def test_pictures_stay_in_results() -> None:
    picture = Media("image/png", "AAAA")
    history = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        Message("assistant", [ToolCall("a", "look_up", {})]),
        Message("tool", [ToolResult("a", "a map", media=(picture,))]),
    ]
    user, _, results = turns(*history, tools=[TOOL])
    assert user["content"] == [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert results["content"][0]["content"] == [{"type": "text", "text": "a map"}, {"type": "image", "source": source}]


def test_text_that_is_nothing_is_left_out() -> None:
    said = Message("assistant", [Text(""), Text("\n\n"), Text("Yes.")])
    assert turns("Hi", said, "So?")[1] == {"role": "assistant", "content": "Yes."}


# ── what goes back ───────────────────────────────────────────────────────────
HIDDEN = {"type": "redacted_thinking", "data": "AAAA"}
SEARCH = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}


def answer(of: str = OF) -> Message:
    parts: list[Part] = [
        Reasoning("Hm.", sealed({"signature": "c2ln"}, of)),
        Reasoning("", sealed(HIDDEN, of)),
        Opaque(SEARCH, sealed(None, of)),
        Text("Yes.", sealed({"citations": [{"type": "char_location"}]}, of)),
        ToolCall("a", "look_up", {}, "{}", seal=sealed({"caller": {"type": "direct"}}, of)),
    ]
    return Message("assistant", parts, by=of)


RESULT = Message("tool", [ToolResult("a", "one")])


def test_what_is_sealed_goes_back_to_its_origin_as_it_came() -> None:
    found = turns("Hi", answer(), RESULT, tools=[TOOL], reasoning=2000)[1]["content"]
    assert found == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        HIDDEN,
        SEARCH,
        {"type": "text", "text": "Yes.", "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "a", "name": "look_up", "input": {}, "caller": {"type": "direct"}},
    ]


def test_what_is_sealed_goes_to_no_one_else() -> None:
    found = plan("Hi", answer("anthropic/claude-sonnet-4-5"), RESULT, tools=[TOOL])
    assert found.body["messages"][1]["content"] == [
        {"type": "text", "text": "Yes."},
        {"type": "tool_use", "id": "a", "name": "look_up", "input": {}},
    ]
    assert {"reasoning-foreign", "block-foreign"} <= set(notes(found))


def test_an_endpoint_that_signs_nothing_takes_thinking_as_text() -> None:
    of = "deepseek/deepseek-flash"
    said = Message("assistant", [Reasoning("Hm."), Text("Yes.")], by=of)
    assert turns("Hi", said, "So?", of=of)[1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    unsigned = Message("assistant", [Reasoning("Hm."), Text("Yes.")], by=OF)
    assert turns("Hi", unsigned, "So?")[1] == {"role": "assistant", "content": "Yes."}


def test_what_a_user_brought_back_sealed_goes_to_its_origin_alone() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    said = Message("tool", [ToolResult("a", "one", seal=sealed(mark))])
    assert turns("Hi", answer(), said, tools=[TOOL])[2]["content"][0]["cache_control"] == mark["cache_control"]
    other = turns("Hi", answer(), said, of="anthropic/claude-sonnet-4-5", tools=[TOOL])[2]["content"][0]
    assert "cache_control" not in other


# ── tools ────────────────────────────────────────────────────────────────────
@each(
    "choice, expected",
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("look_up", {"type": "tool", "name": "look_up"}),
    ],
)
def test_each_choice_of_tools_is_written_for_messages(choice: str, expected: dict[str, Any]) -> None:
    assert plan("Hi", tools=[TOOL], tool_choice=choice).body["tool_choice"] == expected


def test_one_call_at_a_time_is_said_in_the_choice() -> None:
    def choice(**options: Any) -> Any:
        return plan("Hi", tools=[TOOL], **options).body.get("tool_choice")

    assert choice(parallel_tool_calls=False) == {"type": "auto", "disable_parallel_tool_use": True}
    assert choice(parallel_tool_calls=False, tool_choice="required")["type"] == "any"
    assert choice(parallel_tool_calls=False, tool_choice="none") == {"type": "none"}
    assert choice(parallel_tool_calls=True) is None


def test_no_call_is_forced_while_thinking_by_budget() -> None:
    found = plan("Hi", tools=[TOOL], tool_choice="required", reasoning=2000)
    assert found.body["tool_choice"] == {"type": "auto"}
    assert "tool-choice" in notes(found)
    assert plan("Hi", of="anthropic/claude-opus-4-8", tools=[TOOL], tool_choice="required", reasoning="high").body[
        "tool_choice"
    ] == {"type": "any"}
    always = plan("Hi", of="anthropic/claude-fable-5-2", tools=[TOOL], tool_choice="required")
    assert always.body["tool_choice"] == {"type": "auto"}


def test_tools_of_the_endpoint_go_as_they_are() -> None:
    search = {"type": "web_search_20260209", "name": "web_search", "max_uses": 3}
    body = plan("Hi", tools=[TOOL, search]).body
    assert body["tools"] == [
        {"name": "look_up", "description": "Looks up.", "input_schema": TOOL["parameters"]},
        search,
    ]


# ── thinking and parameters ──────────────────────────────────────────────────
def test_thinking_by_budget_stays_below_the_limit() -> None:
    assert plan("Hi", reasoning=3000).body["thinking"] == {"type": "enabled", "budget_tokens": 3000}
    assert plan("Hi", reasoning="on").body["thinking"]["budget_tokens"] == 8192
    assert plan("Hi", reasoning="on", max_tokens=4000).body["thinking"]["budget_tokens"] == 3999
    assert plan("Hi", reasoning=500).body["thinking"]["budget_tokens"] == 1024
    small = plan("Hi", reasoning="high", max_tokens=800)
    assert small.body["thinking"] == {"type": "disabled"}
    assert "reasoning-budget" in notes(small)
    assert plan("Hi", reasoning="off").body["thinking"] == {"type": "disabled"}


def test_thinking_by_effort() -> None:
    body = plan("Hi", of="anthropic/claude-opus-5", reasoning="xhigh").body
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "xhigh"}
    off = plan("Hi", of="anthropic/claude-sonnet-5-5", reasoning="off").body
    assert off["thinking"] == {"type": "between_tools"}
    assert "thinking" not in plan("Hi", of="anthropic/claude-fable-5-2", reasoning="off").body


def test_sampling_parameters_where_they_are_taken() -> None:
    assert plan("Hi", temperature=0.3).body["temperature"] == 0.3
    assert plan("Hi", temperature=1.7).body["temperature"] == 1
    assert "temperature" not in plan("Hi", temperature=0.3, reasoning=2000).body
    assert "temperature" not in plan("Hi", of="anthropic/claude-opus-5", temperature=0.3).body
    assert plan("Hi", stop=["END"], seed=3).body["stop_sequences"] == ["END"]
    assert plan("Hi", stop="END").body["stop_sequences"] == ["END"]
    assert "seed" not in plan("Hi", seed=3).body


def test_a_limit_is_sent_because_there_must_be_one() -> None:
    found = plan("Hi")
    assert found.body["max_tokens"] == 64_000
    assert [n.code for n in found.notes] == ["param-default"]
    assert plan("Hi", of="anthropic/nobody-knows-it").body["max_tokens"] == 32_000
    assert plan("Hi", max_tokens=5).body["max_tokens"] == 5
    assert plan("Hi", of="moonshotai/kimi-k2.6").body["max_tokens"] == 131_072  # half the window, which is its limit


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_an_answer_by_a_schema() -> None:
    body = plan("Hi", of="anthropic/claude-opus-5", schema=SCHEMA, reasoning="low").body
    closed = {**SCHEMA, "additionalProperties": False}  # an open object is refused: veryfront/veryfront-code#3918
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": closed}, "effort": "low"}
    by_tool = plan("Hi", of="zai/glm-4.7", schema=SCHEMA, reasoning="off").body
    assert by_tool["tool_choice"] == {"type": "tool", "name": "answer"}


def test_where_and_with_what_it_is_sent() -> None:
    found = plan("Hi", stream=True)
    assert found.url == "https://api.anthropic.com/v1/messages"
    assert found.headers["x-api-key"] == "{key}"
    assert found.headers["anthropic-version"] == "2023-06-01"
    assert found.body["stream"] is True
    assert "anthropic-beta" not in found.headers
    assert "interleaved" in plan("Hi", tools=[TOOL], reasoning=2000).headers["anthropic-beta"]
    assert plan("Hi", of="minimax-cn/MiniMax-M3").url == "https://api.minimax.cn/anthropic/v1/messages"


@each("provider", ["deepseek", "zai", "zhipuai", "moonshotai", "minimax", "alibaba", "openrouter"])
def test_the_other_wire_of_an_endpoint_has_an_address_of_its_own(provider: str) -> None:
    over = model(f"{provider}/any").flags
    assert over.base_url != model(f"{provider}/any", "openai-chat").flags.base_url
    assert over.path == "/v1/messages"
    plain = engine.build_request(model(f"{provider}/any"), "Hi", tools=[{**TOOL, "strict": True}])
    assert plain.url == f"{over.base_url}/v1/messages"


# ── there and back ───────────────────────────────────────────────────────────
TEXTS = st.text(min_size=1, max_size=20).filter(lambda t: t.strip())
SIGNED = st.fixed_dictionaries({"signature": st.text("abc=", min_size=1, max_size=8)})
INPUT = st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.text(max_size=5), max_size=3)
IDS = st.text("abcXYZ019_-", min_size=1, max_size=12)
PICTURE = st.builds(Media, st.just("image/png"), st.text("AB", min_size=1, max_size=4))
SAID = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(lambda t, seal: Text(t, sealed({"citations": [seal]})), TEXTS, SIGNED),
    st.builds(lambda t, seal: Reasoning(t, sealed(seal)), st.text(max_size=20), SIGNED),
    st.just(Reasoning("", sealed(HIDDEN))),
    st.just(Opaque(SEARCH, sealed(None))),
    st.builds(lambda id, name, given: ToolCall(id, name, given, "x"), IDS, IDS, INPUT),
)
ASKED = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(lambda t: Text(t, None, {"cache_control": {"type": "ephemeral"}}), TEXTS),
    PICTURE,
    st.just(Opaque({"type": "document", "source": {"type": "text", "data": "x"}})),
)
RESULTS = st.builds(
    lambda id, text, error, media: ToolResult(id, text, None, error, tuple(media)),
    IDS,
    TEXTS | st.just(""),
    st.booleans(),
    st.lists(PICTURE, max_size=2),
)
HISTORY = st.lists(
    st.one_of(
        st.builds(lambda parts: Message("user", parts), st.lists(ASKED, min_size=1, max_size=3)),
        st.builds(lambda parts: Message("assistant", parts), st.lists(SAID, min_size=1, max_size=4)),
        st.builds(lambda part: Message("tool", [part]), RESULTS),
    ),
    min_size=1,
    max_size=6,
)


@given(HISTORY, st.lists(st.builds(Text, TEXTS), max_size=2))
def test_what_is_written_is_read_again(history: list[Message], system: list[Text]) -> None:
    given = [*([Message("system", system)] if system else []), *history]
    of = model()
    body = wire(MESSAGES).encode_body(EncodeInput(model="m", messages=given), of.flags)
    read = engine.decode_request(MESSAGES, {**body, "max_tokens": 1}, origin=of)
    assert _flat(read.messages) == _flat(given)


def _flat(messages: list[Message]) -> list[Any]:
    """Role and part, one after the other: where turns begin is the protocol's."""
    return [(m.role, _bare(p)) for m in messages for p in m.parts]


def _bare(part: Any) -> Any:
    return (part.id, part.name, part.arguments) if isinstance(part, ToolCall) else part


def test_a_turn_of_nothing_but_thinking_is_no_turn() -> None:
    said = Message("assistant", [Reasoning("Hm.", sealed({"signature": "s"}))], by=OF)
    assert [t["role"] for t in turns("Hi", said, "So?")] == ["user", "user"]


def test_a_turn_that_began_elsewhere_goes_on_without_thinking() -> None:
    begun = Message("assistant", [Reasoning("Hm."), ToolCall("a", "look_up", {})], by="openai/gpt-5")
    found = plan("Hi", begun, RESULT, tools=[TOOL], reasoning=2000, temperature=0.3)
    assert found.body["thinking"] == {"type": "disabled"}
    assert found.body["temperature"] == 0.3
    assert "reasoning-missing" in notes(found)
    assert "thinking" in plan("Hi", begun, RESULT, "And now?", tools=[TOOL], reasoning=2000).body
    assert plan("Hi", answer(), RESULT, tools=[TOOL], reasoning=2000).body["thinking"]["type"] == "enabled"
    adaptive = plan("Hi", begun, RESULT, of="anthropic/claude-opus-5", tools=[TOOL], reasoning="high")
    assert adaptive.body["thinking"]["type"] == "adaptive"
