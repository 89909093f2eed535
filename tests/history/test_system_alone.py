"""A conversation in which only system speaks: where its text stands apart, a request would have no turn."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from builtin import BUILTIN
from cases import each

import cnllm
from cnllm import engine
from cnllm.protocols import PROTOCOLS
from cnllm.simulator.respond import Endpoints

NAMES = ("openai-compatible/m", "chatgpt/gpt-5.2-codex", "google/gemini-2.5-pro", "anthropic/claude")


@each("protocol", PROTOCOLS)
def test_a_conversation_of_system_messages_alone_is_sent_with_a_turn_in_it(protocol: str) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Rhyme."}]
    tried = 0
    for name in NAMES:
        try:
            model = BUILTIN.resolve(name, protocol=protocol, base_url="http://127.0.0.1:9/v1")
        except cnllm.UnknownModel:
            continue  # it does not speak that one
        plan = engine.build_request(model, messages)
        assert plan.turns, (name, plan.body)
        answered = Endpoints().respond(plan.model, plan.headers, plan.content, unquote(urlsplit(plan.url).path))
        assert answered.status == 200, plan.body
        tried += 1
    assert tried


def test_a_message_of_the_developer_alone_is_one_of_the_system_where_no_other_role_is_known() -> None:
    plan = engine.build_request(BUILTIN.resolve("deepseek/deepseek-chat"), [{"role": "developer", "content": "Rhyme."}])
    assert plan.turns[0] == {"role": "system", "content": "Rhyme."}
    assert "role-developer" in [note.code for note in plan.notes]


def test_a_system_message_alone_is_noted() -> None:
    model = BUILTIN.resolve("anthropic/claude", protocol="anthropic-messages")
    plan = engine.build_request(model, [{"role": "system", "content": "Be brief."}])
    assert plan.turns == [{"role": "user", "content": "…"}]
    assert plan.body["system"] == "Be brief."
    assert [note.flag for note in plan.notes if note.code == "first-user"] == ["messages.first_user"]
