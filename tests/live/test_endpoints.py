"""The real endpoints: a reply, a stream, and a tool's result told to the model. They cost a few tokens each.

Marked `live`; each skips where the environment has no key of its provider, so a plain run calls nobody. To ask one:
`ZAI_API_KEY=… pytest -m live -k zai`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import cnllm
from cnllm import Client, Registry

MODELS = [
    "alibaba/qwen3.8-flash",
    "deepseek/deepseek-flash",
    "minimax/MiniMax-M3",
    "moonshotai/kimi-k2.6",
    "openai/gpt-5-mini",
    "openrouter/z-ai/glm-5",
    "siliconflow/zai-org/GLM-5.2",
    "stepfun/step-3.5-flash",
    "tencent/hy3",
    "volcengine/doubao-seed-2-1-pro-260915",
    "xai/grok-4.6",
    "xiaomi/mimo-v2.6-pro",
    "zai/glm-4.7",
    "zhipuai/glm-4.7",
]

pytestmark = pytest.mark.live


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    keys = Registry.load().resolve(name).flags.keys or []
    if not any(os.environ.get(key) for key in keys):
        pytest.skip(f"none of {', '.join(keys)} is set")
    return name


def noon(city: str) -> str:
    """What time it is in a city."""
    return f"It is noon in {city}."


def test_a_real_endpoint_replies(model: str) -> None:
    with Client() as client:
        reply = client.call(model, "Say hi.", max_tokens=2000)
    assert (bool(reply.text), reply.finish) == (True, "stop")
    assert reply.usage.output


def test_a_stream_is_its_reply(model: str) -> None:
    with Client() as client, client.stream(model, "Say hi.", max_tokens=2000) as stream:
        text = "".join(event.text for event in stream if isinstance(event, cnllm.TextDelta))
        assert text == stream.reply.text


def test_a_second_request_after_a_tool_and_a_third(model: str) -> None:
    tools: list[Any] = [cnllm.tool(noon)]
    with Client() as client:
        run = client.run(model, "What time is it in Oslo? Use the tool.", tools=tools)
        assert run.stopped == "done"
        assert any(step.calls for step in run.steps)
        more = [*run.messages, cnllm.Message.user("Thanks. And in Rome?")]
        assert client.run(model, more, tools=tools).stopped == "done"
