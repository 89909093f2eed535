"""Work that grows with the bytes and no faster: counted, not timed.

The work of a reading is the calls it makes, of functions and of built-ins, and the bytes that it allocates between two
of them: a list, text or dict that is copied at each step shows in the bytes, a loop over what came before in the calls.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from examples import share

import cnllm
from cnllm import engine

Make = Callable[[int], list[bytes]]

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
SIZE = max(30, share(60))
CHAT, MESSAGES, GEMINI, RESPONSES = "openai-compatible/m", "anthropic/", "google/gemini", "openai/gpt"


class Work:
    """Counts what is done within `with`: calls, and bytes that were allocated between two of them."""

    def __enter__(self) -> Work:
        self.calls = self.bytes = 0
        tracemalloc.start()
        self._last = tracemalloc.get_traced_memory()[0]
        sys.setprofile(self._saw)
        return self

    def _saw(self, frame: object, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")
        now, peak = tracemalloc.get_traced_memory()
        self.bytes += max(peak - self._last, 0)
        tracemalloc.reset_peak()
        self._last = now

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        tracemalloc.stop()


def data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**said: Any) -> bytes:
    return data({"id": "x", "model": "m", "choices": [{"index": 0, "delta": said}]})


def call(number: int, **more: Any) -> dict[str, Any]:
    return {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}, **more}


def block(**said: Any) -> bytes:
    return data({"type": "content_block_delta", "index": 0, "delta": said})


def begun(kind: str, **more: Any) -> bytes:
    start = data({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}})
    return start + data({"type": "content_block_start", "index": 0, "content_block": {"type": kind, **more}})


def part(*parts: Any, **more: Any) -> bytes:
    return data({"candidates": [{"content": {"parts": list(parts)}, **more}]})


def argument(path: str, **value: Any) -> bytes:
    return part({"functionCall": {"willContinue": True, "partialArgs": [{"jsonPath": path, **value}]}})


def item(number: int, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "t"}]
    return {"type": "message", "id": f"m{number}", "role": "assistant", "content": content, **more}


def event(kind: str, **more: Any) -> bytes:
    return data({"type": f"response.{kind}", **more})


def done(number: int, **more: Any) -> bytes:
    return event("output_item.done", output_index=number, item=item(number, **more))


def arguments(kind: str, **more: Any) -> bytes:
    return event(f"function_call_arguments.{kind}", output_index=0, item_id="f0", **more)


CALL_BEGINS = event("output_item.added", output_index=0, item={"type": "function_call", "id": "f0", "name": "f"})

SHAPES: dict[str, tuple[str, Make]] = {
    "lines of one event": (CHAT, lambda n: [b"data: {\n", *[b"data:\n"] * n, b"data: }\n\n"]),
    "calls": (CHAT, lambda n: [delta(tool_calls=[call(i)]) for i in range(n)]),
    "calls in one chunk": (CHAT, lambda n: [delta(tool_calls=[call(i) for i in range(n)])]),
    "one index, new ids": (CHAT, lambda n: [delta(tool_calls=[call(0, id=f"c{i}")]) for i in range(n)]),
    "pieces for an early call": (
        CHAT,
        lambda n: (
            [delta(tool_calls=[call(i)]) for i in range(n)]
            + [delta(tool_calls=[{"index": 0, "function": {"arguments": "x"}}])] * n
        ),
    ),
    "objects in one call": (
        CHAT,
        lambda n: [delta(tool_calls=[call(0, function={"name": "f", "arguments": f'{{"a":{i}}}'})]) for i in range(n)],
    ),
    "one object again and again": (
        CHAT,
        lambda n: (
            [delta(tool_calls=[call(0, function={"name": "f", "arguments": '{"a":1' + " " * 50 * n + "}"})])]
            + [delta(tool_calls=[call(0, function={"arguments": '{"a":1}'})])] * n
        ),
    ),
    "pieces of a name": (CHAT, lambda n: [delta(tool_calls=[call(0, function={"name": f"n{i}"})]) for i in range(n)]),
    "details of the thinking": (
        CHAT,
        lambda n: [delta(reasoning_details=[{"type": "t", "text": "abcdefgh" * 8, "index": 0}])] * n,
    ),
    "mirrored thinking": (CHAT, lambda n: [delta(reasoning_content="abcd" * 20 * n)] + [delta(reasoning="abcd")] * n),
    "citations": (
        MESSAGES,
        lambda n: [begun("text", text="")] + [block(type="c", citation={"a": i}) for i in range(n)],
    ),
    "signatures": (
        MESSAGES,
        lambda n: [begun("thinking", thinking="")] + [block(type="s", signature=f"{i} " * 20) for i in range(n)],
    ),
    "keys beside text": (
        MESSAGES,
        lambda n: [begun("text", text="")] + [block(**{"type": "k", f"k{i}": i}) for i in range(n)],
    ),
    "an odd block": (MESSAGES, lambda n: [begun("odd", t="")] + [block(type="t", t="abcd" * 20)] * n),
    "usage keys": (
        MESSAGES,
        lambda n: [begun("text", text="")] + [data({"type": "message_delta", "usage": {f"k{i}": 1}}) for i in range(n)],
    ),
    "usage keys in chunks": (CHAT, lambda n: [data({"choices": [], "usage": {f"k{i}": 1}}) for i in range(n)]),
    "partial arguments": (
        GEMINI,
        lambda n: (
            [part({"functionCall": {"name": "f", "willContinue": True}})]
            + [argument(f"$.k{i}", numberValue=i) for i in range(n)]
        ),
    ),
    "keys beside a candidate": (GEMINI, lambda n: [part({"text": "a"}, **{f"k{i}": i}) for i in range(n)]),
    "signed parts": (GEMINI, lambda n: [part({"text": "a", "thoughtSignature": "s"})] * n),
    "items, then all of them": (
        RESPONSES,
        lambda n: (
            [done(i) for i in range(n)]
            + [event("completed", response={"status": "completed", "output": [item(i, id=f"z{i}") for i in range(n)]})]
        ),
    ),
    "empty outputs": (
        RESPONSES,
        lambda n: [done(i) for i in range(n)] + [event("completed", response={"output": []})] * n,
    ),
    "an early item again": (RESPONSES, lambda n: [done(i) + done(0, **{f"k{i}": i}) for i in range(n)]),
    "arguments and their end": (
        RESPONSES,
        lambda n: [CALL_BEGINS] + [arguments("delta", delta="xyz" * 20) + arguments("done", arguments="x")] * n,
    ),
    "a text and its end": (
        RESPONSES,
        lambda n: [
            event(f"output_text.{kind}", output_index=0, item_id="m0", **{key: " word" * size})
            for kind, key, size in [("delta", "delta", 40), ("done", "text", 1)] * n
        ],
    ),
    "thoughts": (
        RESPONSES,
        lambda n: [
            event("reasoning_summary_text.done", item_id="r", output_index=0, summary_index=i, text="t")
            for i in range(n)
        ],
    ),
}


LONGER = {"lines of one event": 10, "calls": 10, "usage keys": 40, "usage keys in chunks": 40}
"""How much longer a reply has to be, so that a copy of a small value for each call, or a bound, shows."""
LONG = {"usage keys", "usage keys in chunks"}
"""What takes some ten seconds; that its keys are bounded is tested below, too."""


@pytest.fixture(scope="module")
def models() -> dict[str, cnllm.Model]:
    registry = cnllm.Registry.load()
    wires = {MESSAGES: "anthropic-messages", RESPONSES: "openai-responses"}
    out = {CHAT: registry.resolve(CHAT, base_url="http://127.0.0.1:1/v1")}
    for start in (MESSAGES, GEMINI, RESPONSES):
        name = next(name for name in registry.names() if name.startswith(start))
        out[start] = registry.resolve(name, protocol=wires.get(start))
    return out


def parser_for(model: cnllm.Model) -> engine.StreamParser:
    return engine.StreamParser(model, plan=engine.build_request(model, "x", stream=True, tools=TOOLS))


def read(parser: engine.StreamParser, pieces: list[bytes]) -> cnllm.Reply | None:
    for piece in pieces:
        parser.feed(piece)
    try:
        return parser.close()
    except cnllm.CnllmError as error:
        return getattr(error, "reply", None)


def work(model: cnllm.Model, pieces: list[bytes]) -> tuple[int, int]:
    parser = parser_for(model)
    with Work() as done:
        read(parser, pieces)
    return done.calls, done.bytes


@pytest.mark.share(3)
@pytest.mark.sampled
@pytest.mark.parametrize("shape", [pytest.param(s, marks=pytest.mark.long) if s in LONG else s for s in SHAPES])
def test_four_times_the_bytes_take_four_times_the_work(models: dict[str, cnllm.Model], shape: str) -> None:
    name, make = SHAPES[shape]
    read(parser_for(models[name]), make(3))
    size = SIZE * LONGER.get(shape, 1)
    few, many = work(models[name], make(size)), work(models[name], make(4 * size))
    assert many[0] < 5.5 * few[0], f"calls: {few[0]} and {many[0]}"
    assert many[1] < 6 * few[1], f"bytes: {few[1]} and {many[1]}"


def test_a_reply_keeps_a_bounded_number_of_notes(models: dict[str, cnllm.Model]) -> None:
    for model in models.values():
        reply = read(parser_for(model), [b"data: bad%d\n\n" % i for i in range(3000)] + [b"data: bad7\n\n"])
        assert reply is not None
        notes = [note for note in reply.notes if note.code == "unreadable-chunk"]
        assert 10 < len(notes) < 1000
        last = reply.notes[-1]
        assert last.code == "notes-left-out"
        assert f"{3000 - len(notes):,}" in last.said


def test_a_reply_keeps_a_bounded_number_of_counts_that_nobody_knows(models: dict[str, cnllm.Model]) -> None:
    counts = [{"prompt_tokens": 1, f"n{i}": i, "details": {f"n{i}": i}} for i in range(1_000)]
    chunks = [data({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": u}) for u in counts]
    reply = read(parser_for(models[CHAT]), [*chunks, data({"choices": [{"index": 0, "finish_reason": "stop"}]})])
    assert reply is not None
    usage = reply.extra["usage"]
    assert len(usage) + len(usage["details"]) <= 1_000
    assert usage["n1"] == usage["details"]["n1"] == 1
