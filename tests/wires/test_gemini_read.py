"""generateContent, reading: parts in order with what goes back with them, calls, finishes, counts, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import (
    BlockEnd,
    Media,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    engine,
)
from cnllm.protocols import wire

from .gemini_support import Json, answer, dumps, failed, kinds, model, seal, sse, streamed, whole
from .made import read_anything


def thought(text: str, **more: Any) -> Json:
    return {"text": text, "thought": True, **more}


def call(name: str, args: Json | None = None, **more: Any) -> Json:
    return {"functionCall": {"name": name} | ({} if args is None else {"args": args}), **more}


# ── parts ────────────────────────────────────────────────────────────────────


def test_parts_stay_in_order_with_their_signatures() -> None:
    reply = whole(
        answer(thought("Hm."), {"text": "One "}, {"text": "two", "thoughtSignature": "s1"}, thought("x"), {"text": "!"})
    )
    assert (reply.text, reply.reasoning, reply.finish, reply.raw_finish) == ("One two!", "Hm.x", "stop", "STOP")
    assert list(reply.message.parts) == [
        Reasoning("Hm."),
        Text("One "),
        Text("two", seal({"thoughtSignature": "s1"})),
        Reasoning("x"),
        Text("!"),
    ]


def test_a_signature_without_text_is_kept() -> None:
    reply = whole(answer({"text": "Hi"}, {"text": "", "thoughtSignature": "s"}, thought("", thoughtSignature="t")))
    assert list(reply.message.parts) == [
        Text("Hi"),
        Text("", seal({"thoughtSignature": "s"})),
        Reasoning("", seal({"thoughtSignature": "t"})),
    ]
    assert whole(answer({"thoughtSignature": "s"})).message.parts == (Text("", seal({"thoughtSignature": "s"})),)


def test_in_a_stream_a_signed_piece_is_a_part_of_its_own() -> None:
    pieces = [{"text": "a"}, {"text": "b"}, {"text": "c", "thoughtSignature": "s"}, {"text": "d"}, {"text": "e"}]
    content = sse(*(answer(p, finish=None, responseId="r", modelVersion="v") for p in pieces), answer({"text": ""}))
    reply, events = streamed(content)
    assert list(reply.message.parts) == [Text("ab"), Text("c", seal({"thoughtSignature": "s"})), Text("de")]
    ends = [event for event in events if isinstance(event, BlockEnd)]
    assert [(end.index, end.part) for end in ends] == list(enumerate(reply.message.parts))
    assert (reply.id, reply.model) == ("r", "v")


def test_text_that_was_held_back_comes_before_the_part_behind_it() -> None:
    """The first character of a tag waits for the next piece, which is a thought."""
    pieces = [{"text": "a <"}, thought("Hm."), {"text": "b"}]
    reply, events = streamed(sse(*(answer(p, finish=None) for p in pieces), answer({"text": ""})))
    assert list(reply.message.parts) == [Text("a <"), Reasoning("Hm."), Text("b")]
    deltas = [event.text for event in events if isinstance(event, TextDelta | ReasoningDelta)]
    assert deltas.index("Hm.") == len(deltas) - 2
    assert "".join(deltas) == "a <Hm.b"


def test_pictures_are_media_and_what_nobody_knows_is_kept_in_its_place() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "s"}
    reply = whole(
        answer({"text": "a"}, code, picture, {"fileData": {"mimeType": "v/x", "fileUri": "u"}}, {"text": "b"})
    )
    assert list(reply.message.parts) == [
        Text("a"),
        Opaque(code, seal(None)),
        Media("image/png", "aGk=", None, seal({"thoughtSignature": "s"})),
        Media("v/x", None, "u"),
        Text("b"),
    ]
    assert kinds(whole(answer({"inlineData": {"data": 1}}, {"newThing": {}})).message.parts) == ["Opaque*", "Opaque*"]


def test_what_an_answer_rests_on_stays_with_it_and_goes_nowhere() -> None:
    body = answer({"text": "Bern."})
    body["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["capital"]}
    reply = whole(body)
    [part] = reply.message.parts
    assert isinstance(part, Text)
    assert part.extra == {"groundingMetadata": {"webSearchQueries": ["capital"]}}
    again = engine.build_request(model(), [{"role": "user", "content": "?"}, reply.message, "and?"])
    assert again.body["contents"][1] == {"role": "model", "parts": [{"text": "Bern."}]}
    assert engine.encode_reply("gemini", reply)["candidates"][0]["groundingMetadata"]


# ── calls ────────────────────────────────────────────────────────────────────


def test_calls_with_and_without_ids() -> None:
    body = answer(
        thought("Hm."),
        {"functionCall": {"name": "one", "args": {"a": [1, "ü"]}, "id": "x7"}, "thoughtSignature": "s"},
        call("two"),
        call("two", {}),
    )
    for reply in (whole(body), streamed(sse(body))[0]):
        assert reply.finish == "tool_calls"
        assert [(c.name, c.arguments) for c in reply.tool_calls] == [
            ("one", {"a": [1, "ü"]}),
            ("two", {}),
            ("two", {}),
        ]
        given, *made = [c.id for c in reply.tool_calls]
        assert given == "x7"
        assert len(set(made)) == 2
        results = [cnllm.Message("tool", [cnllm.ToolResult(c.id, "done")]) for c in reply.tool_calls]
        sent = engine.build_request(model(), [cnllm.Message("user", [Text("Hi")]), reply.message, *results]).body[
            "contents"
        ]
        values = [value for turn in sent for part in turn["parts"] for value in part.values()]
        ids = [value.get("id") for value in values if isinstance(value, dict)]
        assert ids == ["x7", None, None, "x7", None, None]  # an id that the wire did not give does not go over it
        assert reply.tool_calls[0].seal == seal({"thoughtSignature": "s"})
        assert kinds(reply.message.parts) == ["Reasoning", "ToolCall*", "ToolCall", "ToolCall"]
        assert reply.notes == []


def pieces(*parts: Json) -> bytes:
    return sse(*(answer(p, finish=None) for p in parts), answer({"functionCall": {}}))


def partial(*values: Json, **more: Any) -> Json:
    return {"functionCall": {"partialArgs": list(values), "willContinue": True}, **more}


def test_a_character_in_halves_in_fragments_of_arguments_is_one() -> None:
    halves = ({"stringValue": "a\ud83d", "willContinue": True}, {"stringValue": "\ude00b"})
    start = {"functionCall": {"name": "f", "willContinue": True}}
    content = pieces(start, *(partial({"jsonPath": "$.x", **half}) for half in halves))
    assert [call.arguments for call in streamed(content)[0].tool_calls] == [{"x": "a\U0001f600b"}]


def test_arguments_that_come_in_fragments_are_put_together() -> None:
    start = {"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": "s"}
    content = pieces(
        start,
        partial({"jsonPath": "$.city", "stringValue": 'Zü"', "willContinue": True}),
        partial({"jsonPath": "$.city", "stringValue": "rich\n", "willContinue": True}),
        partial({"jsonPath": "$.city", "stringValue": ""}, {"jsonPath": "$.days", "numberValue": 3}),
        partial({"jsonPath": "$.deep.list[0].x", "boolValue": True}),
        partial({"jsonPath": "$.deep.list[1]['a b']", "nullValue": "NULL_VALUE"}),
        partial({"jsonPath": "$['it\\'s'][\"a \\\\ b\"]", "numberValue": 1}),
        partial({"jsonPath": "$.whole", "structValue": {"l": [1]}}, {"jsonPath": "$.items", "listValue": ["a", {}]}),
        partial({"jsonPath": "$.end", "stringValue": "z"}),
    )
    for size in (None, 1, 7):
        reply, events = streamed(content, size)
        [made] = reply.tool_calls
        wanted = {"city": 'Zü"rich\n', "days": 3, "deep": {"list": [{"x": True}, {"a b": None}]}}
        wanted |= {"it's": {"a \\ b": 1}, "whole": {"l": [1]}, "items": ["a", {}], "end": "z"}
        assert (made.name, made.arguments, made.problem) == ("f", wanted, None)
        assert made.seal == seal({"thoughtSignature": "s"})
        assert "".join(e.text for e in events if isinstance(e, ToolCallDelta)) == made.raw
        assert len([e for e in events if isinstance(e, ToolCallStart)]) == 1


ODD: list[list[Any]] = [
    [{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a", "numberValue": 2}],
    [
        {"jsonPath": "$.a.b", "numberValue": 1},
        {"jsonPath": "$.c", "numberValue": 1},
        {"jsonPath": "$.a.d", "boolValue": 1},
    ],
    [{"jsonPath": "a", "stringValue": "x"}],
    [{"jsonPath": "$", "stringValue": "x"}],
    [{"jsonPath": "$.a[1]", "stringValue": "x"}],
    [{"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, 12],
    [{"jsonPath": "what", "stringValue": "x", "willContinue": True}, {"jsonPath": "what", "stringValue": "y"}],
    [
        {"jsonPath": "$.a", "numberValue": 1},
        {"jsonPath": "$.a", "stringValue": "x", "willContinue": True},
        {"jsonPath": "$.a", "stringValue": "y"},
        {"jsonPath": "$.b", "numberValue": 1},
    ],
    ["what"],
]


@each("odd", ODD)
def test_fragments_that_make_no_sense_make_no_arguments(odd: list[Any]) -> None:
    start = {"functionCall": {"name": "f", "willContinue": True}}
    [made] = streamed(pieces(start, *(partial(value) for value in odd)))[0].tool_calls
    assert made.arguments is None
    assert made.problem


def test_a_value_that_never_came_is_left_out() -> None:
    start = {"functionCall": {"name": "f", "willContinue": True, "args": {"a": [1]}}}
    [made] = streamed(pieces(start, partial({"jsonPath": "$.b"}), partial({"jsonPath": "$.c", "numberValue": 1})))[
        0
    ].tool_calls
    assert made.arguments == {"a": [1], "c": 1}


def test_a_call_that_was_cut_is_never_executable() -> None:
    start = {"functionCall": {"name": "f", "willContinue": True}}
    content = sse(answer(start, finish=None), answer(partial({"jsonPath": "$.a", "stringValue": "x"}), finish=None))
    with pytest.raises(cnllm.StreamCut) as caught:
        streamed(content)
    assert caught.value.reply is not None
    assert caught.value.reply.tool_calls == []
    assert [(c.name, c.raw) for c in caught.value.reply.incomplete] == [("f", '{"a":"x"')]
    at_length = sse(answer(start, finish=None), answer({"text": ""}, finish="MAX_TOKENS"))
    reply, _ = streamed(at_length)
    assert (reply.finish, reply.tool_calls, [c.name for c in reply.incomplete]) == ("length", [], ["f"])


@each("finish, count", [("MAX_TOKENS", 0), ("STOP", 1)])
def test_a_call_without_arguments_is_executable_unless_the_reply_reached_its_limit(finish: str, count: int) -> None:
    part = {"functionCall": {"name": "f"}}
    for reply in (streamed(sse(answer(part, finish=finish)))[0], whole(answer(part, finish=finish))):
        assert [call.arguments for call in reply.tool_calls] == [{}] * count
        assert [call.name for call in reply.incomplete] == ["f"] * (1 - count)


# ── finishes, counts, errors ─────────────────────────────────────────────────


@each("word", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "IMAGE_SAFETY"])
def test_what_was_filtered_says_so(word: str) -> None:
    reply = whole({"candidates": [{"finishReason": word, "index": 0}]})
    assert (reply.text, reply.finish, reply.raw_finish) == ("", "content_filter", word)


@each(
    "word, finish",
    [("CONTINUATION", "length"), ("ESCALATION", "content_filter"), ("PUP_LIMITED_DISABLED", "content_filter")],
)
def test_an_answer_that_was_stopped_is_a_whole_stream(word: str, finish: str) -> None:
    chunks = sse(answer({"text": "Hi"}, finish=None), answer({"text": ""}, finish=word))
    for reply in (whole(answer({"text": "Hi"}, finish=word)), streamed(chunks)[0]):
        assert (reply.text, reply.finish, reply.raw_finish) == ("Hi", finish, word)
        assert not [note for note in reply.notes if note.code.startswith("finish")]


def test_a_blocked_prompt_is_filtered_and_tells_why() -> None:
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "Not this."}}
    for reply in (whole(body), streamed(sse(body))[0]):
        assert (reply.finish, reply.raw_finish) == ("content_filter", "PROHIBITED_CONTENT")
        assert [(note.code, note.said) for note in reply.notes] == [("prompt-blocked", "Not this.")]


@each("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "MALFORMED_RESPONSE"])
def test_an_answer_that_failed_is_an_error_that_may_be_tried_again(word: str) -> None:
    error = failed(dumps({"candidates": [{"finishReason": word, "finishMessage": "Malformed: print(", "index": 0}]}))
    assert (error.message, error.code, error.retryable) == ("Malformed: print(", word, True)
    assert failed(dumps(answer(finish=word))).retryable


def test_no_seal_is_an_error_about_the_history() -> None:
    assert isinstance(failed(dumps(answer(finish="MISSING_THOUGHT_SIGNATURE"))), cnllm.ReplayMissing)


def usage(**counts: int) -> Json:
    return {"usageMetadata": counts}


def test_thoughts_are_counted_into_the_output() -> None:
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 6, "totalTokenCount": 19}
    body = answer({"text": "x"}, **usage(**counts, cachedContentTokenCount=5))
    assert whole(body).usage == cnllm.Usage(9, 10, 19, 6, 5, None)
    no_answer = answer(thought("x"), **usage(promptTokenCount=30, thoughtsTokenCount=40, totalTokenCount=70))
    assert whole(no_answer).usage == cnllm.Usage(30, 40, 70, 40, None, None)
    assert whole(answer({"text": "x"}, **usage(promptTokenCount=3))).usage == cnllm.Usage(input=3)


def test_a_later_nothing_does_not_erase_a_count() -> None:
    first = answer({"text": "x"}, finish=None, **usage(promptTokenCount=9, thoughtsTokenCount=6, totalTokenCount=15))
    last = answer({"text": ""}, **usage(promptTokenCount=9, candidatesTokenCount=2, totalTokenCount=17))
    last["usageMetadata"]["thoughtsTokenCount"] = 0
    assert streamed(sse(first, last))[0].usage == cnllm.Usage(9, 8, 17, 6, None, None)


@each("keep_raw", [False, True])
def test_a_total_that_leaves_the_answer_out_takes_no_earlier_count_of_it(keep_raw: bool) -> None:
    """An endpoint that searches counts each of its steps, and at the end the reply. Fast reading skips some counts."""
    steps = [(9, 15, 102, 78), (9, None, 9, None), (9, 7, 51, 35), (9, 21, 65, 35)]
    keys = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount", "thoughtsTokenCount")
    chunks = [
        answer({"text": "x"}, finish=None, **usage(**{k: n for k, n in zip(keys, step, strict=True) if n is not None}))
        for step in steps
    ]
    last = answer({"text": "."}, **usage(promptTokenCount=87, thoughtsTokenCount=78, totalTokenCount=165))
    parser = engine.StreamParser(model(), keep_raw=keep_raw)
    for chunk in (*chunks, last):
        parser.feed(sse(chunk))
    assert parser.close().usage == cnllm.Usage(87, 78, 165, 78, None, None)


ERRORS = [
    (400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", cnllm.BadKey, False),
    (403, "Your key was reported as leaked.", "PERMISSION_DENIED", cnllm.BadKey, False),
    (429, "Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED", cnllm.RateLimited, True),
    (429, "You exceeded your current quota … limit: 0", "RESOURCE_EXHAUSTED", cnllm.QuotaExceeded, False),
    (503, "The model is overloaded.", "UNAVAILABLE", cnllm.Overloaded, True),
    (
        400,
        "The input token count (9) exceeds the maximum number of tokens allowed (1).",
        "",
        cnllm.ContextTooLong,
        False,
    ),
    (400, "Function call is missing a thought_signature in functionCall parts.", "", cnllm.ReplayMissing, False),
    (404, "models/x is not found for API version v1beta", "NOT_FOUND", cnllm.BadRequest, False),
    (500, "An internal error has occurred.", "INTERNAL", cnllm.EndpointError, True),
]


@each("status, said, word, kind, again", ERRORS)
@each("listed", [False, True])
def test_errors_of_gemini_are_read(
    status: int, said: str, word: str, kind: type[Exception], again: bool, listed: bool
) -> None:
    body: Any = {"error": {"code": status, "message": said, "status": word}}
    error = failed(dumps([body] if listed else body), status)
    assert type(error) is kind
    assert (error.message, error.status, error.retryable) == (said, status, again)


def test_an_error_in_the_middle_of_a_stream() -> None:
    broken = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}
    for content in (
        sse(answer({"text": "He"}, finish=None), broken),
        dumps([answer({"text": "He"}, finish=None), broken]),
    ):
        with pytest.raises(cnllm.EndpointError, match=r"Overloaded\.") as caught:
            streamed(content)
        assert caught.value.reply is not None
        assert (caught.value.reply.text, caught.value.reply.finish) == ("He", "error")


def test_of_several_candidates_the_first_is_the_reply() -> None:
    body = answer({"text": "first"})
    body["candidates"].append({"content": {"parts": [{"text": "second"}]}, "finishReason": "SAFETY", "index": 1})
    assert (whole(body).text, whole(body).finish) == ("first", "stop")
    other = {"candidates": [{"content": {"parts": [{"text": "second"}]}, "index": 1}]}
    assert streamed(sse(other, answer({"text": "first"})))[0].text == "first"


# ── streams ──────────────────────────────────────────────────────────────────

LONG = [
    answer(thought("Let me think about that for a good while. "), finish=None, responseId="r", modelVersion="m"),
    answer(thought("Still thinking about it, 想一想. "), finish=None, responseId="r", modelVersion="m"),
    *(answer({"text": f"Piece {n} of the answer ✓ "}, finish=None, responseId="r", modelVersion="m") for n in range(9)),
    answer(call("f", {"a": ']}[{\\"'}, thoughtSignature="s"), finish=None),
    answer({"text": "."}, **usage(promptTokenCount=3, candidatesTokenCount=40, totalTokenCount=43)),
]


def told(reply: Reply) -> Any:
    return reply.to_dict()


@each("array", [False, True])
def test_a_stream_is_read_the_same_however_its_bytes_arrive(array: bool) -> None:
    content = json.dumps(LONG, indent=2, ensure_ascii=False).encode() if array else sse(*LONG)
    at_once, events = streamed(content)
    assert at_once.reasoning.endswith("想一想. ")
    assert at_once.text.startswith("Piece 0 of the answer ✓ Piece 1")
    assert [c.arguments for c in at_once.tool_calls] == [{"a": ']}[{\\"'}]
    for size in (1, 2, 3, 5, 64, 1000):
        again, others = streamed(content, size)
        assert told(again) == told(at_once)
        assert others == events


@each("array", [False, True])
def test_a_stream_that_was_cut_is_never_whole(array: bool) -> None:
    content = json.dumps(LONG, ensure_ascii=False).encode() if array else sse(*LONG)
    end = content.rindex(b'"finishReason"')
    for at in range(0, end, 17):
        with pytest.raises(cnllm.StreamCut) as caught:
            streamed(content[:at] if at else b"data: ")
        assert caught.value.reply is not None
        assert caught.value.reply.tool_calls == []
        assert streamed(content)[0].text.startswith(caught.value.reply.text)


def test_the_fast_way_and_the_full_one_agree() -> None:
    quick = wire("gemini").fast_decoder
    assert quick is not None
    read = quick(model().flags)
    assert read is not None
    assert read(dumps(answer({"text": "hi"}, finish=None, **usage(totalTokenCount=1)))) == ("hi", None)
    assert read(dumps(answer(thought("hm"), finish=None))) == ("hm", "thought")
    odd: list[Any] = [
        answer({"text": "hi"}),
        answer({"text": ""}, finish=None),
        answer({"text": "a"}, {"text": "b"}, finish=None),
        answer({"text": "a", "thoughtSignature": "s"}, finish=None),
        answer(call("f"), finish=None),
        answer({"text": "a"}, finish=None, promptFeedback={"blockReason": "SAFETY"}),
        answer({"text": "a"}, finish=None, error={"message": "x"}),
        {"candidates": [{"content": {"parts": [{"text": "x"}]}, "index": 1}]},
        {"candidates": [{"content": {"parts": [{"text": "x"}]}, "groundingMetadata": {}}]},
        {"candidates": []},
        [],
    ]
    for rare in odd:
        assert read(dumps(rare)) is None


# ── anything ─────────────────────────────────────────────────────────────────

WORDS = [
    *("candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args", "id"),
    *("partialArgs", "jsonPath", "stringValue", "numberValue", "willContinue", "finishReason", "index", "error"),
    *(
        "usageMetadata",
        "promptTokenCount",
        "totalTokenCount",
        "promptFeedback",
        "blockReason",
        "inlineData",
        "mimeType",
    ),
    *("data", "fileData", "fileUri", "message", "finishMessage", "nullValue"),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats()
    | st.sampled_from(["", "$.a", "$.a[0]", "STOP", "ü\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
PARTS = st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=3), max_size=3)
BODIES = VALUES | PARTS.map(lambda parts: {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})


@given(st.lists(BODIES, max_size=4), st.booleans())
def test_any_json_in_any_shape_never_raises(bodies: list[Any], at_once: bool) -> None:
    assert all(type(reply) is cnllm.Reply for reply in read_anything(model(), bodies, whole=at_once))


@given(st.lists(PARTS, min_size=1, max_size=4), st.integers(1, 40))
def test_the_bytes_of_a_stream_may_be_split_anywhere(chunks: list[Any], size: int) -> None:
    content = sse(*(answer(*parts, finish=None) for parts in chunks), answer({"text": "."}))

    def outcome(size: int | None) -> Any:
        try:
            reply, events = streamed(content, size)
        except cnllm.CnllmError as error:
            return type(error), str(error)
        return told(reply), events

    assert outcome(size) == outcome(None)


def test_a_call_of_one_chunk_after_the_other_is_a_call_each() -> None:
    content = sse(answer(call("f", {"a": 1}), finish=None), answer(call("f", {"a": 1}), finish=None), answer())
    reply, _ = streamed(content)
    assert [c.arguments for c in reply.tool_calls] == [{"a": 1}, {"a": 1}]
    assert all(isinstance(part, ToolCall) for part in reply.message.parts)
