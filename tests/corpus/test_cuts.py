"""A stream that was cut never passes for a whole one, and loses nothing that arrived.

Each stream is cut at a few seeded offsets, the shortest ones at every offset. What had arrived by then is
what the complete JSON objects before the cut hold (an object is complete with its closing brace, line end
or not).
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from cases import each
from examples import SHARE, share, some

import cnllm

from .corpus import GENERIC, Case, Exchange, cases, exchanges
from .heard import Heard
from .oracle import hear, split_think
from .reading import Outcome, delivered, fold, read, read_stream

CUTS = 8
SHORTEST = max(2, 6 // SHARE)
"""So many of the shortest streams of a protocol are cut at every offset."""


def is_read_stream(exchange: Exchange) -> bool:
    return exchange.stream and exchange.expected is not None


def is_short(exchange: Exchange) -> bool:
    if not is_read_stream(exchange):
        return False
    alike = (one for one in exchanges() if is_read_stream(one) and one.protocol == exchange.protocol)
    short = sorted(alike, key=lambda one: (len(one.body), one.id))[:SHORTEST]
    return exchange in short


def check(model: Any, exchange: Exchange, whole: Outcome, at: int) -> None:
    """What comes of the first `at` bytes is honest."""
    heard = hear(exchange.protocol, exchange.content[:at])
    cut = read_stream(model, exchange, [exchange.content[:at]])
    place = f"{exchange.id} cut at {at}: {exchange.content[max(0, at - 60) : at]!r}"
    if heard.finish and not heard.error and cut.error is None:
        assert cut.reply is not None
        assert whole.reply is not None
        for name in ("text", "reasoning", "tool_calls", "incomplete", "raw_finish"):
            assert getattr(cut.reply, name) == getattr(whole.reply, name), place
        return
    assert isinstance(cut.error, cnllm.StreamCut | cnllm.EndpointError), place
    assert not heard.error or isinstance(cut.error, cnllm.EndpointError), place
    if cut.reply is None:
        assert heard.empty, place
        return
    if not (heard.empty and b"[DONE]" in exchange.content[:at]):  # that one is whole, and empty
        assert cut.reply.finish in (("error",) if heard.error else ("cut", "error")), place
    assert cut.reply.tool_calls == [], place
    check_kept(exchange, heard, cut, place)
    assert whole.reply is not None
    assert whole.reply.text.startswith(cut.reply.text), place
    assert whole.reply.reasoning.startswith(cut.reply.reasoning), place


def given_id(id: str) -> str | None:
    """Return the wire's id of a call; None for one that was made because the wire had none."""
    return None if re.fullmatch(r"call_\d+", id) else id


def check_kept(exchange: Exchange, heard: Heard, cut: Outcome, place: str) -> None:
    """Everything that arrived is there, and a listener has it too."""
    assert cut.reply is not None
    text, reasoning = heard.text, heard.reasoning
    if (exchange.expected or {}).get("think_tags"):
        text, reasoning = split_think(text)
        assert cut.reply.reasoning.strip() == reasoning, place
    else:
        assert cut.reply.reasoning == reasoning, place
    assert cut.reply.text == text, place
    # A call without arguments may have lost them: where the stream was cut, its text is empty.
    assert [(given_id(call.id), call.name, call.raw or "{}") for call in cut.reply.incomplete] == [
        (given_id(call.id), call.name, call.raw or "{}") for call in heard.calls
    ], place
    assert delivered(cut.events) == (cut.reply.text, cut.reply.reasoning), place
    assert [finish for finish, _ in fold(cut.events)["ends"]] == [cut.reply.finish], place


@pytest.mark.sampled
@each("case", lambda: some(cases(is_read_stream), 1), parts=2)
def test_a_cut_stream_never_passes_for_a_whole_one_and_loses_nothing(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    whole = read(model, exchange)
    dice = random.Random(exchange.id)
    for _ in range(CUTS if case.provider == GENERIC else CUTS // 2):
        check(model, exchange, whole, dice.randrange(len(exchange.content)))


@pytest.mark.sampled
@each("case", lambda: cases(is_short, own=False))
def test_a_short_stream_may_be_cut_at_any_byte(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    whole = read(model, exchange)
    length = len(exchange.content)
    for at in random.Random(exchange.id).sample(range(length), share(length)):
        check(model, exchange, whole, at)
