"""A name of a tool that an endpoint refuses goes out in another form, on every wire, and comes back as the caller's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from builtin import BUILTIN

import cnllm
from cnllm import Message, ToolCall, ToolResult, engine
from cnllm.registry.model import Model
from cnllm.simulator import SimTransport

NAMES = ["files.read", "搜索", "look up", "files_read", "ns:get/all", "a" * 150, "\U0001f600", "half\ud83d"]
WIRES = [
    ("anthropic/claude-opus-5", "anthropic-messages", r"[a-zA-Z0-9_-]{1,128}"),
    ("openai/gpt-6.1-terra", "openai-chat", r"[a-zA-Z0-9_-]{1,64}"),
    ("openai/gpt-6.1-terra", "openai-responses", r"[a-zA-Z0-9_-]{1,64}"),
    ("google/gemini-2.5-flash", "gemini", r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"),
    ("deepseek/deepseek-flash", "openai-chat", r"[a-zA-Z0-9_-]{1,64}"),
    ("openai-compatible/any", "openai-chat", r"[a-zA-Z0-9_-]+"),
]


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}}


def resolve(name: str, protocol: str) -> Model:
    base = "http://127.0.0.1:9/v1" if name.startswith("openai-compatible") else None
    return BUILTIN.resolve(name, protocol=protocol, base_url=base)


def names_in(value: Any) -> list[str]:
    """The names of functions in a body, wherever they stand."""
    if isinstance(value, list):
        return [name for item in value for name in names_in(item)]
    if not isinstance(value, dict):
        return []
    own = [value["name"]] if isinstance(value.get("name"), str) else []
    return own + [name for item in value.values() for name in names_in(item)]


@pytest.mark.parametrize(("name", "protocol", "pattern"), WIRES)
def test_names_of_offered_tools_and_of_earlier_calls_are_accepted(name: str, protocol: str, pattern: str) -> None:
    model = resolve(name, protocol)
    history = [
        Message.user("hi"),
        Message("assistant", [ToolCall(f"c{n}", said, {}) for n, said in enumerate(NAMES)]),
        *[Message("tool", [ToolResult(f"c{n}", "ok")]) for n in range(len(NAMES))],
    ]
    for tools in ([tool(said) for said in NAMES], [tool("other")]):
        plan = engine.build_request(model, history, tools=tools)
        sent = names_in(plan.body)
        assert sent
        assert all(re.fullmatch(pattern, said) for said in sent), sent
        offered = names_in(plan.body["tools"])
        assert len(set(offered)) == len(tools)
    noted = {note.code for note in plan.notes if note.flag in ("tools.name_pattern", "tools.name_max_length")}
    assert noted == {"call-renamed"}


def test_a_name_that_two_tools_would_share_belongs_to_one() -> None:
    model = BUILTIN.resolve("deepseek/deepseek-flash")
    plan = engine.build_request(model, "hi", tools=[tool(said) for said in ("a.b", "a_b", "a b", "a:b")])
    first, second, third, fourth = names_in(plan.body["tools"])
    assert second == "a_b"
    assert len({first, second, third, fourth}) == 4
    assert all(note.where.startswith("providers.toml:") for note in plan.notes if note.code == "tool-renamed")
    assert sum(note.code == "tool-renamed" for note in plan.notes) == 3


def test_a_reply_and_its_next_request_have_the_names_of_the_caller() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "files_read", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"id": "x", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}
    model = BUILTIN.resolve("openai/gpt-6.1-terra", protocol="openai-chat")
    plan = engine.build_request(model, "hi", tools=[tool("files.read")], tool_choice="files.read")
    assert plan.body["tool_choice"]["function"]["name"] == "files_read"
    reply = engine.parse_response(model, 200, {}, json.dumps(body).encode(), plan=plan)
    assert [call.name for call in reply.tool_calls] == ["files.read"]
    again = engine.build_request(model, ["hi", reply.message, Message.tool("c1", "x")], tools=[tool("files.read")])
    assert set(names_in(again.body)) == {"files_read"}


def test_a_strict_endpoint_takes_every_such_request() -> None:
    def files_read(path: str) -> str:
        """Read a file."""
        return path

    reads = cnllm.tool(files_read, name="文件.read")
    with cnllm.Client(BUILTIN, transport=SimTransport(BUILTIN, strict=True), api_key="k") as client:
        for name, protocol, _ in WIRES[:5]:
            run = client.run(resolve(name, protocol), "Read a.txt with the tool.", tools=[reads])
            assert run.stopped == "done", (name, run.stopped)
            assert [call.name for step in run.steps for call in step.calls] == ["文件.read"]


def test_with_send_a_name_stays() -> None:
    model = BUILTIN.resolve("deepseek/deepseek-flash")
    plan = engine.build_request(model, "hi", tools=[tool("a.b")], on_unsupported="send")
    assert names_in(plan.body["tools"]) == ["a.b"]
