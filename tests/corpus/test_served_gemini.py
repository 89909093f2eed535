"""Recorded replies of generateContent survive the way through neutral types, and a server's stream tells the same."""

from __future__ import annotations

import json
import re
from typing import Any

from cases import each

from cnllm import engine

from .corpus import Case, Exchange, cases

UNSAID = ("promptTokensDetails", "candidatesTokensDetails", "cacheTokensDetails", "serviceTier", "trafficType")


def is_whole(exchange: Exchange) -> bool:
    return exchange.protocol == "gemini" and exchange.accepted and not exchange.stream


def is_read(exchange: Exchange) -> bool:
    return exchange.protocol == "gemini" and exchange.expected is not None


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing of the reply: counts by kind, safety ratings, remarks, dates."""
    [candidate] = body["candidates"]
    said = {k: v for k, v in candidate.items() if k not in ("safetyRatings", "finishMessage", "avgLogprobs")}
    usage = {k: v for k, v in body["usageMetadata"].items() if k not in UNSAID}
    head = {key: body[key] for key in ("modelVersion", "responseId")}
    return {"candidates": [{"index": 0, **said}], "usageMetadata": usage, **head}


@each("case", lambda: cases(is_whole))
def test_a_reply_survives_the_way_through_neutral_types(case: Case) -> None:
    exchange = case.exchange
    reply = engine.parse_response(case.resolve(), exchange.status, exchange.headers, exchange.content)
    assert normal(engine.encode_reply("gemini", reply)) == normal(json.loads(exchange.body))


@each("case", lambda: cases(is_read, own=False))
def test_a_server_passes_a_reply_on(case: Case) -> None:
    exchange, model = case.exchange, case.resolve()
    parser = engine.StreamParser(model)
    events = [*parser.feed(exchange.content), *parser.end()]
    reply = parser.close()
    writer = engine.StreamWriter("gemini", id=reply.id or "", model=reply.model or "")
    content = writer.begin() + b"".join(map(writer.feed, events))
    again = engine.parse_response(model, 200, {}, content)
    for name in ("text", "reasoning", "finish", "raw_finish", "usage", "id", "model"):
        assert getattr(again, name) == getattr(reply, name)
    assert [(given_id(c.id), c.name, c.arguments) for c in again.tool_calls] == [
        (given_id(c.id), c.name, c.arguments) for c in reply.tool_calls
    ]
    assert seals(again) == seals(reply)


def given_id(id: str) -> str | None:
    """Return the wire's id of a call; None for one that each reading makes because the wire has none."""
    return None if re.fullmatch(r"call_\d{20}", id) else id


def seals(reply: Any) -> list[Any]:
    return [part.seal for part in reply.message.parts if part.seal is not None]
