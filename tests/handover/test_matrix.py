"""A conversation goes from any wire to any other and back, over real sockets and past refusals of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cnllm import Client, Media, Message, Part, Reasoning, Registry, Reply, Text, ToolResult
from cnllm.protocols import PROTOCOLS
from cnllm.simulator.server import Server, running

WIRES = PROTOCOLS
PICTURE = Media("image/png", "iVBORw0KGgo=")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks it up.",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
    for name in ("search", "weather")
]
REFUSES = """simulator.refusals = [{ on = "reasoning-missing", status = 400, body = "reasoning is missing" }]"""


def described(wire: str, base: str) -> str:
    """An endpoint that always thinks, wants its thoughts back in every turn with calls, and reads pictures."""
    fields = {
        "openai-chat": 'fields = ["reasoning_content"], replay = "always", replay_as = "field", if_missing = "space",',
        "anthropic-messages": 'replay = "always", replay_as = "seal",',
    }
    return f"""
[providers.at-{wire}]
title    = "An endpoint over {wire}"
protocol = "{wire}"
base_url = "{base}"
keys     = ["HANDOVER_KEY"]
input    = ["text", "image"]
limits   = {{ context = 100_000, output = 20_000 }}
reasoning = {{ mode = "always", {fields.get(wire, "")} default = "on" }}
{REFUSES if wire == "openai-chat" else ""}
[models."at-{wire}/m"]
"""


def registry(folder: Path, url: str | None) -> Registry:
    """The built-in file with one endpoint for each wire: at the server, or for the server itself."""
    text = "".join(described(w, f"{url}/at-{w}" if url else "http://127.0.0.1:9") for w in WIRES)
    path = folder / ("client.toml" if url else "server.toml")
    path.write_text(text)
    return Registry.load(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(registry(tmp_path_factory.mktemp("server"), None)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Client(registry(tmp_path_factory.mktemp("client"), server.url), api_key="sk-handover") as client:
        yield client


def said(client: Client, wire: str, history: list[Message], *, stream: bool, **options: Any) -> Reply:
    """The next turn of the endpoint over this wire, appended to the history."""
    if stream:
        with client.stream(f"at-{wire}/m", history, **options) as events:
            for _ in events:
                pass
        reply = events.reply
    else:
        reply = client.call(f"at-{wire}/m", history, **options)
    history.append(reply.message)
    return reply


def goes_through(client: Client, wire: str, history: list[Message], *, stream: bool) -> None:
    """A picture, parallel calls, results with a picture, an answer, and a word of the system's in the middle."""
    picture: list[Part] = [PICTURE, Text(f"What is that ({wire})? Look it up twice, in parallel.")]
    history.append(Message("user", picture))
    reply = said(client, wire, history, stream=stream, tools=TOOLS)
    assert len(reply.tool_calls) == 2, wire
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.finish == "tool_calls"
    for number, call in enumerate(reply.tool_calls):
        media = (PICTURE,) if number else ()
        history.append(Message("tool", [ToolResult(call.id, f"A cat of {wire}.", call.name, False, media)]))
    reply = said(client, wire, history, stream=stream, tools=TOOLS, tool_choice="none")
    assert reply.finish == "stop"
    assert reply.text
    history.append(Message("system", [Text("From now on in English.")]))


def seals(history: list[Message], by: str) -> list[Any]:
    """What an endpoint gave to be brought back."""
    return [
        part.seal.data
        for message in history
        if message.by == by
        for part in message.parts
        if getattr(part, "seal", None) is not None and part.seal is not None
    ]


def strings(seals: list[Any]) -> Iterator[str]:
    """The signatures in what is sealed."""
    for seal in seals:
        for key in ("signature", "thoughtSignature", "encrypted_content"):
            if isinstance(seal, dict) and key in seal:
                yield seal[key]


@pytest.mark.share(4)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_from_any_wire_to_any_and_back(client: Client, source: str, target: str, stream: bool) -> None:
    history = [Message("system", [Text("You look things up.")])]
    goes_through(client, source, history, stream=stream)
    own = seals(history, f"at-{source}/m")
    assert source == "openai-chat" or own, "a wire that seals its thoughts gave none"
    thoughts = [m.reasoning for m in history if m.reasoning]
    assert thoughts

    goes_through(client, target, history, stream=stream)
    plan = client.plan(f"at-{target}/m", [*history, Message("user", [Text("And now?")])], tools=TOOLS)
    content = plan.content.decode()
    for text in strings(own):
        assert (text in content) == (source == target), text
    if source != target:
        named = [thought for thought in thoughts if f"({source})" in thought]
        assert named
        assert not any(json.dumps(thought, ensure_ascii=False)[1:-1] in content for thought in named)
        assert {"reasoning-foreign"} <= {note.code for note in plan.notes}
    assert f"A cat of {source}." in content

    history.append(Message("user", [Text("Thank you. One word more?")]))
    reply = said(client, source, history, stream=stream, tools=TOOLS, tool_choice="none")
    assert reply.text
    plan = client.plan(f"at-{source}/m", [*history, Message("user", [Text("Good.")])], tools=TOOLS)
    for text in strings(own):
        assert text in plan.content.decode(), "what the endpoint sealed came back to it changed"


@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_another_wire_goes_on_in_the_middle_of_a_tool_loop(client: Client, source: str, target: str) -> None:
    history = [Message("user", [Text("Look it up twice, in parallel.")])]
    reply = said(client, source, history, stream=False, tools=TOOLS)
    for call in reply.tool_calls:
        history.append(Message("tool", [ToolResult(call.id, "It rains.", call.name)]))
    answer = said(client, target, history, stream=False, tools=TOOLS)
    assert "It rains." in answer.text


@pytest.mark.parametrize("wire", WIRES)
def test_what_was_kept_as_json_goes_back_byte_for_byte(client: Client, wire: str) -> None:
    history = [Message("system", [Text("You look things up.")])]
    goes_through(client, wire, history, stream=False)
    kept = [Message.from_dict(message.to_dict()) for message in history]
    question = Message("user", [Text("And now?")])
    assert kept == history
    one = client.plan(f"at-{wire}/m", [*history, question], tools=TOOLS)
    assert client.plan(f"at-{wire}/m", [*kept, question], tools=TOOLS).content == one.content


@pytest.mark.parametrize("wire", ["anthropic-messages", "openai-responses"])
def test_a_thought_that_was_changed_loses_its_seal_and_is_not_sent_as_the_endpoints_own(
    client: Client, wire: str
) -> None:
    history = [Message("user", [Text("Why?")])]
    reply = said(client, wire, history, stream=False)
    own = list(strings(seals([reply.message], f"at-{wire}/m")))
    edited = {**reply.message.to_dict(), "reasoning": "Something else."}
    plan = client.plan(f"at-{wire}/m", [history[0], edited, Message("user", [Text("And?")])])
    assert not any(text in plan.content.decode() for text in own)
    assert type(Message.from_dict(edited).parts[0]) is Reasoning
