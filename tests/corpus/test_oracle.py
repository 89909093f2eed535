"""The oracle of cut streams and the recordings agree about whole ones."""

from __future__ import annotations

import json

from cases import each

from .corpus import Case, cases
from .oracle import hear, split_think


@each("case", lambda: cases(lambda exchange: exchange.stream and bool(exchange.expected), own=False))
def test_the_oracle_hears_what_the_corpus_expects(case: Case) -> None:
    exchange = case.exchange
    expected = exchange.expected or {}
    heard = hear(exchange.protocol, exchange.content)
    reasoning = split_think(heard.text)[1] if expected.get("think_tags") else heard.reasoning
    assert (None if heard.refused else heard.text or None) == expected["text"]
    assert (reasoning or None) == expected["reasoning"]
    assert heard.finish == expected["finish_reason"]
    assert bool(heard.error) == ("stream_error" in expected)
    calls = expected["tool_calls"]
    assert [(call.id, call.name) for call in heard.calls] == [
        (call["id"] or said.id, call["name"]) for call, said in zip(calls, heard.calls, strict=True)
    ]
    for said, wanted in zip(heard.calls, calls, strict=True):
        arguments = wanted["arguments"]
        assert (said.raw if isinstance(arguments, str) else json.loads(said.raw or "{}")) == arguments
