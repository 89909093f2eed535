"""A call that is left while it waits ends at once, a closed client sends nothing, and one reader has the events."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

import cnllm
from cnllm import AsyncClient, Client, Retry
from cnllm.transports import Httpx, default_transport

from .peer import Close, Peer, Stay, delta, stream
from .support import at, registry

BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 9\r\ncontent-length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
THRICE = Retry(attempts=3, base=0.01)


def _wait_for_request(peer: Peer) -> None:
    deadline = time.monotonic() + 10
    while not peer.received and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)


def test_a_call_that_waits_to_be_repeated_can_be_left_from_another_thread() -> None:
    with Peer([BUSY]) as peer, Client(registry()) as client:
        call = client.stream(at(peer), "hi")

        def leave() -> None:
            _wait_for_request(peer)
            call.cancel()

        thread = threading.Thread(target=leave)
        thread.start()
        began = time.monotonic()
        with pytest.raises(cnllm.TransportError, match="closed before its end"):
            list(call)
        assert time.monotonic() - began < 5
        thread.join()
    assert len(peer.received) == 1


def test_a_call_that_was_left_before_it_began_waits_for_nothing() -> None:
    with Peer([BUSY]) as peer, Client(registry()) as client:
        call = client.stream(at(peer), "hi")
        call.cancel()
        with pytest.raises(cnllm.TransportError, match="closed before its end"):
            list(call)
    assert peer.received == []


@pytest.mark.parametrize("script", [Stay(), Close()], ids=["closed under it", "closed between attempts"])
def test_no_request_is_sent_again_by_a_client_that_was_closed(script: Any) -> None:
    with Peer([script]) as peer:
        client = Client(registry(), retry=Retry(attempts=3, base=1.5))

        def close() -> None:
            _wait_for_request(peer)
            client.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(cnllm.ClientClosed) as caught:
            client.call(at(peer), "hi", timeout=5)
        thread.join()
        assert caught.value.cost is None  # the first request may have been served
        assert len(peer.received) == 1


@pytest.mark.parametrize("make", [default_transport, Httpx])
@pytest.mark.parametrize("script", [[Stay()], [HEAD + delta("a"), Stay()]], ids=["no answer", "half an answer"])
def test_closing_a_client_wakes_what_reads_from_it(make: Any, script: list[Any]) -> None:
    with Peer(script) as peer:
        client = Client(registry(), transport=make(), retry=THRICE)

        def close() -> None:
            _wait_for_request(peer)
            client.close()

        thread = threading.Thread(target=close)
        thread.start()
        began = time.monotonic()
        with pytest.raises(cnllm.CnllmError):
            client.call(at(peer), "hi")
        assert time.monotonic() - began < 5
        thread.join()
        assert len(peer.received) == 1


def test_no_request_is_sent_again_by_an_async_client_that_was_closed() -> None:
    async def main(peer: Peer) -> None:
        client = AsyncClient(registry(), retry=THRICE)
        call = asyncio.create_task(client.call(at(peer), "hi", timeout=5))
        await asyncio.to_thread(_wait_for_request, peer)
        await client.aclose()
        with pytest.raises(cnllm.ClientClosed) as caught:
            await call
        assert caught.value.cost is None

    with Peer([Stay()]) as peer:
        asyncio.run(main(peer))
        assert len(peer.received) == 1


def test_a_stream_that_was_made_before_the_end_of_its_client_sends_nothing_after_it() -> None:
    async def later(peer: Peer) -> None:
        async with AsyncClient(registry()) as client:
            call = client.stream(at(peer), "hi")
        with pytest.raises(cnllm.ClientClosed):
            await call.complete()

    with Peer([stream(delta("x"))]) as peer:
        with Client(registry()) as client:
            call = client.stream(at(peer), "hi")
        with pytest.raises(cnllm.ClientClosed) as caught:
            list(call)
        assert caught.value.costs == ()
        asyncio.run(later(peer))
        assert peer.received == []


@pytest.mark.parametrize("verb", ["stream", "run_stream"])
def test_a_second_thread_is_told_that_another_one_reads(verb: str) -> None:
    with Peer([HEAD + delta("a"), Stay()]) as peer, Client(registry(), retry=THRICE) as client:
        call: Any = getattr(client, verb)(at(peer), "hi", if_cut="error")
        events: list[Any] = []

        def read() -> None:
            with call, contextlib.suppress(cnllm.CnllmError):
                events.extend(call)

        thread = threading.Thread(target=read)
        thread.start()
        _wait_for_request(peer)
        with pytest.raises(cnllm.CnllmError, match="another thread reads this"):
            list(call)
        if verb == "stream":
            with pytest.raises(cnllm.CnllmError, match="another thread reads this"):
                _ = call.reply
        call.close()
        thread.join()


@pytest.mark.parametrize("verb", ["stream", "run_stream"])
def test_a_second_task_is_told_that_another_one_reads(verb: str) -> None:
    async def main(peer: Peer) -> None:
        async with AsyncClient(registry(), retry=THRICE) as client:
            call: Any = getattr(client, verb)(at(peer), "hi", if_cut="error")

            async def read() -> None:
                async with call:
                    async for _ in call:
                        pass

            task = asyncio.create_task(read())
            await asyncio.to_thread(_wait_for_request, peer)
            with pytest.raises(cnllm.CnllmError, match="another task reads this"):
                async for _ in call:
                    pass
            if verb == "stream":
                with pytest.raises(cnllm.CnllmError, match="another task reads this"):
                    await call.complete()
            await call.aclose()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, cnllm.CnllmError)

    with Peer([HEAD + delta("a"), Stay()]) as peer:
        asyncio.run(main(peer))
