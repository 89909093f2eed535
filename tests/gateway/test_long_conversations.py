"""A long conversation through a gateway: what it remembers of earlier requests changes no byte and no note."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm import engine
from cnllm.gateway.service import Memories
from cnllm.gateway.thoughts import conversation_key
from cnllm.store.prefix import content_fingerprint
from cnllm.types import Message
from cnllm.types.message_memory import MessageMemory

from .support import Upstream, gateway_for, say

Json = dict[str, Any]
WORDS = st.sampled_from(["Hi", "", "Go on.", "é", "<think>x</think>"])
EXTRA = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}, {"weight": 1}, {"name": "me"}])
THOUGHTS = st.sampled_from(["", "", "Hm."])


def chat_turns(number: int, text: str, thought: str, extra: Json) -> list[Json]:
    call = {"id": f"call_{number:024}", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    told = {"reasoning_content": thought} if thought else {}
    return [
        {"role": "assistant", "content": text, "tool_calls": [call], **told},
        {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": f"r{number}", **extra}]},
    ]


def messages_turns(number: int, text: str, thought: str, extra: Json) -> list[Json]:
    blocks: list[Json] = [{"type": "thinking", "thinking": thought, "signature": "s"}] if thought else []
    blocks += [{"type": "text", "text": text}] if text else []
    call = {"type": "tool_use", "id": f"toolu_{number:024}", "name": "f", "input": {"a": number}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"r{number}", **extra}
    return [{"role": "assistant", "content": [*blocks, call]}, {"role": "user", "content": [result]}]


TURNS = {"openai-chat": chat_turns, "anthropic-messages": messages_turns}
PARTS = st.lists(st.tuples(st.integers(0, 4), WORDS, THOUGHTS, EXTRA), min_size=1, max_size=6)


@pytest.mark.parametrize("protocol", TURNS)
@examples(100)
@given(PARTS)
def test_a_remembered_turn_is_read_as_a_new_one(protocol: str, parts: list[Any]) -> None:
    memory = MessageMemory()
    body: Json = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    for part in parts:
        body = copy.deepcopy(body)
        body["messages"] += TURNS[protocol](*part)
        known, new = (engine.decode_request(protocol, body, memory=each) for each in (memory, None))
        assert known == new
        answer = Message.assistant("Done.")
        keys = [conversation_key(known.messages, answer, each) for each in (memory, memory, None)]
        assert keys[0] == keys[1] == keys[2]
        content = msgspec.json.encode(body)
        assert content_fingerprint(content, memory) == content_fingerprint(content)


def test_the_endpoint_gets_the_same_bytes_whatever_went_before(tmp_path: Path) -> None:
    """Each step of a conversation is sent to one gateway, and to a gateway that has seen nothing."""
    steps: list[list[Json]] = []
    messages: list[Json] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    for number in range(12):
        messages = [*messages, *chat_turns(number, "Look.", "Hm." if number % 2 else "", {})]
        steps.append([*messages, {"role": "user", "content": "And?"}] if number % 3 == 2 else messages)
    steps += [[*steps[5][:4], *steps[5][6:]], steps[-1]]  # the client edits its history, and goes back

    def sent(groups: list[list[list[Json]]]) -> list[tuple[Json, list[Json]]]:
        out: list[tuple[Json, list[Json]]] = []
        for group in groups:
            upstream = Upstream(say("Yes."))
            with gateway_for(upstream, tmp_path, keys=["the-key-of-the-client"]) as http:
                for history in group:
                    body = {"model": "deepseek/deepseek-v4-pro", "messages": history}
                    answer = http.post("/v1/chat/completions", json=body)
                    assert answer.status_code == 200, answer.text
                    notes = http.get(answer.headers["x-cnllm-notes"].partition("log=")[2]).json()["notes"]
                    assert any(note["code"] == "reasoning-filled" for note in notes)
                    out.append((upstream.bodies[-1], [note for note in notes if note["code"] != "prefix-broken"]))
        return out

    assert sent([steps]) == sent([[step] for step in steps])


def test_identities_share_no_memory() -> None:
    memories = Memories()
    assert memories.of("a") is memories.of("a")
    assert memories.of("a") is not memories.of("b")
    first = memories.of("a")
    for number in range(100):
        memories.of(str(number))
    assert memories.of("a") is not first
