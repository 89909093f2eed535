"""What is cut never looks whole: a body, a call. Inspect asks for no streams."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import Model, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

import cnllm

CUT = ("It is warm", "", None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")
called: list[str] = []


@tool
def weather() -> Tool:
    async def execute(city: str) -> str:
        """Get the weather of a city.

        Args:
            city: The city.
        """
        called.append(city)
        return f"sunny in {city}"

    return execute


@pytest.fixture
def model(served: Any) -> Model:
    called.clear()
    return get_model("cnllm/home/m", memoize=False, retry=cnllm.Retry(attempts=1))


async def test_a_cut_body_is_an_error(served: Any, model: Model) -> None:
    served(CUT)
    with pytest.raises(cnllm.CnllmError):
        await model.generate("Hi")


async def test_a_call_without_its_end_has_a_parse_error(served: Any, model: Model) -> None:
    served(CALL_AT_ITS_LENGTH)
    output = await model.generate("Hi", tools=[weather()])
    assert output.stop_reason == "max_tokens"
    call = output.message.tool_calls[0]
    assert (call.function, call.arguments) == ("weather", {})
    assert "incomplete" in call.parse_error


def test_a_task_runs_no_tool_of_a_cut_call(served: Any, model: Model, tmp_path: Path) -> None:
    requests = served(CALL_AT_ITS_LENGTH, ("It is warm", "", "stop"))
    task = Task(dataset=[Sample("Hi")], solver=[use_tools(weather()), generate()])
    log = eval(task, model=model, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success"
    assert called == []
    assert "incomplete" in requests[-1]["messages"][-1]["content"]


def test_a_task_runs_a_whole_call(served: Any, model: Model, tmp_path: Path) -> None:
    requests = served(WHOLE_CALL, ("It is sunny", "", "stop"))
    task = Task(dataset=[Sample("Hi")], solver=[use_tools(weather()), generate()])
    log = eval(task, model=model, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success"
    assert called == ["Bern"]
    assert requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "sunny in Bern"}


async def test_an_answer_at_its_length_says_so(served: Any, model: Model) -> None:
    served(("It is warm", "", "length"))
    assert (await model.generate("Hi")).stop_reason == "max_tokens"


async def test_an_address_of_ones_own(served: Any) -> None:
    requests = served(("It is warm", "", "stop"))
    home = cnllm.Registry.load().resolve("home/m").flags.base_url
    model = get_model("cnllm/openai-compatible/any", base_url=home, api_key="none", memoize=False)
    assert "It is warm" in (await model.generate("Hi")).completion
    assert requests[0]["model"] == "any"
