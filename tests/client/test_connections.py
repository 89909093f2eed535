"""Connections: used again, given back, closed when nobody listens any more."""

import asyncio
import gc
import threading
import time
from typing import Any

import anyio
import pytest
from cases import each

import cnllm
from cnllm import AsyncClient, Client
from cnllm.client.telemetry import ResponseStarted, RetryScheduled, TelemetryEvent
from cnllm.transports import AsyncHttpx
from cnllm.transports.fast import AsyncFast

from .conftest import Make
from .peer import (
    DONE,
    Again,
    Close,
    Pause,
    Peer,
    Stay,
    Step,
    chunked,
    delta,
    piece,
    refused,
    reply,
    said,
    stream,
    texts,
)
from .support import ONCE, SOON, Backend, Driver, Streamed, at, drained, registry

TALK: list[Step] = [stream(*texts("The sky"), end=False), Again(piece(delta(" and so on")))]
MUTE: list[Step] = [stream(*texts("The sky"), end=False), Stay()]


# ── leaving early ────────────────────────────────────────────────────────────
@each("script", [TALK, MUTE], ids=["while it talks", "while it thinks"])
def test_leaving_the_block_hangs_up_and_the_client_goes_on(client: Driver, script: list[Step]) -> None:
    with Peer(script, [reply()]) as peer:
        with client.stream(at(peer)) as streamed:
            for _ in streamed:
                break
        assert peer.gone.wait(SOON)
        assert client.call(at(peer)).text == "The sky is blue."
        assert len(peer.received) == 2


def _fail_in(stream: Streamed) -> None:
    with stream as running:
        for _ in running:
            raise ZeroDivisionError


def test_an_exception_in_the_loop_hangs_up_and_is_the_callers(client: Driver) -> None:
    with Peer(TALK, [reply()]) as peer:
        with pytest.raises(ZeroDivisionError):
            _fail_in(client.stream(at(peer)))
        assert peer.gone.wait(SOON)
        assert client.call(at(peer)).text == "The sky is blue."


def test_a_stream_that_was_left_has_no_reply_and_no_more_events(client: Driver) -> None:
    with Peer(TALK) as peer:
        with client.stream(at(peer)) as streamed:
            for _ in streamed:
                break
        assert list(streamed) == []
        with pytest.raises(cnllm.StreamCut) as caught:
            _ = streamed.reply
    assert caught.value.reply is not None
    assert (caught.value.reply.text, caught.value.reply.finish) == ("The sky", "cut")


@each("script", [[refused(401, "bad key")], [stream(*texts("The sky")), Close()]], ids=["refused", "cut"])
def test_a_call_that_failed_says_why_each_time(make: Make, script: list[Step]) -> None:
    with Peer(script) as peer:
        streamed = make(retry=ONCE).stream(at(peer), if_cut="error")
        with streamed, pytest.raises(cnllm.CnllmError) as first:
            list(streamed)
        for _ in range(2):
            with pytest.raises(cnllm.CnllmError) as again:
                _ = streamed.reply
            assert again.value is first.value


LEFT: dict[str, tuple[list[Step], str]] = {
    "in a text": (MUTE, "The sky"),
    "before a text": ([stream(b": hi\n\n", end=False), Stay()], ""),
}


@each("end", ["cancel", "close", "stop"])
@each("if_cut", ["error", "again-whole", "keep"])
@each("case", LEFT)
def test_another_thread_may_end_a_stream(case: str, if_cut: Any, end: str) -> None:
    """The thread that reads it is told that, and no endpoint is blamed."""
    script, text = LEFT[case]
    begun = threading.Event()
    failed: list[cnllm.CnllmError] = []

    def listen(event: TelemetryEvent) -> None:
        if isinstance(event, ResponseStarted) and not text:
            begun.set()

    def read(streamed: cnllm.Stream[Any]) -> None:
        try:
            for _ in streamed:
                begun.set()
        except cnllm.CnllmError as error:
            failed.append(error)

    with Peer(script) as peer, Client(registry=registry(), on_event=listen) as client:
        streamed = client.stream(at(peer), "hi", if_cut=if_cut)
        reader = threading.Thread(target=read, args=(streamed,))
        reader.start()
        assert begun.wait(SOON)
        if end == "stop":
            with pytest.raises(cnllm.CnllmError, match="another thread reads this stream"):
                streamed.stop()
        else:
            getattr(streamed, end)()
        reader.join(SOON)
        assert peer.gone.wait(SOON)
        assert len(peer.received) == 1
    [error] = failed
    assert (type(error), str(error)) == (cnllm.TransportError, "the call was closed before its end")
    assert error.reply is not None
    assert (error.reply.text, error.reply.finish) == (text, "cut")


UNANSWERED: dict[str, list[Step]] = {
    "before the response": [Stay()],
    "between attempts": [refused(503, "busy", **{"retry-after": "50"})],
}


def test_another_thread_may_end_a_stream_that_has_no_response() -> None:
    """No timeout has to pass before."""
    failed: list[cnllm.CnllmError] = []

    def read(streamed: cnllm.Stream[Any]) -> None:
        try:
            list(streamed)
        except cnllm.CnllmError as error:
            failed.append(error)

    with Peer([Stay()]) as peer, Client(registry=registry()) as client:
        streamed = client.stream(at(peer), "hi")
        reader = threading.Thread(target=read, args=(streamed,))
        reader.start()
        while not peer.received:
            time.sleep(0.02)
        streamed.cancel()
        reader.join(SOON)
        assert not reader.is_alive()
        assert peer.gone.wait(SOON)
        assert len(peer.received) == 1
    assert [str(error) for error in failed] == ["the call was closed before its end"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@each("end", ["aclose", "stop"])
@each("case", [*LEFT, *UNANSWERED])
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
def test_another_task_may_end_a_stream(case: str, end: str, backend: str) -> None:
    """The task that reads it is told that, and no timeout has to pass before."""
    script, text = LEFT.get(case) or (UNANSWERED[case], "")
    begun = threading.Event()
    failed: list[cnllm.CnllmError] = []

    def listen(event: TelemetryEvent) -> None:
        if isinstance(event, ResponseStarted if case == "before a text" else RetryScheduled):
            begun.set()

    async def read(streamed: cnllm.AsyncStream[Any]) -> None:
        try:
            async for _ in streamed:
                begun.set()
        except cnllm.CnllmError as error:
            failed.append(error)

    async def main(peer: Peer) -> cnllm.Reply | None:
        async with AsyncClient(registry=registry(), on_event=listen) as client:
            streamed = client.stream(at(peer), "hi")
            with anyio.fail_after(SOON):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read, streamed)
                    while not (peer.received if case == "before the response" else begun.is_set()):
                        await anyio.sleep(0.02)
                    await anyio.sleep(0.05)  # it waits for the rest
                    got: cnllm.Reply | None = await getattr(streamed, end)()
                assert [event async for event in streamed] == []
            return got

    with Peer(script) as peer:
        got = anyio.run(main, peer, backend=backend)
        assert peer.gone.wait(SOON)
        assert len(peer.received) == 1
    [error] = failed
    assert (type(error), str(error)) == (cnllm.TransportError, "the call was closed before its end")
    assert error.reply is None or (error.reply.text, error.reply.finish) == (text, "cut")
    assert got is None or (got.text, got.finish) == (text, "cut")
    assert not (text and end == "stop") or got is not None


def test_nothing_is_sent_before_it_is_asked_for(client: Driver) -> None:
    with Peer([reply()]) as peer:
        with client.stream(at(peer)) as streamed:
            pass
        client.stream(at(peer))
        assert list(streamed) == []
        assert (peer.received, peer.connections) == ([], 0)


def test_a_call_is_completed_from_wherever_its_events_were_left() -> None:
    async def read(peer: Peer) -> None:
        async with AsyncClient(registry()) as client:
            unread = client.stream(at(peer), "hi")
            whole = await unread.complete()
            assert (whole.text, await unread.complete(), [e async for e in unread]) == ("The sky is blue.", whole, [])
            begun = client.stream(at(peer), "hi")
            await anext(aiter(begun))
            assert (await begun.complete()).text == "The sky is blue."
            failed = client.stream(at(peer), "hi")
            with pytest.raises(cnllm.EndpointError):
                await failed.complete()
            left = client.stream(at(peer), "hi")
            await left.aclose()
            for call, error in ((failed, cnllm.BadRequest), (left, cnllm.StreamCut)):
                with pytest.raises(error):
                    await call.complete()

    with Peer([reply()], [reply()], [refused(400, "no")]) as peer:
        anyio.run(read, peer)
        assert len(peer.received) == 3


def test_leaving_one_stream_leaves_the_others_alone(client: Driver) -> None:
    with Peer(TALK, [stream(*texts("One"), end=False), Again(piece(delta(" two")), 0.01)]) as peer:
        first, second = client.stream(at(peer)), client.stream(at(peer))
        with first, second:
            both = iter(first), iter(second)
            for events in both:
                next(events)
            first.__exit__(None, None, None)
            assert peer.gone.wait(SOON)
            assert [type(next(both[1])) for _ in range(20)] == [cnllm.TextDelta] * 20


def test_a_dropped_stream_hangs_up() -> None:
    with Peer(TALK) as peer, Client(registry()) as client:
        for _ in client.stream(at(peer), "hi"):
            break
        gc.collect()
        assert peer.gone.wait(SOON)


def test_stop_hangs_up_and_hands_over_what_came(backend: Backend) -> None:
    async def read(peer: Peer) -> cnllm.Reply | None:
        async with AsyncClient(registry()) as client, client.stream(at(peer), "hi") as streamed:
            assert await streamed.stop() is None
            async with client.stream(at(peer), "hi") as again:
                async for _ in again:
                    break
                return await again.stop()

    def read_now(peer: Peer) -> cnllm.Reply | None:
        with Client(registry()) as client, client.stream(at(peer), "hi") as streamed:
            assert streamed.stop() is None
            with client.stream(at(peer), "hi") as again:
                for _ in again:
                    break
                return again.stop()

    with Peer(MUTE) as peer:
        got = read_now(peer) if backend == "sync" else anyio.run(read, peer, backend=backend)
        assert peer.gone.wait(SOON)
        assert len(peer.received) == 1
    assert got is not None
    assert (got.text, got.finish) == ("The sky", "cut")


@each("adapter", [AsyncHttpx, AsyncFast])
@each("read", ["events", "sentences", "run"])
def test_streams_that_are_open_at_the_end_of_a_loop_end_without_a_report(read: str, adapter: Any) -> None:
    def tool() -> str:
        """Do nothing."""
        return ""

    reports: list[Any] = []
    held: list[Any] = []

    async def main(peer: Peer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        client = AsyncClient(registry(), adapter(), api_key="k")
        for _ in range(8):  # the loop ends its generators in any order
            if read == "run":
                stream: Any = client.run_stream(at(peer), "hi", tools=[tool])
            else:
                stream = client.stream(at(peer), "hi", by="sentence" if read == "sentences" else None)
            held.append((stream, await anext(aiter(stream))))

    with Peer([chunked(*texts("A sentence. ", "Another"), end=False), Stay()]) as peer:
        asyncio.run(main(peer))
    assert len(held) == 8
    assert reports == []


def test_stop_before_anything_came_hands_over_nothing_that_was_said() -> None:
    with Peer([stream(b'{"choices":', end=False), Stay()]) as peer, Client(registry()) as client:
        streamed = client.stream(at(peer), "hi", timeout=cnllm.Timeouts(idle=0.2))
        with pytest.raises(cnllm.IdleTimeout):
            list(streamed)
        got = streamed.stop()
    assert got is None or (got.text, got.finish) == ("", "cut")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("script", [MUTE, [Stay()]], ids=["in the middle", "before the answer"])
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
def test_a_cancelled_task_hangs_up_and_the_client_goes_on(backend: str, script: list[Step]) -> None:
    async def read(client: AsyncClient, peer: Peer) -> None:
        async with client.stream(at(peer), "hi") as streamed:
            async for _ in streamed:
                pass

    async def ask(client: AsyncClient, peer: Peer) -> None:
        await client.call(at(peer), "hi")

    async def main(peer: Peer) -> str:
        async with AsyncClient(registry()) as client:
            for number, work in enumerate((read, ask), 1):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(work, client, peer)
                    while len(peer.received) < number:
                        await anyio.sleep(0.02)
                    await anyio.sleep(0.1)  # it waits for the rest
                    tasks.cancel_scope.cancel()
            return (await client.call(at(peer), "hi")).text

    with Peer(script, script, [reply()]) as peer:
        assert anyio.run(main, peer, backend=backend) == "The sky is blue."
        assert peer.gone.wait(SOON)
        assert len(peer.received) == 3


# ── keep-alive ───────────────────────────────────────────────────────────────
def test_a_second_call_uses_the_same_connection(client: Driver) -> None:
    with Peer([reply()]) as peer:
        for _ in range(3):
            client.call(at(peer))
    assert [request.connection for request in peer.received] == [0, 0, 0]


def test_a_second_stream_uses_the_same_connection(client: Driver) -> None:
    with Peer([stream(*said("The sky"))]) as peer:
        for _ in range(3):
            drained(client.stream(at(peer)))
    assert [request.connection for request in peer.received] == [0, 0, 0]


def test_a_stream_whose_end_comes_a_moment_after_done_leaves_its_connection(client: Driver) -> None:
    with Peer([stream(*said("The sky"), end=False), Pause(0.01), piece(b"")]) as peer:
        for _ in range(3):
            drained(client.stream(at(peer)))
    assert peer.connections == 1


def test_refusals_and_retries_keep_the_connection(make: Make) -> None:
    client = make(retry=cnllm.Retry(attempts=2, base=0.01))
    with Peer([refused(503)], [reply()], [refused(400)], [stream(*said("x"))], [reply()]) as peer:
        client.call(at(peer))
        with pytest.raises(cnllm.BadRequest):
            client.call(at(peer))
        drained(client.stream(at(peer)))
        client.call(at(peer))
    assert peer.connections == 1


def test_a_whole_body_for_a_stream_keeps_the_connection(client: Driver) -> None:
    with Peer([reply()]) as peer:
        drained(client.stream(at(peer)))
        drained(client.stream(at(peer)))
    assert peer.connections == 1


def test_a_connection_that_lingered_is_not_used_again(client: Driver) -> None:
    with Peer([stream(*said("The sky"), end=False), Stay()], [reply()]) as peer:
        drained(client.stream(at(peer)))
        assert peer.gone.wait(SOON)
        client.call(at(peer))
    assert [request.connection for request in peer.received] == [0, 1]


def test_a_cut_connection_is_not_used_again(client: Driver) -> None:
    with Peer([stream(*texts("x"), end=False), Close()], [reply()]) as peer:
        with pytest.raises(cnllm.StreamCut):
            drained(client.stream(at(peer)))
        assert client.call(at(peer)).text == "The sky is blue."
    assert [request.connection for request in peer.received] == [0, 1]


def test_a_connection_that_the_peer_gave_up_meanwhile_is_replaced(make: Make) -> None:
    client = make(retry=ONCE)
    with Peer([reply()]) as peer:
        client.call(at(peer))
        peer.hang_up()
        assert client.call(at(peer)).text == "The sky is blue."
    assert [request.connection for request in peer.received] == [0, 1]


def test_calls_one_after_the_other_in_one_stream_need_a_second_connection(client: Driver) -> None:
    with Peer([stream(*texts("x"), end=False), Stay()], [reply()]) as peer, client.stream(at(peer)) as streamed:
        for _ in streamed:
            client.call(at(peer))
            break
        assert [request.connection for request in peer.received] == [0, 1]


@pytest.mark.share(1)  # with each client: httpx does nothing
def test_a_connection_may_be_had_ahead(make: Make, adapter: str) -> None:
    """With httpx, which cannot, nothing happens."""
    client = make(retry=ONCE)
    with Peer([reply()]) as peer:
        client.warm(at(peer))
        assert peer.received == []
        assert client.call(at(peer)).text == "The sky is blue."
        client.warm(at(peer))
        assert client.call(at(peer)).text == "The sky is blue."
    assert peer.connections == 1


# ── closing ──────────────────────────────────────────────────────────────────
def test_closing_the_client_closes_its_connections(make: Make) -> None:
    client = make()
    with Peer([reply()]) as peer:
        client.call(at(peer))
        assert not peer.gone.is_set()
        client.close()
        assert peer.gone.wait(SOON)


def test_closing_twice_or_before_anything_was_sent(make: Make) -> None:
    make().close()
    client = make()
    client.close()
    client.close()


@pytest.mark.share(1)  # with each client: each waits in a place of its own
def test_closing_a_client_ends_what_still_runs(make: Make) -> None:
    client = make()
    with Peer(MUTE) as peer:
        streamed = client.stream(at(peer))
        with streamed:
            for _ in streamed:
                break
        client.close()
        assert peer.gone.wait(SOON)


def test_a_proxy_that_the_environment_names_is_used(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer([reply()]) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "localhost")
        model = registry().resolve("openai-compatible/m", base_url="http://far.example/v1")
        assert make().call(model).text == "The sky is blue."
    assert proxy.received[0].line.split()[1] == "http://far.example/v1/chat/completions"


def test_the_request_is_what_the_plan_says(client: Driver) -> None:
    with Peer([stream(*said("x"), end=False) + piece(DONE) + piece(b"")]) as peer:
        plan = client.plan(at(peer), "天", stream=True, temperature=0.5, extra_headers={"X-Mine": "yes"})
        drained(client.stream(at(peer), "天", temperature=0.5, extra_headers={"X-Mine": "yes"}))
    got = peer.received[0]
    assert got.line == "POST /v1/chat/completions HTTP/1.1"
    assert got.body == plan.content
    assert got.headers["host"] == f"127.0.0.1:{peer.port}"
    assert got.headers["user-agent"].startswith("cnllm/")
    assert "authorization" not in got.headers
    shown: dict[str, Any] = {k: v for k, v in plan.headers.items() if "{key}" not in v}
    assert shown.items() <= got.headers.items()
    assert got.headers["x-mine"] == "yes"
