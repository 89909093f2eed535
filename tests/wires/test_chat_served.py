"""Chat completions with the vendor's own client: against the simulator, and against a gateway of the server's side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cnllm import Client, Registry, engine
from cnllm.simulator.server import Server, running

if TYPE_CHECKING:
    import openai  # it takes seconds: the tests that need it import it

WIRE = "openai-chat"
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks it up.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
    for name in ("weather", "clock")
]
ASKED: list[Any] = [{"role": "user", "content": "Look both up, in parallel."}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Registry.load()) as listening:
        yield listening


def gateway(request: httpx.Request) -> httpx.Response:
    """A request of chat completions goes to a model over whatever wire that has, its reply comes back as one."""
    asked = engine.decode_request(WIRE, json.loads(request.content))
    if asked.model == "gone":
        body = engine.encode_error(WIRE, 404, "The model gone does not exist.", "model_not_found")
        return httpx.Response(404, json=body)
    with Client(simulate=True) as client:
        if not asked.stream:
            reply = client.call(asked.model or "", asked.messages, **asked.options)
            return httpx.Response(200, json=engine.encode_reply(WIRE, reply))
        writer = engine.StreamWriter(WIRE, id="chatcmpl-1", model=asked.model or "")
        with client.stream(asked.model or "", asked.messages, **asked.options) as events:
            pieces = [writer.begin(), *(writer.feed(event) for event in events)]
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(pieces))


@pytest.fixture(params=["simulator", "gateway", "gateway to another wire"])
def sdk(request: pytest.FixtureRequest, server: Server) -> Iterator[tuple[openai.OpenAI, str]]:
    import openai

    if request.param == "simulator":
        with openai.OpenAI(api_key="k", base_url=f"{server.url}/zai", max_retries=0) as client:
            yield client, "glm-4.7"
        return
    http: Any = httpx.Client(transport=httpx.MockTransport(gateway))
    with openai.OpenAI(api_key="k", base_url="http://gateway.test/v1", max_retries=0, http_client=http) as client:
        yield client, "zai/glm-4.7" if request.param == "gateway" else "anthropic/claude-opus-4-6"


def test_text_thinking_and_usage(sdk: tuple[openai.OpenAI, str]) -> None:
    client, model = sdk
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hello there"}], extra_body={"reasoning_effort": "high"}
    )
    message = answer.choices[0].message
    assert "Hello there" in (message.content or "")
    assert "Hello there" in message.model_dump()["reasoning_content"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens
    assert answer.usage.completion_tokens


def test_a_stream_says_the_same(sdk: tuple[openai.OpenAI, str]) -> None:
    client, model = sdk
    text, finish, usage = "", None, None
    for chunk in client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Hello there"}],
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert "Hello there" in text
    assert finish == "stop"
    assert usage is not None


@pytest.mark.parametrize("streams", [False, True])
def test_parallel_tools_and_their_results(sdk: tuple[openai.OpenAI, str], streams: bool) -> None:
    client, model = sdk
    calls: dict[int, dict[str, str]] = {}
    if streams:
        for chunk in client.chat.completions.create(model=model, messages=ASKED, tools=TOOLS, stream=True):
            for choice in chunk.choices:
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] += piece.id or ""
                    if piece.function is not None:
                        call["name"] += piece.function.name or ""
                        call["arguments"] += piece.function.arguments or ""
    else:
        answer = client.chat.completions.create(model=model, messages=ASKED, tools=TOOLS)
        assert answer.choices[0].finish_reason == "tool_calls"
        for index, made in enumerate(answer.choices[0].message.tool_calls or ()):
            assert made.type == "function"
            calls[index] = {"id": made.id, "name": made.function.name, "arguments": made.function.arguments}
    assert [call["name"] for call in calls.values()] == ["weather", "clock"]
    assert all(json.loads(call["arguments"]) for call in calls.values())
    turn: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ],
    }
    results: list[Any] = [
        {"role": "tool", "tool_call_id": c["id"], "content": f"{c['name']}: 20"} for c in calls.values()
    ]
    after = client.chat.completions.create(model=model, messages=[*ASKED, turn, *results], tools=TOOLS)
    assert "weather: 20" in (after.choices[0].message.content or "")


def test_a_model_that_is_not_there_is_refused(sdk: tuple[openai.OpenAI, str]) -> None:
    import openai

    client, model = sdk
    if model == "glm-4.7":
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model=model, messages=[{"role": "nobody", "content": "Hi"}])  # type: ignore[list-item, misc]
        return
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gone", messages=[{"role": "user", "content": "Hi"}])
    assert "does not exist" in caught.value.message


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_a_message_keeps_its_role_and_calls_are_those_of_the_assistant(role: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    for text in ("Look.", ""):
        body = {"model": "m", "messages": [{"role": role, "content": text, "tool_calls": [call]}]}
        [message] = engine.decode_request(WIRE, body).messages
        assert message.role == role
        if role in ("user", "system"):
            model = Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
            plan = engine.build_request(model, [message, {"role": "user", "content": "Go on."}])
            assert not any("tool_calls" in turn for turn in plan.body["messages"])
            assert [note.code for note in plan.notes if note.code == "call-misplaced"]
        else:
            assert [one.name for one in message.tool_calls] == (["clock"] if role == "assistant" else [])
