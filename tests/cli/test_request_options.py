"""Options → the body that is sent, as `--plan` shows it; `--plan` and `--curl` send nothing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from examples import share
from hypothesis import given, settings
from hypothesis import strategies as st

from cnllm.cli.output import curl

from .support import KEY, Machine, Server

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def body(machine: Machine, *args: str, stdin: bytes | str | None = None) -> dict[str, Any]:
    done = machine.run("call", "--model", "home/m", "--plan", *args, stdin=stdin)
    assert (done.status, done.err) == (0, "")
    found: dict[str, Any] = done.json()["body"]
    return found


def test_a_plan_is_the_request_without_its_key(machine: Machine, server: Server) -> None:
    done = machine.run("call", "--model", "home/m", "--plan", "hi")
    plan = done.json()
    assert set(plan) == {"method", "url", "headers", "body", "notes"}
    assert (plan["method"], plan["url"]) == ("POST", f"{server.url}/chat/completions")
    assert {name.lower(): value for name, value in plan["headers"].items()}["authorization"] == "Bearer [redacted]"
    assert plan["body"]["messages"] == [{"role": "user", "content": "hi"}]
    assert plan["body"]["stream"] is True
    assert KEY not in done.out + done.err
    assert not server.received


def test_a_plan_needs_no_key(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    del machine.env["HOME_TEST_KEY"]
    assert body(machine, "hi")["model"] == "m"
    assert machine.run("call", "--model", "home/m", "--curl", "hi").status == 0


def test_the_option_no_stream_asks_for_a_whole_reply(machine: Machine, server: Server) -> None:
    assert not body(machine, "--no-stream", "hi").get("stream")


@pytest.mark.parametrize(("default", "wanted"), [("true", True), ("false", False)])
def test_the_models_own_default_decides_where_the_command_says_nothing(
    machine: Machine, server: Server, default: str, wanted: bool
) -> None:
    own = machine.config / "providers.toml"
    own.write_text(f"{own.read_text()}call = {{ stream = {default}, seed = 7 }}\n")
    assert bool(body(machine, "hi").get("stream")) is wanted
    assert body(machine, "--stream", "hi")["stream"] is True
    assert not body(machine, "--no-stream", "hi").get("stream")
    assert body(machine, "hi")["seed"] == 7
    assert body(machine, "-p", "seed=0", "hi")["seed"] == 0


def test_system_images_tools_and_choice(machine: Machine, server: Server) -> None:
    sent = body(
        machine,
        *("-s", "Be brief.", "--image", machine.file("a.bin", PNG), "--image", "https://example.org/b.png"),
        *("--tools", machine.file("t.json", json.dumps([TOOL])), "--tool-choice", "look", "what?"),
    )
    system, user = sent["messages"]
    assert (system["role"], system["content"]) == ("system", "Be brief.")
    text, image, url = user["content"]
    assert text == {"type": "text", "text": "what?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert url["image_url"]["url"] == "https://example.org/b.png"
    assert sent["tools"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("content", [TOOL, [TOOL], {"tools": [TOOL]}, [TOOL["function"]]])
def test_tools_in_every_usual_shape(machine: Machine, server: Server, content: Any) -> None:
    sent = body(machine, "--tools", machine.file("t.json", json.dumps(content)), "hi")
    assert sent["tools"][0]["function"]["name"] == "look"


def test_parameters_reach_the_body_with_their_types(machine: Machine, server: Server) -> None:
    sent = body(
        machine,
        *(
            "-p",
            "temperature=0.2",
            "-p",
            "max_tokens=7",
            "-p",
            "seed=1",
            "-p",
            'stop=["a","b"]',
            "-p",
            "top_k=3",
        ),
        *("-p", "deep.er.flag=true", "-p", "deep.word=plain", "-p", 'deep.text="5"', "-p", "eq=a=b"),
        *("--extra-body", '{"deep": {"kept": null}, "top_k": 1}', "hi"),
    )
    assert (sent["temperature"], sent["max_tokens"], sent["seed"], sent["stop"]) == (0.2, 7, 1, ["a", "b"])
    assert sent["top_k"] == 3
    assert sent["deep"] == {"kept": None, "er": {"flag": True}, "word": "plain", "text": "5"}
    assert sent["eq"] == "a=b"


def test_a_parameter_that_is_an_option_by_name_stays_out_of_the_body(machine: Machine, server: Server) -> None:
    sent = body(machine, "-p", "if_cut=keep", "-p", "on_unsupported=send", "hi")
    assert not {"if_cut", "on_unsupported"} & sent.keys()


def test_text_and_stdin(machine: Machine, server: Server) -> None:
    def said(*args: str, stdin: bytes | str | None = None) -> str:
        text: str = body(machine, *args, stdin=stdin)["messages"][-1]["content"]
        return text

    assert said("hi") == "hi"
    assert said("-", stdin="piped\n") == "piped\n"
    assert said(stdin="为什么") == "为什么"
    assert said(stdin=b"\xef\xbb\xbfmarked") == "marked"
    assert said("look:", stdin="line\n") == "look:\n\nline\n"
    assert said("look:", stdin=" \n") == "look:"
    assert said("", stdin="only") == "only"


def test_reasoning_may_be_a_number(machine: Machine, server: Server) -> None:
    done = machine.run("call", "--model", "home/m", "--plan", "--reasoning", "2048", "hi")
    assert done.status == 0


# ── curl ─────────────────────────────────────────────────────────────────────
def test_a_curl_command_sends_what_the_plan_says(machine: Machine, server: Server) -> None:
    text = 'it\'s $HOME `id` "q" \\ \n! CNLLM é 🙂 \x1b[0m \x7f \u202e'
    shown = machine.run("call", "--model", "home/m", "--curl", text)
    assert (shown.status, shown.err) == (0, "")
    assert not server.received
    assert KEY not in shown.out
    assert "$HOME_TEST_KEY" in shown.out
    assert "\x1b" not in shown.out
    ran = subprocess.run(["bash", "-c", shown.out], env=machine.env, capture_output=True, check=True)
    assert b"[DONE]" in ran.stdout
    sent = server.received[0]
    assert sent.json() == body(machine, text)
    assert f"authorization: bearer {KEY}".lower() in sent.head.lower()


def test_curl_says_when_the_variable_is_not_set(machine: Machine) -> None:
    machine.overlay("http://127.0.0.1:9/v1")
    del machine.env["HOME_TEST_KEY"]
    done = machine.run("call", "--model", "home/m", "--curl", "hi")
    assert (done.status, "HOME_TEST_KEY is not set" in done.err) == (0, True)
    done = machine.run("call", "--model", "home/m", "--key-env", "MY_OWN", "--curl", "hi", env={"MY_OWN": KEY})
    assert "$MY_OWN" in done.out
    assert (KEY in done.out, done.err) == (False, "")


@settings(max_examples=share(40), deadline=None)
@given(
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    value=st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"])),
)
def test_no_text_escapes_from_a_curl_command(text: str, value: str) -> None:
    shown = curl.curl_command(
        "POST",
        f"http://x/{value}",
        {"A": "Bearer {key}!" + value, "B": value},
        {"text": text},
        placeholder="{key}",
        env="K",
    )
    script = f'curl() {{ printf "%s\\0" "$@"; cat; }}\n{shown}\n'
    ran = subprocess.run(
        ["bash", "-c", script], env={"K": "the key", "PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    assert ran.stderr == b""
    *args, sent = ran.stdout.decode().split("\0")
    assert args[3:] == [
        "POST",
        f"http://x/{value}",
        "-H",
        f"A: Bearer the key!{value}",
        "-H",
        f"B: {value}",
        "--data-binary",
        "@-",
    ]
    assert json.loads(sent) == {"text": text}


def test_a_curl_command_takes_no_strange_variable() -> None:
    with pytest.raises(ValueError):
        curl.curl_command("POST", "http://x", {"A": "{key}"}, {}, placeholder="{key}", env="$(id)")


def test_an_older_spelling_does_the_same_in_silence(machine: Machine, server: Server) -> None:
    machine.overlay(server.url, "input = ['text', 'image']\n")
    picture = machine.file("a.bin", PNG)
    new = machine.run("call", "-m", "home/m", "--plan", "-a", picture, "-a", "https://example.org/b", "hi")
    old = machine.run("call", "-m", "home/m", "--plan", "-a", picture, "--image", "https://example.org/b", "hi")
    assert (new.status, new.err) == (0, "")
    assert old == new


@pytest.mark.parametrize(("one", "two"), [("--json", "--events"), ("--plan", "--curl"), ("--json", "--plan")])
def test_two_forms_of_the_output_are_one_too_many(machine: Machine, one: str, two: str) -> None:
    machine.run("call", "-m", "glm-4.7", "--simulate", one, two, "hi").fails(2, one, two, "give one of them")
    assert machine.run("call", "-m", "glm-4.7", "--simulate", one, one, "hi").status == 0
