"""Examples of smolagents' documentation, with the simulator as the endpoint."""

import pytest
from smolagents import ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole, agglomerate_stream_deltas
from smolagents_cnllm import CnllmModel

QUESTION = [{"role": "user", "content": [{"type": "text", "text": "Hello, how are you?"}]}]


@pytest.fixture
def model() -> CnllmModel:
    return CnllmModel("glm-4.7", client={"simulate": True})


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


def test_messages_as_dicts(model: CnllmModel) -> None:
    answer = model(QUESTION)
    assert "Hello, how are you?" in answer.content
    assert answer.role == MessageRole.ASSISTANT


def test_messages_as_objects_and_a_system_text(model: CnllmModel) -> None:
    text = [{"type": "text", "text": "Hi"}]
    history = [ChatMessage(MessageRole.SYSTEM, [{"type": "text", "text": "Be short"}])]
    assert 'You said: "Hi"' in model.generate([*history, ChatMessage(MessageRole.USER, text)]).content


def test_reasoning_notes_and_cost_are_in_raw(model: CnllmModel) -> None:
    reply = model(QUESTION).raw
    assert reply.reasoning
    assert any(note.code == "simulated" for note in reply.notes)
    assert hasattr(reply, "cost")


def test_tokens_are_counted(model: CnllmModel) -> None:
    usage = model(QUESTION).token_usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0


def test_options_of_the_model_and_of_a_call() -> None:
    model = CnllmModel("glm-4.7", client={"simulate": True}, reasoning="off", temperature=0.2)
    assert not model(QUESTION, max_tokens=900).raw.reasoning


def test_stop_sequences(model: CnllmModel) -> None:
    whole = model(QUESTION, reasoning="off").content
    assert model(QUESTION, stop_sequences=["simulator"], reasoning="off").content == whole.partition("simulator")[0]


def test_structured_output(model: CnllmModel) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    shape = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    assert '"city"' in model(QUESTION, response_format=shape).content


def test_a_tool_is_called(model: CnllmModel) -> None:
    call = model(QUESTION, tools_to_call_from=[get_weather]).tool_calls[0]
    assert call.function.name == "get_weather"
    assert set(call.function.arguments) == {"city"}


def test_a_stream_adds_up_to_the_answer(model: CnllmModel) -> None:
    deltas = list(model.generate_stream(QUESTION))
    assert len(deltas) > 3
    assert agglomerate_stream_deltas(deltas).content == model(QUESTION).content


def test_a_stream_with_a_tool_and_a_stop_sequence(model: CnllmModel) -> None:
    deltas = model.generate_stream(QUESTION, tools_to_call_from=[get_weather], stop_sequences=["<end>"])
    assert agglomerate_stream_deltas(list(deltas)).tool_calls[0].function.name == "get_weather"


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_runs_a_tool(model: CnllmModel, stream: bool) -> None:
    agent = ToolCallingAgent(tools=[get_weather], model=model, max_steps=2, stream_outputs=stream, verbosity_level=0)
    result = agent.run("How warm is it in Bern?", return_full_result=True)
    assert any("get_weather" in str(step) for step in result.steps)
    assert result.token_usage.output_tokens > 0


def test_a_picture() -> None:
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    model = CnllmModel("kimi-k2.6", client={"simulate": True})
    assert model([{"role": "user", "content": [{"type": "text", "text": "What is it?"}, url]}]).content
