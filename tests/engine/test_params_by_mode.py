"""Parameters without effect in a mode are left out with a note, however they were given."""

from typing import Any

import pytest
from builtin import BUILTIN

import cnllm
from cnllm import Model, engine
from cnllm.cli import option_parsing
from cnllm.protocols import PROTOCOLS

from .conftest import Home

GIVEN: dict[str, Any] = {"temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.4, "frequency_penalty": 0.2}
IGNORES = """
reasoning.mode = "toggle"
reasoning.default = "on"
reasoning.on.set.think = true
reasoning.off.set.think = false
reasoning.effort = { at = "effort", low = "low", high = "high" }
[models."home/m".when.reasoning.params]
temperature = "ignored"
top_p = "ignored"
presence_penalty = "ignored"
frequency_penalty = "ignored"
"""
"""An endpoint that thinks, and takes none of these parameters then."""


@pytest.fixture
def ignoring(home: Home) -> Model:
    return home(more=IGNORES)


def plan(name: str, wire: str | None = None, **options: Any) -> cnllm.Plan:
    """The plan for a model of the built-in registry."""
    return engine.build_request(BUILTIN.resolve(name, protocol=wire), "hi", **options)


def told(made: cnllm.Plan) -> dict[str, str]:
    return {
        note.flag.removeprefix("params."): note.code
        for note in made.notes
        if note.code == "param-dropped" or note.code == "param-verbatim"
    }


def test_while_thinking_they_are_left_out_and_without_it_they_are_sent(ignoring: Model) -> None:
    levels: tuple[Any, ...] = ("on", "low", "high", 4000, None)
    for level in levels:
        made = engine.build_request(ignoring, "hi", reasoning=level, **GIVEN)
        assert not GIVEN.keys() & made.body.keys(), level
        assert told(made) == dict.fromkeys(GIVEN, "param-dropped"), level
    made = engine.build_request(ignoring, "hi", reasoning="off", **GIVEN)
    assert {name: made.body.get(name) for name in GIVEN} == GIVEN
    assert told(made) == {}


def test_the_words_of_the_command_line_come_to_the_same() -> None:
    words = tuple(f"{name}={value}" for name, value in GIVEN.items())
    options = option_parsing.call_options(words, None, None, None)
    assert options == GIVEN
    assert option_parsing.call_options(("logit_bias.5=1", "x.y=2", "top_k=3"), None, None, None) == {
        "params": {"logit_bias": {"5": 1}, "x": {"y": 2}},
        "top_k": 3,
    }


def test_the_caller_decides(ignoring: Model) -> None:
    for name, value in GIVEN.items():
        with pytest.raises(cnllm.CannotSend, match=name):
            engine.build_request(ignoring, "hi", reasoning="on", on_unsupported="error", **{name: value})
    made = engine.build_request(ignoring, "hi", reasoning="on", on_unsupported="send", **GIVEN)
    assert {name: made.body.get(name) for name in GIVEN} == GIVEN


def test_extra_body_goes_out_verbatim_and_is_noted(ignoring: Model) -> None:
    def made(**options: Any) -> cnllm.Plan:
        return engine.build_request(ignoring, "hi", extra_body=dict(GIVEN), **options)

    for policy in ("adjust", "error"):
        thinking = made(reasoning="on", on_unsupported=policy)
        assert {name: thinking.body.get(name) for name in GIVEN} == GIVEN
        assert told(thinking) == dict.fromkeys(GIVEN, "param-verbatim")
    assert told(made(reasoning="on", on_unsupported="send")) == {}
    assert told(made(reasoning="off")) == {}


def test_parameters_without_effect_are_left_out_on_every_wire(home: Home) -> None:
    for wire in PROTOCOLS:
        model = home(more=f'protocol = "{wire}"\n{IGNORES}')
        made = engine.build_request(model, "hi", reasoning="on", **GIVEN)
        assert not any(name in made.content.decode() for name in ("0.3", "0.5", "0.4", "0.2")), (wire, made.body)
        assert told(made) == dict.fromkeys(GIVEN, "param-dropped"), wire
    never = 'params.presence_penalty = { as = "generationConfig.presencePenalty", fixed = 0, otherwise = "drop" }'
    gemini = home(more=f'protocol = "gemini"\n{never}')
    sent = engine.build_request(gemini, "hi", presence_penalty=0.4, on_unsupported="send").body
    assert sent["generationConfig"]["presencePenalty"] == 0.4


SAMPLING = {"temperature": 0.3, "top_p": 0.5}
PENALTIES = {"presence_penalty": 0.4, "frequency_penalty": 0.2}
GPT = {**SAMPLING, **PENALTIES, "logit_bias": {"5": 1}, "logprobs": True}
# model, wire, reasoning, what is given → what is sent of it, what is changed
MODES: list[tuple[str, str, str, dict[str, Any], dict[str, Any], set[str]]] = [
    ("xiaomi/mimo-v2.6-pro", "openai-chat", "on", SAMPLING, {}, {"temperature", "top_p"}),
    ("xiaomi/mimo-v2.6-pro", "openai-chat", "on", {"temperature": 1, "top_p": 0.95}, {"temperature": 1}, set()),
    ("xiaomi/mimo-v2.6-pro", "anthropic-messages", "on", SAMPLING, {}, {"temperature", "top_p"}),
    ("xiaomi/mimo-v2.6-pro", "openai-chat", "off", SAMPLING, SAMPLING, set()),
    ("xiaomi/mimo-v2-flash", "openai-chat", "on", SAMPLING, SAMPLING, set()),
    ("xiaomi/mimo-v2-flash", "anthropic-messages", "on", SAMPLING, SAMPLING, set()),
    ("anthropic/claude-haiku-4-5", "", "on", {**SAMPLING, "top_k": 3}, {"top_p": 0.95}, {*SAMPLING, "top_k"}),
    ("anthropic/claude-haiku-4-5", "", "on", {"temperature": 1, "top_p": 0.97}, {"top_p": 0.97}, set()),
    (
        "anthropic/claude-haiku-4-5",
        "",
        "off",
        {"temperature": 0.3, "top_k": 3},
        {"temperature": 0.3, "top_k": 3},
        set(),
    ),
    ("anthropic/claude-opus-4-8", "", "off", {**SAMPLING, "top_k": 3}, {}, {*SAMPLING, "top_k"}),
    ("anthropic/claude-opus-5-5", "", "on", {**SAMPLING, "top_k": 3}, {}, {*SAMPLING, "top_k"}),
    ("volcengine/doubao-seed-2-0-pro-260215", "openai-chat", "on", SAMPLING, {}, set(SAMPLING)),
    ("volcengine/doubao-seed-2-0-lite-260215", "openai-responses", "off", SAMPLING, {}, set(SAMPLING)),
    ("volcengine/doubao-seed-2-0-mini-260215", "openai-chat", "on", SAMPLING, SAMPLING, set()),
    ("volcengine/doubao-seed-2-0-mini-260215", "openai-responses", "on", SAMPLING, SAMPLING, set()),
    (
        "volcengine/doubao-seed-2-0-code-preview-260215",
        "openai-chat",
        "on",
        {"temperature": 9, "top_p": 0.5},
        {"temperature": 2, "top_p": 0.5},
        {"temperature"},
    ),
    ("openai/gpt-5.5", "openai-chat", "high", GPT, {}, set(GPT)),
    ("openai/gpt-5.5", "openai-responses", "high", SAMPLING, {}, set(SAMPLING)),
    ("google/gemini-3.8-flash", "openai-chat", "high", PENALTIES, {}, set(PENALTIES)),
    ("minimax/MiniMax-M2", "anthropic-messages", "on", {"stop": ["x"], "top_k": 3}, {}, {"stop", "top_k"}),
    ("xai/grok-4.6", "openai-chat", "on", {"stop": ["x"], **PENALTIES}, {}, {"stop", *PENALTIES}),
    ("moonshotai/kimi-k2.6", "openai-chat", "on", {**SAMPLING, **PENALTIES}, {}, {*SAMPLING, *PENALTIES}),
    ("moonshotai/kimi-k2.6", "openai-chat", "off", {"temperature": 0.6}, {"temperature": 0.6}, set()),
]


def test_each_endpoint_gets_what_it_takes_in_that_mode() -> None:
    for name, wire, level, given, sent, changed in MODES:
        made = plan(name, wire or None, reasoning=level, **given)
        case = (name, wire, level, made.body, made.notes)
        assert {key: made.body[key] for key in sent} == sent, case
        assert not (changed - sent.keys()) & made.body.keys(), case
        assert {n.flag.removeprefix("params.") for n in made.notes if n.code.startswith("param-")} >= changed, case
        if not changed:
            assert {key: made.body[key] for key in given} == given, case
    made = plan("google/gemini-3.8-flash", "gemini", **PENALTIES)
    assert not {"presencePenalty", "frequencyPenalty"} & made.body.get("generationConfig", {}).keys()
    assert plan("google/gemini-3.8-flash", "gemini", presence_penalty=0).body["generationConfig"] == {
        "presencePenalty": 0
    }


def test_what_extra_body_gives_in_spite_of_a_fixed_value_is_noted() -> None:
    for name, extra in (("moonshotai/kimi-k2.6", {"top_p": 0.1}), ("xiaomi/mimo-v2.6-pro", {"top_p": 0.1})):
        made = plan(name, reasoning="on", extra_body=extra)
        assert told(made) == dict.fromkeys(extra, "param-verbatim"), name


def test_a_parameter_that_the_registry_says_nothing_of_goes_under_its_own_name() -> None:
    model = BUILTIN.resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")
    body = engine.build_request(model, "hi", top_k=3, presence_penalty=1, logit_bias={"5": 1}).body
    assert (body["top_k"], body["presence_penalty"], body["logit_bias"]) == (3, 1, {"5": 1})
    with pytest.raises(TypeError, match="presence_penaltie"):
        engine.build_request(model, "hi", presence_penaltie=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="top_k"):
        engine.build_request(model, "hi", top_k=float("nan"))  # type: ignore[arg-type]
