"""Every recorded request that an endpoint took can be written by the engine, from the contract's own options.

Messages and tools are compared, apart from the differences that rebuild.py names. Endpoints without an entry
of their own are written to as any OpenAI-compatible endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cases import each

from cnllm import engine

from .corpus import PROVIDERS, Case, Exchange, cases
from .rebuild import asked, differences


def is_own(exchange: Exchange) -> bool:
    return exchange.accepted and exchange.sent is not None and exchange.folder in PROVIDERS


def is_nobodys(exchange: Exchange) -> bool:
    return exchange.accepted and exchange.sent is not None and exchange.folder not in PROVIDERS


REQUESTS = [*cases(is_own, generic=False), *cases(is_nobodys, own=False)]


@each("case", REQUESTS)
def test_a_request_that_was_taken_can_be_written_again(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    messages, options = asked(exchange, model)
    plan = engine.build_request(model, messages, stream=exchange.stream, **options)
    rows = differences(exchange, plan.body, replay_of(model))
    assert not rows, table(rows) + "\n" + "\n".join(str(note) for note in plan.notes)


@each("case", REQUESTS)
def test_writing_a_request_leaves_the_callers_messages_alone(case: Case) -> None:
    model, exchange = case.resolve(), case.exchange
    (messages, options), (untouched, same_options) = asked(exchange, model), asked(exchange, model)
    engine.build_request(model, messages, stream=exchange.stream, **options)
    assert (messages, options) == (untouched, same_options)


def replay_of(model: Any) -> str:
    """Which earlier turns of its own carry their reasoning back, as the registry has it."""
    values = [fact.value for fact in model.explain() if fact.flag == "reasoning.replay"]
    return str(values[-1]) if values and values[-1] else "never"


def table(rows: Iterable[tuple[str, Any, Any]]) -> str:
    """The differences, one under the other."""
    lines = [f"{'where':32} | {'recorded':60} | rebuilt"]
    for where, recorded, rebuilt in rows:
        lines.append(f"{where:32} | {shown(recorded):60} | {shown(rebuilt)}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:120]} … {text[-35:]}"
