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
from cases import each
from engine.test_quirks import TOOL, Endpoint, Quirks, Turn

import cnllm
from cnllm import AsyncClient, Client
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.server import running

from .support import KEY

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
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
