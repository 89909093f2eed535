"""The google-genai SDK on its own wire."""

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting


def stream(setting: Setting) -> Callable[[], Got]:
    genai: Any = importlib.import_module("google.genai")
    client = genai.Client(api_key=payloads.KEY, http_options={"base_url": setting.root})
    said = payloads.MESSAGES[-1]["content"]

    def one() -> Got:
        thoughts, text, arguments = [], [], None
        for chunk in client.models.generate_content_stream(model="bench", contents=said):
            for part in chunk.candidates[0].content.parts or ():
                if part.function_call is not None:
                    arguments = part.function_call.args
                elif part.thought:
                    thoughts.append(part.text)
                elif part.text:
                    text.append(part.text)
        return Got(len("".join(thoughts)), len("".join(text)), arguments)

    return one
