"""A quote before a call: estimated tokens, the least and the most that it can cost, and what is not known."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm import Message, Quote, Registry
from cnllm.estimates.tokens import token_family

PRICE = "{ currency = 'CNY', input = 2, output = 8, cached = 0.5 }"
MODELS = f"""
[providers.home]
extends = "openai-compatible"
base_url = "http://127.0.0.1:1/v1"
keys = ["HOME_KEY"]
[models."home/m"]
price = {PRICE}
limits = {{ context = 100_000, output = 1_000 }}
[models."home/endless"]
price = {PRICE}
[models."home/free-of-price"]
limits = {{ context = 100_000, output = 1_000 }}
[models."home/no-discount"]
price = {{ currency = 'CNY', input = 2, output = 8 }}
limits = {{ context = 100_000, output = 1_000 }}
[models."home/dollars"]
price = {{ currency = 'USD', input = 1, output = 1 }}
limits = {{ context = 100_000, output = 1_000 }}
[models."home/tiers"]
price = {{ currency = 'CNY', input = 2, output = 8, service = {{ fast = {{ input = 4, output = 16 }} }} }}
limits = {{ context = 100_000, output = 1_000 }}
usage = {{ service = ["service_tier"], standard = ["standard"] }}
[models."home/search"]
price = {PRICE}
limits = {{ context = 100_000, output = 1_000 }}
web_search = {{ tool = {{ type = "web_search" }} }}
[models."home/free-search"]
price = {PRICE}
limits = {{ context = 100_000, output = 1_000 }}
web_search = {{ tool = {{ type = "web_search" }}, fee = 0 }}
[models."home/some-free"]
price = {{ currency = 'CNY', input = 2, output = 8, per_call.web_search = {{ fee = 0.5, allowance = true }} }}
limits = {{ context = 100_000, output = 1_000 }}
web_search = {{ tool = {{ type = "web_search" }} }}
"""
MILLION = Decimal(1_000_000)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    overlay = tmp_path_factory.mktemp("quote") / "overlay.toml"
    overlay.write_text(MODELS)
    return Registry.load(str(overlay))


def ask(registry: Registry, model: str, messages: Any = "Hi", **options: Any) -> Quote:
    """A quote; nothing listens at the address of the model, and no key is set."""
    client = cnllm.Client(registry)
    found = client.quote(model, messages, **options)
    assert cnllm.AsyncClient(registry).quote(model, messages, **options) == found
    assert cnllm.Client(registry, simulate=True).quote(model, messages, **options) == found, "at the price of the model"
    return found


def test_a_quote_bounds_the_cost(registry: Registry) -> None:
    found = ask(registry, "home/m", "Why is the sky blue?" * 100, max_tokens=50)
    assert 400 < found.input < 600
    assert (found.cached, found.output_max, found.currency, found.unknown) == (None, 50, "CNY", ())
    assert found.low == (found.input * 2 + 8) / MILLION
    assert found.high is not None
    assert found.high >= (2000 * 2 + 50 * 8) / MILLION, "a token may be as short as a character"
    assert ask(registry, "home/m").output_max == 1000
    assert ask(registry, "home/m", system="Be kind. " * 100).input > ask(registry, "home/m").input + 100


@pytest.mark.parametrize("options", [{"max_tokens": -1}, {"extra_body": {"max_tokens": -100}}])
def test_a_negative_limit_bounds_no_reply(registry: Registry, options: dict[str, Any]) -> None:
    found, unlimited = ask(registry, "home/m", **options), ask(registry, "home/m")
    assert found.output_max == unlimited.output_max == 1000
    assert found.high is not None
    assert unlimited.high is not None
    assert found.high >= unlimited.high
    assert ask(registry, "home/endless", **options).high is None


def test_the_start_that_the_model_had_before_comes_from_the_cache(registry: Registry) -> None:
    with cnllm.Client(registry, simulate=True) as client:
        begin = [Message.system("Be kind. " * 500), Message.user("Hi")]
        reply = client.call("home/m", begin)
    messages = [*begin, reply.message, Message.user("And now?")]
    found = ask(registry, "home/m", messages)
    assert found.cached is not None
    assert ask(registry, "home/m", begin).input == found.cached < found.input
    assert found.low == ((found.input - found.cached) * 2 + found.cached * Decimal("0.5") + 8) / MILLION
    assert ask(registry, "home/dollars", messages).cached is None, "another model has another cache"
    assert ask(registry, "home/m", [*begin, {"role": "assistant", "content": "x"}, "Go on"]).cached is None
    no_discount = reply.message.__class__("assistant", reply.message.parts, by="home/no-discount")
    unknown = ask(registry, "home/no-discount", [*begin, no_discount, Message.user("And now?")])
    assert "the price of cached input of home/no-discount" in unknown.unknown
    assert unknown.low == ((unknown.input - (unknown.cached or 0)) * 2 + 8) / MILLION


def test_a_client_knows_the_system_messages_that_it_has_sent(registry: Registry) -> None:
    def tool(city: str) -> str:
        """Return the weather."""
        return city

    begin = Message.system("Be kind. " * 500)
    with cnllm.Client(registry, simulate=True) as client:
        assert client.quote("home/m", [begin, Message.user("Hi")]).cached is None
        client.call("home/m", [begin, Message.user("Hi")])
        found = client.quote("home/m", [Message.system("Be kind. " * 500), Message.user("Something else")])
        assert found.cached is not None
        assert 900 < found.cached < found.input
        assert found.low == ((found.input - found.cached) * 2 + found.cached * Decimal("0.5") + 8) / MILLION
        assert client.quote("home/m", "Hi", system="Be kind. " * 500).cached == found.cached
        assert client.quote("home/m", [begin, Message.user("Hi")], tools=[tool]).cached is None, "tools come first"
        assert client.quote("home/m", [Message.system("Be brief."), Message.user("Hi")]).cached is None
        assert client.quote("home/dollars", [begin, Message.user("Hi")]).cached is None, "another cache"


def test_what_is_not_known_is_named_and_bounds_nothing(registry: Registry) -> None:
    endless = ask(registry, "home/endless")
    assert (endless.high, endless.output_max) == (None, None)
    assert endless.low is not None
    assert endless.unknown == ("the greatest length of a reply of home/endless",)
    unpriced = ask(registry, "home/free-of-price")
    assert (unpriced.low, unpriced.high, unpriced.currency) == (None, None, None)
    assert unpriced.unknown == ("the price of home/free-of-price",)
    search = ask(registry, "home/search", tools=[cnllm.web_search()])
    assert search.high is None
    assert search.unknown == ("the fee of web_search at home", "the input that web_search adds")
    free = ask(registry, "home/free-search", tools=[cnllm.web_search()])
    assert free.high is not None
    assert free.unknown == ("the input that web_search adds",)
    allowance = ask(registry, "home/some-free", tools=[cnllm.web_search()])
    assert allowance.high is not None
    assert allowance.low is not None
    assert allowance.high > 5 > allowance.low, "ten searches may be paid, or none"
    assert "whether web_search is still free" in allowance.unknown


def test_a_service_tier_counts_at_its_own_price(registry: Registry) -> None:
    plain = ask(registry, "home/tiers")
    fast = ask(registry, "home/tiers", extra_body={"service_tier": "fast"})
    assert fast.high is not None
    assert plain.high is not None
    assert fast.high > 1.9 * float(plain.high)
    assert fast.low == plain.low, "the endpoint may answer in its usual tier"
    unknown = ask(registry, "home/tiers", extra_body={"service_tier": "slow"})
    assert (unknown.low, unknown.high) == (None, None)
    assert unknown.unknown == ("the price of home/tiers in the service tier 'slow'",)


def test_each_model_of_a_fallback_may_be_charged(registry: Registry) -> None:
    one, other = ask(registry, "home/m"), ask(registry, "home/tiers")
    both = ask(registry, "home/m", fallback=["home/tiers"])
    assert both.high == (one.high or 0) + (other.high or 0)
    assert both.low == min(one.low or 0, other.low or 0)
    mixed = ask(registry, "home/m", fallback=["home/dollars"])
    assert (mixed.low, mixed.high, mixed.currency) == (None, None, None)
    assert mixed.unknown == ("which price counts: CNY or USD",)
    assert ask(registry, "home/m", fallback=["home/endless"]).high is None


def test_the_estimate_knows_what_a_family_adds(registry: Registry) -> None:
    def tool(city: str) -> str:
        """Return the weather."""
        return city

    by_family = {name: registry.resolve(name) for name in ("anthropic/claude-opus-5", "openai/gpt-5.4")}
    for name, model in by_family.items():
        plain, offered = ask(registry, name), ask(registry, name, tools=[tool])
        family = token_family(model)
        assert offered.input - plain.input >= family.tools
        assert plain.input_errors == family.errors
        assert family.recordings >= 10
    assert token_family(by_family["anthropic/claude-opus-5"]).tools > 100
    assert token_family(registry.resolve("home/m")).recordings > 0, "that of all others"


BESIDE = """
[providers.beside]
extends = "openai-compatible"
base_url = "http://127.0.0.1:1/v1"
keys = ["HOME_KEY"]
[providers.beside.reasoning]
mode = "toggle"
bound = "LIMIT"
on.set.think = true
off.set.think = false
budget.at = "think_tokens"
[models."beside/on"]
price = PRICE
limits = { context = 100_000, output = 1_000 }
reasoning = { default = "on" }
[models."beside/off"]
extends = "beside/on"
price = PRICE
limits = { context = 100_000, output = 1_000 }
reasoning = { default = "off" }
[models."beside/never"]
price = PRICE
reasoning = { mode = "never" }
[models."beside/endless"]
price = PRICE
"""


@pytest.fixture(params=["max_tokens", "budget", "none"])
def limit(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Registry]:
    """What bounds the reasoning of an endpoint, and a registry with such models."""
    overlay = tmp_path / "overlay.toml"
    overlay.write_text(BESIDE.replace("LIMIT", request.param).replace("PRICE", PRICE))
    return request.param, Registry.load(str(overlay))


def test_a_limit_that_does_not_count_the_reasoning_bounds_no_reply_that_reasons(limit: tuple[str, Registry]) -> None:
    word, registry = limit

    def most(model: str, **options: Any) -> int | None:
        found = ask(registry, f"beside/{model}", max_tokens=50, **options)
        assert (found.high is None) == (found.output_max is None)
        return found.output_max

    whole = 50 if word == "max_tokens" else 1000
    budget = {"max_tokens": 50, "budget": 80, "none": 1000}[word]
    assert (most("on"), most("on", reasoning="on"), most("on", reasoning="off")) == (whole, whole, 50)
    assert (most("off"), most("off", reasoning="on"), most("off", reasoning="off")) == (50, whole, 50)
    assert (most("on", reasoning=30), most("off", reasoning=30)) == (budget, budget)
    assert most("never") == 50
    assert most("endless") == (50 if word == "max_tokens" else None)
    assert most("off", extra_body={"think": True}) == whole, "the body counts, whoever wrote it"
    assert most("off", extra_body={"think_tokens": 30}) == budget
    assert most("on", extra_body={"think": False}) == 50
