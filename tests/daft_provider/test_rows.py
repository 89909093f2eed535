"""Rows of a Daft frame: their answers, their errors, and how many are on their way at once."""

from __future__ import annotations

import decimal
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from .support import PRICE, answers, collect, counters, serve_models, session, simulator  # isort: skip - first: skips

from batch.stub import Stub, error, reply, stub

import cnllm


class Person(BaseModel):
    name: str
    age: int


def refuse_bad(prompt: str, server: Stub) -> Any:
    return (400, error("no such thing"), {}) if prompt == "bad" else None


@pytest.fixture
def server() -> Iterator[Stub]:
    with stub(latency=0.002) as found:
        serve_models(found, PRICE)
        yield found


def test_text_in_the_order_of_the_rows_with_the_options_on_the_wire(server: Stub) -> None:
    questions = [f"q{n}" for n in range(200)]
    found = answers(questions, system_message="Be brief.", temperature=0.5, max_tokens=9)
    assert found == [f"re: {question}" for question in questions]
    assert server.received == dict.fromkeys(questions, 1)
    body = server.bodies[0]
    assert (body["messages"][0], body["temperature"], body["max_tokens"]) == (
        {"role": "system", "content": "Be brief."},
        0.5,
        9,
    )


def test_the_provider_s_options_hold_unless_the_prompt_has_its_own(server: Stub) -> None:
    import daft
    from daft.functions import prompt

    with session(name="mine", model="home/m", temperature=0.25, top_p=0.5):
        frame = daft.from_pydict({"q": ["x"]})
        frame.select(prompt(frame["q"], provider="mine", temperature=0.75)).collect()
    assert (server.bodies[0]["temperature"], server.bodies[0]["top_p"]) == (0.75, 0.5)


def test_a_whole_answer_has_what_the_reply_of_a_call_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulator(monkeypatch):
        (found,) = answers(["Hi"], model="glm-4.7", return_format=cnllm.daft.Answer)
        with cnllm.Client() as client:
            expected = client.call("glm-4.7", "Hi")
    assert expected.reasoning
    assert expected.cost is not None
    assert found == {
        "text": expected.text,
        "reasoning": expected.reasoning,
        "tool_calls": [],
        "finish": "stop",
        "usage": {name: getattr(expected.usage, name) for name in expected.usage.__struct_fields__},
        "cost": {
            "amount": float(expected.cost.amount),
            "currency": expected.cost.currency,
            "complete": True,
            "at_most": float(expected.cost.amount),
        },
        "error": None,
    }


def test_calls_of_tools_are_in_the_answer() -> None:
    tool = {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
    options: dict[str, Any] = {"tools": [tool], "tool_choice": "required", "return_format": cnllm.daft.Answer}
    (found,) = answers(["Hi"], model="deepseek-flash", reasoning="off", simulate=True, **options)
    assert [call["name"] for call in found["tool_calls"]] == ["find"]
    assert found["finish"] == "tool_calls"


@pytest.mark.parametrize("model", ["glm-4.7", "kimi-k2.6", "claude-haiku-5-5"])
def test_a_schema_makes_a_struct_on_every_wire(model: str) -> None:
    assert answers(["Ann"], model=model, simulate=True, return_format=Person) == [{"name": "Ann", "age": 1}]
    (whole,) = answers(["Ann"], model=model, simulate=True, return_format=cnllm.daft.ParsedAnswer[Person])
    assert whole["parsed"] == {"name": "Ann", "age": 1}
    assert whole["usage"]["output"] > 0


def test_null_is_not_sent(server: Stub) -> None:
    assert answers(["a", None, "b"]) == ["re: a", None, "re: b"]
    assert sorted(server.received) == ["a", "b"]


@pytest.mark.parametrize("on_error", ["log", "ignore"])
def test_one_bad_row_costs_no_other(server: Stub, caplog: pytest.LogCaptureFixture, on_error: str) -> None:
    server.rule = refuse_bad
    questions = [f"q{n}" for n in range(50)]
    with caplog.at_level(logging.WARNING, "cnllm.daft"):
        frame = collect([*questions, "bad"], on_error=on_error)
    assert frame.to_pydict()["answer"] == [*(f"re: {question}" for question in questions), None]
    assert server.received == dict.fromkeys([*questions, "bad"], 1)
    assert counters(frame)["failed rows"] == 1
    assert ("no such thing" in caplog.text) is (on_error == "log")


def test_a_failed_row_of_whole_answers_has_its_error(server: Stub) -> None:
    server.rule = refuse_bad
    good, bad = answers(["good", "bad"], on_error="ignore", return_format=cnllm.daft.Answer)
    assert good["error"] is None
    assert bad["error"] == "BadRequest: no such thing"
    assert bad["text"] is None


def test_an_answer_that_does_not_follow_the_schema_is_an_error_of_its_row(server: Stub) -> None:
    server.rule = lambda prompt, _: (200, reply('{"name": "Ann", "age": 3}' if prompt == "a" else "no idea"), {})
    options: dict[str, Any] = {"return_format": Person, "corrections": 0}
    assert answers(["a", "b"], on_error="ignore", **options) == [{"name": "Ann", "age": 3}, None]
    with pytest.raises(cnllm.CnllmError):
        answers(["a", "b"], **options)


def test_raise_ends_the_query_and_waiting_rows_are_not_sent(server: Stub) -> None:
    server.rule = refuse_bad
    with pytest.raises(cnllm.BadRequest, match="no such thing"):
        answers(["bad", *(f"q{n}" for n in range(500))], concurrency=4)
    assert len(server.log) <= 8


def test_a_query_after_one_that_failed_asks_anew(server: Stub) -> None:
    import daft
    from daft.functions import prompt

    server.rule = refuse_bad
    with session(model="home/m", concurrency=1):
        frame = daft.from_pydict({"q": ["bad", "q1"]})
        lazy = frame.select(prompt(frame["q"], provider="cnllm"))
        with pytest.raises(cnllm.BadRequest):
            lazy.collect()
        server.rule = None
        assert lazy.collect().to_pydict() == {"q": ["re: bad", "re: q1"]}


@pytest.mark.parametrize("concurrency", [3, 40])
def test_concurrency_bounds_the_requests_in_flight(server: Stub, concurrency: int) -> None:
    server.hold.clear()
    threading.Timer(0, lambda: release_at(server, concurrency)).start()
    assert len(answers([f"q{n}" for n in range(120)], concurrency=concurrency)) == 120
    assert server.most == concurrency


def release_at(server: Stub, count: int) -> None:
    """Let the stub answer once so many requests are there."""
    reached = threading.Event()
    while server.now < count:
        reached.wait(0.005)
    server.hold.set()


def test_a_refused_request_is_sent_again_when_the_endpoint_says(server: Stub) -> None:
    seen: set[str] = set()

    def once(prompt: str, _: Stub) -> Any:
        if prompt in seen:
            return None
        seen.add(prompt)
        return 429, error("slow down"), {"retry-after": "0.2"}

    server.rule = once
    assert answers(["a", "b"]) == ["re: a", "re: b"]
    assert server.received == {"a": 2, "b": 2}
    assert min(server.times[-2:]) - server.times[0] >= 0.2
    seen.clear()
    with pytest.raises(cnllm.RateLimited):
        answers(["c"], max_retries=0)
    assert server.received["c"] == 1


def test_the_cost_is_counted_exactly_whatever_the_program_has_set(
    server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decimal.DefaultContext, "prec", 1)  # of threads that begin
    with decimal.localcontext() as context:
        context.prec = 1
        serve_models(server, PRICE.replace("2.0", "2.345"))
        assert counters(collect(["q"]))["cost in billionths of CNY"] == 10 * 2_345 + 5 * 8_000


def test_daft_counts_tokens_cost_and_requests(server: Stub) -> None:
    found = counters(collect([f"q{n}" for n in range(30)]))
    assert found["input tokens"] == 300
    assert found["output tokens"] == 150
    assert found["total tokens"] == 450
    assert found["requests"] == 30
    assert found["cost in billionths of CNY"] == 30 * (10 * 2_000 + 5 * 8_000)  # CNY per million tokens


def test_a_cost_that_is_a_lower_bound_says_so(server: Stub) -> None:
    server.rule = lambda prompt, server: (200, reply("yes", cached_tokens=4), {})
    frame = collect(["q"], return_format=cnllm.daft.Answer)
    (found,) = frame.to_pydict()["answer"]
    least, most = (6 * 2.0 + 5 * 8.0) / 1_000_000, (10 * 2.0 + 5 * 8.0) / 1_000_000  # the price of a cache is unknown
    assert found["cost"] == {"amount": least, "currency": "CNY", "complete": False, "at_most": most}
    assert counters(frame)["rows without an exact cost"] == 1
    assert "rows without an exact cost" not in counters(collect([None], return_format=cnllm.daft.Answer))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "glm-4.77"}, "glm-4.77"),
        ({"temprature": 1}, "temprature"),
        ({"concurrency": 0}, "concurrency"),
        ({"max_retries": -1}, "max_retries"),
        ({"on_error": "hide"}, "hide"),
        ({"schema": {}, "return_format": Person}, "return_format"),
        ({"system": "x", "system_message": "y"}, "system_message"),
        ({"return_format": cnllm.daft.ParsedAnswer}, "ParsedAnswer"),
    ],
)
def test_a_wrong_option_is_an_error_before_anything_runs(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, cnllm.CnllmError), match=message):
        answers(["a"], **{"model": "glm-4.7", **options})


def test_without_a_model_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(cnllm.CnllmError, match="no model") as caught:
        answers(["a"], model=None)
    assert "model=" in str(caught.value.hint)
    monkeypatch.setenv("CNLLM_MODEL", "glm-4.7")
    assert "glm-4.7" in answers(["a"], model=None, simulate=True)[0]


@pytest.mark.long
def test_five_thousand_rows_of_a_real_session(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [f"Question {n}?" for n in range(5000)]
    with simulator(monkeypatch):
        frame = collect(questions, model="glm-4.7", return_format=cnllm.daft.Answer)
    found = frame.to_pydict()["answer"]
    assert len(found) == 5000
    for question, answer in zip(questions, found, strict=True):
        assert question in answer["text"]
        assert question in answer["reasoning"]
        assert answer["error"] is None
    assert counters(frame)["requests"] == 5000
    assert counters(frame)["output tokens"] == sum(answer["usage"]["output"] for answer in found)
