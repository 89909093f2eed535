"""The SDK of Anthropic, feature by feature over models of every vendor."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from cnllm.gateway.store import open_store

from .support import KEY, MODELS, PICTURE, SCHEMA, AsyncSim, Sim, lost, simulated

TOOLS: Any = [
    {"name": name, "description": "A fact of a city.", "input_schema": SCHEMA} for name in ("weather", "population")
]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


class City(BaseModel):
    name: str
    people: int


def client(sim: Sim | None = None, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(http_client=simulated(sim, **options), api_key=KEY)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def thought_of(message: Any) -> str:
    return "".join(block.thinking for block in message.content if block.type == "thinking")


def calls_of(message: Any) -> list[Any]:
    return [block for block in message.content if block.type == "tool_use"]


def results(message: Any) -> Any:
    blocks = [
        {"type": "tool_result", "tool_use_id": block.id, "content": f"{block.name}: 12"} for block in calls_of(message)
    ]
    return {"role": "user", "content": blocks}


def test_every_model_answers_whole_and_in_pieces() -> None:
    messages = client().messages
    question: Any = [{"role": "user", "content": "Why is the sky blue?"}]
    for model in MODELS:
        whole = messages.create(model=model, max_tokens=2000, messages=question)
        assert whole.stop_reason == "end_turn"
        assert "Simulated" in text_of(whole), model
        with messages.stream(model=model, max_tokens=2000, messages=question) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == text_of(whole) == text_of(final)
        assert final.usage.output_tokens == whole.usage.output_tokens
        parsed = messages.parse(model=model, max_tokens=2000, messages=question, output_format=City)
        assert isinstance(parsed.parsed_output, City), model


def test_a_tool_loop_sends_thinking_back_by_the_store_and_by_tokens_alone() -> None:
    """The second program has another store, so that only the tokens in the thinking can prove what was thought."""
    for model in MODELS:
        for streamed in (False, True):
            for another in (False, True):
                sim = Sim()
                messages = client(sim, store=open_store()).messages
                history: list[Any] = [{"role": "user", "content": "In parallel: weather and population of Berlin"}]
                more: Any = {"model": model, "max_tokens": 2000, "tools": TOOLS, "thinking": THINKING}
                if streamed:
                    with messages.stream(messages=history, **more) as stream:
                        first: Any = stream.get_final_message()
                else:
                    first = messages.create(messages=history, **more)
                assert [block.name for block in calls_of(first)] == ["weather", "population"], model
                content = [block.model_dump(exclude_none=True) for block in first.content]
                history += [{"role": "assistant", "content": content}, results(first)]
                if another:
                    messages = client(sim, store=open_store()).messages
                second = messages.create(messages=history, **more)
                assert "weather: 12" in text_of(second), model
                if another and model == "gemini-2.5-flash":  # it signs calls, and this protocol has no place for that
                    continue
                assert lost(sim, thought_of(first)) == "", (streamed, another)


@anthropic.beta_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdks_loop_goes_on_without_a_thread_and_loses_no_result(model: str, streamed: bool) -> None:
    sim = Sim()
    messages: Any = [{"role": "user", "content": "How is the weather in Oslo?"}]
    loop = client(sim).beta.messages
    if streamed:
        runner = loop.tool_runner(model=model, max_tokens=2000, messages=messages, tools=[weather], stream=True)
        final = [stream.get_final_message() for stream in runner][-1]
    else:
        final = loop.tool_runner(model=model, max_tokens=2000, messages=messages, tools=[weather]).until_done()
    assert final.stop_reason == "end_turn"
    assert len(sim.plans) == 2
    assert "How is the weather in Oslo?" in sim.last
    assert "sunny in" in sim.last
    assert "thread" not in sim.plans[0].body


def test_a_thread_is_refused_by_the_code_that_the_sdk_knows() -> None:
    turn: Any = {"type": "continue", "previous_message_id": "msg_1"}
    with pytest.raises(anthropic.BadRequestError) as caught:
        client().beta.messages.create(
            model=MODELS[0], max_tokens=9, messages=[{"role": "user", "content": "hi"}], thread=turn
        )
    body: Any = caught.value.body
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert body["error"]["message"].startswith("thread: ")


def test_tokens_are_counted_models_listed_and_pictures_sent() -> None:
    sim = Sim()
    sdk = client(sim)
    few = sdk.messages.count_tokens(model="glm-4.7", messages=[{"role": "user", "content": "Hi"}])
    many = sdk.messages.count_tokens(
        model="glm-4.7", messages=[{"role": "user", "content": "Hi"}], system="Be brief. " * 50, tools=TOOLS
    )
    assert 0 < few.input_tokens < many.input_tokens
    assert sim.plans == []
    assert sdk.models.retrieve("kimi-k2.6").id == "kimi-k2.6"
    assert any(model.id == "zai/glm-4.7" for model in sdk.models.list(limit=1000))
    with pytest.raises(anthropic.NotFoundError) as caught:
        sdk.messages.batches.list()
    assert "does not serve" in str(caught.value)
    source: Any = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    for model in ("qwen3.5-plus", "claude-haiku-5-5", "gemini-2.5-flash"):
        content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
        sdk.messages.create(model=model, max_tokens=1000, messages=[{"role": "user", "content": content}])
        assert PICTURE in sim.last, model


def test_the_asynchronous_client_does_the_same() -> None:
    async def run() -> None:
        sdk = anthropic.AsyncAnthropic(http_client=simulated(AsyncSim()), api_key=KEY)
        for model in MODELS:
            history: list[Any] = [{"role": "user", "content": "The weather in Berlin?"}]
            more: Any = {"model": model, "max_tokens": 2000, "tools": TOOLS}
            async with sdk.messages.stream(messages=history, **more) as stream:
                first = await stream.get_final_message()
            content = [block.model_dump(exclude_none=True) for block in first.content]
            history += [{"role": "assistant", "content": content}, results(first)]
            assert "weather: 12" in text_of(await sdk.messages.create(messages=history, **more)), model
        assert (await sdk.messages.count_tokens(model="glm-4.7", messages=history)).input_tokens > 0

    asyncio.run(run())
