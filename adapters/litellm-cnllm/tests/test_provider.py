"""Examples of LiteLLM's documentation, with the simulator as the endpoint."""

import json

import litellm
import pytest
from litellm import acompletion, completion
from litellm_cnllm import register
from pydantic import BaseModel

MODEL = "cnllm/glm-4.7"
HELLO = [{"role": "user", "content": "Hello world!"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location",
            "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
        },
    }
]


@pytest.fixture(autouse=True)
def provider() -> None:
    register(simulate=True)


def test_a_completion() -> None:
    response = completion(model=MODEL, messages=HELLO)
    assert 'You said: "Hello world!"' in response.choices[0].message.content
    assert response.choices[0].finish_reason == "stop"
    assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens > 0


def test_reasoning_notes_and_cost() -> None:
    message = completion(model=MODEL, messages=HELLO, reasoning="high").choices[0].message
    assert message.reasoning_content
    assert any("simulat" in note for note in message.provider_specific_fields["notes"])
    assert "cost" in message.provider_specific_fields


def test_options() -> None:
    options = {"temperature": 0.2, "max_tokens": 900, "stop": ["\n\n"], "seed": 1, "top_p": 0.9}
    assert completion(model=MODEL, messages=HELLO, **options).choices[0].message.content


async def test_an_asynchronous_completion() -> None:
    response = await acompletion(model=MODEL, messages=HELLO)
    assert 'You said: "Hello world!"' in response.choices[0].message.content


def test_a_stream_adds_up_to_the_answer() -> None:
    chunks = list(completion(model=MODEL, messages=HELLO, stream=True))
    assert len(chunks) > 3
    whole = litellm.stream_chunk_builder(chunks, messages=HELLO)
    assert whole.choices[0].message.content == completion(model=MODEL, messages=HELLO).choices[0].message.content
    assert any(getattr(chunk, "reasoning_content", None) for chunk in chunks)


async def test_an_asynchronous_stream_with_usage() -> None:
    options = {"include_usage": True}
    stream = await acompletion(model=MODEL, messages=HELLO, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]
    assert "Hello world!" in "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert any(getattr(chunk, "usage", None) for chunk in chunks)


def test_a_tool_is_called_and_its_result_goes_back() -> None:
    question = {"role": "user", "content": "What's the weather like in Boston?"}
    message = completion(model=MODEL, messages=[question], tools=TOOLS, tool_choice="auto").choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "get_current_weather"
    assert set(json.loads(call.function.arguments)) == {"location"}
    result = {"tool_call_id": call.id, "role": "tool", "name": call.function.name, "content": "21 degrees"}
    assert "21 degrees" in completion(model=MODEL, messages=[question, message, result]).choices[0].message.content


def test_a_tool_is_called_in_a_stream() -> None:
    chunks = completion(model=MODEL, messages=HELLO, tools=TOOLS, stream=True)
    whole = litellm.stream_chunk_builder(list(chunks), messages=HELLO)
    assert whole.choices[0].message.tool_calls[0].function.name == "get_current_weather"


class Event(BaseModel):
    """An event of a calendar."""

    name: str
    participants: list[str]


def test_a_json_schema() -> None:
    response = completion(model=MODEL, messages=HELLO, response_format=Event)
    assert Event.model_validate_json(response.choices[0].message.content)


def test_a_batch_of_questions() -> None:
    responses = litellm.batch_completion(model=MODEL, messages=[HELLO, HELLO])
    assert len([one for one in responses if one.choices[0].message.content]) == 2


def test_a_router() -> None:
    router = litellm.Router(model_list=[{"model_name": "chat", "litellm_params": {"model": MODEL}}])
    assert "Hello world!" in router.completion(model="chat", messages=HELLO).choices[0].message.content


def test_a_picture() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]
    assert completion(model="cnllm/kimi-k2.6", messages=messages).choices[0].message.content
