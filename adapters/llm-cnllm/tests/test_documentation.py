"""Examples of llm's documentation on its library and its command, with the simulator as the endpoint."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llm
import pytest
from click.testing import CliRunner
from llm.cli import cli
from pydantic import BaseModel

MODEL = "cnllm/glm-4.7"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("CNLLM_LLM_SIMULATE", "1")


@pytest.fixture
def model() -> Any:
    return llm.get_model(MODEL)


def run(*args: str, stdin: str | None = None) -> str:
    done = CliRunner().invoke(cli, list(args), input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def upper(text: str) -> str:
    """Write a text in capital letters."""
    return text.upper()


def test_a_prompt_its_text_and_its_system_text(model: Any) -> None:
    response = model.prompt("Name a pelican", system="Answer like a pirate")
    assert "not yet done" in repr(response)
    assert response.text() == str(response)
    assert 'You said: "Name a pelican"' in response.text()


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(llm.UnknownModelError):
        llm.get_model("cnllm/no-such-model")


def test_a_response_comes_in_pieces(model: Any) -> None:
    response = model.prompt("Name a pelican")
    pieces = list(response)
    assert len(pieces) > 3
    assert "".join(pieces) == response.text()


def test_options_and_a_key_of_ones_own(model: Any) -> None:
    options = {"temperature": 0.2, "max_tokens": 900, "seed": 1}
    assert model.prompt("Name an otter", options=options, key="none").text()
    with pytest.raises(ValueError, match="temperature"):
        model.prompt("Name an otter", options={"temperature": "hot"}).text()


def test_usage_json_and_what_happens_at_the_end(model: Any) -> None:
    response = model.prompt("Name an otter")
    done: list[Any] = []
    response.on_done(lambda ended: done.append(ended.text()))
    assert done == [response.text()]
    assert response.usage().output > 0
    assert response.json()["finish"] == "stop"


def test_attachments_of_bytes_and_of_a_file(tmp_path: Path) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(20)
    (tmp_path / "a.png").write_bytes(picture)
    model = llm.get_model("cnllm/kimi-k2.6")
    assert "image/jpeg" in model.attachment_types
    both = [llm.Attachment(path=str(tmp_path / "a.png")), llm.Attachment(content=picture)]
    assert model.prompt("What are they?", attachments=both).text()


def test_calls_are_seen_run_and_answered(model: Any) -> None:
    response = model.prompt("Write panda in capitals", tools=[upper])
    call = response.tool_calls()[0]
    assert (call.name, set(call.arguments)) == ("upper", {"text"})
    result = response.execute_tool_calls()[0]
    assert (result.output, result.tool_call_id) == (call.arguments["text"].upper(), call.tool_call_id)
    assert result.output in response.reply().text()


def test_results_that_were_computed_elsewhere(model: Any) -> None:
    response = model.prompt("Write panda in capitals", tools=[upper])
    call = response.tool_calls()[0]
    result = llm.ToolResult(name="upper", output="PANDA", tool_call_id=call.tool_call_id)
    assert "PANDA" in response.reply(tool_results=[result]).text()


def test_a_chain_by_pieces_and_by_responses(model: Any) -> None:
    assert len(list(model.chain("Write panda in capitals", tools=[upper]))) > 3
    responses = list(model.chain("Write panda in capitals", tools=[upper]).responses())
    assert [bool(response.tool_calls()) for response in responses] == [True, False]


def test_a_call_can_be_watched_and_refused(model: Any) -> None:
    seen: list[str] = []

    def before(tool: llm.Tool | None, call: llm.ToolCall) -> None:
        seen.append(f"before {call.name}")
        raise llm.CancelToolCall("not now")

    def after(tool: llm.Tool, call: llm.ToolCall, result: llm.ToolResult) -> None:
        seen.append(f"after {result.output}")

    assert model.chain("Write panda in capitals", tools=[upper], after_call=after).text()
    assert model.chain("Write panda in capitals", tools=[upper], before_call=before).text()
    assert [word.split()[0] for word in seen] == ["after", "before"]


def test_a_tool_knows_its_call(model: Any) -> None:
    known: list[str] = []

    def lookup(name: str, llm_tool_call: llm.ToolCall) -> str:
        """Look up a name."""
        known.append(llm_tool_call.tool_call_id)
        return "found"

    assert "found" in model.chain("Look up Ann", tools=[lookup]).text()
    assert known[0]


def test_a_tool_pauses_and_the_chain_goes_on_later(model: Any) -> None:
    allowed: list[bool] = []

    def delete(path: str) -> str:
        """Delete a file."""
        if not allowed:
            raise llm.PauseChain("waiting")
        return "deleted"

    chain = model.chain("Delete a.txt", tools=[delete])
    with pytest.raises(llm.PauseChain) as pause:
        chain.text()
    assert pause.value.tool_call.name == "delete"
    allowed.append(True)
    history = [*chain._responses[-1].prompt.messages, *chain._responses[-1].messages()]
    assert "deleted" in model.chain(messages=history, tools=[delete]).text()


class Memory(llm.Toolbox):
    """What was kept."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def keep(self, key: str, value: str) -> str:
        """Keep a value."""
        self._kept[key] = value
        return f"kept {value}"


def test_a_toolbox_in_a_conversation(model: Any) -> None:
    memory = Memory()
    conversation = model.conversation(tools=[memory])
    assert "kept" in conversation.chain("Keep the name Simon").text()
    assert len(memory._kept) == 1


class Dog(BaseModel):
    """A dog."""

    name: str
    age: int


DOG = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}


@pytest.mark.parametrize("schema", [Dog, DOG, llm.schema_dsl("name, age int, bio")])
def test_a_schema_as_a_class_as_json_and_in_short(model: Any, schema: Any) -> None:
    assert "name" in json.loads(model.prompt("Invent a dog", schema=schema).text())


def test_a_schema_of_several(model: Any) -> None:
    text = model.prompt("Invent 3 dogs", schema=llm.schema_dsl("name, age int", multi=True)).text()
    assert set(json.loads(text)["items"][0]) == {"name", "age"}


def test_fragments(model: Any) -> None:
    response = model.prompt("What do they say?", fragments=["one dog", "two dogs"], system_fragments=["Be short"])
    assert "one dog" in response.text()


def test_a_conversation(model: Any) -> None:
    conversation = model.conversation()
    conversation.prompt("Five facts on pelicans", system="Be short").text()
    assert 'You said: "Now skunks"' in conversation.prompt("Now skunks").text()
    assert len(conversation.responses) == 2


def test_a_model_for_an_event_loop(model: Any) -> None:
    async def texts() -> tuple[str, str, str]:
        other = llm.get_async_model(MODEL)
        pieces = "".join([piece async for piece in other.prompt("Name a pelican")])
        chain = await other.chain("Write panda in capitals", tools=[upper]).text()
        return pieces, await other.prompt("Name a pelican", stream=False).text(), chain

    pieces, whole, chain = asyncio.run(texts())
    assert pieces == whole == model.prompt("Name a pelican").text()
    assert chain == model.chain("Write panda in capitals", tools=[upper]).text()


def test_a_template_and_a_file_as_a_fragment(tmp_path: Path) -> None:
    run("-m", MODEL, "-s", "Write tests for this code", "--save", "pytest")
    assert "def f" in run("-t", "pytest", stdin="def f(): ...")
    (tmp_path / "code.py").write_text("print('pelican')\n")
    assert "pelican" in run("-m", MODEL, "-f", str(tmp_path / "code.py"), "Explain it")


def test_functions_of_the_command_line() -> None:
    code = 'def multiply(x: int, y: int) -> int:\n    """Multiply two numbers."""\n    return x * y\n'
    assert run("-m", MODEL, "--functions", code, "What is 12 * 13?")
    entries = json.loads(run("logs", "list", "--json", "-n", "2"))
    assert any(call["name"] == "multiply" for entry in entries for call in entry.get("tool_calls", []))


def test_a_chat_goes_on_until_it_is_left() -> None:
    shown = run("chat", "-m", MODEL, "-s", "You are a cheesecake", stdin="Who are you?\nquit\n")
    assert 'You said: "Who are you?"' in shown


def test_an_alias_a_default_and_options_that_stay() -> None:
    run("aliases", "set", "glm", MODEL)
    run("models", "default", "glm")
    run("models", "options", "set", "glm", "max_tokens", "900")
    assert 'You said: "Hi"' in run("Hi")
    assert "max_tokens: 900" in run("models", "options", "show", "glm")


def test_several_dogs_and_usage_on_the_command_line() -> None:
    dogs = json.loads(run("-m", MODEL, "--schema-multi", "name, bio", "Invent two dogs"))
    assert set(dogs["items"][0]) == {"name", "bio"}
    done: Callable[..., Any] = CliRunner().invoke
    assert "output" in done(cli, ["-m", MODEL, "Hi", "-u"]).stderr
