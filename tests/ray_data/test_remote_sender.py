"""What a worker sends: the key that its node has, and no key in what comes back. Without Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from client.peer import Peer, reply

from cnllm import Model, Registry, engine
from cnllm.batch.shared import RemoteRequest, RemoteSender, Response, stand_in
from cnllm.errors import KeyMissing
from cnllm.registry.trusted_files import trust

KEY = "sk-of-this-node-0123456789"
NAMES = ["HOME_TOKEN", "OTHER_TOKEN"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def endpoint(folder: Path, url: str, names: list[str] = NAMES) -> Model:
    path = folder / "home.toml"
    keys = ", ".join(f'"{name}"' for name in names)
    head = f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{url}"\nkeys = [{keys}]\n'
    path.write_text(f'{head}[models."home/m"]\n', encoding="utf-8")
    trust(path)
    return Registry.load(path).resolve("home/m")


def sent(model: Model, name_node: Callable[[KeyMissing], KeyMissing] = lambda error: error) -> Response:
    """The response to one request of a worker."""

    async def main() -> Response:
        plan = engine.build_request(model, "Hi")
        headers = {**plan.headers, "authorization": f"Bearer {stand_in(model)}"}
        sender = RemoteSender(name_node)
        await sender.submit([(1, RemoteRequest("POST", plan.url, headers, plan.content, most=100_000))])
        [response] = await sender.collect()
        return response

    return asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_sends_the_key_that_its_node_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, KEY)
    spelling = KEY.replace("-", "%2D")
    with Peer([reply(f"You sent {KEY}. {spelling}")]) as peer:
        response = sent(endpoint(tmp_path, peer.url))
        assert [request.headers["authorization"] for request in peer.received] == [f"Bearer {KEY}"]
    assert (response.status, response.error) == (200, None)
    assert b"You sent [redacted]. [redacted]" in response.body


def test_a_server_on_the_machine_of_a_worker_needs_no_key(tmp_path: Path) -> None:
    with Peer([reply("Hello.")]) as peer:
        assert sent(endpoint(tmp_path, peer.url)).status == 200
        assert ["authorization" in request.headers for request in peer.received] == [False]


def test_a_node_without_a_key_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    def named(error: KeyMissing) -> KeyMissing:
        return KeyMissing(f"{error} on node 7", env=error.env, hint=error.hint)

    model = endpoint(tmp_path, "https://api.example.com/v1")
    place = stand_in(model)
    assert place is not None
    fault = asyncio.run(RemoteSender(named).check(place, model.flags.base_url or ""))
    assert fault is not None
    error = pickle.loads(fault)
    assert isinstance(error, KeyMissing)
    assert str(error).startswith("HOME_TOKEN or OTHER_TOKEN is not set")
    assert "on node 7" in str(error)
    assert [*error.env] == NAMES


def test_an_endpoint_without_keys_has_nothing_that_stands_for_one(tmp_path: Path) -> None:
    assert stand_in(endpoint(tmp_path, "http://127.0.0.1:9/v1", [])) is None
