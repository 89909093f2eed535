"""Events that are missing, doubled or out of their order: no call gets another's arguments, and no end is invented."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from client.peer import DONE, delta, frame
from client.support import registry

import cnllm
from cnllm import Reply, engine

from .streams import named

CHAT, MESSAGES, RESPONSES = "openai-chat", "anthropic-messages", "openai-responses"
Called = list[tuple[str, dict[str, Any] | None]]


def read(protocol: str, *events: bytes) -> Reply:
    parser = engine.StreamParser(
        registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=protocol)
    )
    parser.feed(b"".join(events))
    return parser.close()


def called(reply: Reply) -> Called:
    return [(call.name, call.arguments) for call in reply.tool_calls]


# ── framing ──────────────────────────────────────────────────────────────────


@each("name", ["data: ", "data:", "data: data: "])
@each("end", ["\n\n", "\ndata:\ndata:\n\n", "\r\n\r\n"])
@each("which", ["all", "one"])
def test_the_name_of_the_field_may_stand_twice_before_the_data(name: str, end: str, which: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    events = [delta(content="Hel"), delta(content="lo"), delta(tool_calls=[call]), delta(finish="tool_calls"), DONE]
    for at, event in enumerate(events):
        if which == "all" or at == 1:
            events[at] = f"data: {name}{event.decode().removeprefix('data:').strip()}{end}".encode()
    content = b"".join(events)
    model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
    for size in (len(content), 1, 7):
        parser = engine.StreamParser(model)
        for start in range(0, len(content), size):
            parser.feed(content[start : start + size])
        reply = parser.close()
        assert (reply.text, reply.finish, called(reply)) == ("Hello", "tool_calls", [("f", {"a": 1})])
        assert "unreadable-chunk" not in [note.code for note in reply.notes]


def test_the_name_of_the_field_alone_and_many_of_them_are_no_data() -> None:
    for odd in (b"data: data:", b"data: " + b"data: " * 50_000, b"data: data: half a sentence"):
        reply = read(CHAT, delta(content="Hello"), odd + b"\n\n", delta(finish="stop"), DONE)
        assert (reply.text, reply.finish) == ("Hello", "stop")


# ── messages ─────────────────────────────────────────────────────────────────

BEGIN = named(type="message_start", message={"id": "m", "role": "assistant", "model": "m", "content": []})
STOP = named(type="message_stop")
END = named(type="message_delta", delta={"stop_reason": "tool_use"}) + STOP


def tool(index: int, name: str) -> bytes:
    block = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
    return named(type="content_block_start", index=index, content_block=block)


def text(index: int, said: str | None = None) -> bytes:
    if said is None:
        return named(type="content_block_start", index=index, content_block={"type": "text", "text": ""})
    return named(type="content_block_delta", index=index, delta={"type": "text_delta", "text": said})


def json_of(index: int, piece: str) -> bytes:
    return named(type="content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})


def stop(index: int) -> bytes:
    return named(type="content_block_stop", index=index)


BOTH: Called = [("f", {"a": 1}), ("g", {"b": 2})]


@each(
    "events, expected",
    [
        ([tool(0, "f"), tool(1, "g"), json_of(0, '{"a":1}'), json_of(1, '{"b":2}'), stop(0), stop(1)], BOTH),
        (
            [
                tool(0, "f"),
                json_of(0, '{"a"'),
                tool(1, "g"),
                json_of(1, '{"b":2}'),
                stop(1),
                json_of(0, ":1}"),
                stop(0),
            ],
            BOTH,
        ),
        ([text(0), tool(1, "g"), text(0, "Yes."), json_of(1, '{"b":2}'), stop(0), stop(1)], BOTH[1:]),
        ([tool(0, "f"), json_of(0, '{"a"'), stop(0), json_of(0, ":1}")], BOTH[:1]),
    ],
)
def test_a_piece_goes_to_the_block_of_its_index(events: list[bytes], expected: Called) -> None:
    reply = read(MESSAGES, BEGIN, *events, END)
    assert (called(reply), reply.incomplete) == (expected, [])


def test_arguments_of_a_call_without_a_beginning_are_incomplete() -> None:
    reply = read(MESSAGES, BEGIN, tool(0, "f"), json_of(0, '{"a":1}'), stop(0), json_of(1, '{"b":2}'), stop(1), END)
    assert called(reply) == BOTH[:1]
    assert [call.raw for call in reply.incomplete] == ['{"b":2}']


def test_a_message_without_a_reason_whose_block_has_no_end_is_cut() -> None:
    with pytest.raises(cnllm.StreamCut):
        read(MESSAGES, BEGIN, text(0), text(0, "The sk"), STOP)
    assert read(MESSAGES, BEGIN, text(0), text(0, "The sky."), stop(0), STOP).finish == "stop"


def thinking(index: int) -> bytes:
    block = {"type": "thinking", "thinking": "", "signature": ""}
    delta = {"type": "thinking_delta", "thinking": "Hm."}
    begin = named(type="content_block_start", index=index, content_block=block)
    return begin + named(type="content_block_delta", index=index, delta=delta)


def signature(index: int, piece: str) -> bytes:
    return named(type="content_block_delta", index=index, delta={"type": "signature_delta", "signature": piece})


@each(
    "events",
    [
        [signature(0, "c2ln"), stop(0), text(1), text(1, "Yes.")],
        [stop(0), signature(0, "c2ln"), text(1), text(1, "Yes.")],
        [stop(0), text(1), signature(0, "c2ln"), text(1, "Yes.")],
        [signature(0, "c2"), text(1), text(1, "Yes."), signature(0, "ln"), stop(0)],
        [stop(0), text(1), text(1, "Yes."), stop(1), signature(0, "c2ln")],
        [stop(0), text(1), text(1, "Yes."), tool(2, "f"), signature(0, "c2ln"), json_of(2, "{}"), stop(2)],
    ],
)
def test_a_signature_goes_to_the_block_of_its_index_though_it_comes_late(events: list[bytes]) -> None:
    thought, said, *_ = read(MESSAGES, BEGIN, thinking(0), *events, END).message.parts
    assert (type(thought), type(said)) == (cnllm.Reasoning, cnllm.Text)
    assert thought.seal is not None
    assert (thought.seal.data, said.seal) == ({"signature": "c2ln"}, None)


# ── chat ─────────────────────────────────────────────────────────────────────


@each("place", [{"index": 0}, {}])
def test_an_id_that_changes_with_each_piece_begins_no_call(place: dict[str, Any]) -> None:
    def piece(number: int, **function: str) -> bytes:
        return delta(tool_calls=[{**place, "id": f"c{number}", "type": "function", "function": function}])

    pieces = [piece(0, name="f", arguments=""), piece(1, arguments='{"a"'), piece(2, arguments=":1}")]
    reply = read(CHAT, *pieces, delta(finish="tool_calls"), DONE)
    assert ([(c.id, c.name, c.arguments) for c in reply.tool_calls], reply.incomplete) == ([("c0", "f", {"a": 1})], [])


# ── responses ────────────────────────────────────────────────────────────────

PLACE = {"item_id": "i", "output_index": 0, "content_index": 0}


def pieces(*texts: str) -> list[bytes]:
    return [named(type="response.output_text.delta", delta=text, **PLACE) for text in texts]


def message(text: str) -> dict[str, Any]:
    return {**ITEM, "content": [{"type": "output_text", "text": text}]}


def ends(text: str) -> list[list[bytes]]:
    """Return the events that may repeat the whole text."""
    last = {"id": "r", "status": "completed", "output": []}
    return [
        [named(type="response.output_text.done", text=text, **PLACE), named(type="response.completed", response=last)],
        [
            named(type="response.output_item.done", output_index=0, item=message(text)),
            named(type="response.completed", response=last),
        ],
        [named(type="response.completed", response={**last, "output": [message(text)]})],
    ]


@each("end", [0, 1, 2])
def test_what_the_pieces_of_a_text_lack_of_the_whole_is_not_lost(end: int) -> None:
    assert read(RESPONSES, *pieces("Yes, ", "it"), *ends("Yes, it is.")[end]).text == "Yes, it is."
    with pytest.raises(cnllm.StreamCut) as caught:
        read(RESPONSES, *pieces("Yes, ", "is."), *ends("Yes, it is.")[end])
    assert caught.value.reply is not None
    assert "text-differs" in [note.code for note in caught.value.reply.notes]
    rewritten = read(RESPONSES, *pieces("Yes [1].", " No [2]."), *ends("Yes [1](u). No [2](v).")[end])
    assert (rewritten.finish, rewritten.text) == ("stop", "Yes [1]. No [2].")
    assert "text-differs" in [note.code for note in rewritten.notes]
    plain = read(RESPONSES, *pieces("Yes, ", "it is. "), *ends("Yes, it is.")[end])
    assert (plain.text, "text-differs" in [note.code for note in plain.notes]) == ("Yes, it is. ", False)


@each("end", [0, 1, 2])
@each(
    "texts",
    [("</think>", "Hello", " world."), ("Hello", " world.", "</think>"), ("Hel", "lo </tool_call>")],
)
def test_a_stray_tag_that_was_taken_out_is_not_a_piece_that_is_missing(texts: tuple[str, ...], end: int) -> None:
    streamed, whole = (read(RESPONSES, *sent, *ends("".join(texts))[end]) for sent in (pieces(*texts), []))
    assert (streamed.finish, streamed.text) == (whole.finish, whole.text)
    codes = {note.code for note in streamed.notes}
    assert codes == {note.code for note in whole.notes}
    assert "tag-stripped" in codes or "text-call-stripped" in codes


@each("whole, is_certain", [('{"a": 1}', True), ('{"a":2}', False), ("{}", True), ("", True)])
def test_a_call_of_which_two_versions_came_is_not_executed(whole: str, is_certain: bool) -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f"}
    reply = read(
        RESPONSES,
        named(type="response.output_item.added", output_index=0, item={**item, "arguments": ""}),
        named(type="response.function_call_arguments.delta", item_id="i", output_index=0, delta='{"a":1}'),
        named(type="response.output_item.done", output_index=0, item={**item, "arguments": whole}),
        named(type="response.completed", response={"id": "r", "status": "completed", "output": []}),
    )
    assert (called(reply), len(reply.incomplete)) == ((BOTH[:1], 0) if is_certain else ([], 1))


ITEM = {"type": "message", "id": "i", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}


@each("status", [{"status": "completed"}, {}])
@each("reason, finish", [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("other", "length")])
def test_a_reply_with_a_reason_why_it_is_incomplete_is_not_whole(
    status: dict[str, str], reason: str, finish: str
) -> None:
    response = {"id": "r", "output": [ITEM], "incomplete_details": {"reason": reason}, **status}
    ended = read(RESPONSES, named(type="response.completed", response=response))
    assert ended.finish == finish
    assert read(RESPONSES, frame(response).removeprefix(b"data: ")).finish == finish


@each("word, finish", [("length", "length"), ("content_filter", "content_filter")])
def test_the_word_of_another_wire_does_not_make_a_reply_whole(word: str, finish: str) -> None:
    block = {"type": "text", "text": "The sk"}
    body = {"type": "message", "role": "assistant", "content": [block], "stop_reason": word}
    ended = named(type="message_delta", delta={"stop_reason": word}) + STOP
    assert read(MESSAGES, BEGIN, text(0), text(0, "The sk"), stop(0), ended).finish == finish
    assert read(MESSAGES, frame(body).removeprefix(b"data: ")).finish == finish
    candidate = {"content": {"parts": [{"text": "The sk"}]}, "finishReason": word}
    assert read("gemini", frame({"candidates": [candidate]}).removeprefix(b"data: ")).finish == finish


@each("word", ["max_output_tokens", "incomplete"])
def test_a_chat_reply_with_a_word_of_responses_was_cut_short(word: str) -> None:
    assert read(CHAT, delta(content="The sk"), delta(finish=word), DONE).finish == "length"


# ── an item whose end lacks what only the whole reply has ────────────────────


def written(said: str | None, *sources: dict[str, Any]) -> dict[str, Any]:
    content = [] if said is None else [{"type": "output_text", "text": said, "annotations": list(sources)}]
    return {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": content}


def function_call(arguments: str, name: str = "f") -> dict[str, Any]:
    return {"type": "function_call", "id": "i", "call_id": "c", "name": name, "arguments": arguments}


def versions(done: dict[str, Any], whole: dict[str, Any], *before: bytes) -> Reply:
    """A stream in which an item ends as one version, and stands in the whole reply as another."""
    end = named(type="response.output_item.done", output_index=0, item=done)
    response = {"id": "r", "status": "completed", "output": [whole]}
    return read(RESPONSES, *before, end, named(type="response.completed", response=response))


@each("done", [None, "", "Hello"])
@each("pieces", [0, 1])
def test_a_text_that_only_the_whole_reply_has_is_not_lost(done: str | None, pieces: int) -> None:
    delta = named(type="response.output_text.delta", **PLACE, delta="Hello")
    assert versions(written(done), written("Hello world."), *[delta] * pieces).text == "Hello world."


def test_a_source_that_only_the_whole_reply_has_is_not_lost() -> None:
    source = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}
    for done, whole in (([], [source]), ([source], [source]), ([source], [])):
        [citation] = versions(written("Hello", *done), written("Hello", *whole)).citations
        assert (citation.url, citation.start, citation.end) == ("https://a.example", 0, 5)


@each("empty", [{}, {"encrypted_content": None}, {"encrypted_content": ""}])
def test_a_seal_that_only_the_whole_reply_has_is_not_lost(empty: dict[str, Any]) -> None:
    item = {"type": "reasoning", "id": "i", "summary": [{"type": "summary_text", "text": "Hm."}]}
    [thought] = versions({**item, **empty}, {**item, "encrypted_content": "E"}).message.parts
    assert type(thought) is cnllm.Reasoning
    assert (thought.text, thought.seal and thought.seal.data["encrypted_content"]) == ("Hm.", "E")


@each(
    "done, whole, expected",
    [
        (function_call(""), function_call('{"a":1}'), BOTH[:1]),
        (function_call('{"a":1}', ""), function_call('{"a":1}'), BOTH[:1]),
        (function_call('{"a":1}'), function_call(""), BOTH[:1]),
        (function_call('{"a":1}'), function_call('{"a": 1}'), BOTH[:1]),
        (function_call("{}"), function_call('{"a":1}'), []),
        (function_call('{"a":1}'), function_call('{"a":2}'), []),
    ],
)
def test_a_call_whose_end_and_whole_differ_is_not_executed(
    done: dict[str, Any], whole: dict[str, Any], expected: Called
) -> None:
    reply = versions(done, whole)
    assert (called(reply), len(reply.incomplete)) == (expected, 0 if expected else 1)
