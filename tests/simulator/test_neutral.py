"""Names that say nothing, and models that are not there: over real sockets, on every wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import cnllm
from cnllm import Client, Registry
from cnllm.simulator.server import Server, running

Json = dict[str, Any]
HI: Json = {"messages": [{"role": "user", "content": "hi"}]}
GEMINI: Json = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
KEYS = {"authorization": "Bearer k", "x-api-key": "k", "x-goog-api-key": "k", "api-key": "k"}
NAMES = (
    "zai/glm-4.7",
    "anthropic/claude-sonnet-4-5",
    "google/gemini-2.5-flash",
    "openai/gpt-5.6-sol",
    "deepseek/deepseek-flash",
)
GIVEAWAYS = ("zai", "z.ai", "zhipu", "glm", "anthropic", "claude", "google", "openai", "gpt", "deepseek", "bigmodel")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


@pytest.fixture(scope="module")
def neutral(registry: Registry) -> Iterator[Server]:
    with running(registry, strict=True, neutral=True, models=NAMES) as listening:
        yield listening


@pytest.fixture(scope="module")
def server(registry: Registry) -> Iterator[Server]:
    with running(registry) as listening:
        yield listening


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, headers=KEYS) as made:
        yield made


def requests(model: str) -> list[tuple[str, Json]]:
    """The same question on each path: (path, body)."""
    return [
        ("/v1/chat/completions", {"model": model, **HI}),
        ("/v1/messages", {"model": model, "max_tokens": 99, **HI}),
        ("/v1/responses", {"model": model, "input": "hi"}),
        (f"/v1beta/models/{model}:generateContent", GEMINI),
    ]


PATHS = {"model-1": 0, "model-2": 1, "model-3": 3, "model-4": 2, "model-5": 0}
"""The path that each of the models answers at."""


def silent(answer: httpx.Response) -> None:
    """Nothing names a provider or a model."""
    said = f"{answer.headers} {answer.text}".lower()
    assert not [word for word in GIVEAWAYS if word in said], said


def test_answers_and_refusals_name_nobody(neutral: Server, client: httpx.Client) -> None:
    answered = 0
    for model, place in PATHS.items():
        path, body = requests(model)[place]
        for sent in (body, {**body, "stream": True}):
            answer = client.post(neutral.url + path, json=sent)
            assert answer.status_code == 200, answer.text
            assert f'"{model}"' in answer.text
            silent(answer)
            answered += 1
        broken = [
            {**body, "temperature": "hot", "generationConfig": {"temperature": "hot"}},
            {**body, "tools": []},
            {**body, "messages": 1, "input": 1, "contents": 1},
            {**body, "max_tokens": 10**9, "max_output_tokens": 10**9, "generationConfig": {"maxOutputTokens": 10**9}},
            {**body, "reasoning_effort": "colossal", "reasoning": {"effort": "colossal"}},
        ]
        refused = [client.post(neutral.url + path, json=sent) for sent in broken]
        refused.append(httpx.post(neutral.url + path, json=body, trust_env=False))  # without a key
        refused += [client.post(neutral.url + p, json=b) for p, b in requests("nobody")]
        for answer in refused:
            silent(answer)
        assert sum(answer.status_code >= 400 for answer in refused) >= 7, model
    assert answered == 10


def test_paths_of_providers_are_not_there_and_the_list_is_plain(neutral: Server, client: httpx.Client) -> None:
    for path in ("/zai/chat/completions", "/anthropic/v1/messages", "/openai/responses", "/zai/models"):
        answer = client.post(neutral.url + path, json={"model": "glm-4.7", **HI})
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == f"There is nothing at {path}."
    listed = client.get(f"{neutral.url}/v1/models")
    assert [model["id"] for model in listed.json()["data"]] == list(PATHS)
    silent(listed)


def test_other_models_are_not_served_where_some_are_named(neutral: Server, client: httpx.Client) -> None:
    for name in ("zai/glm-4.7", "glm-4.7", "model-0", "model-6", "model-", "model-1x", "model-" + "9" * 5000):
        answer = client.post(f"{neutral.url}/v1/chat/completions", json={"model": name, **HI})
        assert answer.status_code == 404, name


def test_a_client_that_knows_a_name_may_use_it_where_none_is_chosen(registry: Registry, client: httpx.Client) -> None:
    with running(registry, neutral=True) as listening:
        answer = client.post(f"{listening.url}/v1/chat/completions", json={"model": "zai/glm-4.7", **HI})
        assert answer.json()["model"] == "zai/glm-4.7"
        number = registry.names().index("zai/glm-4.7") + 1
        answer = client.post(f"{listening.url}/v1/chat/completions", json={"model": f"model-{number}", **HI})
        assert answer.json()["model"] == f"model-{number}"
        silent(answer)


def test_what_reasoning_is_sealed_with_names_nobody(neutral: Server) -> None:
    import base64
    import re

    for model, place in (("model-2", 1), ("model-4", 2)):
        path, body = requests(model)[place]
        more: Json = {"reasoning": {"effort": "high"}} if place == 2 else {"thinking": {}}
        if place == 1:
            more = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}
        answer = httpx.post(neutral.url + path, json={**body, **more}, headers=KEYS, trust_env=False)
        assert answer.status_code == 200, answer.text
        [seal] = re.findall(r'"(?:signature|encrypted_content)":"([^"]+)"', answer.text)
        assert not [word for word in GIVEAWAYS if word.encode() in base64.b64decode(seal).lower()]


# ── models that are not there ────────────────────────────────────────────────
def test_an_unknown_model_is_not_found_in_the_shape_of_each_wire(server: Server, client: httpx.Client) -> None:
    for name in ("nobody", "zai/no-such-model"):
        chat, messages, responses, gemini = (client.post(server.url + path, json=body) for path, body in requests(name))
        assert {answer.status_code for answer in (chat, messages, responses, gemini)} == {404}
        assert set(chat.json()["error"]) >= {"message"}
        assert messages.json()["type"] == "error"
        assert messages.json()["error"]["message"]
        assert set(responses.json()["error"]) == {"message", "type", "param", "code"}
        assert set(gemini.json()["error"]) >= {"code", "message", "status"}


def test_each_provider_with_models_refuses_others(server: Server, client: httpx.Client, registry: Registry) -> None:
    known = {name.partition("/")[0] for name in registry.names()}
    statuses: dict[str, int] = {}
    for provider in registry.providers:
        try:
            model = registry.resolve(f"{provider}/no-such-model")
        except cnllm.CnllmError:
            continue
        if model.protocol != "openai-chat" or "?" in (model.flags.path or "") or not model.flags.base_url:
            continue
        body = {"model": "no-such-model", "stream": True, **HI}
        statuses[provider] = client.post(f"{server.url}/{provider}{model.flags.path}", json=body).status_code
    assert all(400 <= status < 500 for name, status in statuses.items() if name in known), statuses
    assert sum(status == 404 for status in statuses.values()) > 50


def test_an_endpoint_without_a_list_serves_any_model(tmp_path: Path, client: httpx.Client) -> None:
    overlay = tmp_path / "own.toml"
    overlay.write_text('[providers.own]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\nkeys = []\n')
    with running(Registry.load(overlay)) as listening:
        answer = client.post(f"{listening.url}/own/chat/completions", json={"model": "whatever", **HI})
        assert answer.status_code == 200


def test_a_client_hears_of_it(server: Server, registry: Registry) -> None:
    model = registry.resolve("zai/no-such-model", base_url=f"{server.url}/zai")
    with Client(api_key="k") as made, pytest.raises(cnllm.EndpointError) as caught:
        made.call(model, "hi")
    assert caught.value.status in (400, 404)
