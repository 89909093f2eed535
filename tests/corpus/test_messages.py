"""Recorded answers of anthropic-messages, read and written again as a server writes them.

That recorded requests are written again as they were is in test_rebuild.py: they are read by the server's side.
"""

from __future__ import annotations

import json
from typing import Any

from cases import each

import cnllm
from cnllm import Reply, engine

from .corpus import Case, Exchange, cases
from .messages import PROTOCOL


def is_answer(exchange: Exchange) -> bool:
    return exchange.protocol == PROTOCOL and exchange.accepted


def is_whole(exchange: Exchange) -> bool:
    return is_answer(exchange) and not exchange.stream


def is_stream(exchange: Exchange) -> bool:
    return is_answer(exchange) and exchange.stream


# ── there and back ───────────────────────────────────────────────────────────
# What no neutral reply holds: the endpoint's own book-keeping, and which of the stop sequences it was.
BOOKS = ("container", "stop_details", "stop_sequence", "context_management", "diagnostics")
COUNTS = ("cache_creation", "service_tier", "inference_geo", "server_tool_use", "speed")


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A body without that, and without null."""
    out = {key: value for key, value in body.items() if key not in BOOKS}
    out["usage"] = {k: v for k, v in body["usage"].items() if k not in COUNTS and v is not None}
    out["content"] = [{k: v for k, v in block.items() if v is not None} for block in body["content"]]
    return out


@each("case", lambda: cases(is_whole))
def test_a_reply_is_written_as_it_was_read(case: Case) -> None:
    exchange = case.exchange
    reply = engine.parse_response(case.resolve(), exchange.status, exchange.headers, exchange.content)
    assert normal(engine.encode_reply(PROTOCOL, reply)) == normal(json.loads(exchange.body))


@each("case", lambda: cases(is_stream))
def test_a_stream_is_written_as_it_was_read(case: Case) -> None:
    of = case.resolve()
    parser = engine.StreamParser(of)
    writer = engine.StreamWriter(PROTOCOL, id="msg", model="m")
    out = writer.begin()
    for event in [*parser.feed(case.exchange.content), *parser.end()]:
        out += writer.feed(event)
    first, again = parser.close(), _read(of, out)
    assert _told(again) == _told(first)
    assert [_beside(p) for p in again.message.parts] == [_beside(p) for p in first.message.parts]


def _read(of: cnllm.Model, content: bytes) -> Reply:
    parser = engine.StreamParser(of)
    parser.feed(content)
    return parser.close()


def _told(reply: Reply) -> Any:
    calls = [(c.id, c.name, c.arguments) for c in reply.tool_calls]
    cut = [(c.id, c.name, c.raw) for c in reply.incomplete]
    return reply.text, reply.reasoning, calls, cut, reply.finish, reply.raw_finish, reply.usage


def _beside(part: Any) -> Any:
    """A part with what goes back with it; what stands beside a call has no event in this protocol."""
    if isinstance(part, cnllm.ToolCall):
        return part.id, part.name, part.arguments
    return part
