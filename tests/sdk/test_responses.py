"""The SDK of OpenAI, Responses, feature by feature over models of every vendor."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from .support import KEY, MODELS, PICTURE, SCHEMA, AsyncSim, Sim, lost, simulated

TOOLS: Any = [
    {"type": "function", "name": name, "description": "A fact of a city.", "parameters": SCHEMA, "strict": False}
    for name in ("weather", "population")
]


class City(BaseModel):
    name: str
    people: int


def client(sim: Sim | None = None, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(http_client=simulated(sim, **options), api_key=KEY)


def results(response: Any) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"{item.name}: 12"}
        for item in response.output
        if item.type == "function_call"
    ]


def reasoning(response: Any) -> str:
    return "".join(part.text for item in response.output if item.type == "reasoning" for part in item.summary)


def test_every_model_answers_whole_and_in_pieces() -> None:
    responses = client().responses
    for model in MODELS:
        whole = responses.create(model=model, input="Why is the sky blue?")
        assert whole.status == "completed"
        assert "Simulated" in whole.output_text, model
        with responses.stream(model=model, input="Why is the sky blue?") as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            assert text == whole.output_text == stream.get_final_response().output_text
        assert isinstance(responses.parse(model=model, input="Berlin", text_format=City).output_parsed, City), model


def test_a_tool_loop_goes_on_by_items_and_by_the_id_of_a_response() -> None:
    for model in MODELS:
        for stored in (False, True):
            sim = Sim()
            responses = client(sim).responses
            question: Any = [{"role": "user", "content": "In parallel: weather and population of Berlin"}]
            more: Any = {"tools": TOOLS, "reasoning": {"effort": "high", "summary": "auto"}}
            first = responses.create(model=model, input=question, store=stored, **more)
            assert [item.name for item in first.output if item.type == "function_call"] == ["weather", "population"]
            if stored:
                second = responses.create(model=model, input=results(first), previous_response_id=first.id, **more)
            else:
                items = [item.model_dump(exclude_none=True) for item in first.output]
                second = responses.create(model=model, input=[*question, *items, *results(first)], store=False, **more)
            assert "weather: 12" in second.output_text, (model, stored)
            assert lost(sim, reasoning(first)) == ""


def test_responses_are_kept_and_deleted() -> None:
    responses = client().responses
    first = responses.create(model="glm-4.7", input="Hi")
    second = client().responses.create(model="kimi-k2.6", input="And?", previous_response_id=first.id)
    assert responses.retrieve(first.id).output_text == first.output_text
    items = responses.input_items.list(second.id).data
    assert getattr(items[0], "role", items[0].type) == "user"
    assert len(items) >= 3
    responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        responses.create(model="glm-4.7", input="Hi", previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError):
        responses.cancel(second.id)


def test_pictures_reach_models_that_see() -> None:
    sim = Sim()
    content: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "auto"},
    ]
    for model in ("qwen3.5-plus", "claude-haiku-5-5", "gemini-2.5-flash"):
        client(sim).responses.create(model=model, input=[{"role": "user", "content": content}])
        assert PICTURE in sim.last, model


def test_the_asynchronous_client_does_the_same() -> None:
    async def run() -> None:
        responses = openai.AsyncOpenAI(http_client=simulated(AsyncSim()), api_key=KEY).responses
        for model in MODELS:
            question: Any = "In parallel: weather and population of Berlin"
            async with responses.stream(model=model, input=question, tools=TOOLS) as stream:
                first = await stream.get_final_response()
            second = await responses.create(
                model=model, input=results(first), tools=TOOLS, previous_response_id=first.id
            )
            assert "population: 12" in second.output_text, model
        await responses.retrieve(second.id)
        await responses.delete(second.id)

    asyncio.run(run())
