"""A stream, read by the engine: any bytes, in any pieces, of any of the four wires."""

from __future__ import annotations

import re

from cnllm import engine
from cnllm.registry.model import Model

from ..given import given, pack
from ..models import TOOLS, covering
from ..outcome import believed, outcome, sound
from ..simulated import packed
from ..spent import bounded

_STATUS = (200, 200, 200, 200, 200, 200, 201, 400, 429, 503)
_HEADERS: tuple[dict[str, str], ...] = (
    {"content-type": "text/event-stream"},
    {},
    {"content-type": "application/json", "retry-after": "1"},
    {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "x-request-id": "\x00"},
)


def chosen(which: int) -> Model:
    """Return the model of an input."""
    return covering()[which % len(covering())]


def check(data: bytes) -> None:
    """Check that whole and in pieces are the same, sound, and whole only where something says so."""
    case = given(data)
    model, body = chosen(case.which), case.payload
    status = _STATUS[case.how % len(_STATUS)]
    headers = _HEADERS[case.how // 16 % len(_HEADERS)]
    with bounded(len(body)):
        found = outcome(model, [body], mode=case.mode, status=status, headers=headers)
    sound(model, found)
    again = outcome(model, case.pieces(), mode=case.mode, status=status, headers=headers)
    assert again == found, "in pieces it is read differently"
    if found.whole and _streams(body):
        assert believed(model, body), "taken for whole without an end"
    raw = outcome(model, [body], mode=case.mode, status=status, headers=headers, keep_raw=True)
    assert raw.error == found.error  # the quick way and the full reader agree
    assert (raw.reply is None) == (found.reply is None)
    same = ["text", "reasoning", "tool_calls", "incomplete", "finish", "notes"]
    if found.whole:
        same.append("usage")  # before the end the quick way may leave counts to the chunk that has them all
    if model.protocol != "openai-responses":
        same.append("message")  # there, deltas of an item that is over already begin a part each, or go on with one
    for name in same:
        assert getattr(raw.reply, name, None) == getattr(found.reply, name, None), (
            f"the quick way reads {name} differently"
        )
    if case.how >= 250 and body:
        many = body * max(1, 150_000 // len(body))
        with bounded(len(many) * 3):
            parser = engine.StreamParser(model, TOOLS, status=status, headers=headers)
            parser.feed(many)
            parser.end()


def _streams(body: bytes) -> bool:
    """Whether these bytes begin as events do."""
    return re.match(rb"(\xef\xbb\xbf)?[ \t\r\n]*(data:|event:|id:|retry:|:)", body) is not None


def seeds() -> list[bytes]:
    """Return streams of the simulator as each of the models, and hand-made odds and ends."""
    odd = (
        b'data: {"error":{"message":"overloaded","type":"server_error","code":"503"}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
        b'{"error":{"message":"no","code":400}}',
        b'[{"candidates":[{"content":{"parts":[{"text":"hi"}]}}]},\n{"candidates":[{"finishReason":"STOP"}]}]',
        b"<html>502 Bad Gateway</html>",
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"search",'
        b'"arguments":"{}"}},{"index":1,"function":{"arguments":"{"}}]}}]}\n\ndata: [DONE]\n\n',
    )
    return [*packed(stream=True), *(pack(body, which=n, mode=n) for n, body in enumerate(odd))]
