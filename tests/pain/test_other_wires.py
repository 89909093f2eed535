"""The rows of A, F and G that are about Anthropic Messages, Gemini and OpenAI Responses."""

from __future__ import annotations

import json
from typing import Any

from cases import each
from msgspec.structs import replace

import cnllm
from cnllm import Client, Message, Plan, Reasoning, Registry, Seal, Text, ToolCall, ToolResult, engine
from cnllm.registry.model import Model
from cnllm.simulator import SimTransport

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
]
CALL = ToolCall("call_1", "search", {"q": "a"}, '{"q": "a"}')
RESULT = Message("tool", [ToolResult("call_1", "found", "search")])
ASK = Message("user", [Text("Search.")])
WIRES = {
    "anthropic-messages": "anthropic/claude-opus-4-6",
    "gemini": "google/gemini-3.1-pro-preview",
    "openai-responses": "openai/gpt-5.6-sol",
}


def model(name: str, wire: str | None = None) -> Model:
    return Registry.load().resolve(name, protocol=wire)


def plan(of: Model, history: list[Any], **options: Any) -> Plan:
    return engine.build_request(of, history, tools=TOOLS, **options)


def answer(body: dict[str, Any], of: Plan) -> tuple[int, str]:
    """What the endpoint says to this body."""
    changed = replace(of, content=json.dumps(body).encode())
    status, _, pieces = SimTransport().send(changed)
    return status, b"".join(pieces).decode()


# ── A: reasoning that must come back ─────────────────────────────────────────


def test_A5_thinking_goes_back_in_anthropics_shape_too() -> None:
    of = model("deepseek-flash", "anthropic-messages")
    with Client(simulate=True) as client:
        reply = client.call(of, [ASK], tools=TOOLS)
        assert reply.reasoning
        request = client.plan(of, [ASK, reply.message, *_results(reply)], tools=TOOLS)
    thinking = request.body["messages"][1]["content"][0]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", reply.reasoning)
    assert answer(request.body, request)[0] == 200
    request.body["messages"][1]["content"].pop(0)
    status, said = answer(request.body, request)
    assert status == 400
    assert "must be passed back" in said


def test_A5_what_another_model_signed_is_not_sent_there_and_its_turn_is_taken() -> None:
    of = model("deepseek-flash", "anthropic-messages")
    seal = Seal("anthropic-messages", "anthropic", "claude-opus-4-6", {"signature": "c2lnbmVk"})
    turn = Message("assistant", [Reasoning("Hm.", seal), CALL], "anthropic/claude-opus-4-6")
    request = plan(of, [ASK, turn, RESULT])
    assert b"c2lnbmVk" not in request.content
    assert answer(request.body, request)[0] == 200


# ── F: one bad turn ──────────────────────────────────────────────────────────


@each("late", lambda: [Text("And more."), Text("一点补充。")])
def test_F8_calls_come_last_and_their_results_next(late: Text) -> None:
    history = [ASK, Message("assistant", [CALL, late]), Message("user", [Text("Wait")]), RESULT]
    request = plan(model("anthropic/claude-opus-4-6"), history)
    asked, turn, results = request.body["messages"]
    assert asked["content"] == "Search."
    assert [block["type"] for block in turn["content"]] == ["text", "tool_use"]
    assert [block["type"] for block in results["content"]] == ["tool_result", "text"]
    assert {"calls-last", "result-moved"} <= {note.code for note in request.notes}


def test_F8_a_call_that_nothing_answered_is_answered() -> None:
    request = plan(
        model("anthropic/claude-opus-4-6"), [ASK, Message("assistant", [CALL]), Message("user", [Text("?")])]
    )
    results = request.body["messages"][2]["content"]
    assert results[0]["type"] == "tool_result"
    assert results[0]["tool_use_id"] == "call_1"
    assert results[1] == {"type": "text", "text": "?"}


@each("sealed", [False, True])
def test_F11_nothing_stands_between_a_call_and_its_output(sealed: bool) -> None:
    of = model("deepseek-flash", "openai-responses")
    seal = Seal(of.protocol, of.provider, of.id, {"item": {"id": "msg_1", "status": "completed"}}) if sealed else None
    history = [
        ASK,
        Message("assistant", [CALL, Text("Meanwhile", seal)], of.name),
        RESULT,
        Message("user", [Text("?")]),
    ]
    request = plan(of, history, reasoning="off")
    items = request.body["input"]
    place = next(i for i, item in enumerate(items) if item.get("type") == "function_call")
    assert items[place + 1]["type"] == "function_call_output"
    assert "Meanwhile" in json.dumps(items)
    assert answer(request.body, request)[0] == 200


# ── G: another model goes on ─────────────────────────────────────────────────


@each("target", WIRES)
@each("loaded", [False, True])
@each("source", WIRES)
def test_G1_G2_what_is_signed_goes_to_the_model_and_the_wire_that_signed_it(
    source: str, target: str, loaded: bool
) -> None:
    wrote = model(WIRES[source], source)
    with Client(simulate=True) as client:
        reply = client.call(wrote, [ASK], tools=TOOLS, reasoning="high")
    turn = Message.from_dict(json.loads(json.dumps(reply.message.to_dict()))) if loaded else reply.message
    sealed = [part.seal.data for part in turn.parts if getattr(part, "seal", None) is not None and part.seal]
    words = [one[key] for one in sealed for key in ("signature", "thoughtSignature", "encrypted_content") if key in one]
    assert words
    request = plan(model(WIRES[target], target), [ASK, turn, *_results(reply)])
    assert all((word in request.content.decode()) == (source == target) for word in words)
    assert answer(request.body, request)[0] == 200


def test_G1_another_model_of_the_same_maker_gets_no_signature() -> None:
    seal = Seal("anthropic-messages", "anthropic", "claude-opus-4-6", {"signature": "c2lnbmVk"})
    turn = Message("assistant", [Reasoning("Hm.", seal), Text("Yes.")], "anthropic/claude-opus-4-6")
    request = plan(model("anthropic/claude-sonnet-4-6"), [ASK, turn, Message("user", [Text("?")])])
    assert b"c2lnbmVk" not in request.content


def _results(reply: cnllm.Reply) -> list[Message]:
    return [Message("tool", [ToolResult(call.id, "found", call.name)]) for call in reply.tool_calls]
