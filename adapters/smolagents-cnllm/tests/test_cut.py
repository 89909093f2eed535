"""What is cut never looks whole: a stream, a body, a call."""

from typing import Any

import pytest
from smolagents import AgentGenerationError, ToolCallingAgent, tool
from smolagents.models import agglomerate_stream_deltas
from smolagents_cnllm import CnllmModel

import cnllm

CUT = ("It is warm", "", None)
CUT_IN_A_CALL = ("It is", '{"city": "Be', None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")
QUESTION = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
ERRORS = {CUT: cnllm.StreamCut, CUT_IN_A_CALL: cnllm.StreamCut, CALL_AT_ITS_LENGTH: ValueError}
called: list[str] = []


@tool
def weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: The city.
    """
    called.append(city)
    return f"sunny in {city}"


@pytest.fixture
def model(served: Any) -> CnllmModel:
    called.clear()
    return CnllmModel("home/m")


@pytest.mark.parametrize("answer", ERRORS)
def test_a_cut_stream_is_an_error_after_its_pieces(served: Any, model: CnllmModel, answer: Any) -> None:
    served(answer)
    seen: list[Any] = []
    with pytest.raises(ERRORS[answer]):
        seen.extend(model.generate_stream(QUESTION, tools_to_call_from=[weather]))
    assert "It is" in "".join(delta.content for delta in seen)
    assert not [delta for delta in seen if delta.tool_calls]


@pytest.mark.parametrize("answer", [CUT, CALL_AT_ITS_LENGTH])
def test_a_cut_body_and_a_cut_call_are_errors(served: Any, model: CnllmModel, answer: Any) -> None:
    served(answer)
    with pytest.raises((cnllm.CnllmError, ValueError)):
        model.generate(QUESTION, tools_to_call_from=[weather])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("answer", ERRORS)
def test_an_agent_runs_no_tool_of_a_cut_reply(served: Any, model: CnllmModel, answer: Any, stream: bool) -> None:
    served(answer)
    agent = ToolCallingAgent([weather], model, max_steps=1, stream_outputs=stream, verbosity_level=0)
    with pytest.raises(AgentGenerationError):
        agent.run("How warm is it?")
    assert called == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_a_call(served: Any, model: CnllmModel, stream: bool) -> None:
    served(WHOLE_CALL)
    if stream:
        deltas = list(model.generate_stream(QUESTION, tools_to_call_from=[weather]))
        call = agglomerate_stream_deltas(deltas).tool_calls[0]
    else:
        call = model.generate(QUESTION, tools_to_call_from=[weather]).tool_calls[0]
    assert (call.id, call.function.name) == ("call_1", "weather")
    assert call.function.arguments in ({"city": "Bern"}, '{"city": "Bern"}')


@pytest.mark.parametrize("stream", [True, False])
def test_an_agent_runs_a_whole_call(served: Any, model: CnllmModel, stream: bool) -> None:
    served(WHOLE_CALL)
    agent = ToolCallingAgent([weather], model, max_steps=1, stream_outputs=stream, verbosity_level=0)
    agent.run("How warm is it?")
    assert called == ["Bern"]


def test_an_answer_at_its_length_says_so(served: Any, model: CnllmModel) -> None:
    served(("It is warm", "", "length"))
    assert model.generate(QUESTION).raw.finish == "length"
