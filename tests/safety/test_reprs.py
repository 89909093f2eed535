"""What holds a key does not show it where a traceback or a log prints it."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import Registry, Retry, Timeouts
from cnllm.client.call_driver import CallSetup
from cnllm.engine import build_request
from cnllm.engine.run.call import Call
from cnllm.launch.setup import Values
from cnllm.probe.place import ProbeTarget

KEY = "sk-0123456789abcdef"


def call_setup() -> CallSetup:
    plan = build_request(Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1"), "Hi")
    call = Call(plan, retry=Retry(), timeouts=Timeouts(), replan=lambda *_, **__: plan)
    nothing: Any = None
    return CallSetup(call, nothing, (), KEY, {1: KEY}, None, checker=lambda: nothing)


@pytest.mark.parametrize(
    "thing",
    [
        ProbeTarget(base_url="http://127.0.0.1:9/v1", id="m", api_key=KEY),
        Values(url="http://127.0.0.1:9", key=KEY, model="m", folder="/tmp"),
        call_setup(),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_value_with_a_key_is_shown_without_it(thing: object) -> None:
    assert KEY not in f"{thing!r} {thing}"
    assert KEY not in repr([thing])
