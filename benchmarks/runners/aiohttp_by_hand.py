"""The usual asynchronous client by hand: aiohttp and orjson; no retry, no checks, no types."""

from collections.abc import Awaitable, Callable
from functools import cache

import aiohttp
import orjson

from benchmarks import payloads
from benchmarks.payloads import Got, Setting

_HEADERS = {"authorization": f"Bearer {payloads.KEY}", "content-type": "application/json"}


def acall(setting: Setting) -> Callable[[], Awaitable[Got]]:
    url = setting.base_url + "/chat/completions"

    @cache
    def session() -> aiohttp.ClientSession:  # in the loop that is to use it
        return aiohttp.ClientSession(headers=_HEADERS)

    async def one() -> Got:
        async with session().post(url, data=orjson.dumps(payloads.body(False))) as answer:
            message = orjson.loads(await answer.read())["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one
