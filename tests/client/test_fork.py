"""Forked processes: each has connections, locks and loops of its own, and leaves its parent's alone."""

import asyncio
import contextlib
import os
import select
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest

import cnllm
from cnllm import AsyncClient, Client
from cnllm.system.processes import generation

from . import certificate
from .peer import Peer, Stay, delta, reply, said, stream, texts
from .support import ONCE, SOON, at, registry

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
ADAPTERS = ["httpx", "httpx2", "fast"]


def child(work: Callable[[], Any]) -> str:
    """What a forked process says to its parent; an error is said too, and one that hangs says nothing."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(out)
        try:
            os.write(into, repr(work()).encode())
        except BaseException:  # noqa: BLE001 - the parent reads it
            os.write(into, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(into)
    try:
        readable, _, _ = select.select([out], [], [], SOON)
        if not readable:
            os.kill(pid, 9)
            return "it hangs"
        return b"".join(iter(lambda: os.read(out, 65536), b"")).decode()
    finally:
        os.close(out)
        os.waitpid(pid, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate.make(folder)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
        yield made


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_children_and_grandchildren_do_not_share_connections(server: ssl.SSLContext, encrypted: bool) -> None:
    with Peer([reply()], tls=server if encrypted else None) as peer, Client(registry(), retry=ONCE) as client:
        model = at(peer)

        def call() -> str:
            return client.call(model, "hi").text

        def twice() -> list[str]:
            return [call(), call(), child(call)]

        assert call() == "The sky is blue."
        assert child(twice) == repr(["The sky is blue."] * 2 + [repr("The sky is blue.")])
        assert child(call) == repr("The sky is blue.")
        assert call() == "The sky is blue."
    assert [request.connection for request in peer.received] == [0, 1, 1, 2, 3, 0]


def test_a_childs_end_says_nothing_to_the_parents_peer(server: ssl.SSLContext) -> None:
    """Neither close_notify nor a shutdown: the parent's stream goes on over the same connection."""
    go = threading.Event()
    for tls in (None, server):
        go.clear()
        with (
            Peer([stream(*texts("The"), end=False), *_rest(go)], [reply()], tls=tls) as peer,
            Client(registry()) as client,
        ):
            with client.stream(at(peer), "hi") as running:
                events = iter(running)
                next(events)

                def close() -> None:
                    client.close()
                    running.close()

                assert child(close) == "None"
                go.set()
                list(events)
                assert running.reply.text == "The sky"
            client.call(at(peer), "hi")
            assert not peer.gone.is_set()
            assert [request.connection for request in peer.received] == [0, 0]


def _rest(go: threading.Event) -> list[Any]:
    from .peer import DONE, Wait, piece, usage

    return [Wait(go), *map(piece, [delta(" sky"), delta(finish="stop"), usage(), DONE, b""])]


def test_a_child_reads_none_of_its_parents_stream(adapter: str) -> None:
    if adapter == "fast":
        pytest.skip("its sockets are not registered here")
    go = threading.Event()
    with (
        Peer([stream(*texts("The"), end=False), *_rest(go)]) as peer,
        Client(registry()) as client,
        client.stream(at(peer), "hi") as running,
    ):
        events = iter(running)
        next(events)

        def rest() -> list[Any]:
            list(events)
            return [running.reply]

        assert "StreamCut" in child(rest)
        go.set()
        list(events)
        assert running.reply.text == "The sky"


def test_a_child_holds_no_connection_of_its_parent_open(adapter: str) -> None:
    """The peer sees the parent close, though a child is there still and did not use the client."""
    if adapter == "fast":
        pytest.skip("its sockets are not registered here")
    with Peer([reply()]) as peer:
        client = Client(registry())
        client.call(at(peer), "hi")
        out, into = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(into)
            os.read(out, 1)
            os._exit(0)
        client.close()
        assert peer.gone.wait(SOON)
        os.close(into)
        os.close(out)
        os.waitpid(pid, 0)


def test_locks_that_another_thread_held_are_free(adapter: str) -> None:
    if adapter == "fast":
        pytest.skip("the pool of Fast has a test of its own")
    with Peer([reply()]) as peer, Client(registry(), retry=ONCE) as client:
        model = at(peer)
        client.call(model, "hi")
        pool = next(iter(client._transport._state().transports.entries.values())).pool
        held = [pool._optional_thread_lock, registry()._lock]
        providers = vars(type(registry()))["providers"]
        held += [providers.lock] if hasattr(providers, "lock") else []  # of Python 3.11
        ready, go = threading.Event(), threading.Event()

        def hold() -> None:
            with contextlib.ExitStack() as stack:
                for lock in held:
                    stack.enter_context(lock)
                ready.set()
                go.wait(SOON)

        thread = threading.Thread(target=hold)
        thread.start()
        ready.wait(SOON)

        def work() -> str:
            found = registry().resolve("openai-compatible/other", base_url=peer.url)
            with client.stream(found, "hi") as running:
                list(running)
            return running.reply.text

        peer.scripts = ([stream(*said("The sky"), end=False), Stay()],)
        assert child(work) == repr("The sky")
        go.set()
        thread.join()


def _run(client: AsyncClient, model: cnllm.Model, backend: str = "asyncio") -> list[str]:
    async def main() -> list[str]:
        return [(await client.call(model, "hi")).text for _ in range(2)]

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_client_after_its_loop_and_in_several(backend: str) -> None:
    two = ["The sky is blue."] * 2
    with Peer([reply()]) as peer:
        client, model = AsyncClient(registry(), retry=ONCE), at(peer)
        for turn in range(3):
            peer.gone.clear()
            assert _run(client, model, backend) == two
            assert peer.gone.wait(SOON), "what a loop leaves behind is closed with it"
            assert child(lambda: _run(client, model, backend)) == repr(two)
            assert peer.connections == 2 * (turn + 1)
        assert _run(client, model, "trio" if backend == "asyncio" else "asyncio") == two


def test_a_child_of_a_running_loop() -> None:
    two = ["The sky is blue."] * 2

    async def main() -> list[str]:
        async with AsyncClient(registry(), retry=ONCE) as client:
            first = [(await client.call(model, "hi")).text]
            first.append(child(lambda: _run(client, model)))
            return [*first, (await client.call(model, "hi")).text]

    with Peer([reply()]) as peer:
        model = at(peer)
        assert asyncio.run(main()) == [two[0], repr(two), two[0]]
    assert [request.connection for request in peer.received] == [0, 1, 1, 0]


def test_two_loops_at_once_have_connections_of_their_own() -> None:
    meet = threading.Barrier(2)
    got: list[list[str]] = []
    with Peer([reply()]) as peer:
        client, model = AsyncClient(registry(), retry=ONCE), at(peer)

        async def main() -> None:
            texts = []
            for _ in range(5):
                meet.wait(SOON)
                texts.append((await client.call(model, "hi")).text)
            got.append(texts)

        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == [["The sky is blue."] * 5] * 2
    assert peer.connections == 2


@pytest.mark.parametrize("package", [httpx, httpx2])
def test_a_given_transport_is_not_used_on_in_a_child(package: Any, adapter: str) -> None:
    if adapter != "httpx":
        pytest.skip("once is enough")
    with Peer([reply()]) as peer:
        model = at(peer)
        mock = package.MockTransport(lambda request: package.Response(200, content=reply().partition(b"\r\n\r\n")[2]))
        with Client(registry(), mock) as client:
            client.call(model, "hi")
            assert child(lambda: client.call(model, "hi").text) == repr("The sky is blue."), "it holds no connection"
        with Client(registry(), package.HTTPTransport()) as client:
            client.call(model, "hi")
            assert "make the transport and the client in the child" in child(lambda: client.call(model, "hi"))
            assert client.call(model, "hi").text == "The sky is blue."


def test_each_process_has_a_generation_of_its_own() -> None:
    here = generation()
    assert child(lambda: [generation(), child(generation)]) == repr([here + 1, str(here + 2)])


def test_a_descriptor_that_is_a_files_by_now_stays_open(tmp_path: Path) -> None:
    with Peer([reply()]) as peer:
        client = Client(registry())
        client.call(at(peer), "hi")
        client.close()
    files = [open(tmp_path / str(i), "w") for i in range(8)]  # noqa: SIM115

    def write() -> list[int]:
        written = [file.write("x") for file in files]
        for file in files:
            file.flush()
        return written

    assert child(write) == repr([1] * 8)
    for file in files:
        file.close()
    assert [(tmp_path / str(i)).read_text() for i in range(8)] == ["x"] * 8
