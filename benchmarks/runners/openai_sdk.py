"""The openai SDK with base_url; `whole` and `streamed` serve every peer with objects of that shape."""

import importlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting


def whole(answer: Any) -> Got:
    message = answer.choices[0].message
    arguments = json.loads(message.tool_calls[0].function.arguments)
    return Got(len(message.reasoning_content), len(message.content), arguments)


def streamed(chunks: Iterable[Any]) -> Got:
    reasoning, text, arguments = [], [], []
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            if found := getattr(delta, "reasoning_content", None):
                reasoning.append(found)
            if delta.content:
                text.append(delta.content)
            for call in delta.tool_calls or ():
                arguments.append(call.function.arguments or "")
    return Got(len("".join(reasoning)), len("".join(text)), json.loads("".join(arguments)))


def _create(setting: Setting) -> Callable[..., Any]:
    openai: Any = importlib.import_module("openai")
    create: Callable[..., Any] = openai.OpenAI(api_key=payloads.KEY, base_url=setting.base_url).chat.completions.create
    return create


def call(setting: Setting) -> Callable[[], Got]:
    create = _create(setting)
    return lambda: whole(create(**payloads.body(False)))


def _responses(setting: Setting) -> Callable[[], Got]:
    """The Responses API of the same SDK."""
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
