"""Parameters of a model on the command line: no silent typing error, and each one of the registry is an option."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

import cnllm
from cnllm import Registry
from cnllm.cli import option_parsing
from cnllm.cli.parameters import PARAMETERS
from cnllm.client import sanitizer
from cnllm.types.call_options import CallOptions
from cnllm.types.policy import TextCalls

from .support import Machine, chat


def plan(machine: Machine, *args: str, model: str = "glm-4.7") -> tuple[dict[str, Any], dict[str, str]]:
    """The body that would be sent, and what was done by the code of each note."""
    done = machine.run("call", "-m", model, "--plan", *args, "hi")
    assert done.status == 0, done
    body = done.json()["body"]
    return body, {note["code"]: f"{note['said']}: {note['did']}" for note in done.json()["notes"]}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("temprature=3", "temperature"),
        ("temperatur=3", "temperature"),
        ("Temperature=3", "temperature"),
        ("topp=1", "top_p"),
        ("top-p=1", "top_p"),
        ("maxTokens=5", "max_tokens"),
        ("max_token=5", "max_tokens"),
        ("freqency_penalty=1", "frequency_penalty"),
        ("response_fromat={}", "response_format"),
        ("on_unsuported=send", "on_unsupported"),
        ("recover_text_cals=keep", "recover_text_calls"),
    ],
)
def test_a_typing_error_is_refused_with_the_name_that_was_meant(machine: Machine, typed: str, meant: str) -> None:
    name = typed.partition("=")[0]
    machine.run("call", "-m", "glm-4.7", "--simulate", "-p", typed, "hi").fails(2, name, f"did you mean {meant}?")
    done = chat(machine, "hi", args=("chat", "-m", "glm-4.7", "--simulate", "-p", typed))
    assert (done.status, done.out) == (2, "")
    assert f"called {name}; did you mean {meant}?" in done.err
    body, notes = plan(machine, "-p", typed, "-p", "on_unsupported=send")  # on purpose
    assert name in body
    assert f"did you mean {meant}?" in notes["param-unknown"]


def test_a_typing_error_inside_an_object_is_refused(machine: Machine) -> None:
    gemini = ("call", "-m", "gemini", "--protocol", "gemini", "--plan", "hi")
    machine.run(*gemini, "-p", "generationConfig.temprature=1").fails(2, "generationConfig.temperature?")
    body = machine.run(*gemini, "-p", "generationConfig.topK=5", "-p", "generationConfig.temperature=1").json()["body"]
    assert body["generationConfig"] == {"topK": 5, "temperature": 1}


def test_a_setting_that_may_be_mistyped_is_noted(machine: Machine) -> None:
    body, notes = plan(machine, "-p", "thinking.typ=disabled")
    assert body["thinking"]["typ"] == "disabled"
    assert "did you mean thinking.type?" in notes["param-unknown"]
    machine.overlay("http://127.0.0.1:1/v1", 'protocol = "gemini"')
    body, notes = plan(machine, "-p", "generationConfig.topK=5", model="home/m")
    assert body["generationConfig"] == {"topK": 5}
    assert "param-unknown" not in notes  # topP is near, but the wire knows this one
    body, notes = plan(machine, "-p", "generationConfig.topA=5", model="home/m")
    assert body["generationConfig"] == {"topA": 5}
    assert "sent as it is" in notes["param-unknown"]


def test_an_option_that_is_no_parameter_says_so_and_shows_no_secret(machine: Machine) -> None:
    for parameter in ("reasoning=high", "system=x", "timeout=3", "api_key=sk-abcdefghijk1234567"):
        name = parameter.partition("=")[0]
        _, notes = plan(machine, "-p", parameter)
        assert f"{name} is an option of its own" in notes["param-unknown"]
        assert "sk-abc" not in str(notes)


def test_a_value_of_the_wrong_type_is_refused(machine: Machine) -> None:
    for option, value in (
        ("--temperature", "hot"),
        ("--top-k", "many"),
        ("--presence-penalty", ""),
        ("--frequency-penalty", "true"),
        ("--logit-bias", "{5: 1"),
        ("--logprobs", "maybe"),
        ("--top-logprobs", "[1]"),
        ("--max-tokens", "1.5"),
        ("--parallel-tool-calls", "1"),
    ):
        name = option[2:].replace("-", "_")
        machine.run("call", "-m", "glm-4.7", option, value, "hi").fails(2, f"the parameter {name}=")
        machine.run("call", "-m", "glm-4.7", "-p", f"{name}={value}", "hi").fails(2, f"the parameter {name}=")


def test_what_nobody_knows_is_sent_with_a_note(machine: Machine) -> None:
    for parameter in ("min_p=0.1", "top_a=1", "repetition_penalty=1.1", "zzz.deep=1"):
        body, notes = plan(machine, "-p", parameter)
        assert parameter.partition("=")[0].partition(".")[0] in body
        assert "sent as it is" in notes["param-unknown"]
    body, notes = plan(machine, "-p", "user=me", "-p", "metadata.a=1", "-p", "thinking.type=disabled")
    assert (body["user"], body["metadata"], body["thinking"]) == ("me", {"a": 1}, {"type": "disabled"})
    assert notes == {}  # the protocol and the registry know these


def test_a_refused_parameter_is_left_out_however_it_was_given(machine: Machine) -> None:
    for args in (("-p", "frequency_penalty=1"), ("--frequency-penalty", "1"), ("--frequency-penalty=1",)):
        body, notes = plan(machine, *args)
        assert "frequency_penalty" not in body
        assert notes["param-dropped"] == "1: left out: the endpoint does not take it"
    file = machine.config / "providers.toml"
    machine.config.mkdir(parents=True)
    file.write_text('[models."zai/glm-4.7".call]\nfrequency_penalty = 1\n')
    assert "did you mean" not in machine.run("registry", "check").err
    file.unlink()
    machine.run("call", "-m", "glm-4.7", "--frequency-penalty", "1", "-p", "on_unsupported=error", "hi").fails(
        2, "frequency_penalty", "on_unsupported"
    )


def test_a_parameter_by_the_endpoints_own_name_is_fitted_too(machine: Machine) -> None:
    body, notes = plan(machine, "-p", 'stop_sequences=["x"]', model="claude-sonnet-4-5")
    assert body["stop_sequences"] == ["x"]
    assert "param-unknown" not in notes


def test_extra_body_goes_out_verbatim_with_a_note(machine: Machine) -> None:
    body, notes = plan(machine, "--extra-body", '{"frequency_penalty": 1, "temprature": 3, "zzz": {"q": null}}')
    assert (body["frequency_penalty"], body["temprature"], body["zzz"]) == (1, 3, {"q": None})
    assert "sent as it is" in notes["param-verbatim"]
    assert "did you mean temperature?" in notes["param-unknown"]
    body, _ = plan(machine, "--extra-body", '{"zzz": {"a": 1, "b": 2}}', "-p", "zzz.a=3")
    assert body["zzz"] == {"a": 3, "b": 2}  # -p wins


def test_every_parameter_of_the_registry_is_an_option(machine: Machine) -> None:
    listed, known = set(PARAMETERS), Registry.load().parameters()
    assert known - listed == {"reasoning_effort"}  # help shows --reasoning, which fits every endpoint
    assert (
        "there is no option"
        not in machine.run("call", "-m", "glm-4.7", "--plan", "--reasoning-effort", "low", "hi").err
    )
    assert listed <= known
    helps = {command: machine.run(command, "--help-all").out for command in ("call", "chat")}
    for name in (*PARAMETERS, "system"):
        assert all(f"--{name.replace('_', '-')} " in text for text in helps.values())
    many = ("--temperature", "0.3", "--top-p=0.5", "--max-tokens", "9", "--stop", "a", "--logprobs", "true")
    body, _ = plan(machine, *many, "--system", "Be brief.")
    assert [body[name] for name in ("temperature", "top_p", "max_tokens", "stop", "logprobs")] == [
        0.3,
        0.5,
        9,
        "a",
        True,
    ]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    body, _ = plan(machine, "--stop", "5", "--stop", "b", model="deepseek")
    assert body["stop"] == ["5", "b"]
    machine.run("call", "-m", "glm-4.7", "--temperature", "hot", "hi").fails(2, "temperature=hot", "a number")
    machine.run("call", "-m", "glm-4.7", "--temprature", "1", "hi").fails(2, "--temprature", "--temperature")
    machine.run("--temprature", "1", "hi").fails(2, "--temprature", "--temperature")


def test_a_parameter_of_the_users_own_file_is_an_option_too(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:1/v1", '[models."home/m".params]\nmin_p = "min_p"\nold_thing = false')
    for args in (("--min-p", "0.2"), ("--min-p=0.2",)):
        body, notes = plan(machine, *args, "--old-thing", "1", model="home/m")
        assert (body["min_p"], "old_thing" in body) == (0.2, False)
        assert "left out" in notes["param-dropped"]
    machine.run("call", "-m", "home/m", "--mim-p", "1", "hi").fails(2, "--mim-p")


def test_a_chat_takes_them_and_keeps_them_for_the_next_model(machine: Machine) -> None:
    done = chat(machine, "hi", "/model glm-4.7", "hi", args=("chat", "-m", "deepseek", "--simulate", "--seed", "3"))
    assert done.status == 0
    assert "params.seed" in done.err  # the second model takes none


def test_python_takes_parameters_by_name_and_as_a_dict() -> None:
    names = Registry.load().parameters()
    with cnllm.Client(simulate=True) as client:
        for model in ("glm-4.7", "claude", "gemini", "openai/gpt-5.2", "openai-compatible/x"):
            for name in names:
                special = {"stop": "x", "reasoning_effort": "low", "parallel_tool_calls": True, "logit_bias": {"42": 1}}
                value: Any = special.get(name, 1)
                by_name = client.plan(model, "hi", **{name: value})
                in_dict = client.plan(model, "hi", params={name: value})
                assert by_name.body == in_dict.body, (model, name)
                assert by_name.notes == in_dict.notes, (model, name)
                assert client.call(model, "hi", **{name: value}).usage.output
        for typed in ("temprature", "maxTokens", "topK", "sytem", "freqency_penalty", "fallbck"):
            mistyped: dict[str, Any] = {typed: 1}
            with pytest.raises(TypeError, match="Did you mean"):
                client.plan("glm-4.7", "hi", **mistyped)
        for typed in ("temprature", "maxTokens"):
            with pytest.raises(ValueError, match="did you mean"):
                client.plan("glm-4.7", "hi", params={typed: 1})
        params = {"frequency_penalty": 1, "temperature": 9, "min_p": 0.1, "user": "me"}
        made = client.plan("glm-4.7", "hi", params=params)
        assert client.plan("glm-4.7", "hi", params=params, temperature=0.5).body["temperature"] == 0.5
        wrong: Any
        for wrong in (3, "x", ["temperature"]):
            with pytest.raises(TypeError, match="params is"):
                client.plan("glm-4.7", "hi", params=wrong)
    assert {note.code for note in made.notes} == {"param-dropped", "param-clamped", "param-unknown", "simulated"}
    assert (made.body["min_p"], made.body["user"]) == (0.1, "me")
    assert len(params) == 4  # the caller's dict is not changed


def test_a_parameter_wins_over_the_models_default_for_the_body(machine: Machine) -> None:
    call = '[models."home/m".call]\nmax_tokens = 100\nextra_body = { zzz = { a = 1, b = 2 } }\n'
    machine.overlay("http://127.0.0.1:1/v1", '[models."home/m".params]\nmax_tokens = "max_completion_tokens"\n' + call)
    body, _ = plan(machine, "-p", "zzz.a=5", "-p", "max_completion_tokens=7", model="home/m")
    assert (body["zzz"], body["max_completion_tokens"]) == ({"a": 5, "b": 2}, 7)


def test_the_option_system_is_a_message_before_the_others() -> None:
    history: list[cnllm.MessageDict] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    with cnllm.Client(simulate=True) as client:
        for system in ("Be brief.", cnllm.Text("Be brief."), ["Be brief."], [cnllm.Text("Be brief.")]):
            body = client.plan("glm-4.7", history, system=system).body
            assert body["messages"] == [{"role": "system", "content": "Be brief."}, *history]
        assert len(history) == 3
        assert client.plan("claude", history, system="Be brief.").body["system"] == "Be brief."
        run = client.run("glm-4.7", "hi", tools=[], system="Be brief.")
        assert run.reply.text
        with client.stream("glm-4.7", "hi", system="Be brief.") as stream:
            assert [type(event) for event in stream]
        wrong: Any
        for wrong in (3, b"x", [3]):
            with pytest.raises((TypeError, ValueError), match="system"):
                client.plan("glm-4.7", "hi", system=wrong)
        empty: Any
        for empty in ([], "", " \n"):
            with pytest.raises(ValueError, match="messages is empty"):
                client.plan("glm-4.7", empty, system="Be brief.")
    fitted = cnllm.fit("glm-4.7", history, system="Be brief.")
    assert fitted.messages[0] == {"role": "system", "content": "Be brief."}


def test_options_that_stand_twice_say_the_same() -> None:
    """The words of `sanitize` stand in its signature, where a reader of the manual finds them."""
    assert set(option_parsing.CALL_OPTIONS) <= set(CallOptions.__annotations__)
    assert set(option_parsing.CHOICES) <= set(option_parsing.CALL_OPTIONS)
    for function in (sanitizer.sanitize, sanitizer.Sanitizer.__init__):
        assert get_type_hints(function)["recover_text_calls"] == TextCalls | None
