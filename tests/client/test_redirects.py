"""A redirect is not followed: the key would go where it does not belong."""

import pytest
from cases import each

import cnllm

from .peer import Peer, redirect, reply
from .support import Driver, ask, at

KEY = "sk-of-this-peer-alone-0123456789"
BODIES = {
    "nothing": (b"", {}),
    "a page": (b"<html><head><title>Moved</title></head></html>", {"content-type": "text/html"}),
    "a word": (b"moved", {"content-type": "text/plain"}),
}


@each("verb", ["call", "stream"])
@each("status", [300, 301, 302, 303, 307, 308, 399])
@each("body", BODIES)
def test_a_redirect_is_an_error_that_says_where_it_pointed(client: Driver, verb: str, status: int, body: str) -> None:
    content, headers = BODIES[body]
    with Peer([reply()]) as elsewhere:
        target = f"{elsewhere.url}/chat/completions?from=here"
        with Peer([redirect(target, status, content, headers)]) as peer:
            with pytest.raises(cnllm.EndpointError) as caught:
                ask(client, verb, at(peer), api_key=KEY)
            assert [request.headers["authorization"] for request in peer.received] == [f"Bearer {KEY}"]
        assert (elsewhere.received, elsewhere.connections) == ([], 0)
    assert target in caught.value.message
    assert (caught.value.status, caught.value.retryable, caught.value.reply) == (status, False, None)


def test_a_redirect_to_the_same_place_is_not_followed_either(client: Driver) -> None:
    with Peer([redirect("/v2/chat/completions")], [reply()]) as peer:
        with pytest.raises(cnllm.EndpointError, match=r"/v2/chat/completions"):
            client.call(at(peer))
        assert len(peer.received) == 1


def test_a_key_that_the_redirect_echoes_is_not_shown(client: Driver) -> None:
    with Peer([redirect(f"http://evil.example/?key={KEY}")]) as peer, pytest.raises(cnllm.EndpointError) as caught:
        client.call(at(peer), api_key=KEY)
    assert "evil.example" in caught.value.message
    assert KEY not in f"{caught.value!r}{caught.value}{vars(caught.value)}"


@each("body", [b'{"error":{"message":"Moved."}}', b'data: {"error":{"message":"Moved."}}\n\n'])
def test_a_redirect_says_where_it_pointed_whatever_its_body_says(client: Driver, body: bytes) -> None:
    with (
        Peer([redirect("http://elsewhere.example/v1", body=body)]) as peer,
        pytest.raises(cnllm.EndpointError) as caught,
    ):
        client.call(at(peer))
    assert "http://elsewhere.example/v1" in caught.value.message
