"""The openai SDK with base_url; `whole` and `streamed` serve every peer with objects of that shape."""

import importlib
import json
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from functools import cache
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.stopped import Stop, until_sent


def whole(answer: Any) -> Got:
    """Return the content of an answer that was not streamed."""
    message = answer.choices[0].message
    arguments = json.loads(message.tool_calls[0].function.arguments)
    return Got(len(_thought(message)), len(message.content), arguments)


def _thought(said: Any) -> str:
    """Return the reasoning in a message or a delta: any-llm keeps it in an object of its own."""
    found = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None) or ""
    return found if isinstance(found, str) else found.content or ""


class Pieces:
    """The pieces of a stream, chunk by chunk."""

    __slots__ = ("arguments", "reasoning", "text")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.arguments: list[str] = []

    def add(self, chunk: Any) -> None:
        for choice in chunk.choices:
            delta = choice.delta
            if found := _thought(delta):
                self.reasoning.append(found)
            if delta.content:
                self.text.append(delta.content)
            for call in delta.tool_calls or ():
                self.arguments.append(call.function.arguments or "")

    def got(self) -> Got:
        reasoning, text = "".join(self.reasoning), "".join(self.text)
        return Got(len(reasoning), len(text), json.loads("".join(self.arguments)))


def streamed(chunks: Iterable[Any]) -> Got:
    """Return the content of a stream."""
    pieces = Pieces()
    for chunk in chunks:
        pieces.add(chunk)
    return pieces.got()


async def astreamed(chunks: AsyncIterable[Any]) -> Got:
    """Return the content of an asynchronous stream."""
    pieces = Pieces()
    async for chunk in chunks:
        pieces.add(chunk)
    return pieces.got()


def _create(setting: Setting) -> Callable[..., Any]:
    openai: Any = importlib.import_module("openai")
    create: Callable[..., Any] = openai.OpenAI(api_key=payloads.KEY, base_url=setting.base_url).chat.completions.create
    return create


def call(setting: Setting) -> Callable[[], Got]:
    create = _create(setting)
    return lambda: whole(create(**payloads.body(False)))


def _responses(setting: Setting) -> Callable[[], Got]:
    """Call the Responses API of the same SDK."""
    openai: Any = importlib.import_module("openai")
    create = openai.OpenAI(api_key=payloads.KEY, base_url=setting.root).responses.create
    tools = [{"type": "function", **t["function"]} for t in payloads.TOOLS]

    def one() -> Got:
        thoughts, text, arguments = [], [], []
        for event in create(model="bench", input=payloads.MESSAGES, tools=tools, stream=True):
            match event.type:
                case "response.reasoning_summary_text.delta":
                    thoughts.append(event.delta)
                case "response.output_text.delta":
                    text.append(event.delta)
                case "response.function_call_arguments.delta":
                    arguments.append(event.delta)
        return Got(len("".join(thoughts)), len("".join(text)), json.loads("".join(arguments)))

    return one


def stream(setting: Setting) -> Callable[[], Got]:
    if setting.wire != "openai-chat":
        return _responses(setting)
    create = _create(setting)
    return lambda: streamed(create(**payloads.body(True)))


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    openai: Any = importlib.import_module("openai")

    @cache
    def create() -> Any:  # in the loop that is to use it
        return openai.AsyncOpenAI(api_key=payloads.KEY, base_url=setting.base_url).chat.completions.create

    async def one() -> Got:
        return await astreamed(await create()(**payloads.body(True)))

    return one


def build(setting: Setting) -> Callable[[], int]:
    openai: Any = importlib.import_module("openai")
    sender = openai.DefaultHttpxClient(transport=Stop())
    client = openai.OpenAI(api_key=payloads.KEY, base_url=setting.base_url, http_client=sender, max_retries=0)
    return until_sent(lambda: client.chat.completions.create(model="bench", **payloads.LONG))
