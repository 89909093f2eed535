"""An option of a closed type: another type never goes to the endpoint, whatever the policy."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import engine

REGISTRY = cnllm.Registry.load()
MODEL = REGISTRY.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
WRONG: dict[str, list[Any]] = {
    "parallel_tool_calls": ["no", "true", 0, 1, 1.0, [], {}],
    "stream": ["yes", 1.5, []],
    "prefill": ["yes", 1, []],
    "pdf_text": ["yes", 1, []],
    "temperature": ["0.5", "hot", True, [0.5], {"value": 1}],
    "top_p": ["0.5", False, [1]],
    "presence_penalty": ["1", True],
    "frequency_penalty": ["1", True],
    "max_tokens": ["100", 10.5, True, [100], float("nan"), float("inf")],
    "seed": ["7", 7.5, True],
    "top_k": ["7", 7.5, True],
    "top_logprobs": ["7", 7.5, True],
    "logprobs": ["yes", 1.5, []],
    "stop": [5, True, {"a": 1}, ["a", 5], [["a"]]],
    "logit_bias": ["5", ["a"], {"5": "high"}, {"5": True}],
    "corrections": ["1", 1.5, True, -1],
    "reasoning": [1.5, [], "very"],
    "if_cut": [True, "perhaps"],
    "on_unsupported": [True, "perhaps"],
    "recover_text_calls": [True, "perhaps"],
    "extra_body": ["x", 5, [1]],
    "extra_headers": ["x", 5, [1]],
    "params": ["x", 5, [1]],
    "tools": ["x", 5],
    "timeout": ["5", True, 0, -1, float("nan")],
}
TOOL = {"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}}}


@each("policy", ["adjust", "error", "send"])
def test_a_value_of_another_type_is_refused_by_name(policy: str) -> None:
    for name, values in WRONG.items():
        for value in values:
            options = {"tools": [TOOL], "on_unsupported": policy} | {name: value}
            with pytest.raises((TypeError, ValueError), match=name):
                engine.build_request(MODEL, "Hi", **options)
            if name in ("parallel_tool_calls", "temperature", "max_tokens", "stop", "logit_bias"):
                with pytest.raises((TypeError, ValueError), match=name):
                    engine.build_request(MODEL, "Hi", tools=[TOOL], params={name: value})


NAN, INFINITY = float("nan"), float("inf")
NO_JSON: dict[str, dict[str, Any]] = {
    "extra_body['x'][0]['y']=nan": {"extra_body": {"x": [{"y": NAN}]}},
    "params['zeal']=inf": {"params": {"zeal": INFINITY}},
    "schema['properties']['a']['maximum']=inf": {"schema": {"properties": {"a": {"maximum": INFINITY}}}},
    "tools ('f')['properties']['a']['default']=nan": {
        "tools": [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"default": NAN}}}}]
    },
}


@each("place", NO_JSON)
def test_a_number_that_json_does_not_have_is_refused_wherever_it_stands(place: str) -> None:
    """Null, which would be sent for it, means something else."""
    with pytest.raises(ValueError, match=re.escape(f"{place}; a finite number is expected")):
        engine.build_request(MODEL, "Hi", **NO_JSON[place])


def test_such_a_number_in_an_earlier_call_is_refused() -> None:
    function = {"name": "f", "arguments": {"a": None, "b": [NAN]}}
    turn: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}
    with pytest.raises(ValueError, match=r"arguments\['b'\]\[0\]=nan; a finite number is expected"):
        engine.build_request(MODEL, ["Hi", turn])


def test_what_means_the_same_is_taken() -> None:
    options: dict[str, Any] = {"max_tokens": 12.0, "temperature": Decimal("0.5"), "seed": 7.0}
    plan = engine.build_request(MODEL, "Hi", stop=("a", "b"), logit_bias={"5": 1.5}, timeout=5, **options)
    assert (plan.timeouts, plan.limits) == (cnllm.Timeouts.of(5), cnllm.Limits())
    body = {name: plan.body[name] for name in ("temperature", "stop", "logit_bias", "seed")}
    assert body == {"temperature": 0.5, "stop": ["a", "b"], "logit_bias": {"5": 1.5}, "seed": 7}
    limit = plan.body.get("max_tokens", plan.body.get("max_completion_tokens"))
    assert (limit, type(limit)) == (12, int)
    assert engine.build_request(MODEL, "Hi", extra_body={"temperature": "hot"}).body["temperature"] == "hot"


def test_a_parameter_that_is_surely_a_typing_error_is_refused_and_an_option_is_named() -> None:
    model = REGISTRY.resolve("deepseek/deepseek-v4-pro")
    with pytest.raises(ValueError, match="is called temperatur; did you mean temperature"):
        engine.build_request(model, "Hi", params={"temperatur": 1})
    for name, sentence in (("schema", "schema is an option of its own"), ("foo", "neither the registry nor")):
        (note,) = engine.build_request(model, "Hi", params={name: 1}).notes
        assert note.code == "param-unknown"
        assert sentence in note.did
        assert "did you mean" not in note.did


@each("protocol, turns", [("openai-chat", "messages"), ("gemini", "contents"), ("openai-responses", "input")])
def test_what_the_call_itself_sets_is_no_parameter_and_in_extra_body_it_has_a_note(protocol: str, turns: str) -> None:
    model = REGISTRY.resolve("openai-compatible/m", protocol=protocol, base_url="http://127.0.0.1:9/v1")
    for name, value in (("model", "other"), ("stream", True), (turns, [])):
        with pytest.raises(ValueError, match=f"params: {name} is set by the call itself"):
            engine.build_request(model, "Hi", params={name: value})
        forms: list[dict[str, Any]] = [{"extra_body": {name: value}}]
        forms.append({"params": {name: value}, "on_unsupported": "send"})
        for options in forms:
            plan = engine.build_request(model, "Hi", **options)
            assert plan.body[name] == value
            notes = [note for note in plan.notes if note.code == "param-verbatim"]
            assert [(note.said, "in place of the call's own" in note.did) for note in notes] == [
                (f"{name}={value}", True)
            ]
    plan = engine.build_request(model, "Hi", extra_body={"stream": False})
    assert [note.code for note in plan.notes] == ["unknown-model"]


def test_a_setting_that_the_wire_has_is_no_typing_error() -> None:
    model = REGISTRY.resolve("openai-compatible/m", protocol="gemini", base_url="http://127.0.0.1:9/v1beta")

    def codes(setting: str) -> list[str]:
        plan = engine.build_request(model, "Hi", params={"generationConfig": {setting: 3}})
        assert plan.body["generationConfig"][setting] == 3
        return [note.code for note in plan.notes if note.code != "unknown-model"]

    assert (codes("topK"), codes("audioTimestamp"), codes("topX")) == ([], [], ["param-unknown"])


@each(
    "options, place",
    [
        ({"extra_body": {"x": object()}}, "extra_body['x']"),
        ({"params": {"x": object()}}, "params['x']"),
        ({"schema": {"type": "object", "x": object()}}, "schema['x']"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": object()}}}]}, "tools ('f')"),
    ],
)
def test_a_value_that_json_cannot_hold_is_named_with_its_place(options: dict[str, Any], place: str) -> None:
    with pytest.raises(TypeError, match="a value that JSON can hold is expected") as caught:
        engine.build_request(MODEL, "Hi", **options)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("value", [-1, None, float("inf"), "1"])
def test_a_time_that_has_to_be_finite_is_not_offered_none(value: Any) -> None:
    for name, make in (("base", cnllm.Retry), ("cooldown", lambda **own: cnllm.Fallback(targets=("a",), **own))):
        with pytest.raises((TypeError, ValueError), match=f"^{name}.*seconds from 0 is expected$"):
            make(**{name: value})
