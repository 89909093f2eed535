"""Proxies that the environment names: every transport goes by them, or past them, and names one that refuses."""

import builtins
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cnllm
from cnllm.config.distribution import install_command

from . import certificate
from .conftest import Make
from .peer import Peer, reply
from .proxies import Proxy, Socks
from .support import ONCE, at, registry

ADAPTERS = ["httpx", "httpx2", "fast"]
PASSWORD = "proxy-password-0123456789"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate.make(folder)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
        yield made


def _named(patch: pytest.MonkeyPatch, **values: str) -> None:
    for name in NAMES:
        patch.delenv(name, raising=False)
        patch.delenv(name.lower(), raising=False)
    for name, value in values.items():
        patch.setenv(name, value)


def test_requests_go_by_the_proxy_that_is_named(
    make: Make, server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer([reply()]) as plain, Peer([reply()], tls=server) as secure:
        for kind, names in (
            (Proxy, ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")),
            (Socks, ("ALL_PROXY", "https_proxy")),
        ):
            for name in names:
                with kind() as proxy:
                    _named(monkeypatch, **{name: proxy.url})
                    client = make(retry=ONCE)
                    for _ in range(2):
                        assert client.call(at(secure)).text == "The sky is blue."
                    asked = f"127.0.0.1:{secure.port}"
                    assert proxy.asked == [f"CONNECT {asked}" if kind is Proxy else asked], "one tunnel, used twice"
        for kind in (Proxy, Socks):
            with kind() as proxy:
                _named(monkeypatch, ALL_PROXY=proxy.url)
                assert make(retry=ONCE).call(at(plain)).text == "The sky is blue."
                assert proxy.asked == [f"{'POST ' if kind is Proxy else ''}127.0.0.1:{plain.port}"]


def test_hosts_that_no_proxy_names_are_reached_directly(
    make: Make, server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer([reply()]) as plain, Peer([reply()], tls=server) as secure, Proxy() as proxy:
        ranges = ("127.0.0.0/8", "10.0.0.0/8 127.0.0.1/32", "::ffff:0:0/96", "[::ffff:127.0.0.1]", "127.0.0.0/30,")
        ports = f"127.0.0.1:{plain.port},127.0.0.0/8:{secure.port}"
        for no in ("127.0.0.1", "x.example,127.0.0.1", "*", ports, *ranges):
            _named(monkeypatch, ALL_PROXY=proxy.url, HTTPS_PROXY=proxy.url, NO_PROXY=no)
            for peer in (plain, secure):
                assert make(retry=ONCE).call(at(peer)).text == "The sky is blue.", no
        assert proxy.asked == []
        long = f"127.0.0.1:{'9' * 5000}"  # Python refuses to read so many digits
        others = (long, "x.example", "10.0.0.0/8", "127.0.0.1:1", "127.0.0.0/99", "0.0.1", "[::1]", "[", "/8")
        for no in others:
            _named(monkeypatch, ALL_PROXY=proxy.url, NO_PROXY=no)
            make(retry=ONCE).call(at(plain))
        assert len(proxy.asked) == len(others)


def test_addresses_of_version_6_that_no_proxy_names(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        peer = Peer([reply()], host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with peer, Proxy() as proxy:
        for no in ("[::1]", f"[::1]:{peer.port}", "::1", "::/64", "[::/64]", "[::]/64", "a.example,[::1]"):
            _named(monkeypatch, ALL_PROXY=proxy.url, NO_PROXY=no)
            assert make(retry=ONCE).call(at(peer)).text == "The sky is blue.", no
    assert proxy.asked == []


def test_an_address_of_version_4_in_the_form_of_version_6_is_the_same_address(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer([reply()]) as peer, Proxy() as proxy:
        try:
            socket.create_connection(("::ffff:127.0.0.1", peer.port)).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
        url = peer.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")
        model = registry().resolve("openai-compatible/m", base_url=url)
        for no in ("127.0.0.1", "127.0.0.0/8", "[::ffff:127.0.0.1]", f"127.0.0.1:{peer.port}"):
            _named(monkeypatch, ALL_PROXY=proxy.url, NO_PROXY=no)
            assert make(retry=ONCE).call(model).text == "The sky is blue.", no
        assert proxy.asked == []


@pytest.mark.parametrize("no", ["example.test", ".example.test", "*.example.test", "Example.Test.", "*", "test"])
def test_names_that_no_proxy_names(make: Make, monkeypatch: pytest.MonkeyPatch, no: str) -> None:
    """A direct connection to this name fails, and no proxy hears of it."""
    with Peer([reply()]) as peer, Proxy() as proxy:
        _named(monkeypatch, ALL_PROXY=proxy.url, NO_PROXY=no)
        peer.url = "http://api.example.test/v1"
        with pytest.raises(cnllm.TransportError, match="no connection to"):
            make(retry=ONCE).call(at(peer), timeout=5)
    assert proxy.asked == []


def _failure(make: Make, model: cnllm.Model) -> cnllm.TransportError:
    with pytest.raises(cnllm.TransportError) as caught:
        make(retry=cnllm.Retry(attempts=2, base=0.0)).call(model)
    shown = f"{caught.value!r}{caught.value.hint}{caught.value.__cause__}"
    assert PASSWORD not in shown
    assert str(caught.value) == caught.value.message, "what the command line prints"
    return caught.value


def test_an_error_names_the_proxy_that_refused(
    make: Make, server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[tuple[type[Proxy], bytes, bool]] = [
        (Proxy, b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", False),
        (Proxy, b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", False),
        (Proxy, b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", True),
        (Proxy, b"what?\r\n\r\n", False),
        (Proxy, b"", True),
        (Socks, b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", True),
        (Socks, b"\x09what", True),
        (Socks, b"", True),
    ]
    with Peer([reply()], tls=server) as secure, Peer([reply()]) as plain:
        for kind, refusal, again in refusals:
            with kind(refusal, password=PASSWORD if kind is Proxy else "") as proxy:
                _named(monkeypatch, ALL_PROXY=proxy.url)
                error = _failure(make, at(secure))
                assert f"proxy {proxy.scheme}://{proxy.place}" in error.message, refusal
                assert error.retryable is again
                assert len(proxy.asked) == 1 + again
        with Proxy(refusals[0][1], password=PASSWORD) as proxy:
            _named(monkeypatch, HTTP_PROXY=proxy.url)
            assert f"proxy http://{proxy.place}" in _failure(make, at(plain)).message
        _named(monkeypatch, ALL_PROXY=proxy.url)  # nobody listens there any more
        assert f"proxy http://{proxy.place}" in _failure(make, at(secure)).message
        assert plain.received == secure.received == []


def test_one_that_cannot_be_used_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer([reply()]) as peer:
        for url in (
            "socks4://127.0.0.1:1",
            f"ftp://me:{PASSWORD}@127.0.0.1:1",
            "http://127.0.0.1:port",
            "http://[::1",
            "http://a..b",
        ):
            _named(monkeypatch, ALL_PROXY=url)
            error = _failure(make, at(peer))
            assert "proxy" in error.message, url
            assert "ALL_PROXY" in str(error.hint)
        assert peer.received == []


def test_socks_without_its_extra(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    before = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name == "socksio":
            raise ImportError(name)
        return before(name, *args, **options)

    _named(monkeypatch, ALL_PROXY="socks5://127.0.0.1:1")
    monkeypatch.setattr(builtins, "__import__", missing)
    with Peer([reply()]) as peer:
        error = _failure(make, at(peer))
    assert "socks5://127.0.0.1:1" in error.message
    assert install_command("socks") in str(error.hint)
