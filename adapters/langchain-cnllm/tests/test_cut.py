"""What is cut never looks whole: a stream, a body, a call."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_cnllm import ChatCnllm

import cnllm

CUT = ("It is warm", "", None)
CUT_IN_A_CALL = ("It is", '{"city": "Be', None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")


def weather(city: str) -> str:
    """The weather in a city now."""
    return f"sunny in {city}"


def model() -> Any:
    return ChatCnllm(model="home/m", max_retries=0).bind_tools([weather])


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL])
def test_a_cut_stream_is_an_error_after_its_pieces(served: Callable[..., Any], answer: Any) -> None:
    served(answer)
    seen = []
    with pytest.raises(cnllm.StreamCut):
        seen.extend(model().stream("Hi"))
    assert "It is" in "".join(chunk.text for chunk in seen)
    assert not [chunk for chunk in seen if chunk.tool_calls or chunk.response_metadata.get("finish_reason")]
    assert not [chunk for chunk in seen if getattr(chunk, "chunk_position", None) == "last"]


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL])
async def test_a_cut_stream_is_an_error_on_the_asynchronous_side(served: Callable[..., Any], answer: Any) -> None:
    served(answer)
    with pytest.raises(cnllm.StreamCut):
        [chunk async for chunk in model().astream("Hi")]


def test_a_cut_body_is_an_error(served: Callable[..., Any]) -> None:
    served(CUT)
    with pytest.raises(cnllm.CnllmError):
        model().invoke("Hi")


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_without_its_end_is_invalid(served: Callable[..., Any], stream: bool) -> None:
    served(CALL_AT_ITS_LENGTH)
    chunks = list(model().stream("Hi")) if stream else [model().invoke("Hi")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.tool_calls == []
    mark = "incomplete: " if stream else ""  # else LangChain would close the JSON and call the tool
    assert [(call["name"], call["args"]) for call in whole.invalid_tool_calls] == [("weather", f'{mark}{{"city": "Be')]
    assert whole.response_metadata["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_a_call(served: Callable[..., Any], stream: bool) -> None:
    requests = served(WHOLE_CALL)
    chunks = list(model().stream("Hi")) if stream else [model().invoke("Hi")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("weather", {"city": "Bern"})]
    assert whole.invalid_tool_calls == []
    assert requests[0]["tools"][0]["function"]["name"] == "weather"


def test_an_answer_at_its_length_says_so(served: Callable[..., Any]) -> None:
    served(("It is warm", "", "length"))
    assert model().invoke("Hi").response_metadata["finish_reason"] == "length"
