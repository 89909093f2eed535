"""`cnllm.call`, `cnllm.stream` and `cnllm.run`: the same without a client in hand, with the user's own overlay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cnllm
from cnllm.registry.trusted_files import trust
from cnllm.simulator.server import Server, running

from .peer import Again, Peer, piece, reply, said, stream, texts
from .support import SOON, folds, overlay, registry


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


@pytest.fixture
def mine(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlay that puts a built-in provider where the server is."""
    path = tmp_path / "mine.toml"
    path.write_text(f'[providers.deepseek]\nbase_url = "{server.url}/deepseek"\n', encoding="utf-8")
    monkeypatch.setenv("CNLLM_PROVIDERS", str(path))


@pytest.mark.usefixtures("mine")
def test_call_needs_no_client() -> None:
    got = cnllm.call("deepseek/deepseek-flash", "Why is the sky blue?", api_key="sk-0123456789")
    assert "Why is the sky blue?" in got.text
    assert (got.finish, got.message.by) == ("stop", "deepseek/deepseek-flash")


@pytest.mark.usefixtures("mine")
def test_stream_needs_no_client() -> None:
    with cnllm.stream("deepseek/deepseek-flash", "Why is the sky blue?", api_key="sk-0123456789") as streamed:
        events = list(streamed)
    assert "Why is the sky blue?" in streamed.reply.text
    folds(events, streamed.reply)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.mark.usefixtures("mine")
def test_run_needs_no_client() -> None:
    done = cnllm.run("deepseek/deepseek-flash", "How is it in Bern?", tools=[weather], api_key="sk-0123456789")
    assert (done.stopped, len(done.steps)) == ("done", 2)
    assert "sunny in" in done.reply.text
    with pytest.raises(cnllm.LoopStopped) as stopped:
        cnllm.run("deepseek/deepseek-flash", "?", tools=[weather], max_steps=1, api_key="sk-0123456789")
    assert stopped.value.run is not None
    assert stopped.value.run.stopped == "max_steps"


@pytest.mark.usefixtures("mine")
def test_the_endpoints_refusal() -> None:
    with pytest.raises(cnllm.BadKey):
        cnllm.call("deepseek/deepseek-flash", "hi")


@pytest.mark.usefixtures("mine")
def test_a_built_in_key_does_not_follow_an_overlay_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-of-the-real-one-0123456789")
    with pytest.raises(cnllm.Untrusted):
        cnllm.call("deepseek/deepseek-flash", "hi")


def test_the_key_of_an_overlays_own_provider_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME_TOKEN", "sk-of-home-0123456789")
    with Peer([reply()], [stream(*said("The sky"))]) as peer:
        path = overlay(tmp_path, peer.url)
        monkeypatch.setenv("CNLLM_PROVIDERS", str(path))
        with pytest.raises(cnllm.Untrusted, match="HOME_TOKEN"):
            cnllm.call("home/m", "hi")
        trust(path)
        assert cnllm.call("home/m", "hi").text == "The sky is blue."
        with cnllm.stream("home/m", "hi") as streamed:
            assert streamed.reply.text == "The sky"
    assert {request.headers["authorization"] for request in peer.received} == {"Bearer sk-of-home-0123456789"}


def test_their_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer([reply()]) as peer:
        monkeypatch.setenv("CNLLM_PROVIDERS", str(overlay(tmp_path, peer.url)))
        cnllm.call("home/m", "hi")
        assert peer.gone.wait(SOON)
    with Peer([stream(*texts("x"), end=False), Again(piece(b": \n\n"))]) as peer:
        monkeypatch.setenv("CNLLM_PROVIDERS", str(overlay(tmp_path, peer.url)))
        with cnllm.stream("home/m", "hi") as streamed:
            next(iter(streamed))
        assert peer.gone.wait(SOON)
