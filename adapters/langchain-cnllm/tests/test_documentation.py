"""Examples of LangChain's documentation on models, messages and tools, with the simulator as the endpoint."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest
from langchain_cnllm import ChatCnllm
from langchain_core.callbacks import UsageMetadataCallbackHandler, get_usage_metadata_callback
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.output_parsers.openai_tools import PydanticToolsParser
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate, MessagesPlaceholder
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableParallel
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import tool
from pydantic import BaseModel, Field

PICTURE = "iVBORw0KGgo="


@pytest.fixture
def model() -> ChatCnllm:
    return ChatCnllm(model="glm-4.7", simulate=True)


@tool
def get_weather(location: str) -> str:
    """Get the weather at a place."""
    return f"It is sunny in {location}."


@tool
def get_time(location: str) -> str:
    """Get the time at a place."""
    return f"It is noon in {location}."


class Movie(BaseModel):
    """A movie with its details."""

    title: str = Field(description="The title of the movie")
    year: int = Field(description="The year of its release")


class MovieDict(TypedDict):
    """A movie with its details."""

    title: Annotated[str, ..., "The title of the movie"]
    year: Annotated[int, ..., "The year of its release"]


def test_a_conversation_of_dicts_of_pairs_and_of_objects(model: ChatCnllm) -> None:
    dicts = [
        {"role": "system", "content": "You translate English to French."},
        {"role": "user", "content": "Translate: I love programming."},
        {"role": "assistant", "content": "J'adore la programmation."},
        {"role": "user", "content": "Translate: I love building."},
    ]
    kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
    objects = [kinds[one["role"]](one["content"]) for one in dicts]
    pairs = [(one["role"], one["content"]) for one in dicts]
    answers = [model.invoke(history).text for history in (dicts, objects, pairs)]
    assert len(set(answers)) == 1
    assert "Translate: I love building." in answers[0]


def test_a_stream_is_added_up(model: ChatCnllm) -> None:
    full: Any = None
    for chunk in model.stream("What colour is the sky?"):
        full = chunk if full is None else full + chunk
    kinds = [block["type"] for block in full.content_blocks]
    assert kinds == ["reasoning", "text"]
    assert full.usage_metadata["total_tokens"] > 0


def test_reasoning_is_a_block_of_the_answer_and_of_the_stream(model: ChatCnllm) -> None:
    blocks = model.invoke("Why do parrots talk?").content_blocks
    assert any(block["type"] == "reasoning" and block["reasoning"] for block in blocks)
    steps = [b for chunk in model.stream("Why?") for b in chunk.content_blocks if b["type"] == "reasoning"]
    assert len(steps) > 1


def test_events_of_a_stream(model: ChatCnllm) -> None:
    async def names() -> list[str]:
        return [event["event"] async for event in model.astream_events("Hello")]

    found = asyncio.run(names())
    assert found[0] == "on_chat_model_start"
    assert found.count("on_chat_model_stream") > 3
    assert found[-1] == "on_chat_model_end"


def test_batches_in_order_as_completed_and_bounded(model: ChatCnllm) -> None:
    questions = ["Why do parrots talk?", "How do airplanes fly?", "What is quantum computing?"]
    answers = model.batch(questions, config={"max_concurrency": 2})
    assert [question in answer.text for question, answer in zip(questions, answers, strict=True)] == [True] * 3
    done = dict(model.batch_as_completed(questions))
    assert {at: answer.text for at, answer in done.items()} == {at: one.text for at, one in enumerate(answers)}


def test_tools_are_called_and_their_results_answered(model: ChatCnllm) -> None:
    bound = model.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("What's the weather in Boston?")]
    messages.append(bound.invoke(messages))
    for call in messages[-1].tool_calls:
        messages.append(get_weather.invoke(call))
    assert isinstance(messages[-1], ToolMessage)
    assert "It is sunny" in bound.invoke(messages).text


@pytest.mark.parametrize("choice", ["any", "get_time", "auto"])
def test_a_choice_of_tools(model: ChatCnllm, choice: str) -> None:
    calls = model.bind_tools([get_weather, get_time], tool_choice=choice).invoke("What time is it?").tool_calls
    assert calls
    assert choice != "get_time" or calls[0]["name"] == "get_time"


def test_no_calls_side_by_side(model: ChatCnllm) -> None:
    bound = model.bind_tools([get_weather, get_time], parallel_tool_calls=False)
    assert len(bound.invoke("The weather and the time in Boston?").tool_calls) == 1


def test_calls_in_a_stream(model: ChatCnllm) -> None:
    gathered: Any = None
    for chunk in model.bind_tools([get_weather]).stream("What's the weather in Boston?"):
        gathered = chunk if gathered is None else gathered + chunk
    assert gathered.tool_calls[0]["name"] == "get_weather"
    assert [chunk["type"] for chunk in gathered.tool_call_chunks] == ["tool_call_chunk"]


def test_calls_as_objects(model: ChatCnllm) -> None:
    chain = model.bind_tools([Movie]) | PydanticToolsParser(tools=[Movie])
    assert isinstance(chain.invoke("The movie Inception")[0], Movie)


@pytest.mark.parametrize("shape", [Movie, MovieDict, Movie.model_json_schema()])
def test_an_answer_in_a_shape(model: ChatCnllm, shape: Any) -> None:
    answer: Any = model.with_structured_output(shape).invoke("Details of the movie Inception")
    data = answer.model_dump() if isinstance(answer, BaseModel) else answer
    assert set(data) == {"title", "year"}


def test_an_answer_in_a_shape_with_the_message(model: ChatCnllm) -> None:
    answer: Any = model.with_structured_output(Movie, include_raw=True).invoke("Details of the movie Inception")
    assert isinstance(answer["raw"], AIMessage)
    assert isinstance(answer["parsed"], Movie)
    assert answer["parsing_error"] is None


def test_pictures_in_both_forms() -> None:
    model = ChatCnllm(model="kimi-k2.6", simulate=True)
    question = {"type": "text", "text": "Describe it."}
    forms = [
        {"type": "image", "base64": PICTURE, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    ]
    for form in forms:
        assert model.invoke([{"role": "user", "content": [question, form]}]).text


def test_tokens_are_counted_over_calls(model: ChatCnllm) -> None:
    handler = UsageMetadataCallbackHandler()
    one = model.invoke("Hello", config={"callbacks": [handler]})
    model.invoke("Hello", config={"callbacks": [handler]})
    counted = next(iter(handler.usage_metadata.values()))
    assert counted["total_tokens"] == 2 * (one.usage_metadata or {})["total_tokens"]
    with get_usage_metadata_callback() as found:
        model.invoke("Hello")
    assert found.usage_metadata


def test_a_rate_limiter() -> None:
    limiter = InMemoryRateLimiter(requests_per_second=1000, check_every_n_seconds=0.001, max_bucket_size=1)
    limited = ChatCnllm(model="glm-4.7", simulate=True, rate_limiter=limiter)
    assert [limited.invoke("Hi").text for _ in range(3)]


def test_a_stream_can_be_off() -> None:
    model = ChatCnllm(model="glm-4.7", simulate=True, disable_streaming=True)
    assert len([chunk for chunk in model.stream("Hi") if chunk.text]) == 1


def test_another_model_takes_over(model: ChatCnllm) -> None:
    broken = ChatCnllm(model="no-such-model-anywhere", simulate=True)
    assert "Hi" in broken.with_fallbacks([model]).invoke("Hi").text
    assert "Hi" in model.with_retry(stop_after_attempt=2).invoke("Hi").text


def test_a_model_that_is_chosen_at_the_call(model: ChatCnllm) -> None:
    chosen = model.configurable_fields(
        model=ConfigurableField(id="model"), max_tokens=ConfigurableField(id="most", name="Most tokens")
    )
    answer = chosen.invoke("Hi", config={"configurable": {"model": "kimi-k2.6", "most": 900}})
    assert answer.response_metadata["model_name"] != model.invoke("Hi").response_metadata["model_name"]


def test_chains_side_by_side_and_a_parser(model: ChatCnllm) -> None:
    joke = ChatPromptTemplate.from_template("Tell a joke about {topic}") | model | StrOutputParser()
    poem = ChatPromptTemplate.from_template("Write a poem about {topic}") | model | StrOutputParser()
    both = RunnableParallel(joke=joke, poem=poem).invoke({"topic": "bears"})
    assert "joke about bears" in both["joke"]
    assert "poem about bears" in both["poem"]
    last = joke | RunnableLambda(lambda text: len(text))
    assert last.invoke({"topic": "bears"}) == len(both["joke"])


def test_examples_in_a_prompt(model: ChatCnllm) -> None:
    pair = ChatPromptTemplate.from_messages([("human", "{input}"), ("ai", "{output}")])
    shots = FewShotChatMessagePromptTemplate(example_prompt=pair, examples=[{"input": "2 🦜 2", "output": "4"}])
    prompt = ChatPromptTemplate.from_messages([("system", "You know maths."), shots, ("human", "{input}")])
    assert "2 🦜 9" in (prompt | model).invoke({"input": "2 🦜 9"}).text


def test_a_history_that_is_kept(model: ChatCnllm) -> None:
    kept = InMemoryChatMessageHistory()
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{input}")])
    chat = RunnableWithMessageHistory(
        prompt | model, lambda _: kept, input_messages_key="input", history_messages_key="history"
    )
    config: Any = {"configurable": {"session_id": "one"}}
    chat.invoke({"input": "I am Ann"}, config)
    assert "Who am I?" in chat.invoke({"input": "Who am I?"}, config).text
    assert [message.type for message in kept.messages] == ["human", "ai", "human", "ai"]


def test_a_history_is_trimmed(model: ChatCnllm) -> None:
    history = [SystemMessage("Be short"), HumanMessage("one"), AIMessage("1"), HumanMessage("two")]
    trimmed = trim_messages(history, max_tokens=2, token_counter=len, include_system=True, start_on="human")
    assert [message.text for message in trimmed] == ["Be short", "two"]
    assert "two" in model.invoke(trimmed).text


def test_json_without_a_shape(model: ChatCnllm) -> None:
    bound = model.bind(schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert set((bound | JsonOutputParser()).invoke("Give me JSON")) == {"a"}
