"""Events that arrive together are written as they are one by one, in every protocol."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cnllm import Registry
from cnllm.gateway.exchange import DIVERGED, ClientRequest, Exchange
from cnllm.gateway.model_names import ModelNames
from cnllm.types import (
    BlockEnd,
    Event,
    Finished,
    Note,
    NoteAdded,
    Reasoning,
    ReasoningDelta,
    Restarted,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)
from cnllm.types.delivered import Diverged

MODELS = ("deepseek/deepseek-v4-pro", "zai/glm-4.7", "moonshotai/kimi-k2.5")
ID = "call_0123456789abcdefghij"
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "stream": True}),
    "openai-responses": ("/v1/responses", {"input": "hi", "stream": True}),
    "anthropic-messages": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": True},
    ),
    "gemini": (
        "/v1beta/models/m:streamGenerateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
}
CALL = ToolCall(ID, "f", {"a": 1}, raw='{"a":1}')
REASONING = [ReasoningDelta(text) for text in ("Let ", "me ", "", "思考\n", '"\\')]
TEXT = [TextDelta(text) for text in ("So", " it", " is", "…", "")]
CALLED: list[Event] = [
    ToolCallStart(0, ID, "f"),
    ToolCallDelta(0, '{"a"'),
    ToolCallDelta(0, ":1}"),
    ToolCallEnd(0, CALL),
]
OTHER_ID = "call_abcdefghij0123456789"
PIECES = ('{"te', 'xt": "', "思考", "\\n", '"}')
LONG_CALLS = [
    ToolCall(id, "f", {"text": "思考\n"}, raw="".join(PIECES), excluded=is_excluded)
    for id, is_excluded in ((ID, False), (OTHER_ID, False), (ID, True))
]


def call_events(index: int, call: ToolCall) -> list[Event]:
    return [ToolCallStart(index, call.id, call.name, call.excluded), *(ToolCallDelta(index, text) for text in PIECES)]


LONG: list[Event] = [*call_events(0, LONG_CALLS[0]), ToolCallEnd(0, LONG_CALLS[0])]
OTHER: list[Event] = [*call_events(1, LONG_CALLS[1]), ToolCallEnd(1, LONG_CALLS[1])]
REASONED = BlockEnd(0, Reasoning("".join(event.text for event in REASONING)))
SPOKEN = BlockEnd(1, Text("".join(event.text for event in TEXT)))
NOTE = NoteAdded(Note("tier", "b", "c", "d"))
USED = UsageSeen(Usage(input=3, output=4))

STREAMS: dict[str, list[Event]] = {
    "in order": [*REASONING, REASONED, *TEXT, SPOKEN, *CALLED, USED],
    "ends at the end": [*REASONING, *TEXT, *CALLED, REASONED, SPOKEN, USED],
    "alternating": [*REASONING[:2], *TEXT[:2], *REASONING[2:], *TEXT[2:], REASONED, SPOKEN],
    "text after a call": [*CALLED[:2], *TEXT, *CALLED[2:], SPOKEN, USED],
    "notes between": [*TEXT[:2], NOTE, *TEXT[2:], SPOKEN],
    "one call after another": [*LONG, *OTHER, USED],
    "two calls at once": [LONG[0], OTHER[0], *LONG[1:3], *OTHER[1:5], *LONG[3:], *OTHER[5:], USED],
    "calls that end at the end": [*LONG[:-1], *OTHER[:-1], LONG[-1], OTHER[-1]],
    "a call beside one that is left out": [*call_events(0, LONG_CALLS[2]), ToolCallEnd(0, LONG_CALLS[2]), *OTHER],
    "text in a call": [*LONG[:3], *TEXT[:3], *LONG[3:], *TEXT[3:], SPOKEN],
    "a call begun again": [*LONG[:4], Restarted(), *LONG, *OTHER],
    "begun again": [*REASONING, *TEXT[:3], Restarted(), *REASONING, REASONED, *TEXT, SPOKEN],
    "begun again with another text": [
        *TEXT,
        Restarted(),
        TextDelta("So"),
        TextDelta("mething"),
        TextDelta(" else"),
    ],
    "begun again without the end of the text": [*TEXT, Restarted(), TextDelta("So it"), Finished("stop", "stop")],
    "begun again without the call": [*CALLED[:2], Restarted(), *TEXT, SPOKEN, Finished("stop", "stop")],
    "begun again with another call": [*CALLED[:2], Restarted(), ToolCallStart(0, ID, "f g")],
    "begun again without a call that is left out": [
        ToolCallStart(0, ID, "f", excluded=True),
        ToolCallDelta(0, "{}"),
        Restarted(),
        *TEXT,
        SPOKEN,
        Finished("stop", "stop"),
    ],
}
DIVERGE = {
    "begun again with another text",
    "begun again without the end of the text",
    "begun again without the call",
    "begun again with another call",
}


@pytest.fixture(scope="module")
def names() -> ModelNames:
    return ModelNames(Registry.load())


def written(protocol: str, names: ModelNames, model: str, events: list[Event], size: int) -> bytes | str:
    """Return the bytes of a stream whose events come so many at a time; 0: each is written for itself."""
    path, body = BODIES[protocol]
    if protocol == "gemini":
        path = path.replace("/m:", f"/{model}:")
    exchange = Exchange(ClientRequest(protocol, {**body, "model": model}, path, {}), names)
    exchange.id = "an-id"
    out = [exchange.begin()]
    try:
        if size:
            out += [exchange.events(events[i : i + size]) for i in range(0, len(events), size)]
        else:
            out += [exchange.event(event) for event in events]
    except Diverged:
        return "diverged"
    out.append(exchange.failed(DIVERGED))  # and with it what waited
    return re.sub(rb'"(created(?:_at)?|completed_at)":[\d.]+', rb'"\1":0', b"".join(out))


@pytest.mark.parametrize("protocol", BODIES)
def test_events_that_arrive_together_are_written_as_one_by_one(protocol: str, names: ModelNames) -> None:
    for model in MODELS:
        for name, events in STREAMS.items():
            single = written(protocol, names, model, events, 0)
            assert (single == "diverged") == (name in DIVERGE), name
            for size in (1, 2, 3, 5, len(events)):
                assert written(protocol, names, model, events, size) == single, (model, name, size)


def test_a_run_of_deltas_is_one_event_for_each(names: ModelNames) -> None:
    for protocol, kind in (("openai-chat", b'"arguments":'), ("anthropic-messages", b'"partial_json"')):
        data = written(protocol, names, MODELS[0], LONG, 100)
        assert isinstance(data, bytes)
        assert data.count(kind) - (protocol == "openai-chat") == len(PIECES), data  # its first chunk has empty ones
    for protocol, kind in (("openai-chat", b'"content":'), ("anthropic-messages", b'"text_delta"')):
        data = written(protocol, names, MODELS[0], [*TEXT, SPOKEN], 100)
        assert isinstance(data, bytes)
        pieces = data.count(kind) - (protocol == "openai-chat")  # its first chunk has an empty content
        assert pieces == len(TEXT), data
