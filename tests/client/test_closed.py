"""A closed client says that it is closed, and what to do, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import cnllm

VERBS: dict[str, Callable[[Any], Any]] = {
    "call": lambda client: client.call("glm-4.7", "Hi"),
    "stream": lambda client: client.stream("glm-4.7", "Hi"),
    "run": lambda client: client.run("glm-4.7", "Hi"),
    "run_stream": lambda client: client.run_stream("glm-4.7", "Hi"),
    "call with fallback": lambda client: client.call("glm-4.7", "Hi", fallback=["kimi-k2.6"]),
    "warm": lambda client: client.warm("glm-4.7"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_a_closed_client_refuses_every_verb(verb: Callable[[Any], Any]) -> None:
    with cnllm.Client(simulate=True) as client:
        assert client.call("glm-4.7", "Hi").text
    with pytest.raises(cnllm.ClientClosed, match="this client is closed") as caught:
        verb(client)
    assert "inside its `with` block, or make a new Client" in str(caught.value.hint)
    assert client.plan("glm-4.7", "Hi").body  # nothing is sent for it


@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_a_closed_async_client_refuses_every_verb(verb: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with cnllm.AsyncClient(simulate=True) as client:
            assert (await client.call("glm-4.7", "Hi")).text
        with pytest.raises(cnllm.ClientClosed, match="this client is closed"):
            await verb(client)

    asyncio.run(main())


def test_a_tool_loop_ends_where_its_client_is_closed_under_it() -> None:
    @cnllm.tool
    def close(city: str = "Bern") -> str:
        """Close the client."""
        client.close()
        return city

    client = cnllm.Client(simulate=True)
    with pytest.raises(cnllm.ClientClosed) as caught:
        client.run("glm-4.7", "Hi", tools=[close], tool_choice="required")
    assert [step.returned for step in caught.value.run.steps] == [1]


def test_a_client_of_another_registry_stays_open_by_itself() -> None:
    async def main() -> None:
        first = cnllm.AsyncClient(simulate=True)
        second = first.with_registry(cnllm.Registry.load())
        await first.aclose()
        assert (await second.call("glm-4.7", "Hi")).text

    asyncio.run(main())


def test_an_option_for_streams_is_refused_where_it_does_not_belong() -> None:
    with cnllm.Client(simulate=True) as client, pytest.raises(TypeError, match=r"stream is not an option .*`stream`"):
        client.call("glm-4.7", "Hi", stream=True)  # type: ignore[call-overload]
