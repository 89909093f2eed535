"""Tool calls come back the same in whatever sloppy manner they were streamed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pytest
from cases import each
from examples import share
from hypothesis import assume, given
from hypothesis import strategies as st

import cnllm

from .conftest import Home
from .support import Json, Work, body, check_honest, cuts, delta, finish, pieces, read, sse, times, words

# ── what is meant ────────────────────────────────────────────────────────────

names = st.sampled_from(["f", "g", "search", "get_weather", "a.b-c_d", "查"])
values = st.recursive(
    st.integers(-99, 99) | st.booleans() | st.none() | words | st.sampled_from(['"}{', "\\", "{}", "]", '\\"}']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
keys = words.filter(lambda word: "<" not in word)  # markup in a name shows that a call was parsed wrongly
arguments = st.dictionaries(keys, values, max_size=3)


@dataclass(frozen=True)
class Wanted:
    """A call, and its arguments as JSON text."""

    id: str
    name: str
    raw: str

    @property
    def value(self) -> Any:
        return json.loads(self.raw)


@st.composite
def wanted(draw: st.DrawFn) -> list[Wanted]:
    count = draw(st.integers(1, 4))
    spaced: Any = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return [
        Wanted(f"id{n}", draw(names), json.dumps(draw(arguments), separators=spaced, ensure_ascii=False))
        for n in range(count)
    ]


# ── how it is said ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Manner:
    """How sloppy an endpoint is. What a manner cannot tell apart is ruled out in `manners`."""

    index: Literal["right", "missing", "null", "zero"]
    id: Literal["first", "every", "then-empty", "then-null", "never"]
    name: Literal["first", "every", "then-empty", "then-null", "late"]
    arguments: Literal["fragments", "whole", "object", "after-null", "after-empty"]
    interleaved: bool
    again: bool
    type: bool


@st.composite
def manners(draw: st.DrawFn) -> Manner:
    manner = draw(
        st.builds(
            Manner,
            index=st.sampled_from(["right", "missing", "null", "zero"]),
            id=st.sampled_from(["first", "every", "then-empty", "then-null", "never"]),
            name=st.sampled_from(["first", "every", "then-empty", "then-null", "late"]),
            arguments=st.sampled_from(["fragments", "whole", "object", "after-null", "after-empty"]),
            interleaved=st.booleans(),
            again=st.booleans(),
            type=st.booleans(),
        )
    )
    if manner.interleaved:
        assume(manner.index == "right" or (manner.index != "zero" and manner.id == "every"))
    if manner.name == "late":
        assume(manner.arguments not in ("whole", "object"))
    if manner.id == "never" and manner.index != "right":  # only a new name or a new object tells a new call
        assume(manner.name == "first")
        assume(manner.arguments in ("fragments", "whole", "object"))
        assume(not manner.again)
    return manner


def items(call: Wanted, place: int, manner: Manner, cut: list[int]) -> list[Json]:
    """The pieces of one call."""
    said: list[Any]
    match manner.arguments:
        case "whole":
            said = [call.raw]
        case "object":
            said = [call.value]
        case _:
            said = [piece.decode("utf-8") for piece in pieces_of_text(call.raw, cut)]
    if manner.arguments == "after-null":
        said = [None, *said]
    elif manner.arguments == "after-empty":
        said = ["", *said]
    if manner.name == "late" and len(said) == 1:
        said = ["", *said]
    out: list[Json] = []
    for number, piece in enumerate(said):
        first = number == 0
        item: Json = {"type": "function"} if manner.type else {}
        if manner.index != "missing":
            item["index"] = {"right": place, "null": None, "zero": 0}[manner.index]
        if manner.id != "never" and (first or manner.id == "every"):
            item["id"] = call.id
        elif manner.id in ("then-empty", "then-null"):
            item["id"] = "" if manner.id == "then-empty" else None
        function: Json = {"arguments": piece} if piece is not None else {"arguments": None}
        if manner.name == "every" or (number == 1 if manner.name == "late" else first):
            function["name"] = call.name
        elif manner.name in ("then-empty", "then-null"):
            function["name"] = "" if manner.name == "then-empty" else None
        out.append({**item, "function": function})
    return out


def pieces_of_text(text: str, where: list[int]) -> list[bytes]:
    at = [0, *sorted({w % (len(text) + 1) for w in where} - {0, len(text)}), len(text)]
    return [text[a:b].encode() for a, b in pairwise(at)]


def streamed(calls: list[Wanted], manner: Manner, cut: list[int]) -> list[Json]:
    """All pieces in the order they are sent."""
    queues = [items(call, place, manner, cut) for place, call in enumerate(calls)]
    out: list[Json] = []
    if manner.interleaved:
        while any(queues):
            out += [queue.pop(0) for queue in queues if queue]
    else:
        out = [item for queue in queues for item in queue]
    if manner.again:
        for place, call in enumerate(calls):
            function = {"name": call.name, "arguments": call.value if manner.arguments == "object" else call.raw}
            item: Json = {"function": function} if manner.id == "never" else {"id": call.id, "function": function}
            out.append({**item, "index": place} if manner.index == "right" else item)
    return out


def got(reply: cnllm.Reply) -> list[tuple[str, Any]]:
    return [(c.name, c.arguments) for c in reply.tool_calls]


# ── the property ─────────────────────────────────────────────────────────────


@times(200)
@given(wanted(), manners(), cuts, st.booleans())
def test_calls_streamed_in_any_sloppy_manner_come_back_the_same(
    plain: cnllm.Model, calls: list[Wanted], manner: Manner, cut: list[int], together: bool
) -> None:
    if manner.id == "never" and manner.index != "right":
        assume(len({(c.name, c.raw) for c in calls}) == len(calls))
    if manner.id == "never" and manner.name == "late":
        # A piece with a new index, but without an id and a name, goes on with a call whose arguments may be a
        # placeholder (test_indexes): that its name comes later cannot be known.
        assume(not any("".join(call.raw.split()) == "{}" for call in calls[:-1]))
    said = streamed(calls, manner, cut)
    chunks = [delta(tool_calls=said)] if together else [delta(tool_calls=[item]) for item in said]
    outcome = read(plain, sse(*chunks, finish("tool_calls")))
    check_honest(outcome)
    assert outcome.error is None
    assert got(outcome.said) == [(c.name, c.value) for c in calls]
    ids = [c.id for c in outcome.said.tool_calls]
    assert ids == [c.id for c in calls] if manner.id != "never" else len(set(ids)) == len(calls)
    for event in outcome.of(cnllm.ToolCallEnd):
        pieces = "".join(e.text for e in outcome.of(cnllm.ToolCallDelta) if e.index == event.index)
        assert pieces == event.call.raw
        assert cnllm.ToolCallStart(event.index, event.call.id, event.call.name) in outcome.events


def test_a_whole_call_repeated_in_another_spelling_is_one_call(plain: cnllm.Model) -> None:
    said = [{"index": 0, "id": "1", "function": {"name": "f", "arguments": a}} for a in ('{"a":1}', '{"a": 1}')]
    outcome = read(plain, sse(*(delta(tool_calls=[item]) for item in said), finish("tool_calls")))
    assert got(outcome.said) == [("f", {"a": 1})]


@each("one, other", [("1", "true"), ("1", "1.0"), ("0", "false"), ("null", "{}"), ("[]", "{}")])
def test_two_calls_that_only_look_alike_are_two(plain: cnllm.Model, one: str, other: str) -> None:
    said = [{"function": {"name": "f", "arguments": f'{{"a": {value}}}'}} for value in (one, other)]
    outcome = read(plain, sse(*(delta(tool_calls=[item]) for item in said), finish("tool_calls")))
    assert [c.raw for c in outcome.said.tool_calls] == [item["function"]["arguments"] for item in said]


@times(60)
@given(wanted())
def test_the_calls_of_a_body_are_what_they_are_even_when_two_are_alike(plain: cnllm.Model, calls: list[Wanted]) -> None:
    said = [{"id": c.id, "function": {"name": c.name, "arguments": c.raw}} for c in [*calls, calls[0]]]
    reply = read(plain, body("tool_calls", tool_calls=said)).said
    assert got(reply) == [(c.name, c.value) for c in [*calls, calls[0]]]
    assert [c.raw for c in reply.tool_calls] == [c.raw for c in [*calls, calls[0]]]


def test_an_id_of_an_earlier_turn_is_changed_with_a_note(plain: cnllm.Model) -> None:
    call = cnllm.ToolCall("c1", "f", {}, "{}")
    history = [cnllm.Message("user", "Hi"), cnllm.Message("assistant", (call,)), cnllm.Message.tool("c1", "done")]
    plan = cnllm.engine.build_request(plain, history)
    said = [{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ("c1", "c2")]
    reply = cnllm.engine.parse_response(plain, 200, {}, body("tool_calls", tool_calls=said), plan=plan)
    assert [call.id == id for call, id in zip(reply.tool_calls, ("c1", "c2"), strict=True)] == [False, True]
    assert [note.code for note in reply.notes] == ["ids-repeated"]


def test_the_message_of_a_body_counts_and_no_delta_beside_it(plain: cnllm.Model) -> None:
    choice = {"index": 0, "delta": {"content": "No."}, "message": {"content": "Yes."}, "finish_reason": "stop"}
    assert cnllm.engine.parse_response(plain, 200, {}, json.dumps({"choices": [choice]}).encode()).text == "Yes."


def test_an_id_that_comes_twice_gives_way_to_one_that_the_endpoint_takes(home: Home) -> None:
    model = home('tools.call_id_pattern = "[a-zA-Z0-9]{9}"')
    said = [{"id": "abcdefghi", "function": {"name": "f", "arguments": f'{{"a": {n}}}'}} for n in range(3)]
    plan = cnllm.engine.build_request(model, "Hi")
    reply = cnllm.engine.parse_response(model, 200, {}, body("tool_calls", tool_calls=said), plan=plan)
    ids = [call.id for call in reply.tool_calls]
    assert ids[0] == "abcdefghi"
    assert len({*ids}) == 3
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", id) for id in ids)


@each("said", [{}, {"arguments": ""}, {"arguments": None}, {"arguments": "null"}, {"arguments": {}}])
@each("whole", [True, False])
def test_no_arguments_are_an_empty_object(plain: cnllm.Model, said: Json, whole: bool) -> None:
    calls = [{"index": 0, "id": "1", "function": {"name": "f", **said}}]
    content = body("tool_calls", tool_calls=calls) if whole else sse(delta(tool_calls=calls), finish("tool_calls"))
    outcome = read(plain, content)
    check_honest(outcome)
    assert got(outcome.said) == [("f", {})]


def test_two_calls_without_arguments_are_two_calls(plain: cnllm.Model) -> None:
    for index in (True, False):
        said = [{"id": f"id{n}", "function": {"name": "f"}, **({"index": n} if index else {})} for n in range(2)]
        outcome = read(plain, sse(*(delta(tool_calls=[item]) for item in said), finish("tool_calls")))
        check_honest(outcome)
        assert [(c.id, c.arguments) for c in outcome.said.tool_calls] == [("id0", {}), ("id1", {})]


def test_a_call_without_arguments_begins_before_the_next_one(plain: cnllm.Model) -> None:
    functions: list[Json] = [{"name": "f"}, {"name": "g", "arguments": "{}"}]
    chunks = [delta(tool_calls=[{"index": n, "id": f"id{n}", "function": f}]) for n, f in enumerate(functions)]
    outcome = read(plain, sse(*chunks, finish("tool_calls")))
    check_honest(outcome)
    assert [(e.index, e.name) for e in outcome.of(cnllm.ToolCallStart)] == [(0, "f"), (1, "g")]


F: tuple[str, Any] = ("f", {"x": 1})
G: tuple[str, Any] = ("g", {})


@each(
    "said, calls",
    [
        ([("a", "f", '{"x"'), ("b", "", ":1}")], [F]),  # each piece has an id of its own
        ([("", "f", ""), ("a", "f", '{"x":1}')], [F]),  # the id comes with the arguments
        ([("", "f", '{"x"'), ("", "f", ":1}")], [F]),
        ([("", "f", '{"x":1}'), ("", "g", "{}")], [F, G]),
        ([("", "f", '{"x":1}'), ("a", "g", "{}")], [F, G]),
        ([("a", "f", '{"x":1}'), ("b", "g", "")], [F, G]),
        ([("", "g", ""), ("", "f", '{"x":1}')], [G, F]),
    ],
)
def test_pieces_without_an_index_go_to_the_call_that_they_fit(
    plain: cnllm.Model, said: list[tuple[str, str, str]], calls: list[tuple[str, Any]]
) -> None:
    items = [{"id": id, "function": {"name": name, "arguments": piece}} for id, name, piece in said]
    outcome = read(plain, sse(*(delta(tool_calls=[item]) for item in items), finish("tool_calls")))
    check_honest(outcome)
    assert got(outcome.said) == calls


def test_calls_whose_names_come_late_take_turns(plain: cnllm.Model) -> None:
    pieces = [(0, {"arguments": '{"x"'}), (1, {"arguments": "{"}), (0, {"name": "f", "arguments": ":1}"})]
    pieces.append((1, {"name": "g", "arguments": "}"}))
    chunks = [delta(tool_calls=[{"index": index, "function": function}]) for index, function in pieces]
    outcome = read(plain, sse(*chunks, finish("tool_calls")))
    check_honest(outcome)
    assert got(outcome.said) == [F, G]


def test_the_old_function_call_is_a_call(plain: cnllm.Model) -> None:
    old = [{"name": "f", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}]
    outcome = read(plain, sse(*(delta(function_call=said) for said in old), finish("function_call")))
    check_honest(outcome)
    assert got(outcome.said) == [("f", {"a": 1})]
    assert outcome.said.finish == "tool_calls"


def test_a_name_may_come_in_pieces(plain: cnllm.Model) -> None:
    said = [{"name": "get_"}, {"name": "weather"}, {"arguments": "{}"}]
    chunks = [delta(tool_calls=[{"index": 0, "id": "1", "function": function}]) for function in said]
    assert got(read(plain, sse(*chunks, finish("tool_calls"))).said) == [("get_weather", {})]


def test_what_comes_beside_a_call_is_sealed_with_it(plain: cnllm.Model) -> None:
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"s": "x"}}
    reply = read(plain, sse(delta(tool_calls=[call]), finish("tool_calls"))).said
    assert reply.tool_calls[0].seal == cnllm.Seal("openai-chat", "home", "m", {"extra_content": {"s": "x"}})


@each("raw", ['{"a":', "[1]", '"a"', "1", "{'a':1}", '{"a":1}}', "<a>", '{"a":NaN}'])
def test_arguments_that_are_no_object_are_kept_with_the_problem(plain: cnllm.Model, raw: str) -> None:
    chunk = delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": raw}}])
    [call] = read(plain, sse(chunk, finish("tool_calls"))).said.tool_calls
    assert (call.arguments, call.raw) == (None, raw)
    assert call.problem


@times(100)
@given(wanted(), cuts)
def test_the_call_that_the_length_cut_off_is_never_executable(
    plain: cnllm.Model, calls: list[Wanted], cut: list[int]
) -> None:
    *whole, last = [c for c in calls if c.raw.strip() != ""]
    for length in {c % len(last.raw) for c in cut}:
        said = [*whole, Wanted(last.id, last.name, last.raw[:length])]
        chunks = [
            delta(tool_calls=[{"index": n, "id": c.id, "function": {"name": c.name, "arguments": c.raw}}])
            for n, c in enumerate(said)
        ]
        reply = read(plain, sse(*chunks, finish("length"))).said
        assert got(reply) == [(c.name, c.value) for c in whole]
        assert [(c.name, c.raw, c.arguments) for c in reply.incomplete] == [(last.name, last.raw[:length], None)]
        assert reply.finish == "length"


@each("word, raw, executable", [
    ("tool_calls", "{}", True), ("content_filter", "{}", True), ("content_filter", '{"a"', False),
    ("content_filter", "", False), ("length", "", False), ("error", "{}", False), ("error", '{"a"', False),
])  # fmt: skip
def test_the_end_of_a_reply_decides_which_calls_may_run(home: Home, word: str, raw: str, executable: bool) -> None:
    model = home(more="price = { currency = 'USD', input = 1.0, output = 1.0 }")
    call = delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": raw}}])
    usage = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}
    outcome = read(model, sse(call, finish(word), usage))
    check_honest(outcome)
    reply = outcome.said
    assert [c.name for c in reply.tool_calls] == ["f"] * executable
    assert [c.name for c in reply.incomplete] == ["f"] * (not executable)
    assert reply.cost is not None
    assert reply.cost.missing == (("output",) if word == "error" else ())


@each("index", [[], {}, [0], {"a": 1}, "0", 0.0, True, -1, 1 << 70, 1.5])
def test_no_index_is_too_odd(plain: cnllm.Model, index: Any) -> None:
    said = [{"index": index, "id": "1", "function": {"name": "f", "arguments": piece}} for piece in ('{"a"', ":1}")]
    outcome = read(plain, sse(*(delta(tool_calls=[item]) for item in said), finish("tool_calls")))
    check_honest(outcome)
    assert got(outcome.said) == [("f", {"a": 1})]


def test_a_call_without_a_name_is_incomplete(plain: cnllm.Model) -> None:
    chunk = delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "", "arguments": "{}"}}])
    outcome = read(plain, sse(chunk, finish("tool_calls")))
    check_honest(outcome)
    assert outcome.said.tool_calls == []
    assert [c.raw for c in outcome.said.incomplete] == ["{}"]
    assert outcome.of(cnllm.ToolCallStart) == []


@each("lost", [{"name": "", "arguments": "{}"}, {"name": "f", "arguments": '{"a":'}])
def test_a_call_ends_under_the_index_it_began_with(plain: cnllm.Model, lost: Json) -> None:
    functions = [lost, {"name": "g", "arguments": "{}"}]
    chunks = [delta(tool_calls=[{"index": n, "id": f"id{n}", "function": f}]) for n, f in enumerate(functions)]
    outcome = read(plain, sse(*chunks, finish("length")))
    [start] = [e for e in outcome.of(cnllm.ToolCallStart) if e.name == "g"]
    [end] = outcome.of(cnllm.ToolCallEnd)
    assert end.call.name == "g"
    assert end.index == start.index


def test_names_that_were_shortened_for_the_wire_come_back(home: Home) -> None:
    model = home("tools.name_max_length = 20")
    tool = {"type": "function", "function": {"name": "a_function_with_a_long_name"}}
    plan = cnllm.engine.build_request(model, "x", tools=[tool])
    short = plan.body["tools"][0]["function"]["name"]
    chunk = delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": short, "arguments": "{}"}}])
    outcome = read(model, sse(chunk, finish("tool_calls")), plan=plan)
    check_honest(outcome)
    assert [e.name for e in outcome.of(cnllm.ToolCallStart)] == ["a_function_with_a_long_name"]
    assert got(outcome.said) == [("a_function_with_a_long_name", {})]


def work(model: cnllm.Model, piece: str, count: int) -> int:
    first = delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a":"'}}])
    more = sse(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]), done=False)
    parser = cnllm.engine.StreamParser(model)
    parser.feed(sse(first, done=False))
    with Work() as counted:
        for _ in range(count):
            parser.feed(more)
    return counted.done


@pytest.mark.sampled
@each("piece", lambda: ["x" * 200, "}", '"', "[", " ", pytest.param('{"b": 1},' * 5)])
def test_four_times_the_arguments_are_about_four_times_the_work(plain: cnllm.Model, piece: str) -> None:
    count = share(100)
    assert work(plain, piece, 4 * count) < 6 * work(plain, piece, count)


def test_pieces_are_the_same_for_every_split_of_the_bytes(plain: cnllm.Model) -> None:
    said = [{"index": 0, "id": "1", "function": {"name": "查", "arguments": piece}} for piece in ('{"好"', ':"🎈"}')]
    stream = sse(*(delta(tool_calls=[item]) for item in said), finish("tool_calls"))
    whole = read(plain, stream)
    for at in range(len(stream)):
        assert read(plain, pieces(stream, [at])).events == whole.events
