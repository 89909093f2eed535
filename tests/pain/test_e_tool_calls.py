"""E: streamed tool calls that other clients put together wrongly."""

from pathlib import Path
from typing import Any

from cases import each

import cnllm

from .support import Json, Played, anywhere, call_chunk, chunk, home, model, play, read_whole, sse

END = chunk(finish="tool_calls")
TARGETS = ["ollama/qwen3:8b", "llamacpp/qwen", "alibaba/glm-5.2", "deepseek/deepseek-flash", "any"]


def _target(name: str) -> cnllm.Model:
    return anywhere() if name == "any" else model(name)


def piece(index: int | None = None, **fields: Any) -> Json:
    """One tool-call delta; name and arguments go where the wire has them, absent fields stay absent."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return ({} if index is None else {"index": index}) | fields | ({"function": function} if function else {})


def assemble(name: str, *deltas: Json, size: int | None = None) -> Played:
    played = play(_target(name), sse([*deltas, END]), size=size)
    starts = [e for e in played.events if isinstance(e, cnllm.ToolCallStart)]
    ended = {e.index: e.call for e in played.events if isinstance(e, cnllm.ToolCallEnd)}
    assert {start.index for start in starts} == set(ended)
    for start in starts:
        deltas_of = [e for e in played.events if isinstance(e, cnllm.ToolCallDelta) and e.index == start.index]
        call = ended[start.index]
        assert "".join(e.text for e in deltas_of) == call.raw
        assert (start.id, start.name) == (call.id, call.name)
    assert [ended[start.index] for start in starts] == played.reply.tool_calls
    assert played.reply.finish == "tool_calls"
    return played


TWO = [("search", {"q": "a"}), ("search", {"q": "b"})]


# ── E1 ───────────────────────────────────────────────────────────────────────
@each("name", TARGETS)
def test_E1_all_at_index_0_a_new_id_is_a_new_call(name: str) -> None:
    one = call_chunk(piece(0, id="c1", type="function", name="search", arguments='{"q":"a"}'))
    two = call_chunk(piece(0, id="c2", type="function", name="search", arguments='{"q":"b"}'))
    played = assemble(name, one, two)
    assert played.calls() == TWO
    assert [call.id for call in played.reply.tool_calls] == ["c1", "c2"]
    together = call_chunk(*one["choices"][0]["delta"]["tool_calls"], *two["choices"][0]["delta"]["tool_calls"])
    assert assemble(name, together).calls() == TWO


@each("name", TARGETS)
def test_E1_all_at_index_0_in_fragments(name: str) -> None:
    deltas = [
        call_chunk(piece(0, id="c1", name="search", arguments="")),
        call_chunk(piece(0, arguments='{"q":')),
        call_chunk(piece(0, arguments='"a"}')),
        call_chunk(piece(0, id="c2", name="search", arguments="")),
        call_chunk(piece(0, arguments='{"q":"b')),
        call_chunk(piece(0, arguments='"}')),
    ]
    assert assemble(name, *deltas).calls() == TWO


@each("name", TARGETS)
@each("second", [{"name": "search"}, {"name": "search", "id": ""}, {"name": "search", "id": None}])
def test_E1_without_an_id_a_complete_object_and_a_new_payload_make_a_new_call(name: str, second: Json) -> None:
    deltas = [
        call_chunk(piece(0, id="c1", name="search", arguments='{"q":"a"}')),
        call_chunk(piece(0, **second, arguments='{"q":"b"}')),
    ]
    played = assemble(name, *deltas)
    assert played.calls() == TWO
    ids = [call.id for call in played.reply.tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2


def test_E1_a_name_repeated_on_every_fragment_is_one_call() -> None:
    deltas = [
        call_chunk(piece(0, id="c1", name="search", arguments='{"q":')),
        call_chunk(piece(0, id="c1", name="search", arguments='"a"')),
        call_chunk(piece(0, id="c1", name="search", arguments="}")),
    ]
    played = assemble("any", *deltas)
    assert played.calls() == [("search", {"q": "a"})]


def test_E1_white_space_after_a_complete_object_is_no_new_call() -> None:
    deltas = [
        call_chunk(piece(0, id="c1", name="search", arguments='{"q":"a"}')),
        call_chunk(piece(0, arguments="\n")),
        call_chunk(piece(0, arguments="")),
    ]
    assert assemble("any", *deltas).calls() == [("search", {"q": "a"})]


# ── E2 ───────────────────────────────────────────────────────────────────────
@each("name", TARGETS)
@each("index", [{}, {"index": None}])
def test_E2_without_an_index_fragments_go_to_the_open_call(name: str, index: Json) -> None:
    deltas = [
        call_chunk({**index, **piece(id="c1", type="function", name="search", arguments="")}),
        call_chunk({**index, **piece(arguments='{"q":')}),
        call_chunk({**index, **piece(arguments='"a"}')}),
        call_chunk({**index, **piece(id="c2", type="function", name="search", arguments='{"q":')}),
        call_chunk({**index, **piece(arguments='"b"}')}),
    ]
    assert assemble(name, *deltas).calls() == TWO


@each("name", TARGETS)
def test_E2_without_an_index_fragments_go_to_the_call_with_their_id(name: str) -> None:
    deltas = [
        call_chunk(piece(id="c1", name="search", arguments='{"q":'), piece(id="c2", name="search", arguments='{"q":')),
        call_chunk(piece(id="c1", arguments='"a"}')),
        call_chunk(piece(id="c2", arguments='"b"}')),
    ]
    assert assemble(name, *deltas).calls() == TWO


# ── E3 ───────────────────────────────────────────────────────────────────────
@each("name", TARGETS)
@each("empty", ["", None])
def test_E3_an_empty_id_or_name_on_a_later_delta_is_absent(name: str, empty: str | None) -> None:
    deltas = [
        call_chunk(piece(0, id="c1", type="function", name="search", arguments="")),
        call_chunk(piece(0, id=empty, type=empty, name=empty, arguments='{"q":')),
        call_chunk(piece(0, id=empty, name=empty, arguments='"a"}')),
        call_chunk(piece(1, id="c2", type="function", name="search", arguments=empty)),
        call_chunk(piece(1, id=empty, name=empty, arguments='{"q":"b"}')),
    ]
    played = assemble(name, *deltas)
    assert played.calls() == TWO
    assert [call.id for call in played.reply.tool_calls] == ["c1", "c2"]


@each("late", [{"name": ""}, {"name": None}, {}])
def test_E3_a_name_that_comes_late_is_waited_for(late: Json) -> None:
    deltas = [
        call_chunk(piece(0, id="c1", **late, arguments="")),
        call_chunk(piece(0, name="search")),
        call_chunk(piece(0, arguments='{"q":"a"}')),
    ]
    assert assemble("any", *deltas).calls() == [("search", {"q": "a"})]


def test_E3_a_call_that_never_gets_a_name_is_never_executable() -> None:
    played = play(anywhere(), [call_chunk(piece(0, id="c1", arguments='{"q":"a"}')), END])
    assert not [e for e in played.events if isinstance(e, cnllm.ToolCallStart) and not e.name]
    assert not [call for call in played.reply.tool_calls if call.problem is None]


# ── E4 ───────────────────────────────────────────────────────────────────────
@each("name", TARGETS)
def test_E4_null_arguments_are_absent_and_siblings_live(name: str) -> None:
    deltas = [
        call_chunk(
            piece(0, id="c1", name="now", arguments=None),
            piece(1, id="c2", name="search", arguments='{"q":"b"}'),
        ),
        call_chunk(piece(0, arguments=None)),
    ]
    assert assemble(name, *deltas).calls() == [("now", {}), ("search", {"q": "b"})]


def test_E4_null_arguments_before_the_first_fragment() -> None:
    deltas = [
        call_chunk(piece(0, id="c1", name="search", arguments=None)),
        call_chunk(piece(0, arguments='{"q":"a"}')),
    ]
    assert assemble("any", *deltas).calls() == [("search", {"q": "a"})]


@each(
    "broken",
    [
        None,
        {"index": 1, "id": "x", "function": None},
        {"index": 1, "id": 7, "function": {"name": ["n"], "arguments": 5}},
        {"index": "one", "function": "text"},
        {"index": 1, "id": "x", "type": "function", "function": {"name": "broken", "arguments": '{"q":'}},
    ],
)
def test_E4_a_broken_call_takes_no_sibling_with_it(broken: Json | None) -> None:
    good = [
        piece(0, id="c1", name="search", arguments='{"q":"a"}'),
        piece(2, id="c3", name="search", arguments=""),
    ]
    delta = chunk({"content": "Looking.", "tool_calls": [good[0], broken, good[1]]})
    played = play(anywhere(), [delta, call_chunk(piece(2, arguments='{"q":"b"}')), END])
    usable = [(c.name, c.arguments) for c in played.reply.tool_calls if c.problem is None]
    assert usable == TWO
    assert played.reply.text == "Looking."


def test_E4_whole_replies_are_as_patient() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "now", "arguments": None}},
        None,
        {"id": "c2", "type": "function", "function": {"name": "search", "arguments": {"q": "b"}}},
    ]
    reply = read_whole(anywhere(), {"content": None, "tool_calls": calls}, "tool_calls")
    usable = [(c.name, c.arguments) for c in reply.tool_calls if c.problem is None]
    assert usable == [("now", {}), ("search", {"q": "b"})]


# ── E5 ───────────────────────────────────────────────────────────────────────
INTERLEAVED = [
    call_chunk(piece(3, id="c1", name="search", arguments="")),
    call_chunk(piece(7, id="c2", name="search", arguments="")),
    call_chunk(piece(3, arguments='{"q":')),
    call_chunk(piece(7, arguments='{"q":')),
    call_chunk(piece(3, arguments='"a"}'), piece(7, arguments='"b"}')),
]


@each("name", TARGETS)
def test_E5_fragments_go_to_the_call_of_their_index(name: str) -> None:
    assert assemble(name, *INTERLEAVED).calls() == TWO


@each("size", [1, 2, 3, 7, 64])
def test_E5_however_the_bytes_arrive(size: int) -> None:
    whole = assemble("any", *INTERLEAVED)
    cut = assemble("any", *INTERLEAVED, size=size)
    assert cut.calls() == whole.calls() == TWO


def test_E5_each_response_counts_for_itself(tmp_path: Path) -> None:
    target = home(tmp_path)
    for _ in range(2):
        played = play(target, [*INTERLEAVED, END])
        assert played.calls() == TWO
        indexes = [e.index for e in played.events if isinstance(e, cnllm.ToolCallStart)]
        assert len(set(indexes)) == 2
    again = play(target, [call_chunk(piece(3, id="c9", name="search", arguments='{"q":"z"}')), END])
    assert again.calls() == [("search", {"q": "z"})]
