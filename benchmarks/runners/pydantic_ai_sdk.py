"""pydantic-ai's direct requests, its model for OpenAI's chat; it has no synchronous way of its own but a loop."""

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.stopped import Stop, until_sent

direct: Any = importlib.import_module("pydantic_ai.direct")
said: Any = importlib.import_module("pydantic_ai.messages")


def _model(setting: Setting, **more: Any) -> Any:
    openai: Any = importlib.import_module("openai")
    models: Any = importlib.import_module("pydantic_ai.models.openai")
    providers: Any = importlib.import_module("pydantic_ai.providers.deepseek")
    client = openai.AsyncOpenAI(api_key=payloads.KEY, base_url=setting.base_url, **more)
    return models.OpenAIChatModel("bench", provider=providers.DeepSeekProvider(openai_client=client))


def _messages(wire: list[dict[str, Any]]) -> list[Any]:
    """Return a conversation in its own words; the system prompt stands in the first request."""
    system, first, *rest = (message["content"] for message in wire)
    turns = [said.ModelRequest(parts=[said.SystemPromptPart(system), said.UserPromptPart(first)])]
    for i, text in enumerate(rest):
        answer = said.ModelResponse(parts=[said.TextPart(text)])
        turns.append(said.ModelRequest(parts=[said.UserPromptPart(text)]) if i % 2 else answer)
    return turns


def _asked(wire: list[dict[str, Any]]) -> dict[str, Any]:
    tools: Any = importlib.import_module("pydantic_ai.tools")
    made = [
        tools.ToolDefinition(name=f["name"], description=f["description"], parameters_json_schema=f["parameters"])
        for f in (tool["function"] for tool in wire)
    ]
    parameters = importlib.import_module("pydantic_ai.models").ModelRequestParameters(function_tools=made)
    return {"model_settings": payloads.LIMITS, "model_request_parameters": parameters}


class _Pieces:
    """The parts of an answer, or the deltas of a stream, by what they are."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.arguments: list[str] = []

    def add(self, part: Any) -> None:
        if isinstance(part, said.TextPart):
            self.text.append(part.content)
        elif isinstance(part, said.ThinkingPart):
            self.reasoning.append(part.content)
        elif isinstance(part, said.ToolCallPart):
            self.arguments.append(part.args or "")
        elif isinstance(part, said.TextPartDelta):
            self.text.append(part.content_delta)
        elif isinstance(part, said.ThinkingPartDelta):
            self.reasoning.append(part.content_delta or "")
        elif isinstance(part, said.ToolCallPartDelta):
            self.arguments.append(part.args_delta or "")

    def got(self) -> Got:
        reasoning, text = "".join(self.reasoning), "".join(self.text)
        return Got(len(reasoning), len(text), json.loads("".join(self.arguments)))


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    model = cache(lambda: _model(setting))  # in the loop that is to use it
    messages, asked = _messages(payloads.MESSAGES), _asked(payloads.TOOLS)

    async def one() -> Got:
        pieces = _Pieces()
        async with direct.model_request_stream(model(), messages, **asked) as stream:
            async for event in stream:
                if isinstance(event, said.PartDeltaEvent):
                    pieces.add(event.delta)
                elif isinstance(event, said.PartStartEvent):
                    pieces.add(event.part)
        return pieces.got()

    return one


def stream(setting: Setting) -> Callable[[], Got]:
    loop, one = asyncio.Runner(), astream(setting)

    async def awaited() -> Got:
        return await one()

    return lambda: loop.run(awaited())


def call(setting: Setting) -> Callable[[], Got]:
    loop, model = asyncio.Runner(), _model(setting)
    messages, asked = _messages(payloads.MESSAGES), _asked(payloads.TOOLS)

    async def one() -> Got:
        pieces = _Pieces()
        answer = await direct.model_request(model, messages, **asked)
        for part in answer.parts:
            pieces.add(part)
        return pieces.got()

    return lambda: loop.run(one())


def build(setting: Setting) -> Callable[[], int]:
    openai: Any = importlib.import_module("openai")
    sender = openai.DefaultAsyncHttpxClient(transport=Stop())
    loop, model = asyncio.Runner(), _model(setting, http_client=sender, max_retries=0)
    messages, asked = _messages(payloads.LONG["messages"]), _asked(payloads.LONG["tools"])

    async def one() -> object:
        return await direct.model_request(model, messages, **asked)

    return until_sent(lambda: loop.run(one()))
