"""Bytes without content, and handshakes without end: each is bounded in time and in size, on every transport."""

import contextlib
import gzip
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client.peer import JSON, SSE, Again, Peer, answer, delta, head, piece, reply, whole
from client.support import ONCE, Driver, ask, at, registry

import cnllm
from cnllm import TransportError

from .conftest import Make

WAIT = 0.2  # seconds
SOON = 15.0  # seconds: far below what a flood lasts, and enough for a busy machine
GZIP = gzip.compress(b"")


def zstd(data: bytes) -> bytes:
    package: Any = pytest.importorskip("zstandard", reason="zstandard is not installed")
    packed: bytes = package.ZstdCompressor().compress(data)
    return packed


def brotli(data: bytes) -> bytes:
    """Data and a flush: the stream goes on."""
    package: Any = pytest.importorskip("brotli", reason="brotli is not installed")
    packer = package.Compressor()
    packed: bytes = packer.process(data) + packer.flush()
    return packed


def deflate(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}
BLOCK = b"\0\0\0\xff\xff"  # of deflate, without content
CODED: dict[str, tuple[str, Callable[[bytes], bytes], Callable[[], bytes]]] = {
    "empty members of gzip": ("gzip", gzip.compress, lambda: GZIP),
    "empty blocks of gzip": ("gzip", lambda data: deflate(data, 31), lambda: BLOCK),
    "empty blocks of deflate": ("deflate", lambda data: deflate(data, 15), lambda: BLOCK),
    "empty blocks without a header": ("deflate", lambda data: deflate(data, -15), lambda: BLOCK),
    "empty frames of zstd": ("zstd", zstd, lambda: zstd(b"")),
    "frames of zstd that are skipped": ("zstd", zstd, lambda: b"\x50\x2a\x4d\x18\4\0\0\0abcd"),
    "empty blocks of br": ("br", brotli, lambda: b"\6"),
    "a coding within another": ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data)), lambda: GZIP),
}
# What comes after the content in a chunked body, and what then comes again and again.
FRAMED: dict[str, tuple[bytes, bytes]] = {
    "an extension of a chunk": (b"5;a=", b"b"),
    "zeros of a size": (b"", b"0"),
    "trailers": (b"0\r\n", b"x-a: yyyy\r\n"),
    "one trailer": (b"0\r\nx-a: ", b"y"),
}
FLOODS = [*CODED, *FRAMED]
VERBS = ["call", "stream"]


def flood(name: str, verb: str) -> tuple[bytes, bytes]:
    """The beginning of a reply, and what it goes on with."""
    content = whole()[:-1] if verb == "call" else delta("The sky")
    kind = JSON if verb == "call" else SSE
    if name in FRAMED:
        start, more = FRAMED[name]
        return head(200, kind, transfer_encoding="chunked") + piece(content) + start, more
    coding, pack, unit = CODED[name]
    return head(200, kind, content_encoding=coding) + pack(content), unit()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", FLOODS)
def test_drops_without_content_extend_no_wait(client: Driver, name: str, verb: str) -> None:
    start, more = flood(name, verb)
    with Peer([start, Again(more, 0.02)]) as peer:
        began = time.monotonic()
        with pytest.raises(cnllm.IdleTimeout, match=r"no content for 0\.2 s") as caught:
            ask(client, verb, at(peer), timeout=WAIT)
        assert time.monotonic() - began < SOON
        assert peer.gone.wait(SOON)
    if verb == "stream":
        assert caught.value.reply is not None
        assert caught.value.reply.text == "The sky"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_without_content_ends_and_takes_no_memory(make: Make, name: str, verb: str) -> None:
    start, more = flood(name, verb)
    more *= 60_000 // len(more)
    client = make(retry=ONCE)
    with Peer([reply()], [start, Again(more, 0)]) as peer:
        client.call(at(peer))
        tracemalloc.start()
        try:
            with pytest.raises(cnllm.CnllmError) as caught:
                ask(client, verb, at(peer), timeout=60, limits=cnllm.Limits(max_reply_bytes=1_000_000))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert isinstance(caught.value, TransportError if verb == "call" else cnllm.StreamCut)
        assert not isinstance(caught.value, cnllm.IdleTimeout), "its size ended it, and not the time"
        assert peer.gone.wait(SOON)
    assert peak < 4_000_000


@pytest.mark.share(2)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("more", [b"x-a: y\r\n", b"y", b"HTTP/1.1 102 x\r\n\r\n"], ids=["lines", "a line", "interim"])
@pytest.mark.parametrize("start", [b"HTTP/1.1 103 x\r\nx: ", b"HTTP/1.1 103 x\r\nx-a\r\n b: c\r\n"], ids=["", "odd"])
def test_headers_without_end(make: Make, start: bytes, more: bytes, verb: str) -> None:
    start += b"\r\n\r\n" if more.startswith(b"HTTP") else b"\r\n" if more.endswith(b"\n") else b""
    for again in (Again(more, 0.02), Again(more * 3000, 0)):
        with Peer([start, again]) as peer:
            began = time.monotonic()
            with pytest.raises(TransportError):
                ask(make(retry=ONCE), verb, at(peer), timeout=WAIT if again.every else 30)
            assert time.monotonic() - began < SOON
            assert peer.gone.wait(SOON)


@pytest.mark.parametrize("rest", [b"\0" * 20, b"garbage", b"\x1f", b"\x1f\x1f", b"<html>" * 100_000])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br", "deflate, gzip"])
def test_a_body_ends_where_its_coding_ends(client: Driver, coding: str, rest: bytes) -> None:
    packed = whole()
    for name in coding.split(", "):
        if name == "br":
            packed = pytest.importorskip("brotli", reason="brotli is not installed").compress(packed)
        else:
            packed = PACKERS[name](packed)
    with Peer([answer(200, packed + rest, JSON, content_encoding=coding)]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bytes_behind_the_end_of_a_coding_are_not_waited_for(client: Driver, coding: str) -> None:
    packed = (gzip.compress if coding == "gzip" else zlib.compress)(whole())
    with Peer([head(200, JSON, content_encoding=coding) + packed, Again(b"garbage", 0.02)]) as peer:
        assert client.call(at(peer), timeout=10).text == "The sky is blue."
        assert peer.gone.wait(SOON)


def test_members_of_gzip_with_content_belong_to_the_body(client: Driver) -> None:
    body = whole()
    members = [gzip.compress(body[i : i + 7]) + GZIP for i in range(0, len(body), 7)]
    with Peer([answer(200, b"".join(members), JSON, content_encoding="gzip")]) as peer:
        for _ in range(2):
            assert client.call(at(peer)).text == "The sky is blue."
        assert peer.connections == 1


@pytest.mark.share(1)  # with each driver: the adapters have limits of their own
@pytest.mark.parametrize("number", [5, 6, 2000, 6000])
def test_few_codings_are_decoded(make: Make, number: int) -> None:
    packed = whole()
    for _ in range(min(number, 5)):
        packed = gzip.compress(packed)
    client = make(retry=ONCE)
    with Peer([answer(200, packed, JSON, content_encoding=",".join(["gzip"] * number))]) as peer:
        if number <= 5:
            assert client.call(at(peer)).text == "The sky is blue."
            return
        with pytest.raises(TransportError, match=f"names {number} codings"):
            client.call(at(peer))


@pytest.mark.parametrize("coding", ["gzip, gzip, gzip", "zstd, gzip, gzip"])
def test_what_lies_between_two_codings_is_bounded(make: Make, coding: str) -> None:
    """A few hundred bytes that are millions of empty members."""
    unit = GZIP if coding.startswith("gzip") else zstd(b"")
    packer = zlib.compressobj(9, wbits=31)
    middle = b"".join(packer.compress(unit * 10_000) for _ in range(300)) + packer.flush()
    with Peer([answer(200, gzip.compress(middle), JSON, content_encoding=coding)]) as peer:
        began = time.process_time()
        with pytest.raises(TransportError, match="hold no content"):
            make(retry=ONCE).call(at(peer))
        assert time.process_time() - began < 3


# ── connections ──────────────────────────────────────────────────────────────
@contextlib.contextmanager
def listener(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is handled in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(peer: socket.socket) -> None:
            with contextlib.suppress(OSError), peer:
                handle(peer)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def silent(peer: socket.socket) -> None:
    while peer.recv(65536):
        pass


def drops(data: bytes) -> Callable[[socket.socket], None]:
    """Sends a byte now and then, for ever, beginning with these."""

    def handle(peer: socket.socket) -> None:
        peer.recv(65536)
        for index in range(500):
            peer.sendall(data[index : index + 1] or b"x")
            time.sleep(0.02)

    return handle


def half_greeting(peer: socket.socket) -> None:
    peer.sendall(b"\5")
    silent(peer)


def tunnel_to_nowhere(peer: socket.socket) -> None:
    peer.recv(999)
    peer.sendall(b"HTTP/1.1 200 x\r\n\r\n")
    silent(peer)


def half_socks(peer: socket.socket) -> None:
    peer.recv(10)
    peer.sendall(b"\5\0")
    silent(peer)


def name_in_drops(peer: socket.socket) -> None:
    """The reply to a request holds a name of 255 characters."""
    peer.recv(10)
    peer.sendall(b"\5\0")
    drops(b"\5\0\0\3\xff")(peer)


PROXIES: dict[str, tuple[str, Callable[[socket.socket], None]]] = {
    "socks, silent": ("socks5", silent),
    "socks, half a greeting": ("socks5", half_greeting),
    "socks, no word on the address": ("socks5", half_socks),
    "socks, a reply in drops": ("socks5", name_in_drops),
    "tunnel, silent": ("http", silent),
    "tunnel, headers in drops": ("http", drops(b"HTTP/1.1 200 OK\r\nx-a: ")),
    "tunnel, interim responses": ("http", drops(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)),
    "tunnel, then no TLS": ("http", tunnel_to_nowhere),
}


@pytest.mark.parametrize("name", PROXIES)
def test_the_handshake_of_a_proxy_has_its_bound(make: Make, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    scheme, handle = PROXIES[name]
    with listener(handle) as port:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:{port}")
        model = registry().resolve("openai-compatible/m", base_url="https://api.example.test/v1")
        began = time.monotonic()
        with pytest.raises(cnllm.Timeout) as caught:
            make(retry=ONCE).call(model, timeout=cnllm.Timeouts(connect=0.3, first_byte=60))
        assert time.monotonic() - began < SOON
    said = f"no connection to api.example.test in 0.3 s (through the proxy {scheme}://127.0.0.1:{port})"
    assert caught.value.message == said


def test_a_proxy_may_speak_in_pieces(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def byte_by_byte(peer: socket.socket) -> None:
        for request, answers in ((10, b"\5\0"), (300, b"\5\0\0\3\4name\0\1"), (65536, reply())):
            peer.recv(request)
            for byte in answers:
                peer.sendall(bytes([byte]))
                time.sleep(0.001)
        silent(peer)

    with listener(byte_by_byte) as port:
        monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{port}")
        model = registry().resolve("openai-compatible/m", base_url="http://api.example.test/v1")
        assert make(retry=ONCE).call(model).text == "The sky is blue."


@pytest.mark.parametrize("handle", [silent, drops(b"\x16\3\3\1\0")], ids=["silent", "in drops"])
def test_a_handshake_of_tls_has_its_bound(make: Make, handle: Callable[[socket.socket], None]) -> None:
    with listener(handle) as port:
        model = registry().resolve("openai-compatible/m", base_url=f"https://127.0.0.1:{port}/v1")
        began = time.monotonic()
        with pytest.raises(cnllm.Timeout, match=r"no connection to 127\.0\.0\.1 in 0\.3 s"):
            make(retry=ONCE).call(model, timeout=cnllm.Timeouts(connect=0.3, first_byte=60))
        assert time.monotonic() - began < SOON


@contextlib.contextmanager
def full(number: int, port: int = 0) -> Iterator[list[Any]]:
    """Addresses with one port whose queues are full: connections to them hang."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for index in range(number):
            server = stack.enter_context(socket.socket())
            try:
                server.bind((f"127.0.0.{index + 2}", port))
            except OSError:
                pytest.skip("this machine has one address only")
            server.listen(0)
            port = server.getsockname()[1]
            addresses.append(server.getsockname())
            for _ in range(4):
                plug = stack.enter_context(socket.socket())
                plug.setblocking(False)
                plug.connect_ex(server.getsockname())
        yield addresses


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], cnllm.Model]:
    """Give `many.test` these addresses."""
    real = socket.getaddrinfo
    addresses: list[Any] = []

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host not in ("many.test", b"many.test"):
            return real(host, *args, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        if not addresses:
            time.sleep(2)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    def give(given: list[Any]) -> cnllm.Model:
        addresses[:] = given
        port = addresses[0][1] if addresses else 80
        return registry().resolve("openai-compatible/m", base_url=f"http://many.test:{port}/v1")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return give


def test_one_deadline_holds_for_all_addresses(make: Make, name: Callable[[list[Any]], cnllm.Model]) -> None:
    with full(6) as addresses:
        model = name(addresses)
        began = time.monotonic()
        with pytest.raises(cnllm.Timeout, match=r"no connection to many\.test in 0\.5 s"):
            make(retry=ONCE).call(model, timeout=cnllm.Timeouts(connect=0.5))
        assert time.monotonic() - began < SOON


def test_a_resolver_that_is_silent(make: Make, name: Callable[[list[Any]], cnllm.Model]) -> None:
    model = name([])
    with pytest.raises(cnllm.Timeout, match=r"no connection to many\.test in 0\.3 s"):
        make(retry=ONCE).call(model, timeout=cnllm.Timeouts(connect=0.3))


def test_a_silent_address_does_not_stop_the_next(make: Make, name: Callable[[list[Any]], cnllm.Model]) -> None:
    with Peer([reply()]) as peer, full(2, peer.port) as addresses:
        model = name([addresses[0], ("127.0.0.9", peer.port), addresses[1], ("127.0.0.1", peer.port)])
        assert make(retry=ONCE).call(model, timeout=cnllm.Timeouts(connect=8)).text == "The sky is blue."
