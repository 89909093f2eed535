"""The SDK of Gemini, feature by feature over models of every vendor."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from cnllm.gateway.store import open_store

from .support import KEY, MODELS, PICTURE, AsyncSim, Sim, lost, simulated


class City(BaseModel):
    name: str
    people: int


def declared(name: str) -> Any:
    parameters = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    return {"name": name, "description": "A fact of a city.", "parameters": parameters}


def config(**more: Any) -> Any:
    tool: Any = {"function_declarations": [declared("weather"), declared("population")]}
    thinking = types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)
    off = types.AutomaticFunctionCallingConfig(disable=True)
    return types.GenerateContentConfig(tools=[tool], thinking_config=thinking, automatic_function_calling=off, **more)


def client(sim: Sim | None = None, family: str | None = None, **options: Any) -> genai.Client:
    sync = simulated(None if isinstance(sim, AsyncSim) else sim, family=family, **options)
    waiting = simulated(sim if isinstance(sim, AsyncSim) else AsyncSim(), family=family, **options)
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(httpx_client=sync, httpx_async_client=waiting))


def thought_of(content: Any) -> str:
    return "".join(part.text for part in content.parts if part.thought and part.text)


def results(content: Any) -> Any:
    answers = [
        types.FunctionResponse(id=call.id, name=call.name, response={"result": f"{call.name}: 12"})
        for call in (part.function_call for part in content.parts if part.function_call)
    ]
    return types.Content(role="user", parts=[types.Part(function_response=answer) for answer in answers])


def test_every_model_answers_whole_and_in_pieces() -> None:
    for family in ("httpx2", "httpx"):
        models = client(family=family).models
        for model in MODELS:
            whole = models.generate_content(model=model, contents="Why is the sky blue?")
            assert whole.candidates
            assert "Simulated" in str(whole.text), model
            pieces = list(models.generate_content_stream(model=model, contents="Why is the sky blue?"))
            assert "".join(piece.text or "" for piece in pieces) == whole.text
            last = pieces[-1].candidates
            assert last
            assert last[0].finish_reason == types.FinishReason.STOP
            answer = models.generate_content(
                model=model,
                contents="Berlin",
                config=types.GenerateContentConfig(response_mime_type="application/json", response_schema=City),
            )
            assert isinstance(answer.parsed, City), model


def test_a_tool_loop_sends_thoughts_back() -> None:
    for model in MODELS:
        for streamed in (False, True):
            sim = Sim()
            models = client(sim).models
            history: list[Any] = [
                types.Content(role="user", parts=[types.Part(text="In parallel: weather and population of Berlin")])
            ]
            if streamed:
                parts: list[Any] = []
                for piece in models.generate_content_stream(model=model, contents=history, config=config()):
                    assert piece.candidates
                    parts += (piece.candidates[0].content and piece.candidates[0].content.parts) or []
                first: Any = types.Content(role="model", parts=parts)
            else:
                response = models.generate_content(model=model, contents=history, config=config())
                assert response.candidates
                first = response.candidates[0].content
            names = [part.function_call.name for part in first.parts if part.function_call]
            assert names == ["weather", "population"], model
            history += [first, results(first)]
            second = models.generate_content(model=model, contents=history, config=config())
            assert "weather" in str(second.text), model
            assert lost(sim, thought_of(first)) == "", streamed


def joined_by_a_terminal_program(parts: list[Any]) -> list[Any]:
    """Join the parts of a stream as gemini-cli does: thoughts and empty texts go, texts in a row become one."""
    out: list[Any] = []
    for part in parts:
        if part.thought or part.text == "":
            continue
        if out and part.text and out[-1].text:
            out[-1] = types.Part(text=out[-1].text + part.text)
        else:
            out.append(part)
    return out


def test_thoughts_come_back_however_a_program_joins_the_parts_of_a_stream() -> None:
    """Each piece of a thought is a part of its own, as Gemini itself writes it."""
    question = types.Content(role="user", parts=[types.Part(text="In parallel: weather and population of Berlin")])
    for model in MODELS:
        for another in (False, True):
            sim = Sim()
            models = client(sim, store=open_store()).models
            pieces = list(models.generate_content_stream(model=model, contents=question, config=config()))
            contents: list[Any] = [piece.candidates[0].content for piece in pieces if piece.candidates]
            parts = [part for content in contents for part in content.parts or []]
            thoughts = [part.text for part in parts if part.thought]
            whole = types.Content(role="model", parts=parts)
            joined = types.Content(role="model", parts=joined_by_a_terminal_program(parts))
            if another:
                models = client(sim, store=open_store()).models
            # google-genai's chats keep a content for each chunk
            for turns in ([whole], [content for content in contents if content.parts], [joined]):
                models.generate_content(model=model, contents=[question, *turns, results(whole)], config=config())
                assert lost(sim, "".join(thoughts)) == "", (model, another, len(turns))


def test_functions_of_python_are_called_by_the_sdk() -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city[:2]}"

    models = client().models
    for model in MODELS:
        tools: Any = [weather]
        answer = models.generate_content(
            model=model, contents="The weather in Berlin?", config=types.GenerateContentConfig(tools=tools)
        )
        assert "Rain in" in str(answer.text), model


def test_tokens_are_counted_models_listed_and_pictures_sent() -> None:
    sim = Sim()
    sdk = client(sim)
    assert (sdk.models.count_tokens(model="glm-4.7", contents="Why is the sky blue?").total_tokens or 0) > 2
    assert sim.plans == []
    assert sdk.models.get(model="kimi-k2.6").name == "models/kimi-k2.6"
    assert any(model.name == "models/zai/glm-4.7" for model in sdk.models.list(config={"page_size": 1000}))
    with pytest.raises(errors.ClientError) as caught:
        sdk.models.embed_content(model="glm-4.7", contents="Hi")
    assert caught.value.code == 404
    assert "does not serve" in str(caught.value.message)
    picture = types.Part.from_bytes(data=base64.b64decode(PICTURE), mime_type="image/png")
    for model in ("qwen3.5-plus", "claude-haiku-5-5", "gemini-2.5-flash"):
        sdk.models.generate_content(model=model, contents=["What is this?", picture])
        assert PICTURE in sim.last, model


def test_the_asynchronous_client_does_the_same() -> None:
    async def run() -> None:
        for family in ("httpx2", "httpx"):
            models = client(AsyncSim(), family).aio.models
            for model in MODELS:
                history: list[Any] = [types.Content(role="user", parts=[types.Part(text="The weather in Berlin?")])]
                response = await models.generate_content(model=model, contents=history, config=config())
                assert response.candidates
                first: Any = response.candidates[0].content
                history += [first, results(first)]
                stream = await models.generate_content_stream(model=model, contents=history, config=config())
                text = "".join([piece.text or "" async for piece in stream])
                assert "weather" in text, model

    asyncio.run(run())
