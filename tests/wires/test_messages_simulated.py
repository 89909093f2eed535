"""Anthropic Messages over the simulator's server: this client and the vendor's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import cnllm
from cnllm import Client, Message, Model, Reply, Text, ToolResult
from cnllm.simulator.server import Server, running

from .messages_support import MESSAGES, registry

if TYPE_CHECKING:
    import anthropic  # it takes seconds: the tests that need it import it

KEY = "sk-0123456789"
WEATHER = {
    "name": "weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TIME = {"name": "time", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}}
OURS: list[Any] = [WEATHER, TIME]
NAME = "anthropic/claude-haiku-4-5"
NAMES = [NAME, "anthropic/claude-opus-5-5", "deepseek/deepseek-flash", "zai/glm-4.7", "minimax/MiniMax-M3"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


def at(server: Server, name: str = NAME) -> Model:
    return registry().resolve(name, base_url=f"{server.url}/{name.partition('/')[0]}", protocol=MESSAGES)


class Asking:
    """The client, called whole or streamed."""

    def __init__(self, client: Client, streams: bool) -> None:
        self.client = client
        self.streams = streams

    def __call__(self, model: Model, messages: Any, **options: Any) -> Reply:
        if not self.streams:
            return self.client.call(model, messages, **options)
        with self.client.stream(model, messages, **options) as stream:
            events = list(stream)
        text = "".join(e.text for e in events if isinstance(e, cnllm.TextDelta))
        assert text == stream.reply.text
        return stream.reply


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def ask(request: pytest.FixtureRequest) -> Iterator[Asking]:
    with Client(registry(), api_key=KEY) as client:
        yield Asking(client, request.param)


# ── this client ──────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", NAMES)
def test_text_and_usage(server: Server, ask: Asking, name: str) -> None:
    reply = ask(at(server, name), "Why is the sky blue?", reasoning="off")
    assert "Simulated answer" in reply.text
    assert reply.finish == "stop"
    assert reply.raw_finish == "end_turn"
    usage = reply.usage
    assert usage.input
    assert usage.output
    assert usage.total == usage.input + usage.output


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_of_tools_with_what_was_thought_going_back(server: Server, ask: Asking, name: str) -> None:
    model = at(server, name)
    history: list[Any] = [Message("user", [Text("The weather and the time in parallel, please.")])]
    first = ask(model, history, tools=OURS, reasoning="high")
    assert [call.name for call in first.tool_calls] == ["weather", "time"]
    assert first.finish == "tool_calls"
    assert first.reasoning
    history.append(first.message)
    history += [Message("tool", [ToolResult(call.id, "sunny")]) for call in first.tool_calls]
    last = ask(model, history, tools=OURS, reasoning="high")
    assert "sunny" in last.text
    assert last.usage.cached
    sent = cnllm.engine.build_request(model, history, tools=OURS, reasoning="high").body["messages"][1]["content"]
    assert sent[0]["type"] == "thinking"
    assert bool(sent[0]["signature"]) == name.startswith("anthropic/")


def test_a_signature_of_another_model_never_arrives(server: Server, ask: Asking) -> None:
    history: list[Any] = ["Why?"]
    history.append(ask(at(server), history, reasoning="high").message)
    history.append("And then?")
    assert ask(at(server, "anthropic/claude-sonnet-4-5"), history, reasoning="high").text
    forged = Message(
        "assistant",
        [
            cnllm.Reasoning("Hm.", cnllm.Seal(MESSAGES, "anthropic", "claude-haiku-4-5", {"signature": "forged"})),
            Text("x"),
        ],
        NAME,
    )
    with pytest.raises(cnllm.ReplayMissing, match="signature"):
        ask(at(server), ["Why?", forged, "And then?"], reasoning="high")


def test_a_forced_call(server: Server, ask: Asking) -> None:
    reply = ask(at(server), "Hi", tools=OURS, tool_choice="time", parallel_tool_calls=False)
    assert [call.name for call in reply.tool_calls] == ["time"]


def test_an_answer_by_a_schema(server: Server, ask: Asking) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for name in (NAME, "zai/glm-4.7"):
        reply = ask(at(server, name), "How many?", schema=schema, reasoning="off")
        assert isinstance(reply.parsed, dict)
        assert reply.finish == "stop"


def test_the_simulator_refuses_what_messages_does(server: Server, ask: Asking) -> None:
    with pytest.raises(cnllm.BadRequest) as caught:
        ask(at(server), "Hi", extra_body={"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]})
    assert caught.value.code == "invalid_request_error"
    with pytest.raises(cnllm.BadRequest, match="max_tokens"):
        ask(at(server), "Hi", extra_body={"max_tokens": None})
    body = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "tool_choice": {"type": "any"}}
    with pytest.raises(cnllm.BadRequest, match="forces tool use"):
        ask(at(server), "Hi", tools=OURS, extra_body=body)


def test_too_few_tokens(server: Server, ask: Asking) -> None:
    reply = ask(at(server), "Why is the sky blue?", max_tokens=5)
    assert (reply.finish, reply.raw_finish) == ("length", "max_tokens")


# ── the vendor's SDK ─────────────────────────────────────────────────────────
MODEL = "claude-haiku-4-5"
ASKED: list[Any] = [{"role": "user", "content": "The weather and the time in parallel, please."}]
SDK_TOOLS: Any = [WEATHER, TIME]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=f"{server.url}/anthropic", api_key=KEY, max_retries=0) as client:
        yield client


def test_sdk_text_and_usage(sdk: anthropic.Anthropic) -> None:
    said = sdk.messages.create(
        model=MODEL, max_tokens=500, messages=[{"role": "user", "content": "Hi"}], system="Short."
    )
    assert [block.type for block in said.content] == ["text"]
    assert said.stop_reason == "end_turn"
    assert said.usage.input_tokens > 0
    assert said.usage.output_tokens > 0


def test_sdk_thinking_tools_and_their_results(sdk: anthropic.Anthropic) -> None:
    first = sdk.messages.create(model=MODEL, max_tokens=2000, messages=ASKED, tools=SDK_TOOLS, thinking=THINKING)
    assert [block.type for block in first.content] == ["thinking", "tool_use", "tool_use"]
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["weather", "time"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
    history: Any = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = sdk.messages.create(model=MODEL, max_tokens=2000, messages=history, tools=SDK_TOOLS, thinking=THINKING)
    assert [block.type for block in last.content] == ["thinking", "text"]
    assert "sunny" in last.content[-1].text  # type: ignore[union-attr]


def test_sdk_a_stream_is_the_whole(sdk: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 2000, "messages": ASKED, "tools": SDK_TOOLS, "thinking": THINKING}
    whole = sdk.messages.create(**asked)
    with sdk.messages.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_message()
    assert kinds >= {"message_start", "thinking", "signature", "input_json", "content_block_stop", "message_stop"}
    assert [b.model_dump() for b in streamed.content] == [b.model_dump() for b in whole.content]
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.input_tokens == whole.usage.input_tokens
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_sdk_text_streamed(sdk: anthropic.Anthropic) -> None:
    with sdk.messages.stream(model=MODEL, max_tokens=500, messages=[{"role": "user", "content": "Hi"}]) as stream:
        text = "".join(stream.text_stream)
        assert text == stream.get_final_text()
    assert "Simulated" in text


def test_anthropic_s_sdk_raises_its_own_errors(sdk: anthropic.Anthropic) -> None:
    import anthropic

    asked: Any = {"model": MODEL, "max_tokens": 2000, "messages": ASKED}
    with pytest.raises(anthropic.BadRequestError, match="forces tool use"):
        sdk.messages.create(**asked, tools=SDK_TOOLS, tool_choice={"type": "any"}, thinking=THINKING)
    forged = {"type": "thinking", "thinking": "Hm.", "signature": "forged"}
    turns: Any = [*ASKED, {"role": "assistant", "content": [forged, {"type": "text", "text": "x"}]}, *ASKED]
    with pytest.raises(anthropic.BadRequestError, match="signature"):
        sdk.messages.create(**{**asked, "messages": turns})
    open_call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "time", "input": {}}]}
    with pytest.raises(anthropic.BadRequestError):
        sdk.messages.create(**{**asked, "messages": [*ASKED, open_call, *ASKED]}, tools=SDK_TOOLS)
    with pytest.raises(anthropic.AuthenticationError):
        sdk.messages.create(**asked, extra_headers={"Authorization": "nonsense", "X-Api-Key": ""})
