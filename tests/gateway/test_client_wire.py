"""Which wire a gateway asks a model on: the client's, where the registry says that its endpoint answers there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cnllm import AsyncClient, Registry
from cnllm.errors import UnknownModel
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.gateway.model_names import ModelNames
from cnllm.gateway.server import running
from cnllm.registry.trusted_files import trust
from cnllm.registry_files.check import check
from cnllm.simulator.server import running as simulating

from .support import KEY

Json = dict[str, Any]
CHAT, RESPONSES, MESSAGES, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini"
HEADER = "x-cnllm-upstream-protocol"


def request(protocol: str, model: str, *turns: str, **more: Any) -> tuple[str, Json]:
    """The path and the body with which a client of a wire sends user turns."""
    messages = [{"role": "user", "content": turn} for turn in turns or ("Hello.",)]
    if protocol == RESPONSES:
        return "/v1/responses", {"model": model, "input": messages, **more}
    if protocol == MESSAGES:
        return "/v1/messages", {"model": model, "max_tokens": 64, "messages": messages, **more}
    if protocol == GEMINI:
        contents = [{"role": "user", "parts": [{"text": turn["content"]}]} for turn in messages]
        return f"/v1beta/models/{model}:generateContent", {"contents": contents, **more}
    return "/v1/chat/completions", {"model": model, "messages": messages, **more}


class Place:
    """A gateway whose endpoints are a simulator behind a socket, and the requests that it got there."""

    def __init__(self, http: httpx.Client, gateway: Gateway, url: str, seen: list[str]) -> None:
        self.http, self.gateway, self.url, self.seen = http, gateway, url, seen

    def ask(self, protocol: str, model: str, *turns: str, **more: Any) -> httpx.Response:
        path, body = request(protocol, model, *turns, **more)
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer


def overlay(url: str, *, wires: bool = True) -> str:
    """A file that moves two vendors to an address, for their own wire, and for others where it says so."""
    text = f'[providers.openai]\nbase_url = "{url}/openai"\n[providers.deepseek]\nbase_url = "{url}/deepseek"\n'
    if wires:
        text += f'[providers.openai.on.openai-responses]\nbase_url = "{url}/openai"\n'
        text += f'[providers.deepseek.on.anthropic-messages]\nbase_url = "{url}/deepseek"\n'
        text += f'[providers.deepseek.on.openai-responses]\nbase_url = "{url}/deepseek"\n'
    return text


@contextlib.contextmanager
def serving(folder: Path, more: str = "", *, wires: bool = True, **options: Any) -> Iterator[Place]:
    seen: list[str] = []
    file = folder / "overlay.toml"

    def note(_: str, path: str, phase: str) -> None:
        if phase == "received":
            seen.append(path)

    with simulating(Registry.load(), on_request=note) as server:
        file.write_text(overlay(server.url, wires=wires) + more)
        trust(file)
        registry = Registry.load(str(file))
        gateway = Gateway(registry, keys=[KEY], client=AsyncClient(registry, api_key="sk-of-the-vendor"), **options)
        headers = {"authorization": f"Bearer {KEY}"}
        with running(gateway) as url, httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            yield Place(http, gateway, server.url, seen)


@pytest.mark.parametrize(
    ("model", "wires"),
    [
        ("openai/gpt-5.5", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: CHAT, GEMINI: CHAT}),
        ("google/gemini-3.6-flash", {CHAT: CHAT, RESPONSES: CHAT, MESSAGES: CHAT, GEMINI: GEMINI}),
        ("anthropic/claude-sonnet-4-5", dict.fromkeys((CHAT, RESPONSES, MESSAGES, GEMINI), MESSAGES)),
        ("deepseek/deepseek-flash", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: MESSAGES, GEMINI: CHAT}),
        ("alibaba-cn/qwen3.8-max", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: MESSAGES, GEMINI: CHAT}),
        ("volcengine/doubao-seed-2-1-pro-260628", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: MESSAGES}),
        ("xai/grok-4.7", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: CHAT}),
        ("zai/glm-4.7", {CHAT: CHAT, RESPONSES: CHAT, MESSAGES: MESSAGES}),
        ("minimax/MiniMax-M3", {CHAT: CHAT, RESPONSES: RESPONSES, MESSAGES: MESSAGES}),
        ("openai/an-id-that-nobody-has-described", {CHAT: CHAT, RESPONSES: CHAT}),
        ("openrouter/z-ai/glm-5.2", {CHAT: CHAT, RESPONSES: CHAT, MESSAGES: CHAT}),
        ("ollama/qwen3", {CHAT: CHAT, RESPONSES: CHAT, MESSAGES: CHAT}),  # of an unknown version
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_wire_by_the_registry(model: str, wires: dict[str, str]) -> None:
    names = ModelNames(Registry.load(), {"mapped-*": model})
    for name in (model, "mapped-1"):
        found = {wire: getattr(names.resolve(name, wire), "protocol", None) for wire in wires}
        assert found == wires


def test_a_bracket_in_a_name_of_clients_stands_for_itself() -> None:
    patterns = {"sonnet[1m]": "zai/glm-4.7", "opus-*[1m]": "zai/glm-4.6", "x-[!a]?": "zai/glm-4.5"}
    names = ModelNames(Registry.load(), patterns)
    wanted = {"sonnet[1m]": "zai/glm-4.7", "opus-5[1m]": "zai/glm-4.6", "x-[!a]b": "zai/glm-4.5"}
    assert {name: names.target(name) for name in wanted} == wanted
    assert [name for name in ("sonnet1", "sonnetm", "opus-5m", "x-b", "x-b1", "x-[!a]") if names.target(name)] == []
    key = KeyRecord("k", 0, models=("m[1]", "home/*[2]"))
    assert [name for name in ("home/m[1]", "other/m[1]", "home/x[2]") if not key.allows(name)] == []
    assert [name for name in ("home/m1", "home/x2", "other/x[2]") if key.allows(name)] == []


def test_each_statement_that_a_wire_is_served_has_a_source() -> None:
    registry = Registry.load()
    for name in registry.names():
        for wire in registry.wires(name)[1:]:
            model = registry.resolve(name, protocol=wire)
            if model.flags.supported is not None:
                assert next(fact.source for fact in model.explain() if fact.flag == "supported"), (name, wire)


def test_a_client_is_answered_over_its_own_wire(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        answer = place.ask(RESPONSES, "openai/gpt-5.5", instructions="Be brief.")
        assert answer.headers[HEADER] == RESPONSES
        assert answer.headers["x-cnllm-model"] == "openai/gpt-5.5"
        assert place.seen == ["/openai/responses"]
        streamed = place.ask(MESSAGES, "deepseek/deepseek-flash", stream=True)
        assert streamed.headers[HEADER] == MESSAGES
        assert "message_stop" in streamed.text
        assert place.seen[1:] == ["/deepseek/v1/messages"]
        entry = place.http.get(f"/v1/requests/{streamed.headers['x-request-id']}").json()
        assert (entry["protocol"], entry["upstream_protocol"]) == (MESSAGES, MESSAGES)
        translated = place.ask(MESSAGES, "openai/gpt-5.5")
        assert translated.headers[HEADER] == CHAT
        assert place.seen[2:] == ["/openai/chat/completions"]


def test_the_operator_chooses_another_wire(tmp_path: Path) -> None:
    route = '[gateway.routes.best]\ntargets = ["openai/gpt-5.5?protocol=openai-chat", "deepseek/deepseek-flash"]\n'
    maps = {"chat-*": "openai/gpt-5.5?protocol=openai-chat", "any-*": "openai/gpt-5.5"}
    with serving(tmp_path, route, models=maps) as place:
        wires = {name: place.ask(RESPONSES, name).headers[HEADER] for name in ("chat-1", "any-1", "best")}
        assert wires == {"chat-1": CHAT, "any-1": RESPONSES, "best": CHAT}
        unknown = place.http.post("/v1/responses", json={"model": "openai/gpt-5.5?protocol=gemini", "input": "Hi"})
        assert unknown.headers.get(HEADER) != GEMINI  # a client speaks a wire, and chooses none
    off = '[models."openai/gpt-5.5".on.openai-responses]\nsupported = false\n'
    registry = Registry.load(str(_file(tmp_path / "off.toml", off)))
    assert getattr(ModelNames(registry).resolve("openai/gpt-5.5", RESPONSES), "protocol", "") == CHAT
    with pytest.raises(UnknownModel, match="nonsense"):
        ModelNames(Registry.load(), {"a": "openai/gpt-5.5?protocol=nonsense"})


def test_an_address_of_the_user_is_asked_on_the_wire_that_the_user_described(tmp_path: Path) -> None:
    with serving(tmp_path, wires=False) as place:  # nobody has said what the proxy at this address speaks
        assert place.ask(RESPONSES, "openai/gpt-5.5").headers[HEADER] == CHAT
        assert place.ask(MESSAGES, "deepseek/deepseek-flash").headers[HEADER] == CHAT
        assert place.seen == ["/openai/chat/completions", "/deepseek/chat/completions"]


def test_a_response_whose_first_turn_ran_on_another_wire_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, wires=False) as place:
        first = place.ask(RESPONSES, "deepseek/deepseek-flash", "My name is Mei.", reasoning={"effort": "high"})
        assert first.headers[HEADER] == CHAT
        file = _file(tmp_path / "moved.toml", overlay(place.url))
        place.gateway.use(Registry.load(str(file)))
        id = first.json()["id"]
        for _ in range(2):  # over the new wire, and then with a history of both
            body = {"model": "deepseek/deepseek-flash", "input": "And I?", "previous_response_id": id}
            answer = place.http.post("/v1/responses", json={**body, "reasoning": {"effort": "high"}})
            assert answer.status_code == 200, answer.text
            id = answer.json()["id"]
        items = place.http.get(f"/v1/responses/{id}/input_items?order=asc").json()["data"]
        users = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
        assert users == ["My name is Mei.", "And I?", "And I?"]
        assert any(item["type"] == "reasoning" for item in items if "type" in item)


def test_another_target_of_a_route_is_asked_on_a_wire_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECOND_KEY", "sk-of-the-second")
    with simulating(Registry.load()) as server:
        own = f"""[gateway.routes.best]
targets = ["first/m", "second/deepseek-flash"]
[providers.first]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9/v1"
[providers.second]
protocol = "openai-chat"
base_url = "{server.url}/deepseek"
keys = ["SECOND_KEY"]
[providers.second.on.anthropic-messages]
path = "/v1/messages"
supported = true
"""
        with serving(tmp_path, own) as place:
            wires = {wire: place.ask(wire, "best").headers[HEADER] for wire in (MESSAGES, RESPONSES)}
            assert wires == {MESSAGES: MESSAGES, RESPONSES: CHAT}


def test_the_check_knows_the_wire_of_a_target_and_the_place_of_the_flag(tmp_path: Path) -> None:
    good = _file(tmp_path / "good.toml", '[gateway.models]\n"a-*" = "openai/gpt-5.5?protocol=openai-responses"\n')
    assert not list(check([str(good)]))
    bad = '[gateway.models]\n"a-*" = "openai/gpt-5.5?protocol=gemini"\n[providers.openai]\nsupported = true\n'
    problems = [str(problem) for problem in check([str(_file(tmp_path / "bad.toml", bad))])]
    assert any("does not support the protocol gemini" in problem for problem in problems)
    assert any("belongs in a table under `on`" in problem for problem in problems)


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
