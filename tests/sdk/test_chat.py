"""The SDK of OpenAI, chat completions, feature by feature over models of every vendor."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import cnllm
from cnllm.store import Store

from .support import KEY, MODELS, PICTURE, SCHEMA, AsyncSim, Sim, lost, simulated

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": "A fact of a city.", "parameters": SCHEMA}}
    for name in ("weather", "population")
]


class City(BaseModel):
    name: str
    people: int


def client(sim: Sim | None = None, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(http_client=simulated(sim, **options), api_key=KEY)


def results(message: Any) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name}: 12"} for call in message.tool_calls
    ]


def test_every_model_answers_whole_and_in_pieces() -> None:
    chat = client().chat.completions
    for model in MODELS:
        whole = chat.create(model=model, messages=[{"role": "user", "content": "Why is the sky blue?"}])
        assert whole.choices[0].finish_reason == "stop"
        assert "Simulated" in str(whole.choices[0].message.content), model
        assert whole.model == model
        assert whole.usage is not None
        assert whole.usage.completion_tokens > 0
        stream = chat.create(
            model=model,
            messages=[{"role": "user", "content": "Why is the sky blue?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole.choices[0].message.content
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_a_tool_loop_of_two_turns_sends_reasoning_back() -> None:
    """The message that the SDK dumps goes back as it is; the reasoning reaches the models that demand it."""
    for model in MODELS:
        for streamed in (False, True):
            sim = Sim()
            openai_client = client(sim)
            messages: list[Any] = [{"role": "user", "content": "The weather in Berlin?"}]
            extra: Any = {"reasoning_effort": "high"}
            if streamed:
                with openai_client.chat.completions.stream(
                    model=model, messages=messages, tools=TOOLS, **extra
                ) as stream:
                    message: Any = stream.get_final_completion().choices[0].message
            else:
                message = (
                    openai_client.chat.completions.create(model=model, messages=messages, tools=TOOLS, **extra)
                    .choices[0]
                    .message
                )
            assert [call.function.name for call in message.tool_calls] == ["weather"], model
            assert set(json.loads(message.tool_calls[0].function.arguments)) == {"city"}
            dumped = message.model_dump(exclude_none=True)
            for call in dumped["tool_calls"]:
                call["function"].pop("parsed_arguments", None)
            dumped.pop("parsed", None)
            messages += [dumped, *results(message)]
            answer = openai_client.chat.completions.create(model=model, messages=messages, tools=TOOLS, **extra)
            assert "weather: 12" in str(answer.choices[0].message.content), model
            assert lost(sim, getattr(message, "reasoning_content", "")) == ""


def test_parallel_calls_arrive_apart() -> None:
    openai_client = client()
    for model in MODELS:
        messages: list[Any] = [{"role": "user", "content": "In parallel: weather and population of Berlin"}]
        message = openai_client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        assert message.tool_calls is not None
        assert [call.function.name for call in message.tool_calls] == ["weather", "population"], model  # type: ignore[union-attr]
        assert len({call.id for call in message.tool_calls}) == 2
        messages += [message.model_dump(exclude_none=True), *results(message)]
        answer = openai_client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
        assert "population: 12" in str(answer.choices[0].message.content), model


def test_answers_by_a_schema_are_parsed() -> None:
    chat = client().chat.completions
    for model in MODELS:
        parsed = chat.parse(model=model, messages=[{"role": "user", "content": "Berlin"}], response_format=City)
        assert isinstance(parsed.choices[0].message.parsed, City), model
        with chat.stream(model=model, messages=[{"role": "user", "content": "B"}], response_format=City) as stream:
            assert isinstance(stream.get_final_completion().choices[0].message.parsed, City), model


def test_pictures_reach_models_that_see() -> None:
    sim = Sim()
    openai_client = client(sim)
    content: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    ]
    for model in ("qwen3.5-plus", "claude-haiku-5-5", "gemini-2.5-flash", "glm-4.7"):
        sees = model != "glm-4.7"
        create = openai_client.chat.completions.with_raw_response.create
        messages: Any = [{"role": "user", "content": content}]
        if not sees:
            with pytest.raises(openai.BadRequestError, match=r"messages\[0\]\.content\[1\]"):
                create(model=model, messages=messages)
        response = create(model=model, messages=messages, extra_headers={"x-cnllm-on-unsupported": "adjust"})
        assert (PICTURE in sim.last) is sees, model
        assert ("media-dropped" in response.headers["x-cnllm-notes"]) is not sees


def test_models_are_listed() -> None:
    openai_client = client(models={"gpt-4o": "glm-4.7"})
    names = [model.id for model in openai_client.models.list()]
    assert "gpt-4o" in names
    assert openai_client.models.retrieve("deepseek-flash").owned_by == "deepseek"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("no-such-model")


def test_names_are_ids_aliases_tiers_and_patterns(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = client(models={"gpt-*": "glm-4.7", "gpt-5": "kimi-k2.6"}).chat.completions
    for name, model in (
        ("gpt-4o", "zai/glm-4.7"),
        ("gpt-5", "moonshotai/kimi-k2.6"),
        ("deepseek/deepseek-flash", "deepseek/deepseek-flash"),
    ):
        response = chat.with_raw_response.create(model=name, messages=[{"role": "user", "content": "Hi"}])
        assert response.headers["x-cnllm-model"] == model
        assert response.parse().model == name


def test_the_asynchronous_client_does_the_same() -> None:
    async def run() -> None:
        sim = AsyncSim()
        async with openai.AsyncOpenAI(http_client=simulated(sim), api_key=KEY) as openai_client:
            chat = openai_client.chat.completions
            for model in MODELS:
                messages: list[Any] = [{"role": "user", "content": "In parallel: weather and population of Berlin"}]
                async with chat.stream(model=model, messages=messages, tools=TOOLS) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
                assert message.tool_calls is not None
                assert [c.function.name for c in message.tool_calls] == ["weather", "population"]
                messages += [message.model_dump(exclude_none=True), *results(message)]
                answer = await chat.create(model=model, messages=messages, tools=TOOLS)
                assert "weather: 12" in str(answer.choices[0].message.content)
            parsed = await chat.parse(
                model="glm-4.7", messages=[{"role": "user", "content": "B"}], response_format=City
            )
            assert isinstance(parsed.choices[0].message.parsed, City)
            assert (await openai_client.models.retrieve("glm-4.7")).id == "glm-4.7"

    asyncio.run(run())


def test_calls_of_an_sdk_have_a_tag_in_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_DATA_DIR", str(tmp_path))
    http = cnllm.sdk.http_client(simulate=True, log_calls=True)
    with openai.OpenAI(api_key=KEY, http_client=http) as sdk:
        for tag in ("nightly", ""):
            messages: Any = [{"role": "user", "content": "Hi"}]
            sdk.chat.completions.create(model="glm-4.7", messages=messages, extra_headers={"x-cnllm-tag": tag})
    with Store.open() as store:
        assert [turn.tag for record in store.records() for turn in record.turns] == ["nightly", None]
