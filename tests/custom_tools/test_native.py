"""Endpoints of Responses that know custom tools get them, their calls and their results as the client wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from client.peer import Peer, answer, frame, stream
from client.support import Driver, ask, drained, folds

import cnllm
from cnllm import Model, Registry, engine

from .support import BAD, GOOD, GRAMMAR, PATCH, READ, flat, nested

Json = dict[str, Any]
RESPONSES = "openai-responses"


def native(folder: Path, peer: Peer | None = None) -> Model:
    """An endpoint of Responses that knows custom tools."""
    path = folder / "native.toml"
    url = "http://127.0.0.1:9/v1" if peer is None else peer.url
    path.write_text(
        f'[providers.home]\nprotocol = "{RESPONSES}"\nbase_url = "{url}"\nkeys = ["HOME_TOKEN"]\n'
        'tools.custom = true\n[models."home/m"]\n'
    )
    return Registry.load(path).resolve("home/m")


def item(input: str, status: str = "completed") -> Json:
    head = {"type": "custom_tool_call", "id": "ctc_1", "status": status, "call_id": "call_abc", "name": "apply_patch"}
    return {**head, "input": input}


def response(input: str) -> Json:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**body, "output": [item(input)], "usage": usage}


def gives(verb: str, input: str) -> bytes:
    """A reply with a call of the custom tool, whole or streamed in small pieces."""
    if verb == "call":
        return answer(200, json.dumps(response(input)).encode())
    place = {"output_index": 0, "item_id": "ctc_1"}
    added: Json = {"type": "response.output_item.added", "output_index": 0, "item": item("", "in_progress")}
    kind = "response.custom_tool_call_input"
    deltas: list[Json] = [
        {"type": f"{kind}.delta", **place, "delta": input[at : at + 5]} for at in range(0, len(input), 5)
    ]
    done: Json = {"type": f"{kind}.done", **place, "input": input}
    end = {"type": "response.output_item.done", "output_index": 0, "item": item(input)}
    last = {"type": "response.completed", "response": response(input)}
    return stream(*[frame(event) for event in (added, *deltas, done, end, last)])


def test_a_copy_with_another_description_says_it_to_every_endpoint(tmp_path: Path) -> None:
    def apply_patch(input: str) -> str:
        """Edits files."""
        return input

    tool = cnllm.tool(cnllm.tool(apply_patch, format=PATCH), description="Changes files.")
    (custom,) = engine.build_request(native(tmp_path), "Hi", tools=[tool]).body["tools"]
    assert (custom["description"], custom["format"]) == ("Changes files.", PATCH)
    (other,) = engine.build_request(Registry.load().resolve("glm-4.7"), "Hi", tools=[tool]).body["tools"]
    assert other["function"]["description"].startswith("Changes files.")
    assert GRAMMAR in other["function"]["description"]


def test_an_input_that_comes_at_once_and_in_no_item_is_read(tmp_path: Path) -> None:
    parser = engine.StreamParser(native(tmp_path))
    added: Json = {"type": "response.output_item.added", "output_index": 0, "item": item("", "in_progress")}
    done: Json = {"type": "response.custom_tool_call_input.done", "output_index": 0, "item_id": "ctc_1", "input": GOOD}
    for event in (added, done, {"type": "response.completed", "response": {**response(""), "output": []}}):
        parser.feed(frame(event))
    [call] = parser.close().tool_calls
    assert (call.name, call.id, call.arguments) == ("apply_patch", "call_abc", {"input": GOOD})


@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("input", [GOOD, BAD, ""])
def test_a_call_is_read_and_goes_back_as_it_came(client: Driver, tmp_path: Path, verb: str, input: str) -> None:
    with Peer([gives(verb, input)]) as peer:
        model = native(tmp_path, peer)
        if verb == "stream":
            events, got = drained(client.stream(model, "Go.", tools=[flat(), READ]))
            folds(events, got)
        else:
            got = ask(client, verb, model, messages="Go.", tools=[flat(), READ])
        [sent] = [received.json() for received in peer.received]  # the endpoint keeps to the grammar itself
    assert sent["tools"][0] == flat()
    assert sent["tools"][1]["type"] == "function"
    [call] = got.tool_calls
    assert (call.name, call.id, call.arguments) == ("apply_patch", "call_abc", {"input": input})
    history = [cnllm.Message.from_dict({"role": "user", "content": "Go."}), got.message]
    history.append(cnllm.Message("tool", [cnllm.ToolResult("call_abc", "done", "apply_patch")]))
    for tools in ([flat()], [READ]):
        body = engine.build_request(model, history, tools=tools).body
        called, result = body["input"][-2:]
        assert called == item(input)
        assert (result["type"], result["call_id"], result["output"]) == ("custom_tool_call_output", "call_abc", "done")


@pytest.mark.parametrize("tool", [flat(), nested()])
def test_a_client_s_request_goes_on_unchanged(tmp_path: Path, tool: Json) -> None:
    user = {"role": "user", "content": "Go."}
    output = {"type": "custom_tool_call_output", "call_id": "call_abc", "output": "done"}
    choice = {"type": "custom", "name": "apply_patch"}
    body = {"model": "m", "input": [user, item(GOOD), output], "tools": [flat()], "tool_choice": choice}
    decoded = engine.decode_request(RESPONSES, body)
    options = {**decoded.options, "tools": [tool]} if tool != flat() else decoded.options
    sent = engine.build_request(native(tmp_path), decoded.messages, **options).body
    assert sent["tools"] == [{**flat(), "format": PATCH}]
    assert sent["tool_choice"] == choice
    called, result = sent["input"][-2:]
    assert called == {key: value for key, value in item(GOOD).items() if key not in ("id", "status")}
    assert result == output


def hosting(folder: Path) -> Model:
    """An endpoint that reports the steps of its own search as calls of custom tools."""
    path = folder / "hosting.toml"
    path.write_text(
        f'[providers.home]\nprotocol = "{RESPONSES}"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
        'tools.custom = true\ntools.hosted_call_ids = ["own_"]\n[models."home/m"]\n'
    )
    return Registry.load(path).resolve("home/m")


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("shape", ["whole", "stream", "bytes"])
def test_a_call_that_the_endpoint_has_answered_is_a_block_of_its_own(tmp_path: Path, shape: str, placed: bool) -> None:
    model = hosting(tmp_path)
    step = {**item('{"birds": "herons"}'), "id": "ctc_9", "call_id": "own_1", "name": "bird_lookup"}
    parts = [{"type": "output_text", "text": "Herons eat fish.", "annotations": []}]
    answer_ = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    body = {**response(""), "output": [step, answer_]}
    place = {"item_id": "ctc_9", **({"output_index": 0} if placed else {})}
    kind = "response.custom_tool_call_input"
    begun = {**step, "input": "", "status": "in_progress"}
    events: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": f"{kind}.delta", **place, "delta": '{"birds": '},
        {"type": f"{kind}.delta", **place, "delta": '"herons"}'},
        {"type": f"{kind}.done", **place, "input": step["input"]},
        {"type": "response.output_item.done", "output_index": 0, "item": step},
        {"type": "response.output_text.delta", "output_index": 1, "item_id": "msg_1", "delta": "Herons eat fish."},
        {"type": "response.output_item.done", "output_index": 1, "item": answer_},
        {"type": "response.completed", "response": body},
    ]
    if shape == "whole":
        reply = engine.parse_response(model, 200, {}, json.dumps(body).encode())
    else:
        parser = engine.StreamParser(model)
        content = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        for at in range(0, len(content), 1 if shape == "bytes" else len(content)):
            parser.feed(content[at : at + (1 if shape == "bytes" else len(content))])
        reply = parser.close()
    assert (reply.text, reply.finish, reply.raw_finish) == ("Herons eat fish.", "stop", "completed")
    assert (reply.tool_calls, reply.incomplete) == ([], [])
    again = engine.build_request(model, ["Which?", reply.message, "And storks?"]).body["input"]
    assert [entry for entry in again if entry.get("type") == "custom_tool_call"] == [step]


def test_a_call_with_another_id_is_one_for_the_client(tmp_path: Path) -> None:
    reply = engine.parse_response(hosting(tmp_path), 200, {}, json.dumps(response(GOOD)).encode())
    assert [(call.id, call.name) for call in reply.tool_calls] == [("call_abc", "apply_patch")]
