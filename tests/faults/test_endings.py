"""What ends a reply, on every wire: the declared end alone. What did not end is neither whole nor executable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import each
from client.peer import DONE, delta, frame

import cnllm
from cnllm import engine

from .honest import closed
from .streams import REASONING, TEXT, WIRES, Wire, named

UNKNOWN = ["streaming", "generating", "继续", "not yet", "0"]
PENDING = ["null", "None", " IN_PROGRESS ", "queued", "undefined", "in-progress"]
CHAT, MESSAGES, GEMINI, RESPONSES = "openai-chat", "anthropic-messages", "gemini", "openai-responses"


def words(wire: Wire, word: str) -> list[bytes]:
    """The wire's stream with this word in the place of its finish reason, and without an end event of its own."""
    events = [event for event in wire.events if event != DONE and b'"message_stop"' not in event]
    old = {
        CHAT: b'"finish_reason": "tool_calls"',
        MESSAGES: b'"stop_reason": "tool_use"',
        GEMINI: b'"finishReason": "STOP"',
    }
    if wire.protocol == RESPONSES:
        last = json.loads(events[-1].partition(b"data: ")[2])
        last["response"]["status"] = word
        return [*events[:-1], named(**last)]
    place = old[wire.protocol]
    key = place.partition(b":")[0]
    assert any(place in event for event in events)
    return [event.replace(place, key + b": " + json.dumps(word).encode()) for event in events]


def body(protocol: str, word: Any, arguments: str | None = None, status: str = "completed") -> bytes:
    """A whole body with a text, a call where there are arguments, and this word."""
    args = json.loads(arguments) if arguments else {}
    data: Any
    if protocol == CHAT:
        message: dict[str, Any] = {"role": "assistant", "content": "Hi."}
        if arguments is not None:
            message["tool_calls"] = [
                {"id": "c1", "type": "function", "function": {"name": "wipe", "arguments": arguments}}
            ]
        data = {"choices": [{"index": 0, "message": message, "finish_reason": word}]}
    elif protocol == MESSAGES:
        content: list[dict[str, Any]] = [{"type": "text", "text": "Hi."}]
        if arguments is not None:
            content.append({"type": "tool_use", "id": "c1", "name": "wipe", "input": args})
        data = {"type": "message", "role": "assistant", "content": content, "stop_reason": word}
    elif protocol == GEMINI:
        parts: list[dict[str, Any]] = [{"text": "Hi."}]
        if arguments is not None:
            parts.append({"functionCall": {"name": "wipe", "args": args}})
        data = {"candidates": [{"content": {"parts": parts}, "finishReason": word}]}
    else:
        text = {"type": "output_text", "text": "Hi."}
        output: list[dict[str, Any]] = [{"type": "message", "id": "m", "status": "completed", "content": [text]}]
        if arguments is not None:
            output.append(call_item(arguments, status))
        data = {"object": "response", "status": word, "output": output}
    return json.dumps(data).encode()


def call_item(arguments: str, status: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc",
        "call_id": "c1",
        "name": "wipe",
        "arguments": arguments,
        "status": status,
    }


def read(model: cnllm.Model, content: bytes) -> tuple[cnllm.Reply, cnllm.CnllmError | None, list[Any]]:
    parser = engine.StreamParser(model)
    events = parser.feed(content)
    reply, error = closed(parser, events)
    assert reply is not None
    return reply, error, events


def note_of(reply: cnllm.Reply) -> cnllm.Note:
    [note] = [note for note in reply.notes if note.code in ("finish-unknown", "finish-pending")]
    return note


# ── words ────────────────────────────────────────────────────────────────────
@each("word", [*UNKNOWN, *PENDING])
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_a_word_that_ends_nothing_ends_no_stream(wire: Wire, word: str) -> None:
    """The reply is cut wherever the stream stops, nothing starts a deadline, and nothing that came is lost."""
    events = words(wire, word)
    parser = engine.StreamParser(wire.model())
    for n, event in enumerate(events):
        parser.feed(event)
        assert not parser.finished, event
        reply, error, _ = read(wire.model(), b"".join(events[: n + 1]))
        assert type(error) is cnllm.StreamCut
        assert (reply.finish, reply.tool_calls) == ("cut", [])
    assert (reply.text, reply.reasoning, [call.name for call in reply.incomplete]) == (
        TEXT,
        REASONING,
        ["now", "search"],
    )
    note = note_of(reply)
    assert (note.code, note.said) == ("finish-unknown" if word in UNKNOWN else "finish-pending", word)
    assert repr(word) in str(error)


@each("word", UNKNOWN)
@each("wire", lambda: [wire for wire in WIRES.values() if wire.protocol != MESSAGES], ids=str)
def test_the_line_that_the_note_names_declares_the_word(wire: Wire, word: str, tmp_path: Path) -> None:
    content = b"".join(words(wire, word))
    line = note_of(read(wire.model(), content)[0]).did.rpartition(": ")[2]
    (tmp_path / "mine.toml").write_text(line + "\n", encoding="utf-8")
    registry = cnllm.Registry.load(tmp_path / "mine.toml")
    model = registry.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1", protocol=wire.protocol)
    reply, error, _ = read(model, content)
    assert (error, reply.finish, len(reply.tool_calls), reply.raw_finish) == (None, "tool_calls", 2, word)


@each("word", ["STOP", "Stop ", " stop"])
def test_case_and_white_space_of_a_known_word_do_not_matter(word: str) -> None:
    reply, error, _ = read(WIRES[CHAT].model(), delta(content="a") + delta(finish=word))
    assert (error, reply.finish) == (None, "stop")


@each("value", [1, 0, True, False, {"type": "stop"}, ["stop"], "", " "])
def test_a_finish_reason_of_another_type_ends_no_stream(value: Any) -> None:
    _, error, _ = read(WIRES[CHAT].model(), delta(content="a") + delta(finish=value))
    assert type(error) is cnllm.StreamCut


@each("word", [*UNKNOWN, *PENDING])
def test_done_ends_any_stream_of_chat_completions(word: str) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "wipe", "arguments": ""}}
    reply, error, _ = read(WIRES[CHAT].model(), delta(tool_calls=[call], finish=word) + DONE)
    assert (error, [call.arguments for call in reply.tool_calls]) == (None, [{}])


@each("protocol", list(WIRES))
def test_a_whole_body_is_complete_whatever_its_word_but_for_one_that_says_that_it_goes_on(protocol: str) -> None:
    model = WIRES[protocol].model()
    for arguments in (None, "{}", '{"folder": "/x"}'):
        for word in (*UNKNOWN, "eos", "eos_token", None):
            reply, error, _ = read(model, body(protocol, word, arguments))
            assert (error, reply.text, len(reply.tool_calls)) == (None, "Hi.", arguments is not None), word
        for word in PENDING:
            reply, error, events = read(model, body(protocol, word, arguments))
            assert type(error) is cnllm.StreamCut, word
            assert (reply.text, reply.finish, reply.tool_calls) == ("Hi.", "cut", [])
            assert len(reply.incomplete) == (arguments is not None)
            assert not any(isinstance(event, cnllm.ToolCallEnd) for event in events)


@each("word", [*UNKNOWN, *PENDING])
def test_message_stop_ends_messages_whatever_the_word(word: str) -> None:
    wire = WIRES[MESSAGES]
    reply, error, _ = read(wire.model(), b"".join([*words(wire, word), named(type="message_stop")]))
    assert (error, reply.finish, reply.raw_finish, len(reply.tool_calls)) == (None, "tool_calls", word, 2)


def test_the_end_of_responses_counts_by_its_name_its_status_and_its_items() -> None:
    def end(event: str, status: str | None, item: str = "completed") -> tuple[str, str | None]:
        text = {"type": "output_text", "text": "Hi."}
        output = [{"type": "message", "id": "m", "status": item, "content": [text]}]
        response = {"output": output, **({} if status is None else {"status": status})}
        reply, _, _ = read(WIRES[RESPONSES].model(), named(type=f"response.{event}", response=response))
        return reply.finish, reply.raw_finish

    for event in ("completed", "done"):
        assert end(event, None) == end(event, "completed") == ("stop", "completed")
    assert end("incomplete", "completed") == end("completed", "incomplete") == ("length", "incomplete")
    assert end("completed", "completed", "incomplete") == ("length", "incomplete")
    assert end("failed", "in_progress") == end("completed", "failed") == ("error", "failed")
    assert end("completed", "in_progress") == ("cut", "in_progress")
    assert end("in_progress", "completed") == ("cut", None)


SEVERITY = ["stop", "tool_calls", "length", "content_filter", "error"]


@each("first", SEVERITY)
@each("second", SEVERITY)
def test_of_two_words_the_worse_counts(first: str, second: str) -> None:
    content = delta(content="half", finish=first) + delta(finish=second) + DONE
    reply, error, _ = read(WIRES[CHAT].model(), content)
    worst = max(first, second, key=SEVERITY.index)
    assert reply.raw_finish == worst
    assert reply.finish == ("stop" if worst == "tool_calls" else worst)
    assert isinstance(error, cnllm.EndpointError) == (worst == "error")


# ── calls ────────────────────────────────────────────────────────────────────
@each("arguments", ["", "{}", '{"folder": "/x"}', '{"folder": "/'])
@each("status", ["incomplete", "in_progress", "queued", "failed"])
def test_a_call_whose_item_is_unfinished_is_incomplete_in_a_completed_reply(arguments: str, status: str) -> None:
    model = WIRES[RESPONSES].model()
    item = call_item(arguments, status)
    sound = {**item, "status": "completed"}
    begin = named(type="response.output_item.added", output_index=0, item={**item, "arguments": ""})

    def end(*items: Any) -> bytes:
        return named(type="response.completed", response={"status": "completed", "output": list(items)})

    def done(item: Any) -> bytes:
        return named(type="response.output_item.done", output_index=0, item=item)

    whole = json.dumps({"object": "response", "status": "completed", "output": [item]}).encode()
    for content in (
        whole,
        begin + end(item),
        begin + done(item) + end(),
        begin + done(item) + end(sound),
        begin + done(sound) + end(item),
        begin + end(),
    ):
        reply, error, _ = read(model, content)
        assert (error, reply.tool_calls, [call.name for call in reply.incomplete]) == (None, [], ["wipe"]), content
    reply, _, _ = read(model, begin + done(sound) + end(sound))
    assert [call.arguments is None for call in reply.tool_calls] == [arguments.endswith("/")]


@each("pieces", [[], ["{}"], ['{"folder":', ' "/x"}'], ['{"fol']])
def test_a_block_that_never_stopped_is_an_incomplete_call(pieces: list[str]) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "wipe", "input": {}}
    begin = named(type="message_start", message={"content": []}) + named(
        type="content_block_start", index=0, content_block=block
    )
    for piece in pieces:
        begin += named(type="content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": piece})
    stop = named(type="content_block_stop", index=0)
    end = named(type="message_delta", delta={"stop_reason": "tool_use"}) + named(type="message_stop")
    text = named(type="content_block_start", index=1, content_block={"type": "text", "text": "a"})
    for content in (begin + end, begin + text + named(type="content_block_stop", index=1) + end):
        reply, error, _ = read(WIRES[MESSAGES].model(), content)
        assert (error, reply.tool_calls, [call.name for call in reply.incomplete]) == (None, [], ["wipe"])
    reply, error, _ = read(WIRES[MESSAGES].model(), begin + stop + end)
    assert (error, len(reply.tool_calls)) == (None, 1)


def test_a_call_that_would_continue_is_an_incomplete_call() -> None:
    def chunk(call: dict[str, Any], **more: Any) -> bytes:
        return frame({"candidates": [{"content": {"parts": [{"functionCall": call}]}, **more}]})

    begin = chunk({"name": "wipe", "willContinue": True})
    reply, _, _ = read(WIRES[GEMINI].model(), begin + frame({"candidates": [{"finishReason": "STOP"}]}))
    assert (reply.tool_calls, [call.name for call in reply.incomplete]) == ([], ["wipe"])
    reply, _, _ = read(WIRES[GEMINI].model(), begin + chunk({}, finishReason="STOP"))
    assert [call.arguments for call in reply.tool_calls] == [{}]


# ── ends ─────────────────────────────────────────────────────────────────────
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_gemini_alone_needs_an_orderly_end(wire: Wire) -> None:
    parser = engine.StreamParser(wire.model())
    parser.feed(wire.content.removesuffix(DONE))
    parser.end(orderly=False)
    reply, error = closed(parser, [])
    assert reply is not None
    assert reply.finish == ("cut" if wire.protocol == GEMINI else "tool_calls")
    assert (type(error) is cnllm.StreamCut) == (wire.protocol == GEMINI)
    _, torn, _ = read(wire.model(), wire.content.removesuffix(DONE) + b'data: {"candi')
    assert (type(torn) is cnllm.StreamCut) == (wire.protocol == GEMINI)


ERRORS: dict[str, bytes] = {
    "message": b'data: {"message": "upstream died"}\n',
    "text": b'data: "upstream died"\n',
    "words": b"data: upstream died\n",
    "detail": b'data: {"detail": "upstream died"}\n',
    "list": b'data: [{"msg": "upstream died"}]\n',
    "null": b'data: {"error": null, "message": "upstream died"}\n',
    "code 0": b'data: {"error": {"code": 0, "message": "upstream died"}}\n',
    "lines": b'data: {\ndata: "message": "upstream died"}\n',
    "empty object": b"data: {}\n",
    "nothing": b"",
    "number": b"data: 500\n",
    "marker": b"data: [DONE]\n",
    "a chunk": delta(content="x").rstrip(b"\n") + b"\n",
}


@each("name", ["error", "Error", "ERROR", "response.error"])
@each("data", lambda: ERRORS.values(), ids=ERRORS)
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_an_error_event_is_an_error_in_any_form(wire: Wire, data: bytes, name: str) -> None:
    half = len(wire.events) // 2
    event = f"event: {name}\n".encode() + data + b"\n"
    content = b"".join([*wire.events[:half], event, *wire.events[half:]])
    for size in (1, len(content)):
        parser = engine.StreamParser(wire.model())
        events = [e for at in range(0, len(content), size) for e in parser.feed(content[at : at + size])]
        reply, error = closed(parser, events)
        assert isinstance(error, cnllm.EndpointError)
        assert reply is not None
        assert (reply.finish, reply.tool_calls) == ("error", [])
        assert error.message
        assert ("upstream died" in error.message) == (b"upstream died" in data)
