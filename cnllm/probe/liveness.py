"""Judge an endpoint as a whole: one that refuses everything by now proves nothing by its refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cnllm.probe.exchange import Exchange
from cnllm.probe.facts import Fact

__all__ = ["last_pass", "remarks", "since_pass", "supported"]

_MOST = 8
_PASSED, _PROMPTS = 10, 4


def last_pass(exchanges: Sequence[Exchange]) -> int:
    """Return the number of the last exchange in which the endpoint took a request; 0 where it took none."""
    return next((e.number for e in reversed(exchanges) if e.answer.passed), 0)


def since_pass(exchanges: Sequence[Exchange]) -> bool:
    """Whether so many requests in a row were not taken that the endpoint itself is in doubt."""
    return len(exchanges) - last_pass(exchanges) >= _MOST


def supported(fact: Fact, passed: int) -> bool:
    """Whether a fact was seen before the endpoint stopped answering."""
    return fact.answer == "unknown" or not fact.exchanges or max(fact.exchanges) <= passed


def remarks(exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Yield what is strange about an endpoint as a whole."""
    whole = [e.answer for e in exchanges if e.answer.passed and e.ask.body is not None and not e.ask.stream]
    if len(whole) > 1 and all(answer.streamed for answer in whole):
        yield "the endpoint streams whatever is asked"
    if _says_one_thing(exchanges):
        yield "every answer is the same text: effects on the answer cannot be seen"


def _says_one_thing(exchanges: Sequence[Exchange]) -> bool:
    """Whether every answer is the same text, whatever was asked."""
    passed = [e for e in exchanges if e.answer.passed and e.answer.reply is not None]
    if len(passed) < _PASSED or len({str((e.ask.body or {}).get("messages")) + e.ask.why for e in passed}) < _PROMPTS:
        return False
    first = passed[0].answer
    return bool(first.text) and all(e.answer.text == first.text and not e.answer.calls for e in passed)
