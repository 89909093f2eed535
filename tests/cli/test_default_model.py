"""The model of a call that names none, and `call` as the default command."""

from __future__ import annotations

import pytest

from .support import KEY, Machine, chat


def model_of(machine: Machine, *args: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    """The endpoint's own id of the model that a call would ask, and what stood on stderr."""
    done = machine.run(*args, "--plan", "hi", env=env)
    assert done.status == 0, done
    return done.json()["body"]["model"], done.err


def test_a_text_alone_is_a_call(machine: Machine) -> None:
    for args in (
        ("--simulate", "Why is the sky blue?"),
        ("Why is the sky blue?", "--simulate"),
        ("-m", "glm-4.7", "--simulate", "hi there"),
        ("--debug", "--simulate", "hi there"),
        ("--simulate", "--", "--help me"),
        ("call", "--simulate", "modls"),
        ("--simulate", "hi"),
        ("-m", "glm-4.7", "--simulate", "chta"),  # the options leave no doubt
        ("What?", "--simulate"),  # no command has such a character
        ("call!", "--simulate"),
    ):
        done = machine.run(*args, "--no-log") if "--" not in args else machine.run("--no-log", *args)
        assert done.status == 0, (args, done)
        assert "simulator" in done.out


def test_text_on_stdin_is_a_call(machine: Machine) -> None:
    machine.env["CNLLM_MODEL"] = "glm-4.7"
    machine.env["CNLLM_LOG"] = "off"
    for args in (("--simulate",), ("--simulate", "-"), ("What is this?", "--simulate")):
        done = machine.run(*args, stdin="a piped text")
        assert done.status == 0, done
        assert "a piped text" in done.out
    done = machine.run(stdin="a piped text", env={"CNLLM_MODEL": "no-such-model"})
    done.fails(2, "CNLLM_MODEL", "no-such-model")  # it went to `call`


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["chta"], ["there is no command chta", "did you mean chat?", "cnllm call chta"]),
        (["Models"], ["there is no command Models", "did you mean models?"]),
        (["modls", "list"], ["there is no command modls", "did you mean models?"]),
        (["chta", "--simulate"], ["there is no command chta"]),
        (["--debug", "lgos"], ["there is no command lgos", "did you mean logs?"]),
        (["help"], ["there is no command help", "cnllm --help"]),
        (["why", "is", "the", "sky", "blue"], ["in quotes", "cnllm 'why is the sky blue'"]),
        (["why", "not", "--simulate"], ["unexpected extra argument", "in quotes"]),
        (["call", "why", "not"], ["unexpected extra argument", "in quotes"]),
        ([""], ["the prompt is empty"]),
    ],
)
def test_a_word_that_may_be_a_mistyped_command_is_refused(machine: Machine, args: list[str], words: list[str]) -> None:
    machine.run(*args, env={"CNLLM_MODEL": "glm-4.7"}).fails(2, *words)


def test_without_any_key_a_line_says_what_to_do(machine: Machine) -> None:
    for args in (("hi",), ("call", "hi"), ("chat",), ("models", "default")):
        machine.run(*args).fails(2, "no key", "cnllm keys set", "--simulate")


def test_the_first_model_with_a_key_is_asked_and_a_line_says_why(machine: Machine) -> None:
    for variable, provider in (
        ("ZHIPU_API_KEY", "zhipuai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("XAI_API_KEY", "xai"),
    ):
        done = machine.run("models", "default", env={variable: KEY})
        assert done.out.startswith(f"{provider}/")
        assert done.err == f"cnllm: {variable} is set\n"
        asked, err = model_of(machine, env={variable: KEY})
        assert done.out.strip() == f"{provider}/{asked}"
        assert err == f"cnllm: asking {provider}/{asked}: {variable} is set; cnllm models default M sets another\n"
    both = machine.run("models", "default", env={"XAI_API_KEY": KEY, "DEEPSEEK_API_KEY": KEY})
    assert both.out.startswith("deepseek/")  # the order of the registry
    assert machine.run("keys", "set", "XAI_API_KEY", stdin=KEY).status == 0
    assert "XAI_API_KEY is in the keys file" in machine.run("models", "default").err


def test_a_default_of_the_users_own(machine: Machine) -> None:
    env = {"DEEPSEEK_API_KEY": KEY}
    assert machine.run("models", "default", "glm-4.7", env=env).status == 0
    assert model_of(machine, env=env) == ("glm-4.7", "")
    assert machine.run("models", "default", env=env).out == "glm-4.7\n"
    assert model_of(machine, env={**env, "CNLLM_MODEL": "kimi-k3"}) == ("kimi-k3", "")
    assert model_of(machine, env={**env, "CNLLM_MODEL": " "}) == ("glm-4.7", "")
    assert model_of(machine, "-m", "zai/glm-5.3", env={**env, "CNLLM_MODEL": "kimi-k3"})[0] == "glm-5.3"
    done = machine.run("models", "default", "glm-5.3", env={**env, "CNLLM_MODEL": "kimi-k3"})
    assert "CNLLM_MODEL=kimi-k3 wins" in done.err
    machine.run("models", "default", "no-such-model").fails(2, "no-such-model")
    machine.run("models", "default", "tier:none").fails(2, "no tier")
    assert model_of(machine, env=env)[0] == "glm-5.3"  # the wrong ones changed nothing
    assert machine.run("models", "default", "--unset").status == 0
    assert model_of(machine, env=env)[0].startswith("deepseek")
    machine.run("hi", env={"CNLLM_MODEL": "glm-4.77"}).fails(2, "CNLLM_MODEL", "did you mean glm-4.7")


def test_the_users_own_models_and_list_count_too(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:1/v1")
    assert machine.run("models", "default").out == "home/m\n"
    assert machine.run("models", "default", env={"XAI_API_KEY": KEY}).out.startswith("xai/")
    file = machine.config / "providers.toml"
    file.write_text(f'default_models = ["home/m"]\n{file.read_text()}')
    assert machine.run("models", "default", env={"XAI_API_KEY": KEY}).out == "home/m\n"


def test_an_address_needs_the_model_it_serves(machine: Machine) -> None:
    for args in (("hi",), ("call", "hi"), ("chat",)):
        done = machine.run(*args, "--base-url", "http://127.0.0.1:1/v1", env={"DEEPSEEK_API_KEY": KEY})
        done.fails(2, "--model openai-compatible/ID")


def test_a_chat_asks_the_default_model_and_a_conversation_its_own(machine: Machine) -> None:
    machine.env["CNLLM_MODEL"] = "glm-4.7"
    done = chat(machine, "hello", args=("chat", "--simulate"))
    assert done.status == 0
    assert "zai/glm-4.7" in done.err
    done = machine.run("-c", "--simulate", "and now?", env={"CNLLM_MODEL": "kimi-k3"})
    assert "zai/glm-4.7" in done.err


def test_a_family_is_logged_by_the_model_that_answered(machine: Machine) -> None:
    done = machine.run("-m", "claude", "--simulate", "hello")
    name = "anthropic/claude-sonnet-5-5"
    assert f"claude → {name}" in done.err
    (entry,) = machine.run("logs", "list", "--json").json()
    assert name in str(entry)
