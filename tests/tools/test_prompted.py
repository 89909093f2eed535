"""Tools of a model that takes none: in the prompt, in the text of its answers, in the text of its history."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from cases import each
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

import cnllm
from cnllm import Registry, engine, tool
from cnllm.tools import problem_with

OVERLAY = """
[providers.home]
title = "A server at home"
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
keys = []
[models."home/prompted"]
tools = { supported = false, otherwise = "prompt" }
[models."home/dropped"]
tools = { supported = false, otherwise = "drop" }
[models."home/unsaid"]
tools = { supported = false }
[models."home/tags"]
tools = { supported = false, otherwise = "prompt" }
leaks = [{ open = ["<tool_call>"], close = ["</tool_call>"], format = ["json"], then = "strip" }]
[models."home/alternating"]
tools = { supported = false, otherwise = "prompt" }
messages = { consecutive_roles = "join", system = "user" }
"""


@tool
def weather(city: str, days: int = 1) -> str:
    """The weather in a city."""
    return f"{city}: fine for {days} days"


@tool
def now() -> str:
    """The time."""
    return "12:00"


TOOLS = [weather, now]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Is it warm?"},
    {
        "role": "assistant",
        "content": "I will look.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}},
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": '{"cut'}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "5 °C"},
    {"role": "tool", "tool_call_id": "b", "content": "no such arguments"},
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "And now?"},
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path = tmp_path_factory.mktemp("overlay") / "home.toml"
    path.write_text(OVERLAY)
    return Registry.load(str(path))


@pytest.fixture
def model(registry: Registry) -> cnllm.Model:
    return registry.resolve("home/prompted")


def frames(texts: list[str], reason: str | None = "stop") -> list[bytes]:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if reason is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    data = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return [*data, b"data: [DONE]\n\n"] if reason is not None else data


def streamed(model: cnllm.Model, texts: list[str], **options: Any) -> tuple[list[Any], cnllm.Reply]:
    plan = engine.build_request(model, "hi", stream=True, **options)
    parser = engine.StreamParser(model, plan=plan)
    events = [event for chunk in frames(texts) for event in parser.feed(chunk)]
    return [*events, *parser.end()], parser.close()


def whole(model: cnllm.Model, text: str, **options: Any) -> cnllm.Reply:
    plan = engine.build_request(model, "hi", **options)
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    return engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)


def codes(notes: list[cnllm.Note]) -> list[str]:
    return [note.code for note in notes]


# ── the request ──────────────────────────────────────────────────────────────


def test_the_tools_are_described_in_the_system_message_and_nothing_of_them_is_in_the_body(model: cnllm.Model) -> None:
    plan = engine.build_request(
        model, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], tools=TOOLS
    )
    system, user = plan.body["messages"]
    assert set(plan.body) == {"model", "messages"}
    assert user == {"role": "user", "content": "hi"}
    assert system["content"].startswith("Be brief.\n\nYou can call tools.")
    lines = system["content"].splitlines()
    described = [json.loads(line) for line in lines if line.startswith('{"name"')]
    assert described == [
        {"name": "weather", "description": "The weather in a city.", "parameters": weather.parameters},
        {"name": "now", "description": "The time.", "parameters": now.parameters},
    ]
    assert '<tool_call>{"name":"NAME","arguments":{"PARAMETER":"VALUE"}}</tool_call>' in lines


def test_it_is_noted_with_the_line_that_says_so(model: cnllm.Model) -> None:
    (note,) = engine.build_request(model, "hi", tools=TOOLS).notes
    assert (note.code, note.flag, note.said) == ("tools-prompted", "tools.otherwise", "2 tools")
    assert note.where.endswith("home.toml:8")


@pytest.mark.parametrize("name", ["home/dropped", "home/unsaid"])
def test_where_it_is_not_declared_the_tools_are_left_out(registry: Registry, name: str) -> None:
    plan = engine.build_request(registry.resolve(name), HISTORY, tools=TOOLS)
    assert set(codes(plan.notes)) == {"tools-unsupported", "tools-as-text"}  # what was called is told in words
    assert plan.body["messages"][0] == HISTORY[0]
    assert "tools" not in plan.body


def test_the_caller_may_want_an_error_or_the_tools_as_they_are(model: cnllm.Model) -> None:
    with pytest.raises(cnllm.CannotSend, match=r"tools\.otherwise"):
        engine.build_request(model, "hi", tools=TOOLS, on_unsupported="error")
    plan = engine.build_request(model, HISTORY, tools=TOOLS, on_unsupported="send")
    assert len(plan.body["tools"]) == 2
    assert plan.body["messages"][1]["tool_calls"][0]["id"] == "a"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "If no tool is needed, answer as usual, without any block."),
        ({"tool_choice": "required"}, "In your next message you must call at least one of the tools."),
        ({"tool_choice": "now"}, "In your next message you must call the tool now."),
        ({"parallel_tool_calls": False}, "Write at most one block."),
        ({"parallel_tool_calls": True}, "To call several tools at once, write several blocks."),
    ],
)
def test_the_choice_is_said_in_words(model: cnllm.Model, options: dict[str, Any], sentence: str) -> None:
    plan = engine.build_request(model, "hi", tools=TOOLS, **options)
    assert sentence in plan.body["messages"][0]["content"]
    assert not {"tool_choice", "parallel_tool_calls"} & set(plan.body)


def test_with_the_choice_none_no_tool_is_described_and_none_is_called(model: cnllm.Model) -> None:
    plan = engine.build_request(model, "hi", tools=TOOLS, tool_choice="none")
    assert plan.body["messages"] == [{"role": "user", "content": "hi"}]
    assert whole(model, CALL, tools=TOOLS, tool_choice="none").tool_calls == []


def test_a_choice_that_is_not_among_the_tools_is_an_error(model: cnllm.Model) -> None:
    with pytest.raises(ValueError, match="not among the tools: weather, now"):
        engine.build_request(model, "hi", tools=TOOLS, tool_choice="look")


def test_an_endpoints_own_tool_cannot_be_described(model: cnllm.Model) -> None:
    plan = engine.build_request(model, "hi", tools=[{"type": "web_search"}, now])
    assert codes(plan.notes) == ["tools-unsupported", "tools-prompted"]
    assert "web_search" not in plan.body["messages"][0]["content"]


def test_the_same_request_gives_the_same_bytes_and_changes_nothing_of_the_callers(model: cnllm.Model) -> None:
    before = json.dumps(HISTORY)
    first, second = (engine.build_request(model, HISTORY, tools=TOOLS).content for _ in range(2))
    assert first == second
    assert json.dumps(HISTORY) == before


def test_an_answer_by_a_schema_is_asked_for_in_words_beside_tools_in_words(model: cnllm.Model) -> None:
    """A wire that holds the answer to a schema would let no call through."""
    schema = {"type": "object", "properties": {"warm": {"type": "boolean"}}}
    plan = engine.build_request(model, "hi", tools=TOOLS, schema=schema)
    assert set(plan.body) == {"model", "messages"}
    assert codes(plan.notes) == ["tools-prompted", "schema-in-prompt"]
    system = plan.body["messages"][0]["content"]
    assert system.index("You can call tools.") < system.index("When you call no tool, answer with one JSON value")
    assert system.endswith(json.dumps(schema, separators=(",", ":")))
    assert "response_format" in engine.build_request(model, "hi", schema=schema).body


# ── the history ──────────────────────────────────────────────────────────────


def test_earlier_calls_and_results_are_written_as_text(model: cnllm.Model) -> None:
    plan = engine.build_request(model, HISTORY, tools=TOOLS)
    said = plan.body["messages"][1:]
    assert said[0] == HISTORY[0]
    assert said[1] == {
        "role": "assistant",
        "content": "I will look.\n"
        '<tool_call>{"name":"weather","arguments":{"city":"Bern"}}</tool_call>\n'
        '<tool_call>{"name":"now","arguments":"{\\"cut"}</tool_call>',
    }
    assert said[2] == {
        "role": "user",
        "content": '<tool_result name="weather">\n5 °C\n</tool_result>\n'
        '<tool_result name="now">\nno such arguments\n</tool_result>',
    }
    assert said[3:] == HISTORY[4:]
    assert codes(plan.notes) == ["tools-prompted", "calls-as-text"]


def test_it_is_so_where_no_tools_are_offered_any_more(model: cnllm.Model) -> None:
    plan = engine.build_request(model, HISTORY)
    assert [m["role"] for m in plan.body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert codes(plan.notes) == ["calls-as-text"]


def test_results_that_name_no_call_and_failures_are_told(model: cnllm.Model) -> None:
    turns = [
        cnllm.Message("user", [cnllm.Text("hi")]),
        cnllm.Message("assistant", [cnllm.ToolCall("1", "weather", {}, "{}"), cnllm.ToolCall("2", "now", {}, "{}")]),
        cnllm.Message("tool", [cnllm.ToolResult("", "A")]),
        cnllm.Message("tool", [cnllm.ToolResult("", "B", error=True)]),
    ]
    said = engine.build_request(model, turns).body["messages"]
    assert said[1]["content"] == (
        '<tool_call>{"name":"weather","arguments":{}}</tool_call>\n<tool_call>{"name":"now","arguments":{}}</tool_call>'
    )
    assert said[2]["content"] == (
        '<tool_result name="weather">\nA\n</tool_result>\n<tool_result name="now" error="true">\nB\n</tool_result>'
    )


def test_what_else_the_endpoint_wants_of_messages_holds_too(registry: Registry) -> None:
    plan = engine.build_request(registry.resolve("home/alternating"), HISTORY[:4], tools=TOOLS)
    assert [m["role"] for m in plan.body["messages"]] == ["user", "assistant", "user"]
    assert plan.body["messages"][0]["content"].startswith("You can call tools.")
    assert plan.body["messages"][0]["content"].endswith("\n\nIs it warm?")


def test_a_conversation_goes_round(model: cnllm.Model) -> None:
    """What the model wrote comes back to it as it wrote it, and its call can be run."""
    reply = whole(model, f"I will look.\n{CALL}", tools=TOOLS)
    (call,) = reply.tool_calls
    assert problem_with(weather, call) is None
    assert call.arguments is not None
    result = cnllm.Message("tool", [cnllm.ToolResult(call.id, weather(**call.arguments))])
    user = cnllm.Message("user", [cnllm.Text("hi")])
    said = engine.build_request(model, [user, reply.message, result], tools=TOOLS).body["messages"]
    assert [m["role"] for m in said] == ["system", "user", "assistant", "user"]
    assert said[2]["content"] == 'I will look.\n<tool_call>{"name":"weather","arguments":{"city":"Bern"}}</tool_call>'
    assert said[3]["content"] == '<tool_result name="weather">\nBern: fine for 1 days\n</tool_result>'


# ── the reply ────────────────────────────────────────────────────────────────


def test_a_block_is_a_call_and_gone_from_the_text(model: cnllm.Model) -> None:
    reply = whole(model, f"I will look.\n{CALL}", tools=TOOLS)
    assert reply.text == "I will look.\n"
    assert reply.finish == "tool_calls"
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, call.via) == ("weather", {"city": "Bern"}, "text")
    (note,) = [note for note in reply.notes if note.code == "text-call"]
    assert note.flag == "tools.otherwise"
    assert note.where.endswith("home.toml:8")


def test_a_text_alone_is_read_so_too(model: cnllm.Model) -> None:
    assert [c.name for c in cnllm.sanitize(model, CALL, TOOLS).tool_calls] == ["weather"]


def test_several_blocks_are_several_calls(model: cnllm.Model) -> None:
    reply = whole(model, f'{CALL}\n<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>', tools=TOOLS)
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("weather", {"city": "Bern"}), ("now", {})]
    assert len({c.id for c in reply.tool_calls}) == 2
    assert reply.text == ""


def test_arguments_that_do_not_fit_are_a_call_with_a_problem(model: cnllm.Model) -> None:
    reply = whole(model, CALL.replace('"Bern"', "5"), tools=TOOLS)
    told = problem_with(weather, reply.tool_calls[0])
    assert told is not None
    assert "arguments.city: 5 is not of type 'string'" in told


@pytest.mark.parametrize(
    "text",
    [
        "It is fine.",
        '<tool_call>{"name": "weather", "arguments": {"city": "Be',
        "Write `<tool_call>{}</tool_call>` to call.",
        f"```\n{CALL}\n```",
        "<tool_call>weather</tool_call>",
    ],
)
def test_what_is_no_certain_call_stays_text(model: cnllm.Model, text: str) -> None:
    reply = whole(model, text, tools=TOOLS)
    assert (reply.text, reply.tool_calls, reply.finish) == (text, [], "stop")


def test_a_line_goes_on_behind_a_block_that_is_no_call(model: cnllm.Model) -> None:
    """At the start of a line, <pre> would begin a quotation."""
    reply = whole(model, f"<tool_call>weather</tool_call><pre>{CALL}", tools=TOOLS)
    assert [call.name for call in reply.tool_calls] == ["weather"]
    assert whole(model, f"<pre>{CALL}", tools=TOOLS).tool_calls == []


def test_a_call_of_a_tool_that_was_not_offered_is_taken_out(model: cnllm.Model) -> None:
    block = '<tool_call>{"name": "rain", "arguments": {}}</tool_call>'
    reply = whole(model, block, tools=TOOLS)
    assert "<tool_call>" not in reply.text
    assert "rain" in reply.text
    assert reply.tool_calls == []
    assert any(note.code == "text-call-stripped" and note.said == block for note in reply.notes)


def test_the_caller_decides_what_becomes_of_calls_in_text_here_too(model: cnllm.Model) -> None:
    assert whole(model, CALL, tools=TOOLS, recover_text_calls="keep").text == CALL


def test_markup_that_is_stripped_elsewhere_is_a_call_where_it_was_asked_for(registry: Registry) -> None:
    model = registry.resolve("home/tags")
    assert [c.name for c in whole(model, CALL, tools=TOOLS).tool_calls] == ["weather"]
    assert whole(model, f"Hi. {CALL}").text.strip() == "Hi."


@settings(max_examples=share(60), deadline=None)
@given(
    places=st.lists(st.integers(0, 400), max_size=10), value=st.text(max_size=12), before=st.sampled_from(["", "So: "])
)
def test_however_a_stream_is_cut_it_is_the_same_reply(
    registry: Registry, places: list[int], value: str, before: str
) -> None:
    model = registry.resolve("home/prompted")
    text = f"{before}<tool_call>{json.dumps({'name': 'weather', 'arguments': {'city': value}})}</tool_call>"
    ends = sorted({place % len(text) for place in places} | {0, len(text)})
    events, reply = streamed(model, [text[a:b] for a, b in itertools.pairwise(ends)], tools=TOOLS)
    assert [(c.name, c.arguments, c.via) for c in reply.tool_calls] == [("weather", {"city": value}, "text")]
    assert "".join(e.text for e in events if isinstance(e, cnllm.TextDelta)) == reply.text
    assert reply.text.strip() == before.strip()
    assert [e.call for e in events if isinstance(e, cnllm.ToolCallEnd)] == reply.tool_calls
    assert reply.finish == "tool_calls"


def test_a_stream_that_is_cut_has_no_call_to_run(model: cnllm.Model) -> None:
    plan = engine.build_request(model, "hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(model, plan=plan)
    for chunk in frames([CALL], reason=None):
        parser.feed(chunk)
    with pytest.raises(cnllm.StreamCut) as caught:
        parser.close()
    assert caught.value.reply is not None
    assert caught.value.reply.tool_calls == []
    assert [c.name for c in caught.value.reply.incomplete] == ["weather"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_simulated_model_plays_along(model: cnllm.Model, stream: bool) -> None:
    history = [cnllm.Message("user", [cnllm.Text("How is the weather in Bern?")])]
    with cnllm.Client(simulate=True) as client:

        def reply() -> cnllm.Reply:
            if not stream:
                return client.call(model, history, tools=TOOLS)
            with client.stream(model, history, tools=TOOLS) as events:
                list(events)
            return events.reply

        first = reply()
        assert (first.text, first.finish) == ("", "tool_calls")
        (call,) = first.tool_calls
        assert problem_with(weather, call) is None
        assert call.via == "text"
        history += [first.message, cnllm.Message("tool", [cnllm.ToolResult(call.id, "fine")])]
        second = reply()
    assert second.tool_calls == []
    assert 'The tool weather returned: "fine"' in second.text


@each("name", ["openai/gpt-6.1-sol", "baichuan/Baichuan-M3-Plus"])
def test_models_of_the_registry_have_it(name: str) -> None:
    plan = engine.build_request(Registry.load().resolve(name, protocol="openai-chat"), "hi", tools=TOOLS)
    assert "tools" not in plan.body
    assert "You can call tools." in plan.body["messages"][0]["content"]
    assert "tools-prompted" in codes(plan.notes)


def test_a_file_with_another_word_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(OVERLAY.replace('"drop"', '"dropp"'))
    with pytest.raises(cnllm.RegistryError, match="otherwise"):
        Registry.load(str(path)).resolve("home/dropped")
