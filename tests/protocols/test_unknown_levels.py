"""A word for reasoning that cnllm does not know goes to endpoints of the client's wire; elsewhere a note names it."""

from __future__ import annotations

from typing import Any

from cases import each

from cnllm import Registry, engine
from cnllm.jsonpath import get

Json = dict[str, Any]
TURN = {"role": "user", "content": "Hi"}
CLIENTS: dict[str, tuple[str, Json]] = {
    "openai-chat": ("reasoning_effort", {"messages": [TURN], "reasoning_effort": "default"}),
    "openai-responses": ("reasoning.effort", {"input": "Hi", "reasoning": {"effort": "ultra"}}),
    "anthropic-messages": (
        "output_config.effort",
        {"max_tokens": 9, "messages": [TURN], "thinking": {"type": "adaptive"}, "output_config": {"effort": "ultra"}},
    ),
    "gemini": (
        "generationConfig.thinkingConfig.thinkingLevel",
        {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}},
        },
    ),
}


@each("wire", CLIENTS)
@each("protocol", CLIENTS)
def test_an_unknown_word_for_reasoning_refuses_no_request(protocol: str, wire: str) -> None:
    path, body = CLIENTS[protocol]
    model = Registry.load().resolve("openai-compatible/m", protocol=wire, base_url="http://127.0.0.1:9/v1")
    request = engine.decode_request(protocol, body)
    plan = engine.build_request(model, request.messages, **request.options)
    if wire == protocol:
        assert get(plan.body, path) == get(body, path)
    else:
        assert any(path.startswith(note.said) for note in plan.notes if note.code == "key-foreign")
