"""Of a coding agent's tools the simulator calls the one that runs commands, with a command that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cnllm import Client


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TEXT = {"type": "string"}
AGENT = tool("Agent", ("prompt",), prompt=TEXT)
WRITE = tool("Write", ("file_path", "content"), file_path=TEXT, content=TEXT)


@pytest.fixture(scope="module")
def client() -> Client:
    return Client(simulate=True)


def calls(client: Client, prompt: str, *tools: dict[str, Any], **options: Any) -> list[tuple[str, Any]]:
    reply = client.call("glm-4.7", prompt, tools=list(tools), **options)
    return [(call.name, call.arguments) for call in reply.tool_calls]


def test_a_tool_that_runs_commands_lists_files_whatever_the_user_says(client: Client) -> None:
    """No word of the user becomes a command, a subagent, or a file."""
    shapes: list[tuple[dict[str, Any], Any]] = [
        (tool("Bash", ("command",), command=TEXT, description=TEXT), {"command": "ls"}),
        (tool("exec_command", ("cmd",), cmd=TEXT, workdir=TEXT), {"cmd": "ls"}),
        (tool("shell", ("command",), command={"type": "array", "items": TEXT}), {"command": ["ls"]}),
        (tool("bash", ("command", "description"), command=TEXT, description=TEXT), {"command": "ls"}),
    ]
    for shell, expected in shapes:
        ((name, arguments),) = calls(client, "rm -rf ~", AGENT, WRITE, shell)
        assert name == shell["function"]["name"]
        assert expected.items() <= arguments.items()
        assert "rm -rf" not in str({k: v for k, v in arguments.items() if k in ("command", "cmd")})


def test_parallel_calls_are_two_commands(client: Client) -> None:
    shell = tool("Bash", ("command",), command=TEXT)
    assert calls(client, "in parallel: rm -rf ~", AGENT, WRITE, shell) == [
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "pwd"}),
    ]


def test_without_such_a_tool_the_first_is_called(client: Client) -> None:
    """A command that need not be there, or is one of a list, is no command of a shell."""
    for other in (
        tool("edit", ("path",), command=TEXT, path=TEXT),
        tool("editor", ("command",), command={"enum": ["view", "create"]}),
        tool("robot", ("command",), command={"type": "object"}),
    ):
        assert calls(client, "hi", AGENT, other)[0][0] == "Agent"


def test_blocks_in_tags_before_the_users_words_are_not_repeated(client: Client) -> None:
    context = "<system-reminder>\nAs you answer…\n</system-reminder>\n<env>x</env>\n"
    assert 'You said: "List the files"' in client.call("glm-4.7", f"{context}List the files").text
    assert "<env>x</env>" in client.call("glm-4.7", "<env>x</env>").text
