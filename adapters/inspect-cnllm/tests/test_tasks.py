"""Examples of Inspect's documentation, with the simulator as the endpoint."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ResponseSchema,
    get_model,
)
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, ToolFunction, tool
from inspect_ai.util import json_schema
from pydantic import BaseModel


@pytest.fixture
def model() -> Model:
    return get_model("cnllm/glm-4.7", simulate=True, memoize=False)


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: First number to add.
            y: Second number to add.
        """
        return x + y

    return execute


async def test_a_text_and_messages(model: Model) -> None:
    assert 'You said: "Say hello"' in (await model.generate("Say hello")).completion
    history = [ChatMessageSystem(content="Be short"), ChatMessageUser(content=[ContentText(text="Hi")])]
    assert 'You said: "Hi"' in (await model.generate(history)).completion


async def test_reasoning_notes_and_cost_are_in_the_output(model: Model) -> None:
    output = await model.generate("Hi", config=GenerateConfig(reasoning_effort="high"))
    assert isinstance(output.message.content[0], ContentReasoning)
    assert any("simulat" in note for note in output.metadata["notes"])
    assert "cost" in output.metadata
    assert output.stop_reason == "stop"


async def test_tokens_add_up(model: Model) -> None:
    usage = (await model.generate("Hi")).usage
    cached = usage.input_tokens_cache_read or 0
    assert usage.input_tokens + cached + usage.output_tokens == usage.total_tokens > 0


async def test_options_of_a_call(model: Model) -> None:
    config = GenerateConfig(max_tokens=1000, temperature=0.2, stop_seqs=["\n\n"], seed=1, reasoning_effort="none")
    assert (await model.generate("Hi", config=config)).completion


@pytest.mark.parametrize("choice", ["auto", "any", ToolFunction(name="add")])
async def test_a_tool_is_called(model: Model, choice: Any) -> None:
    output = await model.generate("What is 1 + 1?", tools=[add()], tool_choice=choice)
    assert output.message.tool_calls[0].function == "add"
    assert output.stop_reason == "tool_calls"


async def test_a_conversation_goes_back_with_its_reasoning(model: Model) -> None:
    question = ChatMessageUser(content="What is 1 + 1?")
    messages, output = await model.generate_loop([question], tools=[add()])
    assert [message.role for message in messages] == ["assistant", "tool", "assistant"]
    assert messages[0].metadata["cnllm"]["reasoning"]
    assert output.completion


async def test_a_message_of_another_model_is_taken(model: Model) -> None:
    history = [ChatMessageUser(content="Hi"), ChatMessageAssistant(content="Hello"), ChatMessageUser(content="And?")]
    assert 'You said: "And?"' in (await model.generate(history)).completion


class Color(BaseModel):
    """A color."""

    red: int
    green: int


async def test_structured_output(model: Model) -> None:
    schema = ResponseSchema(name="color", json_schema=json_schema(Color))
    output = await model.generate("White", config=GenerateConfig(response_schema=schema))
    assert Color.model_validate_json(output.completion)


async def test_a_picture() -> None:
    model = get_model("cnllm/kimi-k2.6", simulate=True, memoize=False)
    parts = [ContentText(text="What is it?"), ContentImage(image="data:image/png;base64,iVBORw0KGgo=")]
    assert (await model.generate([ChatMessageUser(content=parts)])).completion


def test_a_task_is_evaluated(model: Model, tmp_path: Path) -> None:
    sample = Sample(input="Just reply with Hello World", target="Hello World")
    task = Task(dataset=[sample], solver=[system_message("Be short"), generate()], scorer=includes())
    log = eval(task, model=model, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success"
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert log.stats.model_usage


def test_a_task_with_a_tool_is_evaluated_by_the_name_of_the_model(tmp_path: Path) -> None:
    task = Task(dataset=[Sample("What is 1 + 1?", target="2")], solver=[use_tools(add()), generate()], scorer=match())
    log = eval(task, model="cnllm/glm-4.7", model_args={"simulate": True}, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success"
    assert any(message.role == "tool" for message in log.samples[0].messages)
