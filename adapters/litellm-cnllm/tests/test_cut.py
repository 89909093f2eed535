"""What is cut never looks whole: a stream, a body, a call."""

import json
from typing import Any

import litellm
import pytest
from litellm_cnllm import register

CUT = ("It is warm", "", None)
CUT_IN_A_CALL = ("It is", '{"city": "Be', None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASK: dict[str, Any] = {
    "model": "cnllm/home/m",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    "num_retries": 0,
}


@pytest.fixture(autouse=True)
def provider(served: Any) -> None:
    register()


async def take(seen: list[Any]) -> None:
    async for chunk in await litellm.acompletion(**ASK, stream=True):
        seen.append(chunk)


def is_end(chunk: Any) -> bool:
    return bool(chunk.choices and chunk.choices[0].finish_reason)


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL, CALL_AT_ITS_LENGTH])
def test_a_cut_stream_is_an_error_after_its_pieces(served: Any, answer: Any) -> None:
    served(answer)
    seen: list[Any] = []
    with pytest.raises(litellm.exceptions.MidStreamFallbackError, match=r"cut|incomplete"):
        seen.extend(litellm.completion(**ASK, stream=True))
    assert "It is" in "".join(chunk.choices[0].delta.content or "" for chunk in seen)
    assert not [chunk for chunk in seen if is_end(chunk) or chunk.choices[0].delta.tool_calls]


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL, CALL_AT_ITS_LENGTH])
async def test_a_cut_stream_is_an_error_on_the_asynchronous_side(served: Any, answer: Any) -> None:
    served(answer)
    seen: list[Any] = []
    with pytest.raises(litellm.exceptions.MidStreamFallbackError, match=r"cut|incomplete"):
        await take(seen)
    assert not [chunk for chunk in seen if is_end(chunk) or chunk.choices[0].delta.tool_calls]


@pytest.mark.parametrize("answer", [CUT, CALL_AT_ITS_LENGTH])
def test_a_cut_body_and_a_cut_call_are_errors(served: Any, answer: Any) -> None:
    served(answer)
    with pytest.raises(litellm.APIConnectionError):
        litellm.completion(**ASK)


@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_a_call(served: Any, stream: bool) -> None:
    served(WHOLE_CALL)
    response = litellm.completion(**ASK, stream=stream)
    whole = litellm.stream_chunk_builder(list(response)) if stream else response
    call = whole.choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("call_1", "weather", {"city": "Bern"})
    assert whole.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_at_its_length_says_so(served: Any, stream: bool) -> None:
    served(("It is warm", "", "length"))
    response = litellm.completion(**ASK, stream=stream)
    whole = litellm.stream_chunk_builder(list(response)) if stream else response
    assert whole.choices[0].finish_reason == "length"
