"""Parameters without effect in a mode are left out with a note, however they were given."""

import functools
from typing import Any

import pytest

import cnllm
from cnllm import Registry, engine
from cnllm.cli import request
from cnllm.registry.load import builtin_path, read

PRO = "deepseek/deepseek-v4-pro"
GIVEN: dict[str, Any] = {"temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.4, "frequency_penalty": 0.2}


@functools.cache
def registry() -> Registry:
    return Registry([read(builtin_path(), builtin=True)])


def plan(name: str, wire: str | None = None, **options: Any) -> cnllm.Plan:
    return engine.build_request(registry().resolve(name, protocol=wire), "hi", **options)


def told(made: cnllm.Plan) -> dict[str, str]:
    return {
        note.flag.removeprefix("params."): note.code
        for note in made.notes
        if note.code == "param-dropped" or note.code == "param-verbatim"
    }


def test_while_thinking_they_are_left_out_and_without_it_they_are_sent() -> None:
    for level in ("on", "low", "high", 4000, None):
        made = plan(PRO, reasoning=level, **GIVEN)
        assert not GIVEN.keys() & made.body.keys(), level
        assert told(made) == dict.fromkeys(GIVEN, "param-dropped"), level
    made = plan(PRO, reasoning="off", **GIVEN)
    assert {name: made.body.get(name) for name in GIVEN} == GIVEN
    assert told(made) == {}


def test_the_words_of_the_command_line_come_to_the_same() -> None:
    words = tuple(f"{name}={value}" for name, value in GIVEN.items())
    options = request.options(words, None, None, None)
    assert options == GIVEN
    assert request.options(("logit_bias.5=1", "x.y=2", "top_k=3"), None, None, None) == {
        "extra_body": {"logit_bias": {"5": 1}, "x": {"y": 2}},
        "top_k": 3,
    }


def test_the_caller_decides() -> None:
    for name, value in GIVEN.items():
        with pytest.raises(cnllm.CannotSend, match=name):
            plan(PRO, reasoning="on", on_unsupported="error", **{name: value})
    made = plan(PRO, reasoning="on", on_unsupported="send", **GIVEN)
    assert {name: made.body.get(name) for name in GIVEN} == GIVEN


def test_extra_body_goes_out_verbatim_and_is_noted() -> None:
    for policy in ("adjust", "error"):
        made = plan(PRO, reasoning="on", extra_body=dict(GIVEN), on_unsupported=policy)
        assert {name: made.body.get(name) for name in GIVEN} == GIVEN
        assert told(made) == dict.fromkeys(GIVEN, "param-verbatim")
    assert told(plan(PRO, reasoning="on", extra_body=dict(GIVEN), on_unsupported="send")) == {}
    assert told(plan(PRO, reasoning="off", extra_body=dict(GIVEN))) == {}


def test_on_every_wire() -> None:
    for wire in ("openai-chat", "openai-responses", "anthropic-messages"):
        made = plan(PRO, wire, reasoning="on", **GIVEN)
        assert not GIVEN.keys() & made.body.keys(), (wire, told(made))
        assert told(made) == dict.fromkeys(GIVEN, "param-dropped"), wire
    generation = plan("google/gemini-3.8-flash", "gemini", presence_penalty=0.4).body["generationConfig"]
    assert generation["presencePenalty"] == 0.4


def test_a_parameter_that_the_registry_says_nothing_of_goes_under_its_own_name() -> None:
    model = registry().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
    body = engine.build_request(model, "hi", top_k=3, presence_penalty=1, logit_bias={"5": 1}).body
    assert (body["top_k"], body["presence_penalty"], body["logit_bias"]) == (3, 1, {"5": 1})
    with pytest.raises(TypeError, match="presence_penaltie"):
        engine.build_request(model, "hi", presence_penaltie=1)
    with pytest.raises(ValueError, match="top_k"):
        engine.build_request(model, "hi", top_k=float("nan"))
