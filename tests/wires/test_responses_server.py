"""OpenAI Responses over a real local server: with our client, and with the vendor's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import cnllm
from cnllm import Client, Model, Registry, engine
from cnllm.simulator.server import Server, running
from cnllm.types import Opaque, Reasoning, ToolCallStart

if TYPE_CHECKING:
    import openai  # it takes seconds: the tests that need it import it

WIRE = "openai-responses"
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the weather of a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}
FLAT: list[Any] = [{"type": "function", "strict": False, **tool["function"]} for tool in (WEATHER, CLOCK)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Registry.load()) as listening:
        yield listening


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(api_key="k") as made:
        yield made


@pytest.fixture(scope="module")
def model(server: Server) -> Model:
    return Registry.load().resolve("openai/gpt-5.6-sol", protocol=WIRE, base_url=f"{server.url}/openai")


# ── our client ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streams", [False, True])
def test_text_and_thinking(client: Client, model: Model, streams: bool) -> None:
    reply = said(client, model, "Hello there", streams, reasoning="high")
    assert "Hello there" in reply.text
    assert "Hello there" in reply.reasoning
    assert (reply.finish, reply.raw_finish) == ("stop", "completed")
    assert reply.usage.input
    assert reply.usage.output
    assert reply.usage.reasoning
    [thought, text] = reply.message.parts
    assert thought.seal is not None
    assert thought.seal.data["type"] == "reasoning"
    assert thought.seal.data["encrypted_content"]
    assert text.seal is not None


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_and_its_result_with_the_reasoning_going_back(client: Client, model: Model, streams: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    reply = said(client, model, messages, streams, reasoning="high", tools=[WEATHER])
    assert reply.finish == "tool_calls"
    [call] = reply.tool_calls
    assert call.name == "weather"
    assert call.seal is not None
    assert call.seal.data["id"].startswith("fc_")
    messages += [reply.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    plan = client.plan(model, messages, tools=[WEATHER], reasoning="high")
    assert [item.get("type") for item in plan.turns] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    thought = next(p for p in reply.message.parts if type(p) is Reasoning)
    assert plan.turns[1] == (thought.seal and thought.seal.data)
    again = said(client, model, messages, streams, reasoning="high", tools=[WEATHER])
    assert "rain" in again.text
    assert again.finish == "stop"


@pytest.mark.parametrize("streams", [False, True])
def test_calls_in_parallel_are_answered_over_responses(client: Client, model: Model, streams: bool) -> None:
    reply = said(client, model, "do it in parallel", streams, tools=[WEATHER, CLOCK])
    assert [call.name for call in reply.tool_calls] == ["weather", "clock"]
    assert len({call.id for call in reply.tool_calls}) == 2
    results = [{"role": "tool", "tool_call_id": c.id, "content": f"of {c.name}"} for c in reply.tool_calls]
    again = said(client, model, ["do it in parallel", reply.message, *results], streams, tools=[WEATHER, CLOCK])
    assert "of clock" in again.text


def test_an_answer_by_a_schema(client: Client, model: Model) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    reply = client.call(model, "a number", schema=schema)
    assert reply.parsed is not None
    assert type(reply.parsed["n"]) is int


def test_a_limit_makes_it_incomplete(client: Client, model: Model) -> None:
    reply = client.call(model, "Hello there", max_tokens=3)
    assert (reply.finish, reply.raw_finish) == ("length", "incomplete")


def test_another_endpoints_reasoning_is_refused(client: Client, model: Model) -> None:
    reply = client.call(model, "Hello", reasoning="low")
    [thought, text] = reply.message.parts
    assert isinstance(thought, Reasoning)
    assert thought.seal is not None
    changed = {**thought.seal.data, "encrypted_content": "made up"}
    with pytest.raises(cnllm.BadRequest):
        client.call(
            model,
            [
                "Hello",
                cnllm.Message(
                    "assistant", (Reasoning(thought.text, replaced(thought.seal, changed)), text), model.name
                ),
                "again",
            ],
        )


def test_refusals_of_the_responses_server_are_errors(client: Client, model: Model) -> None:
    with pytest.raises(cnllm.BadRequest, match="temperature"):
        client.call(model, "Hello", extra_body={"temperature": 2})
    with Client(api_key=" ") as keyless, pytest.raises(cnllm.CnllmError):
        keyless.call(model, "Hello")


def test_tools_with_reasoning_take_this_wire_of_themselves(client: Client, server: Server) -> None:
    chat = Registry.load().resolve("openai/gpt-5.6-sol", base_url=f"{server.url}/openai")
    assert chat.protocol == "openai-chat"
    reply = client.call(chat, "weather?", tools=[WEATHER], reasoning="high")
    assert [note.code for note in reply.notes] == ["wire-routed"]
    assert reply.raw_finish == "completed"
    assert [call.name for call in reply.tool_calls] == ["weather"]
    assert client.plan(chat, "weather?", tools=[WEATHER], reasoning="off").url.endswith("/chat/completions")
    chosen = Registry.load().resolve("openai/gpt-5.6-sol", base_url=f"{server.url}/openai", protocol="openai-chat")
    plan = client.plan(chosen, "weather?", tools=[WEATHER])
    assert plan.url.endswith("/chat/completions")
    assert "wire-routed" not in {note.code for note in plan.notes}


def test_a_tool_loop_over_this_wire(client: Client, server: Server) -> None:
    def weather(place: str) -> str:
        """The weather of a place."""
        return f"rain in {place}"

    chat = Registry.load().resolve("openai/gpt-5.6-sol", base_url=f"{server.url}/openai")
    run = client.run(chat, "weather?", tools=[weather], reasoning="high")
    assert run.stopped == "done"
    assert "rain in" in run.reply.text
    assert [message.role for message in run.messages] == ["user", "assistant", "tool", "assistant"]


def said(client: Client, model: Model, messages: Any, streams: bool, **options: Any) -> cnllm.Reply:
    if not streams:
        return client.call(model, messages, **options)
    with client.stream(model, messages, **options) as stream:
        events = list(stream)
    reply = stream.reply
    starts = [event.name for event in events if type(event) is ToolCallStart]
    assert starts == [call.name for call in reply.tool_calls]
    return reply


def replaced(seal: Any, data: Any) -> Any:
    return cnllm.types.Seal(seal.protocol, seal.provider, seal.model, data)


# ── the vendor's client ──────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(api_key="k", base_url=f"{server.url}/openai", max_retries=0) as made:
        yield made


def ask(sdk: openai.OpenAI, input: Any, **more: Any) -> Any:
    return sdk.responses.create(model="gpt-5.6-sol", input=input, store=False, **more)


def test_the_vendors_client_reads_text_thinking_and_usage(sdk: openai.OpenAI) -> None:
    answer = ask(sdk, "Hello there", reasoning={"effort": "high"})
    assert "Hello there" in answer.output_text
    [thought, message] = answer.output
    assert thought.type == "reasoning"
    assert "Hello there" in thought.summary[0].text
    assert message.content[0].type == "output_text"
    assert answer.status == "completed"
    assert answer.usage.output_tokens_details.reasoning_tokens
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_the_vendors_client_gets_calls_and_sends_results(sdk: openai.OpenAI) -> None:
    input: list[Any] = [{"role": "user", "content": "use both in parallel"}]
    answer = ask(sdk, input, tools=FLAT, reasoning={"effort": "high"})
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["weather", "clock"]
    input += [item.model_dump(exclude_none=True) for item in answer.output]
    input += [{"type": "function_call_output", "call_id": c.call_id, "output": f"of {c.name}"} for c in calls]
    again = ask(sdk, input, tools=FLAT, reasoning={"effort": "high"})
    assert "of weather" in again.output_text
    assert "of clock" in again.output_text


def test_the_vendors_client_reads_a_stream(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="gpt-5.6-sol", input="Hello there", reasoning={"effort": "high"}) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_summary_text.delta")
    assert text == final.output_text
    assert "Hello there" in text
    assert "Hello there" in thought
    assert final.usage is not None
    assert final.usage.output_tokens


def test_the_vendors_client_reads_a_stream_of_calls(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="gpt-5.6-sol", input="both in parallel", tools=FLAT) as stream:
        events = list(stream)
        final = stream.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["weather", "clock"]
    for call, place in zip(
        calls, (i for i, item in enumerate(final.output) if item.type == "function_call"), strict=True
    ):
        deltas = [e for e in events if e.type == "response.function_call_arguments.delta" and e.output_index == place]
        assert "".join(event.delta for event in deltas) == call.arguments


def test_the_vendors_client_is_told_of_errors(sdk: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(sdk, "Hello", temperature=1.5)
    with pytest.raises(openai.BadRequestError):
        ask(sdk, [{"type": "function_call_output", "call_id": "nobody's", "output": "x"}])
    with pytest.raises(openai.BadRequestError, match="role"):
        ask(sdk, [{"role": "nobody", "content": "x"}])
    with pytest.raises(openai.AuthenticationError):
        ask(sdk, "Hello", extra_headers={"authorization": "nobody's"})


def test_the_vendors_client_is_told_of_a_limit(sdk: openai.OpenAI) -> None:
    answer = ask(sdk, "Hello there", max_output_tokens=3)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_a_result_stays_as_it_is_where_its_call_is_only_named() -> None:
    kept = [
        {"type": "item_reference", "id": "fc_9"},
        {"type": "function_call_output", "call_id": "call_9", "output": "rain"},
    ]
    (message,) = engine.decode_request(WIRE, {"model": "m", "input": kept}).messages
    assert [part.data for part in message.parts if isinstance(part, Opaque)] == kept
