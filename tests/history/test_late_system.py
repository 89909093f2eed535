"""System messages behind a turn go first, unless the registry knows that the endpoint takes them there."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import Registry, engine

UNKNOWN = "openai-compatible/m"
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}
LATE: dict[str, Any] = {"role": "system", "content": "Now in French."}
TURNS: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
MORE: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Bien."}]


def sent(name: str, messages: list[dict[str, Any]], protocol: str | None = None) -> tuple[list[Any], list[str]]:
    """The messages on the wire, and the notes on system messages."""
    base_url = "http://127.0.0.1:9/v1" if name == UNKNOWN else None
    model = Registry.load().resolve(name, base_url=base_url, protocol=protocol)
    plan = engine.build_request(model, messages)
    body = plan.body["messages"] if "messages" in plan.body else plan.body["input"]
    return body, [note.did for note in plan.notes if note.code == "system-folded"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_late_system_messages_go_first_in_order_where_nobody_knows(role: str) -> None:
    last = {"role": role, "content": "And now in Latin."}
    messages, notes = sent(UNKNOWN, [SYSTEM, *TURNS, LATE, {"role": "user", "content": "Go on."}, last])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "Be brief.\n\nNow in French.\n\nAnd now in Latin."
    assert len(notes) == 1
    assert "cache" in notes[0]
    assert "unknown" in notes[0]


def test_what_stands_before_the_conversation_stays_as_it_is() -> None:
    messages, notes = sent(UNKNOWN, [SYSTEM, LATE, *TURNS, {"role": "user", "content": "Go on."}])
    assert (messages[:2], notes) == ([SYSTEM, LATE], [])


def test_the_beginning_changes_once_for_each_new_message_and_then_stays() -> None:
    before, _ = sent(UNKNOWN, [SYSTEM, *TURNS, LATE, MORE[0]])
    after, _ = sent(UNKNOWN, [SYSTEM, *TURNS, LATE, *MORE, {"role": "user", "content": "More."}])
    assert after[: len(before)] == before


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("moonshotai/kimi-k3", None),
        ("kimi-for-coding/k3", None),
        ("openai/gpt-5.4", None),
        ("openai/gpt-5.4", "openai-responses"),
        ("deepseek/deepseek-v4-pro", None),
    ],
)
def test_an_endpoint_that_takes_them_gets_them_in_their_place(name: str, protocol: str | None) -> None:
    messages, notes = sent(name, [SYSTEM, *TURNS, LATE, MORE[0]], protocol)
    assert [message.get("role") for message in messages] == ["system", "user", "assistant", "system", "user"]
    assert notes == []


def test_marks_of_the_cache_stay_on_the_parts_of_folded_messages() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    first = {"role": "system", "content": [{"type": "text", "text": "Be brief.", **mark}]}
    messages, _ = sent(UNKNOWN, [first, *TURNS, LATE, MORE[0]])
    assert messages[0]["content"] == [
        {"type": "text", "text": "Be brief.\n\n", **mark},
        {"type": "text", "text": "Now in French."},
    ]
