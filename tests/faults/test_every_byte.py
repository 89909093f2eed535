"""Streams of every wire, cut at every byte: what came is told as cut, kept to the last event, and never executable.

Recorded streams are cut in a stretch of bytes each; `FAULTS=every pytest -k recorded` cuts them at every byte, which
takes more than an hour of CPU. That what is kept is all that had come is judged by another reader in tests/corpus.
"""

from __future__ import annotations

import copy
import os
import random

import pytest
from cases import each
from corpus.corpus import GENERIC, Case, cases
from corpus.test_cuts import is_read_stream
from examples import SHARE

import cnllm
from cnllm import engine

from .honest import came, closed, cut
from .streams import CALLS, REASONING, TEXT, WIRES, Wire

STRETCH = 25 if SHARE == 1 else 4
"""Bytes of a recorded stream that are cut one after another."""


def twin(parser: engine.StreamParser, model: cnllm.Model) -> engine.StreamParser:
    """A parser in the same state; what never changes is shared."""
    kept = [model, model.flags]
    return copy.deepcopy(parser, {id(one): one for one in kept})


# ── our own, at every byte ───────────────────────────────────────────────────
@pytest.mark.sampled
@each("pieces", ["bytes", "one"])
@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_at_every_byte_of_every_wire(wire: Wire, pieces: str) -> None:
    model, content = wire.model(), wire.content
    whole = engine.StreamParser(model)
    whole.feed(content)
    full = whole.close()
    assert came(full) == (REASONING, TEXT, CALLS, "tool_calls")
    proven = content.index(wire.proof)
    kept = 0
    steady, heard = engine.StreamParser(model), []
    for at in range(1, len(content)):
        if pieces == "bytes":
            heard += steady.feed(content[at - 1 : at])
            if at % SHARE and at < len(content) - 1:
                continue
            parser, events = twin(steady, model), list(heard)
        elif at % SHARE and at < len(content) - 1:
            continue
        else:
            parser = engine.StreamParser(model)
            events = parser.feed(content[:at])
        reply, error = closed(parser, events)
        place = f"{wire.protocol} cut at {at}: {content[max(0, at - 60) : at]!r}"
        if error is None:
            assert at > proven, place
            assert reply is not None
            assert came(reply) == came(full), place
            continue
        assert type(error) is cnllm.StreamCut, place
        got = cut(error, events, full, place)
        size_now = sum(map(len, (got.text, got.reasoning, *(call.raw for call in got.incomplete))))
        assert size_now >= kept, place
        kept = size_now
    assert kept == len(TEXT + REASONING) + sum(len(call.raw) for call in full.tool_calls), "all of it, before its proof"


@each("wire", lambda: WIRES.values(), ids=WIRES)
def test_every_event_counts_as_soon_as_it_is_there(wire: Wire) -> None:
    """A cut after an event loses none of it, and what a listener heard is what is kept."""
    heard: list[tuple[str, str]] = []
    for n in range(1, len(wire.events)):
        parser, events = engine.StreamParser(wire.model()), []
        for one in wire.events[:n]:
            events += parser.feed(one)
        text = "".join(e.text for e in events if isinstance(e, cnllm.TextDelta))
        thought = "".join(e.text for e in events if isinstance(e, cnllm.ReasoningDelta))
        reply, _ = closed(parser, [])
        assert reply is not None
        assert (reply.text, reply.reasoning) == (text, thought)
        heard.append((thought, text))
    assert ("Hm, ", "") in heard
    assert (REASONING, "The sky") in heard


# ── recorded ones ────────────────────────────────────────────────────────────
@pytest.mark.sampled
@each("case", lambda: cases(is_read_stream, own=False))
def test_a_recorded_stream_at_every_byte_of_a_stretch(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    content = exchange.content
    begin, end = len(b"data:"), len(content)
    if os.environ.get("FAULTS") != "every":
        begin = random.Random(f"{exchange.id} {GENERIC}").randrange(begin, max(begin + 1, end - STRETCH))
        end = min(end, begin + STRETCH)
    headers = exchange.headers
    whole = engine.StreamParser(model, status=exchange.status, headers=headers)
    whole.feed(content)
    full, _ = closed(whole, [])
    assert full is not None
    steady = engine.StreamParser(model, status=exchange.status, headers=headers)
    before, fed = list(steady.feed(content[:begin])), begin
    judged: object = None
    for at in range(begin, end):
        if content[at - 1 : at] == b"\n":  # so that each cut costs no more than its own event
            before += steady.feed(content[fed:at])
            fed = at
        parser = twin(steady, model)
        events = parser.feed(content[fed:at])
        reply, error = closed(parser, events)
        outcome = len(before), events, reply, type(error)
        if outcome == judged:
            continue  # as one byte ago
        judged, events = outcome, [*before, *events]
        place = f"{exchange.id} cut at {at}: {content[max(0, at - 60) : at]!r}"
        if error is None:
            assert reply is not None
            says, said = came(reply), came(full)
            assert says[:3] == said[:3], place
            assert says[3] == said[3] or said[3] == "error", "some report a failure after a finish"
        elif type(error) is cnllm.StreamCut:
            cut(error, events, full, place)
        else:
            assert isinstance(error, cnllm.EndpointError), place
            assert reply is None or reply.tool_calls == [], place
