"""A call that the caller's choice or offer excludes is never executed, on any wire."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import cnllm

Calls = list[tuple[str | None, str, dict[str, Any]]]  # id, name, arguments
WIRES = ["openai-chat", "anthropic-messages", "gemini", "openai-responses"]


def chat(calls: Calls, text: str, stream: bool) -> bytes:
    made = [
        {**({"id": id} if id is not None else {}), "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls
    ]  # fmt: skip
    finish = "tool_calls" if calls else "stop"
    if not stream:
        message = {"role": "assistant", "content": text or None, "tool_calls": made or None}
        return json.dumps({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()
    deltas: list[Any] = [{"content": text}] if text else []
    deltas += [{"tool_calls": [{**call, "index": n}]} for n, call in enumerate(made)]
    chunks: list[Any] = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: %s\n\n" % json.dumps(c).encode() for c in chunks) + b"data: [DONE]\n\n"


def events(told: list[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in told)


def messages(calls: Calls, text: str, stream: bool) -> bytes:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": id or "", "name": name, "input": given} for id, name, given in calls]
    reason = "tool_use" if calls else "end_turn"
    whole = {"id": "r", "type": "message", "role": "assistant", "content": blocks, "stop_reason": reason, "model": "m"}
    if not stream:
        return json.dumps({**whole, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for n, block in enumerate(blocks):
        bare = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        told.append({"type": "content_block_start", "index": n, "content_block": bare})
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if block["type"] == "text"
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        told.append({"type": "content_block_delta", "index": n, "delta": delta})
        told.append({"type": "content_block_stop", "index": n})
    told.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}})
    return events([*told, {"type": "message_stop"}])


def gemini(calls: Calls, text: str, stream: bool) -> bytes:
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += [
        {"functionCall": {**({"id": id} if id is not None else {}), "name": name, "args": given}}
        for id, name, given in calls
    ]
    body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
    return b"data: %s\r\n\r\n" % json.dumps(body).encode() if stream else json.dumps(body).encode()


def responses(calls: Calls, text: str, stream: bool) -> bytes:
    items: list[dict[str, Any]] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "id": "m0", "role": "assistant", "status": "completed", "content": content})
    items += [
        {"type": "function_call", "id": f"fc_{n}", "call_id": id or "", "name": name, "arguments": json.dumps(given)}
        for n, (id, name, given) in enumerate(calls)
    ]
    whole = {"id": "r", "object": "response", "status": "completed", "output": items}
    if not stream:
        return json.dumps(whole).encode()
    told: list[dict[str, Any]] = [{"type": "response.created", "response": {**whole, "output": [], "status": "queued"}}]
    for n, item in enumerate(items):
        told.append({"type": "response.output_item.added", "output_index": n, "item": item})
        told.append({"type": "response.output_item.done", "output_index": n, "item": item})
    return events([*told, {"type": "response.completed", "response": whole}])


WRITERS: dict[str, Callable[[Calls, str, bool], bytes]] = dict(
    zip(WIRES, (chat, messages, gemini, responses), strict=True)
)


class Peer:
    """An endpoint of one wire that answers with a script, the last entry for ever, and keeps what it was sent."""

    def __init__(self, wire: str) -> None:
        self.script: list[tuple[Calls, str]] = []
        self.bodies: list[dict[str, Any]] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                peer.bodies.append(body)
                calls, text = peer.script.pop(0) if len(peer.script) > 1 else peer.script[0]
                stream = bool(body.get("stream")) or "streamGenerateContent" in self.path
                sent = WRITERS[wire](calls, text, stream)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


REGISTRY = cnllm.Registry.load()


@pytest.fixture(params=WIRES)
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, cnllm.Model]]:
    made = Peer(request.param)
    model = REGISTRY.resolve("openai-compatible/any", base_url=made.url, protocol=request.param)
    yield made, model
    made.server.shutdown()
    made.server.server_close()


RUN: list[str] = []


def weather(city: str = "") -> str:
    """Tell the weather."""
    RUN.append(f"weather {city}")
    return f"sun over {city}"


def wipe(city: str = "") -> str:
    """Wipe a disk."""
    RUN.append("wipe")
    return "wiped"


def codes(reply: cnllm.Reply) -> list[str]:
    return [note.code for note in reply.notes]


def ask(client: cnllm.Client, model: cnllm.Model, stream: bool, **options: Any) -> cnllm.Reply:
    if not stream:
        return client.call(model, "hi", **options)
    with client.stream(model, "hi", **options) as streamed:
        ended = [event.call for event in streamed if isinstance(event, cnllm.ToolCallEnd)]
        assert ended == streamed.reply.tool_calls
        return streamed.reply


LOOK_ALIKES = [
    "Weather", "weather ", " weather", "wea\u200bther", "we\u0430ther", "ｗeather", "weather\u202e", "weather\x00",
    "weather\n", "wea\u00adther", "weathe\u0155", "functions.weather", "rm_rf",
]  # fmt: skip


def test_a_call_that_the_choice_excludes_is_never_executed(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            cases: list[tuple[Any, Any, list[str], str]] = [
                ("none", [("a", "weather", {"city": "x"})], ["weather"], "call-excluded"),
                ({"type": "none"}, [("a", "weather", {})], ["weather"], "call-excluded"),
                ("weather", [("a", "wipe", {})], ["wipe"], "call-excluded"),
                ("weather", [("a", "wipe", {}), ("b", "weather", {"city": "x"})], ["wipe"], "call-excluded"),
                ({"type": "function", "function": {"name": "weather"}}, [("a", "wipe", {})], ["wipe"], "call-excluded"),
                *[("auto", [("a", name, {})], [name], "call-not-offered") for name in LOOK_ALIKES],
            ]  # fmt: skip
            for choice, calls, barred, code in cases:
                RUN.clear()
                endpoint.script = [(calls, "")]
                options: dict[str, Any] = {"tools": [weather, wipe], "tool_choice": choice}
                reply = ask(client, model, stream, **options)
                excluded = [call for call in reply.tool_calls if call.excluded]
                assert [call.name.strip() for call in excluded] == [name.strip() for name in barred]
                assert all(call.arguments is None and call.problem for call in excluded)
                assert codes(reply).count(code) == 1
                note = next(note for note in reply.notes if note.code == code)
                assert note.said.isascii()
                assert note.said.isprintable()
                endpoint.script = [(calls, ""), ([], "done")]
                asked: list[str] = []
                options |= {"approve": lambda call, asked=asked: asked.append(call.name) or True}
                if stream:
                    with client.run_stream(model, "hi", **options) as running:
                        list(running)
                    run: Any = running
                else:
                    run = client.run(model, "hi", **options)
                assert run.reply.text == "done"
                assert run.stopped == "done"
                assert not set(asked) & set(barred)
                assert "wipe" not in RUN
                assert len(RUN) == len(calls) - len(barred)
                results = [part for turn in run.messages for part in turn.parts if isinstance(part, cnllm.ToolResult)]
                assert [part.id for part in results] == [call.id for call in run.steps[0].calls]


def test_a_choice_that_the_endpoint_ignores_is_noted(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            cases: list[tuple[str, Calls, bool]] = [
                ("required", [], True),
                ("weather", [], True),
                ("weather", [("a", "wipe", {})], True),
                ("required", [("a", "wipe", {})], False),
                ("weather", [("a", "weather", {})], False),
                ("auto", [], False),
                ("none", [], False),
            ]
            for choice, calls, ignored in cases:
                endpoint.script = [(calls, "words")]
                reply = ask(client, model, stream, tools=[weather, wipe], tool_choice=choice)
                assert ("tool-choice-ignored" in codes(reply)) is ignored, (stream, choice, calls)


def test_calls_without_any_tool_are_not_executable(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    calls: Calls = [("a", "weather", {})]
    endpoint.script = [(calls, "")]
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            reply = ask(client, model, stream)
            assert [call.excluded for call in reply.tool_calls] == [True]
            assert "call-not-offered" in codes(reply)


def test_ids_are_unique_in_a_reply_and_in_a_conversation(peer: tuple[Peer, cnllm.Model]) -> None:
    endpoint, model = peer
    with cnllm.Client(REGISTRY, api_key="k") as client:
        for stream in (False, True):
            for id in ("same", "call_0", "", None):
                RUN.clear()
                turn: Calls = [(id, "weather", {"city": "a"}), (id, "weather", {"city": "b"})]
                other: Calls = [(id, "weather", {"city": "c"}), (id, "weather", {"city": "d"})]
                endpoint.script = [(turn, ""), (turn, ""), (other, ""), ([], "done")]
                endpoint.bodies.clear()
                seen: list[str] = []
                options: dict[str, Any] = {"tools": [weather], "max_repeats": None}
                if stream:
                    with client.run_stream(model, "hi", **options) as running:
                        seen = [e.id for e in running if isinstance(e, cnllm.ToolCallStart)]
                    run: Any = running
                else:
                    run = client.run(model, "hi", **options)
                ids = [call.id for step in run.steps for call in step.calls]
                assert len(set(ids)) == len(ids) == 6, (stream, id, ids)
                assert all(ids)
                assert seen in ([], ids)
                for step in run.steps[:3]:
                    for call, result in zip(step.calls, step.results, strict=True):
                        assert call.id == result.id
                        assert result.text == f"sun over {call.arguments['city']}"
                assert not [n for n in run.reply.notes if n.code in ("ids-repeated", "ids-absent")]
