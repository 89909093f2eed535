"""llama.cpp's own server on its three wires, with a small model that thinks and calls tools.

The model knows what to answer by the last character of the prompt. It reads bytes, each special token counts one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from examples import some

import cnllm
from cnllm import Client, Model, Registry, Reply

from .conftest import FORCED, TIME, WEATHER, Pair, Servers

WIRES = ("openai-chat", "openai-responses", "anthropic-messages")
PATHS = dict(zip(WIRES, ("/chat/completions", "/responses", "/v1/messages"), strict=True))
PROVIDERS = ("llamacpp", "openai-compatible")
_SPECIAL = re.compile("<think>|</think>|<tool_call>|</tool_call>")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# what the model writes, the reasoning in it, the answer (None: nothing but markup)
ANSWERS: dict[str, tuple[str, str, str | None]] = {
    "1": ("Hello there!", "", "Hello there!"),
    "2": ("<think>\nHm, I ponder.\n</think>\n\nThe answer is 42.", "Hm, I ponder.", "The answer is 42."),
    "3": (WEATHER, "", None),
    "4": (f"{WEATHER}\n{TIME}", "", None),
    "5": (FORCED["5"], "Need weather.", None),
    "6": (ALPHABET, "", ALPHABET),
    "7": ("你好，世界！🙂", "", "你好，世界！🙂"),
    "8": (FORCED["8"], "", None),
    "9": ('{"ok": true}', "", '{"ok": true}'),
}


def _tool(name: str, description: str, key: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [_tool("get_weather", "weather", "city"), _tool("get_time", "time", "zone")]
TOOLS[1]["function"]["parameters"].pop("required")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


@pytest.fixture
def client(registry: Registry) -> Iterator[Client]:
    with Client(registry=registry) as client:
        yield client


def _model(registry: Registry, provider: str, wire: str, origin: str) -> Model:
    base = origin if wire == "anthropic-messages" else f"{origin}/v1"
    return registry.resolve(f"{provider}/tiny", protocol=wire, base_url=base)


def _replies(client: Client, model: Model, messages: Any, **options: Any) -> Iterator[tuple[bool, Reply]]:
    """The reply as a whole, then as a stream, whose events must say the same."""
    options = {"temperature": 0, **options}
    yield False, client.call(model, messages, **options)
    with client.stream(model, messages, **options) as stream:
        events = list(stream)
    reply = stream.reply
    assert reply is not None
    assert "".join(e.text for e in events if isinstance(e, cnllm.TextDelta)) == reply.text
    assert "".join(e.text for e in events if isinstance(e, cnllm.ReasoningDelta)) == reply.reasoning
    yield True, reply


def _tokens(written: str) -> int:
    return len(_SPECIAL.sub(".", written).encode()) + 1  # and the end of the turn


@pytest.mark.sampled
def test_the_answers_come_out_right_on_every_wire(servers: Servers, registry: Registry, client: Client) -> None:
    for plain, provider, wire in some([*itertools.product((False, True), PROVIDERS, WIRES)], 3):
        for key, (written, reasoning, answer) in ANSWERS.items():
            pair = servers.forced.get(key) or Pair(servers.parsed, servers.plain)
            model = _model(registry, provider, wire, pair[plain])
            for streamed, reply in _replies(client, model, f"say {key}"):
                case = (plain, provider, wire, key, streamed, reply)
                assert reply.reasoning.strip() == reasoning, case
                assert "<think>" not in reply.text, case
                assert "<tool_call>" not in reply.text, case
                assert reply.finish == "stop", case
                assert reply.tool_calls == [], case
                codes = {note.code for note in reply.notes}
                if answer is None:
                    assert "{" not in reply.text, case  # a sentence stands there
                    assert reply.text, case
                    assert codes & {"text-call-stripped", "text-call-broken"}, case
                else:
                    assert reply.text == answer, case
                    assert not any(code.startswith("text-call") for code in codes), case
                if provider == "openai-compatible" and wire == "openai-chat" and streamed:
                    assert reply.usage.output is None, case  # not asked for: unknown is not zero
                else:
                    # where the first byte is no whole character, the server leaves out message_start
                    late = wire == "anthropic-messages" and streamed and key == "7"
                    assert reply.usage.input == (None if late else 24), case
                    assert reply.usage.output == _tokens(written), case


@pytest.mark.sampled
def test_calls_come_out_right_on_every_wire(servers: Servers, registry: Registry, client: Client) -> None:
    weather, time = ("get_weather", {"city": "Bern"}), ("get_time", {"zone": "UTC"})
    origins = (servers.parsed, servers.plain)
    for origin, provider, wire in some([*itertools.product(origins, PROVIDERS, WIRES)], 1):
        via = "text" if origin == servers.plain else "wire"
        model = _model(registry, provider, wire, origin)
        for prompt, calls in (("say 3", [weather]), ("question number 4", [weather, time])):
            for streamed, reply in _replies(client, model, prompt, tools=TOOLS):
                case = (via, provider, wire, prompt, streamed, reply)
                assert [(c.name, c.arguments) for c in reply.tool_calls] == calls, case
                assert [(c.via, c.problem) for c in reply.tool_calls] == [(via, None)] * len(calls), case
                assert (reply.text, reply.reasoning, reply.finish) == ("", "", "tool_calls"), case
                assert reply.incomplete == [], case


def test_a_call_after_reasoning_and_a_broken_call_with_tools(
    servers: Servers, registry: Registry, client: Client
) -> None:
    for provider in PROVIDERS:
        for wire in WIRES:
            model = _model(registry, provider, wire, servers.forced["5"].plain)
            for streamed, reply in _replies(client, model, "say 5", tools=TOOLS):
                case = (provider, wire, streamed, reply)
                assert [(c.name, c.arguments, c.via) for c in reply.tool_calls] == [
                    ("get_weather", {"city": "Bern"}, "text")
                ], case
                assert (reply.text, reply.reasoning.strip(), reply.finish) == ("", "Need weather.", "tool_calls"), case
            model = _model(registry, provider, wire, servers.forced["8"].plain)
            for streamed, reply in _replies(client, model, "say 8", tools=TOOLS):
                case = (provider, wire, streamed, reply)
                # nobody knows the city: the block is no call, and a sentence stands in its place
                assert (reply.tool_calls, reply.finish) == ([], "stop"), case
                assert reply.text.startswith("Sorry, I could not give an answer."), case
                assert [n.said for n in reply.notes if n.code == "text-call-stripped"] == [FORCED["8"]], case


def test_a_tool_is_run_and_its_result_goes_back(servers: Servers, registry: Registry) -> None:
    def get_weather(city: str) -> str:
        """weather"""
        return "21 C" if city == "Bern" else "?"

    for origin in (servers.parsed, servers.plain):
        for provider in PROVIDERS:
            for wire in WIRES:
                model = _model(registry, provider, wire, origin)
                with Client(registry=registry) as client:
                    run = client.run(model, "weather 3", tools=[get_weather], temperature=0)
                case = (provider, wire, run.reply)
                assert run.stopped == "done", case
                assert run.reply.text.startswith("It is 21 degree"), case
                assert len(run.steps) == 2, case


def test_options_do_what_they_say_on_every_wire(servers: Servers, registry: Registry, client: Client) -> None:
    for wire in WIRES:
        model = _model(registry, "llamacpp", wire, servers.parsed)
        for streamed, reply in _replies(client, model, "say 6", stop=["XYZ"]):
            assert (reply.text, reply.finish) == ("ABCDEFGHIJKLMNOPQRSTUVW", "stop"), (wire, streamed)
        for streamed, reply in _replies(client, model, "say 6", max_tokens=10):
            assert reply.text == "ABCDEFGHIJ", (wire, streamed)
            if wire != "openai-responses":  # where the server says completed
                assert reply.finish == "length", (wire, streamed)
        for streamed, reply in _replies(client, model, "say 2", reasoning="off"):
            # the template closes the thinking before it begins; this model thinks again, and nobody sees it raw
            assert (reply.usage.input, reply.text) == (30, "The answer is 42."), (wire, streamed)
        for streamed, reply in _replies(client, model, "say 2", reasoning=5):
            assert reply.reasoning == "Hm, ", (wire, streamed, reply)
        for choice, tools in (("none", 0), ("get_weather", 1), ("required", 2)):
            plan = client.plan(model, "say 3", tools=TOOLS, tool_choice=choice)
            assert len(plan.body.get("tools", [])) == tools, (wire, choice)
            said = plan.body.get("tool_choice")
            assert (said.get("type") if isinstance(said, dict) else said) in (None, "required", "any"), (wire, choice)
        for streamed, reply in _replies(client, model, "say 3", tools=TOOLS, tool_choice="none"):
            assert reply.tool_calls == [], (wire, streamed, reply)
            assert "tool-choice" in {note.code for note in reply.notes}, (wire, streamed, reply)
            assert "<tool_call>" not in reply.text, (wire, streamed, reply)
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    model = _model(registry, "llamacpp", "openai-chat", servers.parsed)
    assert client.call(model, "say 9", schema=schema, temperature=0).text == '{"ok": true}'


def test_what_the_server_refuses_for_good_is_asked_once(servers: Servers, registry: Registry, client: Client) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    for wire in WIRES:
        model = _model(registry, "llamacpp", wire, servers.parsed)
        with pytest.raises(cnllm.BadRequest, match="image input is not supported") as refused:
            client.call(model, [{"role": "user", "content": [{"type": "text", "text": "say 1"}, picture]}])
        assert (refused.value.status, refused.value.retryable) == (500, False), wire
        for call in (client.call, _streamed(client)):
            with pytest.raises(cnllm.ContextTooLong, match="exceeds the available context size"):
                call(model, "x" * 9000)


def _streamed(client: Client) -> Any:
    def call(model: Model, messages: str) -> Reply | None:
        with client.stream(model, messages) as stream:
            list(stream)
        return stream.reply

    return call


def test_a_base_with_and_without_the_version(servers: Servers, registry: Registry, client: Client) -> None:
    right = ("", "/", "/v1", "/v1/")
    wrong = ("/v1/v1", "/v1/v1/", "/api", "/v1/chat/completions", "/v1/responses", "/v1/messages")
    for provider in PROVIDERS:
        for wire in WIRES:
            for tail in (*right, *wrong):
                model = registry.resolve(f"{provider}/tiny", protocol=wire, base_url=servers.parsed + tail)
                is_path = tail.endswith(PATHS[wire])  # the address of requests is sent there
                if is_path or (tail in right and (wire != "anthropic-messages" or "v1" not in tail)):
                    assert client.call(model, "say 1", temperature=0).text == "Hello there!", (provider, wire, tail)
                    continue
                for call in (client.call, _streamed(client)):
                    with pytest.raises(cnllm.BadRequest) as refused:
                        call(model, "say 1")
                    error = refused.value
                    case = (provider, wire, tail, str(error), error.hint)
                    assert (error.status, error.retryable) == (404, False), case
                    asked = servers.parsed + tail.rstrip("/") + PATHS[wire]
                    assert f"the request went to {asked})" in str(error), case
                    assert asked in (error.hint or ""), case
                base = re.search("base_url='([^']+)'", error.hint or "")
                if tail == "/api":  # the shape of an address cannot tell that nothing answers there
                    continue
                assert base, case
                better = registry.resolve(f"{provider}/tiny", protocol=wire, base_url=base[1])
                assert client.call(better, "say 1", temperature=0).text == "Hello there!", case
