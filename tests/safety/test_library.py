"""Canaries go through every path of the library, over real sockets, and show nowhere but in the request itself."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import each
from client.peer import (
    DONE,
    JSON,
    SSE,
    Peer,
    Reset,
    Script,
    answer,
    chunked,
    delta,
    failure,
    frame,
    head,
    redirect,
    said,
    whole,
)
from client.support import Backend, Driver

import cnllm
from cnllm import Registry, Retry
from cnllm.cassette import Player, Recorder
from cnllm.transports import Httpx

from .canaries import EXTRA, HEADER, KEY, PASSWORD, PROXY, clean, found, shown, told

ECHO = f"you sent {KEY}, {HEADER}, {EXTRA} and {PASSWORD}"
TELLING = {**JSON, "x-echo": KEY, "x-request-id": HEADER, "set-cookie": EXTRA}
ONCE = Retry(attempts=1)
QUICK = Retry(attempts=2, base=0.001, cap=0.001)


@pytest.fixture(params=["sync", "asyncio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every logger there is, at its lowest level; and what is warned of."""
    caplog.set_level(logging.DEBUG)
    for name in ("cnllm", "cnllm.client", "httpx", "httpcore", "httpcore.http11", "httpcore.connection", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    with warnings.catch_warnings(record=True) as warned:
        yield
    records = caplog.get_records("call")
    clean(*(f"{record.getMessage()} {record.exc_text}" for record in records), *(str(each.message) for each in warned))


def registry(folder: Path, url: str) -> Registry:
    """`home/m`: a header of the user's own, and a password before the host."""
    path = folder / "overlay.toml"
    place = url.replace("://", f"://user:{PASSWORD}@")
    path.write_text(
        f'[providers.home]\nprotocol = "openai-chat"\nbase_url = "{place}"\nkeys = []\n'
        f'auth = {{ header = "x-api-key", value = "{{key}}" }}\nheaders = {{ x-team = "{HEADER}" }}\n'
        '[models."home/m"]\n'
    )
    return Registry.load(path)


def ask(client: Driver, verb: str, **options: Any) -> Any:
    options = {"extra_headers": {"x-more": EXTRA}, **options}
    if verb == "call":
        return client.call("home/m", "hi", **options)
    with client.stream("home/m", "hi", **options) as stream:
        events = list(stream)
    clean(*map(shown, events))
    return stream.reply


def arrived(peer: Peer) -> None:
    """All of it reached the endpoint."""
    for request in peer.received:
        assert request.headers["x-api-key"] == KEY
        assert request.headers["x-team"] == HEADER
        assert request.headers["x-more"] == EXTRA
        assert found(request.headers["authorization"])  # Basic


EVENTS = (*said("The sky ", ECHO, " is blue."),)
WHOLE: dict[str, Script] = {
    "call": [answer(200, whole(f"The sky is blue. {ECHO}"), TELLING)],
    "stream": [chunked(*EVENTS, headers={**SSE, "x-echo": KEY})],
}


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_nothing_shows_the_key_after_a_reply(tmp_path: Path, backend: Backend, verb: str) -> None:
    with Peer(WHOLE[verb]) as peer:
        held = registry(tmp_path, peer.url)
        with Driver(backend, registry=held, api_key=KEY) as client:
            reply = ask(client, verb)
            plan = client.plan("home/m", extra_headers={"x-more": EXTRA})
            clean(shown(client._client), shown(held), shown(held.resolve("home/m")), repr(held.resolve("home/m").flags))
            clean(repr(plan), plan.url, plan.content, plan.body, plan.notes, plan.shown_headers(), repr(plan.flags))
        arrived(peer)
    clean(shown(reply), shown(reply.message), reply.raw, *map(shown, reply.notes), *map(shown, reply.message.parts))
    assert "The sky" in reply.text


ERRORS: dict[str, Script] = {
    **{
        str(status): [answer(status, failure(f"no: {ECHO}", "canary"), TELLING)]
        for status in (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
    },
    "a page": [
        answer(502, f"<html><title>{ECHO}</title></html>".encode(), {"content-type": "text/html", "x-echo": KEY})
    ],
    "words": [answer(500, ECHO.encode(), {"content-type": "text/plain"})],
    "no JSON in 200": [answer(200, f"not json: {ECHO}".encode(), TELLING)],
    "an error in 200": [answer(200, failure(ECHO), TELLING)],
    "a redirect": [redirect(f"http://127.0.0.1:9/?key={KEY}&x={HEADER}", body=ECHO.encode())],
    "no HTTP": [f"HTTP/1.1 nonsense {KEY} {HEADER}\r\n\r\n".encode()],
    "headers that are none": [f"HTTP/1.1 200 OK\r\n{KEY}\x00{EXTRA}\r\n\r\n".encode()],
    "a reset": [Reset()],
    "gzip that is none": [answer(200, ECHO.encode(), {**JSON, "content-encoding": "gzip", "x-echo": KEY})],
    "a length that is none": [head(200, JSON, content_length=KEY)],
    "a cut": [chunked(delta("The sky "), frame(f": {ECHO}"), end=False), Reset()],
    "an error in the stream": [chunked(delta("The"), frame({"error": {"message": ECHO, "code": KEY}}), DONE)],
    "nothing": [answer(200, whole(None), TELLING)],
}


@pytest.mark.share(3)
@pytest.mark.parametrize("verb", ["call", "stream"])
@pytest.mark.parametrize("kind", ERRORS)
def test_nothing_shows_the_key_after_an_error(tmp_path: Path, backend: Backend, verb: str, kind: str) -> None:
    with Peer(ERRORS[kind]) as peer:
        held = registry(tmp_path, peer.url)
        with (
            Driver(backend, registry=held, api_key=KEY, retry=QUICK) as client,
            pytest.raises(cnllm.CnllmError) as caught,
        ):
            ask(client, verb)
        arrived(peer)
    clean(told(caught.value))


def test_a_retry_and_what_comes_of_it(tmp_path: Path, backend: Backend) -> None:
    with Peer(ERRORS["503"], ERRORS["a reset"], WHOLE["call"]) as peer:
        held = registry(tmp_path, peer.url)
        with Driver(backend, registry=held, api_key=KEY, retry=Retry(attempts=3, base=0.001)) as client:
            clean(shown(ask(client, "call")))
        assert len(peer.received) == 3
        arrived(peer)


def test_a_cut_that_is_taken_again(tmp_path: Path, backend: Backend) -> None:
    cut: Script = [chunked(delta("The sky "), end=False), Reset()]
    with Peer(cut, ERRORS["503"], WHOLE["call"]) as peer:
        held = registry(tmp_path, peer.url)
        with Driver(backend, registry=held, api_key=KEY, retry=QUICK) as client:
            clean(shown(ask(client, "stream", if_cut="again-whole")))
        arrived(peer)


@pytest.mark.parametrize("bad", [f"{KEY}\n", f"{KEY}\u20ac", f"{KEY}\x00"], ids=["a line's end", "no ASCII", "a NUL"])
def test_a_key_that_no_header_can_carry(tmp_path: Path, backend: Backend, bad: str) -> None:
    with Peer(WHOLE["call"]) as peer:
        held = registry(tmp_path, peer.url)
        with Driver(backend, registry=held, api_key=bad) as client, pytest.raises(cnllm.TransportError) as caught:
            ask(client, "call")
        assert peer.received == []
    clean(told(caught.value))


@each("base", ["http://user:{}@127.0.0.1:no/v1", "ftp://user:{}@home/v1", "user:{}@home/v1"])
def test_an_address_that_is_none(base: str) -> None:
    model = Registry.load().resolve("openai-compatible/m", base_url=base.format(PASSWORD))
    with cnllm.Client(api_key=KEY) as client, pytest.raises(cnllm.CannotSend) as caught:
        client.call(model, "hi")
    clean(told(caught.value), shown(model))


PROXIES: dict[str, Callable[[str], str]] = {
    "one that refuses": lambda url: url.replace("://", f"://user:{PROXY}@"),
    "nobody there": lambda url: f"http://user:{PROXY}@127.0.0.1:1",
    "no port": lambda url: f"http://user:{PROXY}@127.0.0.1:port",
    "no scheme that is known": lambda url: f"gopher://user:{PROXY}@127.0.0.1:1",
    "a kind that is not installed": lambda url: f"socks5://user:{PROXY}@127.0.0.1:1",
}


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_password_of_a_proxy(
    tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch, kind: str, scheme: str
) -> None:
    with Peer([answer(407, failure(f"no: {PROXY} {ECHO}"), TELLING)]) as proxy:
        place = PROXIES[kind](proxy.url.removesuffix("/v1"))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, place)
        held = registry(tmp_path, f"{scheme}://endpoint.example/v1")
        with (
            Driver(backend, registry=held, api_key=KEY, retry=QUICK) as client,
            pytest.raises(cnllm.CnllmError) as caught,
        ):
            ask(client, "call")
        if kind == "one that refuses":
            assert found(proxy.received[0].headers["proxy-authorization"])
    clean(told(caught.value))


def test_a_cassette_and_its_replay(tmp_path: Path) -> None:
    """Nobody told the recorder what is secret: it sees what the request carries."""
    tape = tmp_path / "tape.jsonl"
    with Peer(WHOLE["call"], WHOLE["stream"], ERRORS["401"], ERRORS["no HTTP"]) as peer:
        held = registry(tmp_path, peer.url)
        with Driver("sync", registry=held, api_key=KEY, retry=ONCE, transport=Recorder(Httpx(), tape)) as client:
            for verb in ("call", "stream", "call", "call"):
                with contextlib.suppress(cnllm.CnllmError):
                    ask(client, verb)
        arrived(peer)
    clean(tape.read_bytes(), json.dumps([json.loads(line) for line in tape.read_text().splitlines()]))
    with Driver("sync", registry=held, api_key=KEY, transport=Player(tape)) as client:
        reply = ask(client, "call")
        assert reply.text.startswith("The sky is blue.")
        clean(shown(reply), shown(ask(client, "stream")))
        for _ in range(2):
            with pytest.raises(cnllm.CnllmError) as caught:
                ask(client, "call")
            clean(told(caught.value))
        with pytest.raises(cnllm.CnllmError, match="all 4 were used") as caught:
            ask(client, "call")
        clean(told(caught.value))


def test_a_run_its_steps_and_its_errors(tmp_path: Path) -> None:
    def look() -> str:
        """Look."""
        raise RuntimeError(f"it failed with {KEY}")

    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asks = [answer(200, whole(None, "tool_calls", tool_calls=[call]), TELLING)]
    with Peer(asks, ERRORS["401"]) as peer:
        held = registry(tmp_path, peer.url)
        with cnllm.Client(held, api_key=KEY) as client, pytest.raises(cnllm.BadKey) as caught:
            client.run("home/m", "hi", tools=[look], extra_headers={"x-more": EXTRA})
        run = caught.value.run
        clean(shown(run), run.messages, run.steps, *map(shown, run.messages))
        arrived(peer)
    clean(told(caught.value))


def test_a_client_does_not_travel() -> None:
    import copy
    import pickle

    for kind in (cnllm.Client, cnllm.AsyncClient):
        client = kind(api_key=KEY, simulate=True)
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be copied"):
                way(client)
        clean(repr(client), str(client))


def test_a_mistake_in_the_registry_shows_no_secret(tmp_path: Path) -> None:
    wrong = [
        f'[providers.home]\nheaders = "x-team: {HEADER}"\n',
        f'[providers.home]\nheaders = {{ x-team = ["{HEADER}"] }}\n',
        f'[providers.home]\nauth = "Bearer {KEY}"\n',
        f'[providers.home]\nkeys = ["{KEY}-that-is-much-too-long-for-the-name-of-a-variable-of-anybody"]\n',
        '[providers.home]\nkeys = ["sk.canary/5f1d0c2e9b7a4d63"]\n',
    ]
    for text in wrong:
        path = tmp_path / "overlay.toml"
        path.write_text(text)
        with pytest.raises(cnllm.RegistryError) as caught:
            Registry.load(path)
        clean(told(caught.value))
        assert "5f1d0c2e9b7a4d63" not in told(caught.value)


def test_usage_is_told_all_the_same(tmp_path: Path) -> None:
    """Taking secrets out leaves the rest as it was."""
    with (
        Peer([chunked(*said("a", "b"))]) as peer,
        Driver("sync", registry=registry(tmp_path, peer.url), api_key=KEY) as client,
    ):
        reply = ask(client, "stream")
    assert (reply.text, reply.usage.input) == ("ab", 3)
