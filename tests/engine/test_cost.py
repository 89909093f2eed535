"""What a reply costs: exact, unknown where anything that matters is unknown, never negative."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import ROUND_UP, Context, Decimal, FloatOperation, Inexact, localcontext
from pathlib import Path
from typing import Any

import pytest
from builtin import BUILTIN
from cases import each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cnllm import Cost, Message, Note, Registry, Reply, Usage, engine, web_search
from cnllm.batch.vendor.interface import discounted_price
from cnllm.engine.decode.cost import Facts, cost_of, cost_of_reply, is_off_peak
from cnllm.engine.decode.meter import meter_of
from cnllm.engine.encode.plan import Plan
from cnllm.errors import StreamCut
from cnllm.estimates.money import format_units, units_of
from cnllm.registry.flags import Flags, Price
from cnllm.registry.flags.reply import UsagePaths
from cnllm.types.note_codes import NoteCode
from cnllm.types.totals import sum_costs

from .conftest import Home
from .support import times

tokens = st.integers(0, 10_000_000)
rates = st.integers(0, 99_999).map(lambda n: n / 1000)


def amount(usage: Usage, price: Price) -> Decimal:
    cost = cost_of(usage, price)
    assert cost is not None
    assert cost.currency == "USD"
    return cost.amount


def priced(**rates: Any) -> Price:
    return Price(currency="USD", **rates)


def at(day: str, hour: str = "10:00:00", zone: str = "+08:00") -> float:
    return datetime.fromisoformat(f"{day}T{hour}{zone}").timestamp()


OFF_PEAK = {"peak": ["Mon-Fri 09:00-12:00"], "zone": "+08:00", "holidays": ["2026-10-01", "2026-10-02"], "input": 1.0}


@each(
    "day, rate",
    [
        ("2026-09-30", 2),  # a Wednesday
        ("2026-10-01", 1),  # a Thursday, and a holiday
        ("2026-10-03", 1),  # a Saturday
        ("2026-10-05", 2),
    ],
)
def test_a_holiday_has_no_peak_hours(day: str, rate: int) -> None:
    price = priced(input=2.0, output=0.0, off_peak=OFF_PEAK)
    cost = cost_of(Usage(1_000_000, 0), price, at(day))
    assert cost is not None
    assert cost.amount == rate


@each(
    "day, hour, known",
    [
        ("2026-12-31", "10:00:00", False),  # a Thursday of the year whose holidays are known, in peak hours
        ("2027-01-01", "10:00:00", None),  # a Friday
        ("2025-01-01", "10:00:00", None),
        ("2027-01-01", "13:00:00", True),
        ("2027-01-02", "10:00:00", True),  # a Saturday
    ],
)
def test_a_year_without_a_known_holiday_has_unknown_ones(day: str, hour: str, known: bool | None) -> None:
    price = priced(input=2.0, output=0.0, off_peak=OFF_PEAK)
    assert is_off_peak(price, at(day, hour)) is known
    cost = cost_of(Usage(1_000_000, 0), price, at(day, hour))
    assert cost is not None
    assert cost.complete is (known is not None)
    assert cost.at_most == (1 if known else 2)


@each(
    "time, rate",
    [
        (at("2026-12-31", "23:59:00", "+14:00"), 1),  # the last day everywhere
        (at("2026-12-31", "23:59:00", "-12:00"), None),  # still the last day somewhere
        (at("2027-01-01", "00:00:00", "-12:00"), 2),
    ],
)
def test_the_last_day_of_a_promotion_ends_at_an_unknown_time_without_a_zone(time: float, rate: int | None) -> None:
    price = priced(input=2.0, output=0.0, promotion={"until": "2026-12-31", "input": 1.0, "output": 0.0})
    cost = cost_of(Usage(1_000_000, 0), price, time)
    assert cost is not None
    assert cost.amount == (rate or 1)
    assert cost.at_most == (rate or 2)
    assert cost.missing == (() if rate else ("promotion",))


def test_a_holiday_is_one_in_the_zone_of_the_hours() -> None:
    price = priced(input=2.0, output=0.0, off_peak=OFF_PEAK)
    morning = cost_of(Usage(1_000_000, 0), price, at("2026-10-01", "01:30:00", "+00:00"))  # 09:30 there
    assert morning is not None
    assert morning.amount == 1
    evening = at("2026-09-30", "16:30:00", "+00:00")  # the first minutes of the holiday there
    assert is_off_peak(price, evening) is True
    assert is_off_peak(priced(input=2.0, off_peak=OFF_PEAK | {"holidays": []}), at("2026-10-01")) is False


PROMOTION = {"until": "2026-12-31", "zone": "+08:00", "input": 0.3, "cached": 0.006}


@each(
    "created, rate",
    [
        (at("2026-11-23"), "0.3"),
        (at("2026-12-31", "23:59:59"), "0.3"),
        (at("2027-01-01", "00:00:00"), "0.75"),
    ],
)
def test_a_promotion_holds_to_the_end_of_its_last_day(created: float | None, rate: str) -> None:
    cost = cost_of(Usage(1_000_000, 0), priced(input=0.75, output=1.0, promotion=PROMOTION), created)
    assert cost is not None
    assert cost.amount == Decimal(rate)


def test_a_promotion_may_hold_where_the_time_is_unknown() -> None:
    cost = cost_of(Usage(1_000_000, 0), priced(input=0.75, output=1.0, promotion=PROMOTION))
    assert cost is not None
    assert (cost.amount, cost.at_most, cost.missing) == (Decimal("0.3"), Decimal("0.75"), ("promotion",))


@each("created", [1, -5, 1_767_225_600_000, 1e300, float("inf")])
@each("price", [{"off_peak": OFF_PEAK}, {"promotion": {"until": "2026-12-31", "input": 1.0}}])
def test_a_time_at_which_no_reply_was_made_says_nothing(created: float, price: dict[str, Any]) -> None:
    table = priced(input=2.0, output=0.0, **price)
    cost = cost_of(Usage(input=1_000_000, output=1), table, created)
    assert cost is not None
    assert (cost.amount, cost.at_most, cost.complete) == (Decimal(1), Decimal(2), False)


def test_a_promotion_without_an_announced_end_holds() -> None:
    promotion = {"input": 0.3, "tiers": [{"above": 10, "input": 0.6}]}
    price = priced(input=0.75, output=1.0, tiers=[{"above": 10, "input": 1.5}], promotion=promotion)
    assert amount(Usage(10, 0), price) == Decimal("0.3") * 10 / 1_000_000
    assert amount(Usage(1_000_000, 0), price) == Decimal("0.6")


@times(100)
@given(tokens, tokens, rates, rates)
def test_input_and_output_cost_their_rates_to_the_last_digit(i: int, o: int, per_i: float, per_o: float) -> None:
    expected = (i * Decimal(str(per_i)) + o * Decimal(str(per_o))) / 1_000_000
    assert amount(Usage(i, o), priced(input=per_i, output=per_o)) == expected


@times(100)
@given(tokens, tokens, st.none() | tokens, st.none() | tokens, rates, rates, st.none() | rates, st.none() | rates)
def test_a_cost_is_never_negative_and_more_tokens_never_cost_less(
    i: int, o: int, cached: int | None, written: int | None, a: float, b: float, c: float | None, w: float | None
) -> None:
    price = priced(input=a, output=b, cached=c, cache_write=w)
    fewer, more = (cost_of(Usage(i, output, None, None, cached, written), price) for output in (o, o + 1))
    if fewer is None or more is None:
        assert None in (c, w)  # a price that is not known, and nothing else on the bill
        return
    assert more.amount >= fewer.amount >= 0


@times(60)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_cached_tokens_cost_their_own_rate_or_the_full_one(i: int, cached: int) -> None:
    usage = Usage(i + cached, 0, None, None, cached)
    assert amount(usage, priced(input=2.0, output=1.0, cached=0.5)) == (i * 2 + cached * Decimal("0.5")) / 1_000_000
    cost = cost_of(usage, priced(input=2.0, output=1.0))
    assert cost is not None
    assert (cost.amount, cost.at_most) == (Decimal(i) * 2 / 1_000_000, Decimal(i + cached) * 2 / 1_000_000)
    assert cost.missing == (("cached",) if cached else ())


def test_tokens_written_to_the_cache_cost_their_own_rate_where_there_is_one() -> None:
    usage = Usage(100, 0, None, None, 20, 30)
    assert amount(usage, priced(input=1.0, output=1.0, cached=0.0, cache_write=2.0)) * 1_000_000 == 50 + 60
    cost = cost_of(usage, priced(input=1.0, output=1.0, cached=0.0))
    assert cost is not None
    assert (cost.amount, cost.missing, cost.at_most) == (Decimal(50) / 1_000_000, ("cache_write",), None)


@each(
    "usage, price",
    lambda: [
        (Usage(), priced(input=1.0, output=1.0)),
        (Usage(1, 1), None),
        (Usage(1, 1), Price(input=1.0, output=1.0)),
    ],
)
def test_what_is_unknown_has_no_cost(usage: Usage, price: Price | None) -> None:
    assert cost_of(usage, price) is None


@each(
    "usage, price, missing",
    [
        (Usage(1), priced(input=1.0, output=1.0), "output"),
        (Usage(None, 1), priced(input=1.0, output=1.0), "input"),
        (Usage(1, 1), priced(input=1.0), "output"),
        (Usage(1, 1), priced(output=1.0), "input"),
    ],
)
def test_a_cost_names_what_it_leaves_out(usage: Usage, price: Price, missing: str) -> None:
    cost = cost_of(usage, price)
    assert cost is not None
    assert (cost.complete, cost.missing, cost.at_most) == (False, (missing,), None)
    assert cost.amount == Decimal(1) / 1_000_000


@each(
    "usage, at_most",
    [
        (Usage(5, 2, 10), 7 + 3),
        (Usage(5, 2, 7, reasoning=9), 7 + 9),
        (Usage(5, 2, 7, cached=6), 7 + 6),
        (Usage(5, 2, 7, reasoning=2, cached=5), None),
        (Usage(5, 2, 6), None),
    ],
)
def test_tokens_beyond_the_input_and_the_output_are_missing(usage: Usage, at_most: int | None) -> None:
    price = priced(input=1.0, output=1.0, cached=1.0)
    for cost in (cost_of(usage, price), plain_cost(usage, price)):
        assert cost is not None
        assert cost.amount * 1_000_000 == 7
        assert cost.missing == (() if at_most is None else ("uncounted",))
        assert cost.at_most is not None
        assert cost.at_most * 1_000_000 == (at_most or 7)


@each(
    "usage, at_most",
    [
        (Usage(100, 10, 120), 100 * 1 + 10 * 2 + 10 * 2),  # no longer than the first tier
        (Usage(100, 10, 1_110), (100 + 10) * 10 + 1_000 * 10),  # they may be input, which is long then
        (Usage(2_000, 10, 2_020), (2_000 + 10) * 10 + 10 * 10),
    ],
)
def test_tokens_beyond_the_input_may_make_it_long(usage: Usage, at_most: int) -> None:
    price = priced(input=1.0, output=2.0, tiers=[{"above": 1_000, "input": 10.0, "output": 10.0}])
    for cost in (cost_of(usage, price), plain_cost(usage, price)):
        assert cost is not None
        assert cost.missing == ("uncounted",)
        assert cost.at_most == Decimal(at_most) / 1_000_000


def test_writes_for_an_hour_beyond_all_writes_are_missing() -> None:
    price = priced(input=1.0, output=1.0, cache_write=2.0, cache_write_1h=4.0)
    for usage in (Usage(100, 10, cache_write_1h=50), Usage(100, 10, cache_write=20, cache_write_1h=50)):
        for cost in (cost_of(usage, price), plain_cost(usage, price)):
            assert cost is not None
            assert (cost.missing, cost.at_most) == (("cache_write_1h",), None)
    whole = cost_of(Usage(100, 10, cache_write=50, cache_write_1h=50), price)
    assert whole is not None
    assert whole.complete


def plain_cost(usage: Usage, price: Price, created: float | None = None) -> Cost | None:
    return metered(Flags(price=price), usage, created, {})


def metered(flags: Flags, usage: Usage, created: float | None, extra: dict[str, Any]) -> Cost | None:
    model: Any = None
    plan = Plan(method="POST", url="", headers={}, content=b"", notes=[], model=model, flags=flags, stream=False)
    reply = Reply(
        text="a",
        reasoning="",
        tool_calls=[],
        finish="stop",
        raw_finish=None,
        usage=usage,
        cost=None,
        model=None,
        id=None,
        notes=[],
        message=Message.assistant("a"),
        incomplete=[],
        extra=extra,
    )
    return meter_of(flags).cost(reply, plan, created, {})


@each("last, missing", [(True, ()), (False, ("output",))])
def test_counts_before_the_end_of_a_stream_are_not_all(home: Home, last: bool, missing: tuple[str, ...]) -> None:
    model = home(more="price = { currency = 'USD', input = 1.0, output = 1.0 }")
    chunks: list[Any] = [
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        *({"choices": [{"index": 0, "delta": {"content": "b"}}]} for _ in range(3)),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    if last:
        chunks[-2]["usage"] = {"prompt_tokens": 1, "completion_tokens": 4}
    body = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    cost = engine.parse_response(model, 200, {}, body).cost
    assert cost is not None
    assert cost.missing == missing


@each("ends, follows", [(True, False), (True, True), (False, False), (False, True)])
@each("output", [{"completion_tokens": 1}, {}])
def test_an_endpoint_that_has_not_seen_the_end_has_no_whole_bill(
    home: Home, ends: bool, follows: bool, output: dict[str, int]
) -> None:
    price = "price = { currency = 'USD', input = 1.0, output = 1.0 }"
    model = home(more=f"{price}\nusage.cost = {{ path = 'cost', currency = 'USD' }}")
    usage = {"prompt_tokens": 100, "cost": 0.5, **output}
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage}]
    chunks += [{"choices": [{"index": 0, "delta": {"content": "b"}}]}] if follows else []
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}] if ends else []
    body = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    if ends:
        cost = engine.parse_response(model, 200, {}, body).cost
    else:
        with pytest.raises(StreamCut) as caught:
            engine.parse_response(model, 200, {}, body)
        cost = caught.value.cost
    assert cost is not None
    assert (cost.by, cost.amount) == ("endpoint", Decimal("0.5"))
    assert cost.missing == (() if ends and not follows else ("output",))
    assert cost.at_most == (cost.amount if cost.complete else None)


OWN_TOOLS = {
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
    "web_search_call": "web_search",
}


@each("item", OWN_TOOLS)
@each("provider", ["openai/gpt-5.6-sol", "openai-compatible/m", "alibaba/qwen3.7-max", "alibaba-cn/qwen3.7-max"])
@each("streams", [True, False])
def test_a_tool_of_the_endpoint_without_a_known_fee_is_missing(
    tmp_path: Path, item: str, provider: str, streams: bool
) -> None:
    file = tmp_path / "providers.toml"
    file.write_text("""[models."openai-compatible/m"]\nprice = { currency = "USD", input = 1, output = 1 }\n""")
    model = Registry.load(file).resolve(provider, protocol="openai-responses", base_url="http://127.0.0.1:9/v1")
    text = {"type": "output_text", "text": "Yes.", "annotations": []}
    output = [
        {"type": item, "id": "x", "status": "completed", "result": "aGk="},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]},
    ]
    body: dict[str, Any] = {"id": "r", "object": "response", "status": "completed", "output": output}
    body["usage"] = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    data = json.dumps(body)
    if streams:
        data = f'data: {{"type": "response.completed", "response": {data}}}\n\n'
    cost = engine.parse_response(model, 200, {}, data.encode()).cost
    assert cost is not None
    if (item, model.provider) == ("web_search_call", "openai"):  # its fee is known
        assert cost.complete
        return
    assert (cost.missing, cost.at_most) == ((OWN_TOOLS[item],), None)
    body["output"] = output[1:]
    plain = engine.parse_response(model, 200, {}, json.dumps(body).encode()).cost
    assert plain is not None
    assert plain.complete


@each(
    "billed, ends, fees",
    [
        (None, True, 1),  # it does not say how many it charges
        (1, True, 1),  # opening a page is free
        (0, True, 0),
        (0, False, None),
    ],
)
def test_a_search_is_charged_as_often_as_the_endpoint_says(billed: int | None, ends: bool, fees: int | None) -> None:
    model = Registry.load().resolve("openai/gpt-5.6-sol", protocol="openai-responses")
    actions = [{"type": "search", "query": "q"}, {"type": "open_page", "url": "https://a"}, {"type": "find_in_page"}]
    output: list[Any] = [{"type": "web_search_call", "id": f"w{i}", "action": a} for i, a in enumerate(actions)]
    text = {"type": "output_text", "text": "Yes.", "annotations": []}
    output.append({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]})
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    response: dict[str, Any] = {"id": "r", "object": "response", "output": output, "usage": usage}
    if billed is not None:
        response["tool_usage"] = {"web_search": {"num_requests": billed}}
    status = "completed" if ends else "in_progress"
    events = [{"type": "response.output_item.done", "item": item} for item in output]
    events.append({"type": f"response.{status}", "response": {**response, "status": status}})
    parser = engine.StreamParser(model)
    parser.feed(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))
    if not ends:
        with pytest.raises(StreamCut) as cut:
            parser.close()
        assert cut.value.cost is not None
        assert "web_search" in cut.value.cost.missing
        return
    amount = Decimal("0.0006") + (fees or 0) * Decimal("0.01")
    expected = Cost(amount, "USD")
    if billed is None:
        expected = Cost(amount, "USD", missing=("web_search",), at_most=amount + Decimal("0.02"))
    body = json.dumps({**response, "status": status}).encode()
    assert [parser.close().cost, engine.parse_response(model, 200, {}, body).cost] == [expected, expected]


SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


@each("name", ["zai/glm-4.7", "alibaba-cn/MiniMax-M2.5", "deepseek/deepseek-v4-flash"])
@each(
    "blocks, searches, missing",
    [
        ([], None, ()),
        ([], 0, ()),
        ([], 3, ("web_search",)),
        ([SEARCHED], None, ("web_search",)),
    ],
)
def test_a_search_at_an_endpoint_without_a_known_fee_is_missing(
    name: str, blocks: list[Any], searches: int | None, missing: tuple[str, ...]
) -> None:
    model = Registry.load().resolve(name, protocol="anthropic-messages")
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 10}
    if searches is not None:
        usage["server_tool_use"] = {"web_search_requests": searches}
    content = [*blocks, {"type": "text", "text": "Yes."}]
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": usage}
    cost = engine.parse_response(model, 200, {}, json.dumps(body).encode()).cost
    assert cost is not None
    assert {*cost.missing} - {"hours"} == {*missing}


@each("searches, is_known", [(None, False), (0, True)])
def test_a_search_that_was_requested_and_is_not_shown_is_missing(searches: int | None, is_known: bool) -> None:
    model = Registry.load().resolve("deepseek/deepseek-flash", protocol="anthropic-messages")
    assert model.flags.web_search is not None
    assert model.flags.web_search.item is None
    plan = engine.build_request(model, "hi", tools=[web_search()])
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 10}
    if searches is not None:
        usage["server_tool_use"] = {"web_search_requests": searches}
    content = [{"type": "text", "text": "Yes."}]
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": usage}
    cost = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan).cost
    assert cost is not None
    assert ("web_search" not in cost.missing) is is_known


@each("start, end, fees", [(None, None, 0), (0, None, 0), (0, 2, 2), (1, None, 1)])
def test_a_search_of_a_reply_that_broke_off_is_missing(start: int | None, end: int | None, fees: int) -> None:
    model = Registry.load().resolve("anthropic/claude-opus-5")
    plan = engine.build_request(model, "hi", tools=[web_search()], stream=True)
    searches = [{} if count is None else {"server_tool_use": {"web_search_requests": count}} for count in (start, end)]
    usage = {"input_tokens": 10, "output_tokens": 1, **searches[0]}
    events = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Yes"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5, **searches[1]}},
    ]
    parser = engine.StreamParser(model, plan=plan)
    parser.feed(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))
    with pytest.raises(StreamCut) as cut:
        parser.close()
    assert cut.value.reply is not None
    cost = cut.value.reply.cost
    assert cost is not None
    assert "web_search" in cost.missing
    assert (cost.amount >= fees * Decimal("0.01"), cost.at_most) == (True, None)


@each("block, counter", [("bash_code_execution_tool_result", None), ("x", "code_execution_requests")])
def test_code_that_the_endpoint_runs_is_missing(block: str, counter: str | None) -> None:
    model = Registry.load().resolve("anthropic/claude-opus-5")
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 10}
    content: list[Any] = [{"type": "text", "text": "Yes."}]
    if counter is None:
        content.insert(0, {"type": block, "tool_use_id": "t", "content": {"type": "bash_code_execution_result"}})
    else:
        usage["server_tool_use"] = {counter: 2, "web_search_requests": 0}
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": usage}
    cost = engine.parse_response(model, 200, {}, json.dumps(body).encode()).cost
    assert cost is not None
    assert cost.missing in (("code_execution",), ("bash_code_execution",))


@each(
    "kind, output, more, missing",
    [
        ("message", 10, 0, ()),
        ("compaction", 3500, 180_000 * 5 + 3500 * 25, ()),
        ("compaction", "3500", 0, ("iterations",)),
        ("a new one", 10, 0, ("iterations",)),
    ],
)
@each("streams", [True, False])
def test_requests_that_the_totals_leave_out_are_added(
    kind: str, output: Any, more: int, missing: tuple[str, ...], streams: bool
) -> None:
    model = Registry.load().resolve("anthropic/claude-opus-5")
    last = {"type": "message", "input_tokens": 1000, "output_tokens": 10}
    usage = {"input_tokens": 1000, "output_tokens": 10}
    items = [{"type": kind, "input_tokens": 180_000, "output_tokens": output}, last]
    text = {"type": "text", "text": "Yes."}
    message = {"type": "message", "role": "assistant", "content": [text], "stop_reason": "end_turn"}
    data = json.dumps({**message, "usage": {**usage, "iterations": items}})
    if streams:
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": text},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 10, "iterations": items},
            },
            {"type": "message_stop"},
        ]
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    reply = engine.parse_response(model, 200, {}, data.encode())
    assert reply.usage.input == 1000
    assert reply.cost is not None
    assert reply.cost.amount * 1_000_000 == 1000 * 5 + 10 * 25 + more
    assert reply.cost.missing == missing


@each(
    "lengths, rate",
    [
        ((60_000, 60_000), 0.1),  # together they are above the border, and none of them is
        ((20_000, 100_000), 0.1),
        ((60_000, 50_000), 0.5),  # not those of the totals, which then decide
    ],
)
def test_the_length_of_each_request_decides_about_its_price(lengths: tuple[int, int], rate: float) -> None:
    model = BUILTIN.resolve("anthropic/claude-haiku-5-5")
    items = [{"type": "message", "input_tokens": length, "output_tokens": 50} for length in lengths]
    usage = {"input_tokens": 120_000, "output_tokens": 100, "iterations": items}
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    body = json.dumps({**message, "stop_reason": "end_turn", "usage": usage}).encode()
    cost = engine.parse_response(model, 200, {}, body).cost
    assert cost is not None
    assert cost.complete
    assert cost.amount * 1_000_000 == (120_000 + 100 * 5) * Decimal(str(rate))


def test_requests_of_both_sides_of_a_border_have_their_own_prices() -> None:
    model = BUILTIN.resolve("anthropic/claude-haiku-5-5")
    items = [
        {"type": "message", "input_tokens": 10, "cache_read_input_tokens": read, "output_tokens": 50}
        for read in (40_000, 140_000)
    ]
    usage = {"input_tokens": 20, "cache_read_input_tokens": 180_000, "output_tokens": 100, "iterations": items}
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    body = json.dumps({**message, "stop_reason": "end_turn", "usage": usage}).encode()
    cost = engine.parse_response(model, 200, {}, body).cost
    assert cost is not None
    low, high = 10 + 40_000 * Decimal("0.1") + 50 * 5, (10 + 140_000 * Decimal("0.1") + 50 * 5) * 5
    assert cost.amount * 1_000_000 == (low + high) * Decimal("0.1")


@each(
    "date, created, rate",
    [
        ("Mon, 23 Nov 2026 01:00:00 GMT", None, 2),  # 09:00 in Beijing
        ("Mon, 23 Nov 2026 00:59:59 GMT", None, 1),
        ("Mon, 23 Nov 2026 01:00:00 GMT", at("2026-11-23", "08:00:00"), 1),  # the body has priority
        ("Mon, 23 Nov", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_head_of_a_response_says_its_time_where_the_body_does_not(
    home: Home, date: str | None, created: float | None, rate: int | None, stream: bool
) -> None:
    """As on the wires of Anthropic and Gemini, whose bodies have no time."""
    hours = 'off_peak = { peak = ["Mon-Fri 09:00-12:00"], zone = "+08:00", input = 1.0, output = 1.0 }'
    model = home(more=f'price = {{ currency = "USD", input = 2.0, output = 2.0, {hours} }}')
    head = {} if created is None else {"created": created}
    message = {"role": "assistant", "content": "a"}
    usage = {"prompt_tokens": 10, "completion_tokens": 10}
    choice = {"index": 0, "delta" if stream else "message": message, "finish_reason": "stop"}
    body = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
    headers = {} if date is None else {"Date": date}
    plan = engine.build_request(model, "Hi", stream=stream)
    content = b"data: " + body + b"\n\ndata: [DONE]\n\n" if stream else body
    cost = engine.parse_response(model, 200, headers, content, plan=plan).cost
    assert cost is not None
    assert (cost.amount, cost.missing) == (Decimal(20 * (rate or 1)) / 1_000_000, () if rate else ("hours",))


@each("peak", ["00:00-09:00", "08:00-24:00", "Mon 00:00-24:00"])
def test_hours_may_begin_and_end_at_midnight(peak: str) -> None:
    hours = {"peak": [peak], "zone": "+08:00", "input": 1.0, "output": 1.0}
    cost = cost_of(
        Usage(input=10, output=10), priced(input=2.0, output=2.0, off_peak=hours), at("2026-03-02", "08:30:00")
    )
    assert cost is not None
    assert (cost.amount, cost.complete) == (Decimal(40) / 1_000_000, True)


@each("peak", ["Xyz 09:00-12:00", "Mon-Xyz 09:00-12:00", "nine", "12:00-09:00", "09:00-25:00"])
def test_hours_that_nobody_can_read_make_the_cost_a_lower_bound(peak: str) -> None:
    hours = {"peak": [peak], "zone": "+08:00", "input": 1.0, "output": 1.0}
    cost = cost_of(Usage(input=10, output=10), priced(input=2.0, output=2.0, off_peak=hours), at("2026-03-02"))
    assert cost is not None
    assert (cost.amount, cost.at_most) == (Decimal(20) / 1_000_000, Decimal(40) / 1_000_000)
    assert cost.missing == ("hours",)


@each(
    "rule, counts, fees, missing",
    [
        ("fee = 0.5", [0], "0", ()),
        ("fee = 0.5, per = 'request'", [0], "0", ()),
        ("fee = 0.5", [3], "1.5", ()),
        ("fee = 0.5", [2, 0], "1", ()),
        ("fee = 0.5, per = 'request'", [3], "0.5", ()),
        ("fee = 0.5", ["many"], "0", ("search",)),
        ("fee = 0", [3], "0", ()),
        ("fee = 0", ["many"], "0", ()),
        ("fee = 0.5", [None], "0", ()),
    ],
)
def test_calls_that_the_endpoint_counts_are_paid(
    home: Home, rule: str, counts: list[Any], fees: str, missing: tuple[str, ...]
) -> None:
    fee = f"per_call.search = {{ {rule}, at = ['usage.searches'] }}"
    model = home(more=f"price = {{ currency = 'USD', input = 1.0, output = 1.0, {fee} }}")
    tokens = {"prompt_tokens": 100, "completion_tokens": 10}
    said = {"role": "assistant", "content": "Hi"}
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": said, "finish_reason": "stop"}]}]
    chunks += [{"choices": [], "usage": {**tokens, "searches": count}} for count in counts]
    data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    cost = engine.parse_response(model, 200, {}, data.encode()).cost
    assert cost is not None
    assert (cost.amount, cost.missing) == (Decimal(fees) + Decimal(110) / 1_000_000, missing)


@each("code", ["again-whole", "correction-failed", "step-again"])
def test_an_assumed_price_says_nothing_of_requests_without_usage(home: Home, code: NoteCode) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}
    reply = engine.parse_response(home(), 200, {}, json.dumps(body).encode())
    price = priced(input=1.0, output=1.0)
    alone = cost_of_reply(reply, price)
    assert alone is not None
    assert alone.amount * 1_000_000 == 12
    assert cost_of_reply(replace(reply, notes=[*reply.notes, Note(code, "x", "y", "z")]), price) is None


STALE: list[Any] = [
    {},
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1},
    {"latency_ms": 3},
    {"completion_tokens": None},
]


@each("last", STALE)
@each("is_with_text", [True, False])
def test_counts_that_say_nothing_of_the_output_count_no_text(home: Home, last: Any, is_with_text: bool) -> None:
    model = home(more="price = { currency = 'USD', input = 1.0, output = 1.0 }")
    chunks: list[Any] = [
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"choices": [{"index": 0, "delta": {"content": "b"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": last},
    ]
    if is_with_text:
        chunks[1]["usage"] = last
    body = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    reply = engine.parse_response(model, 200, {}, body)
    assert reply.usage.output == 1
    assert reply.cost is not None
    assert reply.cost.missing == ("output",)


def test_the_bound_of_a_cut_reply_counts_all_the_replies_that_were_requested(home: Home) -> None:
    model = home(more="price = { currency = 'USD', input = 2.0, output = 8.0 }")
    options: dict[str, Any] = {"stream": True, "max_tokens": 100, "on_unsupported": "send"}
    plan = engine.build_request(model, "Hi", extra_body={"n": 3}, **options)
    parser = engine.StreamParser(model, plan=plan)
    parser.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Yes"}}],"usage":{"prompt_tokens":10}}\n\n')
    with pytest.raises(StreamCut) as caught:
        parser.close()
    assert caught.value.cost is not None
    assert caught.value.cost.at_most == Decimal(10 * 2 + 3 * 100 * 8) / 1_000_000


def test_free_is_not_unknown() -> None:
    assert amount(Usage(5, 5), priced(input=0.0, output=0.0)) == 0


def test_the_highest_tier_that_is_passed_decides_in_whatever_order_they_stand() -> None:
    tiers = [{"above": 1000.0, "input": 3.0, "output": 3.0}, {"above": 100.0, "input": 2.0}]
    price = priced(input=1.0, output=1.0, tiers=tiers)
    assert [amount(Usage(n, 0), price) * 1_000_000 for n in (100, 101, 1000, 1001)] == [100, 202, 2000, 3003]
    assert amount(Usage(101, 10), price) * 1_000_000 == 202 + 10


SHORT = priced(
    input=3.0,
    output=14.0,
    tiers=[{"output_below": 200, "input": 2.0, "output": 8.0}, {"above": 1000, "input": 4.0, "output": 16.0}],
)


@each(
    "usage, units",
    [
        (Usage(1000, 199), 2 * 1000 + 8 * 199),
        (Usage(1000, 200), 3 * 1000 + 14 * 200),
        (Usage(1001, 199), 4 * 1001 + 16 * 199),
    ],
)
def test_a_short_reply_has_its_own_price_where_the_input_is_short(usage: Usage, units: int) -> None:
    assert amount(usage, SHORT) * 1_000_000 == units
    assert plain_cost(usage, SHORT) in (None, cost_of(usage, SHORT))


@each("usage, low, most", [(Usage(100, 10), 2 * 100 + 8 * 10, 3 * 100 + 14 * 500), (Usage(100), 200, 300 + 14 * 500)])
def test_a_reply_whose_length_is_unknown_may_have_either_price(usage: Usage, low: int, most: int) -> None:
    cost = cost_of(usage, SHORT, None, Facts(is_cut=True, most_output=500))
    assert cost is not None
    assert not cost.complete
    assert cost.amount * 1_000_000 == low
    assert cost.at_most == Decimal(most) / 1_000_000


def test_tokens_beyond_the_counts_may_make_a_reply_long() -> None:
    cost = cost_of(Usage(100, 150, 300), SHORT)
    assert cost is not None
    assert not cost.complete
    assert cost.amount * 1_000_000 == 2 * 100 + 8 * 150
    assert cost.at_most == Decimal(3 * 100 + 14 * 150 + 14 * 50) / 1_000_000


def test_a_discount_is_none_on_the_length_of_a_reply() -> None:
    found = discounted_price(SHORT, 0.5)
    assert amount(Usage(1000, 199), found) * 2 == amount(Usage(1000, 199), SHORT)
    assert amount(Usage(1000, 200), found) * 2 == amount(Usage(1000, 200), SHORT)


@each(
    "model, usage, amount",
    [
        ("zhipuai/glm-4.7", Usage(31_999, 199), 2 * 31_999 + 8 * 199),
        ("zhipuai/glm-4.7", Usage(31_999, 200), 3 * 31_999 + 14 * 200),
        ("zhipuai/glm-4.7", Usage(32_000, 199), 4 * 32_000 + 16 * 199),
        ("zhipuai/glm-5.1", Usage(32_000, 1), 8 * 32_000 + 28),
        ("volcengine/doubao-seed-1-8-251228", Usage(32_000, 200), Decimal("0.8") * 32_000 + 2 * 200),
        ("volcengine/doubao-seed-1-8-251228", Usage(32_000, 201), Decimal("0.8") * 32_000 + 8 * 201),
        ("volcengine/doubao-seed-1-8-251228", Usage(32_001, 200), Decimal("1.2") * 32_001 + 16 * 200),
    ],
)
def test_the_ends_of_lengths_are_those_of_the_vendors_list(model: str, usage: Usage, amount: Decimal) -> None:
    cost = cost_of(usage, BUILTIN.resolve(model).flags.price)
    assert cost is not None
    assert cost.complete
    assert cost.amount * 1_000_000 == amount


def test_a_rate_that_binary_fractions_cannot_say_is_exact() -> None:
    assert amount(Usage(1_000_000, 0), priced(input=0.1, output=0.2)) == Decimal("0.1")


# ── the quick way of a meter ─────────────────────────────────────────────────
@times(200)
@given(st.integers(1, 500_000), st.integers(1, 10_000), st.none() | tokens, rates, st.none() | rates, st.booleans())
def test_a_meter_and_the_sum_of_the_prices_agree(
    input: int, output: int, cached: int | None, rate: float, cached_rate: float | None, has_tiers: bool
) -> None:
    tiers = [{"above": 200_000, "input": rate * 2, "output": rate * 4}, {"above": 32_000, "input": rate + 1}]
    price = priced(input=rate, output=rate * 3, cached=cached_rate, tiers=tiers if has_tiers else None)
    usage = Usage(input, output, None, cached)
    assert plain_cost(usage, price) == cost_of(usage, price)


CONDITIONS = (
    {"peak": ["Mon-Fri 09:00-12:00", "18:30-24:00"], "zone": "+08:00", "holidays": ["2026-10-01"], "input": 1.0},
    {"peak": ["Sat 00:00-00:01"], "zone": "-05:30", "output": 2.5, "tiers": [{"above": 70_000, "input": 9.0}]},
    {"peak": ["at noon"], "zone": "+08:00", "input": 1.0},
    {"peak": ["Mon-Sun 06:00-18:00"], "zone": "+00:00", "input": 1.0, "output": 2.0, "cached": 0.2},
)
PROMOTIONS = ({"until": "2026-10-01", "zone": "+08:00", "input": 0.5, "output": 0.25}, {"cached": 0.1, "input": 2.0})


@times(300)
@given(
    st.sampled_from((None, *CONDITIONS)),
    st.sampled_from((None, *PROMOTIONS)),
    st.none() | st.floats(at("2026-09-30"), at("2026-10-04")),
    st.integers(1, 100_000),
    st.none() | st.integers(0, 1000),
    st.booleans(),
)
def test_a_meter_and_the_sum_of_the_prices_agree_at_any_time(
    hours: Any, promotion: Any, created: float | None, input: int, cached: int | None, has_tiers: bool
) -> None:
    tiers = [{"above": 50_000, "input": 7.0, "output": 8.0, "cached": 0.5}] if has_tiers else None
    price = priced(input=3.0, output=4.0, cached=0.3, tiers=tiers, off_peak=hours, promotion=promotion)
    usage = Usage(input, 100, None, cached)
    for moment in (created, None if created is None else created // 60 * 60):
        assert plain_cost(usage, price, moment) == cost_of(usage, price, moment)


@each(
    "counts, beside, tier",
    [
        ({}, {}, None),
        ({"service_tier": "default"}, {}, None),
        (
            {"service_tier": "flex"},
            {"service_tier": "default"},
            "flex",
        ),  # the counts go first
        ({}, {"service_tier": "Flex"}, "flex"),
        ({}, {"tier": {"name": "flex"}}, "flex"),
        ({"tier": {"name": "flex"}}, {}, "flex"),
        ({}, {"service_tier": "Default"}, None),
    ],
)
def test_a_service_tier_counts_wherever_it_stands(counts: Any, beside: Any, tier: str | None) -> None:
    flags = Flags(
        price=priced(input=2.0, output=4.0, service={"flex": {"input": 1.0, "output": 2.0}}),
        usage=UsagePaths(service=["service_tier", "tier.name"], standard=["default"]),
    )
    extra = {**beside, **({"usage": counts} if counts else {})}
    found = metered(flags, Usage(1_000_000, 1_000_000), None, extra)
    assert found is not None
    assert found.amount == (3 if tier else 6)


def test_a_word_without_a_factor_leaves_the_cost_open(home: Home) -> None:
    price = "price = { currency = 'USD', input = 1.0, output = 0.01, factors = { place = { near = 2.0 } } }"
    model = home(more=price)
    once = Decimal("1.00000001")
    for place, amount in (("near", 2 * once), ("far", None), (None, once)):
        usage = {"prompt_tokens": 1_000_000, "completion_tokens": 1, **({"place": place} if place else {})}
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        cost = engine.parse_response(model, 200, {}, body).cost
        assert (None if cost is None else cost.amount) == amount, place


@each("per, amount", [("", "0.06"), ('fee_per = "request"', "0.03")])
def test_the_fee_of_a_search_is_for_each_or_for_the_request(home: Home, per: str, amount: str) -> None:
    price = "price = { currency = 'USD', input = 0.0, output = 0.0 }"
    search = f'[models."home/m".web_search]\nset.find = true\nfee = 0.03\nuses = ["usage.searches"]\n{per}'
    model = home(more=f"{price}\n{search}")
    plan = engine.build_request(model, "hi", tools=[web_search()])
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "searches": 2}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    cost = engine.parse_response(model, 200, {}, body, plan=plan).cost
    assert cost is not None
    assert cost.amount == Decimal(amount)


@each(
    "rates, expected, missing",
    [
        ("output = 2.0", "1.2", ("output_audio",)),
        ("output = 0", "1", ()),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_sound_of_an_answer_is_charged_at_no_price_of_text(
    home: Home, rates: str, expected: str, missing: tuple[str, ...], stream: bool
) -> None:
    details = {"audio_tokens": 400_000}
    counts = {"prompt_tokens": 1_000_000, "completion_tokens": 500_000, "completion_tokens_details": details}
    key = "delta" if stream else "message"
    choice = {"index": 0, key: {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": counts}).encode()
    model = home(more=f'price = {{ currency = "USD", input = 1.0, {rates} }}')
    parser = engine.StreamParser(model)
    parser.feed(b"data: %b\n\ndata: [DONE]\n\n" % body if stream else body)
    parser.end()
    cost = parser.close().cost
    assert cost is not None
    assert (cost.amount, cost.missing, cost.at_most) == (
        Decimal(expected),
        missing,
        None if missing else Decimal(expected),
    )


@each("rate, expected", [("", "5.3"), (", cached_audio = 3.0", "4.65")])
def test_sound_has_its_own_price_also_where_it_was_cached(home: Home, rate: str, expected: str) -> None:
    flags = 'usage.input_audio = ["prompt_tokens_details.audio_tokens"]\nusage.cached_audio = ["heard"]'
    price = f'price = {{ currency = "USD", input = 1.0, cached = 0.5, output = 0.0, input_audio = 10.0{rate} }}'
    details = {"cached_tokens": 400_000, "audio_tokens": 500_000}
    counts = {"prompt_tokens": 1_000_000, "completion_tokens": 3, "prompt_tokens_details": details, "heard": 100_000}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": counts}).encode()
    model = home(flags, more=price)
    reply = engine.parse_response(model, 200, {}, body, plan=engine.build_request(model, "Hi"))
    assert reply.cost == Cost(Decimal(expected), "USD")


@each(
    "rates, marked, details, amount, most",
    [
        ("cached = 0.2, cached_by_mark = 0.1", False, {}, "0.68", None),
        ("cached = 0.2, cached_by_mark = 0.1", False, {"kind": "kept"}, "0.64", None),
        ("cached = 0.2, cached_by_mark = 0.1", False, {"kind": "other"}, "0.68", None),
        ("cached = 0.2, cached_by_mark = 0.1", True, {"kind": "kept"}, "0.64", None),
        ("cached = 0.2, cached_by_mark = 0.1", True, {"written": 1000}, "0.640001", None),
        ("cached = 0.2, cached_by_mark = 0.1", True, {}, "0.64", "0.68"),
        ("cached = 0.1, cached_by_mark = 0.2", True, {}, "0.64", "0.68"),
        ("cached_by_mark = 0.1", False, {}, "0.6", "1"),
        ("cached_by_mark = 0.1", True, {}, "0.6", "1"),
        ("cached = 0.2", True, {}, "0.68", None),
        ("cached = 0.2", True, {"kind": "kept"}, "0.68", None),
    ],
)
def test_tokens_from_a_marked_cache_have_their_own_price(
    home: Home, rates: str, marked: bool, details: dict[str, Any], amount: str, most: str | None
) -> None:
    flags = (
        'messages.fields = ["cache_control"]\nusage.cache_mark.prompt_tokens_details.kind = "kept"\n'
        'usage.cache_write = ["prompt_tokens_details.written"]'
    )
    price = f'price = {{ currency = "USD", input = 1.0, output = 0.0, cache_write = 1.001, {rates} }}'
    model = home(flags, more=price)
    text = {"type": "text", "text": "Hi", **({"cache_control": {"type": "ephemeral"}} if marked else {})}
    plan = engine.build_request(model, [{"role": "user", "content": [text]}])
    assert (b'"cache_control"' in plan.content) is marked
    counts: dict[str, Any] = {"prompt_tokens": 1_000_000, "completion_tokens": 3}
    counts |= {"prompt_tokens_details": {"cached_tokens": 400_000, **details}}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": counts}).encode()
    reply = engine.parse_response(model, 200, {}, body, plan=plan)
    assert reply.cost is not None
    assert (reply.cost.amount, reply.cost.at_most) == (Decimal(amount), Decimal(most or amount))
    assert reply.cost.missing == (() if most is None else ("cached",))


@each(
    "ttl, kept, missing, most",
    [("5m", None, (), 6250), ("1h", None, ("cache_write_1h",), 10_000), ("1h", 0, (), 6250)],
)
def test_tokens_written_for_an_unknown_time_may_be_kept_for_an_hour(
    home: Home, ttl: str, kept: int | None, missing: tuple[str, ...], most: int
) -> None:
    """A relay may report what was written, and not for how long."""
    flags = (
        'messages.fields = ["cache_control"]\nusage.cache_write = ["prompt_tokens_details.written"]\n'
        'usage.cache_write_1h = ["prompt_tokens_details.for_an_hour"]'
    )
    price = 'price = { currency = "USD", input = 5, output = 0, cache_write = 6.25, cache_write_1h = 10 }'
    model = home(flags, more=price)
    text = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": ttl}}
    plan = engine.build_request(model, [{"role": "user", "content": [text]}])
    assert f'"{ttl}"'.encode() in plan.content
    counts: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 3}
    counts["prompt_tokens_details"] = {"written": 1000, **({} if kept is None else {"for_an_hour": kept})}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": counts}
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)
    assert reply.cost is not None
    figures = (reply.cost.amount, reply.cost.missing, reply.cost.at_most)
    assert figures == (Decimal(6250) / 1_000_000, missing, Decimal(most) / 1_000_000)


@each(
    "value, amount",
    [
        (0.5, "0.5"),
        ("0.25", "0.25"),
        (0, "0"),
        (-0.0, "0"),
        (1e-7, "1e-7"),
        ("123456789012.12345678901234567890123456789", "123456789012.12345678901234567890123456789"),
        *((bad, None) for bad in (-1, "-0.5", "NaN", "Infinity", "-Infinity", "five", True, None, [1])),
        *((bad, None) for bad in ("1e9999999", "1e-9999999", 1e308, 10**30, "9" * 60)),
    ],
)
def test_a_bill_of_the_endpoint_counts_if_it_is_an_amount(home: Home, value: Any, amount: str | None) -> None:
    model = home('usage.cost = { path = "cost", currency = "USD" }')
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": value}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}
    reply = engine.parse_response(model, 200, {}, json.dumps({"choices": [choice], "usage": usage}).encode())
    assert reply.cost == (None if amount is None else Cost(Decimal(amount), "USD", by="endpoint"))


@each("settings", [{"prec": 4}, {"prec": 4, "rounding": ROUND_UP}, {"traps": [Inexact, FloatOperation]}, {"Emax": 1}])
def test_the_decimal_context_of_the_program_changes_no_amount(home: Home, settings: dict[str, Any]) -> None:
    price = "price = { currency = 'USD', input = 2.123457 }"
    model = home('usage.cost = { path = "cost", currency = "USD" }', more=price)
    usage = {"prompt_tokens": 123457, "completion_tokens": 1, "total_tokens": 123458, "cost": 12.3456789}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    expected = engine.parse_response(model, 200, {}, body).cost
    assert expected is not None
    with localcontext(Context(**settings)):
        reply = engine.parse_response(model, 200, {}, body)
        both, units = sum_costs([reply.cost, reply.cost]), units_of(Decimal("12345.678901234567"))
        text = format_units(units)
    assert reply.cost == expected
    assert both is not None
    assert (both.amount, both.by) == (2 * expected.amount, "endpoint")
    assert text == "12345.678901235"
