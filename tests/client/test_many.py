"""Many at once: nothing is mixed, nothing is left open."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

import cnllm
from cnllm import AsyncClient, Client, Model
from cnllm.simulator.server import Server, running

from .peer import Again, Pause, Peer, Wait, delta, piece, reply, said, stream
from .support import at, registry

NAME = "deepseek/deepseek-flash"
KEY = "sk-0123456789"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(registry()) as listening:
        yield listening


def model_at(server: Server) -> Model:
    return registry().resolve(NAME, base_url=f"{server.url}/deepseek")


def test_threads_share_one_client(server: Server) -> None:
    threads, calls = 8, 20
    together = threading.Barrier(threads)
    model = model_at(server)
    with Client(registry(), api_key=KEY) as client:

        def work(number: int) -> list[str]:
            together.wait(10)
            out = []
            for turn in range(calls):
                asked = f"number {number} turn {turn}."
                if turn % 2:
                    got = client.call(model, asked)
                else:
                    with client.stream(model, asked) as streamed:
                        text = "".join(event.text for event in streamed if isinstance(event, cnllm.TextDelta))
                    got = streamed.reply
                    assert got.text == text
                assert asked in got.text
                assert asked in got.reasoning
                out.append(got.text)
            return out

        with ThreadPoolExecutor(threads) as pool:
            texts = [text for one in pool.map(work, range(threads)) for text in one]
    assert len(set(texts)) == threads * calls


def test_threads_that_begin_together_share_the_connections_too() -> None:
    """None of them makes a pool of its own, which nobody would close."""
    for _ in range(10):
        together = threading.Barrier(8)
        with Peer([reply()]) as peer:
            client = Client(registry())

            def work(_: int, client: Client = client, peer: Peer = peer, all: threading.Barrier = together) -> None:
                all.wait(10)
                client.call(at(peer), "hi")

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(8)))
            before = peer.connections
            client.call(at(peer), "hi")
            assert peer.connections == before <= 8
            client.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_fifty_streams_at_once(server: Server, backend: str) -> None:
    model = model_at(server)
    texts: dict[int, str] = {}

    async def one(client: AsyncClient, number: int) -> None:
        asked = f"number {number}."
        async with client.stream(model, asked) as streamed:
            text = "".join([event.text async for event in streamed if isinstance(event, cnllm.TextDelta)])
        assert asked in text
        assert streamed.reply.text == text
        texts[number] = text

    async def main() -> None:
        async with AsyncClient(registry(), api_key=KEY) as client, anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, client, number)

    anyio.run(main, backend=backend)
    assert len(set(texts.values())) == 50


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_streams_really_run_side_by_side(backend: str) -> None:
    """No stream is answered before all of them were asked for: a client that queued them would never end."""
    count = 50
    everybody = threading.Event()

    async def one(client: AsyncClient, peer: Peer, done: list[str]) -> None:
        async with client.stream(at(peer), "hi") as streamed:
            async for _ in streamed:
                pass
        done.append(streamed.reply.text)

    async def main(peer: Peer) -> list[str]:
        done: list[str] = []
        with anyio.fail_after(20):
            async with AsyncClient(registry()) as client, anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(one, client, peer, done)
                while len(peer.received) < count:
                    await anyio.sleep(0.01)
                everybody.set()
        return done

    answer = piece(b"".join(said("The sky"))) + piece(b"")
    with Peer([stream(end=False), Wait(everybody), answer]) as peer:
        assert anyio.run(main, peer, backend=backend) == ["The sky"] * count
    assert peer.connections == count


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_slow_reader_holds_up_nobody_and_loses_nothing(backend: str) -> None:
    """One stream is not read while twenty calls are made; what came meanwhile waits for it, whole."""
    long = ["0123456789" * 400] * 500  # 2 MB: more than the sockets hold, so that the peer has to wait as well

    async def main(peer: Peer) -> str:
        with anyio.fail_after(20):
            async with AsyncClient(registry()) as client, client.stream(at(peer), "hi") as slow:
                events = aiter(slow)
                await anext(events)
                async with anyio.create_task_group() as group:
                    for _ in range(20):
                        group.start_soon(client.call, at(peer), "hi")
                async for _ in events:
                    pass
                return slow.reply.text

    with Peer([stream(*said(*long))], [reply()]) as peer:
        assert anyio.run(main, peer, backend=backend) == "".join(long)
        assert len(peer.received) == 21


@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # httpx's own, of a stream that is left
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_that_never_pauses_leaves_the_others_their_share(backend: str) -> None:
    """One endpoint floods its stream until another stream, of few pieces, has been read to its end."""
    read = threading.Event()

    async def flooded(client: AsyncClient, peer: Peer) -> None:
        async with client.stream(at(peer), "hi") as streamed:
            async for _ in streamed:
                if read.is_set():
                    return

    async def main(flood: Peer, few: Peer) -> str:
        with anyio.fail_after(20):
            async with AsyncClient(registry()) as client, anyio.create_task_group() as group:
                group.start_soon(flooded, client, flood)
                async with client.stream(at(few), "hi") as streamed:
                    async for _ in streamed:
                        pass
                read.set()
        return streamed.reply.text

    words = [f"word {number} " for number in range(40)]
    pieces = [step for event in said(*words) for step in (piece(event), Pause(0.005))]
    with (
        Peer([stream(end=False), Again(piece(delta("flood ") * 1000), every=0)]) as flood,
        Peer([stream(end=False), *pieces, piece(b"")]) as few,
    ):
        assert anyio.run(main, flood, few, backend=backend) == "".join(words)
