"""Half of a character in the arguments of a call that a program made: it is mended, and noted."""

from __future__ import annotations

from builtin import BUILTIN
from cases import each

from cnllm import Message, Text, ToolCall, engine

MODELS = {
    "openai-chat": "deepseek/deepseek-chat",
    "anthropic-messages": "anthropic/claude",
    "gemini": "google/gemini-2.5-pro",
    "openai-responses": "openai/gpt-5.1",
}


@each("protocol", MODELS)
@each("raw", ["", "no JSON", '{"q":', "[1]"])
def test_half_a_character_is_replaced_whatever_stands_beside_it(protocol: str, raw: str) -> None:
    model = BUILTIN.resolve(MODELS[protocol], protocol=protocol)
    turn = Message("assistant", [ToolCall("call_1", "search", {"q": "\ude00a"}, raw)])
    plan = engine.build_request(model, [turn, Message("user", [Text("and?")])])
    assert "\ufffda" in plan.content.decode()
    assert "text-mended" in [note.code for note in plan.notes]
