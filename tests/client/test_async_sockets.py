"""A call that is cancelled while it connects leaves no socket behind, and the first address that answers wins."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from typing import Any

import pytest

from cnllm import AsyncClient
from cnllm.transports.loop_pool import open_async_socket

from .peer import Peer, Stay, reply
from .support import SOON, at, registry

pytest.importorskip("httptools", reason="the extra cnllm-client[fast] is not installed")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_call_that_is_cancelled_while_it_connects_leaves_no_socket(host: str) -> None:
    async def main(peer: Peer) -> None:
        async with AsyncClient(registry()) as client:
            for turns in range(40):
                call = asyncio.create_task(client.call(at(peer), "hi"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
            await asyncio.sleep(0.1)  # connections that were open close in a later turn of the loop
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                gc.collect()
            assert [str(warning.message) for warning in seen if "socket" in str(warning.message)] == []

    gc.disable()
    try:
        with Peer([Stay()]) as peer:
            peer.url = peer.url.replace("127.0.0.1", host)
            asyncio.run(main(peer))
    finally:
        gc.enable()


def test_of_several_addresses_the_first_that_answers_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    refused = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))

    async def main(peer: Peer) -> None:
        good = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port))
        loop = asyncio.get_running_loop()
        for targets in ([refused, good], [good, refused], [good, good, good]):
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=targets, **__: found)
            with await open_async_socket(loop, "name", 1) as sock:
                assert sock.getpeername() == good[4]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [refused, refused])
        with pytest.raises(ConnectionRefusedError):
            await open_async_socket(loop, "name", 1)

    with Peer([reply()]) as peer:
        asyncio.run(main(peer))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_name_that_is_never_resolved_delays_no_other_name_and_no_end_of_a_loop(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    runner = pytest.importorskip(loop)
    real, over, texts = socket.getaddrinfo, threading.Event(), []
    lookups: list[Any] = []

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host not in ("silent.test", b"silent.test"):
            return real(host, *args, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        lookups.append(host)
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    async def main(peer: Peer) -> None:
        async with AsyncClient(registry()) as client:
            silent = registry().resolve("openai-compatible/m", base_url="http://silent.test/v1")
            calls = [asyncio.create_task(client.call(silent, "hi")) for _ in range(50)]
            while not lookups:
                await asyncio.sleep(0)
            texts.append((await client.call(at(peer), "hi")).text)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    try:
        with Peer([reply()]) as peer:
            peer.url = peer.url.replace("127.0.0.1", "localhost")
            thread = threading.Thread(target=lambda: runner.run(main(peer)), daemon=True)
            thread.start()
            thread.join(SOON)
            assert (thread.is_alive(), texts, len(lookups)) == (False, ["The sky is blue."], 1)
    finally:
        over.set()
