"""What a tool or a callback leaves behind: items that nobody waits for, changed arguments, a run that it ended."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import cnllm

from .support import SOON, Loops, Peer, at, ran, results, turns


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_generator_without_an_end_is_closed_when_nobody_waits_for_it(client: Loops, kind: str) -> None:
    closed = threading.Event()
    taken: list[int] = []

    def items() -> Iterator[int]:
        try:
            while True:
                time.sleep(0.001)
                taken.append(1)
                yield 1
        finally:
            closed.set()

    async def later() -> Iterator[int]:
        return items()

    tool = cnllm.tool(items if kind == "plain" else later, name="endless")
    with Peer(*turns("run", [("endless", "{}")], "Done.")) as peer:
        client.run(at(peer), tools=[tool], tool_timeout=0.1)
    assert list(results(peer).values()) == ["Error: Timeout: it gave no result in 0.1 s"]
    assert closed.wait(SOON)
    assert taken


def test_a_tool_that_changes_its_arguments_does_not_change_the_call(client: Loops, verb: str) -> None:
    def extend(**arguments: Any) -> int:
        arguments["items"].append("more")
        return len(arguments["items"])

    tool = cnllm.Tool("extend", None, {"type": "object"}, extend)
    with Peer(*turns(verb, [("extend", '{"items": [1]}')], "Done.")) as peer:
        _, run = ran(client, verb, at(peer), tools=[tool])
    assert list(results(peer).values()) == ["2"]
    assert run.steps[0].calls[0].arguments == {"items": [1]}


def test_a_callback_that_ends_the_program_cancels_the_run() -> None:
    def leave(_: Any) -> None:
        raise SystemExit(3)

    options: Any = {"tools": [cnllm.tool(lambda: 1, name="now")], "tool_choice": "required", "on_step": leave}

    async def later() -> Any:
        async with cnllm.AsyncClient(simulate=True) as client:
            run = client.run_stream("glm-4.7", "Hi", **options)
            with pytest.raises(SystemExit):
                async for _ in run:
                    pass
            return run.stopped

    with cnllm.Client(simulate=True) as client:
        run = client.run_stream("glm-4.7", "Hi", **options)
        with pytest.raises(SystemExit):
            list(run)
    assert run.stopped == asyncio.run(later()) == "cancelled"
