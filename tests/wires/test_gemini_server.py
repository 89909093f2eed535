"""generateContent over a real socket: cnllm's clients and the vendor's own, against the simulator's server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import cnllm
from cnllm import Client, Message, Model, TextDelta, ToolResult, engine
from cnllm.simulator.server import Server, running

from .gemini_support import Json, kinds, registry

WEATHER: Json = {
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK: Json = {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(registry=registry(), api_key="k") as made:
        yield made


@pytest.fixture(params=["gemini-3.8-flash", "gemini-2.5-flash"])
def model(request: pytest.FixtureRequest, server: Server) -> Model:
    return at(server, request.param)


def at(server: Server, name: str) -> Model:
    return registry().resolve(f"google/{name}", protocol="gemini", base_url=f"{server.url}/google")


def asked(client: Client, model: Model, messages: Any, stream: bool, **options: Any) -> cnllm.Reply:
    if not stream:
        return client.call(model, messages, **options)
    with client.stream(model, messages, **options) as events:
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == events.reply.text
    return events.reply


# ── cnllm's client ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
def test_text_thinking_and_counts(client: Client, model: Model, stream: bool) -> None:
    reply = asked(client, model, "Hello", stream, reasoning="low")
    assert '"Hello"' in reply.text
    assert "I am a simulator" in reply.reasoning
    assert (reply.finish, reply.raw_finish, reply.model) == ("stop", "STOP", model.id)
    assert reply.usage.output is not None
    assert reply.usage.reasoning is not None
    assert reply.usage.output > reply.usage.reasoning > 0
    assert any(part.seal for part in reply.message.parts if not isinstance(part, cnllm.Reasoning))
    again = asked(client, model, ["Hello", reply.message, "And?"], stream)
    assert '"And?"' in again.text


@pytest.mark.parametrize("stream", [False, True])
def test_tools_in_parallel_and_what_was_sealed_goes_back(client: Client, model: Model, stream: bool) -> None:
    history: list[Any] = [{"role": "user", "content": "in parallel, please"}]
    reply = asked(client, model, history, stream, reasoning="high", tools=[WEATHER, CLOCK])
    assert reply.finish == "tool_calls"
    assert [call.name for call in reply.tool_calls] == ["weather", "clock"]
    assert kinds(reply.message.parts) == ["Reasoning", "ToolCall*", "ToolCall"]
    history.append(reply.message)
    history += [Message("tool", [ToolResult(c.id, f"result of {c.name}", c.name)]) for c in reply.tool_calls]
    plan = client.plan(model, history, tools=[WEATHER, CLOCK])
    assert plan.notes == []
    assert "thoughtSignature" in plan.body["contents"][1]["parts"][1]
    last = asked(client, model, history, stream, tools=[WEATHER, CLOCK])
    assert "result of weather result of clock" in last.text


def test_a_forced_call_and_a_schema(client: Client, model: Model) -> None:
    forced = client.call(model, "Hello", tools=[WEATHER, CLOCK], tool_choice="clock")
    assert [call.name for call in forced.tool_calls] == ["clock"]
    assert client.call(model, "Hello", schema=WEATHER["parameters"]).parsed


def test_the_tool_loop(client: Client, server: Server) -> None:
    @cnllm.tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"21 degrees in {city}"

    run = client.run(at(server, "gemini-3.8-flash"), "How warm?", tools=[weather], reasoning="low")
    assert run.stopped == "done"
    assert "21 degrees" in run.reply.text


def test_a_limit_cuts_the_answer(client: Client, model: Model) -> None:
    assert client.call(model, "Hello", max_tokens=60, reasoning="low").finish in ("stop", "length")
    assert client.call(model, "Hello", max_tokens=30).finish == "length"


def test_a_history_without_its_seals_is_refused_and_another_models_is_not(client: Client, server: Server) -> None:
    newer = at(server, "gemini-3.8-flash")
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    theirs = {"role": "assistant", "content": None, "tool_calls": [call], "by": "zai/glm-4.7"}
    history: list[Any] = [
        {"role": "user", "content": "x"},
        theirs,
        {"role": "tool", "tool_call_id": "c1", "content": "y"},
    ]
    assert client.call(newer, history, tools=[WEATHER]).text
    bare = engine.build_request(newer, history, tools=[WEATHER]).body
    del bare["contents"][1]["parts"][0]["thoughtSignature"]
    with pytest.raises(cnllm.ReplayMissing):
        client.call(newer, "x", extra_body={"contents": bare["contents"]})
    bare["contents"][1]["parts"][0]["thoughtSignature"] = "bWFkZSB1cA=="
    with pytest.raises(cnllm.BadRequest, match="invalid signature"):
        client.call(newer, "x", extra_body={"contents": bare["contents"]})


def test_refusals_have_the_endpoints_words(client: Client, server: Server) -> None:
    with pytest.raises(cnllm.BadKey, match="API key not valid") as caught:
        client.call(at(server, "gemini-2.5-flash"), "x", api_key="", extra_headers={"x-goog-api-key": ""})
    assert caught.value.status == 400
    with pytest.raises(cnllm.BadRequest, match="contents"):
        client.call(at(server, "gemini-2.5-flash"), "x", extra_body={"contents": "x"})


@pytest.mark.parametrize("fault", ["cut", "status=503"])
def test_what_goes_wrong_on_the_way(server: Server, fault: str) -> None:
    with Client(registry=registry(), api_key="k") as client, pytest.raises(cnllm.CnllmError) as caught:
        asked(
            client,
            at(server, "gemini-2.5-flash"),
            "Hello",
            True,
            extra_headers={"x-cnllm-fault": fault},
            if_cut="error",
        )
    assert isinstance(caught.value, cnllm.StreamCut | cnllm.Overloaded)


# ── the vendor's client ──────────────────────────────────────────────────────

NAME = "gemini-3.8-flash"


@pytest.fixture
def genai(server: Server) -> Any:
    made = pytest.importorskip("google.genai")
    return made.Client(api_key="k", http_options={"base_url": server.url})


def config(**options: Any) -> Any:
    return pytest.importorskip("google.genai.types").GenerateContentConfig(**options)


THINK = {"thinking_config": {"include_thoughts": True, "thinking_level": "LOW"}}
TOOLS = {"tools": [{"function_declarations": [WEATHER, CLOCK]}]}


def test_the_vendors_client_gets_text_thinking_and_counts(genai: Any) -> None:
    made = genai.models.generate_content(
        model=NAME, contents="Hello", config=config(**THINK, system_instruction="Be brief.")
    )
    thought, said = made.candidates[0].content.parts
    assert thought.thought
    assert "I am a simulator" in thought.text
    assert '"Hello"' in said.text
    assert said.thought_signature
    assert made.text == said.text
    assert made.candidates[0].finish_reason.value == "STOP"
    counts = made.usage_metadata
    assert (
        counts.prompt_token_count + counts.candidates_token_count + counts.thoughts_token_count
        == counts.total_token_count
    )
    assert made.model_version == NAME
    assert made.response_id


def test_the_vendors_client_streams(genai: Any) -> None:
    chunks = list(genai.models.generate_content_stream(model=NAME, contents="Hello", config=config(**THINK)))
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert '"Hello"' in "".join(part.text for part in parts if not part.thought)
    assert "I am a simulator" in "".join(part.text for part in parts if part.thought)
    assert [c.candidates[0].finish_reason for c in chunks][:-1] == [None] * (len(chunks) - 1)
    assert chunks[-1].candidates[0].finish_reason.value == "STOP"
    assert chunks[-1].usage_metadata.total_token_count


@pytest.mark.parametrize("stream", [False, True])
def test_the_vendors_client_calls_tools_in_parallel(genai: Any, stream: bool) -> None:
    types = pytest.importorskip("google.genai.types")
    first = types.UserContent("in parallel, please")
    if stream:
        chunks = list(genai.models.generate_content_stream(model=NAME, contents=first, config=config(**TOOLS, **THINK)))
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    else:
        parts = (
            genai.models.generate_content(model=NAME, contents=first, config=config(**TOOLS, **THINK))
            .candidates[0]
            .content.parts
        )
    calls = [part.function_call for part in parts if part.function_call]
    assert [call.name for call in calls] == ["weather", "clock"]
    assert calls[0].args == {"city": "in parallel, please"}
    assert all(call.id for call in calls)
    results = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": 21}))
        for call in calls
    ]
    contents = [first, types.ModelContent(parts), types.UserContent(results)]
    made = genai.models.generate_content(model=NAME, contents=contents, config=config(**TOOLS))
    assert '{"result":21} {"result":21}' in made.text


def test_the_vendors_chat_keeps_what_was_sealed(genai: Any) -> None:
    chat = genai.chats.create(model=NAME, config=config(**THINK))
    assert '"Hello"' in chat.send_message("Hello").text
    assert '"And?"' in chat.send_message("And?").text
    assert len(chat.get_history()) == 4


def test_the_vendors_client_forces_a_tool_and_a_schema(genai: Any) -> None:
    calling = {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["clock"]}}
    made = genai.models.generate_content(model=NAME, contents="x", config=config(**TOOLS, tool_config=calling))
    assert [call.name for call in made.function_calls] == ["clock"]
    by_schema = config(response_mime_type="application/json", response_json_schema=WEATHER["parameters"])
    made = genai.models.generate_content(model=NAME, contents="x", config=by_schema)
    assert set(made.parsed or json.loads(made.text)) == {"city"}


def test_the_vendors_client_gets_errors(genai: Any, server: Server) -> None:
    errors = pytest.importorskip("google.genai.errors")
    with pytest.raises(errors.ClientError) as caught:
        genai.models.generate_content(model="no-such-model", contents="x")
    assert caught.value.code == 404
    unsigned = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {}}}]},
        {"role": "user", "parts": [{"function_response": {"name": "weather", "response": {"result": 1}}}]},
    ]
    with pytest.raises(errors.ClientError, match="thought_signature") as caught:
        genai.models.generate_content(model=NAME, contents=unsigned, config=config(**TOOLS))
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    faulty = {"headers": {"x-cnllm-fault": "status=503"}, "retry_options": {"attempts": 1}}
    with pytest.raises(errors.ServerError):
        genai.models.generate_content(model=NAME, contents="x", config=config(http_options=faulty))


# ── from one wire to the other ───────────────────────────────────────────────


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["gemini-3.8-flash", "gemini-2.5-flash"])
def test_a_conversation_moves_between_the_wires(client: Client, server: Server, name: str, back: bool) -> None:
    native = at(server, name)
    chat = registry().resolve("glm-4.7", base_url=f"{server.url}/zai")
    first, second = (native, chat) if back else (chat, native)
    history: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "in parallel, please"},
    ]
    reply = client.call(first, history, reasoning="on", tools=[WEATHER, CLOCK])
    assert len(reply.tool_calls) == 2
    picture = cnllm.Media("image/png", "aGk=")
    history.append(reply.message)
    history += [Message("tool", [ToolResult(c.id, "21", c.name, media=(picture,))]) for c in reply.tool_calls]
    history += [{"role": "system", "content": "Be kind."}]
    reply = client.call(second, history, reasoning="on", tools=[WEATHER, CLOCK])
    history += [reply.message, {"role": "user", "content": "And?"}]
    assert client.call(first, history, tools=[WEATHER, CLOCK]).finish in ("stop", "tool_calls")
    assert client.call(second, history, tools=[WEATHER, CLOCK]).finish in ("stop", "tool_calls")
