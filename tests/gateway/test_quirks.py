"""Endpoints with a form of their own, over real sockets: a client and a gateway reach them from the TOML alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cases import each
from client import peer
from engine.test_quirks import TOOL, Endpoint, Quirks, Turn

import cnllm
from cnllm import AsyncClient, Client, Registry
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running

from .support import (
    CLIENTS,
    KEY,
    Answer,
    ChatClient,
    Json,
    MessagesClient,
    ResponsesClient,
    Upstream,
    frames,
    gateway_for,
)

TURNS = [Turn("hm", "", [{"path": "好"}, {"n": 1}]), Turn("so", "", [{}]), Turn("ah", "it is done", [])]
IDS = [f"call-{step}-{index}" for step, turn in enumerate(TURNS) for index, _ in enumerate(turn.arguments)]
QUIRKS = [
    Quirks("meta.thought", "out.text", "out.acts", ("ref", "fn.label", "fn.args"), objects=True, framing="ndjson"),
    Quirks("|end|", "answer", role="function", result_id="ref", result="output", choices=".", message="output"),
    Quirks(
        "part-texts", choices="output.choices", finish="end.why", usage="meta.usage", rename={"messages": "input.m"}
    ),
]


@contextmanager
def served(endpoint: Endpoint) -> Iterator[str]:
    """The endpoint at an address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the second of two writes would wait for an ACK of the first

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            # A gateway gives each call an id of its own, and sends that.
            for new, own in zip(dict.fromkeys(re.findall(r"call_n[0-9a-f]{24}", text)), IDS, strict=False):
                text = text.replace(new, own)
            body = json.loads(text)
            try:
                content, status = endpoint.answer(body, self.headers, stream=body.get("stream") is True), 200
            except AssertionError as error:
                content, status = json.dumps({"error": {"message": str(error)[:2000]}}).encode(), 400
            self.send_response(status)
            self.send_header("content-type", "text/x-anything")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def registry_of(quirks: Quirks, url: str, folder: Path) -> cnllm.Registry:
    path = folder / "own.toml"
    head = f'[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "{url}"\nkeys = []\n'
    path.write_text(head + quirks.toml() + '\n[models."home/m"]\n', encoding="utf-8")
    return cnllm.Registry.load(str(path))


@each("quirks", QUIRKS)
@each("stream", [True, False])
def test_a_client_runs_a_chain_of_tools(tmp_path: Path, quirks: Quirks, stream: bool) -> None:
    endpoint = Endpoint(quirks, TURNS)
    with served(endpoint) as url, Client(registry_of(quirks, url, tmp_path)) as client:
        history: list[Any] = ["hi"]
        for turn in TURNS:
            if stream:
                with client.stream("home/m", history, tools=[TOOL]) as events:
                    list(events)
                    reply = events.reply
            else:
                reply = client.call("home/m", history, tools=[TOOL])
            assert (reply.text, reply.reasoning) == (turn.text, turn.thought)
            assert [call.arguments for call in reply.tool_calls] == turn.arguments
            history += [reply.message]
            history += [cnllm.Message.tool(call.id, f"result {i}") for i, call in enumerate(reply.tool_calls)]


@each("quirks", QUIRKS)
def test_a_gateway_serves_it_to_a_client_that_keeps_no_reasoning(tmp_path: Path, quirks: Quirks) -> None:
    endpoint = Endpoint(quirks, TURNS)
    with served(endpoint) as url:
        registry = registry_of(quirks, url, tmp_path)
        gateway = Gateway(registry, client=AsyncClient(registry), keys=[KEY])
        with running(gateway) as base, httpx.Client(base_url=base, timeout=30) as http:
            history: list[Any] = [{"role": "user", "content": "hi"}]
            for turn in TURNS:
                body = {"model": "home/m", "messages": history, "tools": [TOOL]}
                response = http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"})
                assert response.status_code == 200, response.text
                message = response.json()["choices"][0]["message"]
                assert message["content"] == (turn.text or None)
                calls = message.get("tool_calls", [])
                assert [json.loads(call["function"]["arguments"]) for call in calls] == turn.arguments
                message.pop("reasoning_content", None)
                history.append(message)
                for index, call in enumerate(calls):
                    history.append({"role": "tool", "tool_call_id": call["id"], "content": f"result {index}"})


# ── arguments that are no JSON object ────────────────────────────────────────
NO_OBJECTS = ['{"city":"Oslo",}', '["Oslo"]', '"{\\"city\\":\\"Oslo\\"}"', '{"city":"Oslo"}{"city":"Rome"}']
WHOLE = '{"city":"Bern"}'


def calling(*arguments: str, name: str = "weather") -> Answer:
    """An answer with one call for each of the arguments."""
    calls = [
        {"index": place, "id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": raw}}
        for place, raw in enumerate(arguments)
    ]
    return Answer([{"tool_calls": [call]} for call in calls], "tool_calls")


def closed_inputs(events: list[Json]) -> list[str]:
    """The inputs of the blocks that a client of Messages takes for whole calls."""
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"]["partial_json"]
    ends = [event["index"] for event in events if event["type"] == "content_block_stop"]
    return [inputs[index] for index in ends if index in inputs]


@pytest.mark.share(3)
@each("raw", [*NO_OBJECTS, '{"<b>":1}'])
@each("raws", [(WHOLE, "raw"), ("raw", WHOLE), ("raw",)])
@each("stream", [True, False])
def test_arguments_that_are_no_object_are_never_other_arguments(
    tmp_path: Path, raw: str, raws: tuple[str, ...], stream: bool
) -> None:
    """A wire with arguments as a text gets the text; any other one gets an error, and no such call."""
    given = [raw if one == "raw" else one for one in raws]
    with gateway_for(Upstream(calling(*given)), tmp_path) as http:
        for kind in CLIENTS:
            client = kind(http, "zai/glm-4.7", stream=stream)
            client.user("Weather?")
            response = http.post(client.path(), json=client.request())
            events = frames(response.text) if stream and response.status_code == 200 else []
            if kind.protocol in ("anthropic-messages", "gemini"):
                has_begun = stream and (kind is MessagesClient or len(raws) > 1)  # a failure before that has its status
                assert response.status_code == (200 if has_begun else 502)
                error = (events[-1] if has_begun else response.json())["error"]
                assert "arguments of a call of weather are no JSON object" in error["message"]
                assert "STOP" not in response.text
                if kind is MessagesClient:
                    assert not {*closed_inputs(events)} & {*NO_OBJECTS}
                else:
                    assert raw[1:-1] not in response.text
                continue
            body = client.whole(events) if stream else response.json()
            if kind is ResponsesClient:
                assert [(item["status"], item["arguments"]) for item in body["output"]] == [
                    ("completed", raw) for raw in given
                ]
            else:
                calls = body["choices"][0]["message"]["tool_calls"]
                assert [call["function"]["arguments"] for call in calls] == given


SHELLS: list[tuple[Json, str, str]] = [
    ({"type": "local_shell"}, "local_shell", '{"command":["ls"],}'),
    ({"type": "shell"}, "shell", '["ls"]'),
    ({"type": "custom", "name": "edit"}, "edit", '{"input":"x",}'),
]


@each("tool, name, raw", SHELLS)
@each("stream", [True, False])
def test_an_item_without_arguments_is_no_whole_call(
    tmp_path: Path, tool: Json, name: str, raw: str, stream: bool
) -> None:
    with gateway_for(Upstream(calling(raw, name=name)), tmp_path) as http:
        body = {"model": "zai/glm-4.7", "input": "Go.", "tools": [tool], "stream": stream}
        response = http.post("/v1/responses", json=body)
    if stream:
        events = frames(response.text)
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert [item["status"] for item in done] == ["incomplete"]
        assert [item.get("action", {}).get("command", []) for item in done] == [[]]
        assert [event["type"] for event in events][-2:] == ["error", "response.failed"]
        assert events[-1]["response"]["output"] == done
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (502, "reply_cut")


def test_a_call_that_broke_off_is_an_incomplete_item(tmp_path: Path) -> None:
    with gateway_for(Upstream(calling('{"city":"Os')), tmp_path) as http:
        client = ResponsesClient(http, "zai/glm-4.7")
        client.user("Weather?")
        events = frames(http.post(client.path(), json=client.request()).text)
    [done] = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (done["status"], done["arguments"]) == ("incomplete", '{"city":"Os')
    assert "response.function_call_arguments.done" not in [event["type"] for event in events]
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["output"] == [done]


# ── no counts ────────────────────────────────────────────────────────────────
def test_an_error_has_no_note_on_counts_that_the_client_does_not_get(tmp_path: Path) -> None:
    with peer.Peer([peer.answer(200, b"hello")]) as endpoint:
        path = tmp_path / "own.toml"
        head = f'[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "{endpoint.url}"\nkeys = []\n'
        path.write_text(head + '[models."home/m"]\n', encoding="utf-8")
        registry = Registry.load(str(path))
        gateway = Gateway(registry, client=AsyncClient(registry), keys=[KEY])
        with running(gateway) as url, httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}) as http:
            client = MessagesClient(http, "home/m", stream=False)
            client.user("Hello.")
            response = http.post(client.path(), json=client.request())
            notes = http.get(f"/v1/requests/{response.headers['x-request-id']}").json()["notes"]
    assert response.status_code == 502
    assert "usage-estimated" not in [note["code"] for note in notes]


@each("known", [{}, {"completion_tokens": 7}])
@each("stream", [True, False])
def test_counts_that_an_endpoint_does_not_report_are_no_zeros(
    tmp_path: Path, known: dict[str, int], stream: bool
) -> None:
    """A client of Messages, whose protocol requires them, gets estimates and a note.

    Another client gets an estimate where one of the two is known, and else none.
    """
    if stream:
        counts = peer.frame({"choices": [], "usage": known})
        content = peer.stream(peer.delta("Hello, " * 20), peer.delta(finish="stop"), counts, peer.DONE)
    else:
        content = peer.answer(200, json.dumps({**json.loads(peer.whole("Hello, " * 20)), "usage": known}).encode())
    with peer.Peer([content], [content], [content]) as endpoint:
        path = tmp_path / "own.toml"
        head = f'[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "{endpoint.url}"\nkeys = []\n'
        path.write_text(head + '[models."home/m"]\n', encoding="utf-8")
        registry = Registry.load(str(path))
        gateway = Gateway(registry, client=AsyncClient(registry), keys=[KEY])
        with running(gateway) as url, httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}) as http:
            client = MessagesClient(http, "home/m", stream=stream)
            client.user("Hello there. " * 100)
            response = http.post(client.path(), json=client.request())
            others = [kind(http, "home/m", stream=stream) for kind in (ChatClient, ResponsesClient)]
            for other in others:
                other.user("Hello there. " * 100)
                other.send()
            notes = http.get(f"/v1/requests/{response.headers['x-request-id']}").json()["notes"]
    events = frames(response.text) if stream else []
    usage = events[-2]["usage"] if stream else response.json()["usage"]
    assert 200 < usage["input_tokens"] < 600
    if stream:
        assert usage["input_tokens"] == events[0]["message"]["usage"]["input_tokens"]
    assert usage["output_tokens"] == known.get("completion_tokens", usage["output_tokens"]) > 0
    [note] = [note for note in notes if note["code"] == "usage-estimated"]
    assert ("input" in note["said"], "output" in note["said"]) == (True, not known)
    for other, names in zip(
        others, (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")), strict=True
    ):
        counts_of_other = other.body.get("usage")
        is_left_out = not known or (stream and names[0] == "prompt_tokens")  # nobody asked for counts of the stream
        assert (counts_of_other is None) == is_left_out
        if counts_of_other is not None:
            given, output = (counts_of_other[name] for name in names)
            assert 200 < given < 600
            assert (output, counts_of_other["total_tokens"]) == (7, given + 7)
