"""A program that forks while its clients keep connections: `python forks.py URL`. It prints what went wrong.

Each request says who sent it, and its reply has to say the same. Replies to the parent come over one connection, which
its requests name.
"""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable

import cnllm
from cnllm import AsyncClient, Client, Registry, Retry
from cnllm.transports.fast import AsyncFast, Fast

MODEL = Registry.load().resolve("openai-compatible/m", base_url=sys.argv[1])
CHILDREN, CALLS = 4, 10
ONCE = Retry(attempts=1)


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def calls(client: Client, who: str, count: int = CALLS) -> int:
    """How many replies were another's."""
    return sum(client.call(MODEL, f"{who} {n}", timeout=10).text != f"{who} {n}" for n in range(count))


async def acalls(client: AsyncClient, who: str, count: int = CALLS) -> int:
    said = [(await client.call(MODEL, f"{who} {n}", timeout=10)).text for n in range(count)]
    return sum(text != f"{who} {n}" for n, text in enumerate(said))


def fork(work: Callable[[str], int], name: str, count: int = CHILDREN) -> list[int]:
    """Children that do some work; their process ids."""
    children = []
    for n in range(count):
        child = os.fork()
        if not child:
            code = 99
            try:
                code = work(f"{name} child {n}")
            except BaseException as error:  # noqa: BLE001
                report(f"{name} child {n}: {error!r}")
            os._exit(code)
        children.append(child)
    return children


def check(name: str, wrong: int, children: list[int] = []) -> None:  # noqa: B006
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if wrong or any(codes):
        report(f"{name}: {wrong} wrong for the parent; children: {codes}")


def sync() -> None:
    client = Client(transport=Fast(), retry=ONCE)
    check("sync", calls(client, "sync parent", 2))
    children = fork(lambda who: calls(client, who), "sync")
    check("sync", calls(client, "sync parent"), children)
    process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(calls(client, "process")))
    process.start()
    wrong = calls(client, "sync parent")
    process.join()
    check("multiprocessing", wrong + (process.exitcode or 0))

    def close(who: str) -> int:
        client._transport.close()
        return calls(client, who)

    check("sync close", calls(client, "sync parent"), fork(close, "sync close"))
    check("sync", calls(client, "sync parent"))


def streams() -> None:
    client = Client(transport=Fast(), retry=ONCE)

    def inherit(who: str) -> int:
        try:
            list(streamed)
        except (cnllm.StreamCut, cnllm.TransportError):
            streamed.close()
            return calls(client, who)
        return 1

    def leave(who: str) -> int:
        streamed._runner.leave()  # as another thread does
        streamed.close()
        client.close()
        return 0

    with client.stream(MODEL, "stream parent") as streamed:
        events = iter(streamed)
        next(events)
        check("stream", 0, [*fork(inherit, "stream"), *fork(leave, "stream left")])
        check("stream", calls(client, "stream other", 1))
        check("stream", int(streamed.reply.text != "stream parent"))


async def running() -> None:
    """The parent's loop runs when it forks."""
    async with AsyncClient(transport=AsyncFast(), retry=ONCE) as client:
        check("running", await acalls(client, "running parent", 2))
        children = fork(lambda who: asyncio.run(acalls(client, who)), "running")
        check("running", await acalls(client, "running parent"), children)

        async def close(who: str) -> int:
            await client._transport.aclose()
            return await acalls(client, who, 1)

        children = fork(lambda who: asyncio.run(close(who)), "running close")
        check("running", await acalls(client, "running parent"), children)
        async with client.stream(MODEL, "running stream") as streamed:
            events = aiter(streamed)
            await anext(events)

            async def inherit(who: str) -> int:
                try:
                    async for _ in streamed:
                        pass
                except (cnllm.StreamCut, cnllm.TransportError):
                    await streamed.aclose()
                    return await acalls(client, who, 1)
                return 1

            check("running stream", 0, fork(lambda who: asyncio.run(inherit(who)), "running stream"))
            async for _ in events:
                pass
            check("running stream", int(streamed.reply.text != "running stream"))


def paused() -> None:
    """The parent's loop exists when it forks, and does not run; a child uses another one, or the same.

    Only one child uses the same at a time: what wakes a loop is shared, and asyncio is not made for that.
    """
    client = AsyncClient(transport=AsyncFast(), retry=ONCE)
    loop = asyncio.new_event_loop()
    check("paused", loop.run_until_complete(acalls(client, "paused parent", 2)))
    children = fork(lambda who: asyncio.run(acalls(client, who)), "paused")
    check("paused", loop.run_until_complete(acalls(client, "paused parent")), children)
    check("same", 0, fork(lambda who: loop.run_until_complete(acalls(client, who)), "same", 1))
    check("paused", loop.run_until_complete(acalls(client, "paused parent")))
    loop.run_until_complete(client.close())
    loop.close()


def ended() -> None:
    """The parent's loop is over when it forks."""
    client = AsyncClient(transport=AsyncFast(), retry=ONCE)
    check("ended", asyncio.run(acalls(client, "ended before", 2)))
    children = fork(lambda who: asyncio.run(acalls(client, who)), "ended")
    check("ended", asyncio.run(acalls(client, "ended parent")), children)


if __name__ == "__main__":
    sync()
    streams()
    asyncio.run(running())
    paused()
    ended()
