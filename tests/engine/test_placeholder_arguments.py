"""An empty object that an endpoint sends ahead of the arguments of a call is none of its arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cnllm import Model, StreamCut, ToolCallDelta, ToolCallStart, engine

from .test_counted_once import STOP, chunk, frames, models

__all__ = ["models"]

TOOLS = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in "fg"]
ARGUMENTS = '{"a":"x"}'


def piece(arguments: str, index: int | None = 0, **names: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": names.pop("name")} if "name" in names else {})}
    item = {"function": function, **names, **({} if index is None else {"index": index})}
    return chunk({"tool_calls": [item]})


def read(model: Model, chunks: list[Any], end: bytes = b"data: [DONE]\n\n") -> list[tuple[str, str, Any]]:
    """Name, raw arguments and arguments of the calls, which the events say, too."""
    plan = engine.build_request(model, "hi", stream=True, tools=TOOLS)
    parser = engine.StreamParser(model, plan=plan)
    events = [*parser.feed(frames(chunks, end)), *parser.end()]
    reply = parser.close()
    assert not reply.incomplete
    starts = [event.index for event in events if isinstance(event, ToolCallStart)]
    said = ["".join(e.text for e in events if isinstance(e, ToolCallDelta) and e.index == index) for index in starts]
    assert said == [call.raw for call in reply.tool_calls]
    return [(call.name, call.raw, call.arguments) for call in reply.tool_calls]


WANTED = [("f", ARGUMENTS, json.loads(ARGUMENTS))]


@pytest.mark.parametrize("placeholder", ["{}", " { }\n", "null"])
@pytest.mark.parametrize("more", [[ARGUMENTS], [ARGUMENTS[:4], ARGUMENTS[4:]], ["{", ARGUMENTS[1:]], ["{}", ARGUMENTS]])
@pytest.mark.parametrize("names", [{}, {"id": "c1"}, {"id": ""}, {"id": "c1", "name": "f"}])
def test_the_object_that_follows_replaces_it(
    models: dict[str, Model], placeholder: str, more: list[str], names: dict[str, str]
) -> None:
    index = None if placeholder == "null" else 0
    follow = [piece(arguments, index, **names) for arguments in more]
    chunks = [piece(placeholder, index, id="c1", name="f"), *follow, STOP]
    assert read(models["openai-chat"], chunks) == WANTED


def test_a_call_without_arguments_keeps_its_empty_object(models: dict[str, Model]) -> None:
    first = piece("{}", 0, id="c1", name="f")
    empty: tuple[str, str, Any] = ("f", "{}", {})
    assert read(models["openai-chat"], [first, STOP]) == [empty]
    assert read(models["openai-chat"], [first, chunk({"content": "so"}), STOP]) == [empty]
    assert read(models["openai-chat"], [first, piece("{}"), STOP]) == [empty]
    assert read(models["openai-chat"], [first, piece(" "), STOP]) == [("f", "{} ", {})]
    second = piece(ARGUMENTS, 1, id="c2", name="g")
    assert read(models["openai-chat"], [first, second, STOP]) == [empty, ("g", *WANTED[0][1:])]


def test_calls_one_after_the_other_have_their_own(models: dict[str, Model]) -> None:
    first = [piece("{}", 0, id="c1", name="f"), piece(ARGUMENTS, 0)]
    second = [piece("{}", 1, id="c2", name="g"), piece('{"b":', 1), piece("1}", 1)]
    assert read(models["openai-chat"], [*first, *second, STOP]) == [*WANTED, ("g", '{"b":1}', {"b": 1})]


def test_a_call_is_not_executed_with_a_placeholder_where_the_next_call_came_in_between(
    models: dict[str, Model],
) -> None:
    begun = [piece("{}", 0, id="c1", name="f"), piece("{}", 1, id="c2", name="g")]
    [first, second] = read(models["openai-chat"], [*begun, piece('{"b":1}', 1), piece(ARGUMENTS, 0), STOP])
    assert first == ("f", "{}" + ARGUMENTS, None)
    assert second == ("g", '{"b":1}', {"b": 1})


def test_calls_that_begin_together_get_their_arguments_one_after_the_other(models: dict[str, Model]) -> None:
    begun = [piece("{}", index, id=f"c{index}", name="f") for index in range(3)]
    items = [one["choices"][0]["delta"]["tool_calls"][0] for one in begun]
    for calls in (begun, [chunk({"tool_calls": items})]):
        whole = [piece(ARGUMENTS, index) for index in range(3)]
        assert read(models["openai-chat"], [*calls, *whole, STOP]) == WANTED * 3
        parts = [piece(part, index) for part in (ARGUMENTS[:4], ARGUMENTS[4:]) for index in range(3)]
        assert read(models["openai-chat"], [*calls, *parts, STOP]) == WANTED * 3


def test_arguments_of_a_call_are_delivered_before_those_of_a_later_one(models: dict[str, Model]) -> None:
    parser = engine.StreamParser(models["openai-chat"])

    def seen(chunks: list[Any], end: bytes = b"") -> list[tuple[Any, int]]:
        events = parser.feed(frames(chunks, end))
        return [(type(event), event.index) for event in events if isinstance(event, ToolCallStart | ToolCallDelta)]

    begun = [piece("{}", index, id=f"c{index}", name="f") for index in range(4)]
    assert seen(begun) == [(ToolCallStart, index) for index in range(4)]
    assert seen([piece(ARGUMENTS, 2)]) == [(ToolCallDelta, index) for index in range(3)]
    assert seen([STOP], b"data: [DONE]\n\n") == [(ToolCallDelta, 3)]


def test_a_block_of_messages_may_have_one(models: dict[str, Model]) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    chunks = [
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}
            for text in ("{}", ARGUMENTS[:5], ARGUMENTS[5:])
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    assert read(models["anthropic-messages"], chunks) == WANTED


def test_a_cut_reply_has_what_came_of_it(models: dict[str, Model]) -> None:
    with pytest.raises(StreamCut) as cut:
        read(models["openai-chat"], [piece("{}", 0, id="c1", name="f")], b"")
    assert cut.value.reply is not None
    assert [(call.name, call.raw) for call in cut.value.reply.incomplete] == [("f", "{}")]


@pytest.mark.parametrize("sizes", [[1], [4], [1, 4], [2, 5, 8], [4, 4], [9], [4, 9], list(range(1, 10))])
@pytest.mark.parametrize("repeats", ["names", "index", "nothing"])
def test_arguments_that_come_with_all_that_came_before_are_one_text(
    models: dict[str, Model], sizes: list[int], repeats: str
) -> None:
    """Some servers send all of the arguments so far with each piece, or all of them once more behind a first piece."""
    names = {"names": {"name": "f", "id": "c"}, "index": {}, "nothing": {}}[repeats]
    index = None if repeats == "nothing" else 0
    snapshots = [piece(ARGUMENTS[:size], index, **names) for size in [*sizes, len(ARGUMENTS)]]
    assert read(models["openai-chat"], [piece("", index, name="f", id="c"), *snapshots, STOP]) == WANTED


@pytest.mark.parametrize("between", ["", "\n", " "])
@pytest.mark.parametrize("times", [2, 3])
def test_arguments_that_are_one_object_several_times_are_that_object(
    models: dict[str, Model], between: str, times: int
) -> None:
    """Some proxies add up what they got in pieces, and what they got at the end."""
    arguments = between.join([ARGUMENTS] * times)
    model = models["openai-chat"]
    assert read(model, [piece(arguments, name="f", id="c"), STOP]) == WANTED
    assert read(model, [piece("", name="f", id="c"), piece(arguments), STOP]) == WANTED
    message = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()
    reply = engine.parse_response(model, 200, {}, body, TOOLS)
    assert [(call.name, call.raw, call.arguments) for call in reply.tool_calls] == WANTED


@pytest.mark.parametrize("arguments", ['{"a":"}{"}', '{"a":1}{"a":2}', '{"a":1}{"a":1', '{"a":1}{"a":1}x', "{}{", "}{"])
def test_other_arguments_stay_as_they_were_written(models: dict[str, Model], arguments: str) -> None:
    found = read(models["openai-chat"], [piece(arguments, name="f", id="c"), STOP])
    assert [(name, raw) for name, raw, _ in found] == [("f", arguments)]


def test_a_brace_that_begins_a_piece_may_go_on_with_the_arguments(models: dict[str, Model]) -> None:
    for pieces in (
        ['{"a":', "{", '"b":', '{"c":1}}}'],
        ['{"a":"', '{"', '"}'],
        ['{"a":[{}', ',{"b":{}}]}'],
        ['{"a":"{', '{a"}'],
        ['{"not":', '{"not":{"is":1}}', "}"],
        ['{"any":[1,', '{"any":[1,2]}', "]}"],
        ['{"any":[', '{"any":[', "]}", "]}"],
    ):
        arguments = "".join(pieces)
        found = read(models["openai-chat"], [piece("", name="f", id="c"), *map(piece, pieces), STOP])
        assert [(name, raw) for name, raw, _ in found] == [("f", arguments)]
