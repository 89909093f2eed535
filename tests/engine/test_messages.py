"""Messages in and out of dicts: nothing is lost, edits win, and the caller's objects stay as they are."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import msgspec
import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import Media, Message, Opaque, Reasoning, Seal, Text, ToolCall, ToolResult, engine
from cnllm.types.messages import as_messages

from .conftest import Home
from .support import Json, anything, times, words

# ── any message ──────────────────────────────────────────────────────────────

KNOWN = {"role", "content", "tool_calls", "tool_call_id", "name", "by", "parts", "refusal", "error"}
KNOWN |= {"reasoning", "reasoning_content"}

texts = words | st.sampled_from(["", "hi", "data:image/png;base64,AA==", "null", "{}"])
seals = st.none() | st.builds(Seal, st.just("openai-chat"), words, words, anything)
extras = st.none() | st.dictionaries(
    words | st.sampled_from(["cache_control", "detail", "type"]), anything, min_size=1, max_size=2
)
objects = st.dictionaries(words, anything, max_size=2)
text_parts = st.builds(Text, texts, seals, extras)
thoughts = st.builds(Reasoning, texts, seals)
media = st.builds(
    Media,
    st.sampled_from(["image/png", "image", "audio/wav", "audio/mp3", "video/mp4", "video", "application/pdf", ""]),
    st.none() | st.sampled_from(["AA==", ""]),
    st.none() | st.sampled_from(["http://x/y.png", "data:image/png;base64,AA==", "data:,x", ""]),
    seals,
    extras,
)
calls = st.builds(
    ToolCall,
    texts,
    words,
    st.none() | objects,
    st.sampled_from(["", "{}", "{", "null", '{"a": 1}', "[]"]),
    st.sampled_from(["wire", "text"]),
    st.none() | words,
    seals,
)
results = st.builds(
    ToolResult, texts, texts, st.none() | words, st.booleans(), st.lists(media, max_size=2).map(tuple), seals
)
opaques = st.builds(Opaque, anything, seals)
parts = st.lists(text_parts | thoughts | media | calls | results | opaques, max_size=4)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
further = st.none() | st.dictionaries(words.filter(lambda k: k not in KNOWN), anything, min_size=1, max_size=2)
messages = roles.flatmap(
    lambda role: st.builds(
        Message,
        st.just(role),
        parts,
        st.none() | words.filter(bool),
        st.none() if role == "tool" else st.none() | texts,  # there `name` is the tool's
        further,
    )
)


def through_json(message: Message) -> Message:
    return Message.from_dict(json.loads(json.dumps(message.to_dict(), allow_nan=False)))


@times(250)
@given(messages)
def test_any_message_comes_back_from_json_as_it_was(message: Message) -> None:
    assert through_json(message) == message


@times(80)
@given(messages)
def test_a_dict_of_a_message_is_stable(message: Message) -> None:
    said = message.to_dict()
    assert Message.from_dict(said).to_dict() == said
    assert as_messages([said]) == as_messages(message) == [message]


@times(80)
@given(messages)
def test_the_flat_keys_say_what_the_parts_say(message: Message) -> None:
    said = message.to_dict()
    assert said["role"] == message.role
    if message.role == "tool":
        return
    assert [c["function"]["name"] for c in said.get("tool_calls", [])] == [c.name for c in message.tool_calls]
    assert said.get("reasoning", "") == message.reasoning
    if isinstance(said["content"], str):
        assert said["content"] == message.text


def test_plain_messages_need_no_parts() -> None:
    for message in (
        Message("user", [Text("hi")]),
        Message("system", [Text("be brief")], name="boss"),
        Message("assistant", [Reasoning("hm"), Text("yes"), ToolCall("1", "f", {"a": 1}, '{"a": 1}')], by="p/m"),
        Message("tool", [ToolResult("1", "found", "f")]),
        Message("tool", [ToolResult("1", "failed", error=True)]),
        Message("user", [Text("see"), Media("image", url="http://x/y.png"), Media("image/png", "AA==")]),
    ):
        assert "parts" not in message.to_dict()
        assert through_json(message) == message


@each(
    "message",
    lambda: [
        Message("tool", [ToolResult("1", "x")], name="f"),
        Message("user", [Text("x")], by=""),
        Message("user", [Text("x")], extra={}),
    ],
)
def test_odd_messages_come_back_too(message: Message) -> None:
    assert through_json(message) == message


def test_an_extra_key_that_is_the_messages_own_is_refused() -> None:
    with pytest.raises(ValueError, match="content"):
        Message("user", [Text("x")], extra={"content": "y"})


# ── edits ────────────────────────────────────────────────────────────────────


def seal(data: Any = "s") -> Seal:
    return Seal("openai-chat", "home", "m", data)


def turn() -> Message:
    """A turn with everything, all of it sealed."""
    return Message(
        "assistant",
        [
            Reasoning("hm", seal("r")),
            Text("one", seal("t")),
            ToolCall("1", "f", {"a": 1}, '{"a": 1}', seal=seal("c1")),
            ToolCall("2", "g", {}, "{}", seal=seal("c2")),
        ],
        by="home/m",
    )


def edited(**changes: Any) -> Message:
    return Message.from_dict({**turn().to_dict(), **changes})


def test_an_edited_content_wins_and_only_its_seal_goes() -> None:
    now = edited(content="two")
    assert now.parts == (turn().parts[0], Text("two"), *turn().parts[2:])


def test_an_edited_reasoning_wins_and_only_its_seal_goes() -> None:
    assert edited(reasoning="ah").parts == (Reasoning("ah"), *turn().parts[1:])
    assert edited(reasoning=None).parts == edited(reasoning="").parts == turn().parts[1:]


def test_an_edited_call_wins() -> None:
    said = copy.deepcopy(turn().to_dict()["tool_calls"])
    said[0]["function"]["arguments"] = '{"a": 2}'
    now = edited(tool_calls=said)
    assert [(c.id, c.arguments) for c in now.tool_calls] == [("1", {"a": 2}), ("2", {})]
    assert now.tool_calls[0].seal is None
    assert now.parts[:2] == turn().parts[:2]
    assert edited(tool_calls=None).tool_calls == edited(tool_calls=[]).tool_calls == []


def test_a_call_that_was_not_edited_keeps_its_seal() -> None:
    said = copy.deepcopy(turn().to_dict()["tool_calls"])
    said[0]["function"]["arguments"] = '{"a": 2}'
    assert edited(tool_calls=said).tool_calls[1] == turn().tool_calls[1]
    assert edited(tool_calls=said[1:]).tool_calls == turn().tool_calls[1:]


def test_a_block_that_no_flat_key_says_survives_an_edit() -> None:
    block = Opaque({"type": "server_tool"}, seal())
    said = Message("assistant", [Text("one"), block], by="home/m").to_dict()
    assert Message.from_dict({**said, "content": "two"}).parts == (Text("two"), block)


def test_the_other_results_survive_the_edit_of_the_first() -> None:
    said = Message("tool", [ToolResult("1", "a"), ToolResult("2", "b")]).to_dict()
    now = Message.from_dict({**said, "content": "c"})
    assert now.parts == (ToolResult("1", "c"), ToolResult("2", "b"))


@each("change", [{"tool_call_id": "9"}, {"name": "g"}, {"error": True}])
def test_any_flat_key_of_a_result_that_was_edited_wins(change: Json) -> None:
    said = Message("tool", [ToolResult("1", "", "f", seal=seal())]).to_dict()
    said.pop("content", None)
    now = Message.from_dict({**said, **change})
    assert {**now.to_dict(), **change} == now.to_dict()


@times(80)
@given(messages, st.sampled_from(["content", "reasoning", "tool_calls"]), st.sampled_from(["other", None]))
def test_an_edited_flat_key_says_what_it_was_edited_to(message: Message, key: str, value: str | None) -> None:
    message = msgspec.structs.replace(message, role="assistant")
    change: Any = value
    if key == "tool_calls" and value is not None:
        change = [{"id": "9", "type": "function", "function": {"name": "new", "arguments": "{}"}}]
    now = Message.from_dict({**message.to_dict(), key: change})
    if key == "content":
        assert now.text == (value or "")
    elif key == "reasoning":
        assert now.reasoning == (value or "")
    else:
        assert [c.name for c in now.tool_calls] == ([] if value is None else ["new"])
    for kind, name in ((Reasoning, "reasoning"), (ToolCall, "tool_calls"), (Text, "content"), (Media, "content")):
        if name != key:  # what was not touched is as it was, seals and all
            assert [p for p in now.parts if type(p) is kind] == [p for p in message.parts if type(p) is kind]
    assert (now.by, now.extra, now.role) == (message.by, message.extra, message.role)


# ── what callers write ───────────────────────────────────────────────────────

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


@each(
    "said, expected",
    lambda: [
        ({"role": "user", "content": "hi"}, [Text("hi")]),
        ({"role": "user", "content": ""}, []),
        ({"role": "assistant", "content": None}, []),
        ({"role": "assistant"}, []),
        ({"role": "user", "content": ["a", {"type": "text", "text": "b"}]}, [Text("a"), Text("b")]),
        ({"role": "user", "content": [{"type": "input_text", "text": "b"}]}, [Text("b")]),
        (
            {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
            [Text("b", None, {"cache_control": {"type": "ephemeral"}})],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x", "detail": "low"}}]},
            [Media("image", None, "http://x", None, {"detail": "low"})],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "http://x"}]},
            [Media("image", None, "http://x")],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            [Media("image/png", "AA==")],
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}]},
            [Media("audio/mp3", "AA==")],
        ),
        ({"role": "user", "content": [{"type": "new", "x": 1}]}, [Opaque({"type": "new", "x": 1})]),
        ({"role": "assistant", "reasoning_content": "hm", "content": "a"}, [Reasoning("hm"), Text("a")]),
        ({"role": "assistant", "reasoning": "hm", "reasoning_content": "hm"}, [Reasoning("hm")]),
        ({"role": "assistant", "content": None, "refusal": "no"}, [Text("no")]),
        ({"role": "assistant", "tool_calls": [CALL]}, [ToolCall("1", "f", {"a": 1}, '{"a":1}')]),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": {"a": 1}}]},
            [ToolCall("1", "f", {"a": 1})],
        ),
        ({"role": "assistant", "tool_calls": [{"id": None, "function": {"name": "f"}}]}, [ToolCall("", "f", {})]),
        ({"role": "tool", "tool_call_id": "1", "name": "f", "content": "x"}, [ToolResult("1", "x", "f")]),
        (
            {"role": "tool", "tool_call_id": 7, "content": [{"type": "text", "text": "x"}, "y"]},
            [ToolResult("7", "x\n\ny")],
        ),
        ({"role": "tool", "tool_call_id": "1", "content": None}, [ToolResult("1")]),
    ],
)
def test_messages_as_others_write_them_are_understood(said: Json, expected: list[Any]) -> None:
    before = copy.deepcopy(said)
    message = Message.from_dict(said)
    assert list(message.parts) == expected
    assert said == before
    assert through_json(message) == message


@each(
    "said",
    [
        {},
        {"role": "robot", "content": "x"},
        {"role": None},
        {"role": ["user"]},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"type": "text"}},
        {"role": "user", "content": [5]},
        {"role": "assistant", "tool_calls": "f"},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": None}}]},
        {"role": "user", "parts": 5},
        {"role": "user", "parts": [{"kind": "new"}]},
    ],
)
def test_what_is_no_message_is_refused_and_counted(said: Json) -> None:
    with pytest.raises((TypeError, ValueError)):
        Message.from_dict(said)
    with pytest.raises((TypeError, ValueError), match=r"messages\[1\]"):
        as_messages(["hi", said])


@each("said", [{"by": 5}, {"by": ["p"]}, {"name": 5}, {"name": {}}])
def test_a_speaker_that_is_no_text_is_refused(plain: cnllm.Model, said: Json) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(said))):
        engine.build_request(plain, [cast(Any, {"role": "assistant", "content": "x", **said})])


@pytest.mark.parametrize("given", [5, None, [5], [None], [["a"]], [b"x"]])
def test_what_is_no_conversation_is_refused(plain: cnllm.Model, given: Any) -> None:
    with pytest.raises(TypeError):
        engine.build_request(plain, given)


@pytest.mark.parametrize("given", [[], ()])
def test_an_empty_conversation_is_refused(plain: cnllm.Model, given: Any) -> None:
    with pytest.raises(ValueError, match="messages"):
        engine.build_request(plain, given)


# ── the caller's objects ─────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def demanding(home: Home) -> list[cnllm.Model]:
    """Endpoints that make much of the messages."""
    return [
        home(),
        home(
            'messages = { system = "first", consecutive_roles = "join", first_user = true }\n'
            'tools.call_id_pattern = "[a-z]{9}"'
        ),
        home(
            'messages = { system = "user", content = "string", empty = "space" }\n'
            'reasoning = { replay = "always", replay_as = "tags", tags = ["<t>", "</t>"], if_missing = "space" }'
        ),
        home('reasoning = { replay = "always", replay_as = "details", replay_field = "rd", if_foreign = "text" }'),
        home(
            'reasoning = { replay = "since-user", replay_as = "content-parts", part = "thinking" }\n'
            'messages.fields = ["x"]'
        ),
    ]


@times(100)
@given(st.lists(messages, min_size=1, max_size=4), st.integers(0, 4), st.booleans())
def test_the_callers_messages_are_never_changed_and_always_written(
    demanding: list[cnllm.Model], said: list[Message], which: int, as_dicts: bool
) -> None:
    given: list[Any] = [m.to_dict() for m in said] if as_dicts else said
    before = copy.deepcopy(given)
    plan = engine.build_request(demanding[which], given, on_unsupported="adjust")
    assert given == before
    assert json.loads(plan.content) == json.loads(json.dumps(plan.body))
    assert engine.build_request(demanding[which], before, on_unsupported="adjust").content == plan.content
    for message in plan.body["messages"]:
        assert not {"parts", "by", "kind", "seal", "error"} & message.keys()


@times(60)
@given(st.lists(messages, min_size=1, max_size=3))
def test_a_body_may_be_changed_without_the_messages_changing(plain: cnllm.Model, said: list[Message]) -> None:
    before = msgspec.json.encode(said)
    for message in engine.build_request(plain, said, on_unsupported="adjust").body["messages"]:
        message["content"] = "changed"
        message.pop("tool_calls", None)
    assert msgspec.json.encode(said) == before


@each("data", [[""], None, 1, {}])
def test_a_sound_whose_bytes_are_no_text_is_a_block_that_nobody_knows(data: Any) -> None:
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    message = Message.from_dict({"role": "user", "content": [part]})
    assert message.parts == (Opaque(part),)
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


# ── usual forms on the chat wire ─────────────────────────────────────────────
calls_on_the_wire = st.fixed_dictionaries(
    {
        "id": words,
        "function": st.fixed_dictionaries({"name": words, "arguments": st.sampled_from(["", "{}", "[1]", "{"])}),
    },
    optional={"type": st.just("function"), "index": st.just(0), "extra_content": st.just({"google": {"a": 1}})},
)
turns_on_the_wire = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": texts}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": texts, "tool_call_id": words}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": texts, "tool_calls": st.lists(calls_on_the_wire, max_size=3)}
    ),
)


@times(100)
@given(turns_on_the_wire)
def test_a_message_of_usual_form_is_read_as_one_with_a_key_that_is_null(turn: Json) -> None:
    usual, unusual = (
        engine.decode_request("openai-chat", {"messages": [message]}).messages
        for message in (turn, turn | {"audio": None})
    )
    assert usual == unusual
