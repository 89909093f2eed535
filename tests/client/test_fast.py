"""What is the fast adapter's own: when it is used, what it leaves to httpx, loops, processes, limits, its parts."""

import asyncio
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnllm
from cnllm import AsyncClient, Client
from cnllm import transports as transport
from cnllm.config.distribution import install_command
from cnllm.transports import AsyncHttpx, Httpx

from .peer import JSON, SSE, Peer, Stay, Step, chunked, head, piece, reply, said, stream, texts
from .support import ONCE, SOON, at, registry

pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")

from cnllm.transports import address, response_parser
from cnllm.transports.fast import AsyncFast, Fast

ADAPTERS = ["fast"]


# ── which one ────────────────────────────────────────────────────────────────
def test_the_fast_transport_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CNLLM_TRANSPORT")
    assert isinstance(Client(registry())._transport, Fast)
    assert isinstance(AsyncClient(registry())._transport, AsyncFast)
    monkeypatch.setattr(transport, "_has_httptools", lambda: False)
    assert isinstance(Client(registry())._transport, Httpx)
    assert isinstance(AsyncClient(registry())._transport, AsyncHttpx)


@pytest.mark.parametrize(("asked", "kinds"), [("httpx", (Httpx, AsyncHttpx)), ("fast", (Fast, AsyncFast))])
def test_the_environment_may_say_which(asked: str, kinds: tuple[type, type], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNLLM_TRANSPORT", asked)
    assert (type(Client(registry())._transport), type(AsyncClient(registry())._transport)) == kinds
    given = Httpx()
    assert Client(registry(), given)._transport is given


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_was_asked_for_and_is_not_there_is_an_error(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_has_httptools", lambda: False)
    with pytest.raises(cnllm.CnllmError, match="httptools") as caught:
        kind(registry())
    assert install_command("fast") in str(caught.value.hint)
    monkeypatch.setenv("CNLLM_TRANSPORT", "quick")
    with pytest.raises(cnllm.CnllmError, match="CNLLM_TRANSPORT=quick"):
        kind(registry())


def test_trio_is_left_to_httpx() -> None:
    fast = AsyncFast()

    async def main(peer: Peer) -> str:
        async with AsyncClient(registry(), fast) as client:
            async with client.stream(at(peer), "hi") as streamed:
                async for _ in streamed:
                    pass
            return streamed.reply.text

    with Peer([stream(*said("The sky"))]) as peer:
        assert anyio.run(main, peer, backend="trio") == "The sky"
    assert not fast._loops


def test_trio_that_another_thread_is_importing_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is in `sys.modules` before its content is there."""
    for name in ("trio", "trio.lowlevel"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    async def main(peer: Peer) -> str:
        async with AsyncClient(registry(), AsyncHttpx()) as client:
            return (await client.call(at(peer), "hi")).text

    with Peer([reply("The sky")]) as peer:
        assert asyncio.run(main(peer)) == "The sky"


# ── loops, processes, threads ────────────────────────────────────────────────
def test_one_client_in_several_loops_one_after_the_other() -> None:
    client = AsyncClient(registry())

    async def main(peer: Peer) -> None:
        for _ in range(2):
            assert (await client.call(at(peer), "hi")).text == "The sky is blue."

    with Peer([reply()]) as peer:
        for turn in range(3):
            peer.gone.clear()
            asyncio.run(main(peer))
            assert peer.gone.wait(SOON), "what a loop leaves behind is closed with it"
            assert peer.connections == turn + 1


def test_no_more_connections_than_allowed_and_whoever_waits_gets_the_next() -> None:
    third = threading.Event()
    with (
        Peer(
            [stream(*texts("The sky"), end=False), Stay()], [stream(*texts("x"), end=False), Stay()], [reply()]
        ) as peer,
        Client(registry(), Fast(connections=2)) as client,
        client.stream(at(peer), "hi") as first,
        client.stream(at(peer), "hi") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        next(iter(first))
        next(iter(second))

        def call() -> str:
            third.set()
            return client.call(at(peer), "hi").text

        waiting = pool.submit(call)
        assert third.wait(SOON)
        assert len(peer.received) == 2
        first.close()
        assert waiting.result(SOON) == "The sky is blue."
        assert len(peer.received) == 3


def test_no_more_connections_than_allowed_in_one_loop() -> None:
    async def main(peer: Peer) -> list[str]:
        async with AsyncClient(registry(), AsyncFast(connections=2)) as client:
            return [r.text for r in await asyncio.gather(*(client.call(at(peer), "hi") for _ in range(20)))]

    with Peer([reply()]) as peer:
        assert asyncio.run(main(peer)) == ["The sky is blue."] * 20
    assert peer.connections <= 2


def test_the_wait_for_the_end_of_others_has_its_bound() -> None:
    async def main(peer: Peer) -> str:
        async with AsyncClient(registry(), AsyncFast(connections=1), retry=ONCE) as client:
            async with client.stream(at(peer), "hi") as first:
                await anext(aiter(first))
                with pytest.raises(cnllm.Timeout, match=r"no connection to 127\.0\.0\.1 was free in 0\.1 s"):
                    await client.call(at(peer), "hi", timeout=0.1)
            return (await client.call(at(peer), "hi")).text

    script: list[Step] = [stream(*texts("The sky"), end=False), Stay()]
    with Peer(script, [reply()]) as peer, Client(registry(), Fast(connections=1), retry=ONCE) as client:
        with client.stream(at(peer), "hi") as first:
            next(iter(first))
            with pytest.raises(cnllm.Timeout, match=r"no connection to 127\.0\.0\.1 was free in 0\.1 s"):
                client.call(at(peer), "hi", timeout=0.1)
        assert client.call(at(peer), "hi").text == "The sky is blue."
    with Peer(script, [reply()]) as peer:
        assert asyncio.run(main(peer)) == "The sky is blue."


def test_places_are_given_back_whatever_happens() -> None:
    """More failures of each kind than there are places."""
    refused = Peer(refuses=True)
    with (
        refused,
        Peer([b"nonsense"], *[[Stay()]] * 3, *[[stream(*texts("x"))]] * 3, [reply()]) as peer,
        Client(registry(), Fast(connections=2), retry=ONCE) as client,
    ):
        for _ in range(3):
            with pytest.raises(cnllm.TransportError):
                client.call(at(refused), "hi")
            with pytest.raises(cnllm.TransportError, match="no connection"):
                client.warm(at(refused))
        for _ in range(4):
            with pytest.raises(cnllm.TransportError):
                client.call(at(peer), "hi", timeout=0.05)
        for _ in range(3):
            with pytest.raises(cnllm.StreamCut):
                list(client.stream(at(peer), "hi"))
        assert client.call(at(peer), "hi").text == "The sky is blue."


def test_a_thousand_streams_at_once() -> None:
    """No stream is answered before all of them were asked for."""
    resource = pytest.importorskip("resource", reason="no limits on open files here")
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * count + 100:
        if hard != resource.RLIM_INFINITY and hard < 2 * count + 100:
            pytest.skip("this process may not open so many files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count + 100, hard))

    class Server(asyncio.Protocol):
        everybody: list[asyncio.Transport] = []  # noqa: RUF012

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.got = transport, b""

        def data_received(self, data: bytes) -> None:
            self.got += data
            if self.got.endswith(b"}"):  # the request is whole
                self.everybody.append(self.transport)
            if len(self.everybody) == count:
                for one in self.everybody:
                    one.write(stream(*said("The sky")))

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(Server, "127.0.0.1", 0, backlog=count) as server:
            port = server.sockets[0].getsockname()[1]
            model = registry().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{port}/v1")

            async def one(client: AsyncClient) -> str:
                async with client.stream(model, "hi") as streamed:
                    async for _ in streamed:
                        pass
                return streamed.reply.text

            async with AsyncClient(registry()) as client:
                return await asyncio.gather(*(one(client) for _ in range(count)))

    try:
        assert asyncio.run(main()) == ["The sky"] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _HoldingServer(asyncio.Protocol):
    """Answers when a round of requests is there, so that each has a connection of its own."""

    opened = 0
    size = 0
    waiting: list[asyncio.Transport] = []  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        _HoldingServer.opened += 1

    def data_received(self, data: bytes) -> None:
        if not data.endswith(b"}"):
            return
        self.waiting.append(self.transport)
        if len(self.waiting) == self.size:
            for transport in self.waiting:
                transport.write(reply())
            self.waiting.clear()


@pytest.mark.parametrize(("setting", "opened"), [(None, 150), ("60", 240), ("150", 150)])
def test_connections_of_one_round_serve_the_next(
    setting: str | None, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv("CNLLM_IDLE_CONNECTIONS", setting)
    monkeypatch.setattr(_HoldingServer, "size", 150)
    monkeypatch.setattr(_HoldingServer, "opened", 0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(_HoldingServer, "127.0.0.1", 0, backlog=200) as server:
            port = server.sockets[0].getsockname()[1]
            model = registry().resolve("openai-compatible/m", base_url=f"http://127.0.0.1:{port}/v1")
            async with AsyncClient(registry()) as client:
                for _ in range(2):
                    await asyncio.gather(*(client.call(model, "hi") for _ in range(150)))

    asyncio.run(main())
    assert _HoldingServer.opened == opened


# ── its parts ────────────────────────────────────────────────────────────────
ADDRESSES = [
    "http://a.example/v1/chat/completions",
    "https://a.example:443/v1",
    "http://a.example:80/",
    "https://a.example:8443/v1/x?alt=sse&b=a%20b",
    "http://127.0.0.1:8000",
    "http://127.0.0.1:8000?x=1",
    "http://[::1]:8000/v1",
    "http://A.Example/V1",
    "http://a.example/a/../b/./c",
    "http://a.example/a%2fb%2Fc",
    "http://me:secret@a.example/x",
    "http://天.example/天 1",
    "http://a.example/x#y",
    "http://a.example/p:q@r;s,t='u'",
    "http://a_b.example/x",
    "https://a.example/v1beta/models/m:streamGenerateContent?alt=sse",
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_is_read_as_httpx_reads_it(url: str) -> None:
    assert address.parse_address(url) == address._parse_with_httpx(url)
    read = httpx.URL(url)
    assert address.parse_address(url).target == read.raw_path.decode()
    assert address.parse_address(url).name == httpx.Request("GET", read).headers["host"]


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "x", "/v1", "http://", "http://[::1", "http://x:port/", "http://x:99999/"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(cnllm.TransportError, match="URL"):
        address.parse_address(url)


ANSWERS: list[tuple[bytes, bytes]] = [
    (chunked(*said("The sky", " is")), b"".join(said("The sky", " is"))),
    (b"HTTP/1.1 103 x\r\nlink: a\r\n\r\n" + head(200, JSON, content_length="5") + b"hello", b"hello"),
    (head(200, SSE, transfer_encoding="chunked") + piece(b"hello") + b"0\r\ntrailer: x\r\n\r\n", b"hello"),
    (head(204, {}), b""),
]


@given(number=st.integers(0, len(ANSWERS) - 1), cuts=st.lists(st.integers(0, 400), max_size=8), after=st.booleans())
def test_a_response_is_the_same_however_it_is_cut(number: int, cuts: list[int], after: bool) -> None:
    sent, body = ANSWERS[number]
    one, got = response_parser.ResponseParser(), b""
    for _ in range(2):  # the same connection again
        one.begin_response()
        got = b""
        marks = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
        for start, end in itertools.pairwise(marks):
            one.feed(sent[start:end])
            got += one.take()
        assert (got, one.complete, one.reusable, one.fault) == (body, True, True, None)
        assert "link" not in one.headers
        assert "trailer" not in one.headers
    if after:
        one.begin_response()
        one.feed(sent + b"HTTP/1.1 408 x\r\ncontent-length: 3\r\n\r\nno!")
        assert (one.take(), one.complete, one.reusable) == (body, True, False)


def test_a_head_that_has_to_be_repaired_is_the_same_however_it_is_cut() -> None:
    interim = b"HTTP/1.1 103 x\r\nlink: a\r\n\r\n"
    sent = interim * 2 + head(200, JSON, transfer_encoding="chunked", content_length="9") + piece(b"hello") + piece(b"")
    for cuts in itertools.combinations(range(1, len(sent)), 2):
        one, got = response_parser.ResponseParser(), b""
        for start, end in itertools.pairwise((0, *cuts, len(sent))):
            one.feed(sent[start:end])
            got += one.take()
        assert (cuts, got, one.complete, one.fault) == (cuts, b"hello", True, None)


def test_after_any_cut_the_connection_is_used_again_unless_something_follows() -> None:
    for number, (sent, body) in enumerate(ANSWERS):
        for cut in range(1, len(sent)):
            one = response_parser.ResponseParser()
            one.begin_response()
            one.feed(sent[:cut])
            got = one.take()
            one.feed(sent[cut:])
            assert (got + one.take(), one.complete, one.reusable) == (body, True, True), (number, cut)
            for surplus in (b"\n", b"\r\n", b"x"):
                one = response_parser.ResponseParser()
                one.begin_response()
                one.feed(sent[:cut])
                one.feed(sent[cut:] + surplus)
                assert (one.complete, one.reusable) == (True, False), (number, cut, surplus)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_reader_takes_anything(junk: bytes, at: int) -> None:
    one = response_parser.ResponseParser()
    good = ANSWERS[0][0]
    one.feed(good[:at] + junk)
    one.feed(good[at:])
    one.end()
    assert one.fault is not None or one.complete
    one.take()


def test_another_loop_of_asyncios_kind() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main(peer: Peer) -> None:
        async with AsyncClient(registry()) as client:
            for _ in range(2):
                assert (await client.call(at(peer), "hi")).text == "The sky is blue."
                async with client.stream(at(peer), "hi") as streamed:
                    async for _ in streamed:
                        pass
                assert streamed.reply.text == "The sky"
            with pytest.raises(cnllm.Timeout):
                await client.call(at(peer), "hi", timeout=0.2)

    answers = [[reply()], [stream(*said("The sky"))]]
    with Peer(*answers, *answers, [Stay()]) as peer:
        uvloop.run(main(peer))
    assert peer.connections == 1
