"""What is cut never looks whole: a stream, a body, a call."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, UnexpectedModelBehavior
from pydantic_ai_cnllm import CnllmModel

import cnllm

CUT = ("It is warm", "", None)
CUT_IN_A_CALL = ("It is", '{"city": "Be', None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")
ERRORS = {CUT: cnllm.StreamCut, CUT_IN_A_CALL: cnllm.StreamCut, CALL_AT_ITS_LENGTH: UnexpectedModelBehavior}


@pytest.fixture
def called() -> list[str]:
    return []


@pytest.fixture
def agent(served: Any, called: list[str]) -> Agent:
    agent = Agent(CnllmModel("home/m"))

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city now."""
        called.append(city)
        return f"sunny in {city}"

    return agent


async def pieces(agent: Agent, seen: list[str]) -> None:
    async with agent.run_stream("Hi") as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            seen.append(text)


@pytest.mark.parametrize("answer", ERRORS)
def test_a_cut_stream_is_an_error_after_its_pieces(
    served: Callable[..., Any], agent: Agent, called: list[str], answer: Any
) -> None:
    served(answer)
    seen: list[str] = []
    with pytest.raises(ERRORS[answer]):
        asyncio.run(pieces(agent, seen))
    assert "It is" in "".join(seen)
    assert called == []


@pytest.mark.parametrize("answer", [CUT, CALL_AT_ITS_LENGTH])
def test_a_cut_body_and_a_cut_call_are_errors(served: Any, agent: Agent, called: list[str], answer: Any) -> None:
    served(answer)
    with pytest.raises((cnllm.CnllmError, UnexpectedModelBehavior)):
        agent.run_sync("Hi")
    assert called == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_run(served: Any, agent: Agent, called: list[str], stream: bool) -> None:
    requests = served(WHOLE_CALL, ("It is sunny", "", "stop"))
    seen: list[str] = []
    if stream:
        asyncio.run(pieces(agent, seen))
    text = "".join(seen) if stream else agent.run_sync("Hi").output
    assert text.strip() == "It is sunny"
    assert called == ["Bern"]
    assert requests[1]["messages"][-1]["content"] == "sunny in Bern"


def test_an_answer_at_its_length_says_so(served: Any, agent: Agent) -> None:
    served(("It is warm", "", "length"))
    assert agent.run_sync("Hi").response.finish_reason == "length"
