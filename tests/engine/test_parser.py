"""Bytes to events to a reply: nothing makes it raise, no cut passes for an end, a stream says what a body says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from cases import each
from examples import SHARE, share
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import engine

from .conftest import Home
from .support import (
    Json,
    Outcome,
    Work,
    anything,
    body,
    check_honest,
    cuts,
    delivered,
    delta,
    dumps,
    finish,
    frame,
    pieces,
    read,
    scalars,
    sse,
    times,
    words,
)

# ── endpoints of several dialects ────────────────────────────────────────────

DIALECTS = {
    "plain": "",
    "tags": 'reasoning.tags = ["<think>", "</think>"]',
    "tags open": 'reasoning = { tags = ["<think>", "</think>"], tags_at = "start-open" }',
    "tags anywhere": 'reasoning = { tags = ["<think>", "</think>"], tags_at = "anywhere" }',
    "snapshots": 'stream.deltas = "cumulative"',
    "either": 'stream.deltas = "either"',
    "either, tags": 'stream.deltas = "either"\nreasoning.tags = ["<think>", "</think>"]',
    "parts": 'reasoning = { shape = "content-parts", part = "thinking" }',
    "done": 'stream.terminator = "done"',
    "any": 'stream.terminator = "any"',
}
dialects = st.sampled_from(list(DIALECTS))


@pytest.fixture(scope="session")
def endpoints(home: Home) -> dict[str, cnllm.Model]:
    return {name: home(flags) for name, flags in DIALECTS.items()}


# ── a neutral reply, and a small writer for each form ────────────────────────


@dataclass(frozen=True)
class Neutral:
    """What an endpoint wants to say."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    reason: str
    usage: Json | None
    head: Json

    def body(self) -> bytes:
        message: Json = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {"id": f"id{n}", "type": "function", "function": {"name": name, "arguments": raw}}
                for n, (name, raw) in enumerate(self.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.reason}
        return dumps({**self.head, "choices": [choice], **({"usage": self.usage} if self.usage else {})})

    def chunks(self, where: list[int]) -> list[Json]:
        said: list[Json] = [{"role": "assistant", "content": ""}]
        said += [{"reasoning_content": piece} for piece in parted(self.reasoning, where)]
        said += [{"content": piece} for piece in parted(self.text, where)]
        for n, (name, raw) in enumerate(self.calls):
            said.append({"tool_calls": [{"index": n, "id": f"id{n}", "type": "function", "function": {"name": name}}]})
            said += [{"tool_calls": [{"index": n, "function": {"arguments": piece}}]} for piece in parted(raw, where)]
        out = [{**self.head, **delta(**one)} for one in said] + [{**self.head, **finish(self.reason)}]
        return out + ([{**self.head, "choices": [], "usage": self.usage}] if self.usage else [])


def parted(text: str, where: list[int]) -> list[str]:
    at = [0, *sorted(w % (len(text) + 1) for w in where), len(text)]
    return [piece for a, b in pairwise(at) if (piece := text[a:b])]


raws = st.dictionaries(words, scalars, max_size=2).map(json.dumps) | st.sampled_from(["", "[]", "{", "{}", "null"])
neutrals = st.builds(
    Neutral,
    text=words | st.text(max_size=40).filter(lambda t: "<" not in t),
    reasoning=st.just("") | words,
    calls=st.lists(st.tuples(st.sampled_from(["f", "g", "查"]), raws), max_size=3),
    reason=st.sampled_from(["stop", "length", "tool_calls", "content_filter", "odd"]),
    usage=st.none()
    | st.fixed_dictionaries({"prompt_tokens": st.integers(0, 99), "completion_tokens": st.integers(0, 99)}),
    head=st.sampled_from([{}, {"id": "c1", "model": "m-2"}]),
)


def told(outcome: Outcome) -> Any:
    """Everything of an outcome but its events."""
    return outcome.reply and outcome.reply.to_dict(), type(outcome.error), str(outcome.error)


@times(150)
@given(neutrals, cuts, cuts)
def test_a_body_and_the_stream_that_says_the_same_are_one_reply(
    plain: cnllm.Model, neutral: Neutral, where: list[int], bytewise: list[int]
) -> None:
    whole = read(plain, neutral.body())
    stream = read(plain, pieces(sse(*neutral.chunks(where)), bytewise))
    check_honest(whole)
    check_honest(stream)
    if isinstance(whole.error, cnllm.EmptyReply):
        assert isinstance(stream.error, cnllm.EmptyReply)
        return
    if neutral.reason == "odd" and any(raw == "{" for _, raw in neutral.calls):
        assert isinstance(stream.error, cnllm.StreamCut)  # [DONE] alone proves nothing where arguments break off
        return
    assert told(stream) == told(whole)
    assert whole.said.text == neutral.text
    assert whole.said.reasoning == neutral.reasoning
    assert sorted((c.name, c.raw) for c in [*whole.said.tool_calls, *whole.said.incomplete]) == sorted(neutral.calls)
    for kind in (cnllm.TextDelta, cnllm.ReasoningDelta):
        assert delivered(stream.events, kind) == delivered(whole.events, kind)
    assert stream.of(cnllm.ToolCallEnd) == whole.of(cnllm.ToolCallEnd)
    assert stream.of(cnllm.BlockEnd) == whole.of(cnllm.BlockEnd)


@times(60)
@given(neutrals, cuts, cuts)
def test_a_body_in_pieces_is_the_body(plain: cnllm.Model, neutral: Neutral, where: list[int], odd: list[int]) -> None:
    whole, parts = read(plain, neutral.body()), read(plain, pieces(neutral.body(), where))
    assert (parts.events, told(parts)) == (whole.events, told(whole))
    if whole.error is not None:
        with pytest.raises(type(whole.error), match=re.escape(str(whole.error))):
            engine.parse_response(plain, 200, {}, neutral.body())
        return
    reply = engine.parse_response(plain, 200, {}, neutral.body())
    assert reply.to_dict() == whole.said.to_dict()
    assert reply.raw == json.loads(neutral.body())


# ── nothing makes it raise ───────────────────────────────────────────────────


@times(200)
@given(dialects, st.binary(max_size=80), cuts, st.sampled_from([200, 200, 204, 302, 400, 429, 503]))
def test_no_bytes_make_it_raise(
    endpoints: dict[str, cnllm.Model], dialect: str, junk: bytes, where: list[int], status: int
) -> None:
    outcome = read(endpoints[dialect], pieces(junk, where), status=status)
    check_honest(outcome)
    assert status < 300 or isinstance(outcome.error, cnllm.EndpointError)


ODD: tuple[Any, ...] = (
    *([], {}, "", 0, 1, True, None, [[]], [{}], [None], {"a": []}, ["x"], 1 << 80, -1, 0.5, "x", {"text": 1}, [5, "x"]),
    *("<think>", "</think>", "b" * 26, {"message": 1, "code": []}, [{"text": []}], [{"function": []}], {"name": []}),
)
"""What may stand where something else is meant."""

CALL = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": {"s": 1}}
DETAIL = {"type": "t", "index": 0, "id": "1", "text": "x", "summary": "y"}
SOUND: tuple[Json, ...] = (
    {"id": "c1", "model": "m", **delta(content="a", role="assistant")},
    delta(reasoning_content="r", reasoning="r"),
    delta(reasoning_details=[DETAIL, DETAIL]),
    delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "a"}]),
    delta(tool_calls=[CALL, {**CALL, "index": 1, "id": "2"}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": " "}}]),
    delta(function_call={"name": "f", "arguments": "{}"}),
    delta(content="<think>hm</think>a", refusal="no"),
    {
        "choices": [
            {"index": 0, "message": {"content": "m", "tool_calls": [CALL]}, "text": "a", "usage": {"prompt_tokens": 1}}
        ]
    },
    finish("stop", content="b"),
    {
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
    },
    {"error": {"message": "no", "code": "x", "type": "y"}},
    {"base_resp": {"status_code": 1, "status_msg": "no"}},
    {"detail": [{"msg": "no"}], "code": 1, "message": "no"},
)
"""Chunks with everything that has a meaning."""


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in JSON."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [p for key, value in inner for p in [(*path, key), *places(value, (*path, key))]]


def with_odd(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """`data` with something else at a place."""
    if not path:
        return value
    if isinstance(data, list):
        return [with_odd(item, path[1:], value) if n == path[0] else item for n, item in enumerate(data)]
    return {k: with_odd(v, path[1:], value) if k == path[0] else v for k, v in data.items()}


ALL_PLACES = [(chunk, path) for chunk in SOUND for path in places(chunk)]
odd_chunks = st.tuples(st.sampled_from(ALL_PLACES), st.sampled_from(ODD) | anything).map(
    lambda drawn: with_odd(drawn[0][0], drawn[0][1], drawn[1])
) | st.sampled_from(SOUND)


def no_raise(model: cnllm.Model, content: bytes, **more: Any) -> Outcome:
    try:
        outcome = read(model, content, **more)
    except Exception as error:
        raise AssertionError(f"raised {error!r} for {content!r}") from error
    check_honest(outcome)
    if isinstance(outcome.error, cnllm.EndpointError):
        assert outcome.error.message
        assert not outcome.error.message.startswith(("{", "["))
    return outcome


@pytest.mark.sampled
@pytest.mark.parametrize("dialect", ["plain", "parts", "either, tags"])
def test_nothing_in_any_place_of_any_chunk_makes_it_raise(endpoints: dict[str, cnllm.Model], dialect: str) -> None:
    for number, (chunk, path) in enumerate(ALL_PLACES):
        for value in ODD[number % SHARE :: SHARE]:
            said = with_odd(chunk, path, value)
            no_raise(endpoints[dialect], sse(said, said, finish()))
            if dialect == "plain":
                whole = json.loads(json.dumps(said).replace('"delta"', '"message"'))
                no_raise(endpoints[dialect], dumps(whole))
                no_raise(endpoints[dialect], dumps(whole), status=400)


@times(150)
@given(dialects, st.lists(odd_chunks, max_size=5), cuts, st.booleans())
def test_no_shape_of_a_chunk_makes_it_raise(
    endpoints: dict[str, cnllm.Model], dialect: str, chunks: list[Json], where: list[int], done: bool
) -> None:
    model, stream = endpoints[dialect], sse(*chunks, done=done)
    outcome = read(model, pieces(stream, where))
    check_honest(outcome)
    whole = read(model, stream)
    assert outcome.events == whole.events
    assert told(outcome) == told(whole)


@times(150)
@given(
    dialects,
    neutrals,
    cuts,
    st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from(["set", "cut", "add"]), st.binary(max_size=3)), max_size=4
    ),
    cuts,
)
def test_no_damage_to_a_stream_makes_it_raise(
    endpoints: dict[str, cnllm.Model],
    dialect: str,
    neutral: Neutral,
    where: list[int],
    damage: list[tuple[int, str, bytes]],
    bytewise: list[int],
) -> None:
    data = bytearray(sse(*neutral.chunks(where)))
    for place, kind, junk in damage:
        at = place % (len(data) + 1)
        data[at : at + {"set": len(junk), "cut": 20, "add": 0}[kind]] = junk if kind != "cut" else b""
    outcome = read(endpoints[dialect], pieces(bytes(data), bytewise))
    check_honest(outcome)
    whole = read(endpoints[dialect], bytes(data))
    assert outcome.events == whole.events
    assert told(outcome) == told(whole)


@each("depth", [100, 400, 900, 980, 984, 985, 986, 990, 1000, 20_000])
@each("head", ["", '"x": NaN, '])
def test_no_depth_makes_it_raise(plain: cnllm.Model, depth: int, head: str) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    for chunk in (
        f'{{{head}"error": {{"message": "no", "more": {deep}}}}}',
        f'{{{head}"choices": [{{"delta": {{"tool_calls": [{{"function": {{"name": "f", "arguments": {deep}}}}}]}}}}]}}',
        f'{{{head}"choices": [{{"delta": {{"reasoning_details": [{deep}]}}}}]}}',
    ):
        for content in (sse(chunk, finish()), chunk.encode()):
            outcome = read(plain, content)
            assert outcome.reply is None or json.dumps(outcome.reply.to_dict())
            assert outcome.error is None or outcome.error.message


@pytest.mark.share(3)
@pytest.mark.sampled
@pytest.mark.parametrize("half", [b"\\ud83d", b"\\ude00", b"a\\ud83d", b"\\ud83d\\ud83d\\ude00", b"\\ude00\\ud83d"])
@pytest.mark.parametrize("dialect", ["plain", "parts", "either", "tags"])
def test_half_a_character_in_any_place_makes_nothing_raise(
    endpoints: dict[str, cnllm.Model], dialect: str, half: bytes
) -> None:
    model = endpoints[dialect]
    for chunk, path in ALL_PLACES[len(half) % SHARE :: SHARE]:
        said = dumps(with_odd(chunk, path, "HALF")).replace(b"HALF", half)
        for content in (sse(said), sse(said, said, finish()), sse(said, delta(content="more"), finish()), said):
            no_raise(model, content)
        no_raise(model, said.replace(b'"delta"', b'"message"'))
        no_raise(model, said, status=400)
    for key in ("id", "x", "choices", "error"):
        no_raise(model, dumps({key: "HALF", "HALF": 1}).replace(b"HALF", half))


def test_a_deep_call_is_a_call_and_a_deep_error_says_what_it_says(plain: cnllm.Model) -> None:
    deep = '{"a":' * 600 + "1" + "}" * 600
    error = read(plain, sse(f'{{"error": {{"message": "no", "more": {deep}}}}}')).error
    assert error is not None
    assert error.message == "no"
    call = f'{{"choices": [{{"delta": {{"tool_calls": [{{"function": {{"name": "f", "arguments": {deep}}}}}]}}}}]}}'
    assert [c.name for c in read(plain, sse(call, finish("tool_calls"))).said.tool_calls] == ["f"]


# ── the end ──────────────────────────────────────────────────────────────────


def finish_ends(stream: bytes) -> int:
    """How many bytes of a stream must come before its finish is known: all up to the end of the chunk that has it."""
    at = stream.index(b'"finish_reason"')
    return stream.index(b"\n", at)


def test_a_finish_reason_is_known_however_its_words_are_joined(plain: cnllm.Model) -> None:
    def ending(word: str) -> str:
        return read(plain, sse(delta(content="Hi."), finish(word))).said.finish

    joined = [word for word in plain.flags.finish or {} if "_" in word]
    assert set(map(ending, joined)) == {"content_filter", "error", "length", "stop"}
    for word in joined:
        for spelling in (word.replace("_", "-"), word.replace("_", " "), f" {word.upper()} "):
            assert ending(spelling) == ending(word)


def test_a_finish_before_any_answer_does_not_end_what_is_read(plain: cnllm.Model) -> None:
    for said, is_finished in (({}, False), ({"content": "Hi."}, True)):
        parser = engine.StreamParser(plain)
        parser.feed(frame(delta(**said)))
        assert not parser.finished
        parser.feed(frame(finish()))
        assert parser.finished is is_finished
    parser = engine.StreamParser(plain)
    parser.feed(frame(finish("length")))
    assert parser.finished
    parser = engine.StreamParser(plain)
    parser.feed(body(None, content="Hi."))
    assert not parser.finished
    parser.end()
    assert parser.finished


@times(150)
@given(dialects.filter(lambda d: d not in ("done", "any")), neutrals, cuts, st.integers(0, 1 << 20))
def test_a_stream_that_is_cut_before_its_finish_is_never_whole(
    endpoints: dict[str, cnllm.Model], dialect: str, neutral: Neutral, where: list[int], place: int
) -> None:
    stream = sse(*neutral.chunks(where))
    outcome = read(endpoints[dialect], stream[: place % finish_ends(stream)])
    check_honest(outcome)
    assert isinstance(outcome.error, cnllm.StreamCut | cnllm.EndpointError)
    assert outcome.reply is None or outcome.reply.finish in ("cut", "error")
    assert outcome.reply is None or outcome.reply.tool_calls == []
    assert not outcome.of(cnllm.ToolCallEnd)


def test_no_byte_is_a_place_to_take_a_cut_stream_for_a_whole_one(endpoints: dict[str, cnllm.Model]) -> None:
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a":1}'}}
    stream = sse(delta(content="好"), delta(tool_calls=[call]), finish("tool_calls"), {"choices": [], "usage": {}})
    proofs = {"plain": finish_ends(stream), "any": finish_ends(stream), "done": stream.index(b"[DONE]") + 6}
    for dialect, proven in proofs.items():
        for at in range(len(stream) + 1):
            outcome = read(endpoints[dialect], stream[:at])
            check_honest(outcome)
            assert (outcome.error is None) == (at >= proven), stream[:at]
            if at < proven:
                assert outcome.reply is None or not outcome.reply.tool_calls
            else:
                assert [c.arguments for c in outcome.said.tool_calls] == [{"a": 1}]


@times(60)
@given(neutrals, cuts)
def test_a_body_that_is_cut_anywhere_is_an_error(plain: cnllm.Model, neutral: Neutral, where: list[int]) -> None:
    content = neutral.body()
    for at in {w % len(content) for w in where}:
        outcome = read(plain, content[:at])
        check_honest(outcome)
        assert outcome.error is not None
        assert outcome.reply is None or outcome.reply.tool_calls == []


@times(60)
@given(neutrals, cuts, st.binary(max_size=40))
def test_after_the_end_nothing_counts(plain: cnllm.Model, neutral: Neutral, where: list[int], junk: bytes) -> None:
    stream = sse(*neutral.chunks(where))
    more = sse(delta(content="more"), finish())
    outcome, longer = read(plain, stream), read(plain, stream + more + junk)
    assert (longer.events, told(longer)) == (outcome.events, told(outcome))


@each("content", lambda: [b"", sse(delta(content="a"), finish()), body(content="a"), b"data: {"])
def test_closing_twice_says_the_same_twice(plain: cnllm.Model, content: bytes) -> None:
    parser = engine.StreamParser(plain)
    parser.feed(content)
    said: list[Any] = []
    for _ in range(2):
        try:
            said.append(parser.close())
        except cnllm.CnllmError as error:
            said.append((type(error), str(error), error.reply))
        assert parser.feed(content) == parser.end() == []
    assert said[0] == said[1]


def test_nothing_at_all_is_no_whole_reply(plain: cnllm.Model) -> None:
    for content in (b"", b"\n\n", b": hello\n\n", b"\xef\xbb\xbf", b" "):
        outcome = read(plain, content)
        assert isinstance(outcome.error, cnllm.StreamCut | cnllm.EndpointError)


# ── what endpoints do ────────────────────────────────────────────────────────


def test_the_first_chunk_of_a_gateway_may_have_an_empty_id(plain: cnllm.Model) -> None:
    opening = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    reply = read(plain, sse(opening, {"id": "c1", "model": "m-2", **delta(content="a")}, finish())).said
    assert (reply.id, reply.model) == ("c1", "m-2")


@each("indices", [[0, 1], [None, None], [None, 1], [0, None]])
def test_of_several_candidates_the_first_is_the_reply(plain: cnllm.Model, indices: list[int | None]) -> None:
    def said(kind: str) -> Json:
        choices = [
            {**({} if i is None else {"index": i}), kind: {"content": text}, "finish_reason": "stop"}
            for i, text in zip(indices, ["one", "two"], strict=True)
        ]
        return {"choices": choices}

    assert read(plain, dumps(said("message"))).said.text == "one"
    assert read(plain, sse(said("delta"))).said.text == "one"


@pytest.mark.parametrize("inner", [5, None, {}, {"text": "a"}, "a", [5, None, "a"], [["a"]]])
def test_a_part_that_holds_thinking_may_hold_anything(endpoints: dict[str, cnllm.Model], inner: Any) -> None:
    outcome = read(endpoints["parts"], sse(delta(content=[{"type": "thinking", "thinking": inner}, "yes"]), finish()))
    check_honest(outcome)
    assert outcome.said.text == "yes"


@each("value", ["²", "٣", "1.2.3", "soon", "-1", "nan", "Wed, 99 Foo 2026", "", "1e3", "9" * 400])
@each("name", ["Retry-After", "retry-after-ms"])
def test_a_wait_that_makes_no_sense_is_no_wait(plain: cnllm.Model, name: str, value: str) -> None:
    outcome = read(plain, b"slow down", status=429, headers={name: value})
    assert isinstance(outcome.error, cnllm.RateLimited)
    assert outcome.error.retry_after is None or outcome.error.retry_after >= 0


@each("done", [True, False])
def test_chunks_with_no_blank_lines_at_all_are_read(plain: cnllm.Model, done: bool) -> None:
    stream = sse(delta(content="a"), finish(), done=done).replace(b"\n\n", b"\n")
    assert read(plain, stream).said.text == "a"


@each("blank", ["data:", "data: ", "data:\ndata:", "data:\u00a0"])
def test_an_event_with_blank_data_says_nothing(plain: cnllm.Model, blank: str) -> None:
    stream = f"{blank}\n\n".encode() + sse(delta(content="a"), finish())
    assert read(plain, stream).said == read(plain, sse(delta(content="a"), finish())).said


@each("word", ["data source is down", "event store failed", "identity check failed", "retry later"])
def test_a_plain_sentence_instead_of_a_reply_is_the_error(plain: cnllm.Model, word: str) -> None:
    error = read(plain, word.encode()).error
    assert isinstance(error, cnllm.EndpointError)
    assert error.message == word


def test_an_error_in_a_list_says_what_it_says(plain: cnllm.Model) -> None:
    error = read(plain, b'[{"error": {"code": 400, "message": "API key not valid"}}]', status=400).error
    assert error is not None
    assert error.message == "API key not valid"


def test_a_character_whose_surrogates_come_in_two_chunks_is_one_character(plain: cnllm.Model) -> None:
    halves = ['{"choices":[{"delta":{"content":"\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00"}}]}']
    assert read(plain, sse(*halves, finish())).said.text == "😀"


# ── snapshots ────────────────────────────────────────────────────────────────


@times(150)
@given(st.text(min_size=1, max_size=60), cuts, st.sampled_from(["snapshots", "either"]))
def test_snapshots_of_all_so_far_come_to_the_text(
    endpoints: dict[str, cnllm.Model], text: str, where: list[int], dialect: str
) -> None:
    lengths = sorted({w % len(text) + 1 for w in where} | {len(text)})
    if dialect == "either" and len(lengths) == 1:
        lengths = [*lengths, lengths[-1]]
    chunks = [delta(content=text[:length]) for length in lengths]
    outcome = read(endpoints[dialect], sse(*chunks, finish()))
    check_honest(outcome)
    assert outcome.said.text == text


@times(150)
@given(st.lists(words.filter(bool), min_size=1, max_size=8), st.sampled_from(["content", "reasoning_content"]))
def test_pieces_are_not_taken_for_snapshots_for_long(
    endpoints: dict[str, cnllm.Model], parts: list[str], field: str
) -> None:
    parts = ["a", "b", *parts]  # the second says what it is
    outcome = read(endpoints["either"], sse(*(delta(**{field: part}) for part in parts), finish()))
    check_honest(outcome)
    assert outcome.said.text + outcome.said.reasoning == "".join(parts)


@times(100)
@given(st.lists(words, max_size=8), cuts)
def test_undeclared_snapshots_are_found_out(plain: cnllm.Model, parts: list[str], where: list[int]) -> None:
    text = "It is a long text that comes again and again. " + "".join(f"{n}{p}" for n, p in enumerate(parts)) + "end."
    at = [30, *range(31, len(text) + 1)]
    outcome = read(plain, pieces(sse(*(delta(content=text[:n]) for n in at), finish()), where))
    check_honest(outcome)
    assert outcome.said.text == text
    assert outcome.of(cnllm.Restarted)


def test_two_pieces_that_hold_the_one_before_may_be_chance(plain: cnllm.Model) -> None:
    long = "It is a long text that comes again."
    for parts in (["So: ", long, f"{long} a", f"{long} a b", "!"], [long, f"{long} a", f"{long} a b", "!"]):
        outcome = read(plain, sse(*(delta(content=part) for part in parts), finish()))
        assert outcome.said.text == "".join(parts)
        assert not outcome.of(cnllm.Restarted)


def test_reasoning_between_tags_in_two_places_goes_back_whole(home: Home) -> None:
    flags = 'tags = ["<think>", "</think>"], replay = "always", replay_as = "tags"'
    model = home(f"reasoning = {{ {flags} }}")
    text = "<think>a</think>\nFirst.\n<think>b</think>\nSecond."
    said = read(model, sse(*(delta(content=piece) for piece in text), finish())).said
    assert (said.reasoning, said.text) == ("ab", "First.\nSecond.")
    sent = engine.build_request(model, ["Hi", said.message, "And?"]).body["messages"][1]
    assert sent == {"role": "assistant", "content": "<think>ab</think>First.\nSecond."}


@pytest.mark.parametrize(("dialect", "opening"), [("tags", "<think>"), ("tags open", "")])
def test_undeclared_snapshots_are_found_out_inside_a_tag(
    endpoints: dict[str, cnllm.Model], dialect: str, opening: str
) -> None:
    thought, answer = "It is a long text that comes again and again.", "It is the answer."
    text = f"{opening}{thought}</think>{answer}"
    chunks = [delta(content=text[:length]) for length in range(30, len(text) + 1)]
    outcome = read(endpoints[dialect], sse(*chunks, finish()))
    check_honest(outcome)
    assert (outcome.said.reasoning, outcome.said.text) == (thought, answer)
    assert outcome.of(cnllm.Restarted)


def test_half_a_character_at_the_end_of_a_snapshot_is_whole_in_the_next(endpoints: dict[str, cnllm.Model]) -> None:
    for whole in "😀𐀀\U0010ffff":
        halves = json.dumps(whole)[1:-1]
        texts = ["a", f"a{halves[:6]}", f"a{halves}", f"a{halves}b"]
        chunks = [f'{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}' for text in texts]
        assert read(endpoints["snapshots"], sse(*chunks, finish())).said.text == f"a{whole}b"


# ── mirrored thinking ────────────────────────────────────────────────────────


@times(100)
@given(st.text(min_size=1, max_size=30), cuts, cuts)
def test_thinking_that_comes_in_two_fields_counts_once(
    plain: cnllm.Model, text: str, where: list[int], other: list[int]
) -> None:
    both = [delta(reasoning_content=piece, reasoning=piece) for piece in parted(text, where)]
    outcome = read(plain, sse(*both, finish(content="a")))
    assert outcome.said.reasoning == text
    later = [delta(reasoning_content=text), *(delta(reasoning=piece) for piece in parted(text, other))]
    assert read(plain, sse(*later, finish(content="a"))).said.reasoning == text


@each("size", [1000, 1 << 30])
@each("behind", [0, 1, 700, 2500])
def test_thinking_of_any_length_counts_once_however_far_the_second_field_lags(
    plain: cnllm.Model, size: int, behind: int
) -> None:
    texts = [f"{n} " for n in range(2500)]
    chunks: list[Json] = []
    for n in range(len(texts) + behind):
        chunks += [delta(reasoning_content=texts[n])] if n < len(texts) else []
        chunks += [delta(reasoning=texts[n - behind])] if n >= behind else []
    stream = sse(*chunks, *(delta(content=text) for text in texts), finish())
    outcome = read(plain, [stream[at : at + size] for at in range(0, len(stream), size)])
    check_honest(outcome)
    assert outcome.said.reasoning == outcome.said.text == "".join(texts)


SNAPSHOTS = [delta(content="x" * 30 + "y" * n) for n in range(6)]


def test_thinking_in_two_fields_counts_once_across_a_restart(plain: cnllm.Model) -> None:
    thoughts = [f"t{n} " for n in range(5)]
    first = [*(delta(reasoning_content=t) for t in thoughts), *(delta(reasoning=t) for t in thoughts[:2])]
    outcome = read(plain, sse(*first, *SNAPSHOTS, *(delta(reasoning=t) for t in thoughts[2:]), finish()))
    assert outcome.of(cnllm.Restarted)
    assert outcome.said.reasoning == "".join(thoughts)


def test_a_call_that_began_before_a_restart_begins_again_after_it(plain: cnllm.Model) -> None:
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
    events = read(plain, sse(delta(tool_calls=[call]), *SNAPSHOTS, finish("tool_calls"))).events
    after = events[events.index(cnllm.Restarted()) :]
    assert cnllm.ToolCallStart(0, "1", "f") in after
    assert cnllm.ToolCallDelta(0, "{}") in after


@each("first", [None, 5, "x", [1], True])
def test_a_choice_that_is_no_object_says_nothing(plain: cnllm.Model, first: Any) -> None:
    outcome = read(plain, sse(delta(content="a"), {"choices": [first]}, delta(content="b"), finish()))
    assert outcome.said.text == "ab"


# ── arguments ────────────────────────────────────────────────────────────────
@each("status, error", [(-1, ValueError), (1000, ValueError), (True, ValueError), ("200", TypeError), (2.0, TypeError)])
def test_a_status_that_no_response_has_is_refused(plain: cnllm.Model, status: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="status"):
        engine.StreamParser(plain, status=status)
    assert engine.StreamParser(plain, status=999) is not None


# ── time ─────────────────────────────────────────────────────────────────────


def work(model: cnllm.Model, unit: bytes, count: int, size: int) -> int:
    parser = engine.StreamParser(model)
    data = frame(delta(content="a", reasoning_content="b")) + unit * count
    with Work() as counted:
        for at in range(0, len(data), size):
            parser.feed(data[at : at + size])
        parser.end()
    return counted.done


@each("size", [50, 1 << 30])
@each(
    "unit",
    lambda: [
        frame(delta(content="好")),
        frame(delta(reasoning_content="b")),
        frame(delta(content="x" * 40)),
        frame(delta(reasoning="c")),
        frame("not json"),
        frame("[1]"),
        frame(delta(reasoning_details=[{"type": "t", "index": 0, "text": "x" * 20}])),
        b'data: {"choices": [{"delta": {"content": "a"}}]}\n',
        b": hm\n\n",
    ],
    ids=range(9),
)
def test_four_times_the_stream_is_about_four_times_the_work(plain: cnllm.Model, unit: bytes, size: int) -> None:
    count = share(100)
    assert work(plain, unit, 4 * count, size) < 6 * work(plain, unit, count, size)


@each("size", [1, 7, 1000])
def test_lines_of_json_are_read_the_same_in_pieces(home: Home, size: int) -> None:
    lines = b"".join(json.dumps(chunk).encode() + b"\n" for chunk in (delta(content="h"), finish(content="i")))
    parser = engine.StreamParser(home('stream.framing = "ndjson"'))
    for at in range(0, len(lines), size):
        parser.feed(lines[at : at + size])
    assert parser.close().text == "hi"


@each("end", ["\n", "\r\n"])
def test_lines_of_json_that_nobody_declared_are_a_stream_and_may_be_cut(plain: cnllm.Model, end: str) -> None:
    lines = [json.dumps(chunk) + end for chunk in (delta(content="h"), delta(content="i"), finish("stop"))]
    parser = engine.StreamParser(plain)
    parser.feed("".join(lines).encode())
    assert (parser.close().text, parser.close().finish) == ("hi", "stop")
    for cut in ("".join(lines[:2]), "".join(lines)[:-9]):
        parser = engine.StreamParser(plain)
        parser.feed(cut.encode())
        with pytest.raises(cnllm.StreamCut) as caught:
            parser.close()
        assert caught.value.reply is not None
        assert caught.value.reply.text == "hi"
    failure = json.dumps({"error": {"message": "no room", "code": 503}})
    parser = engine.StreamParser(plain)
    parser.feed(f"{lines[0]}{failure}{end}".encode())
    with pytest.raises(cnllm.EndpointError, match="no room"):
        parser.close()


@each("start", [b"\n\xef\xbb\xbf", b" \r\n\xef\xbb\xbf", b"  ", b"\n\n"])
@each("size", [1, 2, 3, 1000])
def test_what_stands_before_the_first_event_is_read_the_same_in_pieces(
    plain: cnllm.Model, start: bytes, size: int
) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    content = start + chunk
    parser = engine.StreamParser(plain)
    for at in range(0, len(content), size):
        parser.feed(content[at : at + size])
    assert parser.close().text == "hi"


@each(
    "flags, whole_by",
    [
        ("", {"finish", "marker", "both"}),
        ('unset = ["stream.terminator"]', {"finish", "marker", "both"}),
        ('unset = ["stream"]', {"finish", "marker", "both"}),
        ('stream.terminator = "finish"', {"finish", "marker", "both"}),
        ('stream.terminator = "done"', {"marker", "both"}),
        ('stream.terminator = "any"', {"finish", "marker", "both"}),
    ],
)
@each("ending", ["nothing", "finish", "marker", "both"])
def test_a_stream_is_whole_by_the_proof_that_is_declared(
    home: Home, ending: str, flags: str, whole_by: set[str]
) -> None:
    end = f"data: {json.dumps(finish('stop'))}\n\n" if ending in ("finish", "both") else ""
    end += "data: [DONE]\n\n" if ending in ("marker", "both") else ""
    parser = engine.StreamParser(home(flags))
    parser.feed(f"data: {json.dumps(delta(content='Hello'))}\n\n{end}".encode())
    parser.end()
    if ending in whole_by:
        assert (parser.close().text, parser.close().finish) == ("Hello", "stop")
    else:
        with pytest.raises(cnllm.StreamCut):
            parser.close()
