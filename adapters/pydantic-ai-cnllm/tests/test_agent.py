"""Examples of pydantic-ai's documentation, with the simulator as the endpoint."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, NativeOutput, RunContext, ToolOutput
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ThinkingPart
from pydantic_ai_cnllm import CnllmModel


class City(BaseModel):
    """Where it was."""

    city: str
    country: str


@pytest.fixture
def model() -> CnllmModel:
    return CnllmModel("glm-4.7", simulate=True)


def test_hello_world_with_instructions(model: CnllmModel) -> None:
    result = Agent(model, instructions="Be concise, reply with one sentence.").run_sync(
        "Where does hello world come from?"
    )
    assert 'You said: "Where does hello world come from?"' in result.output
    assert result.usage.output_tokens > 0


def test_thinking_notes_and_cost_are_kept(model: CnllmModel) -> None:
    response = Agent(model, model_settings={"thinking": "high"}).run_sync("Hi").response
    assert any(isinstance(part, ThinkingPart) for part in response.parts)
    assert any("simulat" in note for note in response.provider_details["notes"])
    assert response.finish_reason == "stop"


def test_thinking_can_be_off(model: CnllmModel) -> None:
    response = Agent(model, model_settings={"thinking": False, "max_tokens": 900}).run_sync("Hi").response
    assert [type(part) for part in response.parts] == [TextPart]


def test_the_dice_game_with_plain_and_context_tools(model: CnllmModel) -> None:
    agent = Agent(model, deps_type=str, system_prompt="You're a dice game.")
    called = []

    @agent.tool_plain
    def roll_dice() -> str:
        """Roll a six-sided die and return the result."""
        called.append("dice")
        return "4"

    @agent.tool
    def get_player_name(ctx: RunContext[str]) -> str:
        """Get the player's name."""
        return ctx.deps

    assert agent.run_sync("My guess is 4", deps="Anne").output
    assert called


def test_a_tool_that_wants_a_retry_is_called_again(model: CnllmModel) -> None:
    agent = Agent(model, retries=2)
    tries = []

    @agent.tool_plain
    def user_id(name: str) -> int:
        """Get a user's ID from their full name."""
        tries.append(name)
        if len(tries) == 1:
            raise ModelRetry("no user found, remember to provide their full name")
        return 123

    assert agent.run_sync("Send a message to John").output
    assert tries


@pytest.mark.parametrize("output", [City, ToolOutput(City, name="city"), NativeOutput(City)])
def test_structured_output(model: CnllmModel, output: object) -> None:
    assert isinstance(Agent(model, output_type=output).run_sync("The windy city in the US of A.").output, City)


async def texts(agent: Agent, question: str) -> list[str]:
    async with agent.run_stream(question) as result:
        return [text async for text in result.stream_text(delta=True, debounce_by=None)]


def test_a_stream_adds_up_to_the_answer(model: CnllmModel) -> None:
    import asyncio

    shown = asyncio.run(texts(Agent(model), "Hi"))
    assert len(shown) > 3
    assert "".join(shown) == Agent(model).run_sync("Hi").output


def test_a_stream_with_a_tool(model: CnllmModel) -> None:
    import asyncio

    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    assert "sunny" in "".join(asyncio.run(texts(agent, "How warm is it?")))


def test_a_conversation_goes_on_also_from_json(model: CnllmModel) -> None:
    agent = Agent(model)
    first = agent.run_sync("Tell me a joke.")
    history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
    second = agent.run_sync("Explain?", message_history=history)
    assert 'You said: "Explain?"' in second.output
    assert len(second.all_messages()) == 4


def test_a_history_of_another_model_is_taken(model: CnllmModel) -> None:
    first = Agent("test").run_sync("Hi")
    assert isinstance(first.all_messages()[-1], ModelResponse)
    assert Agent(model).run_sync("And?", message_history=first.all_messages()).output


def test_a_picture() -> None:
    picture = BinaryContent(data=b"\x89PNG\r\n\x1a\n" + bytes(20), media_type="image/png")
    model = CnllmModel("kimi-k2.6", simulate=True)
    assert Agent(model).run_sync(["What company is this logo from?", picture]).output


@dataclass
class Customer:
    name: str


def test_dynamic_instructions_and_an_output_validator(model: CnllmModel) -> None:
    agent = Agent(model, deps_type=Customer)

    @agent.instructions
    def add_name(ctx: RunContext[Customer]) -> str:
        return f"The user's name is {ctx.deps.name}."

    @agent.output_validator
    def check(text: str) -> str:
        return text.upper()

    assert agent.run_sync("What is my name?", deps=Customer("Ann")).output.isupper()
