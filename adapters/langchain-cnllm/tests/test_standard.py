"""LangChain's own tests of a chat model, with the simulator as the endpoint."""

from typing import Any

import pytest
from langchain_cnllm import ChatCnllm
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_tests.unit_tests import ChatModelUnitTests


class TestStandardUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[ChatCnllm]:
        return ChatCnllm

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "glm-4.7", "simulate": True}


@pytest.fixture
def model() -> ChatCnllm:
    return ChatCnllm(model="glm-4.7", simulate=True, options={"reasoning": "high"})


def weather(city: str) -> str:
    """The weather in a city now."""
    return f"sunny in {city}"


def test_an_answer_has_reasoning_usage_and_notes(model: ChatCnllm) -> None:
    answer = model.invoke("Hi")
    assert 'You said: "Hi"' in answer.text
    assert answer.additional_kwargs["reasoning_content"]
    assert (answer.usage_metadata or {})["output_tokens"] > 0
    assert any("simulat" in note for note in answer.response_metadata["notes"])


def test_a_stream_adds_up_to_the_same_answer(model: ChatCnllm) -> None:
    chunks = list(model.stream("Hi"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert len(chunks) > 3
    assert whole.text == model.invoke("Hi").text
    assert whole.additional_kwargs["reasoning_content"]
    assert whole.response_metadata["finish_reason"] == "stop"


def test_a_tool_is_called_and_its_result_goes_back_with_the_reasoning(model: ChatCnllm) -> None:
    bound = model.bind_tools([weather])
    question = HumanMessage("How warm is it in Bern?")
    answer = bound.invoke([question])
    call = answer.tool_calls[0]
    assert call["name"] == "weather"
    assert answer.response_metadata["cnllm"]["reasoning"]
    last = bound.invoke([question, answer, ToolMessage("21 degrees", tool_call_id=call["id"])])
    assert last.text


def test_a_schema_gives_an_object(model: ChatCnllm) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        """An answer."""

        city: str

    assert isinstance(model.with_structured_output(Answer).invoke("Where?"), Answer)


async def test_the_asynchronous_side(model: ChatCnllm) -> None:
    assert (await model.ainvoke("Hi")).text == model.invoke("Hi").text
    text = "".join([chunk.text async for chunk in model.astream("Hi")])
    assert text == model.invoke("Hi").text


def test_batch_and_pipe(model: ChatCnllm) -> None:
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate

    assert len(model.batch(["one", "two"])) == 2
    chain = ChatPromptTemplate.from_messages([("human", "Say {word}")]) | model | StrOutputParser()
    assert "Say hello" in chain.invoke({"word": "hello"})
