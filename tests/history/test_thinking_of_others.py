"""Thinking in a turn that is no model's: an edited or converted history may hold it, and no endpoint takes it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from builtin import BUILTIN
from cases import each

from cnllm import Message, Reasoning, Role, Text, engine
from cnllm.simulator.respond import Endpoints

MODELS = {
    "openai-chat": "deepseek/deepseek-chat",
    "anthropic-messages": "anthropic/claude",
    "gemini": "google/gemini-2.5-pro",
    "openai-responses": "openai/gpt-5.1",
}


@each("protocol", MODELS)
@each("role", ["user", "system"])
def test_thinking_of_others_is_left_out_and_noted(protocol: str, role: Role) -> None:
    model = BUILTIN.resolve(MODELS[protocol], protocol=protocol)
    messages = [Message(role, [Reasoning("hm, secretly"), Text("hi")]), Message("user", [Text("and?")])]
    plan = engine.build_request(model, messages)
    assert b"secretly" not in plan.content
    assert [note.said for note in plan.notes if note.code == "reasoning-misplaced"] == [f"messages[0] by {role} thinks"]
    answered = Endpoints().respond(plan.model, plan.headers, plan.content, unquote(urlsplit(plan.url).path))
    assert answered.status == 200, plan.body
