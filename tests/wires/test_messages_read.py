"""Anthropic Messages, read: every block and event, and what goes back of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import Opaque, Reasoning, Text, ToolCall, engine

from .made import read_anything
from .messages_support import MESSAGES, blocks_streamed, body, model, read, stream, whole

TEXT = {"type": "text", "text": ""}
THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
ENDING = ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"})
CITED = {"type": "char_location", "cited_text": "it is", "document_index": 0}


def said(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": text}


def given_input(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def parts(reply: cnllm.Reply) -> list[Any]:
    """The parts without their seals' origin."""
    return [(type(p).__name__, p.seal.data if p.seal is not None else None) for p in reply.message.parts]


# ── blocks ───────────────────────────────────────────────────────────────────
def test_thinking_is_sealed_with_its_signature() -> None:
    signed = {"type": "signature_delta", "signature": "c2ln"}
    _, reply = read(blocks_streamed((THOUGHT, [thought("Let "), thought("me."), signed]), (TEXT, [said("Yes.")])))
    assert (reply.reasoning, reply.text) == ("Let me.", "Yes.")
    assert parts(reply) == [("Reasoning", {"signature": "c2ln"}), ("Text", None)]
    seal = reply.message.parts[0].seal
    assert seal is not None
    assert (seal.protocol, seal.provider, seal.model) == (MESSAGES, "anthropic", "claude-haiku-4-5")


def test_a_signature_that_comes_in_pieces_and_once_more_is_one() -> None:
    signs = [{"type": "signature_delta", "signature": piece} for piece in ("c2", "ln", "c2ln")]
    _, reply = read(blocks_streamed((THOUGHT, [thought("Let me."), *signs]), (TEXT, [said("Yes.")])))
    assert parts(reply) == [("Reasoning", {"signature": "c2ln"}), ("Text", None)]


def test_a_signature_that_comes_behind_the_next_block_belongs_to_its_own() -> None:
    texts = [f"Thought {number}." for number in range(3)]
    content = blocks_streamed(*((THOUGHT, [thought(text)]) for text in texts))
    late = {"type": "content_block_delta", "index": 1, "delta": {"type": "signature_delta", "signature": "c2ln"}}
    head, mark, tail = content.partition(b"event: message_delta")
    _, reply = read(head + stream(late) + mark + tail)
    assert [part.text for part in reply.message.parts if isinstance(part, Reasoning)] == texts
    assert parts(reply)[1] == ("Reasoning", {"signature": "c2ln"})


def test_thinking_that_is_hidden_is_kept_whole() -> None:
    hidden = {"type": "redacted_thinking", "data": "AAAA"}
    _, reply = read(blocks_streamed((hidden, []), (TEXT, [said("Yes.")])))
    assert parts(reply) == [("Reasoning", hidden), ("Text", None)]
    assert reply.reasoning == ""
    assert parts(whole(body(hidden, {"type": "text", "text": "Yes."}))) == parts(reply)


def test_thinking_of_which_only_the_signature_is_shown_is_kept() -> None:
    _, reply = read(blocks_streamed((THOUGHT, [{"type": "signature_delta", "signature": "s"}]), (TEXT, [said("Hi")])))
    assert parts(reply) == [("Reasoning", {"signature": "s"}), ("Text", None)]


def test_blocks_of_one_kind_stay_apart() -> None:
    _, reply = read(blocks_streamed((TEXT, [said("One.")]), (TEXT, [said("Two.")])))
    assert [p.text for p in reply.message.parts if isinstance(p, Text)] == ["One.", "Two."]
    assert reply.text == "One.Two."


def test_calls_in_pieces_without_pieces_and_whole() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}
    pieces = [given_input(""), given_input('{"q": '), given_input('"x"}')]
    bare = {"type": "tool_use", "id": "t2", "name": "now", "input": {}, "caller": {"type": "direct"}}
    full = {"type": "tool_use", "id": "t3", "name": "look_up", "input": {"q": "y"}}
    events, reply = read(blocks_streamed((call, pieces), (bare, []), (full, []), reason="tool_use"))
    told = [(c.id, c.name, c.arguments) for c in reply.tool_calls]
    assert told == [("t1", "look_up", {"q": "x"}), ("t2", "now", {}), ("t3", "look_up", {"q": "y"})]
    assert [c.seal.data if c.seal else None for c in reply.tool_calls] == [None, {"caller": {"type": "direct"}}, None]
    assert reply.finish == "tool_calls"
    assert sum(isinstance(e, cnllm.ToolCallStart) for e in events) == 3


def test_calls_whose_pieces_alternate_are_put_together() -> None:
    """As proxies send them that turn another wire into this one."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}]
    for index in (0, 1):
        block = {"type": "tool_use", "id": f"t{index}", "name": "look_up", "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
    for pieces in (('{"q": ', '{"r": '), ('"x"}', '"y"}')):
        events += [
            {"type": "content_block_delta", "index": index, "delta": given_input(piece)}
            for index, piece in enumerate(pieces)
        ]
    events += [{"type": "content_block_stop", "index": index} for index in (0, 1)]
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    _, reply = read(stream(*events))
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("t0", {"q": "x"}), ("t1", {"r": "y"})]


Mixed = tuple[int, dict[str, Any] | str | None]


def mixed(*events: Mixed, rest: Sequence[dict[str, Any]] = ENDING) -> bytes:
    """A stream of events of blocks: the beginning, a piece of text or thinking, or the end (None)."""
    out: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}]
    for index, event in events:
        if event is None:
            out.append({"type": "content_block_stop", "index": index})
        elif isinstance(event, str):
            out.append({"type": "content_block_delta", "index": index, "delta": said(event)})
        elif event["type"].endswith("_delta"):
            out.append({"type": "content_block_delta", "index": index, "delta": event})
        else:
            out.append({"type": "content_block_start", "index": index, "content_block": event})
    return stream(*out, *rest)


@pytest.mark.parametrize("ends", [[1, 0, 2, 3], [0, 1, 2, 3], []])
@pytest.mark.parametrize("size", [None, 1])
def test_texts_whose_pieces_alternate_are_each_whole_and_in_order(size: int | None, ends: list[int]) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "now", "input": {}}
    begin: list[Mixed] = [(0, TEXT), (0, "Good "), (1, TEXT), (1, "See "), (2, call), (0, "morning. ")]
    begin += [(3, TEXT), (1, "you. "), (3, "Bye ")]
    content = mixed(*begin, (0, "Well? "), (3, "now."), *((index, None) for index in ends))
    size = size or len(content)
    events, reply = read([content[at : at + size] for at in range(0, len(content), size)])
    shown = [part.text if isinstance(part, Text) else "" for part in reply.message.parts]
    assert shown == ["Good morning. Well? ", "See you. ", *([""] if ends else []), "Bye now."]
    assert [call.name for call in [*reply.tool_calls, *reply.incomplete]] == ["now"]
    assert "".join(event.text for event in events if isinstance(event, cnllm.TextDelta)) == reply.text


def test_a_text_that_waits_for_another_one_comes_once_that_has_ended() -> None:
    parser = engine.StreamParser(model())
    parser.feed(mixed((0, TEXT), (0, "One "), (1, TEXT), (1, "three "), (0, "two "), rest=()))
    ended = parser.feed(stream({"type": "content_block_stop", "index": 0}))
    assert cnllm.TextDelta("three ") in ended


@pytest.mark.parametrize(
    "before",
    [
        [(0, TEXT), (0, "One "), (1, THOUGHT), (1, thought("Hm.")), (2, TEXT)],  # endpoints that leave out the ends
        [(2, TEXT), (3, "One "), (3, None), (4, TEXT)],  # an endpoint that counts in two ways
        [(0, TEXT), (0, "One "), (0, TEXT)],
    ],
)
def test_a_text_is_not_held_back_by_one_that_gets_no_more(before: list[Mixed]) -> None:
    parser = engine.StreamParser(model())
    parser.feed(mixed(*before, rest=()))
    delta = {"type": "content_block_delta", "index": before[-1][0], "delta": said("two")}
    assert cnllm.TextDelta("two") in parser.feed(stream(delta))


def test_a_text_that_waits_is_not_lost_where_the_stream_is_cut() -> None:
    parser = engine.StreamParser(model())
    parser.feed(mixed((0, TEXT), (0, "One "), (1, TEXT), (1, "three"), (0, "two "), rest=()))
    with pytest.raises(cnllm.StreamCut) as caught:
        parser.close()
    assert caught.value.reply is not None
    assert caught.value.reply.text == "One two three"


def test_a_call_that_the_limit_cut_off_is_not_for_running() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}
    for pieces in ([], [given_input('{"q": "x')]):
        _, reply = read(blocks_streamed((call, pieces), reason="max_tokens"))
        assert reply.finish == "length"
        assert reply.tool_calls == []
        assert [c.name for c in reply.incomplete] == ["look_up"]
    assert [c.name for c in whole(body(call, reason="max_tokens")).incomplete] == ["look_up"]


def test_citations_are_sealed_to_their_text() -> None:
    cited = [said("It is"), {"type": "citations_delta", "citation": CITED}, said(" so.")]
    _, reply = read(blocks_streamed(({"type": "text", "text": "", "citations": []}, cited), (TEXT, [said(" Yes.")])))
    assert parts(reply) == [("Text", {"citations": [CITED]}), ("Text", None)]
    assert reply.text == "It is so. Yes."
    told = whole(body({"type": "text", "text": "It is so.", "citations": [CITED]}, {"type": "text", "text": " Yes."}))
    assert parts(told) == parts(reply)


def test_blocks_nobody_knows_are_kept_in_their_place() -> None:
    search = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result"}]}
    _, reply = read(
        blocks_streamed(
            (TEXT, [said("Let me look.")]),
            (search, [given_input('{"query":'), given_input(' "x"}')]),
            (found, []),
            ({"type": "compaction", "content": ""}, [{"type": "compaction_delta", "content": "All so "}]),
            ({"type": "odd", "a": [1], "n": 1}, [{"type": "x", "a": [2], "b": [3], "n": 2}, {"type": "x", "b": [4]}]),
            ({"type": "list", "notes": [1]}, [{"type": "x", "note": 2}]),
            (TEXT, [said("Here.")]),
        )
    )
    kept = [p.data for p in reply.message.parts if isinstance(p, Opaque)]
    assert kept[:3] == [{**search, "input": {"query": "x"}}, found, {"type": "compaction", "content": "All so "}]
    assert kept[3:] == [{"type": "odd", "a": [1, 2], "n": 2, "b": [3, 4]}, {"type": "list", "notes": [1, 2]}]
    assert [type(p).__name__ for p in reply.message.parts] == ["Text", *["Opaque"] * 5, "Text"]


def test_a_delta_without_a_block_begins_one() -> None:
    deltas = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in (thought("Hm."), said("Yes."))]
    _, reply = read(stream(*deltas, *ENDING))
    assert (reply.reasoning, reply.text) == ("Hm.", "Yes.")
    assert parts(reply) == [("Reasoning", None), ("Text", None)]


@each(
    "delta, text, reasoning",
    [
        ({"type": "text_delta", "text": "a"}, "xa", ""),
        ({"type": "text_delta", "thinking": "a"}, "x", ""),
        ({"type": "text_delta", "text": "a", "thinking": "b"}, "xa", ""),
        ({"type": "thinking_delta", "thinking": "a"}, "x", "a"),
        ({"type": "thinking_delta", "text": "a"}, "x", ""),
        ({"type": "thinking_delta", "text": "a", "thinking": "b"}, "x", "b"),
    ],
)
def test_the_type_of_a_delta_says_which_of_its_texts_counts(delta: dict[str, Any], text: str, reasoning: str) -> None:
    _, reply = read(blocks_streamed((TEXT, [said("x"), delta])))
    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_a_block_is_told_of_as_soon_as_it_is_over() -> None:
    events, _ = read(
        blocks_streamed(
            (THOUGHT, [thought("Hm."), {"type": "signature_delta", "signature": "s"}]), (TEXT, [said("Yes.")])
        )
    )
    names = [type(e).__name__ for e in events]
    assert names.index("BlockEnd") < names.index("TextDelta")
    ended = [e.part for e in events if isinstance(e, cnllm.BlockEnd)]
    assert [type(p) for p in ended] == [Reasoning, Text]


# ── the end ──────────────────────────────────────────────────────────────────
@each(
    "word, finish",
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_why_it_ended(word: str, finish: str) -> None:
    _, reply = read(blocks_streamed((TEXT, [said("Yes.")]), reason=word))
    assert (reply.finish, reply.raw_finish) == (finish, word)
    codes = [note.code for note in reply.notes if note.code.startswith("finish")]
    assert codes == (["finish-pending"] if word == "pause_turn" else [])


@each("named", [{"type": "error", "message": "no"}, {"type": "message_delta", "error": {"message": "no"}}])
def test_an_event_of_errors_and_an_error_in_any_event_end_a_reply(named: dict[str, Any]) -> None:
    content = blocks_streamed((TEXT, [said("Yes, ")])).partition(b"event: content_block_stop")[0]
    with pytest.raises(cnllm.EndpointError) as caught:
        read(content + stream(named))
    assert caught.value.message == "no"


def test_counts_of_start_and_end_are_laid_together() -> None:
    start = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}
    end = {"output_tokens": 30, "input_tokens": 0, "output_tokens_details": {"thinking_tokens": 20}}
    content = stream(
        {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": start}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "content_block_delta", "index": 0, "delta": said("Yes.")},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end},
        {"type": "message_stop"},
    )
    _, reply = read(content)
    usage = reply.usage
    assert (usage.input, usage.output, usage.total) == (17, 30, 47)
    assert (usage.cached, usage.cache_write, usage.reasoning) == (5, 2, 20)


def test_an_error_in_the_middle_keeps_what_came() -> None:
    content = blocks_streamed((TEXT, [said("Yes, ")])).partition(b"event: content_block_stop")[0]
    content += stream({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(cnllm.Overloaded) as caught:
        read(content)
    assert caught.value.message == "Overloaded"
    assert caught.value.retryable
    assert caught.value.reply is not None
    assert (caught.value.reply.text, caught.value.reply.finish) == ("Yes, ", "error")


@each(
    "status, kind, said, expected",
    [
        (401, "authentication_error", "invalid x-api-key", cnllm.BadKey),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", cnllm.ContextTooLong),
        (400, "invalid_request_error", "Your credit balance is too low to access the API.", cnllm.QuotaExceeded),
        (
            400,
            "invalid_request_error",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            cnllm.ReplayMissing,
        ),
        (400, "invalid_request_error", "Output blocked by content filtering policy", cnllm.ContentFiltered),
        (400, "invalid_request_error", "max_tokens: Field required", cnllm.BadRequest),
        (404, "not_found_error", "model: nothing", cnllm.BadRequest),
        (413, "request_too_large", "Request exceeds the maximum size", cnllm.ContextTooLong),
        (429, "rate_limit_error", "This request would exceed your rate limit", cnllm.RateLimited),
        (529, "overloaded_error", "Overloaded", cnllm.Overloaded),
    ],
)
def test_errors_of_messages_are_read(status: int, kind: str, said: str, expected: type[cnllm.EndpointError]) -> None:
    content = engine.encode_error(MESSAGES, status, said)
    content["error"]["type"] = kind
    import json

    with pytest.raises(expected) as caught:
        engine.parse_response(model(), status, {}, json.dumps(content).encode())
    assert (caught.value.message, caught.value.code) == (said, kind)


def test_a_stream_without_its_end_is_cut() -> None:
    content = blocks_streamed((TEXT, [said("Yes.")])).partition(b"event: message_delta")[0]
    torn = content.replace(b"event: content_block_stop", b"event: ping").replace(b'"content_block_stop"', b'"ping"')
    for cut in (content, torn, torn + stream(ENDING[1])):  # neither the block has an end nor the message a reason
        with pytest.raises(cnllm.StreamCut) as caught:
            read(cut)
        assert caught.value.reply is not None
        assert caught.value.reply.text == "Yes."
    assert read(torn + stream(*ENDING))[1].text == read(content + stream(ENDING[1]))[1].text == "Yes."


def test_a_whole_message_in_a_stream_is_whole_if_it_has_a_reason() -> None:
    cases: list[tuple[str | None, dict[str, Any]]] = [("end_turn", {}), ("end_turn", {"type": None}), (None, {})]
    for reason, more in cases:
        content = body({"type": "text", "text": "Yes."}, reason=reason, **more)
        if more:
            assert whole(content).text == "Yes."
        elif reason is not None:
            assert read(b"data: %b\n\n" % content)[1].text == "Yes."
        else:
            with pytest.raises(cnllm.StreamCut):
                read(b"data: %b\n\n" % content)


# ── anything ─────────────────────────────────────────────────────────────────
KEYS = st.sampled_from(
    [
        "type",
        "index",
        "delta",
        "content_block",
        "message",
        "content",
        "usage",
        "error",
        "text",
        "thinking",
        "signature",
        "input",
        "partial_json",
        "id",
        "name",
        "stop_reason",
        "citation",
        "citations",
        "data",
        "model",
        "code",
    ]
)
WORDS = st.sampled_from(
    [
        "message",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "text_delta",
        "thinking_delta",
        "signature_delta",
        "citations_delta",
        "input_json_delta",
        "end_turn",
        "",
        "�",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=4)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
TYPED = st.builds(lambda kind, rest: {**rest, "type": kind}, WORDS, st.dictionaries(KEYS, JSON, max_size=5))


@given(st.lists(TYPED | st.dictionaries(KEYS, JSON, max_size=5), max_size=6), st.booleans())
def test_any_json_in_any_shape_never_raises(chunks: list[dict[str, Any]], at_once: bool) -> None:
    assert all(type(reply) is cnllm.Reply for reply in read_anything(model(), chunks, whole=at_once))


BLOCK = st.one_of(
    st.tuples(st.just(TEXT), st.lists(st.text(min_size=1, max_size=40).map(said), max_size=5)),
    st.tuples(st.just(THOUGHT), st.lists(st.text(min_size=1, max_size=40).map(thought), max_size=5)),
    st.tuples(
        st.just({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        st.sampled_from([[], [given_input('{"a": 1}')], [given_input('{"a"'), given_input(": 1}")]]),
    ),
    st.tuples(st.just({"type": "redacted_thinking", "data": "x"}), st.just([])),
    st.tuples(st.just({"type": "strange", "n": 1}), st.just([])),
)


@given(st.lists(BLOCK, min_size=1, max_size=5), st.integers())
def test_a_stream_is_the_whole_however_it_is_split(blocks: list[Any], seed: int) -> None:
    full: list[dict[str, Any]] = []
    for place, (block, deltas) in enumerate(blocks):
        block = {**block, "id": f"t{place}"} if block["type"] == "tool_use" else dict(block)
        blocks[place] = (block, deltas)
        told = dict(block)
        for delta in deltas:
            for key in ("text", "thinking"):
                if key in delta:
                    told[key] = told[key] + delta[key]
        if deltas and told["type"] == "tool_use":
            told["input"] = {"a": 1}
        full.append(told)
    content = blocks_streamed(*blocks)
    dice = random.Random(seed)
    cuts = sorted(dice.randrange(len(content)) for _ in range(20))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    try:
        _, streamed = read(pieces)
        told_whole = whole(body(*full))
    except cnllm.EmptyReply:
        with pytest.raises(cnllm.EmptyReply):
            whole(body(*full))
        return
    assert (streamed.text, streamed.reasoning) == (told_whole.text, told_whole.reasoning)
    assert [c.arguments for c in streamed.tool_calls] == [c.arguments for c in told_whole.tool_calls]
    assert [_bare(p) for p in streamed.message.parts] == [_bare(p) for p in told_whole.message.parts]


def _bare(part: Any) -> Any:
    return (part.id, part.name, part.arguments) if isinstance(part, ToolCall) else part
