"""litellm for an endpoint of DeepSeek's dialect: the cheapest of its ways to an OpenAI-compatible server."""

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.openai_sdk import astreamed, streamed, whole
from benchmarks.runners.stopped import Stop, until_sent

litellm: Any = importlib.import_module("litellm")
litellm.suppress_debug_info = True


def _asked(setting: Setting, stream: bool) -> dict[str, Any]:
    to = {"model": "deepseek/bench", "api_base": setting.base_url, "api_key": payloads.KEY}
    return {**payloads.body(stream), **to}


def call(setting: Setting) -> Callable[[], Got]:
    return lambda: whole(litellm.completion(**_asked(setting, False)))


def stream(setting: Setting) -> Callable[[], Got]:
    return lambda: streamed(litellm.completion(**_asked(setting, True)))


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    async def one() -> Got:
        return await astreamed(await litellm.acompletion(**_asked(setting, True)))

    return one


def build(setting: Setting) -> Callable[[], int]:
    handler: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    httpx: Any = importlib.import_module("httpx")
    to = {"model": "deepseek/bench", "api_base": setting.base_url, "api_key": payloads.KEY}
    client = handler.HTTPHandler(client=httpx.Client(transport=Stop()))
    return until_sent(lambda: litellm.completion(**payloads.LONG, **to, client=client))
