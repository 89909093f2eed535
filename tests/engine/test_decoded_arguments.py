"""Arguments that an endpoint streams as a decoded object are those of the call: none is executed without them."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import Model, ToolCallDelta, engine

from .test_counted_once import STOP, frames, models

__all__ = ["models"]

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
ARGUMENTS = {"a": "x", "deep": [{"b": None}]}


def messages(*inputs: Any) -> list[Any]:
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    return [
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in inputs
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def responses(kind: str, **done: Any) -> list[Any]:
    item = {"type": "function_call", "id": "i1", "call_id": "c1", "name": "f"}
    key = "delta" if kind == "delta" else "arguments"
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
        {"type": f"response.function_call_arguments.{kind}", "output_index": 0, key: ARGUMENTS},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, **done}},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]


def chat(**item: Any) -> list[Any]:
    first = {"index": 0, "id": "c1", **item}
    return [{"choices": [{"index": 0, "delta": {"tool_calls": [first]}}]}, STOP]


CASES: list[tuple[str, list[Any]]] = [
    ("anthropic-messages", messages(ARGUMENTS)),
    ("anthropic-messages", messages(None, "", ARGUMENTS)),
    ("openai-chat", chat(function={"name": "f", "parameters": ARGUMENTS})),
    ("openai-chat", chat(function={"name": "f", "parameters": ARGUMENTS, "arguments": None})),
    ("openai-chat", chat(name="f", parameters=ARGUMENTS)),
    ("openai-responses", responses("delta")),
    ("openai-responses", responses("delta", arguments=ARGUMENTS)),
    ("openai-responses", responses("done")),
    ("openai-responses", responses("done", arguments=ARGUMENTS)),
]


@pytest.mark.parametrize(("protocol", "chunks"), CASES)
def test_a_decoded_object_is_the_arguments_of_the_call(
    models: dict[str, Model], protocol: str, chunks: list[Any]
) -> None:
    plan = engine.build_request(models[protocol], "hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(models[protocol], plan=plan)
    events = [*parser.feed(frames(chunks)), *parser.end()]
    [call] = parser.close().tool_calls
    assert (call.arguments, call.problem) == (ARGUMENTS, None)
    assert "".join(event.text for event in events if isinstance(event, ToolCallDelta)) == call.raw
