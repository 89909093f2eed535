"""What ends a reply, on every wire: the declared end alone. What did not end is neither whole nor executable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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


BAD_ENDS = {
    "abort": "error",
    "insufficient_system_resource": "error",
    "network_error": "error",
    "sensitive": "content_filter",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "repetition_truncation": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "max_output_tokens": "length",
    "incomplete": "length",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
}


@each("word, finish", BAD_ENDS.items())
@each(
    "name",
    [
        "siliconflow/deepseek-ai/DeepSeek-V4-Pro",
        "openrouter/tencent/hy4",
        "togetherai/MiniMaxAI/MiniMax-M3",
        "openai-compatible/m",
    ],
)
def test_a_host_passes_on_the_words_of_its_servers_and_of_the_vendors_behind_it(
    name: str, word: str, finish: str
) -> None:
    """Servers of open weights send [DONE] behind each of them, and so do relays."""
    model = cnllm.Registry.load().resolve(name, base_url="http://127.0.0.1:9/v1")
    reply, error, _ = read(model, delta(content="half") + delta(finish=word) + DONE)
    assert (reply.text, reply.finish, reply.raw_finish) == ("half", finish, word)
    assert isinstance(error, cnllm.EndpointError) == (finish == "error")
    reply, _, _ = read(model, body(CHAT, word))
    assert reply.finish == finish


@each("name", ["groq/openai/gpt-oss-120b", "huggingface/openai/gpt-oss-120b", "vllm/m"])
@each("finish", ["stop", None])
def test_a_sentence_in_the_declared_place_says_why_a_stream_was_stopped(name: str, finish: str | None) -> None:
    """It stands beside the choices, and [DONE] follows as always."""
    model = cnllm.Registry.load().resolve(name)
    last = {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    for error in (None, "", "the engine was stopped"):
        reply, problem, _ = read(
            model, delta(content="half") + frame({**last, "x_groq": {"id": "r", "error": error}}) + DONE
        )
        assert (reply.text, reply.finish) == ("half", "error" if error else "stop")
        assert isinstance(problem, cnllm.EndpointError) == bool(error)
        assert not error or str(error) in str(problem)


MESSAGES_BAD_ENDS = {
    "sensitive": "content_filter",
    "content_filter": "content_filter",
    "length": "length",
    "error": "error",
    "abort": "error",
    "network_error": "error",
    "insufficient_system_resource": "error",
}


@each("word, finish", MESSAGES_BAD_ENDS.items())
@each("name", ["zai/glm-5.2", "anthropic/claude-haiku-5-5"])
def test_message_stop_makes_no_reply_whole_whose_word_says_that_it_is_not(name: str, word: str, finish: str) -> None:
    model = cnllm.Registry.load().resolve(name, protocol=MESSAGES)
    start = {"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}
    end = {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 3}}
    content = b"".join(named(**event) for event in (start, piece, end, {"type": "message_stop"}))
    reply, error, _ = read(model, content)
    assert (reply.text, reply.finish, reply.raw_finish) == ("half", finish, word)
    assert isinstance(error, cnllm.EndpointError) == (finish == "error")


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


@each("how", ["text", "reasoning", "arguments", "a call", "a tag"])
def test_an_answer_that_goes_on_after_a_finish_reason_has_not_ended(how: str) -> None:
    """Some servers write a finish reason in every chunk. Then the last one counts, at an orderly end or with [DONE]."""

    def piece(text: str, finish: str | None = None) -> bytes:
        if how in ("text", "a tag"):
            return delta(content=text, finish=finish)
        if how == "reasoning":
            return delta(reasoning_content=text, finish=finish)
        begin = {} if how == "arguments" and text != first else {"id": f"c{text}", "type": "function"}
        function = {"name": "f", "arguments": ""} if begin else {"arguments": text}
        index = 0 if how == "arguments" else ord(text[0])
        return delta(tool_calls=[{"index": index, **begin, "function": function}], finish=finish)

    first, *later = ["a", '{"x": 1', "}"] if how == "arguments" else ["a", "<tool_call" if how == "a tag" else "b", "c"]
    model = WIRES[CHAT].model()
    parser = engine.StreamParser(model)
    parser.feed(piece(first, "stop"))
    assert parser.finished
    for text in later:
        parser.feed(piece(text))
        assert not parser.finished
    reply, error = closed(parser, [])
    assert reply is not None
    assert (type(error), reply.finish, reply.tool_calls) == (cnllm.StreamCut, "cut", [])

    every = [piece(text, "stop") for text in (first, *later)]
    for orderly in (True, False):
        parser = engine.StreamParser(model)
        for chunk in every:
            parser.feed(chunk)
        assert not parser.finished
        parser.end(orderly=orderly)
        _, error = closed(parser, [])
        assert (type(error) is cnllm.StreamCut) != orderly
    assert read(model, b"".join([*every, DONE]))[1] is None


@each("last", [{"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "choices": []}, {"choices": [{"delta": {}}]}])
def test_usage_after_a_finish_reason_leaves_it_an_end(last: Any) -> None:
    parser = engine.StreamParser(WIRES[CHAT].model())
    for chunk in (delta(content="a"), delta(finish="stop"), frame(last), delta(content="", finish="stop")):
        parser.feed(chunk)
    assert parser.finished


def test_a_finish_reason_before_any_content_starts_no_deadline() -> None:
    parser = engine.StreamParser(WIRES[CHAT].model())
    parser.feed(delta(role="assistant", finish="stop"))
    assert not parser.finished
    parser.feed(delta(content="a"))
    parser.feed(delta(finish="stop"))
    reply, error = closed(parser, [])
    assert (error, reply and reply.text) == (None, "a")


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


@each("word", ["length", "content_filter"])
@each("arguments", ["", "null", '{"fol'])
def test_a_call_in_a_reply_that_was_cut_off_needs_arguments(word: str, arguments: str) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "wipe", "arguments": arguments}}
    message = {"role": "assistant", "tool_calls": [call]}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": word}]}).encode()
    for content in (delta(tool_calls=[call]) + delta(finish=word) + DONE, whole):
        reply, error, _ = read(WIRES[CHAT].model(), content)
        assert (error, reply.finish, reply.tool_calls) == (None, word, [])
        assert [call.name for call in reply.incomplete] == ["wipe"]


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


DIED = "upstream died"
SAID: dict[str, Any] = {
    "text": {"error": DIED},
    "message": {"error": {"message": DIED}},
    "msg": {"error": {"msg": DIED}},
    "reason": {"error": {"reason": DIED}},
    "nested": {"error": {"error": DIED}},
    "list": {"error": [DIED]},
    "objects": {"errors": [{"message": DIED}]},
    "true": {"error": True, "message": DIED},
    "key": {"Error": {"Message": DIED}},
    "camel": {"errorMessage": DIED},
    "snake": {"error_msg": DIED, "error_code": 336100},
    "type": {"type": "error", "message": DIED},
    "status": {"status": "failed", "message": DIED},
    "object": {"object": "error", "message": DIED},
    "success": {"success": False, "message": DIED},
    "number": {"code": 500, "msg": DIED},
    "detail": {"detail": DIED},
    "exception": {"exception": DIED},
    "code of an error": {"text": DIED, "error_code": 50002},
    "name of an error": {"message": DIED, "error_code": "INTERNAL_ERROR"},
    "envelope": {"Response": {"Error": {"Code": "LimitExceeded", "Message": DIED}, "RequestId": "r"}},
    "class": {"internalServerException": {"message": DIED}},
    "header": {"header": {"code": 10013, "message": DIED, "sid": "s", "status": 2}},
    "object of its own": {"id": "", "base_resp": {"status_code": 1004, "status_msg": DIED}},
    "word": {"code": "InvalidParameter", "message": DIED, "request_id": "r"},
    "own number": {"code": 1261, "msg": DIED},
}


@each("data", lambda: SAID.values(), ids=SAID)
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_an_object_that_says_that_it_is_an_error_is_one_on_every_wire(wire: Wire, data: Any) -> None:
    half = len(wire.events) // 2
    line = json.dumps(data).encode() + b"\n\n"  # some servers leave out `data:`, or write `error:`
    long = json.dumps(data, indent=2).encode() + b"\n"  # others pass on an object as it is, over many lines
    longer = json.dumps([data], indent=2).encode() + b"\n\n"
    for event in (frame(data), line, b"error: " + line, long, longer, b"[" + long.rstrip() + b"\n]\n"):
        reply, error, _ = read(wire.model(), b"".join([*wire.events[:half], event, *wire.events[half:]]))
        assert isinstance(error, cnllm.EndpointError)
        assert (reply.finish, reply.tool_calls) == ("error", [])
        assert DIED in str(error)


@each("place", ["choice", "delta", "message", "delta with text"])
@each("error", [DIED, {"message": DIED}, [DIED]])
def test_the_error_of_a_choice_is_an_error_in_any_form(error: Any, place: str) -> None:
    inner = {"choice": {"error": error, "delta": {}}, "delta with text": {"delta": {"content": "!", "error": error}}}
    choice = {"index": 0, **inner.get(place, {place: {"error": error}})}
    content = delta(content="half", finish=None) * 3 + frame({"choices": [choice]}) + delta(finish="stop") + DONE
    reply, raised, _ = read(WIRES[CHAT].model(), content)
    assert isinstance(raised, cnllm.EndpointError)
    assert (reply.finish, DIED in str(raised)) == ("error", True)
    assert reply.text.startswith("half" * 3)


def test_the_error_of_a_whole_message_is_an_error() -> None:
    message = {"role": "assistant", "content": "half", "error": {"message": DIED}}
    content = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    model = WIRES[CHAT].model()
    with pytest.raises(cnllm.EndpointError, match=DIED):
        engine.parse_response(model, 200, {}, content, plan=engine.build_request(model, "Hi"))


@each(
    "error",
    [
        None,
        False,
        0,
        "",
        {},
        [],
        {"code": 0, "message": ""},
        {"code": None, "message": None},
        {"code": 0, "message": "success"},
    ],
)
@each("wire", lambda: [WIRES[CHAT], WIRES[MESSAGES]], ids=str)
def test_an_empty_error_is_none(wire: Wire, error: Any) -> None:
    half = len(wire.events) // 2
    succeeded: list[dict[str, Any]] = [
        {"meta": {"detail": "cached"}},
        {"header": {"code": 0, "message": "Success", "sid": "s", "status": 0}},
        {"base_resp": {"status_code": 0, "status_msg": "success"}},
        {"code": 200, "msg": "success"},
        {"code": "OK", "message": "accepted"},
    ]
    for data in ({"error": error}, {"Response": {"Error": error, "RequestId": "r"}}, *succeeded):
        _, raised, _ = read(wire.model(), b"".join([*wire.events[:half], frame(data), *wire.events[half:]]))
        assert raised is None


@each("text", [b"<html><body>502</body></html>", b"upstream connect error", b"  Bad Gateway"])
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_a_line_of_a_stream_that_is_no_field_is_noted(wire: Wire, text: bytes) -> None:
    half = len(wire.events) // 2
    reply, raised, _ = read(wire.model(), b"".join([*wire.events[:half], text + b"\n\n", *wire.events[half:]]))
    assert raised is None
    assert ("unreadable-chunk", text.decode().strip()) in [(note.code, note.said) for note in reply.notes]


PLAIN = {
    "words": b"data: upstream error: timeout\n\n",
    "a line": b"upstream connect error\n\n",
    "a page": b"<html>502</html>\n\n",
    "a text of JSON": b'data: "upstream died"\n\n',
    "a message": b'data: {"message": "upstream died", "request_id": "r1"}\n\n',
    "a list of texts": b'data: ["upstream died"]\n\n',
}


@each("text", lambda: PLAIN.values(), ids=PLAIN)
def test_a_marker_behind_a_plain_text_proves_no_end(text: bytes) -> None:
    reply, raised, _ = read(WIRES[CHAT].model(), delta(content="half") + text + DONE)
    assert isinstance(raised, cnllm.StreamCut)
    assert (reply.text, reply.finish) == ("half", "cut")
    reply, raised, _ = read(WIRES[CHAT].model(), delta(content="whole") + text + delta(finish="stop") + DONE)
    assert (raised, reply.text, reply.finish) == (None, "whole", "stop")
