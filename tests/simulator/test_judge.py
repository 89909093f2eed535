"""Refusals: when, with which status, in whose words. Bytes in, bytes out."""

import json
from typing import Any

from builtin import BUILTIN
from cases import each

from .support import (
    Json,
    ask,
    called,
    choice,
    refused,
    result,
    send,
    taken,
    told,
    tool,
    user,
)


def param(message: str, name: str) -> tuple[int, str]:
    return 400, f'{{"error":{{"message":"bad {name}: {message}","param":"{name}"}}}}'


ASLEEP: Json = {"mind": {"state": "asleep"}}


def plain_error(text: str) -> Json:
    error: Json = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


# ── key, model, shape ────────────────────────────────────────────────────────
@each("headers", [{}, {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": "Token k"}])
def test_missing_key_in_the_endpoints_words(headers: dict[str, str]) -> None:
    assert refused("strict/m", ask(), headers) == (403, '{"msg":"no key","code":7}')


def test_header_names_are_read_in_any_case() -> None:
    assert send("strict/m", ask(), {"authorization": "Bearer k"})[0] == 200


def test_no_key_is_needed_where_none_is_declared() -> None:
    assert send("plain/m", ask(), {})[0] == 200


def test_another_model_is_not_served() -> None:
    status, text = refused("plain/m", ask(model="other"))
    assert status == 404
    assert plain_error(text)["code"] == "model"


@each("body", [{}, {"messages": []}, {"messages": "hi"}, {"messages": [1]}, {"messages": [{}]}])
def test_messages_that_are_malformed_are_refused(body: Json) -> None:
    status, text = refused("plain/m", body)
    assert (status, plain_error(text)["type"]) == (400, "invalid_request_error")


def test_tools_that_are_malformed_are_refused() -> None:
    assert refused("plain/m", ask(tools="all"))[0] == 400
    assert refused("plain/m", ask(tools=[{"type": "function", "function": {}}]))[0] == 400


# ── messages ─────────────────────────────────────────────────────────────────
def test_unknown_role_in_the_endpoints_words() -> None:
    body = told({"role": "developer", "content": "x"}, user())
    assert refused("strict/m", body) == (422, "unknown variant `developer` of m")


def test_unknown_role_in_plain_words() -> None:
    status, text = refused("plain/m", told({"role": "wizard", "content": "x"}))
    assert (status, plain_error(text)["param"]) == (400, "messages[0].role")


def test_system_message_after_the_start() -> None:
    late = told(user(), {"role": "system", "content": "x"})
    status, text = refused("strict/m", late)
    assert (status, plain_error(text)["code"]) == (400, "system_place")
    assert send("plain/m", late)[0] == 200
    assert send("strict/m", told({"role": "system", "content": "x"}, user()))[0] == 200


def test_two_in_a_row() -> None:
    body = told(user("a"), user("b"))
    status, text = refused("strict/m", body)
    assert (status, plain_error(text)["code"]) == (400, "alternation")
    assert send("plain/m", body)[0] == 200


def test_first_must_be_the_users() -> None:
    body = told({"role": "system", "content": "x"}, {"role": "assistant", "content": "hi"}, user())
    assert plain_error(refused("strict/m", body)[1])["code"] == "alternation"


def test_a_call_without_its_result() -> None:
    status, text = refused("plain/m", told(user(), called(), user()))
    assert (status, plain_error(text)["code"]) == (400, "results")
    assert refused("plain/m", told(user(), called()))[0] == 400


def test_a_result_without_its_call() -> None:
    assert plain_error(refused("plain/m", told(user(), result()))[1])["code"] == "results"
    twice = told(user(), called(), result(), result())
    assert plain_error(refused("plain/m", twice)[1])["code"] == "results"
    assert refused("plain/m", told(user(), called(), user("x"), result()))[0] == 400


@each("arguments", ["{", "[]", "null", "", None, {"q": "a"}])
def test_arguments_that_are_no_json_object(arguments: Any) -> None:
    status, text = refused("plain/m", told(user(), called(arguments=arguments), result()))
    assert (status, plain_error(text)["code"]) == (400, "arguments")


def test_call_ids_of_another_form() -> None:
    status, text = refused("strict/m", told(user(), called("call_1"), result("call_1"), **ASLEEP))
    assert (status, plain_error(text)["code"]) == (400, "results")
    assert send("plain/m", told(user(), called("call_1"), result("call_1")))[0] == 200


def test_an_empty_list_of_calls() -> None:
    body = told(user(), {"role": "assistant", "content": "hi", "tool_calls": []}, user())
    assert plain_error(refused("plain/m", body)[1])["code"] == "empty_tools"


@each("content", [None, "absent"])
def test_content_that_is_null(content: str | None) -> None:
    message = {"role": "user", "content": None} if content is None else {"role": "user"}
    status, text = refused("plain/m", told(message))
    assert (status, plain_error(text)["code"]) == (400, "content")


def test_a_picture_in_a_result() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    status, text = refused("plain/m", told(user(), called(), {**result(), "content": [picture]}))
    assert (status, plain_error(text)["code"]) == (400, "content")


def test_a_key_that_no_one_knows_where_names_are_checked() -> None:
    model = BUILTIN.resolve("groq/openai/gpt-oss-120b")
    odd = {**user(), "provider_specific_fields": {}}
    status, content = send(model, told(odd))
    assert status == 400
    assert b"provider_specific_fields" in content
    assert send(model, told(user()))[0] == 200
    assert send("plain/m", told(odd))[0] == 200


def test_empty_content_where_the_endpoint_minds() -> None:
    body = told(user(), {"role": "assistant", "content": ""}, user())
    assert refused("strict/m", body) == (
        400,
        '{"error":{"message":"message 1 of assistant must not be empty"}}',
    )
    assert send("plain/m", body)[0] == 200


def test_parts_where_only_a_string_is_taken() -> None:
    body = told({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    assert refused("strict/m", body)[0] == 400
    assert send("plain/m", body)[0] == 200


def test_a_picture_where_only_text_is_read() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body = told({"role": "user", "content": [{"type": "text", "text": "hi"}, image]})
    assert refused("strict/m", body)[0] == 400
    assert send("plain/m", body)[0] == 200


def test_null_beside_calls_where_a_string_is_demanded() -> None:
    null = told(user(), called(content=None, thoughts="t"), result(), **ASLEEP)
    assert refused("strict/m", null)[0] == 400
    assert send("strict/m", told(user(), called(thoughts="t"), result(), **ASLEEP))[0] == 200


# ── reasoning ────────────────────────────────────────────────────────────────
MISSING = (400, '{"error":{"message":"thoughts missing at 1"}}')


def test_reasoning_not_replayed_with_a_call() -> None:
    body = told(user(), called(), result())
    assert refused("strict/m", body) == MISSING
    assert send("strict/m", told(user(), called(thoughts="t"), result()))[0] == 200
    assert send("strict/m", {**body, **ASLEEP})[0] == 200


def test_empty_reasoning_where_a_space_is_demanded() -> None:
    assert refused("strict/m", told(user(), called(thoughts=""), result())) == MISSING
    assert send("strict/m", told(user(), called(thoughts=" "), result()))[0] == 200


def test_a_turn_without_calls_need_not_carry_it() -> None:
    assert send("strict/m", told(user(), {"role": "assistant", "content": "hi"}, user()))[0] == 200


def test_only_since_the_last_user_message() -> None:
    earlier = told(user(), called(), result(), {"role": "assistant", "content": "so"}, user())
    assert send("strict/since", earlier)[0] == 200
    assert refused("strict/since", told(user(), called(), result())) == MISSING


def test_always_means_every_turn_once_one_has_it() -> None:
    bare = {"role": "assistant", "content": "hi"}
    carrying = {**bare, "thoughts": "t"}
    assert send("strict/always", told(user(), bare, user()))[0] == 200
    assert send("strict/always", told(user(), carrying, user(), carrying, user()))[0] == 200
    assert refused("strict/always", told(user(), carrying, user(), bare, user())) == (
        400,
        '{"error":{"message":"thoughts missing at 3"}}',
    )
    assert refused("strict/always", told(user(), called(), result())) == MISSING


def test_details_must_be_a_list() -> None:
    sent: Json = {"details": [{"text": "t"}]}
    assert refused("details/m", told(user(), called(details="t"), result())) == (400, "details missing")
    assert send("details/m", told(user(), called(**sent), result()))[0] == 200


def test_reasoning_sent_where_it_is_forbidden() -> None:
    body = told(user(), {"role": "assistant", "content": "hi", "thoughts": "t"}, user())
    assert refused("forgetful/m", body) == (400, '{"error":"thoughts at 1"}')


def test_a_field_that_is_not_the_one_it_goes_back_in() -> None:
    body = told(user(), {"role": "assistant", "content": "hi", "thoughts": "t"}, user())
    assert refused("parts/m", body) == (422, "extra input at 1")
    musing = {"type": "musing", "musing": [{"type": "text", "text": "t"}]}
    body = told(user(), {"role": "assistant", "content": [musing, {"type": "text", "text": "hi"}]}, user())
    assert send("parts/m", body)[0] == 200


def test_off_where_it_always_thinks() -> None:
    status, text = refused("strict/always", ask(**ASLEEP))
    assert (status, plain_error(text)["code"]) == (400, "reasoning_off")
    assert send("strict/always", ask(mind={"state": "awake"}))[0] == 200


def test_mode_is_read_out_of_the_body() -> None:
    assert "thoughts" in choice("strict/m", ask())["message"]
    assert "thoughts" not in choice("strict/m", ask(**ASLEEP))["message"]
    assert "thoughts" in choice("strict/m", ask(strain="high"))["message"]
    assert "thoughts" not in choice("strict/m", ask(strain="none"))["message"]


@each("budget", [9, 101, "many", True])
def test_budget_out_of_range(budget: Any) -> None:
    said = budget if isinstance(budget, str) else json.dumps(budget)
    assert refused("strict/m", ask(mind={"budget": budget})) == param(said, "mind.budget")


def test_budget_stays_under_max_tokens() -> None:
    assert send("strict/m", ask(mind={"budget": 50}, max_completion_tokens=51))[0] == 200
    body = ask(mind={"budget": 50}, max_completion_tokens=50)
    assert refused("strict/m", body) == param("50", "mind.budget")


# ── tools ────────────────────────────────────────────────────────────────────
NAMED = {"type": "function", "function": {"name": "search"}}


@each("sent, word", [("required", "required"), (NAMED, "named"), ("any", "any")])
def test_tool_choice_that_is_not_allowed(sent: Any, word: str) -> None:
    body = ask(tools=[tool()], tool_choice=sent)
    assert refused("strict/m", body) == (400, f'{{"error":{{"message":"no {word} while awake"}}}}')


def test_tool_choice_depends_on_the_mode() -> None:
    for sent in ("auto", "none", "required", NAMED):
        assert send("strict/m", ask(tools=[tool()], tool_choice=sent, **ASLEEP))[0] == 200
    assert send("strict/m", ask(tools=[tool()], tool_choice="auto"))[0] == 200


def test_tool_choice_without_tools_or_of_an_unknown_tool() -> None:
    assert plain_error(refused("plain/m", ask(tool_choice="auto"))[1])["code"] == "tool_choice"
    body = ask(tools=[tool("other")], tool_choice=NAMED)
    assert plain_error(refused("plain/m", body)[1])["code"] == "tool_choice"


def test_no_tools_in_the_list() -> None:
    status, text = refused("plain/m", ask(tools=[]))
    assert (status, plain_error(text)["code"]) == (400, "empty_tools")


def test_a_function_without_parameters() -> None:
    bare = {"type": "function", "function": {"name": "search"}}
    assert plain_error(refused("strict/m", ask(tools=[bare]))[1])["code"] == "parameters"
    assert send("plain/m", ask(tools=[bare]))[0] == 200


def test_a_name_that_is_too_long() -> None:
    assert refused("strict/m", ask(tools=[tool("x" * 13)])) == param("x" * 13, "tools[0].function.name")


# ── parameters ───────────────────────────────────────────────────────────────
@each(
    "name, value",
    [
        ("temperature", 0),
        ("temperature", 1.5),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0.05),
        ("top_p", 1),
        ("stop", ["a", "b", "c"]),
        ("seed", 7),
        ("n", 2),
        ("max_completion_tokens", 0),
        ("max_completion_tokens", "all"),
    ],
)
def test_parameters_out_of_range_refused_or_fixed(name: str, value: Any) -> None:
    shown = value if isinstance(value, str) else json.dumps(value)
    status, text = refused("strict/m", ask(**{name: value}))
    assert status == 400
    assert json.loads(text)["error"] == {"message": f"bad {name}: {shown}", "param": name}


def test_parameters_in_range() -> None:
    assert send("strict/m", ask(temperature=0.01, top_p=0.99, stop=["a", "b"], n=1))[0] == 200
    assert send("strict/m", ask(temperature=None, seed=None))[0] == 200
    assert send("plain/m", ask(temperature=5, seed=7))[0] == 200


def test_a_parameter_not_taken_is_refused_only_by_an_endpoint_that_says_which() -> None:
    assert send("twins/m", ask(seed=7))[0] == 200
    assert refused("strict/m", ask(seed=7)) == param("7", "seed")


def test_max_tokens_over_the_limit() -> None:
    status, text = refused("strict/m", ask(max_completion_tokens=1001))
    assert (status, plain_error(text)["code"]) == (400, "max_tokens")


def test_values_are_escaped_where_a_refusal_is_json() -> None:
    status, text = refused("strict/m", ask(temperature='say "hi"\n'))
    assert (status, json.loads(text)["error"]["message"]) == (400, 'bad temperature: say "hi"\n')


# ── answers with a schema, streaming ─────────────────────────────────────────
def test_response_format_that_is_not_offered() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    assert plain_error(refused("strict/m", ask("json", response_format=schema))[1])["code"] == "schema"
    assert send("plain/m", ask(response_format=schema))[0] == 200
    assert refused("plain/m", ask(response_format={"type": "poem"}))[0] == 400


def test_the_word_that_must_be_said() -> None:
    body: Json = {"response_format": {"type": "json_object"}}
    assert refused("strict/m", ask("hi", **body))[0] == 400
    assert send("strict/m", ask("answer in JSON", **body))[0] == 200


def test_a_whole_reply_is_refused_where_streams_are_required() -> None:
    assert plain_error(refused("strict/streams", ask())[1])["code"] == "stream_required"
    assert send("strict/streams", ask(stream=True))[0] == 200


def test_what_is_right_is_taken() -> None:
    first = taken("strict/m", ask(tools=[tool()]))["choices"][0]["message"]
    body = told(user(), first | {"content": ""}, result(first["tool_calls"][0]["id"]), tools=[tool()])
    assert send("strict/m", body)[0] == 200
