"""Whole replies have every key that the vendors' descriptions of their APIs require, null where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cnllm import Reply, Text, Usage, engine
from cnllm.protocols import PROTOCOLS
from cnllm.types import Message

from .clients import CHAT, MESSAGES
from .test_pairs import replies

UNKNOWN = Reply(
    text="Hi.",
    reasoning="",
    tool_calls=[],
    finish="stop",
    raw_finish=None,
    usage=Usage(),
    cost=None,
    model=None,
    id=None,
    notes=[],
    message=Message(role="assistant", parts=(Text("Hi."),)),
    incomplete=[],
)


def meant() -> list[Reply]:
    """A reply that reports nothing, and those of each endpoint."""
    return [UNKNOWN, *(reply for target in PROTOCOLS for reply in replies(target).values())]


def test_counts_of_messages_are_zero_where_they_are_unknown_and_never_less() -> None:
    for usage, wanted in ((Usage(), 0), (Usage(input=5, cached=5), 0), (Usage(input=9, cached=5), 4)):
        body = engine.encode_reply(MESSAGES, replace(UNKNOWN, usage=usage))
        assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (wanted, 0)


@pytest.mark.parametrize("reply", meant())
def test_replies_of_chat_completions_have_all_required_keys(reply: Reply) -> None:
    body: dict[str, Any] = engine.encode_reply(CHAT, reply)
    assert {"id", "object", "created", "model", "choices"} <= set(body)
    for choice in body["choices"]:
        assert {"index", "finish_reason", "message", "logprobs"} <= set(choice)
        assert {"role", "content", "refusal"} <= set(choice["message"])


@pytest.mark.parametrize("reply", meant())
def test_replies_of_messages_have_all_required_keys(reply: Reply) -> None:
    body: dict[str, Any] = engine.encode_reply(MESSAGES, reply)
    assert {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"} <= set(body)
    counts = body["usage"]
    assert type(counts["input_tokens"]) is type(counts["output_tokens"]) is int
    for name, known in (
        ("cache_creation_input_tokens", reply.usage.cache_write),
        ("cache_read_input_tokens", reply.usage.cached),
    ):
        assert counts[name] == known  # None is null: unknown, and not zero
