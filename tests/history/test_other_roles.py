"""Calls and reasoning in a message of another role than the assistant's are left out with a note, in every spelling."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import Registry, engine

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
KEYS: dict[str, Any] = {
    "tool_calls": [CALL],
    "function_call": CALL["function"],
    "reasoning_content": "Hm.",
    "reasoning": "Hm.",
}


@pytest.mark.parametrize("content", ["Look.", [{"type": "text", "text": "Look."}]], ids=["text", "parts"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic-messages"])
def test_it_is_left_out_with_a_note(protocol: str, key: str, content: Any) -> None:
    model = Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    message: dict[str, Any] = {"role": "user", "content": content, key: KEYS[key]}
    plan = engine.build_request(model, [message])
    assert plan.body["messages"] == [{"role": "user", "content": "Look."}]
    code, what = ("reasoning-misplaced", "thinks") if key.startswith("reasoning") else ("call-misplaced", "calls tools")
    assert [(note.said, note.flag) for note in plan.notes if note.code == code] == [
        (f"messages[0] by user {what}", "messages")
    ]
