"""any-llm, its provider deepseek, one client for all calls (its `completion()` makes a new one each time)."""

import importlib
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.openai_sdk import astreamed, streamed, whole


def _client(setting: Setting) -> Any:
    any_llm: Any = importlib.import_module("any_llm")
    return any_llm.AnyLLM.create("deepseek", api_key=payloads.KEY, api_base=setting.base_url)


def call(setting: Setting) -> Callable[[], Got]:
    complete = _client(setting).completion
    return lambda: whole(complete(**payloads.body(False)))


def stream(setting: Setting) -> Callable[[], Got]:
    complete = _client(setting).completion
    return lambda: streamed(complete(**payloads.body(True)))


def astream(setting: Setting) -> Callable[[], Awaitable[Got]]:
    @cache
    def complete() -> Any:  # in the loop that is to use it
        return _client(setting).acompletion

    async def one() -> Got:
        return await astreamed(await complete()(**payloads.body(True)))

    return one
