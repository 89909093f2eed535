"""`cnllm logs cache`: the first message that differed between two requests, and why."""

from __future__ import annotations

import copy
from typing import Any

from cnllm.store.prefix import changed_parameters, first_break

from .support import ANSWER, Machine, Server

CALL = ("call", "--model", "home/m")
BODY: dict[str, Any] = {
    "model": "m",
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "Today is 2026-11-23, 12:03. Session 9f8e7d6c5b4a3f2e."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho", "reasoning_content": "hm", "tool_calls": [
            {"id": "c1", "function": {"name": "read", "arguments": '{"a": 1, "b": 2}'}}]},
    ],
}  # fmt: skip


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """A copy of the body with a value, or without one (None)."""
    body = copy.deepcopy(BODY)
    *parents, last = path
    inner: Any = body
    for key in parents:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return body


def test_each_change_of_a_prompt_is_named_with_its_place_and_cause() -> None:
    system = BODY["messages"][0]["content"]
    call = ["messages", 2, "tool_calls", 0]
    messages = BODY["messages"]
    reordered = {"content": "hi", "role": "user"}
    for body, where, cause in (
        (
            changed(["messages", 0, "content"], system.replace("12:03", "12:04")),
            "messages[0] (system): content",
            "time",
        ),
        (changed(["messages", 0, "content"], system.replace("-23", "-24")), "messages[0]", "time"),
        (changed(["messages", 0, "content"], system.replace("9f8e", "1a2b")), "messages[0]", "an id"),
        (changed(["messages", 0, "content"], system.replace("Today", "Now")), "messages[0]", "its text changed"),
        (changed(["messages", 0, "content"], system + " Be brief."), "messages[0]", "added at its end"),
        (changed(["messages", 0, "content"], system[:5]), "messages[0]", "cut off"),
        (changed(["messages", 1, "role"], "system"), "messages[1]", "another message"),
        (changed(["messages", 1], reordered), "messages[1] (user)", "keys are in another order"),
        (changed(["messages", 2, "reasoning_content"], None), "messages[2] (assistant): reasoning_content", "left out"),
        (changed(["messages", 2, "name"], "x"), "messages[2] (assistant): name", "was not there before"),
        (changed([*call, "id"], "c2"), "tool_calls[0].id", "its text changed"),
        (changed([*call, "function", "arguments"], '{"b":2,"a":1}'), "arguments", "same JSON"),
        (changed(["tools"], None), "tools[0] (read)", "removed"),
        (
            changed(["tools"], [*BODY["tools"], {"type": "function", "function": {"name": "b"}}]),
            "tools[1] (b)",
            "added",
        ),
        (changed(["messages", 1], None), "messages[1] (user)", "left out now"),
        (changed(["messages"], [{"role": "user", "content": "!"}, *messages]), "messages[0] (user)", "was put in here"),
        (changed(["messages"], [messages[0], messages[2], messages[1]]), "messages[1] (assistant)", "order changed"),
        (changed(["tools", 0, "function", "parameters", "type"], True), "tools[0] (read)", "it changed"),
    ):
        found = first_break(BODY, body)
        assert found is not None, where
        assert where in found.where, found
        assert cause in found.cause, found


def test_a_value_that_only_looks_equal_is_no_order_of_keys() -> None:
    for old, new in ((1, True), (1, 1.0), (0, False)):
        found = first_break({"messages": [{"content": old}]}, {"messages": [{"content": new}]})
        assert found is not None
        assert (found.where, found.cause) == ("messages[0]: content", "it changed")


def test_what_keeps_the_prefix() -> None:
    more = changed(["messages"], [*BODY["messages"], {"role": "user", "content": "x"}])
    fewer = changed(["messages"], BODY["messages"][:2])
    marked = changed(["messages", 1, "cache_control"], {"type": "ephemeral"})
    for body in (BODY, more, fewer, marked, {**BODY, "temperature": 1}):
        assert first_break(BODY, body) is None
    assert first_break(more, fewer) is None
    assert changed_parameters(BODY, {**BODY, "temperature": 1, "tool_choice": "none", "stream": True}) == [
        "tool_choice"
    ]


def test_the_first_difference_is_found_on_every_wire() -> None:
    for before, after, where in (
        ({"system": "a", "messages": []}, {"system": "b", "messages": []}, "system"),
        ({"instructions": "a", "input": "x"}, {"instructions": "b", "input": "x"}, "instructions"),
        ({"input": "x"}, {"input": "y"}, "input"),
        ({"contents": [{"parts": [{"text": "a"}]}]}, {"contents": [{"parts": [{"text": "b"}]}]},
         "contents[0]: parts[0].text"),
        ({"systemInstruction": {"parts": [{"text": "a"}]}}, {}, "systemInstruction"),
    ):  # fmt: skip
        found = first_break(before, after)
        assert found is not None
        assert found.where == where


def test_logs_cache_finds_the_turn_of_a_conversation_that_changed_its_beginning(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "-s", "It is 12:03.", "one")
        machine.run("call", "-c", "two")
        machine.run("call", "-c", "-s", "It is 12:04.", "three")
    done = machine.run("logs", "cache")
    assert done.status == 0
    lines = done.out.splitlines()
    assert "the first to this model" in lines[0]
    assert "begins as request 1; unknown of 12 input tokens" in lines[1]
    assert "differs from request 2 at messages[0] (system): content" in lines[2]
    assert [line.strip() for line in lines[3:6]] == [
        "it holds a time, which changes",
        "before: It is 12:03.",
        "after:  It is 12:04.",
    ]
    assert lines[6].strip() == "about 12 tokens cannot come from the endpoint's cache; what that costs is unknown"
    assert "1 of 2 later requests broke the prefix" in lines[7]
    found = machine.run("logs", "cache", "last", "--json").json()
    assert [request["kept"] for request in found["requests"]] == [None, True, False]
    assert found["requests"][2]["broken"]["before"] == "It is 12:03."


def test_without_stored_requests(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url)
        machine.run(*CALL, "one", env={"CNLLM_LOG": "no-exchanges"})
    done = machine.run("logs", "cache")
    assert (done.status, done.out) == (0, "")
    assert "cnllm logs on" in done.err
