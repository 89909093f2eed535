"""Cancelling: at once, from anywhere, and with a history to go on from."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from client.peer import Stay, Wait, delta, refused, said, stream

import cnllm
from cnllm import AsyncClient
from cnllm.client.tool_execution import ToolThread

from .support import SOON, Backend, Loops, Peer, at, legal, ran, registry, results, sent, turns


@contextmanager
def cancelled_when(said: threading.Event, run: Any) -> Iterator[None]:
    """Another thread cancels the run once that happens."""

    def wait() -> None:
        said.wait(SOON)
        run.cancel()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        said.set()
        thread.join(SOON)


class Knock(threading.Event):
    """What a peer waits for before it answers; `heard` says that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.heard.set()
        return super().wait(timeout)


def goes_on(client: Loops, peer: Peer, run: Any) -> list[dict[str, Any]]:
    """The history is taken by a next request; what was sent."""
    legal(run.messages)
    peer.scripts = (turns("run", "Fine.")[0],)
    assert client.run(at(peer), [*run.messages, "go on"]).reply.text == "Fine."
    return sent(peer)


def test_in_the_middle_of_a_stream(client: Loops) -> None:
    read = threading.Event()
    with Peer([stream(delta("The sky"), end=False), Stay()]) as peer:
        with client.run_stream(at(peer)) as run, cancelled_when(read, run):
            for _ in run:
                read.set()
        assert run.stopped == "cancelled"
        assert (run.reply.text, run.reply.finish, run.steps) == ("The sky", "cut", ())
        assert peer.gone.wait(SOON)  # the connection is closed, nobody goes on paying
        assert [m["content"] for m in goes_on(client, peer, run)] == ["hi", "The sky", "go on"]


def test_before_the_first_byte_of_an_answer(client: Loops) -> None:
    knock = Knock()
    with Peer([Wait(knock)]) as peer:
        with client.run_stream(at(peer)) as run, cancelled_when(knock.heard, run):
            assert list(run) == []
        assert (run.stopped, len(peer.received)) == ("cancelled", 1)
        with pytest.raises(cnllm.LoopStopped, match="no reply had arrived when the run ended: cancelled"):
            assert run.reply
        assert [m["content"] for m in goes_on(client, peer, run)] == ["hi", "go on"]


def test_in_the_middle_of_a_tool_the_results_that_came_are_kept(client: Loops) -> None:
    begun, over = threading.Event(), threading.Event()

    def quick() -> str:
        return "quick"

    def stuck() -> str:
        begun.set()
        over.wait(SOON)
        return "late"

    script = turns("run_stream", [("quick", "{}"), ("stuck", "{}"), ("quick", "{}", "third")])
    with Peer(*script) as peer:
        with client.run_stream(at(peer), tools=[quick, stuck], max_parallel=1) as run, cancelled_when(begun, run):
            list(run)
        assert not over.is_set()
        assert (run.stopped, len(run.steps), run.steps[0].returned) == ("cancelled", 1, 1)
        goes_on(client, peer, run)
        assert list(results(peer).values()) == ["quick", *["Error: cancelled before it gave a result"] * 2]
    over.set()


def test_an_async_tool_is_really_cancelled(client: Loops) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def stuck() -> str:
        import asyncio

        begun.set()
        try:
            await (anyio.sleep_forever() if client._a else asyncio.sleep(60))
        finally:
            ended.set()
        return "late"

    with Peer(*turns("run_stream", [("stuck", "{}")])) as peer:
        with client.run_stream(at(peer), tools=[stuck]) as run, cancelled_when(begun, run):
            list(run)
        assert ended.wait(SOON)
        assert run.stopped == "cancelled"
        goes_on(client, peer, run)


def test_a_tool_that_is_left_before_it_begins_does_not(recwarn: pytest.WarningsRecorder) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def tool() -> None:
        begun.set()

    job = ToolThread(tool, str, lambda job: ended.set())
    job.abandon()
    job.start()
    assert ended.wait(SOON)
    gc.collect()
    assert not begun.is_set()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_from_another_task(backend: Backend) -> None:
    async def main(peer: Peer) -> Any:
        async with (
            AsyncClient(registry()) as client,
            client.run_stream(at(peer), "hi") as run,
            anyio.create_task_group() as group,
        ):
            read = anyio.Event()

            async def cancel() -> None:
                await read.wait()
                run.cancel()

            group.start_soon(cancel)
            async for _ in run:
                read.set()
        return run

    with Peer([stream(delta("The sky"), end=False), Stay()]) as peer:
        run: Any = anyio.run(main, peer, backend=backend)
    assert (run.stopped, run.messages[-1].text) == ("cancelled", "The sky")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_is_left_goes_on_with_the_next_event(backend: Backend) -> None:
    async def main(peer: Peer) -> list[str]:
        async with AsyncClient(registry()) as client, client.run_stream(at(peer), "hi") as run:
            texts: list[str] = []
            async for event in run:
                if type(event) is cnllm.TextDelta:
                    texts.append(event.text)
                    break
            while (following := await anext(run, None)) is not None:
                texts += [following.text] if type(following) is cnllm.TextDelta else []
            assert run.reply.text == "The sky"
            return texts

    with Peer([stream(*said("The", " sky"))]) as peer:
        assert anyio.run(main, peer, backend=backend) == ["The", " sky"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_that_is_cancelled_itself_leaves_a_legal_history(backend: Backend) -> None:
    runs: list[Any] = []

    async def main(peer: Peer) -> None:
        async def stuck() -> str:
            scope.cancel()
            await anyio.sleep_forever()
            return "late"

        with anyio.CancelScope() as scope:
            async with AsyncClient(registry()) as client, client.run_stream(at(peer), "hi", tools=[stuck]) as run:
                runs.append(run)
                async for _ in run:
                    pass
        assert scope.cancelled_caught

    with Peer(*turns("run_stream", [("stuck", "{}")])) as peer:
        anyio.run(main, peer, backend=backend)
    assert runs[0].stopped == "cancelled"
    legal(runs[0].messages)


def test_before_it_begins_nothing_is_sent(client: Loops) -> None:
    with Peer(*turns("run_stream", "Hi.")) as peer:
        with client.run_stream(at(peer)) as run:
            run.cancel()
            assert list(run) == []
        assert (run.stopped, peer.received) == ("cancelled", [])
        with client.run_stream(at(peer)) as left:
            pass
        assert (left.stopped, peer.received) == ("cancelled", [])


def test_leaving_the_block_ends_it(client: Loops) -> None:
    with Peer([stream(delta("The sky"), end=False), Stay()]) as peer:
        with client.run_stream(at(peer)) as run:
            assert next(iter(run)) == cnllm.TextDelta("The sky")
        assert run.stopped == "cancelled"
        assert peer.gone.wait(SOON)
        assert run.messages[-1].text == "The sky"


def test_from_a_callback_and_when_it_is_over(client: Loops) -> None:
    runs: list[Any] = []
    script = turns("run_stream", [("now", "{}")], "Noon.")
    with Peer(*script) as peer:
        tools = [cnllm.tool(lambda: "noon", name="now")]
        with client.run_stream(at(peer), tools=tools, on_step=lambda step: runs[0].cancel()) as run:
            runs.append(run)
            list(run)
        assert (run.stopped, len(peer.received), list(run)) == ("cancelled", 1, [])
        done = ran(client, "run_stream", at(peer), run.messages)[1]
        done.cancel()
        assert (done.stopped, done.reply.text) == ("done", "Noon.")


def test_nobody_is_asked_to_approve_after_it(client: Loops) -> None:
    asked: list[str] = []

    def approve(call: cnllm.ToolCall) -> bool:
        asked.append(call.name)
        return True

    with Peer(*turns("run_stream", [("now", "{}")])) as peer:
        tools = [cnllm.tool(lambda: "noon", name="now")]
        with client.run_stream(at(peer), tools=tools, approve=approve) as run:
            for event in run:
                if isinstance(event, cnllm.Finished):
                    run.cancel()
    assert (run.stopped, asked) == ("cancelled", [])
    legal(run.messages)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_closing_it_from_another_task(backend: Backend) -> None:
    async def main(peer: Peer) -> Any:
        async with AsyncClient(registry()) as client, anyio.create_task_group() as group:
            run, read = client.run_stream(at(peer), "hi"), anyio.Event()

            async def close() -> None:
                await read.wait()
                await anyio.sleep(0.05)  # it is waiting for more by then
                await run.aclose()

            group.start_soon(close)
            async for _ in run:
                read.set()
        return run

    with Peer([stream(delta("The sky"), end=False), Stay()]) as peer:
        run: Any = anyio.run(main, peer, backend=backend)
        assert peer.gone.wait(SOON)
    assert (run.stopped, run.messages[-1].text) == ("cancelled", "The sky")


def test_nothing_is_tried_again_after_it(backend: Backend) -> None:
    """A refusal that would be retried comes after the run was cancelled."""
    knock = Knock()
    again = cnllm.Retry(attempts=3, base=0.0)
    with Peer([Wait(knock), refused(503)]) as peer, Loops(backend, retry=again) as client:
        with client.run_stream(at(peer)) as run, cancelled_when(knock.heard, run):
            list(run)
        knock.set()
        for thread in threading.enumerate():
            if thread.name == "cnllm-call":
                thread.join(SOON)
        assert run.stopped == "cancelled"
        assert len(peer.received) == 1
