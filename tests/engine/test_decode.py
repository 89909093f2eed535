"""The quick decoder never disagrees with the full one, and the lenient one takes what endpoints call JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from cases import each
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm.engine.decode.reply_builder import ReplyBuilder
from cnllm.engine.encode.plan import unknown_plan
from cnllm.protocols import FastDecoder
from cnllm.protocols.chat.client_decode import ChatDecoder
from cnllm.protocols.chat.client_fast import fast_decoder
from cnllm.protocols.pieces import ANSWERED, CallPieces, Head, ReasoningPiece, TextPiece
from cnllm.types.lenient_json import NotJson, decode_lenient, replace_surrogates

from .support import Json, anything, frame, read, scalars, sse, times, words

# ── chunks of odd shapes, as text, so that keys may come twice ───────────────


def written(data: Any) -> str:
    """JSON text; a list of pairs marked as `Pairs` is an object whose keys may be repeated."""
    if isinstance(data, Pairs):
        return "{" + ",".join(f"{json.dumps(k)}:{written(v)}" for k, v in data) + "}"
    if isinstance(data, list):
        return "[" + ",".join(map(written, data)) + "]"
    return json.dumps(data, ensure_ascii=False)


def quick(model: cnllm.Model) -> FastDecoder:
    """The fast decoder of a model without paths of its own."""
    decode = fast_decoder(model.flags)
    assert decode is not None
    return decode


class Pairs(list[tuple[str, Any]]):
    """An object."""


def objects(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Pairs]:
    """Objects with some of these keys, in any order, now and then twice, now and then with anything as a value."""
    entry = st.one_of(
        *(st.tuples(st.just(k), v) for k, v in keys.items()),
        *(st.tuples(st.just(k), v) for k, v in keys.items()),
        st.tuples(st.sampled_from([*keys, "", "extra"]), anything),
    )
    return st.lists(entry, max_size=4).map(Pairs)


texts = st.none() | st.sampled_from(["", "a", "好", "<think>", "\u2028"]) | words
arguments = st.sampled_from(['{"a":', ' {"a"', "1", '"b": [', "}", "]}", "{}", "", " ", "好", "\ud83d"]) | words
functions = objects(name=st.sampled_from([None, "", "f", "g"]), arguments=st.none() | arguments | st.just({"a": 1}))
call_pieces = objects(
    index=st.sampled_from([0, 0, 0, 1, None, "0", 0.0, False, -1]),
    id=st.sampled_from([None, "", "1", "2"]),
    type=st.sampled_from([None, "", "function"]),
    function=functions,
    arguments=arguments,
    signature=st.none() | words,
)
usual_call_pieces = arguments.map(lambda text: Pairs([("index", 0), ("function", Pairs([("arguments", text)]))]))
calls: st.SearchStrategy[Any] = st.lists(call_pieces | usual_call_pieces, max_size=2) | st.just(
    [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]
)
deltas = objects(
    content=texts,
    reasoning_content=texts,
    reasoning=texts,
    reasoning_details=st.none() | st.just([]) | st.just([{"type": "reasoning.text", "text": "t"}]),
    role=texts,
    refusal=texts,
    tool_calls=st.none() | calls,
    function_call=st.none() | st.just({"name": "f", "arguments": "{}"}),
)
choices = objects(
    index=st.sampled_from([0, 0, 0, None, 1, "0", 0.0, False]),
    delta=deltas,
    finish_reason=st.sampled_from([None, None, "", "stop", "length", "weird"]),
    message=st.none() | deltas,
    text=texts,
    usage=st.none() | st.just({"prompt_tokens": 1}),
)
chunks = objects(
    choices=st.lists(choices, min_size=1, max_size=1) | st.lists(choices, max_size=2),
    id=texts,
    model=texts,
    usage=st.none() | st.just({"prompt_tokens": 1, "completion_tokens": 2}) | st.just({}),
    error=st.none() | st.just({"message": "no"}) | words,
    base_resp=st.none() | st.just({"status_code": 0}) | st.just({"status_code": 7, "status_msg": "no"}),
    detail=st.none() | words,
    code=scalars,
    message=scalars,
)
usual = st.tuples(st.sampled_from(["content", "reasoning_content", "reasoning", "reasoning_details"]), words).map(
    lambda said: Pairs([("choices", [Pairs([("index", 0), ("delta", Pairs([said]))])])])
)
usual_calls = (call_pieces | usual_call_pieces).map(
    lambda piece: Pairs([("choices", [Pairs([("delta", Pairs([("tool_calls", [piece])]))])])])
)
lines = (chunks | usual | usual_calls).map(lambda c: written(c).encode("utf-8", "surrogatepass"))


def begun(model: cnllm.Model, *indexes: int) -> ReplyBuilder:
    """A builder with calls of these indexes, whose arguments have begun."""
    fold = ReplyBuilder(unknown_plan(model))
    for index in indexes:
        call = {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": "["}}
        fold.add([CallPieces([call], whole=False)])
    return fold


def gist(model: cnllm.Model, data: bytes, *calls: int) -> tuple[str, str | int | None] | None:
    """What the quick decoder would have to say: the one thing that the full reader found, if it is just one."""
    pieces = ChatDecoder(model.flags).decode(decode_lenient(data))
    match [piece for piece in pieces if type(piece) is not Head and piece != ANSWERED]:
        case [TextPiece(text)]:
            return text, None
        case [ReasoningPiece(text, field)]:
            return text, field
        case [CallPieces() as piece]:
            fold, bare = begun(model, *calls), begun(model, *calls)
            match fold.add([piece]):
                case [cnllm.ToolCallDelta(at, text)]:
                    assert [(call.id, call.name, call.extra) for call in fold.collected.calls.all] == [
                        (call.id, call.name, call.extra) for call in bare.collected.calls.all
                    ]
                    return text, fold.collected.calls.all[at].place
    return None


@times(500)
@given(lines)
def test_the_quick_decoder_says_what_the_full_reader_says_or_nothing(plain: cnllm.Model, data: bytes) -> None:
    said = quick(plain)(data)
    calls = [said[1]] if said is not None and type(said[1]) is int else []
    assert said is None or said == gist(plain, data, *calls)


@each(
    "data",
    [
        '{"choices":[{"delta":{"content":"a"}}]}',
        '{"id":"x","object":"o","created":1,"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},'
        '"logprobs":null,"finish_reason":null}],"usage":null}',
        ' {"choices":[{"delta":{"content":null,"reasoning_content":"a","tool_calls":null}}],"error":null} ',
        '{"choices":[{"delta":{"content":"","reasoning":"a"}}]}',
    ],
)
def test_the_quick_decoder_takes_the_usual_chunk(plain: cnllm.Model, data: str) -> None:
    said = quick(plain)(data.encode())
    assert said is not None
    assert said == gist(plain, data.encode())


@each("data", [
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"a"}}]}}]}',
        '{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":1,"id":null,"type":"function","function":'
        '{"name":"","arguments":" b} "}}]},"finish_reason":null}],"usage":null}',
    ])  # fmt: skip
def test_the_quick_decoder_takes_the_usual_piece_of_a_call(plain: cnllm.Model, data: str) -> None:
    said = quick(plain)(data.encode())
    assert said is not None
    assert said == gist(plain, data.encode(), 0, 1)


@each("more", [
        ',"x":01', ',"x":1.', ',"x":-', ',"x":+1', ',"x":.5', ',"x":1e', ',"x":NaN', ',"x":tru', ',"x":[1,]', ",'x':1",
        ',"x":"\\q"', ',"x":"\\ud800"', ',"x":"\\u00"', ",", ',"x"', "} {", ',"x":1e999', ',"x":"\t"', ',"x":{"a":1,}',
    ])  # fmt: skip
def test_what_is_unreadable_to_the_full_reader_is_nothing_to_the_quick_one(plain: cnllm.Model, more: str) -> None:
    data = ('{"choices":[{"delta":{"content":"a"}}]' + more + "}").encode()
    try:
        expected = gist(plain, data)
    except NotJson:
        expected = None
    assert quick(plain)(data) in (None, expected)


CALL: Json = {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]}}]}
OPENING: tuple[Json, ...] = (
    {"id": "c1", "model": "m1", "choices": [{"delta": {"reasoning_content": "thinking"}}]},
    {"id": "c1", "model": "m1", "choices": [{"delta": {"content": "answer"}}]},
)


@times(150)
@given(st.lists(lines, max_size=6), st.booleans())
def test_a_reply_is_the_same_whether_its_chunks_were_kept_or_not(
    plain: cnllm.Model, data: list[bytes], calls: bool
) -> None:
    stream = sse(*OPENING, *([CALL] if calls else []), *data, '{"choices":[{"delta":{},"finish_reason":"stop"}]}')
    quickly, fully = read(plain, stream), read(plain, stream, keep_raw=True)
    assert quickly.events == fully.events
    assert (quickly.reply and quickly.reply.to_dict()) == (fully.reply and fully.reply.to_dict())
    assert repr(quickly.error) == repr(fully.error)


def test_text_that_waits_comes_before_the_arguments_behind_it(plain: cnllm.Model) -> None:
    arguments = ['{"a":', "1", "}"]
    begin, go_on, end = ({"choices": [{"delta": {"tool_calls": [call_piece(text)]}}]} for text in arguments)
    text: Json = {"choices": [{"delta": {"content": "<"}}]}
    stream = sse(*OPENING, CALL, begin, text, go_on, end, '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}')
    quickly, fully = read(plain, stream), read(plain, stream, keep_raw=True)
    assert quickly.events == fully.events
    kinds = [type(event) for event in quickly.events]
    assert kinds.index(cnllm.TextDelta, 3) < len(kinds) - kinds[::-1].index(cnllm.ToolCallDelta) - 1


def call_piece(arguments: str) -> Json:
    return {"index": 0, "function": {"arguments": arguments}}


def test_an_id_that_comes_after_the_first_text_is_found(plain: cnllm.Model) -> None:
    piece: Json = {"choices": [{"delta": {"content": "a"}}]}
    stream = sse(piece, piece, {"id": "c1", **piece}, '{"choices":[{"delta":{},"finish_reason":"stop"}]}')
    assert read(plain, stream).said.id == read(plain, stream, keep_raw=True).said.id == "c1"


@each(
    "flags",
    ['error.at = ["choices.0.delta.error"]', 'usage.at = ["choices.0.delta.usage"]', 'reasoning.fields = ["a", "a"]'],
)
def test_any_declared_path_can_be_read(home: Any, flags: str) -> None:
    assert read(home(flags), sse(OPENING[1], '{"choices":[{"delta":{},"finish_reason":"stop"}]}')).said.text == "answer"


# ── lenient ──────────────────────────────────────────────────────────────────


def readable(data: bytes) -> Any:
    """What `lenient` reads, which can be written again as strict JSON; `Unreadable` itself where it is not JSON."""
    try:
        value = replace_surrogates(decode_lenient(data))
    except NotJson:
        return NotJson
    json.dumps(value, allow_nan=False).encode()
    msgspec.json.encode(value)
    return value


@times(200)
@given(anything, st.booleans())
def test_valid_json_is_read_as_what_it_says(value: Any, ascii_only: bool) -> None:
    assert decode_lenient(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@times(150)
@given(st.binary(max_size=60))
def test_no_bytes_make_the_lenient_reader_raise_anything_else(data: bytes) -> None:
    readable(data)


@times(150)
@given(anything, st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), min_size=1, max_size=4))
def test_damaged_json_is_read_or_unreadable(value: Any, damage: list[tuple[int, bytes]]) -> None:
    data = bytearray(json.dumps({"a": value}, ensure_ascii=False).encode())
    for at, junk in damage:
        data[at : at + len(junk)] = junk
    readable(bytes(data))


@each(
    "text, value",
    lambda: [
        (b'{"a":NaN,"b":[Infinity,-Infinity]}', {"a": None, "b": [None, None]}),
        (b'{"a":1e999}', {"a": None}),
        (b'{"a":-1e999,"b":1}', {"a": None, "b": 1}),
        (b'"\\ud800"', "\ufffd"),
        (b'"a\\udc00b"', "a\ufffdb"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'{"\\ud800":1}', {"\ufffd": 1}),
        (b'"\\ud800\\ufeff"', "\ufffd\ufeff"),
        (b'"\\ufeff\\ud800"', "\ufeff\ufffd"),
        (b'"a\xffb"', "a\ufffdb"),
        (b'{"x":NaN,"a":"\xe5\xa5"}', {"x": None, "a": "\ufffd"}),
        (b'"a\nb\tc\x00d"', "a\nb\tc\x00d"),
        (b"1" * 400, int("1" * 400)),
        (b"[" + b"1" * 400 + b",NaN]", [int("1" * 400), None]),
    ],
)
def test_what_endpoints_call_json_is_read(text: bytes, value: Any) -> None:
    assert readable(text) == value


@each("text", [b"", b" ", b"{", b"}", b"[1", b'"', b"\xef\xbb\xbf", b"{}{}", b"nul", b"\xff", b"1" * 9999])
def test_what_is_no_json_is_unreadable(text: bytes) -> None:
    assert readable(text) is NotJson


@each("pair", [(b"[", b"]"), (b'{"a":', b"}")])
@each("head", [b"", b"NaN,"])
@each("depth", [100, 400, 700, 900, 950, 980, 990, 1000, 10_000, 100_000])
def test_no_depth_is_too_much(pair: tuple[bytes, bytes], head: bytes, depth: int) -> None:
    text = b"[" + head + pair[0] * depth + b"1" + pair[1] * depth + b"]"
    try:
        value = decode_lenient(text)
    except NotJson:
        assert depth >= 300
        return
    for _ in range(depth + 1):
        value = value[-1] if type(value) is list else value["a"]
    assert value == 1


@times(60)
@given(st.floats())
def test_a_number_that_json_has_not_is_nothing(number: float) -> None:
    assert readable(json.dumps([number]).encode()) == [number if math.isfinite(number) else None]


def test_one_unreadable_chunk_does_not_take_its_neighbours_along(plain: cnllm.Model) -> None:
    said = frame({"choices": [{"delta": {"content": "a"}}]})
    outcome = read(plain, said + frame("[" * 100_000) + said + sse('{"choices":[{"delta":{},"finish_reason":"stop"}]}'))
    assert outcome.said.text == "aa"
    assert outcome.said.finish == "cut"  # something was said that nobody can read
