"""Endpoints with a script: each request is checked as strictly as the simulator can, and answered by the script.

The script is chosen by a mark in the user's words (`TURN-3`) and by the number of replies since. Requests without a
mark or without a tool that runs commands (titles, summaries) get the simulator's own reply; a client that has no tools
at all gets its script by the mark alone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cnllm.registry import Registry
from cnllm.registry.model import Model
from cnllm.simulator import chat, codec
from cnllm.simulator.check_request import check_request
from cnllm.simulator.codec import read_request
from cnllm.simulator.reply import SimulatedReply, command_tool, make_reply, with_harmless_command
from cnllm.simulator.request import ParsedRequest, ParsedTool, RequestCall, flags_for
from cnllm.simulator.schema_sample import sample_match, sample_value
from cnllm.types import Usage

_MARK = re.compile(r"TURN-(\d)")
_USAGE = Usage(input=900, output=90, total=990, reasoning=20, cached=0)


@dataclass(frozen=True)
class Step:
    """One reply: commands to run (at once), as calls or in the model's own markup; calls of other tools; or a text."""

    commands: Sequence[str] = ()
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    text: str = ""
    leaked: bool = False


@dataclass
class Seen:
    """A request that a script answered, with the results of tools in it."""

    model: str
    turn: int
    step: int
    body: dict[str, Any]
    results: list[str]


@dataclass
class Record:
    """What reached the endpoints."""

    seen: list[Seen] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    others: int = 0


def thought(model: str, turn: int, step: int) -> str:
    """The reasoning of one reply, as no other has it."""
    return f"Thought {turn}.{step} of {model}: first things first, 先想一想。\n\nThen the rest."


class Upstream(ThreadingHTTPServer):
    """The endpoints of all providers, at /PROVIDER."""

    daemon_threads = True

    def __init__(self, registry: Registry, script: Mapping[int, Sequence[Step]], *, has_tools: bool = True) -> None:
        self.has_tools = has_tools
        self.registry = registry
        self.script = script
        self.record = Record()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, headers: dict[str, str], content: bytes) -> tuple[int, bytes, bool]:
        """Status, body, and whether the body is a stream."""
        provider = path[1:].partition("/")[0]
        body = json.loads(content)
        protocol = "openai-responses" if path.endswith("/responses") else None
        model = self.registry.resolve(f"{provider}/{body['model']}", protocol=protocol)
        request = read_request(model, body, path)
        refusal = check_request(model, headers, request, strict=True)
        if refusal is not None:
            self.record.refused.append((model.name, refusal.body))
            return refusal.status, refusal.body.encode(), False
        flags, thinks = flags_for(model, request)
        reply = self._scripted(model, request, body) or make_reply(model.id, flags, request, thinks=thinks)
        wire = chat if protocol is None else codec
        if request.stream:
            return 200, b"".join(wire.encode_frames(model, flags, request, reply)), True
        return 200, wire.encode_body(model, flags, request, reply), False

    def _scripted(self, model: Model, request: ParsedRequest, body: dict[str, Any]) -> SimulatedReply | None:
        tool = command_tool(request.functions)
        marks = [(i, m) for i, t in enumerate(request.turns) if t.role == "user" for m in _MARK.findall(t.text)]
        if (tool is None and self.has_tools) or not marks:
            self.record.others += 1
            return None
        index, turn = marks[-1][0], int(marks[-1][1])
        step = sum(t.role == "assistant" for t in request.turns[index:])
        steps = self.script[turn]
        results = [t.text for t in request.turns if t.role == "tool"]
        self.record.seen.append(Seen(model.name, turn, step, body, results))
        return _reply(model, tool, turn, step, steps[min(step, len(steps) - 1)])


def _reply(model: Model, tool: ParsedTool | None, turn: int, step: int, entry: Step) -> SimulatedReply:
    commands = enumerate(entry.commands)
    calls = [] if tool is None else [_call(model, tool, command, f"{turn}.{step}.{n}") for n, command in commands]
    for name, arguments in entry.calls:
        content = json.dumps(arguments, ensure_ascii=False)
        calls.append(RequestCall(_call_id(model, f"{turn}.{step}.{len(calls)}"), name, content))
    text = entry.text
    if entry.leaked:
        text, calls = "".join(_LEAKS[model.provider](call) for call in calls), []
    return SimulatedReply(
        id=sha256(f"{model.name}{turn}.{step}".encode()).hexdigest()[:24],
        model=model.id,
        reasoning=thought(model.name, turn, step),
        text=text,
        calls=tuple(calls),
        finish="tool_calls" if calls else "stop",
        usage=_USAGE,
    )


def _call(model: Model, tool: ParsedTool, command: str, seed: str) -> RequestCall:
    sample = with_harmless_command(tool, sample_value(tool.parameters, "A step of the script"), 0)
    arguments = {
        name: ([command] if isinstance(value, list) else command) if value in ("ls", ["ls"]) else value
        for name, value in sample.items()
    }
    return RequestCall(_call_id(model, seed), tool.name, json.dumps(arguments, ensure_ascii=False))


def _call_id(model: Model, seed: str) -> str:
    """An id as the model makes them."""
    pattern = model.flags.tools.call_id_pattern
    id = f"call_{sha256(f'{model.name}{seed}'.encode()).hexdigest()[:20]}"
    return id if pattern is None else sample_match(pattern, seed)[0] or id


def _pairs(call: RequestCall) -> str:
    pairs = "".join(
        f"<arg_key>{name}</arg_key>\n<arg_value>{value if isinstance(value, str) else json.dumps(value)}</arg_value>\n"
        for name, value in json.loads(call.arguments).items()
    )
    return f"<tool_call>{call.name}\n{pairs}</tool_call>"


def _sections(call: RequestCall) -> str:
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{call.arguments}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def _kimi(call: RequestCall) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{call.name}:0<|tool_call_argument_begin|>"
        f"{call.arguments}<|tool_call_end|><|tool_calls_section_end|>"
    )


def _invoke(call: RequestCall) -> str:
    parameters = "".join(
        f'<parameter name="{name}">{value if isinstance(value, str) else json.dumps(value)}</parameter>\n'
        for name, value in json.loads(call.arguments).items()
    )
    return f'<minimax:tool_call>\n<invoke name="{call.name}">\n{parameters}</invoke>\n</minimax:tool_call>'


def _json(call: RequestCall) -> str:
    return f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'


_LEAKS = {"zai": _pairs, "deepseek": _sections, "moonshotai": _kimi, "minimax": _invoke, "alibaba-cn": _json}
"""The markup in which the models of each provider leak a call."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # two writes: the second would wait for an ACK of the first
    server: Upstream

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        status, body, stream = self.server.answer(self.path, dict(self.headers.items()), content)
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def scripted_upstream(
    registry: Registry, script: Mapping[int, Sequence[Step]], *, has_tools: bool = True
) -> Iterator[Upstream]:
    """The endpoints, served while the block runs."""
    with Upstream(registry, script, has_tools=has_tools) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
