"""Everything that may stand in `tools=`, here and wherever a request takes tools."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from builtin import BUILTIN
from cases import each

import cnllm
from cnllm import Client, engine
from cnllm.protocols import PROTOCOLS
from cnllm.schemas.repair import repair_schema_if_needed
from cnllm.tools import Tool, as_tools, tool

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
FULL = Tool("find", "Find it.", SCHEMA)
MODEL = cnllm.Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9/v1")


def find(q: str) -> str:
    """Find it."""
    return q


SHAPES: dict[str, Any] = {
    "a Tool": FULL,
    "OpenAI's": {"type": "function", "function": {"name": "find", "description": "Find it.", "parameters": SCHEMA}},
    "a bare one": {"name": "find", "description": "Find it.", "parameters": SCHEMA},
    "Responses'": {"type": "function", "name": "find", "description": "Find it.", "parameters": SCHEMA},
    "MCP's": {"name": "find", "description": "Find it.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    "Anthropic's": {"name": "find", "description": "Find it.", "input_schema": SCHEMA},
    "an MCP object": SimpleNamespace(name="find", description="Find it.", inputSchema=SCHEMA, title=None),
}


@each("shape", lambda: SHAPES.values(), ids=list(SHAPES))
def test_each_shape_is_the_same_tool(shape: Any) -> None:
    assert as_tools([shape]) == [FULL]


@each("shape", lambda: [*SHAPES.values(), tool(find), find], ids=[*SHAPES, "tool(f)", "a function"])
def test_each_shape_may_be_offered_and_its_calls_are_known(shape: Any) -> None:
    plan = engine.build_request(MODEL, "hi", tools=[shape])
    (sent,) = plan.body["tools"]
    assert sent["type"] == "function"
    assert sent["function"]["name"] == "find"
    assert sent["function"]["description"] == "Find it."
    assert sent["function"]["parameters"]["properties"] == SCHEMA["properties"]
    said = '<tool_call>{"name": "find", "arguments": {"q": "tea"}}</tool_call>'
    found = cnllm.sanitize("alibaba/qwen3-coder-plus", said, [shape])
    assert [(call.name, call.arguments) for call in found.tool_calls] == [("find", {"q": "tea"})]
    assert engine.StreamParser(MODEL, [shape]).end() != []


def test_a_function_is_offered_with_its_schema_and_can_be_run() -> None:
    (made,) = as_tools([find])
    assert made == tool(find)
    assert made("x") == "x"
    assert [as_tools([shape])[0].function for shape in SHAPES.values()] == [None] * len(SHAPES)


def test_strict_is_sent_where_it_is_wanted() -> None:
    (sent,) = engine.build_request(MODEL, "hi", tools=[tool(find, strict=True)]).body["tools"]
    assert sent["function"]["strict"] is True
    assert as_tools([{"name": "find", "strict": True}])[0].strict is True


def test_an_endpoints_own_tool_goes_as_it_is() -> None:
    own = {"type": "web_search", "filters": {"domain": "example.org"}}
    assert as_tools([own]) == [Tool("web_search", definition=own)]
    assert engine.build_request(MODEL, "hi", tools=[own, find]).body["tools"][0] == own


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("find", TypeError, r"tools\)? is str, a list is expected"),
        (find, TypeError, r"tools\)? is function, a list is expected"),
        ([find, 5], TypeError, r"tools\[1\] is int, a Tool, a function or a dict is meant"),
        ([{}], ValueError, r"tools\[0\] has no function name"),
        ([{"type": "function", "function": {"parameters": {}}}], ValueError, r"tools\[0\] has no function name"),
        ([{"name": "f", "parameters": "x"}], TypeError, r"tools\[0\].parameters is str, a JSON Schema"),
    ],
)
def test_what_is_no_tool_is_an_error_that_names_the_place(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_tools(given)
    with pytest.raises(error, match=words):
        engine.build_request(MODEL, "hi", tools=given)


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two tools have the name find"):
        as_tools([find, {"name": "find"}])
    assert len(as_tools([{"type": "web_search"}, {"type": "web_search"}])) == 2


@each("name", ["anthropic/claude-opus-5", "google/gemini-4-argon", "openai/gpt-6.1-terra", "deepseek/deepseek-flash"])
def test_a_tool_that_stands_twice_is_sent_once_and_another_one_of_its_name_is_an_error(name: str) -> None:
    model = BUILTIN.resolve(name)
    other = {"name": "other", "parameters": {"type": "object", "properties": {}}}
    first = {"name": "find", "description": "Find it.", "parameters": {"type": "object", "properties": {}}}
    marked = {**first, "cache_control": {"type": "ephemeral"}}
    plan = engine.build_request(model, "hi", tools=[first, other, marked, dict(first)])
    text = json.dumps(plan.body["tools"])
    assert (text.count('"find"'), text.count('"other"')) == (1, 1)
    assert ("cache_control" in text) is (model.protocol == "anthropic-messages")
    (note,) = [note for note in plan.notes if note.code == "tool-repeated"]
    assert (note.said, note.did) == ("find (3 times)", "sent once")
    for changed in ({"description": "Find them."}, {"parameters": {"type": "object"}}, {"strict": True}):
        for verb in ("plan", "call", "stream", "run"):
            with Client(BUILTIN, simulate=True) as client, pytest.raises(ValueError, match="rename one") as caught:
                getattr(client, verb)(name, "hi", tools=[first, other, {**first, **changed}])
            assert "find, tools[0] and tools[2]," in str(caught.value)


def test_a_function_that_stands_twice_runs() -> None:
    with Client(BUILTIN, simulate=True) as client:
        run = client.run("deepseek/deepseek-flash", "hi", tools=[find, find])
    assert "tool-repeated" in [note.code for note in run.reply.notes]


def test_the_callers_definition_is_not_changed() -> None:
    given: dict[str, Any] = {"name": "find", "parameters": {"type": "object", "properties": {}}}
    (made,) = as_tools([given])
    assert made.parameters is not given["parameters"]
    assert given == {"name": "find", "parameters": {"type": "object", "properties": {}}}


@each("heavy", ["pydantic", "jsonschema"])
def test_nothing_heavy_is_imported_before_a_function_is_read(heavy: str) -> None:
    code = f"import sys, cnllm; cnllm.Tool, cnllm.tool; assert {heavy!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@each("protocol", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
def test_a_clients_tool_that_stands_twice_is_sent_once_whatever_its_protocol(protocol: str) -> None:
    def plan(*descriptions: str) -> cnllm.Plan:
        tools: list[dict[str, Any]]
        functions = [{"name": "find", "description": text} for text in descriptions]
        schema = {"type": "object", "properties": {}}
        body: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        match protocol:
            case "openai-chat":
                tools = [{"type": "function", "function": {**function, "parameters": schema}} for function in functions]
            case "openai-responses":
                body = {"model": "x", "input": "hi"}
                tools = [{"type": "function", **function, "parameters": schema} for function in functions]
            case "anthropic-messages":
                tools = [{**function, "input_schema": schema} for function in functions]
            case _:
                body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
                tools = [{"functionDeclarations": functions}]
        request = engine.decode_request(protocol, {**body, "tools": tools})
        return engine.build_request(MODEL, request.messages, **request.options)

    once = plan("Find it.", "Find it.")
    assert len(once.body["tools"]) == 1
    assert "tool-repeated" in [note.code for note in once.notes]
    with pytest.raises(ValueError, match="two tools have the name find"):
        plan("Find it.", "Find them.")


TYPELESS = [{"type": None, "properties": {}}, {"properties": {"q": {}}}, {"oneOf": [{}]}, {"$ref": "#/$defs/A"}]


@each("parameters", TYPELESS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parameters_without_a_type_are_an_object(protocol: str, parameters: dict[str, Any]) -> None:
    """Codex writes a null type; most endpoints refuse the request for it."""
    model = cnllm.Registry.load().resolve("openai-compatible/m", base_url="http://127.0.0.1:9", protocol=protocol)
    definitions = {"$defs": {"A": {"type": "object"}}} if "$ref" in parameters else {}
    plan = engine.build_request(model, "hi", tools=[{"name": "find", "parameters": {**parameters, **definitions}}])
    assert '"type":"object"' in plan.content.decode().replace(" ", "")
    assert '"type":null' not in plan.content.decode()
    assert [note.code for note in plan.notes if note.code == "schema-adapted"]


TEXT: dict[str, Any] = {"type": "string"}


@each(
    "broken, repaired",
    [
        ({"properties": []}, {"properties": {}}),  # PHP's empty map
        ({"properties": {"a": TEXT}, "required": None}, {"properties": {"a": TEXT}}),
        (
            {"properties": {"a": {**TEXT, "required": True}, "b": {**TEXT, "required": False}}},
            {"properties": {"a": TEXT, "b": TEXT}, "required": ["a"]},
        ),
        (
            {"properties": {"a": {**TEXT, "required": True}, "b": TEXT}, "required": ["b"]},
            {"properties": {"a": TEXT, "b": TEXT}, "required": ["b", "a"]},
        ),
        ({"properties": {"a": {**TEXT, "enum": None, "description": None}}}, {"properties": {"a": TEXT}}),
        ({"properties": {"a": {**TEXT, "enum": "x"}}}, {"properties": {"a": TEXT}}),
        ({"properties": {"a": None}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"type": "string[]"}}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"type": "STRING"}}}, {"properties": {"a": TEXT}}),
        ({"properties": {"a": {"type": ["str", "any"]}}}, {"properties": {"a": {"type": ["string"]}}}),
        (
            {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}}},
            {"properties": {"a": {"exclusiveMinimum": 1}}},
        ),
    ],
)
def test_keywords_of_a_wrong_form_are_repaired(broken: dict[str, Any], repaired: dict[str, Any]) -> None:
    """Claude and OpenAI refuse the whole request for one of them: https://github.com/MarkusPfundstein/mcp-gsuite/pull/34,
    https://github.com/Dolibarr/dolibarr/pull/38290, https://github.com/NousResearch/hermes-agent/pull/66964.
    """
    model = cnllm.Registry.load().resolve("anthropic/claude-opus-5")
    for parameters in ({"type": "object", **broken}, {"type": "object", "properties": {"deep": {"items": broken}}}):
        plan = engine.build_request(model, "hi", tools=[{"name": "find", "parameters": parameters}])
        sent = plan.body["tools"][0]["input_schema"]
        assert (sent["properties"]["deep"]["items"] if "deep" in sent["properties"] else sent) == {
            **({} if "deep" in sent["properties"] else {"type": "object"}),
            **repaired,
        }
        assert [note for note in plan.notes if note.code == "schema-adapted"]


def test_a_schema_of_a_right_form_is_sent_as_it_is() -> None:
    right = {
        "default": None,
        "const": None,
        "enum": [None],
        "required": (),
        "type": ("string", "null"),
        "properties": {"required": {"type": "boolean"}, "type": True, "enum": {}},
        "examples": [None],
        "minimum": 1,
        "exclusiveMinimum": 0,
        "$defs": {"default": {"const": None}},
    }
    assert repair_schema_if_needed(right) is None


UNION = {"oneOf": [{"properties": {"act": {"const": word}}, "required": ["act"]} for word in ("new", "end")]}


@each("name", ["anthropic/claude-opus-5", "openai/gpt-4.1", "openai/gpt-6.1-terra", "azure/gpt-6-sol"])
@each("parameters", [UNION, {"type": "object", **UNION}])
def test_alternatives_at_the_root_are_one_object_where_the_endpoint_takes_none(
    name: str, parameters: dict[str, Any]
) -> None:
    """They refuse the whole request for one such tool, as servers of MCP offer them."""
    model = cnllm.Registry.load().resolve(name, base_url="http://127.0.0.1:9")
    plan = engine.build_request(model, "hi", tools=[{"name": "find", "parameters": parameters}])
    (sent,) = plan.body["tools"]
    schema = sent.get("input_schema") or sent.get("parameters") or sent["function"]["parameters"]
    assert schema == {"type": "object", "properties": {"act": {"enum": ["new", "end"]}}, "required": ["act"]}
    assert [note.code for note in plan.notes].count("schema-adapted") == 1
