"""The least that Python itself offers: http.client and orjson by hand; no retry, no checks, no types."""

from collections.abc import Callable
from http.client import HTTPConnection

import orjson

from benchmarks import payloads
from benchmarks.payloads import Got, Setting

_HEADERS = {"authorization": f"Bearer {payloads.KEY}", "content-type": "application/json"}


def call(setting: Setting) -> Callable[[], Got]:
    connection, path = HTTPConnection("127.0.0.1", setting.port), f"/{setting.mode}{setting.chunks}/v1/chat/completions"

    def one() -> Got:
        connection.request("POST", path, orjson.dumps(payloads.body(False)), _HEADERS)
        message = orjson.loads(connection.getresponse().read())["choices"][0]["message"]
        arguments = orjson.loads(message["tool_calls"][0]["function"]["arguments"])
        return Got(len(message["reasoning_content"]), len(message["content"]), arguments)

    return one
