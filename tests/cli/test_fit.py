"""`cnllm fit`: a history in, legal messages out, what was changed on stderr."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .support import Machine

CALL = {"id": "a:0", "type": "function", "function": {"name": "f", "arguments": '{"items": "[1]"'}}
BROKEN: list[Any] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "hm", "by": "zai/glm-4.7"},
    {"role": "user", "content": "go on"},
]
NAME = "mistral/mistral-small-latest"


def test_messages_go_to_stdout_and_notes_to_stderr(machine: Machine) -> None:
    for given in (BROKEN, {"messages": BROKEN, "model": "other"}):
        done = machine.run("fit", "--model", NAME, stdin=json.dumps(given))
        assert done.status == 0
        user, call, result, last = done.json()
        assert (user, last) == (BROKEN[0], BROKEN[2])
        assert call["tool_calls"][0]["function"]["arguments"] == "{}"
        assert result["tool_call_id"] == call["tool_calls"][0]["id"]
        assert "interrupted" in result["content"]
        lines = done.err.splitlines()
        assert len(lines) == 4
        assert all(line.startswith("note: ") and "messages[1]" in line for line in lines)


def test_json_holds_messages_and_notes(machine: Machine) -> None:
    done = machine.run("fit", "-m", NAME, "--json", stdin=json.dumps(BROKEN))
    fitted = done.json()
    assert (done.status, done.err) == (0, "")
    assert list(fitted) == ["messages", "notes"]
    codes = [note["code"] for note in fitted["notes"]]
    assert codes == ["arguments-emptied", "call-unanswered", "reasoning-foreign", "ids-renamed"]
    assert all(note["where"].startswith("providers.toml:") for note in fitted["notes"])


def test_the_hint_for_a_medium_that_the_model_does_not_read_can_be_followed(machine: Machine) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    history = json.dumps([{"role": "user", "content": [{"type": "text", "text": "hi"}, image]}])
    refused = machine.run("fit", "-m", "glm-4.7", stdin=history)
    assert refused.status == 2
    option = refused.err.rsplit("leave it out: ", 1)[1].split()
    assert option == ["-p", "on_unsupported=adjust"]
    done = machine.run("fit", "-m", "glm-4.7", *option, stdin=history)
    assert (done.status, len(done.json())) == (0, 1)
    assert "image" in done.err


def test_what_was_fitted_fits(machine: Machine) -> None:
    once = machine.run("fit", "-m", NAME, stdin=json.dumps(BROKEN))
    twice = machine.run("fit", "-m", NAME, stdin=once.out)
    assert (twice.out, twice.err) == (once.out, "")


def test_tools_tell_what_was_encoded_twice(machine: Machine) -> None:
    schema = {"type": "object", "properties": {"items": {"type": "array"}}}
    tools = machine.file("tools.json", json.dumps([{"name": "f", "parameters": schema}]))
    function = {"name": "f", "arguments": '{"items": "[1]"}'}
    history = [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}]
    done = machine.run("fit", "-m", "glm-4.7", "--tools", tools, stdin=json.dumps(history))
    assert done.json()[0]["tool_calls"][0]["function"]["arguments"] == '{"items":[1]}'


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("", "not valid JSON"),
        ("[", "stdin:1"),
        ("{}", "no list of messages"),
        ("[]", "no list of messages"),
        ('"hi"', "no list of messages"),
        ('{"role": "user", "content": "hi"}', "no list of messages"),
        ('[{"role": "us"}]', "messages[0]"),
        ("[1]", "messages[0]"),
        (b"\xff", "UTF-8"),
    ],
)
def test_what_is_no_history_is_told_in_two_lines(machine: Machine, stdin: str | bytes, words: str) -> None:
    machine.run("fit", "-m", "glm-4.7", stdin=stdin).fails(2, words)


def test_a_model_that_no_one_knows(machine: Machine) -> None:
    machine.run("fit", "-m", "no-such-model", stdin=json.dumps(BROKEN)).fails(2, "no-such-model")
