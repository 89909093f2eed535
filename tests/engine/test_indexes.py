"""Indexes that an endpoint writes as text, or counts from another number than 0, lose nothing of a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Model, StreamCut, engine

from .test_counted_once import models, read

__all__ = ["models"]

CHAT, RESPONSES, MESSAGES, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini"
TOOLS = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in "fg"]
FIRST, SECOND = '{"a":1}', '{"b":[2]}'


def choice(index: Any, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def chat_piece(index: Any, piece: str, **names: str) -> dict[str, Any]:
    names = {"id": f"c{names['name']}", **names} if names else {}
    function = {"arguments": piece, **({"name": names.pop("name")} if names else {})}
    return choice(0, tool_calls=[{"index": index, "function": function, **names}])


def interleaved(protocol: str) -> list[Any]:
    """Two calls with indexes in text, whose arguments come in turns."""
    if protocol == CHAT:
        return [
            chat_piece("0", "", name="f"),
            chat_piece("1", "", name="g"),
            *[chat_piece(index, piece) for index, piece in turns(["0", "1"])],
            choice(0, "tool_calls"),
        ]
    if protocol == MESSAGES:
        start = {"type": "message_start", "message": {"id": "m", "content": []}}
        delta = {"type": "input_json_delta"}
        return [
            start,
            *[
                {"type": "content_block_start", "index": str(at), "content_block": block}
                for at, block in enumerate({"type": "tool_use", "id": f"c{n}", "name": n, "input": {}} for n in "fg")
            ],
            *[
                {"type": "content_block_delta", "index": index, "delta": {**delta, "partial_json": piece}}
                for index, piece in turns(["0", "1"])
            ],
            *[{"type": "content_block_stop", "index": str(index)} for index in range(2)],
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    items = [{"type": "function_call", "id": f"i{n}", "call_id": f"c{n}", "name": n} for n in "fg"]
    arguments = [FIRST, SECOND]
    return [
        *[
            {"type": "response.output_item.added", "output_index": str(at), "item": {**item, "arguments": ""}}
            for at, item in enumerate(items)
        ],
        *[
            {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
            for index, piece in turns(["0", "1"])
        ],
        *[
            {"type": "response.output_item.done", "output_index": str(at), "item": {**item, "arguments": arguments[at]}}
            for at, item in enumerate(items)
        ],
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]


def turns(indexes: list[Any]) -> list[tuple[Any, str]]:
    return [(indexes[0], FIRST[:4]), (indexes[1], SECOND[:5]), (indexes[0], FIRST[4:]), (indexes[1], SECOND[5:])]


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES, RESPONSES])
def test_pieces_of_two_calls_with_indexes_in_text_come_to_their_own_call(
    models: dict[str, Model], protocol: str
) -> None:
    reply = read(models[protocol], interleaved(protocol), tools=TOOLS)
    assert [(call.name, call.raw) for call in reply.tool_calls] == [("f", FIRST), ("g", SECOND)]
    assert not reply.incomplete


@pytest.mark.parametrize("begins", ["", "{}", SECOND[:2]])
@pytest.mark.parametrize("id", [{}, {"id": "cg"}])
def test_a_piece_without_a_name_at_a_new_index_goes_on_with_the_open_call(
    models: dict[str, Model], begins: str, id: dict[str, str]
) -> None:
    rest = SECOND.removeprefix(begins)
    tail = [
        choice(0, tool_calls=[{"index": 1, "function": {"arguments": piece}, **id}]) for piece in (rest[:4], rest[4:])
    ]
    chunks = [chat_piece(0, FIRST, name="f"), chat_piece(0, begins, name="g"), *tail, choice(0, "tool_calls")]
    reply = read(models[CHAT], chunks, tools=TOOLS)
    assert [(call.name, call.raw) for call in reply.tool_calls] == [("f", FIRST), ("g", SECOND)]
    assert not reply.incomplete


def test_an_index_that_is_text_in_some_chunks_only_is_the_same_index(models: dict[str, Model]) -> None:
    chunks = [chat_piece("0", FIRST[:4], name="f"), chat_piece(0, FIRST[4:]), choice(0, "tool_calls")]
    reply = read(models[CHAT], chunks, tools=TOOLS)
    assert [(call.name, call.raw) for call in reply.tool_calls] == [("f", FIRST)]


def test_a_choice_with_its_index_in_text_is_the_reply(models: dict[str, Model]) -> None:
    assert read(models[CHAT], [choice("0", content="Hello"), choice("0", "stop")]).text == "Hello"
    assert read(models[GEMINI], [{"candidates": [candidate("0", "Hello")]}]).text == "Hello"


@pytest.mark.parametrize("index", [1, "0", "1", 7])
def test_the_only_choice_of_a_body_is_the_reply_whatever_its_index(models: dict[str, Model], index: Any) -> None:
    message = {"index": index, "message": {"content": "Hello"}, "finish_reason": "stop"}
    bodies: dict[str, Any] = {CHAT: {"choices": [message]}, GEMINI: {"candidates": [candidate(index, "Hello")]}}
    for protocol, body in bodies.items():
        reply = engine.parse_response(models[protocol], 200, {}, json.dumps(body).encode())
        assert (reply.text, reply.finish) == ("Hello", "stop")
        assert "choice-dropped" not in [note.code for note in reply.notes]


@pytest.mark.parametrize("index", [1, "1", 7])
def test_the_only_choice_of_a_stream_is_the_reply_whatever_its_index(models: dict[str, Model], index: Any) -> None:
    chat = [choice(index, content="Hel"), choice(8, content="another"), choice(index, content="lo")]
    gemini = [{"candidates": [{**candidate(index, text), "finishReason": None}]} for text in ("Hel", "lo")]
    for protocol, stream in (
        (CHAT, [{"id": "x", "choices": []}, *chat, choice(index, "stop")]),
        (GEMINI, [*gemini, {"candidates": [candidate(index, "")]}]),
    ):
        for size in (0, 1):
            reply = read(models[protocol], stream, size)
            assert (reply.text, reply.finish) == ("Hello", "stop")
            left_out = [note.said for note in reply.notes if note.code == "choice-dropped"]
            assert left_out == (["choice 8"] if protocol == CHAT else [])
    with pytest.raises(StreamCut) as caught:
        read(models[GEMINI], gemini)
    assert caught.value.reply is not None
    assert caught.value.reply.text == "Hello"


def test_the_choice_with_the_usual_index_is_the_reply_although_another_came_first(models: dict[str, Model]) -> None:
    chunks = [choice(1, content="B"), choice(0, content="A"), choice(1, "stop"), choice(0, "stop")]
    reply = read(models[CHAT], chunks)
    assert (reply.text, reply.finish) == ("A", "stop")
    assert [note.said for note in reply.notes if note.code == "choice-dropped"] == ["choice 1"]


def test_a_candidate_without_an_index_is_no_other_one(models: dict[str, Model]) -> None:
    chunks = [{"candidates": [candidate(index, text)]} for index, text in ((1, "B"), (None, "A"), (1, "b"))]
    assert read(models[GEMINI], chunks).text == "A"
    assert read(models[GEMINI], [chunks[1]]).text == "A"


def candidate(index: Any, text: str) -> dict[str, Any]:
    return {"content": {"parts": [{"text": text}]}, "finishReason": "STOP", "index": index}
