"""Each bill is the same figure whole and streamed, with usage in every place, for budgets, caps and the logs."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import msgspec
import pytest
from cases import each

from cnllm import Cost, Message, Model, Registry, Reply
from cnllm.batch.pricing import RequestPrice
from cnllm.engine import StreamParser, parse_response
from cnllm.errors import StreamCut
from cnllm.estimates.money import units_of
from cnllm.estimates.worst_case import WorstCase, settled_cost
from cnllm.store import Store

from .bills import BILLS
from .replies import Made
from .server import sse

MILLION = Decimal(1_000_000)
Figure = tuple[Decimal, tuple[str, ...], Decimal | None]
"""An amount, what it leaves out, and the most that the cost can be."""


@cache
def registry() -> Registry:
    return Registry.load()


@cache
def model_of(name: str, protocol: str) -> Model:
    return registry().resolve(name, protocol=protocol)


def worth(arithmetic: str) -> Decimal:
    """Return the value of a row's arithmetic, without binary fractions."""
    exact = re.sub(r"[\d._]+", lambda number: f"Decimal('{number[0].replace('_', '')}')", arithmetic)
    return Decimal(eval(exact, {"Decimal": Decimal})) / MILLION


def streamed(model: Model, data: bytes) -> Reply:
    parser = StreamParser(model)
    for begin in range(0, len(data), 97):
        parser.feed(data[begin : begin + 97])
    return parser.close()


def replies(model: Model, made: Made) -> dict[str, Reply]:
    """Return the reply as it may come: whole, and streamed with its usage in several places."""
    *chunks, last, zero = *made.chunks, made.last, made.zero
    out = {
        "whole": parse_response(model, 200, {}, msgspec.json.encode(made.body)),
        "streamed": streamed(model, sse(made, *chunks, last)),
        "usage twice": streamed(model, sse(made, *chunks, last, last)),
        "zeros first": streamed(model, sse(made, chunks[0], zero, *chunks[1:], last)),
    }
    if made.protocol != "openai-responses":  # nothing follows the end of a response
        out["zeros last"] = streamed(model, sse(made, *chunks, last, zero))
    if made.protocol == "openai-chat":
        every = [{**chunk, "usage": last["usage"]} for chunk in chunks]
        out["usage in each chunk"] = streamed(model, sse(made, *every, last))
    return out


def expected(arithmetic: str, missing: str, most: str) -> Figure | None:
    if missing == "all":
        return None
    amount = worth(arithmetic)
    return amount, (missing,) if missing else (), amount if not missing else worth(most) if most else None


def facts(cost: Cost | None) -> Figure | None:
    return None if cost is None else (cost.amount, cost.missing, cost.at_most)


@each("name, made, arithmetic, missing, most", BILLS)
def test_a_bill_is_the_same_figure_everywhere(name: str, made: Made, arithmetic: str, missing: str, most: str) -> None:
    model, figure = model_of(name, made.protocol), expected(arithmetic, missing, most)
    for way, reply in replies(model, made).items():
        assert facts(reply.cost) == figure, way
        currency = reply.cost.currency if reply.cost is not None else "USD"
        charged = settled_cost(WorstCase(name, None, None, currency), reply)
        assert charged == (None if figure is None or figure[2] is None else units_of(figure[2])), way
        assert RequestPrice(currency, None).paid(reply, None) == charged, way


def test_the_logs_have_the_same_sums(tmp_path: Path) -> None:
    sums: dict[str, list[tuple[Decimal, tuple[str, ...]]]] = {}
    with Store.open(tmp_path / "logs.db") as store:
        conversation = store.conversation()
        for name, made, arithmetic, missing, most in BILLS:
            if (figure := expected(arithmetic, missing, most)) is None:
                continue
            reply = parse_response(model_of(name, made.protocol), 200, {}, msgspec.json.encode(made.body))
            conversation.turn([Message.user("Hi")], model=name).finish(reply)
            sums.setdefault(name, []).append(figure[:2])
        report = store.costs("model")
    for row in report.rows:
        figures = sums[row.label]
        assert [cost.amount for cost in row.cost] == [sum((amount for amount, _ in figures), Decimal(0))], row.label
        assert {name for cost in row.cost for name in cost.missing} == {name for _, names in figures for name in names}
        assert row.exact == (not any(names for _, names in figures))


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic-messages", "gemini"])
def test_the_cost_of_a_cut_stream_is_a_lower_bound(protocol: str) -> None:
    for name, made, *_ in BILLS:
        if made.protocol != protocol:
            continue
        with pytest.raises(StreamCut) as caught:
            streamed(model_of(name, protocol), sse(made, made.chunks[0], ends=False))
        reply = caught.value.reply
        assert reply is not None
        assert reply.cost is None or "output" in reply.cost.missing, name
        if protocol == "anthropic-messages":
            assert reply.usage.output is None, "the start says nothing about the output"


def test_nothing_but_zeros_is_no_report() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    choice = {"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}
    body = msgspec.json.encode({"choices": [choice], "usage": zeros})
    reply = parse_response(model_of("zai/glm-4.7", "openai-chat"), 200, {}, body)
    assert (reply.usage.input, reply.usage.output, reply.cost) == (0, 0, None)


def test_the_bill_of_the_endpoint_keeps_the_figure_of_the_registry() -> None:
    bill = next(made for name, made, *_ in BILLS if name == "xai/grok-4.5" and "cost_in_usd_ticks" in str(made.body))
    reply = parse_response(model_of("xai/grok-4.5", bill.protocol), 200, {}, msgspec.json.encode(bill.body))
    assert reply.cost is not None
    assert (reply.cost.by, reply.cost.computed) == ("endpoint", worth("100*2 + 20*6"))


def test_a_certain_amount_beyond_the_reservation_is_charged() -> None:
    (made,) = [
        made for name, made, *_ in BILLS if name == "perplexity/sonar-pro" and "total_cost" not in str(made.body)
    ]
    reply = parse_response(model_of("perplexity/sonar-pro", made.protocol), 200, {}, msgspec.json.encode(made.body))
    assert reply.cost is not None
    assert reply.cost.at_most is None
    amount = units_of(reply.cost.amount)
    charges = [settled_cost(WorstCase("m", 1, 1, "USD", worst, worst), reply) for worst in (amount - 1, amount)]
    assert charges == [amount, None]


def test_there_are_enough_rows() -> None:
    assert len(BILLS) >= 200
