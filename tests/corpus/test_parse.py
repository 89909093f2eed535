"""Every recorded answer is read as what it says, and a stream is read the same however its bytes arrive.

The one-byte runs feed single bytes throughout to the generic model for streams of up to 2 * EDGE bytes. Of
longer streams, and of all streams as their endpoint's own, single bytes are fed at both ends only and the
middle arrives in pieces of one to seven bytes; that keeps the suite short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases import each
from examples import SHARE, some

import cnllm
from cnllm import engine

from .corpus import BASE_URL, GENERIC, Case, Exchange, cases, registry
from .expect import differences, is_empty
from .reading import (
    Outcome,
    call_dict,
    delivered,
    fold,
    random_pieces,
    read,
    read_stream,
    reply_dict,
    single_bytes,
    usage_dict,
)
from .rebuild import asked

SEEDS = ("one", "two", "three") if SHARE == 1 else ("one",)
EDGE = 32_000 // SHARE
OWN_EDGE = 2_000 // SHARE


def has_expectation(exchange: Exchange) -> bool:
    return exchange.expected is not None


def is_read_stream(exchange: Exchange) -> bool:
    return exchange.stream and exchange.expected is not None


def is_asked(exchange: Exchange) -> bool:
    return exchange.expected is not None and exchange.sent is not None


def check(exchange: Exchange, outcome: Outcome) -> None:
    """The outcome is what the corpus expects."""
    if (exchange.expected or {}).get("stream_error"):
        assert isinstance(outcome.error, cnllm.EndpointError)
        assert not isinstance(outcome.error, cnllm.EmptyReply)
    elif is_empty(exchange):
        assert isinstance(outcome.error, cnllm.EmptyReply)
    else:
        assert outcome.error is None, repr(outcome.error)
    assert outcome.reply is not None
    found = differences(exchange, outcome.reply)
    assert not found, "\n".join(found)


def check_delivery(outcome: Outcome) -> None:
    """A listener to the events knows what is in the reply."""
    reply = outcome.reply
    assert reply is not None
    heard = fold(outcome.events)
    assert delivered(outcome.events) == (reply.text, reply.reasoning)
    assert heard["usage"] == usage_dict(reply.usage)
    assert [finish for finish, _ in heard["ends"]] == [reply.finish]
    assert [raw for _, raw in heard["ends"]] == [reply.raw_finish]
    assert isinstance(outcome.events[-1], cnllm.Finished)
    assert [call for call in heard["calls"] if call not in [call_dict(one) for one in reply.incomplete]] == [
        call_dict(call) for call in reply.tool_calls
    ]
    starts = [event for event in outcome.events if isinstance(event, cnllm.ToolCallStart)]
    assert all(start.name for start in starts)
    begun = [*reply.tool_calls, *reply.incomplete]
    assert sorted((start.id, start.name) for start in starts) == sorted((call.id, call.name) for call in begun)


@pytest.mark.share(2)
@each("case", lambda: cases(has_expectation))
def test_an_answer_is_read_as_what_it_says(case: Case) -> None:
    check(case.exchange, read(case.resolve(), case.exchange))


@pytest.mark.share(3)
@each("case", lambda: cases(is_asked))
def test_an_answer_is_read_as_what_it_says_with_its_request_at_hand(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    messages, options = asked(exchange, model)
    plan = engine.build_request(model, messages, stream=exchange.stream, **options)
    check(exchange, read(model, exchange, plan))


@each("case", lambda: cases(is_read_stream))
def test_a_listener_hears_what_the_reply_holds(case: Case) -> None:
    check_delivery(read(case.resolve(), case.exchange))


@pytest.mark.sampled
@each("case", lambda: some(cases(is_read_stream), 2), parts=2)
def test_a_stream_cut_at_random_bytes_is_read_as_if_it_came_at_once(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    at_once = read_stream(model, exchange, [exchange.content], full=True)
    for seed in SEEDS:
        in_pieces = read_stream(model, exchange, random_pieces(exchange.content, exchange.id + seed))
        check_same(at_once, in_pieces)
        check(exchange, in_pieces)


@pytest.mark.sampled
@each("case", lambda: some(cases(is_read_stream)), parts=2)
def test_a_stream_of_single_bytes_is_read_as_if_it_came_at_once(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    edge = EDGE if case.provider == GENERIC else OWN_EDGE
    in_bytes = read_stream(model, exchange, single_bytes(exchange.content, edge))
    check_same(read(model, exchange), in_bytes)
    check_delivery(in_bytes)


def check_same(one: Outcome, other: Outcome) -> None:
    """The same reply, the same error, and the same known to a listener."""
    assert one.reply is not None
    assert other.reply is not None
    assert reply_dict(one.reply) == reply_dict(other.reply)
    assert fold(one.events) == fold(other.events)
    assert (type(one.error), str(one.error)) == (type(other.error), str(other.error))


def is_whole(exchange: Exchange) -> bool:
    return not exchange.stream and exchange.protocol == "openai-chat"


@each("case", lambda: cases(is_whole))
def test_a_whole_body_is_read_directly_as_the_general_reader_reads_it(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    url = None if model.flags.base_url else BASE_URL
    model = registry().resolve(model.name, protocol=model.protocol, base_url=url) if url else model
    plan = engine.build_request(model, "Hi")

    def general() -> cnllm.Reply:
        parser = engine.StreamParser(model, plan=plan, status=exchange.status, headers=exchange.headers)
        parser.feed(exchange.content)
        return parser.close()

    direct = outcome(
        lambda: engine.parse_response(model, exchange.status, exchange.headers, exchange.content, plan=plan)
    )
    assert direct == outcome(general)


def outcome(parse: Callable[[], cnllm.Reply]) -> Any:
    """The reply, or the error with its reply."""
    try:
        return parse()
    except cnllm.CnllmError as error:
        return type(error), str(error), error.reply
