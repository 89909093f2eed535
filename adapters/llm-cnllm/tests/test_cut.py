"""What is cut never looks whole: a stream, a body, a call."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from llm.cli import cli
from llm_cnllm import AsyncCnllmModel, CnllmModel

import cnllm

CUT = ("It is warm", "", None)
CUT_IN_A_CALL = ("It is", '{"city": "Be', None)
CALL_AT_ITS_LENGTH = ("It is", '{"city": "Be', "length")
WHOLE_CALL = ("", '{"city": "Bern"}', "tool_calls")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.delenv("CNLLM_LLM_SIMULATE", raising=False)


@pytest.fixture
def called() -> list[str]:
    return []


@pytest.fixture
def weather(called: list[str]) -> Callable[[str], str]:
    def weather(city: str) -> str:
        """The weather in a city now."""
        called.append(city)
        return "sunny"

    return weather


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL])
def test_a_cut_stream_is_an_error_after_its_pieces(served: Any, called: Any, weather: Any, answer: Any) -> None:
    served(answer)
    seen = []
    with pytest.raises(cnllm.StreamCut):
        seen.extend(CnllmModel("home/m").chain("Hi", tools=[weather]))
    assert "It is" in "".join(seen)
    assert called == []


@pytest.mark.parametrize("answer", [CUT, CUT_IN_A_CALL])
def test_a_cut_stream_is_an_error_in_an_event_loop(served: Any, called: Any, weather: Any, answer: Any) -> None:
    served(answer)
    seen: list[str] = []

    async def take() -> None:
        async for piece in AsyncCnllmModel("home/m").chain("Hi", tools=[weather]):
            seen.append(piece)

    with pytest.raises(cnllm.StreamCut):
        asyncio.run(take())
    assert "It is" in "".join(seen)
    assert called == []


def test_the_command_ends_with_an_error(served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served(CUT)
    file = tmp_path / "providers.toml"
    file.write_text(f'{file.read_text()}[aliases]\nhomely = "home/m"\n')
    done = CliRunner().invoke(cli, ["-m", "cnllm/homely", "Hi"])
    assert done.exit_code == 1
    assert "It is warm" in done.output
    assert "Error: " in done.output
    assert "[]" in CliRunner().invoke(cli, ["logs", "list", "--json"]).output.replace("\n", "")


def test_a_cut_body_is_an_error(served: Any) -> None:
    served(CUT)
    with pytest.raises(cnllm.CnllmError):
        CnllmModel("home/m").prompt("Hi", stream=False).text()


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_without_its_end_is_not_run_and_stands_in_the_log(
    served: Any, called: Any, weather: Any, stream: bool
) -> None:
    served(CALL_AT_ITS_LENGTH)
    chain = CnllmModel("home/m").conversation().chain("Hi", tools=[weather], stream=stream)
    response = list(chain.responses())[-1]
    assert "It is" in response.text()
    assert called == []
    assert response.response_json["finish"] == "length"
    assert response.response_json["incomplete"] == ['{"city": "Be']


@pytest.mark.parametrize("stream", [True, False])
def test_a_whole_call_is_run(served: Any, called: Any, weather: Any, stream: bool) -> None:
    requests = served(WHOLE_CALL, ("It is sunny", "", "stop"))
    text = CnllmModel("home/m").conversation().chain("Hi", tools=[weather], stream=stream).text()
    assert text.strip() == "It is sunny"
    assert called == ["Bern"]
    assert requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
