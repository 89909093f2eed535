"""Public files of models, told apart by their shape and matched by provider and id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import each

from cnllm import RegistryError
from cnllm.registry_files.compare import ListComparison, Value, compare
from cnllm.registry_files.public_lists import list_from_file

from .conftest import Load

pytestmark = pytest.mark.usefixtures("small_builtin")

MODELS = """
[models."home/m"]
limits = { context = 1000, output = 100 }
price = { currency = "USD", input = 1, output = 2, cached = 0.1 }
[models."home/m".sources]
docs = { url = "https://example.org/m", seen = 2026-11-20, how = "docs", backs = ["limits", "price"] }
[models."home/cny"]
limits = { context = 1000 }
price = { currency = "CNY", input = 1, output = 2 }
"""


def nested(id: str = "m", provider: str = "home", api: str = "http://elsewhere/v1", **model: Any) -> dict[str, Any]:
    """A small file in the shape of models.dev's."""
    return {provider: {"id": provider, "name": "Home", "api": api, "models": {id: {"id": id, **model}}}}


def flat(name: str, provider: str = "home", **entry: Any) -> dict[str, Any]:
    """A small file in the shape of litellm's."""
    sample = {"litellm_provider": "one of many", "max_input_tokens": "a number", "mode": "chat"}
    return {"sample_spec": sample, name: {"litellm_provider": provider, "mode": "chat", **entry}}


REMOTE = """
[providers.away]
title = "A server elsewhere"
protocol = "openai-chat"
base_url = "https://api.example.org/v1"
keys = []
[models."away/m"]
limits = { context = 1000 }
"""


def compared(load: Load, tmp_path: Path, data: Any, models: str = MODELS) -> ListComparison:
    path = tmp_path / "published.json"
    path.write_text(json.dumps(data))
    return compare(load(models), list_from_file(path).models)


def told(result: ListComparison) -> list[tuple[str, str, Value, Value]]:
    return [(d.model, d.flag, d.ours, d.theirs) for d in result.disagreements]


def test_what_agrees_is_not_told(load: Load, tmp_path: Path) -> None:
    data = nested(limit={"context": 1000, "output": 100}, cost={"input": 1, "output": 2.0, "cache_read": 0.1})
    result = compared(load, tmp_path, data)
    assert (result.found, result.values, result.disagreements) == (1, 5, ())


def test_a_disagreement_names_both_numbers_and_our_source(load: Load, tmp_path: Path) -> None:
    data = nested(limit={"context": 2000, "output": 0}, cost={"input": 1, "output": 3, "cache_write": 9})
    result = compared(load, tmp_path, data)
    assert told(result) == [("home/m", "limits.context", 1000, 2000), ("home/m", "price.output", 2, 3)]
    fact = result.disagreements[0].fact
    assert fact is not None
    assert (fact.source, fact.seen) == ("https://example.org/m", "2026-11-20")
    assert result.disagreements[0].there == "home/m"


def test_what_only_one_side_knows_is_no_disagreement(load: Load, tmp_path: Path) -> None:
    assert compared(load, tmp_path, nested(limit={}, cost=None)).values == 0
    assert compared(load, tmp_path, nested(cost={"input": "cheap", "output": True})).values == 0


def test_prices_in_another_currency_are_left_alone(load: Load, tmp_path: Path) -> None:
    result = compared(load, tmp_path, nested("cny", limit={"context": 999}, cost={"input": 7, "output": 7}))
    assert told(result) == [("home/cny", "limits.context", 1000, 999)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (nested("M", "Ho-Me"), 1),  # case and signs do not count
        (nested("m", "other"), 0),
        (nested("m", "other", "http://127.0.0.1:9/v1"), 0),  # any server may answer at an address of this machine
        (nested("m", "home_test"), 1),  # what the key is named after
        (nested("m", "home_te"), 0),
        (nested("m-2026", "home"), 0),  # another id is another model
        (flat("home/m"), 1),
        (flat("m"), 1),
        (flat("other/m"), 0),
        (flat("home/m", mode="embedding"), 0),
    ],
)
def test_ids_are_matched_at_the_same_provider(load: Load, tmp_path: Path, data: Any, found: int) -> None:
    assert compared(load, tmp_path, data).found == found


def test_the_same_address_under_another_name_is_the_same_provider(load: Load, tmp_path: Path) -> None:
    assert compared(load, tmp_path, nested("m", "other", "HTTP://API.example.org/v1/"), REMOTE).found == 1
    assert compared(load, tmp_path, nested("m", "other", "https://api.example.net/v1"), REMOTE).found == 0


def test_a_name_counts_for_more_than_an_address_or_a_key(load: Load, tmp_path: Path) -> None:
    other = nested("m", "other", "https://api.example.org/v1", limit={"context": 5})
    data = other | nested("m", "away", limit={"context": 6})
    assert told(compared(load, tmp_path, data, REMOTE)) == [("away/m", "limits.context", 1000, 6)]


def test_prices_per_token_become_prices_per_million(load: Load, tmp_path: Path) -> None:
    prices: dict[str, Any] = {
        "input_cost_per_token": 1e-06,
        "output_cost_per_token": 2.7e-06,
        "cache_read_input_token_cost": 1e-07,
    }
    assert told(compared(load, tmp_path, flat("home/m", **prices))) == [("home/m", "price.output", 2, 2.7)]


@pytest.mark.parametrize(("theirs", "agrees"), [(1000, True), (900, True), (899, False), (1001, False)])
def test_a_window_may_be_larger_than_the_input_by_the_output(
    load: Load, tmp_path: Path, theirs: int, agrees: bool
) -> None:
    result = compared(load, tmp_path, flat("home/m", max_input_tokens=theirs))
    assert (result.disagreements == ()) is agrees


@each(
    "text, words",
    [("{}", "is not a list"), ("[1]", "is not a list"), ('{"a": {"b": 1}}', "is not a list"), ("{", "is not JSON")],
)
def test_another_file_is_refused_with_what_is_understood(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(RegistryError, match=words) as caught:
        list_from_file(path)
    assert "models.dev" in (caught.value.hint or "")
    with pytest.raises(RegistryError, match="cannot be read"):
        list_from_file(tmp_path / "none.json")


LARGE = """
[models."home/m"]
limits = { context = 1_048_576, output = 393_216 }
price = { currency = "USD", input = 2, output = 4, off_peak = { peak = ["09:00-18:00"], zone = "+08:00", input = 1 } }
"""


def test_rounding_and_idle_hours_are_no_disagreement(load: Load, tmp_path: Path) -> None:
    models = MODELS.split("[models.")[0] + LARGE
    data = nested(limit={"context": 1_000_000, "output": 384_000}, cost={"input": 1, "output": 3})
    result = compared(load, tmp_path, data, models)
    assert (result.values, result.rounded, result.off_peak) == (4, 2, 1)
    assert told(result) == [("home/m", "price.output", 4, 3)]
    assert [d.cause for d in result.disagreements] == ["price-lower"]


def test_disagreements_are_ordered_by_their_cause(load: Load, tmp_path: Path) -> None:
    models = MODELS.split("[models.")[0] + LARGE
    data = nested(limit={"context": 2_000_000, "output": 100_000}, cost={"input": 9, "output": 0})
    causes = [d.cause for d in compared(load, tmp_path, data, models).disagreements]
    assert causes == ["context", "output", "price-higher", "price-zero"]


WORDS = """
[models."home/m"]
input = ["text", "image"]
reasoning = { mode = "always" }
tools = { supported = true }
[models."home/n"]
input = ["text"]
reasoning = { mode = "never" }
[models."home/unknown"]
reasoning = { mode = "unknown" }
"""


def test_kinds_of_input_reasoning_and_tools_are_compared(load: Load, tmp_path: Path) -> None:
    models = MODELS.split("[models.")[0] + WORDS
    theirs: dict[str, Any] = {"modalities": {"input": ["text", "image", "pdf"]}, "reasoning": False, "tool_call": False}
    result = compared(load, tmp_path, nested(**theirs), models)
    assert told(result) == [
        ("home/m", "input", ("text", "image"), ("text", "file", "image")),
        ("home/m", "reasoning.mode", "always", False),
        ("home/m", "tools.supported", True, False),
    ]
    assert [d.cause for d in result.disagreements] == ["input-more", "reasoning", "tools"]
    theirs = {"modalities": {"input": ["text", "image"]}, "reasoning": True, "tool_call": True}
    assert compared(load, tmp_path, nested(**theirs), models).disagreements == ()
    for id in ("unknown", "cny"):  # what one side does not know is no disagreement
        assert compared(load, tmp_path, nested(id, **theirs), models).disagreements == ()


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ([{"type": "toggle"}], True),
        ([{"type": "effort", "values": ["none", "high"]}], True),
        ([{"type": "effort", "values": ["low", "high"]}], False),
        ([], False),
    ],
)
def test_a_switch_of_reasoning_is_compared(load: Load, tmp_path: Path, options: Any, differs: bool) -> None:
    models = MODELS.split("[models.")[0] + WORDS
    result = compared(load, tmp_path, nested(reasoning=True, reasoning_options=options), models)
    expected = [("home/m", "reasoning.mode", "always", "toggle")] if differs else []
    assert told(result) == expected


def test_the_other_file_says_only_what_it_knows(load: Load, tmp_path: Path) -> None:
    models = MODELS.split("[models.")[0] + WORDS
    assert compared(load, tmp_path, flat("home/m"), models).values == 0
    entry = flat("home/m", supports_audio_input=True, supports_reasoning=True, supports_function_calling=True)
    assert told(compared(load, tmp_path, entry, models)) == [("home/m", "input", ("text", "image"), ("text", "audio"))]


def priced(**prices: tuple[float, float]) -> tuple[str, dict[str, Any]]:
    """Models of ours in CNY, and a file that has them in USD."""
    models, listed = MODELS.split("[models.")[0], nested()
    listed["home"]["models"] = {}
    for name, (ours, theirs) in prices.items():
        models += f'[models."home/{name}"]\nprice = {{ currency = "CNY", input = {ours} }}\n'
        listed["home"]["models"][name] = {"cost": {"input": theirs}}
    return models, listed


def test_a_price_in_another_currency_is_compared_at_the_rate_of_the_file(load: Load, tmp_path: Path) -> None:
    models, listed = priced(a=(7, 1), b=(14, 2), c=(3.5, 0.5), d=(8, 1), e=(70, 10), far=(7, 2), free=(0, 0))
    result = compared(load, tmp_path, listed, models)
    assert (result.rates, result.currency) == ({"CNY": 7.0}, 5)
    assert told(result) == [("home/far", "price.input", "7 CNY", "2 USD")]
    assert [d.cause for d in result.disagreements] == ["price-currency"]
    result = compared(load, tmp_path, *reversed(priced(a=(7, 1), far=(7, 2))))
    assert (result.rates, result.values) == ({}, 0), "too few prices for a rate"


def test_prices_of_idle_hours_are_compared(load: Load, tmp_path: Path) -> None:
    models = MODELS.split("[models.")[0] + LARGE
    entry: dict[str, Any] = {"input_cost_per_token": 2e-06, "off_peak_pricing": {"input_cost_per_token": 1.5e-06}}
    assert told(compared(load, tmp_path, flat("home/m", **entry), models)) == [
        ("home/m", "price.off_peak.input", 1, 1.5)
    ]


@pytest.mark.parametrize(("rounded", "found"), [("true", []), ("false", ["limits.context"])])
def test_a_value_that_its_citation_calls_rounded_is_no_disagreement(
    load: Load, tmp_path: Path, rounded: str, found: list[str]
) -> None:
    own = MODELS.replace('backs = ["limits", "price"] }', f'backs = ["limits", "price"], rounded = {rounded} }}')
    result = compared(load, tmp_path, nested(limit={"context": 950, "output": 100}), own)
    assert [d.flag for d in result.disagreements] == found
    assert result.rounded == 1 - len(found)
