"""HTTP as it is spoken out there: old versions, bare line ends, other networks, readers that take their time."""

import gzip
import socket
import threading
import zlib
from collections.abc import Iterator

import anyio
import pytest
from cases import each

import cnllm
from cnllm import AsyncClient, Client

from .conftest import Make
from .peer import (
    DONE,
    JSON,
    Close,
    Peer,
    Step,
    Wait,
    answer,
    delta,
    head,
    piece,
    reply,
    said,
    stream,
    texts,
    whole,
)
from .support import ONCE, SOON, Driver, at, drained, registry


def test_http_1_0_ends_with_the_connection(client: Driver) -> None:
    old = head().replace(b"HTTP/1.1", b"HTTP/1.0")
    with Peer([old + whole(), Close()], [old + b"".join(said("The sky")), Close()]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."
        assert drained(client.stream(at(peer)))[1].text == "The sky"
    assert peer.connections == 2


def test_http_1_0_with_a_length_is_not_used_again(client: Driver) -> None:
    with Peer([answer(200, whole()).replace(b"HTTP/1.1", b"HTTP/1.0")]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."
    assert peer.connections == 2


def test_a_peer_that_says_close_is_taken_at_its_word(client: Driver) -> None:
    with Peer([answer(200, whole(), JSON, connection="close")]) as peer:
        for _ in range(2):
            client.call(at(peer))
    assert peer.connections == 2


def test_line_ends_without_carriage_returns(client: Driver) -> None:
    bare = b"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: %d\n\n" % len(whole())
    with Peer([bare + whole()]) as peer:
        assert client.call(at(peer)).text == "The sky is blue."


def test_sizes_of_chunks_with_extensions_and_trailers_after_the_last(client: Driver) -> None:
    body = whole()
    sent = head(200, JSON, transfer_encoding="chunked") + b"%X;name=value\r\n%b\r\n" % (len(body), body)
    with Peer([sent + b"0\r\nx-checksum: 1\r\n\r\n"]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."
    assert peer.connections == 1


def test_more_than_was_promised_is_nobodys(client: Driver) -> None:
    with Peer([answer(200, whole()) + b"and so on", Close()], [reply()]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."


def test_headers_that_come_twice_and_letters_of_any_script(make: Make) -> None:
    client = make(retry=ONCE)
    moved = b"HTTP/1.1 307 x\r\nLocation: /\xe5\xa4\xa9\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n"
    with Peer([moved]) as peer, pytest.raises(cnllm.EndpointError, match="/天"):
        client.call(at(peer))


@each("coding", ["GZIP", "x-unheard-of", "identity", "deflate, gzip", "deflate"])
def test_a_body_in_any_coding_is_unpacked(client: Driver, coding: str) -> None:
    packed = whole()
    if "deflate" in coding:
        packer = zlib.compressobj(wbits=-15 if coding == "deflate" else 15)  # without its header, as some send it
        packed = packer.compress(packed) + packer.flush()
    if "gzip" in coding.lower():
        packed = gzip.compress(packed)
    with Peer([answer(200, packed, JSON, content_encoding=coding)]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."
    assert peer.connections == 1


def test_an_address_of_version_6(client: Driver) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with Peer([reply()], host="::1") as peer:
        assert client.call(at(peer)).text == "The sky is blue."
    assert peer.received[0].headers["host"] == f"[::1]:{peer.port}"


def test_a_name_with_several_addresses(client: Driver) -> None:
    """localhost is ::1 too, where nobody listens."""
    with Peer([reply()]) as peer:
        peer.url = peer.url.replace("127.0.0.1", "localhost")
        assert client.call(at(peer)).text == "The sky is blue."
    assert peer.received[0].headers["host"] == f"localhost:{peer.port}"


def test_a_user_name_in_the_address_is_not_sent(client: Driver) -> None:
    with Peer([reply()]) as peer:
        peer.url = peer.url.replace("127.0.0.1", "me:secret@127.0.0.1")
        assert client.call(at(peer)).text == "The sky is blue."
    assert peer.received[0].headers["host"] == f"127.0.0.1:{peer.port}"


def test_a_header_about_the_connection_is_honoured(client: Driver) -> None:
    with Peer([reply()]) as peer:
        for _ in range(2):
            client.call(at(peer), extra_headers={"Connection": "close"})
    assert peer.received[0].headers["connection"] == "close"
    assert peer.received[0].headers["content-length"] == str(len(peer.received[0].body))


def test_a_long_request_arrives_whole(client: Driver) -> None:
    with Peer([reply()]) as peer:
        client.call(at(peer), "天" * 1_000_000)
    assert len(peer.received[0].body) > 3_000_000
    assert peer.received[0].json()["messages"][0]["content"] == "天" * 1_000_000


@each("ends", ["open", "half", "closed"])
def test_an_answer_that_comes_before_the_request_was_read(make: Make, ends: str) -> None:
    """A server that has heard enough says so and reads no more; what it says counts."""
    told = threading.Event()

    def serve(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(answer(413, b'{"error":{"message":"too long"}}'))
            if ends == "half":
                peer.shutdown(socket.SHUT_WR)
            if ends != "closed":
                told.wait(10)

    client = make(retry=ONCE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        model = registry().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        # Where the connection breaks, asyncio drops what httpx has not read.
        errors = (cnllm.EndpointError, cnllm.TransportError) if ends == "closed" else cnllm.EndpointError
        try:
            with pytest.raises(errors) as caught:
                client.call(model, "x" * 30_000_000, timeout=cnllm.Timeouts(first_byte=2, idle=0.3))
        finally:
            told.set()
            thread.join(10)
    assert type(caught.value) is cnllm.TransportError or "too long" in str(caught.value)


# ── readers that take their time ─────────────────────────────────────────────
class Reached(threading.Event):
    """Set by the peer when it comes to wait for it: everything before was sent."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


_LONG = "天" * 1000
_MANY = 10_000  # of 3 KB each: far more than all buffers on the way


@pytest.fixture
def flood() -> Iterator[tuple[Peer, Reached]]:
    reached = Reached()
    much: list[Step] = [stream(*texts("The sky"), end=False)]
    much += [piece(delta(_LONG)) * 100 for _ in range(_MANY // 100)]
    with Peer(
        [*much, Wait(reached), piece(delta(finish="stop") + DONE) + piece(b"")], [stream(*said("quick"))]
    ) as peer:
        yield peer, reached


def test_a_slow_reader_holds_up_nobody_and_the_rest_waits_at_the_peer(flood: tuple[Peer, Reached]) -> None:
    peer, reached = flood
    with Client(registry()) as client, client.stream(at(peer), "hi") as slow:
        events = iter(slow)
        next(events)
        for _ in range(3):
            with client.stream(at(peer), "hi") as quick:
                assert [e.text for e in quick if isinstance(e, cnllm.TextDelta)] == ["quick"]
        assert not reached.is_set()
        assert sum(len(e.text) for e in events if isinstance(e, cnllm.TextDelta)) == _MANY * len(_LONG)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_slow_task_holds_up_nobody(flood: tuple[Peer, Reached], backend: str) -> None:
    peer, reached = flood

    async def main() -> int:
        async with AsyncClient(registry()) as client, client.stream(at(peer), "hi") as slow:
            events = aiter(slow)
            await anext(events)
            for _ in range(3):
                async with client.stream(at(peer), "hi") as quick:
                    assert [e.text async for e in quick if isinstance(e, cnllm.TextDelta)] == ["quick"]
            assert not reached.is_set()
            return sum([len(e.text) async for e in events if isinstance(e, cnllm.TextDelta)])

    assert anyio.run(main, backend=backend) == _MANY * len(_LONG)


def test_what_a_peer_says_unasked_ends_its_connection(client: Driver) -> None:
    """Some servers say 408 on a connection that nobody uses, and close it."""
    gone = threading.Event()
    with Peer([reply(), Wait(gone), b"HTTP/1.1 408 x\r\n\r\n", Close()], [reply()]) as peer:
        client.call(at(peer))
        gone.set()
        peer._threads[-1].join(SOON)
        assert client.call(at(peer)).text == "The sky is blue."
