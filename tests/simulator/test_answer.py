"""What it says: in the prompt's language, with calls, results, limits, stops and schemas."""

import json
import re
from typing import Any

import jsonschema
import pytest
from cases import each

import cnllm

from .support import REGISTRY, ask, called, choice, result, send, taken, told, tool, user

ZH = "为什么天空是蓝色的？"


def test_an_answer_says_that_it_is_simulated_and_echoes_the_prompt() -> None:
    said = choice("plain/m", ask())
    assert said["finish_reason"] == "stop"
    assert "Simulated answer" in said["message"]["content"]
    assert "Why is the sky blue?" in said["message"]["content"]


def test_in_the_language_of_the_last_user_message() -> None:
    assert "模拟" in choice("plain/m", ask(ZH))["message"]["content"]
    assert ZH in choice("plain/m", ask(ZH))["message"]["content"]
    turns = told(user(ZH), {"role": "assistant", "content": "好"}, user("and now in English?"))
    assert "Simulated" in choice("plain/m", turns)["message"]["content"]


def test_the_same_request_gets_the_same_bytes() -> None:
    assert send("strict/m", ask(ZH)) == send("strict/m", ask(ZH))
    assert taken("strict/m", ask("a"))["id"] != taken("strict/m", ask("b"))["id"]


def test_reasoning_only_where_it_thinks() -> None:
    message = choice("strict/m", ask(ZH))["message"]
    assert message["thoughts"].count("。") >= 2
    assert set(choice("plain/m", ask(ZH))["message"]) == {"role", "content"}


# ── tools ────────────────────────────────────────────────────────────────────
WEATHER = {
    "type": "object",
    "properties": {
        "where": {"$ref": "#/$defs/Place"},
        "unit": {"enum": ["celsius", "kelvin"]},
        "days": {"type": "integer", "minimum": 3},
        "note": {"type": "string"},
    },
    "required": ["where", "unit", "days"],
    "$defs": {
        "Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def calls_of(said: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    calls = said["message"]["tool_calls"]
    assert said["finish_reason"] == "tool_calls"
    assert all(c["type"] == "function" and isinstance(c["function"]["arguments"], str) for c in calls)
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


def test_the_first_tool_is_called_with_arguments_that_satisfy_its_schema() -> None:
    said = choice("plain/m", ask(tools=[tool("weather", WEATHER), tool()]))
    assert said["message"]["content"] is None
    [(name, arguments)] = calls_of(said)
    assert name == "weather"
    jsonschema.validate(arguments, WEATHER)


def test_the_named_tool_is_called() -> None:
    wanted = {"type": "function", "function": {"name": "search"}}
    body = ask(tools=[tool("weather", WEATHER), tool()], tool_choice=wanted)
    assert [name for name, _ in calls_of(choice("plain/m", body))] == ["search"]


def test_no_call_when_none_is_to_be_made() -> None:
    said = choice("plain/m", ask(tools=[tool()], tool_choice="none"))
    assert said["finish_reason"] == "stop"
    assert "tool_calls" not in said["message"]


@each("text", ["two things in Parallel", "并行查两个"])
def test_two_calls_where_parallel_ones_are_asked_for(text: str) -> None:
    both = ask(text, tools=[tool("a"), tool("b")])
    assert [name for name, _ in calls_of(choice("plain/m", both))] == ["a", "b"]
    said = choice("plain/m", ask(text, tools=[tool("a")]))
    (_, one), (_, other) = calls_of(said)
    assert one != other
    assert len({c["id"] for c in said["message"]["tool_calls"]}) == 2
    assert len(calls_of(choice("plain/m", both | {"parallel_tool_calls": False}))) == 1


def test_call_ids_have_the_endpoints_form_and_differ_from_turn_to_turn() -> None:
    first = choice("strict/m", ask("parallel", tools=[tool()]))["message"]
    ids = [c["id"] for c in first["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", i) for i in ids)
    turns = told(user("parallel"), first | {"content": ""}, *map(result, ids), user("x"), tools=[tool()])
    then = choice("strict/m", turns)["message"]["tool_calls"][0]["id"]
    assert then not in ids


def test_a_tool_without_parameters_gets_none() -> None:
    bare = {"type": "function", "function": {"name": "now"}}
    assert calls_of(choice("plain/m", ask(tools=[bare]))) == [("now", {})]


def test_the_endpoints_own_tools_are_not_called() -> None:
    said = choice("plain/m", ask(tools=[{"type": "web_search"}]))
    assert said["finish_reason"] == "stop"


def test_results_are_quoted() -> None:
    body = told(user(), called(), result(text="blue light scatters"), tools=[tool()])
    said = choice("plain/m", body)
    assert said["finish_reason"] == "stop"
    assert "search" in said["message"]["content"]
    assert "blue light scatters" in said["message"]["content"]


# ── limits and stops ─────────────────────────────────────────────────────────
def test_max_tokens_cuts_the_answer() -> None:
    all_of_it = choice("plain/m", ask())["message"]["content"]
    body = taken("plain/m", ask(max_tokens=5))
    said = body["choices"][0]
    assert said["finish_reason"] == "length"
    assert all_of_it.startswith(said["message"]["content"])
    assert body["usage"]["completion_tokens"] == 5
    assert choice("plain/m", ask(max_tokens=10_000))["finish_reason"] == "stop"


def test_max_tokens_is_spent_on_reasoning_first() -> None:
    body = taken("strict/m", ask(max_completion_tokens=5))
    message = body["choices"][0]["message"]
    assert (message["content"], len(message["thoughts"]) > 0) == ("", True)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5


def test_max_tokens_cuts_a_call_in_the_middle() -> None:
    said = choice("plain/m", ask("a b c d e f g", tools=[tool()], max_tokens=4))
    assert said["finish_reason"] == "length"
    with pytest.raises(ValueError):
        json.loads(said["message"]["tool_calls"][0]["function"]["arguments"])
    unnamed = choice("strict/m", ask(tools=[tool()], max_completion_tokens=5))
    assert "tool_calls" not in unnamed["message"]


def test_only_the_endpoints_own_field_limits() -> None:
    assert choice("strict/m", ask(max_tokens=5))["finish_reason"] == "stop"


@each("stop", ["built-in", ["nowhere", "built-in"]])
def test_stop_ends_the_answer_before_it(stop: Any) -> None:
    said = choice("plain/m", ask(stop=stop))
    assert said["finish_reason"] == "stop"
    assert said["message"]["content"].endswith("from the ")


# ── JSON ─────────────────────────────────────────────────────────────────────
def test_an_answer_that_satisfies_a_schema() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}}
    said = choice("plain/m", ask(response_format=wanted))
    jsonschema.validate(json.loads(said["message"]["content"]), WEATHER)


def test_an_answer_that_is_a_json_object() -> None:
    said = choice("plain/m", ask(response_format={"type": "json_object"}))
    assert json.loads(said["message"]["content"])["simulated"] is True


def test_a_schema_that_stands_in_the_prompt() -> None:
    text = f"Answer in JSON, after this schema: {json.dumps(WEATHER)} and nothing else."
    for more in ({"response_format": {"type": "json_object"}}, {}):
        said = choice("plain/m", told({"role": "system", "content": text}, user(), **more))
        jsonschema.validate(json.loads(said["message"]["content"]), WEATHER)


def test_the_schema_of_a_dict_in_the_prompt() -> None:
    with cnllm.Client(simulate=True) as client:
        for name in ("zai/glm-4.7", "openai/gpt-5.2"):
            reply = client.call(name, "How many rivers has each city?", schema=dict[str, int])
            assert type(reply.parsed) is dict
            assert "answer-corrected" not in {note.code for note in reply.notes}


def test_braces_in_the_prompt_are_no_schema() -> None:
    for text in ("json {", "json {}", "json " + "{" * 500, 'json {"type": "object"}'):
        assert "Simulated" in choice("plain/m", ask(text))["message"]["content"]


@pytest.mark.parametrize("name", ["moonshotai/kimi-k2.6", "anthropic/claude-sonnet-5", "openai/gpt-5.5"])
def test_a_picture_in_a_result_is_no_new_question(name: str) -> None:
    @cnllm.tool
    def draw() -> cnllm.Media:
        """Draw a chart."""
        return cnllm.Media("image/png", "iVBORw0KGgo=")

    with cnllm.Client(simulate=True) as client:
        run = client.run(name, "What is new here?", tools=[draw])
    assert (run.stopped, run.calls) == ("done", 1)
    assert "draw returned" in run.reply.text


# ── usage ────────────────────────────────────────────────────────────────────
def test_usage_adds_up() -> None:
    usage = taken("strict/m", ask())["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_what_was_said_before_counts_as_cached() -> None:
    usage = taken("plain/m", told(user(), {"role": "assistant", "content": "hi"}, user()))["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_the_registry_of_these_tests_is_whole() -> None:
    assert len(REGISTRY.names()) == 13


def test_a_prompt_that_begins_a_schema_and_never_ends_it_is_answered() -> None:
    prompt = 'as json: {"type":' + "[" * 5000
    assert "Simulated answer" in choice("plain/m", ask(prompt))["message"]["content"]
