"""Several endpoints share the rows of a batch: a key that is for one of them reaches no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.support import Machine
from client.peer import Peer, reply
from client.routes import two

import cnllm
from cnllm.batch.settings import make_settings

from .support import prompts, rows

ONE, TWO, OURS = "sk-one-0123456789", "sk-two-9876543210", "sk-ours-1112223334"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", ONE)
    monkeypatch.setenv("TWO_KEY", TWO)


@pytest.fixture
def endpoints(tmp_path: Path) -> Iterator[tuple[cnllm.Registry, Peer, Peer]]:
    with two(tmp_path, [[reply()]], [[reply()]]) as found:
        yield found


def sent(peer: Peer) -> set[str | None]:
    """Return the keys that a peer got."""
    return {request.headers.get("authorization", "").removeprefix("Bearer ") or None for request in peer.received}


@pytest.mark.parametrize("options", [{"api_key": OURS}, {"api_keys": [OURS]}])
def test_a_key_of_the_caller_goes_to_the_first_endpoint(
    endpoints: tuple[cnllm.Registry, Peer, Peer], tmp_path: Path, options: dict[str, Any]
) -> None:
    registry, one, other = endpoints
    models, out = ["one/m", "two/m"], tmp_path / "out.jsonl"
    report = cnllm.batch.run(["a", "b", "c", "d"], models, out=out, registry=registry, concurrency=1, **options)
    assert report.done == 4
    assert (sent(one), sent(other)) == ({OURS}, {TWO})


def test_the_models_of_one_address_share_the_keys(endpoints: tuple[cnllm.Registry, Peer, Peer], tmp_path: Path) -> None:
    registry, one, _ = endpoints
    models = [registry.resolve(name, base_url=one.url) for name in ("one/m", "two/m")]
    cnllm.batch.run(["a", "b"], models, out=tmp_path / "out.jsonl", registry=registry, concurrency=1, api_keys=[OURS])
    assert sent(one) == {OURS}


def test_an_estimate_needs_no_key(
    endpoints: tuple[cnllm.Registry, Peer, Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, one, other = endpoints
    for name in ("ONE_KEY", "TWO_KEY"):
        monkeypatch.delenv(name)
    settings = make_settings(["a"], ["one/m", "two/m"], out=tmp_path / "out.jsonl", registry=registry)
    assert cnllm.batch.estimate_session(settings).rows == 1
    assert not [*one.received, *other.received]


def test_each_variable_goes_to_the_endpoint_that_names_it(
    endpoints: tuple[cnllm.Registry, Peer, Peer], tmp_path: Path
) -> None:
    _, one, other = endpoints
    machine = Machine(tmp_path)
    machine.env |= {"ONE_KEY": ONE, "TWO_KEY": TWO, "CNLLM_PROVIDERS": str(tmp_path / "routes.toml")}
    machine.run("registry", "trust", str(tmp_path / "routes.toml"))
    command = ["batch", str(rows(tmp_path, prompts(4))), "-m", "one/m", "-m", "two/m", "--concurrency", "1"]
    keys = ["--key-env", "TWO_KEY", "--key-env", "ONE_KEY"]
    done = machine.run(*command, "-o", str(tmp_path / "out.jsonl"), "--no-plot", *keys)
    assert done.status == 0
    assert (sent(one), sent(other)) == ({ONE}, {TWO})


def test_a_header_with_a_secret_is_refused_where_several_endpoints_would_get_it(
    endpoints: tuple[cnllm.Registry, Peer, Peer], tmp_path: Path
) -> None:
    registry, one, other = endpoints
    models, out = ["one/m", "two/m"], tmp_path / "out.jsonl"
    with pytest.raises(cnllm.CnllmError, match="one/m, two/m") as caught:
        cnllm.batch.run(["a"], models, out=out, registry=registry, extra_headers={"x-api-key": OURS})
    assert OURS not in f"{caught.value} {caught.value.hint}"
    assert not [*one.received, *other.received]
    report = cnllm.batch.run(["a", "b"], models, out=out, registry=registry, extra_headers={"x-trace": "t"})
    assert report.done == 2
    assert {request.headers["x-trace"] for request in (*one.received, *other.received)} == {"t"}
