"""The anthropic SDK on its own wire, its stream of events read by hand as its examples do."""

import importlib
import json
from collections.abc import Callable
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting


def stream(setting: Setting) -> Callable[[], Got]:
    anthropic: Any = importlib.import_module("anthropic")
    create = anthropic.Anthropic(api_key=payloads.KEY, base_url=setting.root).messages.create
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in payloads.TOOLS]

    def one() -> Got:
        thoughts, text, arguments = [], [], []
        for event in create(model="bench", max_tokens=512, messages=payloads.MESSAGES[1:], tools=tools, stream=True):
            if event.type != "content_block_delta":
                continue
            match event.delta.type:
                case "thinking_delta":
                    thoughts.append(event.delta.thinking)
                case "text_delta":
                    text.append(event.delta.text)
                case "input_json_delta":
                    arguments.append(event.delta.partial_json)
        return Got(len("".join(thoughts)), len("".join(text)), json.loads("".join(arguments)))

    return one
