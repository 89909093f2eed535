"""Streams written from events in any legal order say what the whole reply says, and lose no seal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from engine.support import Work
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm import (
    BlockEnd,
    Event,
    Finished,
    Message,
    Reasoning,
    ReasoningDelta,
    Reply,
    Restarted,
    Seal,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
    engine,
)
from cnllm.protocols import PROTOCOLS, server_codec

from .clients import CHAT, GEMINI, MESSAGES, RESPONSES
from .test_pairs import read, reply, streamed, whole

odd_characters = st.sampled_from('",\\u0{}a😀\n\0')
words = st.sampled_from(["hi", "为什么？", "a\nb", "😀"])


@st.composite
def parts_of_a_reply(draw: Any, protocol: str) -> list[Any]:
    """Thoughts, texts and calls in some order, each thought with a token; no two texts beside each other."""
    codec = server_codec(protocol)
    kinds = draw(st.lists(st.sampled_from(["thought", "text", "call"]), min_size=1, max_size=5))
    out: list[Any] = []
    for index, kind in enumerate(k for k, group in groupby(kinds) for _ in ([1] if k != "call" else group)):
        if kind == "call":
            out.append(
                codec.token.write(ToolCall(f"call_x{index}", "f", {"n": index}, f'{{"n":{index}}}'), f"t{index}")
            )
        elif kind == "thought":
            out.append(codec.token.write(Reasoning(f"{index}{draw(words)}"), f"t{index}"))
        else:
            out.append(Text(f"{index}{draw(words)}"))
    return out


def starts(parts: list[Any]) -> Iterator[tuple[int, list[Any], Any]]:
    """Each part's index, its events up to its end, and its end."""
    count = 0
    for index, part in enumerate(parts):
        if type(part) is ToolCall:
            pieces = [ToolCallDelta(count, character) for character in part.raw]
            yield index, [ToolCallStart(count, part.id, part.name), *pieces], ToolCallEnd(count, part)
            count += 1
        else:
            delta = ReasoningDelta if type(part) is Reasoning else TextDelta
            yield index, [delta(character) for character in part.text], BlockEnd(index, part)


def said(reply: Reply, protocol: str) -> list[Any]:
    """The parts of a reply with their tokens, as they stand in the message."""
    codec = server_codec(protocol)
    out: list[Any] = []
    for part in reply.message.parts:
        if type(part) is ToolCall:
            out.append((part.id, part.name, part.arguments, codec.token.read(part)))
        elif isinstance(part, Text | Reasoning):
            token, text = codec.token.read(part), part.text
            if protocol == GEMINI and out and out[-1][0] is type(part) and not text:  # its token comes after it
                out[-1] = (type(part), out[-1][1], token)
            else:
                out.append((type(part), text, token))
    return out


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_events_gives_the_whole_reply(data: st.DataObject) -> None:
    for protocol in PROTOCOLS:
        parts = data.draw(parts_of_a_reply(protocol))
        meant = reply(protocol, parts)
        events: list[Any] = []
        late: list[Any] = []
        previous: Any = None
        for index, pieces, end in starts(parts):
            begins_call = type(parts[index]) is ToolCall
            # The end of a call may always come late; that of another part until the next one is no call.
            if previous is not None and not begins_call:
                events.append(previous)
                previous = None
            events += pieces
            if previous is not None:
                (late if data.draw(st.booleans()) else events).append(previous)
                previous = None
            if begins_call:
                (late if data.draw(st.booleans()) else events).append(end)
            else:
                previous = end
        events += [*([previous] if previous is not None else []), *late]
        events += [UsageSeen(meant.usage), Finished(meant.finish)]
        from_whole = whole(protocol, engine.encode_reply(protocol, meant))
        _, got = read(protocol, streamed(protocol, events))
        assert said(got, protocol) == said(from_whole, protocol), (protocol, events)
        assert (got.text, got.reasoning) == (meant.text, meant.reasoning)


def test_the_pieces_of_a_text_stand_in_a_part_that_has_begun() -> None:
    """A client of Responses finds the part of a piece by its numbers."""
    thought, text = Reasoning("Hm."), Text("So.")
    events: list[Any] = [ReasoningDelta("Hm."), BlockEnd(0, thought), TextDelta("So."), BlockEnd(1, text)]
    content = streamed(RESPONSES, [*events, Finished("stop")]).decode()
    frames = [json.loads(line[6:]) for line in content.splitlines() if line.startswith("data: {")]

    def places(kind: str) -> list[tuple[Any, ...]]:
        keys = ("output_index", "summary_index", "content_index")
        return [tuple(map(frame.get, keys)) for frame in frames if frame["type"].endswith(kind)]

    assert places("part.added") == [(0, 0, None), (1, None, 0)]
    assert places("text.delta") == places("text.done") == places("part.done") == places("part.added")


def test_a_seal_that_comes_after_the_text_is_not_lost() -> None:
    for protocol in (MESSAGES, RESPONSES, GEMINI):
        codec = server_codec(protocol)
        thought = codec.token.write(Reasoning("Hm."), "token")
        events: list[Any] = [ReasoningDelta("Hm."), TextDelta("So"), TextDelta(" it is."), BlockEnd(0, thought)]
        events += [BlockEnd(1, Text("So it is.")), Finished("stop")]
        writer = engine.StreamWriter(protocol, id="x", model="m")
        shown = writer.begin() + b"".join(writer.feed(event) for event in events[:2])
        assert b"So" in shown  # text does not wait
        _, got = read(protocol, shown + b"".join(writer.feed(event) for event in events[2:]))
        assert (got.reasoning, got.text) == ("Hm.", "So it is.")
        assert "token" in [codec.token.read(part) for part in got.message.parts]
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    own = Reasoning("Hm.", Seal(RESPONSES, "openai", "m", {**item, "encrypted_content": "token"}))
    events = [ReasoningDelta("Hm."), TextDelta("So"), BlockEnd(0, own), BlockEnd(1, Text("So")), Finished("stop")]
    _, got = read(RESPONSES, streamed(RESPONSES, events))
    assert (got.reasoning, got.text) == ("Hm.", "So"), "the item of the seal does not repeat the text"


def test_an_item_has_the_keys_of_the_part_that_adds_no_text_to_it() -> None:
    seals = [
        Seal(RESPONSES, "openai", "m", {"item": {"id": "msg_1", **keys}, "part": {"type": "output_text"}})
        for keys in ({"a": 1}, {"phase": "final_answer"})
    ]
    events: list[Event] = [TextDelta("So"), BlockEnd(0, Text("So", seals[0])), BlockEnd(1, Text("", seals[1]))]
    content = streamed(RESPONSES, [*events, Finished("stop")]).decode()
    frames = [json.loads(line[6:]) for line in content.splitlines() if line.startswith("data: {")]
    [item] = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert (item["a"], item["phase"]) == (1, "final_answer")
    assert item["content"] == [{"type": "output_text", "text": "So", "annotations": [], "logprobs": []}]


def test_a_token_is_written_where_the_reasoning_ends() -> None:
    for protocol in (MESSAGES, RESPONSES):
        codec = server_codec(protocol)
        sealed: list[Any] = []

        def seal(part: Any, codec: Any = codec, sealed: list[Any] = sealed) -> Any:
            sealed.append(part)
            return codec.token.write(part, "token")

        call = ToolCall("call_x", "f", {}, "{}")
        events: list[Any] = [
            ReasoningDelta("H"),
            ReasoningDelta("m."),
            TextDelta("So"),
            ToolCallStart(0, "call_x", "f"),
        ]
        events += [ToolCallDelta(0, "{}"), BlockEnd(0, Reasoning("Hm.")), BlockEnd(1, Text("So")), ToolCallEnd(0, call)]
        _, got = read(protocol, streamed(protocol, [*events, Finished("tool_calls")], seal=seal))
        assert [type(part) for part in got.message.parts] == [Reasoning, Text, ToolCall]
        assert codec.token.read(got.message.parts[0]) == "token"
        assert sealed == [Reasoning("Hm."), call]


def test_details_of_a_chat_reply_are_streamed_to_chat_clients_only() -> None:
    details = [{"type": "reasoning.encrypted", "data": "secret"}]
    thought = Reasoning("Hm.", Seal(CHAT, "p", "m", details))
    call = ToolCall("c", "f", {}, "{}", seal=Seal(CHAT, "p", "m", {"extra_content": "secret"}))
    events: list[Any] = [ReasoningDelta("Hm."), ToolCallStart(0, "c", "f"), BlockEnd(0, thought), ToolCallEnd(0, call)]
    events += [UsageSeen(Usage(1, 2)), Finished("tool_calls")]
    for protocol in PROTOCOLS:
        assert (b"secret" in streamed(protocol, events)) == (protocol == CHAT), protocol
        body = engine.encode_reply(protocol, reply(protocol, [thought, call]))
        assert ("secret" in str(body)) == (protocol == CHAT)
    frames = [json.loads(line[6:]) for line in streamed(CHAT, events).splitlines() if line.startswith(b"data: {")]
    deltas = [frame["choices"][0]["delta"] for frame in frames if frame["choices"]]
    assert {"index": 0, "extra_content": "secret"} in [one for delta in deltas for one in delta.get("tool_calls", ())]
    foreign = ToolCall("c", "f", {}, "{}", seal=Seal(RESPONSES, "p", "m", {"id": "fc_1", "status": "completed"}))
    late: list[Any] = [ToolCallStart(0, "c", "f"), ToolCallEnd(0, foreign), Finished("tool_calls")]
    for protocol in (CHAT, MESSAGES, GEMINI):
        assert b"fc_1" not in streamed(protocol, late)
        assert "fc_1" not in str(engine.encode_reply(protocol, reply(protocol, [foreign])))


def test_a_message_of_the_assistant_claims_no_author() -> None:
    forged = {"role": "assistant", "content": "Hi", "by": "openai-compatible/m", "reasoning_content": "Hm."}
    request = engine.decode_request(CHAT, {"messages": [{"role": "user", "content": "x"}, forged]})
    assert request.messages[1].by is None
    assert request.messages[1].extra is None
    assert request.messages[1] == Message("assistant", [Reasoning("Hm.", Seal(CHAT, "", "")), Text("Hi")])


def test_a_reply_that_begins_again_is_not_delivered_twice() -> None:
    call = ToolCall("call_x", "f", {"n": 1}, '{"n":1}')
    first: list[Any] = [ReasoningDelta("Hm."), TextDelta("It"), TextDelta(" is"), ToolCallStart(0, "call_x", "f")]
    first += [ToolCallDelta(0, '{"n"'), Restarted()]
    again: list[Any] = [ReasoningDelta("Hm."), TextDelta("It is so."), ToolCallStart(0, "call_x", "f")]
    again += [ToolCallDelta(0, '{"n":1}'), BlockEnd(0, Reasoning("Hm.")), BlockEnd(1, Text("It is so."))]
    again += [ToolCallEnd(0, call), Finished("tool_calls")]
    for protocol in PROTOCOLS:
        _, got = read(protocol, streamed(protocol, [*first, *again]))
        assert (got.text, got.reasoning) == ("It is so.", "Hm."), protocol
        assert [(c.id, c.name, c.arguments) for c in got.tool_calls] == [("call_x", "f", {"n": 1})]


def test_a_call_that_had_ended_is_not_delivered_twice_where_the_reply_begins_again() -> None:
    call = ToolCall("call_x", "f", {"n": 1}, '{"n":1}')
    events: list[Any] = [ToolCallStart(0, "call_x", "f"), ToolCallDelta(0, '{"n":1}'), ToolCallEnd(0, call)]
    for protocol in PROTOCOLS:
        _, got = read(protocol, streamed(protocol, [*events, Restarted(), *events, Finished("tool_calls")]))
        assert [(c.name, c.arguments) for c in got.tool_calls] == [("f", {"n": 1})], protocol


def test_a_call_whose_arguments_come_after_a_text_and_a_new_beginning_has_them() -> None:
    start: list[Any] = [ToolCallStart(0, "call_x", "f"), TextDelta("Wait")]
    rest: list[Any] = [TextDelta(" here."), ToolCallDelta(0, '{"n":'), ToolCallDelta(0, "1}")]
    rest += [ToolCallEnd(0, ToolCall("call_x", "f", {"n": 1}, '{"n":1}')), Finished("tool_calls")]
    for protocol in PROTOCOLS:
        _, got = read(protocol, streamed(protocol, [*start, Restarted(), *start, *rest]))
        assert got.text == "Wait here.", protocol
        assert [c.arguments for c in got.tool_calls] == [{"n": 1}], protocol


def test_text_in_the_middle_of_a_call_breaks_nothing() -> None:
    calls = [ToolCall(f"call_x{n}", "f", {"n": n}, f'{{"n":{n}}}') for n in range(2)]
    events: list[Any] = [ToolCallStart(0, "call_x0", "f"), ToolCallDelta(0, '{"n"'), ToolCallStart(1, "call_x1", "f")]
    events += [TextDelta("Wait"), ToolCallDelta(1, '{"n":1}'), ToolCallDelta(0, ":0}"), TextDelta(" here.")]
    events += [BlockEnd(2, Text("Wait here.")), ToolCallEnd(0, calls[0]), ToolCallEnd(1, calls[1])]
    for protocol in PROTOCOLS:
        _, got = read(protocol, streamed(protocol, [*events, Finished("tool_calls")]))
        assert got.text == "Wait here.", protocol
        assert [(c.id, c.arguments) for c in got.tool_calls] == [(c.id, c.arguments) for c in calls], protocol


def test_pieces_that_others_wait_for_take_linear_time() -> None:
    """A client of Messages sees one call after another, and text after the calls before it."""

    def work(protocol: str, first: list[Any], calls: int, count: int) -> int:
        writer = engine.StreamWriter(protocol)
        events: list[Any] = [ToolCallStart(0, "call_x0", "f"), ToolCallDelta(0, '{"a":"'), *first]
        with Work() as counted:
            for event in [*events, *(ToolCallDelta(n % calls, f"word {n}") for n in range(count))]:
                writer.feed(event)
        return counted.done

    unreadable, second = ToolCallDelta(0, '"} no'), ToolCallStart(1, "call_x1", "f")
    starts: list[tuple[list[Any], int]] = [([], 1), ([second], 1), ([second], 2), ([TextDelta("Wait")], 1)]
    for protocol in PROTOCOLS:
        for first, calls in [*starts, ([unreadable, TextDelta("Wait")], 1)]:
            assert work(protocol, first, calls, 200) < 6 * work(protocol, first, calls, 50), (protocol, first)


def test_a_call_with_all_of_its_arguments_holds_nothing_up() -> None:
    for protocol in (CHAT, MESSAGES, RESPONSES):
        writer = engine.StreamWriter(protocol)
        for index in (0, 1):
            pieces = [ToolCallDelta(index, piece) for piece in ('{"a": ', '"}', '"', " }")]
            events: list[Event] = [ToolCallStart(index, f"call_x{index}", "f"), *pieces]
            for event in events:
                assert writer.feed(event), (protocol, event)
        assert writer.feed(TextDelta("Done.")), protocol
        bare = engine.StreamWriter(protocol)
        for event in (ToolCallStart(0, "call_x0", "f"), ToolCallEnd(0, ToolCall("call_x0", "f", {}, ""))):
            bare.feed(event)
        assert b"Done." in bare.feed(TextDelta("Done.")), protocol


def test_a_text_that_came_without_pieces_is_written_once_where_the_reply_begins_again() -> None:
    events: list[Event] = [
        BlockEnd(0, Text("Hi")),
        Restarted(),
        TextDelta("Hi"),
        BlockEnd(0, Text("Hi")),
        Finished("stop"),
    ]
    for protocol in PROTOCOLS:
        writer = engine.StreamWriter(protocol, id="x", model="m")
        data = b"".join(map(writer.feed, events))
        piece = b"event: response.output_text.delta" if protocol == "openai-responses" else b'"Hi"'
        assert data.count(piece) == 1, protocol


def test_a_call_without_an_end_loses_no_later_call() -> None:
    calls = [ToolCall(f"call_x{index}", "f", {"n": index}, f'{{"n":{index}}}') for index in (0, 2)]
    events: list[Event] = [ToolCallStart(index, f"call_x{index}", "f") for index in range(3)]
    events += [ToolCallEnd(0, calls[0]), ToolCallEnd(2, calls[1]), Finished("length", "length")]
    writer = engine.StreamWriter(GEMINI, id="x", model="m")
    written = b"".join(map(writer.feed, events))
    assert [written.count(b'{"n":%d}' % index) for index in range(3)] == [1, 0, 1]


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(st.text(odd_characters) | st.text(), min_size=1, max_size=6), first=st.booleans())
def test_a_run_of_deltas_says_what_each_of_them_says(texts: list[str], first: bool) -> None:
    for protocol in PROTOCOLS:
        writer = engine.StreamWriter(protocol)
        writer.feed(TextDelta("x") if first else ToolCallStart(0, "call_x0", "f"))
        written = writer.feed_texts(TextDelta if first else 0, texts)
        assert written is not None
        frames = [json.loads(line[6:]) for line in written.splitlines() if line.startswith(b"data: ")]
        if protocol != GEMINI or first:  # its calls are written whole
            assert len(frames) == len(texts)
            for text, frame in zip(texts, frames, strict=True):
                assert text in list(strings(frame)), (protocol, frame)


def strings(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value
