"""Hostile JSON in every place of every event, on every wire: a reply, a cut or a typed error, and nothing that breaks
whoever takes it on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cases import each
from examples import SHARE

import cnllm
from cnllm import engine

from .honest import came, closed
from .streams import CALLS, WIRES, Wire

MARK = "\u241e"
DEEP = 10_000
FRAGMENTS: dict[str, bytes] = {
    "a lone surrogate": rb'"a\ud800b"',
    "the wrong half first": rb'"\udc00\ud800"',
    "NUL, escaped": rb'"a\u0000b"',
    "NUL, raw": b'"a\x00b"',
    "no UTF-8": b'"a\xff\xfe\xe5b"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "NaN": b"NaN",
    "infinity": b"-Infinity",
    "beyond any float": b"1e999",
    "beyond 64 bits": b"100000000000000000000000000000000000000000",
    "below 64 bits": b"-9223372036854775809",
    "just 64 bits": b"18446744073709551615",
    "five thousand digits": b"9" * 5000,
    "a fraction": b"0.5",
    "negative": b"-1",
    "lists in lists": b"[" * DEEP + b"]" * DEEP,
    "objects in objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a key twice": b'{"a":1,"a":{"a":2},"text":"x","text":null}',
    "null": b"null",
    "true": b"true",
    "nothing": b'""',
    "an empty list": b"[]",
    "an empty object": b"{}",
    "half a word": b"tru",
    "an open string": b'"abc',
}


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands."""
    yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


def put(data: Any, path: tuple[Any, ...]) -> Any:
    """The same with the mark in that place."""
    if not path:
        return MARK
    copied = data.copy()
    copied[path[0]] = put(data[path[0]], path[1:])
    return copied


def spoiled(event: bytes, fragment: bytes) -> Iterator[bytes]:
    """The event with the fragment in each place of its data."""
    before, _, rest = event.rpartition(b"data: ")
    try:
        data = json.loads(rest)
    except ValueError:
        yield before + b"data: " + fragment + b"\n\n"
        return
    for path in places(data):
        text = json.dumps(put(data, path)).encode()
        yield before + b"data: " + text.replace(json.dumps(MARK).encode(), fragment) + b"\n\n"


def usable(reply: cnllm.Reply, model: cnllm.Model, place: str) -> None:
    """It can be written down, read again, and sent back."""
    msgspec.json.encode(reply)  # which half a surrogate pair, or a number beyond 64 bits, would not survive
    again = cnllm.Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
    assert again == reply.message, place
    engine.build_request(model, ["hi", reply.message] if reply.text else "hi")
    for call in reply.tool_calls:
        assert isinstance(call.arguments, dict) or call.problem, place


@pytest.mark.sampled
@each("fragment", FRAGMENTS, parts=2)
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_whatever_stands_in_any_place_is_read_or_told(wire: Wire, fragment: str) -> None:
    model = wire.model()
    number = list(FRAGMENTS).index(fragment)
    for n, event in enumerate(wire.events):
        for bad in itertools.islice(spoiled(event, FRAGMENTS[fragment]), (number + n) % SHARE, None, SHARE):
            place = f"event {n}: {bad[:200]!r}"
            parser = engine.StreamParser(model)
            events = parser.feed(b"".join([*wire.events[:n], bad, *wire.events[n + 1 :]]))
            reply, error = closed(parser, events)
            assert error is None or isinstance(error, cnllm.StreamCut | cnllm.EndpointError), place
            if reply is not None:
                usable(reply, model, place)
                assert not (reply.finish == "cut" and reply.tool_calls), place


@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_what_nobody_can_read_in_the_middle_is_no_whole_reply(wire: Wire) -> None:
    """An event that was damaged may have held anything."""
    for n, event in enumerate(wire.events):
        if wire.proof in event:
            break
        torn = event[: len(event) * 2 // 3].rstrip() + b"\n\n"
        if not event.rpartition(b"data: ")[2].startswith(b"{"):
            continue
        parser = engine.StreamParser(wire.model())
        events = parser.feed(b"".join([*wire.events[:n], torn, *wire.events[n + 1 :]]))
        reply, error = closed(parser, events)
        assert isinstance(error, cnllm.StreamCut | cnllm.EndpointError), f"event {n}: {torn!r}"
        assert reply is None or reply.tool_calls == []


@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_a_megabyte_on_one_line_is_read(wire: Wire) -> None:
    long = "天" * 350_000
    content = wire.content.decode().replace("The sky", long).encode()
    content = content.replace(json.dumps("The sky").encode(), json.dumps(long).encode())
    parser = engine.StreamParser(wire.model())
    events = []
    for at in range(0, len(content), 65536):
        events += parser.feed(content[at : at + 65536])
    reply, error = closed(parser, events)
    assert error is None
    assert reply is not None
    assert reply.text == long + " is 蓝。"
    assert came(reply)[2] == CALLS
