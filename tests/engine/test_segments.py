"""A request from remembered messages is the one that would be built without a memory."""

from __future__ import annotations

import copy
import sys
from types import FrameType
from typing import Any

import pytest
from builtin import BUILTIN
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from cnllm import CannotSend, Message, Reasoning, Seal, Text, ToolCall, ToolResult, engine
from cnllm.types.message_memory import MessageMemory

REGISTRY = BUILTIN
NAMES = st.deferred(
    lambda: st.sampled_from([name for name in REGISTRY.names() if REGISTRY.resolve(name).flags.base_url])
)
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}, "list": {"type": "array"}}}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
IDS = st.sampled_from(["a", "b", "call:1", "call_2", "", "call_" + "9" * 70])
ARGUMENTS = st.sampled_from(
    ['{"q": "a"}', '{"q": 1}', "{}", "", "no", '{"list": "[1]"}', '"{\\"q\\": 1}"', "messages[7]"]
)
WORDS = st.sampled_from(["Hi", "Go on.", "", " ", "<b>", "messages[3] has no reasoning", "é", "\udc00"])


def calls(ids: list[str], arguments: str, **more: Any) -> dict[str, Any]:
    made = [{"id": id, "type": "function", "function": {"name": "search", "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def thought(provider: str) -> Message:
    """A turn of a model with a signature of its own."""
    seal = Seal("openai-chat", provider, "m", [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}])
    return Message("assistant", [Reasoning("Hm.", seal), Text("Yes.")], by=f"{provider}/m")


MORE = st.sampled_from([{}, {}, {"reasoning_content": "Hm."}, {"by": "deepseek/deepseek-v4-pro"}, {"weight": 1}])
WHOLE_TURN = st.builds(lambda id, args, more: [calls([id], args, **more), result(id, "found")], IDS, ARGUMENTS, MORE)
NUMBERED = st.integers(0, 10_000).map(lambda n: [calls([f"call_{n:09}"], '{"q": "a"}'), result(f"call_{n:09}", "1")])
TURNS = st.one_of(
    NUMBERED,
    NUMBERED,
    WHOLE_TURN,
    st.builds(lambda text: [{"role": "user", "content": text}], WORDS),
    st.builds(lambda text, more: [{"role": "assistant", "content": text, **more}], WORDS, MORE),
    st.builds(lambda ids, args: [calls(ids, args)], st.lists(IDS, min_size=1, max_size=2), ARGUMENTS),
    st.builds(lambda id, text: [result(id, text)], IDS, WORDS),
    st.sampled_from(["system", "developer"]).map(lambda role: [{"role": role, "content": "Be short."}]),
    st.just([{"role": "user", "content": [{"type": "text", "text": "See", "cache_control": {"type": "ephemeral"}}]}]),
    st.just([{"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]}]),
    st.sampled_from(["deepseek", "openrouter"]).map(lambda provider: [thought(provider)]),
)
HEADS = st.sampled_from(
    [
        [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
        [{"role": "user", "content": "Hi"}],
        [],
    ]
)
OPTIONS = st.sampled_from([{"tools": TOOLS}, {"tools": TOOLS, "reasoning": "off"}, {}, {"on_unsupported": "error"}])


def request(name: str, messages: Any, options: dict[str, Any], memory: MessageMemory | None) -> Any:
    """What a caller gets: the bytes, the notes and the messages of the plan, or the error."""
    try:
        plan = engine.build_request(REGISTRY.resolve(name), messages, memory=memory, **options)
    except (CannotSend, ValueError, TypeError) as error:
        return type(error), str(error)
    return plan.url, plan.headers, plan.content, plan.body, plan.notes, plan.prompt, plan.messages, plan.stops


@examples(150)
@given(NAMES, HEADS, st.lists(TURNS, max_size=7), OPTIONS, st.integers(0, 3))
def test_a_conversation_that_goes_on_gives_the_request_of_one_that_was_never_seen(
    name: str, head: Any, turns: list[Any], options: dict[str, Any], system: int
) -> None:
    memory = MessageMemory()
    given_options = {**options, "system": "Answer."} if system == 0 else options
    messages: list[Any] = list(head)
    for turn in [[], *turns, []]:
        messages = [*copy.deepcopy(messages), *turn]
        assert request(name, messages, given_options, memory) == request(name, messages, given_options, None)


@examples(60)
@given(NAMES, st.lists(NUMBERED, min_size=2, max_size=6), st.data())
def test_a_conversation_that_was_edited_gives_the_request_of_what_it_says_now(
    name: str, turns: list[Any], data: st.DataObject
) -> None:
    memory = MessageMemory()
    messages: list[Any] = [{"role": "user", "content": "Hi"}, *(message for turn in turns for message in turn)]
    for _ in range(3):
        assert request(name, messages, {"tools": TOOLS}, memory) == request(name, messages, {"tools": TOOLS}, None)
        place = data.draw(st.integers(0, len(messages) - 1))
        match data.draw(st.sampled_from(["content", "arguments", "remove", "again"])):
            case "content":
                messages[place]["content"] = "another"  # in the caller's own dict
            case "arguments" if messages[place].get("tool_calls"):
                messages[place]["tool_calls"][0]["function"]["arguments"] = '{"q": "b"}'
            case "remove":
                messages = messages[:place] + messages[place + 1 :] or messages
            case _:
                messages = [*messages, *copy.deepcopy(messages[place:])]


def test_a_conversation_that_grew_takes_a_fifth_of_the_work_of_a_new_one() -> None:
    model = REGISTRY.resolve("deepseek/deepseek-v4-pro")
    turns = [[calls([f"call_{n:09}"], '{"q": "a"}'), result(f"call_{n:09}", "1")] for n in range(60)]
    messages: list[Any] = [{"role": "user", "content": "Hi"}, *(message for turn in turns for message in turn)]
    memory = MessageMemory()
    for count in (-4, -2):
        engine.build_request(model, messages[:count], memory=memory, tools=TOOLS)

    def entered(known: MessageMemory | None) -> int:
        """How many functions are called to build the request."""
        frames: list[FrameType] = []
        sys.setprofile(lambda frame, event, _: frames.append(frame))
        try:
            engine.build_request(model, messages, memory=known, tools=TOOLS)
        finally:
            sys.setprofile(None)
        return len(frames)

    assert entered(memory) < entered(None) / 5


def test_a_memory_stays_within_its_bound_and_forgets_what_was_not_used_for_longest() -> None:
    memory = MessageMemory(100_000)
    model = REGISTRY.resolve("deepseek/deepseek-v4-pro")
    texts: list[Any] = [{"role": "user", "content": f"{number}" * 500} for number in range(500)]
    [first] = memory.messages(texts[:1]) or []
    [second] = memory.messages(texts[1:2]) or []
    for text in texts[1:]:
        engine.build_request(model, [texts[0], text], memory=memory)
    assert memory.size <= 100_000
    assert memory.messages(texts[:1]) == [first]
    assert (memory.messages(texts[:1]) or [])[0] is first
    assert (memory.messages(texts[1:2]) or [])[0] is not second


def test_what_is_no_memory_is_refused_by_its_name() -> None:
    model = REGISTRY.resolve("deepseek/deepseek-v4-pro")
    memory: Any = {"messages": []}
    with pytest.raises(TypeError, match="memory is dict; a MessageMemory or None is expected"):
        engine.build_request(model, "hi", memory=memory)


def test_a_long_conversation_may_hold_values_of_which_a_memory_has_no_copy() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    for value in (2**70, float("inf"), "\ud83d", deep):
        turns: list[Any] = [Message.user("Hi")]
        for number in range(5):
            arguments = {"q": value}
            turns.append(Message("assistant", (ToolCall(f"call_{number:09}", "search", arguments, "{}"),)))
            turns.append(Message("tool", (ToolResult(f"call_{number:09}", "1"),)))
        memory, options = MessageMemory(), {"tools": TOOLS}
        known = request("deepseek/deepseek-v4-pro", turns, options, memory)
        assert known == request("deepseek/deepseek-v4-pro", turns, options, None)


def test_a_long_conversation_that_grows_keeps_the_notes_on_its_beginning() -> None:
    """Its beginning is remembered as one piece."""
    numbers = [f"call_{number:09}" for number in range(50)]
    turns = [message for id in numbers for message in (calls([id], '{"q": "a"}'), result(id, "1"))]
    head = [
        *[{"role": "system", "content": text} for text in ("Be short.", "Be kind.")],
        {"role": "user", "content": "Hi"},
    ]
    memory = MessageMemory()
    for count in (40, 80, 100):
        messages = [*head, *turns[:count]]
        plan = engine.build_request(
            REGISTRY.resolve("minimax/MiniMax-M3.1-Flash"), messages, memory=memory, tools=TOOLS
        )
        assert [note.code for note in plan.notes] == ["system-folded"]
