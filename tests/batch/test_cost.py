"""A cap holds: what is on its way is reserved at its worst case, earlier runs count, unknown is not free."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cnllm import Limits
from cnllm.cli.output.batch_view import report_lines
from cnllm.errors import CnllmError
from cnllm.registry.flags import Price

from .stub import Answer, Stub, error, reply, stub
from .support import PRICE, lines, prompts, rows, run

ANSWER = Decimal(10 * 2 + 5 * 8) / 1_000_000  # what a row costs at the stub, in CNY
EXPENSIVE = Decimal(10 * 2 + 1000 * 8) / 1_000_000  # what one of the longest replies costs


def long(prompt: str, server: Stub) -> Answer:
    return 200, reply("long", completion_tokens=1000, total_tokens=1010), {}


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("rule", [None, long])
def test_a_cap_is_never_exceeded(tmp_path: Path, concurrency: int, rule: object) -> None:
    source = rows(tmp_path, prompts(100))
    cap = Decimal("0.15")
    each = ANSWER if rule is None else EXPENSIVE
    with stub(latency=0.002, rule=rule) as server:  # type: ignore[arg-type]
        report = run(server, tmp_path, source, flags=PRICE, max_cost=cap, currency="CNY", concurrency=concurrency)
        assert report.cost == each * len(server.log) <= cap
        if rule is None:
            assert (report.done, report.stopped) == (100, None)
            return
        assert report.done == len(server.log) < 20
        assert report.cost > cap - 2 * EXPENSIVE, "more would have fitted"
        assert (report.stop_kind, report.failed) == ("cap", 0)
        again = run(server, tmp_path, source, flags=PRICE, max_cost=cap * 2, currency="CNY")
        assert again.cost is not None
        assert cap < again.cost <= cap * 2
        assert again.done == len(server.log)


def test_a_cap_that_leaves_no_room_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    with stub() as server:
        with pytest.raises(CnllmError, match="leaves no room for a request"):
            run(server, tmp_path, prompts(3), flags=PRICE, max_cost="0.001", currency="CNY")
        assert server.log == []
    assert not (tmp_path / "out.jsonl").exists()


def test_a_cut_reply_that_the_caller_keeps_is_no_answer(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        half = reply(prompt)
        half["choices"][0]["finish_reason"] = "half"
        return 200, half, {}

    with stub(rule=rule) as server:
        settings: dict[str, Any] = {"flags": 'finish = { half = "pending" }', "if_cut": "keep", "attempts": 1}
        assert run(server, tmp_path, prompts(1), **settings).failed == 1
        [line] = lines(tmp_path)
        assert (line["reply"]["text"], line["error"]["type"], line["error"]["retryable"]) == ("p0", "StreamCut", True)
        server.rule = None
        assert run(server, tmp_path, prompts(1), **settings).done == 1, "the next run asks it again"


def test_a_reply_that_paused_is_not_whole(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer:
        half = reply(prompt)
        half["choices"][0]["finish_reason"] = "pause_turn"
        return 200, half, {}

    with stub(rule=rule) as server:
        settings: dict[str, Any] = {"flags": 'finish = { pause_turn = "pause" }', "attempts": 1}
        report = run(server, tmp_path, prompts(1), **settings)
        assert (report.done, report.failed) == (0, 1)
        [line] = lines(tmp_path)
        assert (line["reply"]["text"], line["error"]["type"], line["error"]["retryable"]) == ("p0", "StreamCut", True)
        assert "pause_turn" in line["error"]["message"]
        server.rule = None
        assert run(server, tmp_path, prompts(1), **settings).done == 1, "the next run asks it again"


def test_what_a_failure_may_have_cost_counts(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return {"p0": (200, {"choices": []}, {}), "p1": (400, error("no"), {})}.get(prompt)

    with stub(rule=rule) as server:
        report = run(server, tmp_path, rows(tmp_path, prompts(3)), flags=PRICE, attempts=1)
        assert (report.done, report.failed) == (1, 2)
        assert report.cost is not None
        assert report.cost > ANSWER + EXPENSIVE / 2, "an empty reply with status 200 may be charged"
        assert report.cost < 2 * EXPENSIVE + ANSWER, "a refused request costs nothing"


def test_a_failure_whose_cost_nobody_knows_makes_the_cost_a_lower_bound(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (200, {"choices": []}, {}) if prompt == "p0" else None

    flags, settings = PRICE.partition("\n")[0], {"attempts": 1}  # without limits: the longest reply is not known
    source = rows(tmp_path, prompts(3))
    with stub(rule=rule) as server:
        report = run(server, tmp_path, source, flags=flags, **settings)
        assert (report.done, report.failed, report.cost, report.unpriced) == (2, 1, ANSWER * 2, 1)
        assert "cost: ≥ 0.00012 CNY (requests of unknown cost: 1), " in "\n".join(report_lines(report))
        again = run(server, tmp_path, source, flags=flags, **settings)
        assert (again.asked, again.cost, again.unpriced) == (1, ANSWER * 2, 2)
        (tmp_path / "out.jsonl.state").unlink()
        assert run(server, tmp_path, source, flags=flags, **settings).unpriced == 2  # the line of the row, and now


def test_a_reply_beyond_a_limit_of_ours_is_paid_once_and_is_no_load(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        return (200, reply("x" * 9000), {}) if prompt == "p0" else None

    with stub(rule=rule) as server:
        limits = Limits(max_reply_bytes=5000)
        report = run(server, tmp_path, rows(tmp_path, prompts(3)), flags=PRICE, limits=limits)
        assert (report.done, report.failed, report.refused) == (2, 1, 0)
        assert server.received["p0"] == 1, "the same reply would come again"
        assert report.cost is not None
        assert report.cost > EXPENSIVE / 2
        report = run(server, tmp_path, rows(tmp_path, prompts(3)), flags=PRICE)
        assert (report.done, report.asked) == (3, 1), "without the limit the row is answered"


def test_the_steps_of_a_tool_loop_that_fails_are_counted(tmp_path: Path) -> None:
    def look() -> str:
        """Look out of the window."""
        return "rain"

    def rule(prompt: str, server: Stub) -> Answer | None:
        if server.bodies[-1]["messages"][-1]["role"] == "tool":
            return 400, error("no"), {}
        body = reply("")
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        body["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
        body["choices"][0]["finish_reason"] = "tool_calls"
        return 200, body, {}

    with stub(rule=rule) as server:
        report = run(server, tmp_path, rows(tmp_path, prompts(1)), flags=PRICE, tools=[look], max_steps=3)
        assert (report.done, report.failed) == (0, 1)
        assert report.cost is not None
        assert report.cost >= ANSWER, "its first step was answered"


def looks(number: int) -> Answer:
    """A reply with one call of `look`."""
    body = reply("")
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": f'{{"hour": {number}}}'}}
    body["choices"][0] |= {"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    return 200, body, {}


@pytest.mark.parametrize("end", ["max_steps", "refused"])
def test_a_tool_loop_that_fails_costs_what_its_steps_cost(tmp_path: Path, end: str) -> None:
    def look(hour: int) -> str:
        """Look out of the window."""
        return f"rain at {hour}"

    def rule(prompt: str, server: Stub) -> Answer | None:
        return (400, error("no"), {}) if end == "refused" and len(server.log) == 3 else looks(len(server.log))

    with stub(rule=rule) as server:
        steps = 3 if end == "max_steps" else 2
        settings: dict[str, Any] = {"flags": PRICE, "tools": [look], "max_steps": 3}
        first = run(server, tmp_path, rows(tmp_path, prompts(1)), **settings)
        assert (first.failed, first.cost) == (1, ANSWER * steps)
        (line,) = lines(tmp_path)
        assert line["error"]["type"] == ("LoopStopped" if end == "max_steps" else "BadRequest")
        assert Decimal(line["reply"]["cost"]["amount"]) == ANSWER * steps, "not that of its last step alone"
        assert line["reply"]["usage"]["total"] == 15 * steps
        (tmp_path / "out.jsonl.state").unlink()
        again = run(server, tmp_path, rows(tmp_path, prompts(1)), **settings)
        assert (again.asked, again.cost) == (0, first.cost)


def test_a_certain_cost_above_the_reservation_is_charged(tmp_path: Path) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        body = reply("ok")
        body["usage"] = {"prompt_tokens": 1_000_000}  # nobody says how long the answer was
        return 200, body, {}

    flags = 'price = { currency = "CNY", input = 2.0, output = 8.0 }'
    with stub(rule=rule) as server:
        report = run(
            server, tmp_path, prompts(5), flags=flags, max_cost="3.5", assume_output=100, currency="CNY", concurrency=1
        )
        assert (report.done, report.stop_kind) == (2, "cap")
        assert report.cost == 2 * len(server.log) == 4


@pytest.mark.parametrize("way", ["fallback", "models"])
@pytest.mark.parametrize("currency", ["CNY", "USD"])
def test_a_cap_holds_for_every_model_that_may_answer(tmp_path: Path, way: str, currency: str) -> None:
    def rule(prompt: str, server: Stub) -> Answer | None:
        if way == "fallback" and server.bodies[-1]["model"] == "m":
            return 500, error("down"), {}
        return long(prompt, server)

    dear = f'price = {{ currency = "{currency}", input = 20.0, output = 80.0 }}\nlimits.output = 1000'
    flags = f'{PRICE}\n[models."home/dear"]\n{dear}'
    settings: dict[str, Any] = {"flags": flags, "concurrency": 8, "currency": "CNY"}
    if way == "models":
        settings |= {"model": ["home/m", "home/dear"], "attempts": 1}
    with stub(rule=rule) as server:
        settings |= {} if way == "models" else {"fallback": ["home/dear"]}
        report = run(server, tmp_path, prompts(40), max_cost="0.5", **settings)
        answers = [body["model"] for body in server.bodies if way == "models" or body["model"] == "dear"]
        real = sum(EXPENSIVE * (10 if model == "dear" else 1) for model in answers)
        assert report.stop_kind == "cap"
        assert report.cost == real <= Decimal("0.5")
        assert bool(answers) == (currency == "CNY"), "what counts in another currency has no room below the cap"


def test_an_unknown_price_needs_an_assumed_one(tmp_path: Path) -> None:
    flags = "limits = { context = 8192, output = 1000 }"
    with stub() as server:
        with pytest.raises(CnllmError, match="the price of home/m is not known") as raised:
            run(server, tmp_path, prompts(3), flags=flags, max_cost=1, currency="CNY")
        assert "--assume-price" in str(raised.value.hint)
        price = Price(currency="CNY", input=2.0, output=8.0)
        report = run(server, tmp_path, prompts(3), flags=flags, max_cost=1, currency="CNY", assume_price=price)
        assert report.done == 3
        assert report.cost == 3 * ANSWER


def test_an_assumed_price_may_have_the_currency_of_the_run(tmp_path: Path) -> None:
    flags = "limits = { context = 8192, output = 1000 }"
    price = Price(input=2.0, output=8.0)
    for cap in (None, 1):
        with stub() as server:
            folder = tmp_path / str(cap)
            folder.mkdir()
            report = run(server, folder, prompts(3), flags=flags, max_cost=cap, currency="CNY", assume_price=price)
        assert (report.done, report.cost, report.unpriced) == (3, 3 * ANSWER, 0)


def test_what_earlier_runs_cost_in_another_currency_is_named(tmp_path: Path) -> None:
    with stub() as server:
        assert run(server, tmp_path, prompts(3), flags=PRICE).other_costs == {}
        report = run(server, tmp_path, prompts(5), flags=PRICE.replace("CNY", "USD"))
        assert (report.cost, report.currency, report.other_costs) == (2 * ANSWER, "USD", {"CNY": 3 * ANSWER})
        assert f"cost of earlier runs: {3 * ANSWER:f} CNY" in list(report_lines(report))
        unpriced = run(server, tmp_path, prompts(6))
        assert (unpriced.cost, unpriced.other_costs) == (None, {"CNY": 3 * ANSWER, "USD": 2 * ANSWER})
        again = run(server, tmp_path, prompts(6), flags=PRICE)
        assert (again.cost, again.run_cost, again.other_costs) == (3 * ANSWER, Decimal(0), {"USD": 2 * ANSWER})


def test_an_assumed_price_replaces_no_known_one(tmp_path: Path) -> None:
    price = Price(currency="CNY", input=2000.0, output=8000.0)
    with stub() as server:
        report = run(server, tmp_path, prompts(20), flags=PRICE, max_cost=1, currency="CNY", assume_price=price)
        assert (report.done, report.cost) == (20, 20 * ANSWER)


def test_an_unknown_bound_needs_an_assumed_one(tmp_path: Path) -> None:
    flags = 'price = { currency = "CNY", input = 2.0, output = 8.0 }'
    with stub() as server:
        report = run(server, tmp_path, prompts(3), flags=flags, max_cost=1, currency="CNY")
        assert server.log == []
        assert (report.stop_kind, report.cost) == ("cap", Decimal(0))
        assert report.stopped is not None
        assert "--assume-output" in report.stopped
        source = [{"id": "known", "prompt": "p", "max_tokens": 1000}, *prompts(2)]  # a row may bound itself
        assert run(server, tmp_path, source, flags=flags, max_cost=1, currency="CNY").done == 1
        report = run(server, tmp_path, source, flags=flags, max_cost=1, currency="CNY", assume_output=1000)
        assert (report.done, report.cost) == (3, 3 * ANSWER)
        with pytest.raises((TypeError, ValueError), match="assume_output"):
            run(server, tmp_path, source, flags=flags, max_cost=1, currency="CNY", assume_output=0)


def test_without_a_known_bound_a_cap_holds_by_the_assumed_one(tmp_path: Path) -> None:
    flags = 'price = { currency = "CNY", input = 2.0, output = 8.0 }'
    with stub(latency=0.002, rule=long) as server:
        cap = 10 * EXPENSIVE
        report = run(server, tmp_path, prompts(100), flags=flags, max_cost=cap, currency="CNY", assume_output=1000)
        assert report.cost == EXPENSIVE * len(server.log) <= cap
        assert report.stop_kind == "cap"


UNREPORTED: list[Any] = [
    None,
    {},
    [],
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"prompt_tokens": 10, "completion_tokens": 0},
    {"prompt_tokens": 0, "completion_tokens": 5},
    {"prompt_tokens": -5, "completion_tokens": -5},
    {"prompt_tokens": 10, "completion_tokens": 5.5},
    {"prompt_tokens": "10", "completion_tokens": "5"},
    {"prompt_tokens": 10, "completion_tokens": 2**53 + 1},
    {"prompt_tokens": 2**63, "completion_tokens": 5},
    {"prompt_tokens": 10**400, "completion_tokens": 5},
    {"prompt_tokens": 1e308, "completion_tokens": 1e308},
]


LIMITS = "limits = { context = 8192, output = 1000 }"
ASSUMED = Price(currency="CNY", input=2.0, output=8.0)


@pytest.mark.share(3)
@pytest.mark.parametrize(("flags", "assumed"), [(PRICE, None), (LIMITS, ASSUMED)], ids=["known", "assumed"])
@pytest.mark.parametrize("usage", UNREPORTED, ids=range(len(UNREPORTED)))
def test_a_usage_that_was_not_reported_is_charged_with_its_reservation(
    tmp_path: Path, usage: Any, flags: str, assumed: Price | None
) -> None:
    body: dict[str, Any] = reply("word " * 1000)
    del body["usage"]
    if usage is not None:
        body["usage"] = usage
    with stub(rule=lambda prompt, server: (200, body, {})) as server:
        cap = 5 * EXPENSIVE
        options: Any = {"flags": flags, "max_cost": cap, "currency": "CNY", "assume_price": assumed}
        report = run(server, tmp_path, prompts(40), **options)
        assert 0 < len(server.log) <= 5
        assert report.done == len(server.log)
        assert EXPENSIVE * len(server.log) <= report.cost <= cap  # type: ignore[operator]
        asked = len(server.log)
        with pytest.raises(CnllmError, match="leaves no room"):
            run(server, tmp_path, prompts(40), **options)
        assert len(server.log) == asked


def test_no_count_ends_a_run_and_no_rerun_pays_again(tmp_path: Path) -> None:
    counts = [2**53, float(2**53), 2**53 + 1, 2**63 - 1, 2**63, 10**19, 10**400, 1e308, -1, -(2**70)]
    bodies = {}
    for index, count in enumerate(counts):
        bodies[f"p{index}"] = reply("x")
        bodies[f"p{index}"]["usage"] = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), count)
    flags = 'price = { currency = "CNY", input = 9e6, output = 9e6 }\nlimits = { context = 8192, output = 1000 }'
    with stub(rule=lambda prompt, server: (200, bodies[prompt], {})) as server:
        for _ in range(2):
            report = run(server, tmp_path, prompts(len(counts)), flags=flags)
            assert (report.done, report.failed, report.stopped) == (len(counts), 0, None)
            assert len(server.log) == len(counts)


def test_a_cap_in_another_currency_is_refused(tmp_path: Path) -> None:
    with stub() as server:
        with pytest.raises(CnllmError, match="--currency USD, but the price of home/m is in CNY"):
            run(server, tmp_path, prompts(3), flags=PRICE, max_cost=1, currency="USD")
        assert server.log == []


def test_an_estimate_sends_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    from cnllm.batch import estimate_session
    from cnllm.batch.settings import make_settings

    from .support import registry

    with stub() as server:
        settings = make_settings(
            prompts(40),
            "home/m",
            out=tmp_path / "out.jsonl",
            registry=registry(server, tmp_path, PRICE),
            rpm=60,
        )
        estimate = estimate_session(settings)
        assert server.log == []
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "out.jsonl.state").exists()
    assert estimate.rows == 40
    assert estimate.seconds == pytest.approx(40, rel=0.05)
    assert estimate.cost is not None
    assert estimate.worst_cost is not None
    assert float(estimate.cost) == pytest.approx(40 * (5 * 2 + 512 * 8) / 1e6, rel=0.05)
    assert float(estimate.worst_cost) > float(estimate.cost)
    with stub() as server:
        values = [*prompts(40), {"id": "bad"}]
        model_file = registry(server, tmp_path, PRICE)
        again = estimate_session(make_settings(values, "home/m", out=tmp_path / "out.jsonl", registry=model_file))
        by_tokens = estimate_session(
            make_settings(prompts(40), "home/m", out=tmp_path / "out.jsonl", registry=model_file, rpm=6_000, tpm=1_000)
        )
    assert (again.rows, again.faults, again.cost) == (41, 1, estimate.cost), "a row with a fault costs nothing"
    assert by_tokens.seconds == pytest.approx(40 * (5 + 512) / 1_000 * 60, rel=0.05)
    with stub() as server:
        unbounded = registry(server, tmp_path, PRICE.partition("\n")[0])
        values = [{"id": "bounded", "prompt": "p", "max_tokens": 9}, *prompts(2)]
        unknown = estimate_session(make_settings(values, "home/m", out=tmp_path / "out.jsonl", registry=unbounded))
    assert unknown.cost is not None
    assert unknown.worst_cost is None, "a reply without a limit may cost anything"


def test_replies_that_cost_nothing_cost_nothing_when_the_output_is_read_again(tmp_path: Path) -> None:
    source = rows(tmp_path, prompts(4))
    with stub() as server:
        for _ in range(2):
            report = run(server, tmp_path, source, flags=PRICE.replace("2.0", "0").replace("8.0", "0"), max_cost=0)
            assert (report.done, str(report.cost), report.unpriced) == (4, "0", 0)
            (tmp_path / "out.jsonl.state").unlink()


def test_an_estimate_is_that_of_the_dearest_hours(tmp_path: Path) -> None:
    from cnllm.batch import estimate_session
    from cnllm.batch.settings import make_settings

    from .support import registry

    hours = '{ peak = ["09:00-12:00"], zone = "+08:00", input = 1.0, output = 4.0 }'
    estimates = []
    for price in (PRICE, PRICE.replace("output = 8.0", f"output = 8.0, off_peak = {hours}")):
        with stub() as server:
            data = registry(server, tmp_path, price)
            estimates.append(
                estimate_session(make_settings(prompts(3), "home/m", out=tmp_path / "out.jsonl", registry=data)).cost
            )
    assert estimates[0] == estimates[1]


def test_an_estimate_has_the_price_of_the_service_and_the_fees_of_each_request(tmp_path: Path) -> None:
    from cnllm.batch import estimate_session
    from cnllm.batch.settings import make_settings

    from .support import registry

    tiers = "service = { fast = { input = 4.0, output = 16.0 } }, factors = { speed = { twice = 2 } }"
    search = '\nweb_search = { always = true, fee = 0.5, fee_per = "request" }\nusage.service = ["service_tier"]\n'
    with stub() as server:
        data = registry(server, tmp_path, PRICE)
        (tmp_path / "searching").mkdir()
        searching = registry(
            server, tmp_path / "searching", PRICE.replace("output = 8.0", f"output = 8.0, {tiers}") + search
        )

        def cost(registry: Any, **options: Any) -> Decimal | None:
            settings = make_settings(prompts(3), "home/m", out=tmp_path / "out.jsonl", registry=registry, **options)
            estimate = estimate_session(settings)
            assert estimate.cost is None or estimate.worst_cost is not None
            return None if estimate.cost is None else Decimal(estimate.cost)

        usual = cost(data)
        assert usual is not None
        assert cost(searching) == usual + 3 * Decimal("0.5")
        assert cost(searching, extra_body={"service_tier": "fast"}) == 2 * usual + 3 * Decimal("0.5")
        assert cost(searching, extra_body={"speed": "twice"}) == 2 * usual + 3 * Decimal("0.5")
        assert cost(searching, extra_body={"service_tier": "other"}) is None


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}])
def test_tokens_that_nobody_counted_are_no_zero(tmp_path: Path, usage: dict[str, int] | None) -> None:
    uncounted = {**reply("b"), "usage": usage}
    with stub(rule=lambda prompt, server: (200, uncounted, {}) if prompt == "p1" else None) as server:
        report = run(server, tmp_path, prompts(3), flags=PRICE)
    assert (report.input_tokens, report.output_tokens, report.uncounted) == (20, 10, 1)
    assert "tokens: ≥ 20 in, ≥ 10 out (answers without all counts: 1)" in list(report_lines(report))


# ── what the endpoint adds ───────────────────────────────────────────────────
MILLION = 1_000_000


def counting(added: int, output: int) -> Any:
    """The answers of an endpoint that counts a token for each character, and adds some."""

    def rule(prompt: str, server: Stub) -> Answer:
        count = len(prompt) + added
        return 200, reply("x", prompt_tokens=count, completion_tokens=output, total_tokens=count + output), {}

    return rule


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("added", [0, 20, 400])
def test_a_small_cap_goes_far_once_the_endpoint_has_shown_what_it_adds(
    tmp_path: Path, concurrency: int, added: int
) -> None:
    with stub(latency=0.002, rule=counting(added, 5)) as server:
        real = sum((len(row["prompt"]) + added) * 2 + 5 * 8 for row in prompts(30))
        cap = Decimal(real + 2 * (added + 100) * 2) / MILLION  # what is paid, and room for a request or two
        cap = max(cap, Decimal("0.0025"))  # the first one has to fit before anything is known
        report = run(server, tmp_path, prompts(30), flags=PRICE, max_cost=cap, max_tokens=5, concurrency=concurrency)
        assert (report.done, report.stopped, report.currency) == (30, None, "CNY")
        assert report.cost == Decimal(real) / MILLION <= cap


def test_a_cap_holds_when_later_rows_are_longer_and_their_replies_too(tmp_path: Path) -> None:
    source = [*prompts(20), *({"id": f"long{n}", "prompt": "#" * 900} for n in range(20))]

    def rule(prompt: str, server: Stub) -> Answer:
        answer: Answer = counting(30, 50 if "#" in prompt else 1)(prompt, server)
        return answer

    with stub(latency=0.002, rule=rule) as server:
        cap = Decimal("0.02")
        report = run(server, tmp_path, source, flags=PRICE, max_cost=cap, max_tokens=50)
        assert report.cost is not None
        assert report.cost <= cap
        assert report.stop_kind == "cap"
        assert report.done > 20
        assert report.cost > cap - Decimal(4 * 1000 * 2) / MILLION, "more would have fitted"


def test_a_run_that_the_cap_ends_says_which_cap_lets_it_go_on(tmp_path: Path) -> None:
    with stub(rule=counting(20, 5)) as server:
        options: dict[str, Any] = {"flags": PRICE, "max_tokens": 5, "concurrency": 1}
        stopped = run(server, tmp_path, prompts(60), max_cost="0.0028", **options)
        assert stopped.stop_kind == "cap"
        assert stopped.stopped is not None
        (least,) = re.findall(r"the least cap for it is (\S+)$", stopped.stopped)
        asked = len(server.log)
        with pytest.raises(CnllmError, match="leaves no room"):
            run(server, tmp_path, prompts(60), max_cost="0.0028", **options)
        assert len(server.log) == asked, "nothing helps but a higher cap"
        assert run(server, tmp_path, prompts(60), max_cost=least, **options).asked == 1, "what was learned is kept"
        (whole,) = re.findall(r"rows that are left need a cap of about (\S+) CNY", " ".join(stopped.messages))
        assert run(server, tmp_path, prompts(60), max_cost=whole, **options).done == 60


def test_the_advice_before_the_first_request_helps(tmp_path: Path) -> None:
    with stub() as server:
        with pytest.raises(CnllmError) as raised:
            run(server, tmp_path, prompts(1), flags=PRICE, max_cost="0.005")
        hint = str(raised.value.hint)
        ((least, tokens),) = re.findall(r"--max-cost (\S+) at least, or --max-tokens (\d+) at most", hint)
        assert server.log == []
        assert 100 < int(tokens) < 1000
        for number, options in enumerate(({"max_cost": least}, {"max_cost": "0.005", "max_tokens": int(tokens)})):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert run(server, folder, ["."], flags=PRICE, **options).done == 1
        with pytest.raises(CnllmError) as raised:
            run(server, tmp_path, prompts(1), flags=PRICE, max_cost="0.001")
        assert "--max-tokens" not in str(raised.value.hint), "the input alone is too dear"


def test_a_simulated_run_holds_a_cap_at_the_price_of_the_model(tmp_path: Path) -> None:
    with stub() as server:
        options: dict[str, Any] = {"flags": PRICE, "max_tokens": 20, "concurrency": 1}
        report = run(server, tmp_path, prompts(40), max_cost="0.004", simulate=True, **options)
        assert report.stop_kind == "cap"
        assert report.currency == "CNY"
        assert report.cost is not None
        assert 0 < report.cost <= Decimal("0.004")
        assert 1 < report.done < 40
        assert server.log == []
        with pytest.raises(CnllmError, match="made up"):
            run(server, tmp_path, prompts(40), max_cost="0.004", **options)
        assert run(server, tmp_path, prompts(40), simulate=True, **options).done == 40
    free = tmp_path / "free"
    free.mkdir()
    assert run(server, free, prompts(3), simulate=True, **options).cost is None, "without a cap nothing is counted"
