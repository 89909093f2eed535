"""The call of an answer tool is the answer, whatever stands beside it, on a wire with an order of parts and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm import Registry, engine
from cnllm.errors import CnllmError
from cnllm.types import BlockEnd, Event, ReasoningDelta, Reply, Restarted, Text, TextDelta, ToolCallEnd, ToolCallStart

from .support import GOOD, SCHEMA

Json = dict[str, Any]
Pieces = list[tuple[str, str]]

PIECES: st.SearchStrategy[Pieces] = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from(["Here you are: ", " \n"])),
        st.tuples(st.just("thought"), st.just("Hm. ")),
        st.tuples(st.just("answer"), st.sampled_from([GOOD, '{"name": "Bob", "age": 1}', '{"na', ""])),
        st.tuples(st.just("other"), st.just("{}")),
    ),
    min_size=1,
    max_size=5,
)


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat(pieces: Pieces) -> list[Json]:
    """The chunks of a chat completion."""
    events: list[Json] = []
    for index, (kind, text) in enumerate(pieces):
        if kind in ("text", "thought"):
            events.append(chunk({"content" if kind == "text" else "reasoning_content": text}))
            continue
        function = {"name": "answer" if kind == "answer" else "f", "arguments": text[:3]}
        events.append(chunk({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]}))
        if text[3:]:
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": text[3:]}}]}))
    return [*events, chunk({}, "tool_calls")]


def messages(pieces: Pieces) -> list[Json]:
    """The events of a message."""
    events: list[Json] = [{"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}]
    for index, (kind, text) in enumerate(pieces):
        name = {"text": "text", "thought": "thinking"}.get(kind, "tool_use")
        block: Json = {"type": name, "id": f"c{index}", "name": "answer" if kind == "answer" else "f", "input": {}}
        field = {"text": "text", "thought": "thinking"}.get(kind, "partial_json")
        delta = {"type": {"text": "text_delta", "thought": "thinking_delta"}.get(kind, "input_json_delta"), field: text}
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}
    return [*events, end, {"type": "message_stop"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.mark.parametrize(("wire", "write"), [("openai-chat", chat), ("anthropic-messages", messages)])
@given(pieces=PIECES)
@settings(max_examples=share(100), deadline=None)
def test_the_first_call_is_the_text_and_the_events_tell_the_same(
    folder: Path, wire: str, write: Any, pieces: Pieces
) -> None:
    path = folder / f"{wire}.toml"
    if not path.exists():
        flags = 'schema.methods = ["tool"]\nreasoning.fields = ["reasoning_content"]'
        table = f'[providers.home]\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1"\nkeys = ["K"]\n{flags}\n'
        path.write_text(table + '[models."home/m"]\n', encoding="utf-8")
    model = Registry.load(path).resolve("home/m")
    parser = engine.StreamParser(model, plan=engine.build_request(model, "Hi", stream=True, schema=SCHEMA))
    events: list[Event] = []
    for event in write(pieces):
        events += parser.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    events += parser.end()
    try:
        whole: Reply | None = parser.close()
    except CnllmError as error:
        whole = error.reply
    assert whole is not None
    reply = whole
    last = max((at for at, event in enumerate(events) if type(event) is Restarted), default=-1)
    events = events[last + 1 :]
    assert "".join(event.text for event in events if type(event) is TextDelta) == reply.text
    assert "".join(event.text for event in events if type(event) is ReasoningDelta) == reply.reasoning
    assert all(reply.message.parts[event.index] == event.part for event in events if type(event) is BlockEnd)
    assert "".join(part.text for part in reply.message.parts if type(part) is Text) == reply.text
    ends = {event.index: event.call for event in events if type(event) is ToolCallEnd}
    starts = [event for event in events if type(event) is ToolCallStart]
    assert [ends[index] for index in sorted(ends)] == reply.tool_calls
    assert {event.name for event in starts} <= {"f"}
    if any(kind == "answer" for kind, _ in pieces):
        answer = next(text for kind, text in pieces if kind == "answer")
        assert reply.text.lstrip() in (answer, "{}")
        assert (reply.parsed is not None) == (answer != "" and reply.finish == "stop" and answer.endswith("}"))


def test_text_before_the_answer_is_noted_with_its_first_thousand_characters(folder: Path) -> None:
    path = folder / "prose.toml"
    table = '[providers.home]\nprotocol = "anthropic-messages"\nbase_url = "http://127.0.0.1"\nkeys = ["K"]\n'
    path.write_text(table + 'schema.methods = ["tool"]\n[models."home/m"]\n', encoding="utf-8")
    model = Registry.load(path).resolve("home/m")
    for size in (999, 1000, 1001, 5000):
        parser = engine.StreamParser(model, plan=engine.build_request(model, "Hi", stream=True, schema=SCHEMA))
        for event in messages([("text", "x" * size), ("answer", GOOD)]):
            parser.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        reply = parser.close()
        [said] = [note.said for note in reply.notes if note.code == "answer-prose"]
        assert said == ("x" * size if size <= 1000 else "x" * 999 + "…")
        assert "".join(part.text for part in reply.message.parts if type(part) is Text) == reply.text == GOOD
