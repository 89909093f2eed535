"""Tools that are no functions: offered to every model as functions, and called by the client's own names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from note_rules import check_notes

from cnllm import (
    CannotSend,
    Finished,
    Message,
    Registry,
    Reply,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
    engine,
)
from cnllm.protocols import PROTOCOLS
from cnllm.protocols.client_tools import InputReader, unique_name

from .clients import CHAT, GEMINI, MESSAGES, PATHS, RESPONSES, endpoint

PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}
GRAMMAR = "start: begin_patch hunk+ end_patch"
APPLY_PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
}
PATCH = '*** Begin Patch\n+ "quoted" \\ 你好 😀\tend\n*** End Patch'


def function(name: str, **more: Any) -> dict[str, Any]:
    """A function as Responses declares it."""
    return {
        "type": "function",
        "name": name,
        "description": f"{name}.",
        "strict": False,
        "parameters": PARAMETERS,
    } | more


def request(*items: Any, tools: Any = (), **more: Any) -> dict[str, Any]:
    """A body in the form that Codex sends."""
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    body: dict[str, Any] = {"model": "m", "stream": True, "store": False, "input": [user, *items], **more}
    return body | ({"tools": list(tools)} if tools else {})


def names(body: dict[str, Any]) -> list[str]:
    """The names of the functions in a decoded request."""
    tools = engine.decode_request(RESPONSES, body).options.get("tools", [])
    return [tool["function"]["name"] if "function" in tool else tool["type"] for tool in tools]


def written(body: dict[str, Any], *calls: ToolCall, protocol: str = RESPONSES) -> tuple[Any, list[Any]]:
    """The items of calls, from a whole reply and from a stream whose arguments come character by character."""
    reply = Reply(
        text="",
        reasoning="",
        tool_calls=list(calls),
        finish="tool_calls",
        raw_finish=None,
        usage=Usage(),
        cost=None,
        model="m",
        id=None,
        notes=[],
        message=Message("assistant", calls),
        incomplete=[],
    )
    whole = engine.encode_reply(protocol, reply, request=body)
    writer = engine.StreamWriter(protocol, request=body)
    content = writer.begin()
    for index, call in enumerate(calls):
        content += writer.feed(ToolCallStart(index, call.id, call.name))
        for character in call.raw:
            content += writer.feed(ToolCallDelta(index, character))
        content += writer.feed(ToolCallEnd(index, call))
    content += writer.feed(Finished("tool_calls"))
    frames = [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: {")]
    return whole, frames


def done(frames: list[Any]) -> list[Any]:
    """The complete items of a stream."""
    return [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]


def call(name: str, **arguments: Any) -> ToolCall:
    """A call by a model."""
    return ToolCall("call_1", name, arguments, json.dumps(arguments))


def test_every_kind_of_tool_is_offered_or_left_out_with_a_note() -> None:
    namespace = {"type": "namespace", "name": "functions", "tools": [APPLY_PATCH | {"name": "exec"}, function("wait")]}
    added = {"type": "additional_tools", "role": "developer", "tools": [namespace]}
    mcp = {"type": "namespace", "name": "mcp__files__", "tools": [function("read"), function("write")]}
    search = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": PARAMETERS}
    body = request(
        added,
        tools=[function("shell"), APPLY_PATCH, mcp, search, {"type": "local_shell"}, {"type": "web_search"}],
        parallel_tool_calls=False,
    )
    expected = ["shell", "apply_patch", "mcp__files__read", "mcp__files__write", "tool_search", "local_shell"]
    expected += ["web_search", "exec", "wait"]
    assert names(body) == expected
    decoded = engine.decode_request(RESPONSES, body)
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
        text = plan.content.decode()
        assert GRAMMAR in text
        assert all(f'"{name}"' in text for name in expected if name != "web_search")
        assert ("web_search" in text) == (protocol == RESPONSES)
        codes = [note.code for note in plan.notes]
        assert ("tool-foreign" in codes) == (protocol != RESPONSES)
        assert '"namespace"' not in text
        assert '"custom"' not in text


def test_names_are_unique_short_and_restored() -> None:
    long = "a" * 60
    space = {"type": "namespace", "name": "very long: " + "b" * 50, "tools": [function(long), function(long + "x")]}
    clash = {"type": "namespace", "name": "files", "tools": [function("read")]}
    default = {"type": "namespace", "name": "functions", "tools": [function("shell")]}
    body = request(tools=[function("files__read"), function("shell"), clash, space, default])
    flat = names(body)
    assert len(set(flat)) == len(flat) == 6
    assert all(len(name) <= 64 for name in flat)
    assert names(request(tools=[space])) == flat[3:5]  # the same name in each request
    whole, frames = written(body, *(ToolCall(f"c{n}", name, {}, "{}") for n, name in enumerate(flat)))
    own = [
        (None, "files__read"),
        (None, "shell"),
        ("files", "read"),
        (space["name"], long),
        (space["name"], long + "x"),
    ]
    own.append(("functions", "shell"))
    for items in (whole["output"], done(frames)):
        assert [(item.get("namespace"), item["name"]) for item in items] == own
    items = [{"type": "function_call", **{k: v for k, v in i.items() if k != "type"}} for i in whole["output"]]
    again = engine.decode_request(RESPONSES, {**body, "input": [*body["input"], *items]})
    assert [part.name for part in again.messages[-1].parts if type(part) is ToolCall] == flat


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"type": "function", "name": "read", "namespace": "b"}, "b__read"),
        ({"type": "function", "name": "read", "namespace": "a"}, "a__read"),
        ({"type": "function", "name": "read", "namespace": "c"}, "a__read"),
        ({"type": "namespace", "name": "b"}, "b__read"),
    ],
)
def test_a_choice_names_the_tool_of_its_namespace(choice: dict[str, Any], named: str) -> None:
    tools = [{"type": "namespace", "name": name, "tools": [function("read")]} for name in ("a", "b")]
    options = engine.decode_request(RESPONSES, request(tools=tools, tool_choice=choice)).options
    assert options["tool_choice"]["function"]["name"] == named
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [choice]}
    options = engine.decode_request(RESPONSES, request(tools=tools, tool_choice=allowed)).options
    assert [tool["function"]["name"] for tool in options["tools"]] == [named]


def test_a_call_of_the_local_shell_keeps_its_folder_and_its_time() -> None:
    body = request(tools=[{"type": "local_shell"}])
    for more in (
        {},
        {"working_directory": "/srv"},
        {"timeout_ms": 500},
        {"working_directory": "/srv", "timeout_ms": 1},
    ):
        whole, frames = written(body, call("local_shell", command=["ls"], **more))
        for item in (whole["output"][0], done(frames)[0]):
            assert item["action"] == {"type": "exec", "command": ["ls"], "env": {}, **more}


def test_a_custom_tool_is_called_with_its_text_whole_and_streamed() -> None:
    body = request(tools=[APPLY_PATCH])
    whole, frames = written(body, call("apply_patch", input=PATCH))
    item = whole["output"][0]
    assert (item["type"], item["name"], item["input"], item["call_id"]) == (
        "custom_tool_call",
        "apply_patch",
        PATCH,
        "call_1",
    )
    assert done(frames)[0] | {"id": ""} == item | {"id": ""}
    deltas = [frame["delta"] for frame in frames if frame["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == PATCH
    assert len(deltas) > 20
    assert [f["input"] for f in frames if f["type"] == "response.custom_tool_call_input.done"] == [PATCH]
    assert frames[-1]["response"]["output"] == done(frames)
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}
    again = engine.decode_request(RESPONSES, {**body, "input": [*body["input"], item, output]})
    called, result = again.messages[-2].parts[0], again.messages[-1].parts[0]
    assert type(called) is ToolCall
    assert type(result) is ToolResult
    assert (called.name, called.arguments, called.id) == ("apply_patch", {"input": PATCH}, result.id)
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), again.messages, **again.options)
        assert '"ctc_' not in plan.content.decode()
        assert "custom_tool_call" not in plan.content.decode()


@pytest.mark.parametrize("raw", ['{"patch": "x"}', "*** Begin Patch", '{"input": 3}', '{"input": "a'])
def test_arguments_in_another_form_are_the_input(raw: str) -> None:
    try:
        arguments = json.loads(raw)
    except ValueError:
        arguments = None
    whole, frames = written(request(tools=[APPLY_PATCH]), ToolCall("c", "apply_patch", arguments, raw))
    assert whole["output"][0]["input"] == done(frames)[0]["input"] == raw


def test_a_shell_and_a_search_are_called_in_the_client_s_form() -> None:
    search = {"type": "tool_search", "execution": "client", "description": "", "parameters": PARAMETERS}
    body = request(tools=[{"type": "local_shell"}, search])
    shell = ToolCall("s", "local_shell", {"command": ["ls", "-l"]}, '{"command":["ls","-l"]}')
    find = ToolCall("t", "tool_search", {"q": "mail"}, '{"q":"mail"}')
    whole, frames = written(body, shell, find)
    for items in (whole["output"], done(frames)):
        assert items[0]["type"] == "local_shell_call"
        assert items[0]["action"] == {"type": "exec", "command": ["ls", "-l"], "env": {}}
        assert items[1]["type"] == "tool_search_call"
        assert (items[1]["execution"], items[1]["arguments"]) == ("client", {"q": "mail"})
    found = {"type": "namespace", "name": "mail", "tools": [function("send", defer_loading=True)]}
    outputs = [
        {"type": "local_shell_call_output", "id": "s", "output": "a.txt"},
        {"type": "tool_search_output", "call_id": "t", "execution": "client", "tools": [found]},
    ]
    again = {**body, "input": [*body["input"], *whole["output"], *outputs]}
    assert names(again) == ["local_shell", "tool_search", "mail__send"]
    messages = engine.decode_request(RESPONSES, again).messages
    calls = [(c.id, c.name, c.arguments) for m in messages for c in m.tool_calls]
    assert calls == [(c.id, c.name, c.arguments) for c in (shell, find)]
    results = [m.parts[0] for m in messages if m.role == "tool"]
    assert [(r.id, "mail__send" in r.text) for r in results if type(r) is ToolResult] == [("s", False), ("t", True)]


def test_an_item_goes_on_without_the_id_and_the_state_that_an_endpoint_gave_it() -> None:
    state = {"id": "item_1", "status": "completed"}
    text = {"type": "input_text", "text": "Hi"}
    body = request(input=[{"type": "message", "role": "user", "content": [text], "phase": "x", **state}])
    decoded = engine.decode_request(RESPONSES, body)
    (item,) = engine.build_request(endpoint(RESPONSES), decoded.messages, **decoded.options).body["input"]
    assert item["phase"] == "x"
    assert not state.keys() & item.keys()


@pytest.mark.parametrize("offered", [[function("refund")], [], [{"type": "namespace", "name": "x", "tools": []}]])
def test_a_call_in_a_namespace_of_its_own_name_is_one_of_the_function(offered: list[dict[str, Any]]) -> None:
    """So the endpoint calls a function outside of all namespaces that a search of tools has loaded."""
    call = {"type": "function_call", "call_id": "c1", "name": "refund", "namespace": "refund", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "30 days"}
    added = {"type": "additional_tools", "role": "developer", "tools": offered}
    body = {"input": [{"role": "user", "content": "Hi"}, added, call, output]}
    request = engine.decode_request(RESPONSES, body)
    assert [found.name for message in request.messages for found in message.tool_calls] == ["refund"]
    own = {"type": "namespace", "name": "refund", "tools": [function("refund")]}
    request = engine.decode_request(RESPONSES, {**body, "tools": [own]})
    assert [found.name for message in request.messages for found in message.tool_calls] == ["refund__refund"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_result_that_names_its_tool_alone_answers_the_call_of_it(protocol: str) -> None:
    """`call_id` of a function's output may be left out by OpenAI's SDK; `name` and `namespace` say whose it is."""
    space = {"type": "namespace", "name": "files", "tools": [function("read")]}
    calls = [
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "read", "namespace": "files", "arguments": "{}"},
    ]
    outputs: list[dict[str, Any]] = [
        {"type": "function_call_output", "name": "read", "namespace": "files", "output": "the file"},
        {"type": "function_call_output", "call_id": None, "name": "a", "output": "done"},
    ]
    body = {"input": [{"role": "user", "content": "Go."}, *calls, *outputs], "tools": [function("a"), space]}
    decoded = engine.decode_request(RESPONSES, body)
    plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
    turns = engine.decode_request(protocol, plan.body, path=PATHS.get(protocol, "")).messages
    results = {part.id: part.text for turn in turns for part in turn.parts if isinstance(part, ToolResult)}
    assert results == {"c1": "done", "c2": "the file"}
    assert [note.code for note in plan.notes].count("result-paired") == 2
    with pytest.raises(ValueError, match="call_id is not a string"):
        engine.decode_request(RESPONSES, {"input": [*calls, {**outputs[0], "call_id": 7}]})


def test_a_choice_names_what_is_offered() -> None:
    space = {"type": "namespace", "name": "files", "tools": [function("read")]}
    tools = [function("a"), function("b"), APPLY_PATCH, space, {"type": "web_search"}]

    def options(choice: Any) -> dict[str, Any]:
        return engine.decode_request(RESPONSES, request(tools=tools, tool_choice=choice)).options

    for choice, name in (
        ({"type": "function", "name": "a"}, "a"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "read", "namespace": "files"}, "files__read"),
    ):
        assert options(choice)["tool_choice"] == {"type": "function", "function": {"name": name}}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}
    allowed["tools"].append({"type": "custom", "name": "apply_patch"})  # type: ignore[attr-defined]
    found = options(allowed)
    assert found["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in found["tools"]] == ["b", "apply_patch"]
    chat = {
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"type": "function", "function": {"name": n, "parameters": PARAMETERS}} for n in "ab"],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "b"}}]},
        },
    }
    found = engine.decode_request(CHAT, chat).options
    assert (found["tool_choice"], [t["function"]["name"] for t in found["tools"]]) == ("auto", ["b"])


def test_a_choice_of_a_server_s_tool_is_none_of_a_function_with_its_name() -> None:
    server = {"type": "mcp", "server_label": "s", "server_url": "https://mcp.example"}
    one = {"type": "mcp", "server_label": "s", "name": "a"}
    decoded = engine.decode_request(RESPONSES, request(tools=[server, function("a")], tool_choice=one))
    own = engine.build_request(endpoint(RESPONSES), decoded.messages, **decoded.options)
    assert own.body["tool_choice"] == one
    with pytest.raises(CannotSend, match="tool_choice: mcp"):
        engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [one]}
    found = engine.decode_request(RESPONSES, request(tools=[server, function("a")], tool_choice=allowed)).options
    assert found["tools"] == [server]


def test_a_choice_among_tools_that_are_not_offered_is_refused_by_its_name() -> None:
    def chat(mode: str, *names: str) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        return {
            "messages": [{"role": "user", "content": "Go."}],
            "tools": [{"type": "function", "function": {"name": "a", "parameters": PARAMETERS}}],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}},
        }

    def responses(mode: str, *names: str, **more: Any) -> dict[str, Any]:
        tools = [{"type": "function", "name": name} for name in names]
        choice = {"type": "allowed_tools", "mode": mode, "tools": tools}
        return {"input": "Go.", "tools": [function("a")], "tool_choice": choice, **more}

    for mode in ("auto", "required"):
        for protocol, body, place in (
            (CHAT, chat(mode, "g"), "tool_choice.allowed_tools.tools"),
            (RESPONSES, responses(mode, "g", "h"), "tool_choice.tools"),
            (RESPONSES, responses(mode, "a", tools=None), "tool_choice.tools"),
        ):
            with pytest.raises(ValueError, match=rf"^{place}: none of them is among the tools: (a|there are none)$"):
                engine.decode_request(protocol, body)
    with pytest.raises(ValueError, match=r"^tool_choice\.tools: "):
        engine.decode_request(RESPONSES, responses("required"))
    assert "tools" not in engine.decode_request(RESPONSES, responses("auto")).options
    for protocol, body in ((CHAT, chat("auto", "g", "a")), (RESPONSES, responses("auto", "a", "g"))):
        [tool] = engine.decode_request(protocol, body).options["tools"]
        assert tool["function"]["name"] == "a"


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": False}, {"strict": True}])
def test_a_function_that_leaves_strict_to_the_endpoint_goes_on_without_it(strict: dict[str, Any]) -> None:
    """Responses make it strict where its schema allows that; on any other wire it is not."""
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    plain = {"type": "function", "name": "f", "parameters": {**closed, "additionalProperties": False}, **strict}
    inner = {"type": "namespace", "name": "n", "tools": [{**plain, "name": "g"}]}
    decoded = engine.decode_request(RESPONSES, {"input": "Go.", "tools": [plain, inner]})
    is_known = strict.get("strict") is not None
    for protocol in PROTOCOLS:
        plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
        found = plan.body["tools"]
        if protocol == GEMINI:
            assert "strict" not in plan.content.decode()
            continue
        for tool in found:
            keys = tool["function"] if protocol == CHAT else tool
            assert keys.get("strict", "missing") == (strict["strict"] if is_known else "missing"), protocol
        assert "key-foreign" not in [note.code for note in plan.notes]
    chat = {"type": "function", "function": {"name": "f", "parameters": closed, **strict}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [chat]}
    decoded = engine.decode_request(CHAT, body)
    [tool] = engine.build_request(endpoint(RESPONSES), decoded.messages, **decoded.options).body["tools"]
    assert tool["strict"] is bool(strict.get("strict")), "chat completions have another default"


def test_tools_of_an_endpoint_go_to_its_protocol_only_and_a_choice_follows() -> None:
    user: dict[str, Any] = {"role": "user", "content": "Go."}
    search = {"type": "web_search_20250305", "name": "web_search"}
    cases: list[tuple[str, dict[str, Any], str]] = [
        (MESSAGES, {"max_tokens": 9, "messages": [user], "tools": [search]}, "web_search"),
        (GEMINI, {"contents": [{"parts": [{"text": "Go."}]}], "tools": [{"googleSearch": {}}]}, "googleSearch"),
        (RESPONSES, request(tools=[{"type": "web_search"}]), "web_search"),
        (CHAT, {"messages": [user], "tools": [BUILTIN]}, "$web_search"),
    ]
    for client, body, word in cases:
        decoded = engine.decode_request(client, body)
        for protocol in PROTOCOLS:
            plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
            assert (word in plan.content.decode()) == (protocol == client), (client, protocol)
            if protocol != client:
                assert "tool-foreign" in [note.code for note in plan.notes]


BUILTIN = {"type": "builtin_function", "function": {"name": "$web_search"}}


def test_a_builtin_tool_in_the_form_of_a_function_stays_what_it_is() -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Go."}], "tools": [BUILTIN]}
    decoded = engine.decode_request(CHAT, body)
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert plan.body["tools"] == [BUILTIN]
    plan = engine.build_request(endpoint(CHAT), "Go.", tools=[BUILTIN])
    assert plan.body["tools"] == [BUILTIN]


def test_a_foreign_key_leaves_a_function_and_stays_in_a_builtin_tool() -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
    builtin = {**BUILTIN, "region": "cn"}
    tools = [{**function, "region": "cn"}, builtin]
    decoded = engine.decode_request(CHAT, {"messages": [{"role": "user", "content": "Go."}], "tools": tools})
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert plan.body["tools"] == [function, builtin]
    assert [(note.code, note.said) for note in decoded.notes] == [("key-foreign", "tools[].region")]


def test_the_settings_of_a_search_that_another_endpoint_does_not_have_are_named() -> None:
    search: dict[str, Any] = {"type": "web_search", "search_context_size": "high", "user_location": {"city": "Paris"}}
    search["filters"] = {"allowed_domains": ["a.example"]}
    decoded = engine.decode_request(RESPONSES, request(tools=[search]))
    lacking, registry = {"search_context_size", "user_location"}, Registry.load()
    for name, protocol, dropped in (
        ("openai/gpt-5.6-sol", RESPONSES, set[str]()),
        ("anthropic/claude-opus-5", MESSAGES, lacking),
    ):
        model = registry.resolve(name, protocol=protocol)
        plan = engine.build_request(model, decoded.messages, **decoded.options)
        (tool,) = plan.body["tools"]
        assert "a.example" in str(tool)
        assert ("Paris" in str(tool), "high" in str(tool)) == (not dropped, not dropped)
        assert dropped <= {note.said for note in plan.notes}


def test_a_forced_tool_of_an_endpoint_is_refused_elsewhere() -> None:
    user: dict[str, Any] = {"role": "user", "content": "Go."}
    search = {"type": "web_search_20250305", "name": "web_search"}
    mine = {"name": "f", "input_schema": PARAMETERS}
    choice = {"type": "tool", "name": "web_search"}
    forced: list[tuple[str, dict[str, Any], str]] = [
        (MESSAGES, {"max_tokens": 9, "messages": [user], "tools": [search], "tool_choice": choice}, "web_search"),
        (MESSAGES, {"max_tokens": 9, "messages": [user], "tools": [search, mine], "tool_choice": choice}, "web_search"),
        (RESPONSES, request(tools=[{"type": "file_search"}], tool_choice={"type": "file_search"}), "file_search"),
        (RESPONSES, request(tools=[{"type": "web_search"}], tool_choice="required"), "web_search"),
    ]
    for client, body, word in forced:
        decoded = engine.decode_request(client, body)
        for protocol in PROTOCOLS:
            if protocol == client:
                plan = engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
                assert plan.body["tool_choice"] == body["tool_choice"]
                continue
            with pytest.raises(CannotSend, match="tool_choice") as caught:
                engine.build_request(endpoint(protocol), decoded.messages, **decoded.options)
            assert word in str(caught.value), (client, protocol)
            check_notes([caught.value.note])
    free = {"max_tokens": 9, "messages": [user], "tools": [search, mine], "tool_choice": {"type": "any"}}
    decoded = engine.decode_request(MESSAGES, free)
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert (plan.body["tool_choice"], [tool["function"]["name"] for tool in plan.body["tools"]]) == ("required", ["f"])


def test_several_allowed_functions_are_offered_alone_elsewhere() -> None:
    declared = [{"name": name, "parametersJsonSchema": PARAMETERS} for name in "abc"]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "c"]}}
    body = {"contents": [{"parts": [{"text": "Go."}]}], "tools": [{"functionDeclarations": declared}]}
    decoded = engine.decode_request(GEMINI, {**body, "toolConfig": config})
    plan = engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options)
    assert [tool["function"]["name"] for tool in plan.body["tools"]] == ["a", "c"]
    assert plan.body["tool_choice"] == "required"
    same = engine.build_request(endpoint(GEMINI), decoded.messages, **decoded.options)
    assert same.body["toolConfig"] == config


def test_custom_tools_of_chat_clients() -> None:
    format = {"type": "grammar", "grammar": {"syntax": "lark", "definition": GRAMMAR}}
    custom = {"type": "custom", "custom": {"name": "apply_patch", "description": "Edits.", "format": format}}
    called = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": PATCH}}
    body = {
        "messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
        "tools": [custom],
    }
    decoded = engine.decode_request(CHAT, body)
    part = decoded.messages[1].parts[0]
    assert type(part) is ToolCall
    assert part.arguments == {"input": PATCH}
    assert GRAMMAR in engine.build_request(endpoint(CHAT), decoded.messages, **decoded.options).content.decode()
    whole, chunks = written(body, call("apply_patch", input=PATCH), protocol=CHAT)
    assert whole["choices"][0]["message"]["tool_calls"] == [{**called, "id": "call_1"}]
    pieces = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert pieces[0]["custom"]["name"] == "apply_patch"
    assert "".join(piece["custom"]["input"] for piece in pieces) == PATCH


@given(st.text(), st.integers(1, 7), st.booleans())
def test_the_input_is_read_from_any_pieces(text: str, size: int, ascii: bool) -> None:
    raw = json.dumps({"input": text}, ensure_ascii=ascii)
    reader = InputReader()
    pieces = [reader.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    assert "".join(pieces) == reader.text == text


def test_a_tool_whose_key_has_half_a_character_has_a_name_of_its_own() -> None:
    names = [unique_name("look up", {}, key) for key in ("a", "\ud800", "\ud800", "b" * 100)]
    assert names[1] == names[2]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"look_up_[0-9a-f]{8}", name) for name in names)
    assert unique_name("look up", {names[0]: None}, "a") not in names
