"""Whatever was said, broken off or handed over: the endpoint takes the request, and notes say what changed."""

from __future__ import annotations

import copy
from typing import Any

from examples import share
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cnllm import Media, Message, Opaque, Reasoning, Seal, Text, ToolCall, ToolResult
from cnllm.registry.model import Model

from .support import conversation, distinct, plan
from .test_pairs import legal, shapes

texts = st.sampled_from(["", " ", "hi", "为什么？", "<think>", '{"a": 1}', "\ud83d\ude00", "\ud83d"])
spoken = st.sampled_from(["hi", "为什么？", "go on"])
ids = st.sampled_from(["", "search:0", "search:1", "call_1", "abcdefgh1", "x" * 60, "编号", " ", "\ud83d"])
names = st.sampled_from(["search", "weather", "gone"])
TARGET = "the target's own"
others = st.deferred(lambda: st.sampled_from([model.name for model in distinct()][:: len(distinct()) // 12]))
authors = st.sampled_from([None, TARGET]) | others | st.sampled_from(["nobody/else", "zai", ""])
seals = st.none() | st.sampled_from(
    [
        Seal("openai-chat", "openrouter", "z-ai/glm-5.3-flash", [{"type": "reasoning.text", "text": "hm"}]),
        Seal("anthropic-messages", "anthropic", "claude", {"signature": "zz"}),
        Seal("openai-chat", "google", "gemini", {"extra_content": {"signature": "zz"}}),
    ]
)
pictures = st.sampled_from(
    [
        Media("image/png", "AA=="),
        Media("image", url="https://x/y.png"),
        Media("audio/wav", "AA=="),
        Media("video", url="v"),
    ]
)
arguments = st.sampled_from(
    [
        "",
        "null",
        "{}",
        '{"q":"a"}',
        '{"q":',
        "[1]",
        '"{\\"q\\":\\"a\\"}"',
        '{"q":"a","places":"[\\"Oslo\\"]"}',
        "NaN",
        '{"q":NaN}',
        '{"q":"\ud83d"}',
    ]
)


@st.composite
def calls(draw: Any) -> ToolCall:
    from cnllm.types.lenient_json import decode_arguments

    raw = draw(arguments)
    decoded, problem = decode_arguments(raw)
    return ToolCall(draw(ids), draw(names), decoded, raw, "wire", problem)


thoughts = st.builds(Reasoning, texts, seals)
blocks = seals.filter(bool).map(lambda seal: Opaque({"type": "block"}, seal))
answers = st.lists(thoughts, max_size=2).flatmap(
    lambda first: st.lists(st.builds(Text, texts) | blocks, max_size=2).flatmap(
        lambda said: st.lists(calls(), max_size=3).map(lambda called: (*first, *said, *called))
    )
)
assistants = st.builds(Message, st.just("assistant"), answers, authors)
users = st.builds(lambda text, media: Message("user", [Text(text), *media]), texts, st.lists(pictures, max_size=1))
systems = st.builds(lambda role, text: Message(role, [Text(text)]), st.sampled_from(["system", "developer"]), spoken)
answered = st.builds(
    ToolResult, ids, texts, st.none() | names, st.booleans(), st.lists(pictures, max_size=1).map(tuple)
)
returned = st.builds(lambda parts: Message("tool", parts), st.lists(answered, max_size=2))
# What no wire brings forth, but a program may: any part in any turn.
odd = st.builds(
    Message,
    st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    st.lists(st.builds(Text, texts) | thoughts | blocks | calls() | answered | pictures, max_size=3),
)
whole = st.deferred(lambda: st.sampled_from(shapes())).map(lambda model: list(conversation(model)))
cut = st.tuples(whole, st.integers(0, 3)).map(lambda pair: pair[0][: pair[1]])
turns = (assistants | users | systems | returned | odd).map(lambda turn: [turn]) | cut | whole
histories = st.lists(turns, max_size=6).map(lambda runs: [turn for run in runs for turn in run])


def signed(history: list[Message], target: Model) -> list[Message]:
    """The history, with the turns that the target is to have written."""
    return [replace(turn, by=target.name) if turn.by == TARGET else turn for turn in history]


@settings(
    max_examples=share(400), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(histories, st.deferred(lambda: st.sampled_from(distinct())), st.booleans(), st.booleans())
def test_any_sequence_of_turns_aborts_and_switches_is_taken_by_any_target(
    history: list[Message], target: Any, as_dicts: bool, stream: bool
) -> None:
    history = [*signed(history, target), Message("user", [Text("And now?")])]
    given: list[Any] = [turn.to_dict() for turn in history] if as_dicts else history
    before = copy.deepcopy(given)
    request = plan(target, given, stream=stream)
    legal(request)
    assert all(m["content"] for m in request.body["messages"] if m["role"] in ("system", "user"))
    assert given == before
    assert plan(target, given, stream=stream).content == request.content
    # What was fitted fits: nothing of the calls and results is left to repair.
    again = plan(target, request.body["messages"], stream=stream)
    repairs = {"call-unanswered", "result-orphan", "result-moved", "arguments-emptied", "ids-renamed", "ids-repeated"}
    assert not repairs & {note.code for note in again.notes}, again.notes


@settings(
    max_examples=share(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(histories, st.deferred(lambda: st.sampled_from(distinct())))
def test_every_change_to_calls_and_results_has_a_note_that_names_a_message(history: list[Message], target: Any) -> None:
    request = plan(target, [*signed(history, target), Message("user", [Text("And now?")])])
    for note in request.notes:
        if note.code.startswith(("call-", "result-", "arguments-", "turn-", "turns-", "ids-", "reasoning-f")):
            assert "messages[" in note.said, note
            assert note.flag
            assert note.did
