"""What official SDKs read of the gateway where an endpoint's own form is not the one that they know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.gateway.support import KEY, Answer, Upstream, gateway_for

MODEL = "deepseek/deepseek-v4-pro"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def openai_client(http: httpx.Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{http.base_url}/v1", api_key=KEY, max_retries=0)


def anthropic_client(http: httpx.Client) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=str(http.base_url), api_key=KEY, max_retries=0)


@pytest.mark.parametrize("pieces", [[], [""], ["null"], ["", " null", " "], ["{}"], ["{", "}"]])
def test_a_call_without_arguments_has_an_empty_object_on_every_wire(tmp_path: Path, pieces: list[str]) -> None:
    head = {"index": 0, "id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}}
    deltas: list[Any] = [{"tool_calls": [head]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    function = {"name": "now", "parameters": SCHEMA}
    turns: Any = [{"role": "user", "content": "What time is it?"}]
    with gateway_for(Upstream(Answer(deltas, "tool_calls")), tmp_path) as http:
        for stream in (True, False):
            chat: Any = {"model": MODEL, "messages": turns, "tools": [{"type": "function", "function": function}]}
            if stream:
                chunks = [*openai_client(http).chat.completions.create(**chat, stream=True)]
                calls = [c for chunk in chunks for choice in chunk.choices for c in choice.delta.tool_calls or ()]
                arguments = "".join(call.function.arguments or "" for call in calls if call.function)
            else:
                message = openai_client(http).chat.completions.create(**chat).choices[0].message
                [whole] = message.tool_calls or ()
                assert whole.type == "function"
                arguments = whole.function.arguments
            assert json.loads(arguments) == {}, (stream, arguments)

            tools: Any = [{"type": "function", "strict": False, **function}]
            responses = openai_client(http).responses
            if stream:
                with responses.stream(model=MODEL, input="What time is it?", tools=tools) as events:
                    seen = [*events]
                    final = events.get_final_response()
                text = "".join(e.delta for e in seen if e.type == "response.function_call_arguments.delta")
                assert json.loads(text) == {}
            else:
                final = responses.create(model=MODEL, input="What time is it?", tools=tools)
            [item] = [item for item in final.output if item.type == "function_call"]
            assert json.loads(item.arguments) == {}

            own: Any = {"max_tokens": 100, "tools": [{"name": "now", "input_schema": SCHEMA}]}
            messages = anthropic_client(http).messages
            if stream:
                with messages.stream(model=MODEL, messages=turns, **own) as parts:
                    reply = parts.get_final_message()
            else:
                reply = messages.create(model=MODEL, messages=turns, **own)
            assert [block.input for block in reply.content if block.type == "tool_use"] == [{}]
