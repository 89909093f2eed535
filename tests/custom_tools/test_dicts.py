"""Messages as dicts may hold calls of custom tools, as chat completions write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cnllm import Client, Message, Registry

from .support import GOOD, nested
from .test_native import native

Json = dict[str, Any]
ASK: Json = {"role": "user", "content": "Go."}
RESULT: Json = {"role": "tool", "tool_call_id": "c1", "content": "done"}


def turn(**custom: Any) -> Json:
    """An assistant turn with one call, as OpenAI's SDK dumps it."""
    call = {"id": "c1", "type": "custom", "custom": custom}
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}


def test_a_call_goes_to_a_chat_endpoint_as_one_of_the_function() -> None:
    messages = [ASK, turn(name="apply_patch", input=GOOD), RESULT]
    plan = Client(Registry.load()).plan("deepseek-flash", messages, tools=[nested()])
    [call] = plan.body["messages"][1]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "apply_patch")
    assert json.loads(call["function"]["arguments"]) == {"input": GOOD}


def test_a_call_goes_to_an_endpoint_with_custom_tools_as_it_was(tmp_path: Path) -> None:
    messages = [ASK, turn(name="apply_patch", input=GOOD), RESULT]
    plan = Client(Registry.load()).plan(native(tmp_path), messages, tools=[nested()])
    call = next(item for item in plan.body["input"] if item.get("type") == "custom_tool_call")
    assert (call["name"], call["input"]) == ("apply_patch", GOOD)


def test_a_call_without_input_has_an_empty_one() -> None:
    [call] = Message.from_dict(turn(name="apply_patch", input=None)).parts
    assert call.arguments == {"input": ""}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("custom", "place"), [({"input": "x"}, "tool_calls[0].custom.name"), ({"name": "p", "input": 3}, "custom.input")]
)
def test_a_wrong_call_is_named_with_its_place(custom: Json, place: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        Client(Registry.load()).plan("deepseek-flash", [ASK, turn(**custom), RESULT])
    assert place in str(raised.value)
    assert "messages[1]" in str(raised.value)


@pytest.mark.parametrize(
    "choice",
    ["apply_patch", {"type": "custom", "custom": {"name": "apply_patch"}}, {"type": "custom", "name": "apply_patch"}],
)
def test_a_choice_of_a_custom_tool_names_it(choice: Any) -> None:
    plan = Client(Registry.load()).plan("gpt-5", [ASK], tools=[nested()], tool_choice=choice)
    assert plan.body["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
