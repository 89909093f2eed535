"""https: whom to trust, and that nothing else is different."""

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

import cnllm
from cnllm import AsyncClient

from . import certificate
from .conftest import Make
from .peer import DONE, Again, Peer, Stay, Step, delta, head, piece, reply, said, stream, texts, usage
from .support import ONCE, SOON, at, drained, folds, registry

TEXT = [*texts("The sky", " is blue."), delta(finish="stop"), usage(), DONE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    certificate.make(made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return made


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Only on this fixture's word: no system knows this certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))


@pytest.mark.usefixtures("trusted")
def test_calls_and_streams_share_a_connection(make: Make, server: ssl.SSLContext) -> None:
    client = make()
    with Peer([reply()], [stream(*said("The sky"))], [reply()], tls=server) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        events, got = drained(client.stream(at(peer)))
        assert client.call(at(peer)).text == "The sky is blue."
        folds(events, got)
    assert [request.connection for request in peer.received] == [0, 0, 0]


@pytest.mark.usefixtures("trusted")
def test_a_connection_had_ahead_is_used_though_tickets_wait_in_it(make: Make, server: ssl.SSLContext) -> None:
    client = make()
    with Peer([reply()], tls=server) as peer:
        client.warm(at(peer))
        assert client.call(at(peer)).text == "The sky is blue."
        assert client.call(at(peer)).text == "The sky is blue."
    assert peer.connections == 1


@pytest.mark.usefixtures("trusted")
def test_a_connection_is_used_though_no_loop_has_seen_its_tickets(adapter: str, server: ssl.SSLContext) -> None:
    """The loop has no turn between the tickets and the call, as with a program that is busy."""

    async def twice() -> None:
        async with AsyncClient(registry()) as client:
            for _ in range(2):
                await client.warm(at(peer))
                assert adapter == "httpx" or peer.greeted.wait(SOON)  # which connects for a call only
            assert (await client.call(at(peer), "hi")).text == "The sky is blue."

    with Peer([reply()], tls=server) as peer:
        asyncio.run(twice())
    assert peer.connections == 1


def test_a_certificate_that_nobody_vouches_for(make: Make, server: ssl.SSLContext) -> None:
    with Peer([reply()], tls=server) as peer, pytest.raises(cnllm.TransportError, match=r"no connection to 127"):
        make(retry=ONCE).call(at(peer))
    assert peer.received == []


def test_a_peer_that_does_not_speak_it(make: Make) -> None:
    with Peer([reply()]) as peer:
        peer.url = peer.url.replace("http:", "https:")
        with pytest.raises(cnllm.TransportError):
            make(retry=ONCE).call(at(peer), timeout=0.3)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("after", [[Stay()], [Again(piece(b": x\n\n"), 0.001)]], ids=["silence", "comments"])
def test_a_stream_that_lingers_is_left(make: Make, server: ssl.SSLContext, after: list[Step]) -> None:
    with Peer([stream(*TEXT, end=False), *after], tls=server) as peer:
        assert drained(make().stream(at(peer)))[1].text == "The sky is blue."
        assert peer.gone.wait(SOON)


@pytest.mark.usefixtures("trusted")
def test_a_stream_that_stalls_keeps_what_came(make: Make, server: ssl.SSLContext) -> None:
    with Peer([head() + b"".join(texts("The sky")), Stay()], tls=server) as peer:
        with pytest.raises(cnllm.IdleTimeout) as caught:
            drained(make().stream(at(peer), timeout=cnllm.Timeouts(idle=0.2)))
        assert peer.gone.wait(SOON)
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky"


def test_whom_to_trust_is_what_httpx_says(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The system's list, a file or a folder: the same certificates, and the same strictness."""
    pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")
    from cnllm.transports.address import client_context

    for name, value in (("", ""), ("SSL_CERT_FILE", str(folder / "cert.pem")), ("SSL_CERT_DIR", str(folder))):
        if name:
            monkeypatch.setenv(name, value)
        ours, theirs = client_context(), httpx.create_ssl_context()
        assert ours.get_ca_certs() == theirs.get_ca_certs()
        assert (ours.verify_mode, ours.check_hostname) == (theirs.verify_mode, theirs.check_hostname)
        assert (ours.minimum_version, ours.options) == (theirs.minimum_version, theirs.options)
        if name:
            monkeypatch.delenv(name)
