"""The plugin in llm's own command and library, with the simulator as the endpoint."""

import json
from pathlib import Path

import llm
import pytest
from click.testing import CliRunner
from llm.cli import cli


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("CNLLM_LLM_SIMULATE", "1")


def run(*args: str, stdin: str | None = None) -> str:
    done = CliRunner().invoke(cli, list(args), input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_models_are_listed() -> None:
    assert "cnllm/glm-4.7" in run("models", "list")


def test_a_prompt_a_pipe_and_a_system_text() -> None:
    assert 'You said: "Hi"' in run("-m", "cnllm/glm-4.7", "Hi")
    assert 'You said: "Hi"' in run("-m", "cnllm/glm-4.7", "Hi", "--no-stream", "-s", "Be short")
    assert "piped" in run("-m", "cnllm/glm-4.7", stdin="piped")


def test_a_conversation_goes_on() -> None:
    run("-m", "cnllm/glm-4.7", "first")
    assert 'You said: "second"' in run("-c", "second")
    entry = json.loads(run("logs", "list", "--json", "-n", "1"))[0]
    assert entry["response_json"]["finish"] == "stop"
    assert entry["output_tokens"] > 0


def test_options_and_a_model_by_another_name() -> None:
    assert "simulated" in run("-m", "cnllm/glm-4.7", "-o", "reasoning", "off", "-o", "temperature", "0.2", "Hi").lower()


def test_a_schema() -> None:
    answer = json.loads(run("-m", "cnllm/glm-4.7", "--schema", "name str, age int", "a dog"))
    assert set(answer) == {"name", "age"}


def test_a_tool_runs_and_the_answer_follows() -> None:
    called = []

    def weather(city: str) -> str:
        """The weather in a city now."""
        called.append(city)
        return "sunny"

    chain = llm.get_model("cnllm/glm-4.7").chain("How warm is it in Bern?", tools=[weather])
    assert "sunny" in chain.text()
    assert called


def test_an_attachment(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    response = llm.get_model("cnllm/kimi-k2.6").prompt("What is it?", attachments=[llm.Attachment(path=str(picture))])
    assert response.text()


def test_reasoning_and_notes_are_kept() -> None:
    response = llm.get_model("cnllm/glm-4.7").prompt("Hi", stream=False)
    assert response.text()
    assert any("simulat" in note for note in response.response_json["notes"])
    assert any(type(part).__name__ == "ReasoningPart" for message in response.messages() for part in message.parts)
