"""Responses, calls by a program that the endpoint runs: they wait for their results, which name the program."""

from __future__ import annotations

import json
from typing import Any

from cases import each

import cnllm
from cnllm import Message, Registry, Reply, engine

Json = dict[str, Any]
CALLER = {"type": "program", "caller_id": "call_program"}
PROGRAM = {
    "type": "program",
    "id": "cm_1",
    "call_id": "call_program",
    "code": "await tools.stock()",
    "fingerprint": "f",
}
MODEL = Registry.load().resolve("openai-compatible/m", protocol="openai-responses", base_url="http://127.0.0.1:9/v1")


def call(status: str, caller: Json | None = CALLER) -> Json:
    item = {"type": "function_call", "id": "fc_1", "status": status, "call_id": "call_1", "name": "stock"}
    return {**item, "arguments": '{"sku":"a"}', "caller": caller}


def read(item: Json, *, streamed: bool) -> Reply:
    """The reply to a request whose answer is a program and this call."""
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": [PROGRAM, item]}
    if not streamed:
        return engine.parse_response(MODEL, 200, {}, json.dumps(response).encode())
    place = {"output_index": 1, "item_id": "fc_1"}
    events: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": PROGRAM},
        {"type": "response.output_item.done", "output_index": 0, "item": PROGRAM},
        {"type": "response.output_item.added", "output_index": 1, "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
        {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]},
        {"type": "response.output_item.done", "output_index": 1, "item": item},
        {"type": "response.completed", "response": response},
    ]
    parser = engine.StreamParser(MODEL)
    for event in events:
        parser.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return parser.close()


@each("streamed", [False, True])
def test_a_call_of_a_program_is_whole_while_it_waits_for_its_result(streamed: bool) -> None:
    reply = read(call("in_progress"), streamed=streamed)
    assert (reply.finish, reply.incomplete) == ("tool_calls", [])
    assert [(found.name, found.arguments) for found in reply.tool_calls] == [("stock", {"sku": "a"})]
    history = [Message.user("Stock?"), reply.message, Message.tool("call_1", "7")]
    program, called, result = engine.build_request(MODEL, history).body["input"][1:]
    assert (program, called) == (PROGRAM, call("in_progress"))
    assert result == {"type": "function_call_output", "call_id": "call_1", "output": "7", "caller": CALLER}
    [*_, item] = engine.encode_reply("openai-responses", reply)["output"]
    assert item == call("in_progress")


@each("streamed", [False, True])
@each(
    "item",
    [call("incomplete"), call("failed"), call("in_progress", None), call("in_progress", {"type": "direct"})],
)
def test_any_other_unfinished_call_is_incomplete(item: Json, streamed: bool) -> None:
    reply = read(item, streamed=streamed)
    assert (reply.tool_calls, [found.name for found in reply.incomplete]) == ([], ["stock"])


def test_the_result_of_a_call_of_the_model_names_no_caller() -> None:
    reply = read(call("completed", None), streamed=False)
    history: list[Any] = [Message.user("Stock?"), reply.message, cnllm.Message.tool("call_1", "7")]
    assert "caller" not in engine.build_request(MODEL, history).body["input"][-1]
