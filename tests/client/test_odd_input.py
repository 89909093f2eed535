"""Headers, addresses and certificates that cannot be used: each is an error of ours that names what is wrong."""

import os
from pathlib import Path

import pytest
from cases import each

import cnllm

from .conftest import Make
from .peer import Peer, reply
from .support import ONCE, at, registry

ADAPTERS = ["httpx", "httpx2", "fast"]


def test_headers_that_say_where_the_message_ends(make: Make) -> None:
    client = make(retry=ONCE)
    with Peer([reply()]) as peer:
        for name, value in (
            ("content-length", "3"),
            ("Content-Length", "99999"),
            ("content-length", "many"),
            ("Transfer-Encoding", "chunked"),
            ("transfer-encoding", "identity"),
        ):
            with pytest.raises(cnllm.TransportError, match=name.lower()) as caught:
                client.call(at(peer), extra_headers={name: value})
            assert "extra_headers" in str(caught.value.hint)
        assert peer.received == []
        assert client.call(at(peer), extra_headers={"Connection": "close"}).text == "The sky is blue."


@each("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"])
def test_certificates_that_are_not_there(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    places = {
        "SSL_CERT_FILE": [tmp_path / "none", empty, tmp_path],
        "SSL_CERT_DIR": [tmp_path / "none", empty],
        "SSLKEYLOGFILE": [tmp_path / "none" / "log", tmp_path],
    }
    for place in places[variable]:
        monkeypatch.setenv(variable, os.fspath(place))
        with Peer([reply()]) as peer:
            peer.url = peer.url.replace("http:", "https:")
            with pytest.raises(cnllm.TransportError) as caught:
                make(retry=ONCE).call(at(peer))
        assert f"{variable}={place}" in caught.value.message
        assert not caught.value.retryable


def test_addresses_that_nobody_can_go_to(make: Make) -> None:
    client = make(retry=ONCE)
    for address in (
        "http://xn--a/",
        "http://xn--/",
        "http://xn--a.example/v1",
        "http://a..b/",
        "http://.a/",
        "http://\u00ad/",
        "http://a\u0000b/",
        "http://[v1.x]/",
        "http://[::1%25x]:1/",
        "http://1.2.3.4.5:0/",
        "http://x:99999/",
        "http://x:-1/",
        "http:// /",
        "http://%/",
        "http://\ud800/",
        "http://" + "a" * 70_000 + "/",
        "http://" + "a." * 200 + "/",
    ):
        try:
            model = registry().resolve("openai-compatible/m", base_url=address)
            with pytest.raises(cnllm.CnllmError):
                client.call(model, timeout=1)
        except cnllm.CnllmError:
            pass  # it is refused still earlier
