"""What a probe learns with few requests: one asks for what it can hold, and what is assumed is confirmed last."""

from __future__ import annotations

import re
from typing import Any

import pytest

import cnllm.probe

from .endpoint import Json
from .odd import Odd
from .test_odd_endpoints import probed, refuses, values

PARAMS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "top_k", "logprobs")


def seen_by(rules: list[Any], **settings: Any) -> tuple[Odd, list[Json]]:
    """Return an endpoint with rules, and the list of what it gets."""
    requests: list[Json] = []
    return Odd(lambda request: requests.append(request), *rules, **settings), requests


def with_any(requests: list[Json], *keys: str) -> list[Json]:
    return [request for request in requests if any(key in request for key in keys)]


def test_parameters_that_are_all_taken_cost_a_few_requests() -> None:
    endpoint, requests = seen_by([])
    found = values(probed(endpoint))
    assert len([r for r in with_any(requests, *PARAMS) if "top_logprobs" not in r]) <= 4
    assert {flag for flag in found if flag.startswith("params.")} & {f"params.{name}" for name in PARAMS} == {
        "params.logprobs"
    }


@pytest.mark.parametrize("words", ["Unknown parameter: '{}'.", "Bad request."])
def test_a_parameter_that_is_refused_among_others_is_found(words: str) -> None:
    """Also where the refusal does not name it."""
    rules = [refuses(key, words.format(key)) for key in ("seed", "logit_bias")]
    found = values(probed(Odd(*rules)))
    refused = {flag for flag, value in found.items() if value is False and flag.startswith("params.")}
    assert refused == {"params.seed", "params.logit_bias"}


def test_parameters_that_are_refused_only_together_are_no_fact() -> None:
    def both(request: Json) -> str | None:
        return "temperature and top_p cannot both be set" if {"temperature", "top_p"} <= request.keys() else None

    found = values(probed(Odd(both)))
    assert not [flag for flag in found if flag.startswith(("params.temperature", "params.top_p"))]


def test_bounds_of_parameters_that_are_refused_together_are_found_one_by_one() -> None:
    def rule(request: Json) -> str | None:
        if {"temperature", "top_p"} <= request.keys():
            return "temperature and top_p cannot both be set"
        if not 0 <= request.get("temperature", 1) <= 1.5:
            return "temperature must be between 0 and 1.5"
        return None if 0 <= request.get("top_p", 1) <= 1 else "top_p must be between 0 and 1"

    found = values(probed(Odd(rule)))
    bounds = {flag: value for flag, value in found.items() if flag.startswith(("params.temperature", "params.top_p"))}
    assert bounds == {
        "params.temperature.as": "temperature",
        "params.temperature.min": 0,
        "params.temperature.max": 1.5,
        "params.top_p.as": "top_p",
        "params.top_p.min": 0,
        "params.top_p.max": 1,
    }


def test_bounds_are_found_where_the_other_parameters_have_none() -> None:
    def bounded(request: Json) -> str | None:
        return None if 0 <= request.get("temperature", 1) <= 1.5 else "temperature must be between 0 and 1.5"

    found = values(probed(Odd(bounded), max_requests=60))
    assert (found["params.temperature.min"], found["params.temperature.max"]) == (0, 1.5)
    assert not [flag for flag in found if flag.startswith(("params.top_p", "params.presence_penalty", "params.seed"))]


def test_few_requests_find_what_differs_and_leave_what_is_assumed() -> None:
    def rule(request: Json) -> str | None:
        tools = [tool["function"] for tool in request.get("tools") or []]
        if any(len(tool["name"]) > 64 for tool in tools):
            return "the name of a tool has at most 64 characters"
        if any(tool.get("strict") for tool in tools):
            return "strict tools are not supported"
        return None

    report = probed(Odd(rule, refuses("seed", "seed is unknown")), max_requests=45)
    found = values(report)
    assert found["tools.name_max_length"] == 64
    assert found["tools.strict"] is False
    assert found["params.seed"] is False
    assert "tools.supported" not in found  # as everybody has it, and seen once
    assert "tools" in report.left


def test_a_model_that_does_not_reason_is_not_asked_once_for_each_switch() -> None:
    endpoint, requests = seen_by([])
    probed(endpoint)
    switches = [
        r for r in with_any(requests, "enable_thinking", "thinking", "chat_template_kwargs") if "tools" not in r
    ]
    assert len(switches) <= 3


@pytest.mark.parametrize("alone", [False, True])
def test_the_switch_among_others_that_works(alone: bool) -> None:
    """Also where the endpoint refuses switches of which it does not know all."""

    def unknown(request: Json) -> str | None:
        keys = {"thinking", "chat_template_kwargs", "enable_thinking", "thinking_mode", "reasoning"} & request.keys()
        return "I do not know this." if alone and len(keys) > 1 else None

    thinks = lambda request: request.get("enable_thinking") is True  # noqa: E731
    found = values(probed(Odd(unknown, thinks=thinks, field="reasoning"), max_requests=60))
    assert found["reasoning.on.set.enable_thinking"] is True
    assert (found["reasoning.mode"], found["reasoning.default"]) == ("toggle", "off")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"[\s\S]{1,64}", True),
        (r"[a-zA-Z0-9_-]{1,64}", True),
        (r"[\s\S]{1,40}", True),
        (r"[a-zA-Z0-9_-]{1,40}", True),
        (r"[A-Za-z0-9]{9}", True),
        (r"[\s\S]{1,50}", False),
        (r"[a-zA-Z0-9_-]+", False),
    ],
)
def test_the_pattern_of_ids(pattern: str, found: bool) -> None:
    """One that no endpoint is known to have is not guessed."""

    def checks(request: Json) -> str | None:
        ids = [m["tool_call_id"] for m in request["messages"] if m["role"] == "tool"]
        return None if all(re.fullmatch(pattern, id) for id in ids) else "the id of a call is invalid"

    class Short(Odd):
        def _calls(self, request: Json) -> list[Json]:
            return [{**call, "id": "abcdef123"} for call in super()._calls(request)]

    report = values(probed(Short(checks)))
    assert report.get("tools.call_id_pattern") == (pattern if found else None)


def test_levels_are_spelt_as_a_refusal_spells_them() -> None:
    def levels(request: Json) -> str | None:
        level = request.get("reasoning_effort", "HIGH")
        return None if level in ("LOW", "HIGH") else f"reasoning_effort: {level!r} is none of 'LOW', 'HIGH'"

    found = values(probed(Odd(levels, thinks=lambda request: True, field="reasoning")))
    assert (found["reasoning.effort.low"], found["reasoning.effort.high"]) == ("LOW", "HIGH")


@pytest.mark.parametrize(
    ("listing", "levels"),
    [("low, high, medium, none", ["low", "high"]), ("high, low, medium", ["low", "medium", "high"])],
)
def test_a_word_that_only_a_switch_has_is_no_level(listing: str, levels: list[str]) -> None:
    """It stands among the words of a refusal, out of their order; words in another order may be levels for all that."""

    class Thinker(Odd):
        def answer(self, request: Json) -> tuple[str, str, list[Json]]:
            thought, text, calls = super().answer(request)
            return (
                thought + " I go on." * 4 * (levels.index(level) if (level := word(request)) in levels else 3),
                text,
                calls,
            )

    def word(request: Json) -> str:
        return str(request.get("reasoning_effort", "default"))

    def rule(request: Json) -> str | None:
        known = word(request) in ["default", *listing.split(", ")]
        return None if known else f"invalid reasoning_effort: '{word(request)}' is none of {listing}"

    found = values(probed(Thinker(rule, thinks=lambda request: word(request) != "none", field="reasoning")))
    assert [flag.rpartition(".")[2] for flag in found if flag.startswith("reasoning.effort.")] == ["at", *levels]


def test_counts_that_stand_elsewhere_in_streams() -> None:
    class Moves(Odd):
        def _stream(self, pieces: list[Json], finish: str, counts: Json) -> Any:
            own, self.usage = self.usage, ("choices.0.usage", *self.usage[1:])
            try:
                status, kind, content = super()._stream(pieces, finish, {})
            finally:
                self.usage = own
            usage = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}
            end = b'"finish_reason": "' + finish.encode() + b'"'
            return status, kind, content.replace(end, end + b', "usage": ' + str(usage).replace("'", '"').encode())

    found = values(probed(Moves(usage=("meta.tokens", "in", "out"))))
    assert found["usage.at"][0] == "meta.tokens"
    assert (found["usage.input"], found["usage.output"]) == (["in"], ["out"])


@pytest.mark.parametrize(("instead", "said"), [(b', "tally": 42', None), (b"", "none")])
def test_numbers_that_nobody_knows_may_be_the_counts_of_a_stream(instead: bytes, said: str | None) -> None:
    class Silent(Odd):
        def reply(self, request: Json) -> Any:
            status, kind, content = super().reply(request)
            return status, kind, re.sub(rb',? ?"usage": \{[^}]*\}', instead, content)

    assert values(probed(Silent(), max_requests=60)).get("simulator.stream_usage") == said
    assert "simulator.stream_usage" in values(probed(Odd()))


@pytest.mark.parametrize("cap", [float("nan"), -1.0])
def test_a_cap_that_would_hold_nothing_is_refused(cap: float) -> None:
    with pytest.raises(ValueError, match=f"max_cost={cap}"):
        cnllm.probe.run("http://127.0.0.1:9/v1", model="m", price=(1.0, 2.0), max_cost=cap)


@pytest.mark.parametrize("price", [(-1.0, 2.0), (1.0, float("nan")), (1.0,), (1.0, 2.0, 3.0), "12", 3])
def test_a_price_that_would_never_reach_a_cap_is_refused(price: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^price"):
        cnllm.probe.run("http://127.0.0.1:9/v1", model="m", price=price, max_cost=1)


@pytest.mark.parametrize("name", ["model", "protocol", "api_key", "registry"])
def test_an_argument_of_another_type_is_named(name: str) -> None:
    options: Any = {name: 3}
    with pytest.raises(TypeError, match=f"^{name} is int"):
        cnllm.probe.run("http://127.0.0.1:9/v1", **options)
