"""Tools that clients of Responses execute and know by their types: functions for every model, items for the client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.clients import CHAT, MESSAGES, RESPONSES, endpoint
from protocols.test_client_tools import APPLY_PATCH, PARAMETERS, call, done, function, names, request, written

from cnllm import Registry, ToolCall, ToolResult, engine
from cnllm.protocols import PROTOCOLS

Json = dict[str, Any]
SHELL: Json = {"commands": ["ls -l", "pwd"], "timeout_ms": 5000}
PATCH: Json = {"type": "update_file", "path": "a.py", "diff": "@@\n-x\n+y\n"}
CASES: dict[str, tuple[Json, str, Json, Json, str]] = {
    "shell": (
        SHELL,
        "shell_call",
        {"action": {"commands": ["ls -l", "pwd"], "timeout_ms": 5000, "max_output_length": None}},
        {
            "type": "shell_call_output",
            "output": [
                {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "no such thing", "outcome": {"type": "exit", "exit_code": 2}},
                {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
            ],
        },
        "a.txt\n[exit code 0]\nno such thing\n[exit code 2]\n[the command took too long and was ended]",
    ),
    "apply_patch": (
        PATCH,
        "apply_patch_call",
        {"operation": PATCH},
        {"type": "apply_patch_call_output", "status": "failed", "output": "no line -x"},
        "no line -x",
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_built_in_tool_is_a_function_and_its_calls_are_its_items(kind: str) -> None:
    arguments, item_kind, fields, output, text = CASES[kind]
    body = request(tools=[{"type": kind}], tool_choice={"type": kind})
    decoded = engine.decode_request(RESPONSES, body)
    [tool] = decoded.options["tools"]
    assert (tool["type"], tool["function"]["name"]) == ("function", kind)
    assert decoded.options["tool_choice"] == {"type": "function", "function": {"name": kind}}
    whole, frames = written(body, call(kind, **arguments))
    [item] = whole["output"]
    assert (item["type"], item["call_id"], item["status"]) == (item_kind, "call_1", "completed")
    assert {key: item[key] for key in fields} == fields
    assert [one | {"id": ""} for one in done(frames)] == [item | {"id": ""}]
    assert frames[-1]["response"]["output"] == done(frames)
    again = {**body, "input": [*body["input"], item, {**output, "call_id": "call_1"}]}
    messages = engine.decode_request(RESPONSES, again).messages
    called, result = messages[-2].parts[0], messages[-1].parts[0]
    assert type(called) is ToolCall
    assert type(result) is ToolResult
    assert (called.name, called.arguments) == (kind, arguments)
    assert (result.id, result.text, result.error) == ("call_1", text, kind == "apply_patch")
    content = engine.build_request(endpoint(CHAT), messages, **decoded.options).content.decode()
    assert item_kind not in content


def test_a_function_of_the_client_may_have_the_name_of_a_built_in_tool() -> None:
    body = request(tools=[function("shell"), {"type": "shell"}, {"type": "apply_patch"}])
    own, built_in, editor = names(body)
    assert (own, editor) == ("shell", "apply_patch")
    assert built_in not in (own, editor)
    whole, _ = written(body, call(own, q="x"), ToolCall("c2", built_in, SHELL, json.dumps(SHELL)))
    assert [item["type"] for item in whole["output"]] == ["function_call", "shell_call"]
    assert "namespace" not in whole["output"][1]


def test_a_shell_of_the_endpoint_and_its_calls_are_not_the_client_s() -> None:
    hosted = {"type": "shell", "environment": {"type": "container_auto"}}
    ran = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"}
    ran["environment"] = {"type": "container_reference", "container_id": "cntr_1"}
    gave = {"type": "shell_call_output", "call_id": "c", "output": []}
    body = request(ran, gave, tools=[hosted])
    assert names(body) == ["shell"]
    decoded = engine.decode_request(RESPONSES, body)
    assert not any(message.tool_calls or message.role == "tool" for message in decoded.messages)
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert "tool-foreign" in [note.code for note in plan.notes]


def test_what_a_search_of_the_endpoint_found_is_offered_in_full() -> None:
    found = {"type": "namespace", "name": "mail", "description": "The user's mail.", "tools": [function("send")]}
    search = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["mail"]}}
    output = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [found]}
    body = request(search, output, tools=[{"type": "tool_search"}, function("read", defer_loading=True)])
    decoded = engine.decode_request(RESPONSES, body)
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert [tool["function"]["name"] for tool in plan.body["tools"]] == ["read", "mail__send"]
    assert "The user's mail." in plan.body["tools"][1]["function"]["description"]
    assert "tool-foreign" in [note.code for note in plan.notes]
    whole, _ = written(body, call("mail__send", q="x"))
    assert (whole["output"][0]["namespace"], whole["output"][0]["name"]) == ("mail", "send")


SEARCHING: Json = {
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Go."}],
    "tools": [
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        {"name": "read", "description": "Reads.", "input_schema": PARAMETERS},
        {"name": "send", "description": "Sends.", "input_schema": PARAMETERS, "defer_loading": True},
    ],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tools_that_a_search_would_find_are_offered_in_full(protocol: str) -> None:
    decoded = engine.decode_request(MESSAGES, SEARCHING)
    plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
    assert [tool.name for tool in plan.callable][-2:] == ["read", "send"]
    text = plan.content.decode()
    assert '"read"' in text
    assert '"send"' in text
    assert "defer_loading" not in text
    assert "tool_search_tool_regex" not in text
    [note] = [note for note in plan.notes if note.code == "tools-loaded"]
    assert "1 tool with defer_loading" in note.said


def test_an_endpoint_that_searches_gets_all_of_it_unchanged() -> None:
    model = Registry.load().resolve("anthropic/claude-opus-4-5")
    decoded = engine.decode_request(MESSAGES, SEARCHING)
    plan = engine.build_request(model, decoded.messages, **decoded.options)
    assert plan.body["tools"] == SEARCHING["tools"]
    assert "tools-loaded" not in [note.code for note in plan.notes]


def test_deferred_tools_of_responses_are_offered_in_full_with_a_note() -> None:
    deferred = [function("read", defer_loading=True), APPLY_PATCH | {"defer_loading": True}]
    body = request(tools=[{"type": "tool_search"}, *deferred])
    decoded = engine.decode_request(RESPONSES, body)
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
        assert "defer_loading" not in plan.content.decode()
        assert "2 tools" in next(note.said for note in plan.notes if note.code == "tools-loaded")


def test_references_to_found_tools_are_readable_where_nothing_is_searched() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "send"}}
    found = [{"type": "tool_reference", "tool_name": name} for name in ("mcp__mail__send", "mcp__mail__read")]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = [{"name": "mcp__mail__send", "input_schema": PARAMETERS, "defer_loading": True}]
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Go."}, *turns], "tools": tools}
    decoded = engine.decode_request(MESSAGES, body)
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
        text = plan.content.decode()
        assert "mcp__mail__send can be called now" in text
        assert "mcp__mail__read" in text
        assert "tool_reference" not in text
    own = engine.build_request(
        Registry.load().resolve("anthropic/claude-opus-4-5"), decoded.messages, **decoded.options
    )
    assert own.body["messages"][-1] == {"role": "user", "content": [result]}
