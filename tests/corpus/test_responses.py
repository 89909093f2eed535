"""OpenAI Responses: what was recorded, read and written again by the side that serves it."""

from __future__ import annotations

import json
from typing import Any

from cases import each

from cnllm import Model, Reply, engine

from .corpus import Case, Exchange, cases

KEPT = ("id", "model", "status", "incomplete_details", "error", "output")
"""What of a body is the reply. All else repeats the request, or is the endpoint's own book-keeping."""
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def is_whole(exchange: Exchange) -> bool:
    return exchange.protocol == "openai-responses" and not exchange.stream and exchange.accepted


def is_stream(exchange: Exchange) -> bool:
    return exchange.protocol == "openai-responses" and exchange.stream and exchange.accepted


@each("case", lambda: cases(is_whole))
def test_a_reply_is_written_as_it_was_read(case: Case) -> None:
    exchange = case.exchange
    old = json.loads(exchange.body)
    reply = engine.parse_response(case.resolve(), exchange.status, exchange.headers, exchange.content)
    new = engine.encode_reply(exchange.protocol, reply)
    assert {key: new[key] for key in KEPT if key in old} == {key: old[key] for key in KEPT if key in old}
    assert {key: new["usage"][key] for key in COUNTS} == {key: old["usage"][key] for key in COUNTS}


@each("case", lambda: cases(is_stream))
def test_a_stream_is_written_so_that_it_says_the_same(case: Case) -> None:
    """But for the ids of its items, which a stream tells before a reader of events knows them."""
    model, exchange = case.resolve(), case.exchange
    reply, events = heard(model, exchange.content)
    writer = engine.StreamWriter(exchange.protocol, id=reply.id or "", model=reply.model or "")
    again, _ = heard(model, writer.begin() + b"".join(writer.feed(event) for event in events))
    for name in ("text", "reasoning", "finish", "raw_finish", "usage", "id", "model"):
        assert getattr(again, name) == getattr(reply, name), name
    assert [without_ids(part) for part in again.to_dict()["message"].get("parts", ())] == [
        without_ids(part) for part in reply.to_dict()["message"].get("parts", ())
    ]


def heard(model: Model, content: bytes) -> tuple[Reply, list[Any]]:
    parser = engine.StreamParser(model)
    events = [*parser.feed(content), *parser.end()]
    return parser.close(), events


def without_ids(part: Any) -> Any:
    """A part without the ids in its seal; those of calls, which are no items' ids, stay."""
    if isinstance(part, dict):
        return {key: without_ids(value) for key, value in part.items() if key != "id" or "name" in part}
    return [without_ids(item) for item in part] if isinstance(part, list) else part
