"""An endpoint with quirks that nobody has seen before is described in TOML alone, and the engine talks to it.

The endpoint below draws its quirks and is written on its own: it shares nothing with the engine, takes a request in its
own form only, and answers whole or streamed, cut anywhere, over several turns of tool calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cases import each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import cnllm
from cnllm import engine
from cnllm.simulator import SimTransport

from .conftest import Home
from .support import Json, cuts, pieces, times

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def put(data: Json, path: str, value: Any) -> Json:
    """Put a value at a path; `.` merges it into the object itself."""
    if path == ".":
        data.update(value)
        return data
    *parents, last = path.split(".")
    inner = data
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return data


@dataclass
class Quirks:
    """The habits of one endpoint. A path of None is the wire's own."""

    thought: str | None = "reasoning_content"  # a path, "|end|" for a sentinel, or "part-FORM"
    answer: str | None = None
    calls: str | None = None
    call: tuple[str, str, str] | None = None
    objects: bool = False
    role: str | None = None
    result_id: str | None = None
    result: str | None = None
    choices: str | None = None
    message: str | None = None
    delta: str | None = None
    finish: str | None = None
    usage: str | None = None
    rename: Json = field(default_factory=dict)
    framing: str | None = None
    marker: bool = False

    def toml(self) -> str:
        """The registry's description of all this."""
        flags: Json = {"reasoning": {"mode": "never"}, "stream": {"deltas": "incremental"}}
        if self.thought is not None:
            flags["reasoning"] = {"mode": "always", "replay": "always"}
        if self.thought == "|end|":
            flags["reasoning"] |= {"shape": "tags", "tags": ["", "|end|"]}
        elif self.thought and self.thought.startswith("part-"):
            form = self.thought.removeprefix("part-")
            flags["reasoning"] |= {"shape": "content-parts", "part": "musing", "part_form": form}
        elif self.thought:
            flags["reasoning"] |= {"fields": [self.thought]}
        places = {
            "messages.answer_field": self.answer,
            "tools.calls_field": self.calls,
            "tools.arguments": "object" if self.objects else None,
            "tools.result_role": self.role,
            "tools.result_id": self.result_id,
            "tools.result_field": self.result,
            "reply.choices": self.choices,
            "reply.message": self.message,
            "reply.delta": self.delta,
            "reply.finish": self.finish,
            "usage.at": [self.usage] if self.usage else None,
            "usage.input": ["took"] if self.usage else None,
            "stream.framing": self.framing,
            "stream.terminator": "done" if self.marker else None,
            "body.rename": self.rename or None,
        }
        if self.call is not None:
            places["tools.call_paths"] = dict(zip(("id", "name", "arguments"), self.call, strict=True))
        for path, value in places.items():
            if value is not None:
                put(flags, path, value)
        return "\n".join(f"{table}.{key} = {inline(v)}" for table, keys in flags.items() for key, v in keys.items())


def inline(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


@dataclass
class Turn:
    """What the model does in one step: it thinks, and calls tools or answers."""

    thought: str
    text: str
    arguments: list[Json]


class Endpoint:
    """The endpoint: `answer` takes the body of a request and returns the bytes of its next turn."""

    def __init__(self, quirks: Quirks, turns: list[Turn]) -> None:
        self.quirks, self.turns = quirks, turns
        self.history: list[Json] = [{"role": "user", "content": "hi"}]
        self.step = 0

    def body(self, *, stream: bool) -> Json:
        """The only body that this endpoint takes now."""
        usual: Json = {"model": "m", "messages": self.history, "tools": [TOOL]}
        if stream:
            usual |= {"stream": True, "stream_options": {"include_usage": True}}
        out: Json = {}
        for key, value in usual.items():
            put(out, self.quirks.rename.get(key, key), value)
        return out

    def message(self, turn: Turn) -> Json:
        """A turn as this endpoint writes it."""
        quirks, out = self.quirks, {"role": "assistant"}
        content: Any = turn.text or (None if turn.arguments else "")
        if quirks.thought == "|end|":
            content = f"{turn.thought}|end|{turn.text}"
        elif quirks.thought and quirks.thought.startswith("part-"):
            content = [self.part(turn.thought)] + ([{"type": "text", "text": turn.text}] if turn.text else [])
        elif quirks.thought:
            put(out, quirks.thought, turn.thought)
        put(out, quirks.answer or "content", content)
        if turn.arguments:
            calls = [self.call(index, arguments) for index, arguments in enumerate(turn.arguments)]
            put(out, quirks.calls or "tool_calls", calls)
        return out

    def part(self, thought: str) -> Json:
        """A part with reasoning."""
        forms: Json = {"text": thought, "texts": [thought], "parts": [{"type": "text", "text": thought}]}
        return {"type": "musing", "musing": forms[(self.quirks.thought or "").removeprefix("part-")]}

    def id(self, index: int) -> str:
        return f"call-{self.step}-{index}"

    def call(self, index: int, arguments: Json) -> Json:
        """A whole call."""
        paths = self.quirks.call or ("id", "function.name", "function.arguments")
        out: Json = {"type": "function"} if paths[1].startswith("function.") else {}
        value = arguments if self.quirks.objects else json.dumps(arguments)
        for path, one in zip(paths, (self.id(index), "look", value), strict=True):
            put(out, path, one)
        return out

    def result(self, id: str, text: str) -> Json:
        """A tool result in the history."""
        out: Json = {"role": self.quirks.role or "tool"}
        put(out, self.quirks.result_id or "tool_call_id", id)
        return put(out, self.quirks.result or "content", text)

    def chunk(self, key: str, message: Json | None, finish: str | None = None, usage: Json | None = None) -> Json:
        """A body or a chunk; `key` is "message" or "delta"."""
        quirks, out = self.quirks, {"id": f"r{self.step}", "model": "m"}
        choice: Json = {}
        if message is not None:
            put(choice, (quirks.message if key == "message" else quirks.delta) or key, message)
        if finish is not None:
            put(choice, quirks.finish or "finish_reason", finish)
        if quirks.choices == ".":
            out |= choice
        elif choice:
            put(out, quirks.choices or "choices", [choice])
        if usage is not None:
            put(out, quirks.usage or "usage", {"took": 7} if quirks.usage else {"prompt_tokens": 7})
        return out

    def deltas(self, turn: Turn) -> Iterator[Json]:
        """The deltas of a turn, a few characters each."""
        quirks = self.quirks
        yield put({"role": "assistant"}, quirks.answer or "content", "")
        content = turn.text
        if quirks.thought == "|end|":
            content = f"{turn.thought}|end|{turn.text}"
        elif quirks.thought:
            for piece in steps(turn.thought):
                if quirks.thought.startswith("part-"):
                    yield put({}, quirks.answer or "content", [self.part(piece)])
                else:
                    yield put({}, quirks.thought, piece)
        for piece in steps(content):
            yield put({}, quirks.answer or "content", piece)
        for index, arguments in enumerate(turn.arguments):
            whole = self.call(index, arguments) | {"index": index}
            if quirks.objects:
                yield put({}, quirks.calls or "tool_calls", [whole])
                continue
            path = (quirks.call or ("", "", "function.arguments"))[2]
            put(whole, path, "")
            yield put({}, quirks.calls or "tool_calls", [whole])
            for piece in steps(json.dumps(arguments)):
                yield put({}, quirks.calls or "tool_calls", [put({"index": index}, path, piece)])

    def answer(self, body: Json, headers: Any, *, stream: bool) -> bytes:
        """Take a request in the only form there is, and answer with the next turn."""
        assert without_nulls(body) == without_nulls(self.body(stream=stream))
        if stream:
            kind = "application/x-ndjson" if self.quirks.framing == "ndjson" else "text/event-stream"
            assert headers["accept"] == kind
        turn = self.turns[self.step]
        finish = "tool_calls" if turn.arguments else "stop"
        if not stream:
            out = json.dumps(self.chunk("message", self.message(turn), finish, {})).encode()
        else:
            chunks = [self.chunk("delta", delta) for delta in self.deltas(turn)]
            chunks.append(self.chunk("delta", {}, None if self.quirks.marker else finish, {}))
            lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks] + ["[DONE]"] * self.quirks.marker
            frame = "{}\n" if self.quirks.framing == "ndjson" else "data: {}\n\n"
            out = "".join(frame.format(line) for line in lines).encode()
        self.history.append(self.message(turn))
        self.history += [self.result(self.id(i), f"result {i}") for i in range(len(turn.arguments))]
        self.step += 1
        return out


def without_nulls(value: Any) -> Any:
    """The value without null: an absent answer may be null."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def steps(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


texts = st.text('abc 好é"\\{}[]\n:,', min_size=1, max_size=20).map(lambda text: f"x{text}y")
values = st.recursive(st.none() | st.integers() | texts, lambda inner: st.dictionaries(texts, inner, max_size=2))
arguments = st.dictionaries(st.sampled_from(["path", "好", "n.m"]), values, max_size=3)
call_turns = st.builds(Turn, texts, texts | st.just(""), st.lists(arguments, min_size=1, max_size=3))
conversations = st.builds(
    lambda calls, last: [*calls, last], st.lists(call_turns, max_size=2), st.builds(Turn, texts, texts, st.just([]))
)
quirks = st.builds(
    Quirks,
    thought=st.sampled_from(
        [None, "thinking", "meta.thought", "a.b.c", "|end|", "part-text", "part-texts", "part-parts"]
    ),
    answer=st.sampled_from([None, "answer", "out.text", "meta.answer"]),
    calls=st.sampled_from([None, "acts", "out.acts", "meta.calls"]),
    call=st.sampled_from(
        [
            None,
            ("id", "name", "arguments"),
            ("ref", "fn.label", "fn.input.args"),
            ("id", "function.name", "function.input"),
        ]
    ),
    objects=st.booleans(),
    role=st.sampled_from([None, "function", "user", "observation"]),
    result_id=st.sampled_from([None, "ref", "meta.call"]),
    result=st.sampled_from([None, "output", "meta.text"]),
    choices=st.sampled_from([None, "results", "output.choices", "."]),
    message=st.sampled_from([None, "output", "data.message"]),
    delta=st.sampled_from([None, "output", "piece", "message"]),
    finish=st.sampled_from([None, "stop", "end.why"]),
    usage=st.sampled_from([None, "stats", "meta.usage", "."]),
    rename=st.sampled_from(
        [{}, {"messages": "input.messages"}, {"tools": "functions"}, {"messages": "turns", "tools": "input.tools"}]
    ),
    framing=st.sampled_from([None, "sse", "ndjson"]),
    marker=st.booleans(),
)


@times(150)
@given(quirks, conversations, cuts, st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_engine_talks_to_an_endpoint_with_any_quirks(
    home: Home, quirks: Quirks, turns: list[Turn], where: list[int], streams: list[bool]
) -> None:
    model = home(quirks.toml())
    endpoint = Endpoint(quirks, turns)
    history: list[Any] = ["hi"]
    for turn, stream in zip(turns, streams, strict=False):
        plan = engine.build_request(model, history, tools=[TOOL], stream=stream)
        content = endpoint.answer(json.loads(plan.content), plan.headers, stream=stream)
        if stream:
            parser = engine.StreamParser(model, plan=plan)
            for piece in pieces(content, where):
                parser.feed(piece)
            reply = parser.close()
        else:
            reply = engine.parse_response(model, 200, {}, content, plan=plan)
        assert reply.reasoning == (turn.thought if quirks.thought is not None else "")
        assert reply.text == turn.text
        assert [call.arguments for call in reply.tool_calls] == turn.arguments
        assert [call.name for call in reply.tool_calls] == ["look"] * len(turn.arguments)
        assert reply.finish == ("tool_calls" if turn.arguments else "stop")
        assert reply.usage.input == 7
        history.append(reply.message)
        history += [cnllm.Message.tool(call.id, f"result {i}") for i, call in enumerate(reply.tool_calls)]


def test_an_object_in_the_place_of_choices_says_something_if_it_has_reasoning_alone(home: Home) -> None:
    model = home('reasoning.fields = ["thinking"]\nreply.choices = "."')
    parser = engine.StreamParser(model)
    for delta in ({"role": "assistant"}, {"thinking": "Hm."}, {"content": "Yes."}):
        parser.feed(b"data: %b\n\n" % json.dumps({"id": "r", "model": "m", "delta": delta}).encode())
    parser.feed(b'data: {"usage": {"prompt_tokens": 7}}\n\ndata: {"delta": {}, "finish_reason": "stop"}\n\n')
    reply = parser.close()
    assert (reply.reasoning, reply.text, reply.finish) == ("Hm.", "Yes.", "stop")


def test_a_choice_keeps_its_own_keys_where_its_message_has_another_place(home: Home) -> None:
    model = home('reply.message = "output"\nreply.delta = "output"\nreply.finish = "end"')
    sound = {"id": "a", "data": "AAAA", "transcript": "Hm."}
    parser = engine.StreamParser(model)
    tokens = [{"token": "Yes.", "logprob": -0.5}]
    for end, logprobs in ((None, None), ("stop", {"content": tokens})):
        output = {"content": "Yes."} if end else {"audio": sound}
        first = {"index": 0, "output": output, "delta": {"content": "No."}, "end": end, "logprobs": logprobs}
        if not end:
            first["finish_reason"] = "length"  # this endpoint has another place for it
        other = {"index": 1, "output": {"content": "Other."}, "end": end}
        parser.feed(b"data: %b\n\n" % json.dumps({"id": "r", "model": "m", "choices": [first, other]}).encode())
    reply = parser.close()
    assert (reply.text, reply.finish, reply.extra["logprobs"]) == ("Yes.", "stop", tokens)
    assert [part.extra for part in reply.message.parts if type(part) is cnllm.Media] == [
        {"transcript": "Hm.", "id": "a"}
    ]
    body = {"id": "r", "model": "m", "choices": [first, other]}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    assert (reply.text, reply.finish, reply.extra["logprobs"]) == ("Yes.", "stop", tokens)


@times(60)
@given(quirks, st.booleans())
def test_the_simulator_takes_and_writes_the_same_form(home: Home, quirks: Quirks, stream: bool) -> None:
    model = home(quirks.toml() + '\nreasoning.default = "on"\nreasoning.if_missing = "empty"')
    simulator = SimTransport(strict=True)
    history: list[Any] = ["hi"]
    for finish in ("tool_calls", "stop"):
        plan = engine.build_request(model, history, tools=[TOOL], stream=stream)
        status, headers, parts = simulator.send(plan)
        content = b"".join(parts)
        assert status == 200, content
        reply = engine.parse_response(model, status, headers, content, plan=plan)
        assert (reply.finish, bool(reply.reasoning)) == (finish, quirks.thought is not None)
        assert stream is False or (b"data:" in content) is (quirks.framing != "ndjson")
        history.append(reply.message)
        history += [cnllm.Message.tool(call.id, "result") for call in reply.tool_calls]
    assert "result" in reply.text


USUAL: Json = {
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "it"},
    ]
}


@each(
    "flags",
    [
        'messages.answer_field = "answer"',
        'tools.calls_field = "acts"',
        'tools.call_paths = { id = "ref", name = "fn.label", arguments = "fn.args" }',
        'tools.arguments = "object"',
        'tools.result_role = "function"',
        'tools.result_role = "user"',
        'tools.result_id = "ref"',
        'tools.result_field = "output"',
        'body.rename = { messages = "input.messages" }',
    ],
)
def test_a_strict_simulator_refuses_the_form_of_the_wire_where_the_endpoint_has_its_own(home: Home, flags: str) -> None:
    for text, status in (("", 200), (flags, 400)):
        model = home(text)
        content = json.dumps({"model": "m", **USUAL}).encode()
        plan = replace(engine.build_request(model, "hi"), content=content)
        assert SimTransport(strict=True).send(plan)[0] == status, flags


def chat_piece(text: str) -> Json:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}


def messages_piece(text: str) -> Json:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


ENDS: dict[str, list[Json]] = {
    "openai-chat": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}],
    "anthropic-messages": [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
}


@each("wire, piece", [("openai-chat", chat_piece), ("anthropic-messages", messages_piece)])
@each("place", ["meta.counts", "."])
def test_counts_beside_a_piece_of_text_are_read_at_their_own_place(
    tmp_path: Path, wire: str, piece: Callable[[str], Json], place: str
) -> None:
    """The quick decoder of plain pieces steps aside where it would pass over the counts."""
    file = tmp_path / "own.toml"
    head = f'[providers.home]\ntitle = "x"\nprotocol = "{wire}"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n'
    file.write_text(f'{head}usage = {{ at = ["{place}"], input = ["took"] }}\n')
    parser = engine.StreamParser(cnllm.Registry.load(str(file)).resolve("home/m"))
    chunks = [piece(f"word {i} ") for i in range(20)]
    put(chunks[-1], place, {"took": 7})
    for chunk in [*chunks, *ENDS[wire]]:
        parser.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    reply = parser.close()
    assert reply.usage.input == 7
    assert reply.text.split()[-1] == "19"


def test_counts_inside_a_delta_are_read(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    head = '[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n'
    file.write_text(f'{head}usage = {{ at = ["choices.0.delta.counts"], input = ["took"] }}\n')
    parser = engine.StreamParser(cnllm.Registry.load(str(file)).resolve("home/m"))
    chunks = [chat_piece(f"word {i} ") for i in range(20)]
    chunks[-1]["choices"][0]["delta"]["counts"] = {"took": 7}
    for chunk in [*chunks, *ENDS["openai-chat"]]:
        parser.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    assert parser.close().usage.input == 7
